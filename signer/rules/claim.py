"""What the management cluster says beside a request's claim: facts for attestors, which prove nothing by themselves.

An attestor may take more on trust for one kind of Machine than for another, or where the bootstrap token was made for
exactly that Machine. So whatever is doubtful here is told as the less, or makes the request wait.

A bootstrap token narrows a first join to the Machine that it was made for. That is an additional sign only, never a
proof: which token asks is the workload API server's word, and that Cluster API writes each token into a KubeadmConfig
is no rule of its contract. So its check (:func:`token_is_the_machines`) refuses, or says nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, assert_never

from attestors.contract import (
    MachineRole,
    NoClaimedMachine,
    NodeCredential,
    NoRecordedIdentity,
    OtherToken,
    RecordedIdentity,
    RequesterCredential,
    Security,
    TokenNotTraceableNow,
    TokenOfMachine,
)
from signer.model.bootstrap_token import (
    NodeAsks,
    TokenAsks,
    TokenOwner,
    TracedTo,
    TracingInterrupted,
    TracingOff,
    Untraceable,
)
from signer.model.cluster import MACHINE_KIND, MachineView
from signer.model.decision import Deferred, Refused
from signer.model.policy import Policy, UntraceableTokens
from signer.model.reasons import Reason
from signer.model.record import AttestedNode

_LOOK_AGAIN: Final = timedelta(minutes=5)
_CHANGED_PAUSE: Final = timedelta(seconds=0.1)
_INTERRUPTED_LOOK_AGAIN: Final = timedelta(seconds=10)
"""Nobody is woken by a collection that is watched again and has not changed."""
_NAMED_OWNERS: Final = 3


def role_of(machine: MachineView) -> MachineRole:
    """What the Machine is in its Cluster. One that is of the control plane is that, whatever else owns it."""
    if machine.control_plane:
        return MachineRole.CONTROL_PLANE
    return MachineRole.POOL_MEMBER if machine.of_a_pool else MachineRole.WORKER


def recorded_identity(
    machine: MachineView,
    records: Iterable[AttestedNode],
    provider: str,
    *,
    credential: RequesterCredential,
    cluster_created: datetime,
) -> RecordedIdentity | NoRecordedIdentity:
    """What that attestor proved for this very Machine; ``records`` are the authentic ones that name it.

    By UID: a Machine that was made anew under its old name starts without a record. ``clusterctl move`` makes all of
    them anew, and the Cluster too: to a node that comes with its certificate, a record from before that Cluster object
    still counts for the Machine of the same name and provider ID, so that no node loses its renewal by a move.
    What was only asserted was never proven, and is not recorded for an attestor.

    Raises:
        Deferred: records of two identities name it. None of them may be told, and neither may there be none.
    """
    renews = isinstance(credential, NodeCredential)
    identities = {
        record.identity.identity
        for record in records
        if (record.machine_uid == machine.uid or (renews and record.last_attestation < cluster_created))
        and record.identity.provider == provider
        and record.identity.security is Security.SECURE
    }
    if len(identities) > 1:
        raise Deferred(
            Reason.IDENTITY_CONFLICT,
            f"AttestedNodes of {len(identities)} identities name {machine}: delete the wrong one",
            _LOOK_AGAIN,
        )
    return RecordedIdentity(identities.pop()) if identities else NoRecordedIdentity()


def require_as_told(told: MachineView | NoClaimedMachine, machine: MachineView) -> None:
    """The Machine that the evidence is matched with is the one that the attestor was told of.

    An attestor may ask others for half a minute. Meanwhile the Machine may have been made anew, with the same provider
    ID and another chip or role; or somebody has said that another chip is in it.

    Raises:
        Deferred: it is another one, or something that attestors are told of it is otherwise now.
    """
    if _told_of(told) != _told_of(machine):
        raise Deferred(Reason.RESERVATION_PENDING, f"{machine} changed while the request was judged", _CHANGED_PAUSE)


def _told_of(machine: MachineView | NoClaimedMachine) -> tuple[object, ...]:
    """What attestors are told, and what they look up by; of an instance of a MachinePool that is nothing."""
    if isinstance(machine, NoClaimedMachine) or machine.kind != MACHINE_KIND:
        return ()
    return machine.name, machine.uid, machine.annotations, role_of(machine), machine.infrastructure


def requester_credential(asks: NodeAsks | TokenAsks, machine: MachineView | NoClaimedMachine) -> RequesterCredential:
    """Who asks, seen from the claimed Machine.

    Stricter than :func:`token_is_the_machines`, which refuses only what is sure: here one
    owner alone, that Machine by name and UID, makes the token the Machine's.
    """
    if isinstance(asks, NodeAsks):
        return NodeCredential()
    match asks.trace:
        case TracedTo(owners):
            return _of_owners(owners, machine)
        case Untraceable():
            return OtherToken("no KubeadmConfig of the Cluster holds the bootstrap token")
        case TracingOff(cause):
            return OtherToken(f"bootstrap tokens are not traced: {cause}")
        case TracingInterrupted(cause):
            return TokenNotTraceableNow(cause)
        case never:
            assert_never(never)


def _of_owners(owners: frozenset[TokenOwner], machine: MachineView | NoClaimedMachine) -> TokenOfMachine | OtherToken:
    if isinstance(machine, NoClaimedMachine):
        return OtherToken("no Machine has the claimed provider ID, so the bootstrap token is not its")
    if len(owners) > 1:
        return OtherToken(f"the bootstrap token was made for {len(owners)} owners, and not for {machine} alone")
    (owner,) = owners
    if owner.kind != MACHINE_KIND or not owner.is_owner_of(machine):
        return OtherToken(f"the bootstrap token was made for {owner}, and not for {machine}")
    if owner.uid != machine.uid:
        return OtherToken(f"the bootstrap token was made for a former {machine}")
    return TokenOfMachine()


@dataclass(frozen=True, slots=True)
class TokenFacts:
    """What the check of the bootstrap token looks at."""

    asks: NodeAsks | TokenAsks
    machine: MachineView
    """Whom the evidence proves."""
    policy: Policy


def token_is_the_machines(facts: TokenFacts) -> None:
    """A token that was made for another Machine was taken from there; one of the Machine's own pool is its own.

    Raises:
        Refused: it was made for others.
        Deferred: it cannot be told whose it is, and the policy wants to know; or at this moment nobody can tell.
    """
    if isinstance(facts.asks, NodeAsks):
        return
    match facts.asks.trace:
        case TracedTo(owners):
            _require_owner(owners, facts.machine)
        case Untraceable():
            _require_allowed(facts, f"no KubeadmConfig of Cluster {facts.machine.cluster} holds the bootstrap token")
        case TracingOff(cause):
            _require_allowed(facts, f"bootstrap tokens are not traced: {cause}")
        case TracingInterrupted(cause):
            raise Deferred(Reason.MANAGEMENT_CLUSTER_UNREACHABLE, cause, _INTERRUPTED_LOOK_AGAIN)
        case never:
            assert_never(never)


def _require_owner(owners: frozenset[TokenOwner], machine: MachineView) -> None:
    if any(owner.is_owner_of(machine) for owner in owners):
        return
    names = sorted({str(owner) for owner in owners})
    made_for = " and ".join(names[:_NAMED_OWNERS]) + (" and others" if len(names) > _NAMED_OWNERS else "")
    raise Refused(
        Reason.BOOTSTRAP_TOKEN_MISMATCH,
        f"the bootstrap token was made for {made_for}; the evidence proves {machine}",
    )


def _require_allowed(facts: TokenFacts, message: str) -> None:
    if facts.policy.untraceable_tokens is not UntraceableTokens.ALLOW:
        raise Deferred(Reason.BOOTSTRAP_TOKEN_UNTRACEABLE, message, _LOOK_AGAIN)
