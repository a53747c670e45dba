"""The rotation of one SSH authority: the change that comes next, or what it waits for. Pure.

Each step has a proof, and the first one that is missing is what the rotation waits for. For either authority:

============  ========================================  ===========================================
step          user authority                            host authority
============  ========================================  ===========================================
(start)       the new one is trusted                    the new one is trusted
NodesTrust    every node reports that; then it signs
Prepared      a person completes                        a person completes; then the new one signs
Certificates  the longest certificate has ended; then
End           the former one is dropped
NodesRenew                                              every node has a certificate by the new one;
                                                        then the former one is dropped
NodesForget   every node reports that
============  ========================================  ===========================================

After a leak, NodesForget also waits for nodes whose Machine is being deleted, until they report that or are gone.

A rollback exchanges the two roles and takes the same steps from CertificatesEnd or NodesRenew. What has never signed is
dropped at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from signer.authority.ssh.requests import MAXIMUM_USER_LIFETIME
from signer.authority.ssh.secret import AuthorityPurpose
from signer.model.fields import format_time
from signer.rotation.operations import Gate
from signer.rotation.phases import Phase
from signer.rotation.proofs import NotKnown, NotProven, Proof, Proven, named
from signer.rotation.record import Moment
from signer.ssh.reports import (
    NotReported,
    Reports,
    every_node_has,
    every_node_presents,
    no_node_is_left_without,
)
from signer.ssh.rotation_record import AuthorityRotation, Cause, Step
from signer.ssh.secrets import Change, DropOther, HeldAuthority, OtherAuthority, Record, Role, Swap

LONGEST_CERTIFICATE: Final = MAXIMUM_USER_LIFETIME + timedelta(minutes=10)
"""From the last moment at which an authority can have signed, with five minutes for clocks of signers and five for
those of nodes."""


@dataclass(frozen=True, slots=True)
class Nodes:
    """What is known of the nodes in one pass."""

    now: datetime
    trust_version: int
    """Of the present trust, which is recorded."""
    reports: Reports | NotReported


@dataclass(frozen=True, slots=True)
class Waits:
    """The rotation waits for the world, or for a person."""

    step: Step
    proof: NotProven | NotKnown
    until: datetime | None = None
    """The moment that ends the wait, if the clock alone does."""


@dataclass(frozen=True, slots=True)
class Skips:
    """A gate that a person had skipped lets a change pass; ``members`` are the nodes that it locks out."""

    members: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Next:
    """The change that comes next."""

    change: Change
    skips: Skips = Skips(())


@dataclass(frozen=True, slots=True)
class Idle:
    """No rotation is under way."""


Progress: TypeAlias = Next | Waits | Idle

COMPLETE_TEXT: Final = "give clients the new host authority, then order complete-ssh-ca-rotation"


def progress(held: HeldAuthority, nodes: Nodes) -> Progress:
    """The change that comes next for that authority, or what its rotation waits for."""
    rotation = held.rotation
    if not isinstance(rotation, AuthorityRotation) or rotation.phase.is_over:
        return Idle()
    match rotation.step:
        case Step.PREPARED:
            return Waits(Step.PREPARED, NotProven(COMPLETE_TEXT))
        case Step.CERTIFICATES_END:
            return _certificates_end(rotation, nodes)
        case Step.NODES_TRUST:
            prepared = rotation.next(
                nodes.now, Moment.PREPARED, Moment.SWITCHED, phase=Phase.PREPARED, step=Step.PREPARED
            )
            return _gated(rotation, _nodes_trust(nodes), Swap(prepared))
        case Step.NODES_RENEW:
            proof = every_node_presents(held.authority.public_key, nodes.reports, nodes.now)
            return _gated(rotation, proof, _last(held, rotation, nodes.now))
        case Step.NODES_FORGET:
            return _gated(rotation, _nodes_forget(rotation, nodes), _last(held, rotation, nodes.now))


def _nodes_trust(nodes: Nodes) -> Proof:
    return every_node_has(nodes.trust_version, nodes.reports)


def _nodes_forget(rotation: AuthorityRotation, nodes: Nodes) -> Proof:
    """After a leak, nodes whose Machine is being deleted count, too: the thief's certificates open them."""
    if rotation.cause is Cause.REVOKED:
        return no_node_is_left_without(nodes.trust_version, nodes.reports)
    return _nodes_trust(nodes)


def _gated(rotation: AuthorityRotation, proof: Proof, change: Change) -> Progress:
    if isinstance(proof, Proven):
        return Next(change)
    if rotation.skips(Gate.UNREACHABLE_NODES):
        return Next(change, Skips(proof.members))
    return Waits(rotation.step, proof)


def _certificates_end(rotation: AuthorityRotation, nodes: Nodes) -> Progress:
    end = rotation.at(Moment.SWITCHED) + LONGEST_CERTIFICATE
    if nodes.now < end and not rotation.skips(Gate.OVERLAP):
        message = f"certificates of the user authority that signs no more may be valid until {format_time(end)}"
        return Waits(rotation.step, NotProven(message), end)
    return Next(DropOther(rotation.next(nodes.now, step=Step.NODES_FORGET)))


def _last(held: HeldAuthority, rotation: AuthorityRotation, now: datetime) -> Change:
    """The last change of a rotation in either direction."""
    phase = Phase.ROLLED_BACK if rotation.phase is Phase.ROLLING_BACK else Phase.COMPLETED
    ended = rotation.next(now, Moment.FINISHED, phase=phase)
    return DropOther(ended) if isinstance(held.other, OtherAuthority) else Record(ended)


def can_go_back(held: HeldAuthority) -> bool:
    """Whether a rollback is possible for that authority: the old one is there still."""
    rotation = held.rotation
    return (
        isinstance(rotation, AuthorityRotation)
        and rotation.phase in (Phase.PREPARING, Phase.PREPARED, Phase.COMPLETING)
        and isinstance(held.other, OtherAuthority)
    )


def rolled_back(held: HeldAuthority, operation: str, now: datetime) -> Change:
    """The change that begins the way back; :func:`can_go_back` holds."""
    rotation = held.rotation
    assert isinstance(rotation, AuthorityRotation)
    assert isinstance(held.other, OtherAuthority)
    if held.other.role is Role.NEXT:
        return DropOther(rotation.next(now, Moment.FINISHED, phase=Phase.ROLLED_BACK, operation=operation))
    user = held.purpose is AuthorityPurpose.USER
    step = Step.CERTIFICATES_END if user else Step.NODES_RENEW
    back = rotation.next(now, Moment.SWITCHED, phase=Phase.ROLLING_BACK, step=step, operation=operation)
    return Swap(back)


def asks_nodes(held: HeldAuthority) -> bool:
    """Whether the rotation waits for what nodes say in their next attested requests."""
    rotation = held.rotation
    return (
        isinstance(rotation, AuthorityRotation)
        and not rotation.phase.is_over
        and rotation.step in (Step.NODES_TRUST, Step.NODES_RENEW, Step.NODES_FORGET)
    )


def skipped_text(skips: Skips) -> str:
    """For the log and the Event of a change that a skipped gate let pass."""
    return f"these nodes are not waited for: {named(skips.members) or 'none is known'}"


__all__ = [
    "COMPLETE_TEXT",
    "LONGEST_CERTIFICATE",
    "Idle",
    "Next",
    "Nodes",
    "Progress",
    "Skips",
    "Waits",
    "asks_nodes",
    "can_go_back",
    "progress",
    "rolled_back",
    "skipped_text",
]
