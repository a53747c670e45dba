"""What the management cluster says of a rotation of SSH authorities, as text or as JSON."""

from __future__ import annotations

import argparse
import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from rich.console import Console
from rich.markup import escape

from signer.cli.output import print_result
from signer.cli.rotate_action import EXIT_NEEDS_ATTENTION, EXIT_WAITS, run_action
from signer.cli.rotate_reading import read_policy
from signer.kube.client import JsonObject
from signer.model.decision import printable
from signer.model.fields import items_of, mapping_of, text_of
from signer.rotation.operations import OPERATION_ANNOTATION
from signer.rotation.phases import Phase
from signer.ssh.condition_types import SSH_AUTHORITIES_AVAILABLE, SSH_OPERATION_REJECTED

_MAXIMUM_CHARACTERS: Final = 4096
_MOST_ITEMS: Final = 16


class SSHAttention(enum.Enum):
    """Whether a person must do something; the value is for scripts."""

    NONE = "None"
    PERSON = "WaitsForPerson"
    NEEDED = "NeedsAttention"


_BY_SSH_ATTENTION: Final[Mapping[SSHAttention, int]] = {
    SSHAttention.NONE: 0,
    SSHAttention.PERSON: EXIT_WAITS,
    SSHAttention.NEEDED: EXIT_NEEDS_ATTENTION,
}


@dataclass(frozen=True, slots=True)
class AuthorityLine:
    """One authority that counts."""

    purpose: str
    state: str
    fingerprint: str
    created_at: str


@dataclass(frozen=True, slots=True)
class RotationLine:
    """The rotation of one authority."""

    purpose: str
    phase: str
    step: str
    cause: str
    rollback_available: str
    waits_for: str
    lagging: tuple[str, ...]
    skipped_gates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SSHView:
    """The SSH authorities of a Cluster, as its policy's status shows them."""

    authorities: tuple[AuthorityLine, ...]
    trust_version: int
    phase: str
    """Empty if there never was a rotation."""
    rotations: tuple[RotationLine, ...]
    not_available: str
    """Why the authorities are not available; empty if they are, or SSH is off."""
    rejected: str
    pending_order: str

    @property
    def attention(self) -> SSHAttention:
        """See there."""
        if self.not_available or any(one.lagging for one in self.rotations):
            return SSHAttention.NEEDED
        return SSHAttention.PERSON if self.phase == Phase.PREPARED.value else SSHAttention.NONE


def run_ssh_status(options: argparse.Namespace) -> int:
    """Run ``rotate ssh status`` with its parsed arguments."""
    view = ssh_view(run_action(options, read_policy))
    print_result(options.output, lambda: ssh_status_as_json(view), lambda console: show_ssh_status(view, console))
    return _BY_SSH_ATTENTION[view.attention]


def ssh_view(policy: JsonObject) -> SSHView:
    """Read the policy's status. Nothing in it is believed to have its form: others may write it."""
    status = mapping_of(policy, "status")
    ssh = mapping_of(status, "ssh")
    rotation = mapping_of(ssh, "rotation")
    version = ssh.get("trustVersion")
    return SSHView(
        authorities=tuple(
            AuthorityLine(purpose, _text(one, "state"), _text(one, "fingerprint"), _text(one, "createdAt"))
            for purpose, field in (("user", "userAuthorities"), ("host", "hostAuthorities"))
            for one in _objects(ssh, field)
        ),
        trust_version=version if type(version) is int else 0,
        phase=_text(rotation, "phase"),
        rotations=tuple(
            _rotation(purpose, mapping_of(rotation, purpose)) for purpose in ("user", "host") if purpose in rotation
        ),
        not_available=_condition(status, SSH_AUTHORITIES_AVAILABLE, ("False", "Unknown")),
        rejected=_condition(status, SSH_OPERATION_REJECTED, ("True",)),
        pending_order=_pending(policy),
    )


def _rotation(purpose: str, found: Mapping[str, Any]) -> RotationLine:
    lagging = tuple(_short(one) for one in items_of(found, "lagging")[:_MOST_ITEMS] if isinstance(one, str))
    gates = tuple(f"{_text(one, 'gate')} at {_text(one, 'time')}" for one in _objects(found, "skippedGates"))
    return RotationLine(
        purpose,
        _text(found, "phase"),
        _text(found, "step"),
        _text(found, "cause"),
        _text(found, "rollbackAvailable"),
        _text(found, "waitsFor"),
        lagging,
        gates,
    )


def _pending(policy: JsonObject) -> str:
    return _text(mapping_of(mapping_of(policy, "metadata"), "annotations"), OPERATION_ANNOTATION)


def _condition(status: Mapping[str, Any], type_: str, wanted: tuple[str, ...]) -> str:
    for one in _objects(status, "conditions", most=200):
        if text_of(one, "type") == type_ and text_of(one, "status") in wanted:
            return f"{_text(one, 'reason')}: {_text(one, 'message')}"
    return ""


def _objects(parent: Mapping[str, Any], key: str, *, most: int = _MOST_ITEMS) -> list[Mapping[str, Any]]:
    return [one for one in items_of(parent, key)[:most] if isinstance(one, Mapping)]


def _text(parent: Mapping[str, Any], key: str) -> str:
    return _short(text_of(parent, key))


def _short(text: str) -> str:
    return printable(text[:_MAXIMUM_CHARACTERS])


def ssh_status_as_json(view: SSHView) -> dict[str, Any]:
    """The same for scripts."""
    return {
        "attention": view.attention.value,
        "trustVersion": view.trust_version,
        "phase": view.phase,
        "authorities": [
            {"purpose": one.purpose, "state": one.state, "fingerprint": one.fingerprint, "createdAt": one.created_at}
            for one in view.authorities
        ],
        "rotations": [
            {
                "purpose": one.purpose,
                "phase": one.phase,
                "step": one.step,
                "cause": one.cause,
                "rollbackAvailable": one.rollback_available,
                "waitsFor": one.waits_for,
                "lagging": list(one.lagging),
                "skippedGates": list(one.skipped_gates),
            }
            for one in view.rotations
        ],
        "notAvailable": view.not_available,
        "rejected": view.rejected,
        "pendingOrder": view.pending_order,
    }


def show_ssh_status(view: SSHView, console: Console) -> None:
    """Print the state as text."""
    for one in view.authorities:
        console.print(escape(f"{one.purpose} authority {one.fingerprint}, made at {one.created_at}: {one.state}"))
    if view.authorities:
        console.print(f"trust version {view.trust_version}")
    if not view.phase:
        console.print("No rotation of the SSH authorities was started.")
    for rotation in view.rotations:
        console.print(escape(f"{rotation.purpose} authority's rotation: {rotation.phase}, step {rotation.step}"))
        if rotation.waits_for:
            console.print(escape(f"  waits: {rotation.waits_for}"))
        if rotation.rollback_available == "Full":
            console.print("  can be rolled back")
        for gate in rotation.skipped_gates:
            console.print(escape(f"  skipped: {gate}"))
    for title, text in (("Not available", view.not_available), ("Rejected", view.rejected)):
        if text:
            console.print(escape(f"{title}: {text}"))
    if view.pending_order:
        console.print(escape(f"Ordered: {view.pending_order}, which no controller has taken yet"))


__all__ = ["SSHAttention", "SSHView", "run_ssh_status", "show_ssh_status", "ssh_status_as_json", "ssh_view"]
