"""``node-attestation-controller preflight CLUSTER``: check whether a cluster is ready for mode Enforce."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from attestors.registry import Registry
from signer.cli.arguments import cluster_key
from signer.cli.configuration import require_installed
from signer.cli.management import management_access
from signer.cli.output import print_result
from signer.cli.remedies import remedy_of
from signer.configuration import Configuration, every_attestor, read_configuration_file
from signer.controller.auto_approval.preflight import Preflight, PreflightFailed, preflight
from signer.controller.auto_approval.workload_grants import CannotBeProven, MissingGrant
from signer.controller.status.renewal_coverage import Attested, MachineCoverage, Starting, Unattested
from signer.controller.workload_access import WorkloadAccessRefused
from signer.kube.client import Client
from signer.kube.tls import TlsMaterialRefused
from signer.model.auto_approval import UnreadableGrant, shown
from signer.model.cluster import ClusterKey
from signer.model.decision import Deferred, printable
from signer.model.fields import format_time
from signer.model.node_attested import valid_until
from signer.rules.auto_approval import Grant, RemovableGrant, TooManyIdentities

EXIT_NOT_READY: Final = 3
_EVERY_ATTESTOR_ALLOWED: Final = (
    "Without --config, this command allows every installed attestor: give the controller's configuration file."
)
_PREFLIGHT_ERRORS: Final = (
    WorkloadAccessRefused,
    TlsMaterialRefused,
    MissingGrant,
    CannotBeProven,
    UnreadableGrant,
    TooManyIdentities,
    Deferred,
)


def run_preflight(options: argparse.Namespace) -> int:
    """Run the command with its parsed arguments."""
    logging.basicConfig(level=logging.ERROR, stream=sys.stderr)
    key = cluster_key(options.cluster, default_namespace=options.namespace)
    try:
        found = asyncio.run(_run_preflight(options, key))
    except _PREFLIGHT_ERRORS as error:
        remedy = remedy_of(error.__cause__) if isinstance(error, WorkloadAccessRefused) else ""
        raise PreflightFailed(f"Cluster {key}: {error}{remedy}") from error
    print_result(options.output, lambda: as_json(found), lambda console: show(found, console))
    return 0 if found.is_ready else EXIT_NOT_READY


async def _run_preflight(options: argparse.Namespace, key: ClusterKey) -> Preflight:
    registry = Registry()
    configuration = Configuration(options.controller_namespace, attestors=every_attestor(registry.providers))
    if options.config is not None:
        file = read_configuration_file(options.config)
        configuration = replace(
            configuration,
            attestors=file.attestors,
            floors=file.floors,
            namespace_limits=file.namespace_limits,
        )
        require_installed(configuration.attestors)
    access = await management_access(options)
    async with Client(access.connection, token_source=access.token_source) as client:
        found = await preflight(client, key, configuration, registry=registry, now=lambda: datetime.now(UTC))
    if options.config is None:
        return replace(found, notes=(_EVERY_ATTESTOR_ALLOWED, *found.notes))
    return found


def as_json(found: Preflight) -> dict[str, Any]:
    """The whole result as JSON. Fields are only ever added."""
    return {
        "cluster": str(found.cluster),
        "mode": found.mode.value if found.mode is not None else "",
        "ready": found.is_ready,
        "machines": [_machine(one) for one in found.renewal_coverage],
        "unknownNodes": [node.name for node in found.unknown_nodes],
        "grants": [_grant(grant) for grant in found.grants],
        "openings": [
            {
                "subresource": opening.subresource.value,
                "who": opening.identity.label,
                "staysOpen": opening in found.not_removed,
            }
            for opening in found.openings
        ],
        "belowFloors": [
            {"field": one.field, "stated": one.stated, "inForce": one.in_force} for one in found.shortfalls
        ],
        "missingSignerRights": [{"attestor": one.provider, "verbs": list(one.verbs)} for one in found.missing_rights],
        "notKnown": list(found.unread),
        "notes": list(found.notes),
        "steps": list(found.steps()),
    }


def _machine(one: MachineCoverage) -> dict[str, Any]:
    attested = isinstance(one, Attested)
    return {
        "kind": one.machine.kind,
        "name": one.machine.name,
        "providerID": one.machine.provider_id,
        "attested": attested,
        "node": one.record.node_name if isinstance(one, Attested) else one.machine.node_ref,
        "attestor": one.record.identity.provider if isinstance(one, Attested) else "",
        "notAfter": format_time(valid_until(one.record)) if isinstance(one, Attested) else "",
        "why": one.why if isinstance(one, Unattested) else "",
    }


def _grant(grant: Grant) -> dict[str, Any]:
    removable = isinstance(grant, RemovableGrant)
    return {
        "clusterRoleBinding": grant.binding.name,
        "clusterRole": grant.binding.role_name,
        "subjects": [str(subject) for subject in grant.binding.subjects],
        "subresources": sorted(subresource.value for subresource in grant.subresources),
        "enforceRemovesIt": removable,
        "why": "" if isinstance(grant, RemovableGrant) else grant.obstacle.value,
    }


def show(found: Preflight, console: Console) -> None:
    """Print the result as text."""
    mode = found.mode.value if found.mode is not None else "no policy"
    console.print(f"Cluster [bold]{found.cluster}[/bold] ({mode})\n")
    machines = _table("Nodes that renew by attestation", "", "Machine", "Node", "Attested by", "Until")
    for one in found.renewal_coverage:
        name, node = _plain(one.machine.name), _plain(one.machine.node_ref)
        match one:
            case Attested(_, record):
                until = f"{valid_until(record):%Y-%m-%d %H:%M}"
                machines.add_row(_YES, name, _plain(record.node_name), record.identity.provider, until)
            case Unattested(_, why):
                machines.add_row(_NO, name, node, Text(why, style="red"), "")
            case Starting():
                machines.add_row("", name, node, "has no node yet", "")
    for unknown in found.unknown_nodes:
        machines.add_row(_NO, "", _plain(unknown.name), "[red]no Machine has this Node[/red]", "")
    if not found.machines_unread:
        console.print(machines if machines.row_count else "The cluster has no Machines.")
        console.print()
    if not found.grants_unread:
        _show_grants(found, console)
    for unread in found.unread:
        console.print(Text.assemble(("Not known: ", "yellow"), printable(unread)))
    for shortfall in found.shortfalls:
        console.print(Text.assemble(("Below the operator's floors: ", "yellow"), printable(str(shortfall))))
    for note in found.notes:
        console.print(Text.assemble(("Note: ", "yellow"), note))
    steps = found.steps()
    if found.is_ready and not steps:
        console.print("[green]Enforced, with no problems.[/green]")
    elif found.is_ready:
        console.print(
            "[green]Ready for Enforce: no node would lose renewal, and auto-approval would be removed.[/green]"
        )
    for number, step in enumerate(steps, start=1):
        console.print(Text(f"{number}. {step}"))


_YES: Final = "[green]yes[/green]"
_NO: Final = "[red]no[/red]"


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _plain(text: str) -> Text:
    """Text without rich markup and control characters."""
    return Text(printable(text))


def _show_grants(found: Preflight, console: Console) -> None:
    console.print(Text("Grants that auto-approve", style="bold"))
    for grant in found.relevant_grants:
        subresources = " and ".join(sorted(subresource.value for subresource in grant.subresources))
        subjects = printable(", ".join(str(subject) for subject in grant.binding.subjects))
        removed = ("Enforce removes it", "green")
        if not isinstance(grant, RemovableGrant):
            removed = (f"Enforce keeps it: {grant.obstacle.value}", "red")
        console.print(Text(f" ClusterRoleBinding {shown(grant.binding.name)}"))
        console.print(Padding(Text.assemble(f"approves {subresources} for {subjects}; ", removed), (0, 0, 0, 4)))
    if not found.relevant_grants:
        console.print(" No ClusterRoleBinding grants auto-approval.")
    others = [
        one for one in found.not_removed if not any(one.subresource in grant.subresources for grant in found.grants)
    ]
    for opening in others:
        text = f"{opening.identity.label} may create {opening.subresource.resource}, but no binding grants it."
        console.print(Text(text, style="red"))
    console.print()
