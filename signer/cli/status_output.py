"""Prints the status of the fleet, or of one Cluster and its Machines, as a table or as JSON."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from signer.cli.machine_output import machine_as_json
from signer.cli.status_machines import in_order, next_commands, show_machines
from signer.controller.workload_access import KubeconfigUnknown, Restricted
from signer.explain.fleet import (
    DAYS,
    OBSERVE_PROTECTS_NOTHING,
    AuthorityLife,
    ClusterStatus,
    RecordsUnverified,
)
from signer.explain.workload_requests import Unreachable
from signer.model.fields import format_time

_NAMED_OPEN: Final = 5
_UNKNOWN: Final = "?"
HEADINGS: Final = (
    *("Cluster", "Mode", "Ready", "Attestors", "Attested", "Waiting", "Denied in the\nlast hour"),
    f"Days left\n{' / '.join(f'<{days}' for days in DAYS)} / more",
    "CA until",
)


def needs_attention(found: Sequence[ClusterStatus], now: datetime, *, by_machine: bool) -> bool:
    """Whether a Cluster needs attention, or a Machine of one if ``by_machine``."""
    machines = (machine for one in found for machine in one.machines if by_machine)
    return any(one.needs(now) for one in found) or any(machine.needs_attention for machine in machines)


def as_json(found: Sequence[ClusterStatus], now: datetime, *, by_machine: bool = False) -> dict[str, Any]:
    """The whole status as JSON, with the Machines if ``by_machine``. Fields are only ever added."""
    document = {
        "at": format_time(now),
        "needsAttention": needs_attention(found, now, by_machine=by_machine),
        "open": [str(one.cluster) for one in found if one.is_open],
        "clusters": [_cluster(one, now) for one in found],
    }
    if by_machine:
        document["machines"] = [machine_as_json(machine) for one in found for machine in in_order(one.machines)]
    return document


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
        "unknown": None if isinstance(attestations, RecordsUnverified) else attestations.unknown,
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
    _show_open(found, console)
    _show_clusters(found, now, console)
    _show_needs(found, now, console)
    if not any((*one.needs(now), *one.notes()) for one in found):
        console.print(Text("Nothing needs attention.", style="green"))


def show_cluster(one: ClusterStatus, now: datetime, console: Console, *, wide: bool = False) -> None:
    """Print the status of one Cluster and of its Machines as text."""
    _show_open([one], console)
    _show_clusters([one], now, console)
    show_machines(one, console, wide=wide)
    _show_needs([one], now, console)
    commands = list(next_commands(one))
    if commands:
        console.print(Text("\nNext commands:"))
        for command in commands:
            console.print(Text(f"  {command}"), soft_wrap=True)
    elif not one.needs(now) and not one.notes():
        console.print(Text("Nothing needs attention.", style="green"))


def open_door(found: Sequence[ClusterStatus]) -> str:
    """What a stolen bootstrap token can do, and where; empty if it can do that nowhere."""
    names = [str(one.cluster) for one in found if one.is_open]
    if not names:
        return ""
    more = f" and {len(names) - _NAMED_OPEN} more" if len(names) > _NAMED_OPEN else ""
    return f"Open door: {', '.join(names[:_NAMED_OPEN])}{more}: {OBSERVE_PROTECTS_NOTHING}"


def _show_open(found: Sequence[ClusterStatus], console: Console) -> None:
    """Print the open door first: no other line matters as much."""
    if text := open_door(found):
        console.print(Text(text, style="bold red"))


def _show_needs(found: Sequence[ClusterStatus], now: datetime, console: Console) -> None:
    """Print what needs attention, and what else to know but the open door."""
    for one in found:
        for line in (*one.needs(now), *(note for note in one.notes() if note != OBSERVE_PROTECTS_NOTHING)):
            console.print(Text.assemble((str(one.cluster), "bold"), f" {line}"))


def _show_clusters(found: Sequence[ClusterStatus], now: datetime, console: Console) -> None:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in HEADINGS:
        table.add_column(heading, no_wrap=True)
    for one in found:
        table.add_row(*row_of(one, now))
    unbounded = console.options.update(max_width=sys.maxsize)
    if console.measure(table, options=unbounded).maximum <= console.width:
        console.print(table)
    else:
        _show_narrow(found, now, console)


def _show_narrow(found: Sequence[ClusterStatus], now: datetime, console: Console) -> None:
    """Print some lines for each Cluster, where the table is too wide for the console."""
    for one in found:
        cluster, mode, ready, *others = row_of(one, now)
        console.print(Text.assemble((cluster.plain, "bold"), f", {mode}, Ready ", ready))
        texts = (f"{heading}: {text}" for heading, text in zip(HEADINGS[3:], others, strict=True))
        console.print(Padding("; ".join(texts).replace("\n", " ").replace(" / ", "/"), (0, 0, 0, 2)))
    console.print()


def row_of(one: ClusterStatus, now: datetime) -> list[Text]:
    """The cells of a Cluster, in the order of the headings."""
    attestations, requests, authority = one.attestations, one.requests, one.authority
    attested = lives = waiting = denied = _UNKNOWN
    if not isinstance(attestations, RecordsUnverified):
        attested = f"{attestations.attested} of {attestations.machines}"
        attested += f",\n{attestations.unknown} unknown" if attestations.unknown else ""
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
    style = "red" if one.needs(now) else "yellow" if one.is_open else "green"
    plain = (one.attestors, attested, waiting, denied or "none", lives, until)
    return [Text(str(one.cluster)), Text(one.mode), Text(ready, style=style), *(Text(text) for text in plain)]
