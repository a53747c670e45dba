"""``node-attestation-controller status``: the state of the fleet, one line per Cluster with a policy."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from attestors.registry import Registry
from signer.cli.arguments import (
    add_config,
    add_controller_namespace,
    add_management_cluster,
    namespace,
    require_installed,
)
from signer.cli.management import management_access
from signer.cli.output import add_output, print_result
from signer.configuration import Configuration, every_attestor, read_configuration_file
from signer.controller.workload_access import KubeconfigUnknown, Restricted
from signer.explain.fleet import DAYS, AuthorityLife, ClusterStatus, RecordsUnverified, fleet_status
from signer.explain.workload_requests import Unreachable
from signer.kube.client import Client
from signer.model.fields import format_time

EXIT_NEEDS_ATTENTION: Final = 3
DEFAULT_TIMEOUT_SECONDS: Final = 10.0
_UNKNOWN: Final = "?"
_HEADINGS: Final = (
    *("Cluster", "Mode", "Ready", "Attestors", "Attested", "Waiting", "Denied in the\nlast hour"),
    f"Days left\n{' / '.join(f'<{days}' for days in DAYS)} / more",
    "CA until",
)


def add_status(parser: argparse.ArgumentParser) -> None:
    """Complete the parser of the command."""
    parser.description = "Changes nothing. Exit code 0: nothing needs attention; 3: something needs attention."
    parser.set_defaults(command=_status)
    add_management_cluster(parser)
    add_controller_namespace(parser)
    add_config(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("-n", "--namespace", type=namespace, help="list only Clusters of this namespace (default: all)")
    which.add_argument(
        "-A", "--all-namespaces", action="store_true", help="list Clusters of all namespaces, as without -n"
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=DEFAULT_TIMEOUT_SECONDS,
        metavar="SECONDS",
        help="time limit for each workload cluster (default: %(default)s)",
    )
    add_output(parser)


def _status(options: argparse.Namespace) -> int:
    logging.basicConfig(level=logging.CRITICAL, stream=sys.stderr)
    now = datetime.now(UTC)
    found = asyncio.run(_read_fleet(options, now))
    print_result(
        options.output, lambda: as_json(found, now), lambda console: show(found, now, console, options.namespace)
    )
    return EXIT_NEEDS_ATTENTION if any(one.needs(now) for one in found) else 0


async def _read_fleet(options: argparse.Namespace, now: datetime) -> tuple[ClusterStatus, ...]:
    access = await management_access(options)
    registry = Registry()
    configuration = Configuration(
        namespace=options.controller_namespace,
        watch_namespace=options.namespace,
        attestors=every_attestor(registry.providers),
    )
    if options.config is not None:
        file = read_configuration_file(options.config)
        configuration = replace(configuration, attestors=file.attestors, floors=file.floors)
        require_installed(configuration.attestors)
    async with Client(access.connection, token_source=access.token_source) as management:
        return await fleet_status(management, configuration, registry, lambda: now, options.timeout)


def as_json(found: Sequence[ClusterStatus], now: datetime) -> dict[str, Any]:
    """The whole status as JSON. Fields are only ever added."""
    return {
        "at": format_time(now),
        "needsAttention": any(one.needs(now) for one in found),
        "clusters": [_cluster(one, now) for one in found],
    }


def _cluster(one: ClusterStatus, now: datetime) -> dict[str, Any]:
    attestations, requests, authority = one.attestations, one.requests, one.authority
    not_after = format_time(authority.not_after) if isinstance(authority, AuthorityLife) else None
    return {
        "cluster": str(one.cluster),
        "mode": one.mode,
        "belowFloors": one.below_floors,
        "attestors": one.attestors,
        "ready": {"status": one.ready.status, "reason": one.ready.reason, "message": one.ready.message},
        "machines": None if isinstance(attestations, RecordsUnverified) else attestations.machines,
        "attested": None if isinstance(attestations, RecordsUnverified) else attestations.attested,
        "certificates": None
        if isinstance(attestations, RecordsUnverified)
        else {
            "expired": attestations.lives.expired,
            "overdue": attestations.lives.overdue,
            **{f"below{days}Days": attestations.lives.below[days] for days in DAYS},
            "more": attestations.lives.more,
        },
        "foreignRecords": None if isinstance(attestations, RecordsUnverified) else attestations.not_ours,
        "pending": None if isinstance(requests, Unreachable) else requests.pending,
        "denied": None if isinstance(requests, Unreachable) else dict(requests.denied),
        "failed": None if isinstance(requests, Unreachable) else requests.failed,
        "countedAll": None if isinstance(requests, Unreachable) else requests.counted_all,
        "unreachable": requests.message if isinstance(requests, Unreachable) else "",
        "certificateAuthorityNotAfter": not_after,
        "restrictedKubeconfig": None
        if isinstance(one.kubeconfig, KubeconfigUnknown)
        else isinstance(one.kubeconfig, Restricted),
        "needs": list(one.needs(now)),
        "notes": list(one.notes()),
    }


def show(found: Sequence[ClusterStatus], now: datetime, console: Console, namespace_only: str | None = None) -> None:
    """Print the status as text; ``namespace_only`` is the namespace if only one was read."""
    if not found:
        where = f"of namespace {namespace_only} " if namespace_only else ""
        console.print(f"No Cluster {where}has a NodeAttestationPolicy: the controller serves none of them.")
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in _HEADINGS:
        table.add_column(heading, no_wrap=True)
    for one in found:
        table.add_row(*_row(one, now))
    unbounded = console.options.update(max_width=sys.maxsize)
    if console.measure(table, options=unbounded).maximum <= console.width:
        console.print(table)
    else:
        _show_narrow(found, now, console)
    for one in found:
        for line in (*one.needs(now), *one.notes()):
            console.print(Text.assemble((str(one.cluster), "bold"), f" {line}"))
    if not any((*one.needs(now), *one.notes()) for one in found):
        console.print(Text("Nothing needs attention.", style="green"))


def _show_narrow(found: Sequence[ClusterStatus], now: datetime, console: Console) -> None:
    """Print some lines for each Cluster, where the table is too wide for the console."""
    for one in found:
        cluster, mode, ready, *others = _row(one, now)
        console.print(Text.assemble((cluster.plain, "bold"), f", {mode}, Ready ", ready))
        texts = (f"{heading}: {text}" for heading, text in zip(_HEADINGS[3:], others, strict=True))
        console.print(Padding("; ".join(texts).replace("\n", " ").replace(" / ", "/"), (0, 0, 0, 2)))
    console.print()


def _row(one: ClusterStatus, now: datetime) -> list[Text]:
    attestations, requests, authority = one.attestations, one.requests, one.authority
    attested = lives = waiting = denied = _UNKNOWN
    if not isinstance(attestations, RecordsUnverified):
        attested = f"{attestations.attested} of {attestations.machines}"
        numbers = [*(attestations.lives.below[days] for days in DAYS), attestations.lives.more]
        lives = " / ".join(str(number) for number in numbers)
        for word, count in (("expired", attestations.lives.expired), ("overdue", attestations.lives.overdue)):
            lives += f",\n{count} {word}" if count else ""
    if not isinstance(requests, Unreachable):
        more = "" if requests.counted_all else "+"
        waiting = f"{requests.pending}{more}"
        denied = ",\n".join(f"{reason} {count}{more}" for reason, count in requests.denied.items())
    until = f"{authority.not_after:%Y-%m-%d}" if isinstance(authority, AuthorityLife) else _UNKNOWN
    ready = one.ready.status or "Unknown"
    style = "red" if one.needs(now) else "green"
    plain = (one.attestors, attested, waiting, denied or "none", lives, until)
    return [Text(str(one.cluster)), Text(one.mode), Text(ready, style=style), *(Text(text) for text in plain)]


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError("must be a number of seconds") from None
    if not 0 < seconds <= 600:
        raise argparse.ArgumentTypeError("must be more than 0 and at most 600 seconds")
    return seconds
