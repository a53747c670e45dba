"""Prints what ``rotate`` has found, as text or as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from signer.cli.rotate_marks import YES, paragraph
from signer.model.fields import format_time
from signer.rotation.condition_types import UNVERIFIED_CURE
from signer.rotation.node_client.shown import NODE_CLIENT_CONDITION
from signer.rotation.phases import Phase, RollbackAvailable, gep_phase
from signer.rotation.plan import CALL_FAILED, FOREIGN_AUTHORITY, PAUSED
from signer.rotation.record import Moment, NotYet
from signer.rotation.view import (
    Attention,
    NodesView,
    NoRotation,
    RotationView,
    StepState,
    View,
    condition,
    rejection,
)

_MARKS: Final[Mapping[StepState, Text]] = {
    StepState.PROVEN: YES,
    StepState.CURRENT: Text("→", style="bold yellow"),
    StepState.AHEAD: Text("\N{EN DASH}", style="dim"),
}
_STYLES: Final = {Attention.NONE: "green", Attention.PERSON: "yellow", Attention.NEEDED: "bold red"}
_ROLLBACK: Final[Mapping[RollbackAvailable, str]] = {
    RollbackAvailable.FULL: "all of the rotation",
    RollbackAvailable.CLIENTS_ONLY: "the nodes' client certificates; the API servers keep those of the new CA",
    RollbackAvailable.NONE: "nothing",
}
_SHOWN_DIGITS: Final = 12


# Status


def show_status(view: View, console: Console, now: datetime) -> None:
    """Print the state as text."""
    if isinstance(view, NoRotation):
        what = " has a rotation that this version cannot read." if view.fault else " has no rotation of its CAs."
        console.print(Text.assemble("Cluster ", (str(view.cluster), "bold"), what))
    else:
        _show_rotation(view, console, now)
    node_client = condition(view.conditions, NODE_CLIENT_CONDITION)
    if node_client.reason:
        paragraph(console, "Node CA", f"{node_client.reason}: {node_client.message}")
    if why := rejection(view.conditions):
        paragraph(console, "Rejected", why)
    if view.pending_order:
        paragraph(console, "Ordered", f"{view.pending_order}, which no controller has taken yet")
    paragraph(console, "Next", next_for_person(view))


def _show_rotation(view: RotationView, console: Console, now: datetime) -> None:
    phase = (view.phase.value, _STYLES[view.attention])
    console.print(
        Text.assemble("Cluster ", (str(view.cluster), "bold"), ": ", phase, f" (rotation {view.rotation_id})\n")
    )
    for one in view.steps:
        console.print(Text.assemble(" ", _MARKS[one.state], f" {one.title}"))
    console.print()
    if not view.phase.is_over:
        paragraph(console, "Since", _since(view, now))
    paragraph(console, "Waits", view.waits_for)
    paragraph(console, "Lagging", _named(view.nodes.lagging))
    if view.nodes.total:
        paragraph(console, "Nodes", _nodes(view.nodes))
    if view.servers and not view.phase.is_over:
        _servers(view, console)
    if view.counts and not view.phase.is_over:
        paragraph(console, "Roll back", _ROLLBACK[view.rollback_available])
    if link_ends := view.times.get(Moment.LINK_ENDS.value, ""):
        paragraph(console, "Link", f"ends at {link_ends}")
    _show_authorities(view, console)
    paragraph(console, "Leftovers", view.leftovers)
    for gate, at in view.skipped:
        paragraph(console, "Skipped", f"gate {gate}, ordered at {at}")
    if view.counts and not view.reported and not view.phase.is_over:
        text = "the policy's status says nothing of this rotation: does a controller run with --rotate-authorities?"
        paragraph(console, "Note", text)


def _since(view: RotationView, now: datetime) -> str:
    if isinstance(view.step_since, NotYet):
        return ""
    return f"{view.step_since:%Y-%m-%d %H:%M} UTC ({_duration(now - view.step_since)})"


def _duration(lasted: timedelta) -> str:
    minutes = max(int(lasted.total_seconds()) // 60, 0)
    if minutes >= 2 * 24 * 60:
        return f"{minutes // (24 * 60)} days"
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


def _named(names: tuple[str, ...]) -> str:
    return ", ".join(names)


def _nodes(nodes: NodesView) -> str:
    return (
        f"{nodes.trust_new} of {nodes.total} trust the new CA; {nodes.client_by_new} have a client certificate of it, "
        f"{nodes.serving_by_new} a serving certificate"
    )


def _servers(view: RotationView, console: Console) -> None:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("API server", "Presents", "Old CA's\nclients", "New CA's\nclients", "Asked at"):
        table.add_column(heading, overflow="fold")
    for one in view.servers:
        table.add_row(*map(Text, (one.machine, one.presents, one.accepts_old, one.accepts_new, one.time)))
    console.print(table)


def _show_authorities(view: RotationView, console: Console) -> None:
    """On a terminal the begin of each discovery hash, else the whole."""
    if not console.is_terminal:
        for one in view.authorities:
            paragraph(console, f"Old {one.kind}", _until(one.old, one.old_not_after))
            paragraph(console, f"New {one.kind}", _until(one.new, one.new_not_after) if one.new else "not made yet")
        return
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("Authority", "Old", "Until", "New", "Until"):
        table.add_column(heading, overflow="fold")
    for one in view.authorities:
        old, new = (value.removeprefix("sha256:")[:_SHOWN_DIGITS] for value in (one.old, one.new))
        ends = (_end(one.old_not_after), _end(one.new_not_after))
        table.add_row(*map(Text, (one.kind, old, ends[0], new or "not made yet", ends[1])))
    console.print(table)


def _until(value: str, not_after: str) -> str:
    return f"{value} until {_end(not_after)}" if _end(not_after) else value


def _end(not_after: str) -> str:
    """Empty for a key, which does not end."""
    return "" if not_after.startswith("9999") else not_after


def next_for_person(view: View) -> str:
    """What a person does next."""
    command = f"node-attestation-controller rotate {view.cluster}"
    if isinstance(view, NoRotation):
        if view.fault:
            return f"{view.fault}: use the version that wrote it, or restore it. Do not delete it: nodes need it"
        return f"`{command} preflight` says whether one can be started"
    if not view.counts:
        return f"`rotate … status` is of a record that does not count: {UNVERIFIED_CURE}"
    if view.leftovers:
        return "give the new CA to what holds the old one"
    if view.phase is Phase.ABANDONED:
        return "have everything use the CA of Secret <cluster>-ca alone (docs/rotation.md)"
    if view.phase.is_over:
        return "nothing" if view.phase is Phase.COMPLETED else f"`{command} start` starts another one"
    if view.reason in (PAUSED, FOREIGN_AUTHORITY, CALL_FAILED):
        return _next_while_moving(view, command)
    if view.held:
        return f"`{command} retry` goes on with the new CA"
    match view.phase:
        case Phase.PREPARED:
            return (
                "exchange the credentials of people, CI systems and add-ons for those that trust the new CA; then "
                f"`{command} complete`"
            )
        case Phase.WAITING_FOR_WORKERS_ROLLOUT:
            return "replace or restart the nodes that lag; then the rotation goes on by itself"
    return _next_while_moving(view, command)


def _next_while_moving(view: RotationView, command: str) -> str:
    if view.reason == PAUSED:
        return "unpause the Cluster"
    if view.reason == FOREIGN_AUTHORITY:
        return "restore the Secret from a backup"
    if view.reason == CALL_FAILED:
        return "remove the cause of the failure that it waits for, such as a missing right"
    if view.attention is Attention.NEEDED:
        instead = ""
        if view.rollback_available is not RollbackAvailable.NONE:
            instead = f", or `{command} rollback`"
        return f"remove what it waits for{instead}; docs/rotation.md has what each step means"
    return "nothing: the controller goes on by itself"


def change_line(view: View) -> str:
    """The state in one line, for ``--watch`` without a terminal."""
    if isinstance(view, NoRotation):
        return f"{view.cluster}: no rotation" + (f": {view.fault}" if view.fault else "")
    step = "" if view.phase.is_over else f", step {view.step.value}"
    waits = f"; waits: {view.waits_for}" if view.waits_for else ""
    ordered = f"; {view.pending_order} is ordered" if view.pending_order else ""
    return f"{view.cluster}: {view.phase.value}{step}{waits}{ordered}"


def status_as_json_line(view: View) -> str:
    """The state as JSON in one line."""
    return json.dumps(status_as_json(view))


def status_as_json(view: View) -> dict[str, Any]:
    """The whole state as JSON. Fields are only ever added."""
    common: dict[str, Any] = {
        "cluster": str(view.cluster),
        "attention": view.attention.value,
        "pendingOrder": view.pending_order,
        "rejected": rejection(view.conditions),
        "next": next_for_person(view),
        "conditions": [
            {"type": one.type, "status": one.status, "reason": one.reason, "message": one.message}
            for one in view.conditions
        ],
    }
    if isinstance(view, NoRotation):
        return {**common, "rotation": None, "fault": view.fault}
    return {**common, "rotation": _rotation(view), "fault": ""}


def _rotation(view: RotationView) -> dict[str, Any]:
    return {
        "id": view.rotation_id,
        "phase": view.phase.value,
        "gepPhase": gep_phase(view.phase).value,
        "step": view.step.value,
        "stepSince": "" if isinstance(view.step_since, NotYet) else format_time(view.step_since),
        "steps": [{"step": one.step.value, "title": one.title, "state": one.state.value} for one in view.steps],
        "waitsFor": view.waits_for,
        "reason": view.reason,
        "rollbackAvailable": view.rollback_available.value,
        "times": dict(view.times),
        "authorities": [
            {
                "kind": one.kind,
                "old": {"hash": one.old, "notAfter": one.old_not_after},
                "new": {"hash": one.new, "notAfter": one.new_not_after} if one.new else None,
            }
            for one in view.authorities
        ],
        "nodes": {
            "total": view.nodes.total,
            "trustNew": view.nodes.trust_new,
            "clientByNew": view.nodes.client_by_new,
            "servingByNew": view.nodes.serving_by_new,
            "lagging": list(view.nodes.lagging),
        },
        "apiServers": [
            {
                "machine": one.machine,
                "presents": one.presents,
                "acceptsOld": one.accepts_old,
                "acceptsNew": one.accepts_new,
                "time": one.time,
            }
            for one in view.servers
        ],
        "leftovers": view.leftovers,
        "skippedGates": [{"gate": gate, "time": at} for gate, at in view.skipped],
        "reported": view.reported,
    }
