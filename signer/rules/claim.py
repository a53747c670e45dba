"""Facts that attestors are told about the claimed Machine. They come from the management cluster and prove nothing.

An attestor may trust one kind of Machine more than another, or a request whose bootstrap token was made for exactly
that Machine. So each doubtful fact is told as the less trusted one, or defers the request.

A token restricts a first join to the Machine that it was made for. That is an additional check, never a proof: the
workload API server says which token was used, and Cluster API's contract does not require that each token is written
into a KubeadmConfig. So :func:`token_is_the_machines` may deny or defer a request, and never speaks for it.
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

_RECHECK_AFTER: Final = timedelta(minutes=5)
_RECHECK_AFTER_CHANGE: Final = timedelta(seconds=0.1)
_RECHECK_AFTER_INTERRUPTION: Final = timedelta(seconds=10)
"""Short, because a watch that resumes without changes wakes no deferred request."""
_NAMED_OWNERS: Final = 3


def role_of(machine: MachineView) -> MachineRole:
    """The Machine's role in its Cluster. The control plane takes precedence over a MachinePool that owns it too."""
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
    """The identity that this attestor proved for this Machine. ``records`` are the authentic records that name it.

    Machines match by UID: one that was recreated under its old name starts without a record. ``clusterctl move``
    recreates all Machines and the Cluster. So for a node that authenticates with its certificate, a record older than
    the Cluster object still counts for the Machine of the same name and provider ID: a move costs no node its renewal.
    Asserted identities were never proven and do not count.

    Raises:
        Deferred: records of two identities name it. Neither identity may be told, nor that there is none.
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
            _RECHECK_AFTER,
        )
    return RecordedIdentity(identities.pop()) if identities else NoRecordedIdentity()


def require_as_told(told: MachineView | NoClaimedMachine, machine: MachineView) -> None:
    """The Machine that the evidence matches is the one that the attestor was told of.

    An attestor's calls to other services may take half a minute. Meanwhile the Machine may have been recreated with the
    same provider ID and another TPM or role, or its annotation may name another TPM.

    Raises:
        Deferred: it is another Machine, or a fact that attestors are told of it has changed.
    """
    if _facts_told(told) != _facts_told(machine):
        raise Deferred(
            Reason.RESERVATION_PENDING, f"{machine} changed while the request was being decided", _RECHECK_AFTER_CHANGE
        )


def _facts_told(machine: MachineView | NoClaimedMachine) -> tuple[object, ...]:
    """The facts that attestors are told or look up by. For an instance of a MachinePool there are none."""
    if isinstance(machine, NoClaimedMachine) or machine.kind != MACHINE_KIND:
        return ()
    return machine.name, machine.uid, machine.annotations, role_of(machine), machine.infrastructure


def requester_credential(asks: NodeAsks | TokenAsks, machine: MachineView | NoClaimedMachine) -> RequesterCredential:
    """The requester's credential, and whether a bootstrap token was made for the claimed Machine.

    This is stricter than :func:`token_is_the_machines`, which denies only what is certain:
    here the token must have a single owner, that Machine by name and UID.
    """
    if isinstance(asks, NodeAsks):
        return NodeCredential()
    match asks.trace:
        case TracedTo(owners, held_elsewhere):
            return _of_owners(owners, machine, held_elsewhere=held_elsewhere)
        case Untraceable():
            return OtherToken("no KubeadmConfig of the Cluster holds the bootstrap token")
        case TracingOff(cause):
            return OtherToken(f"bootstrap tokens are not traced: {cause}")
        case TracingInterrupted(cause):
            return TokenNotTraceableNow(cause)
        case never:
            assert_never(never)


def _of_owners(
    owners: frozenset[TokenOwner], machine: MachineView | NoClaimedMachine, *, held_elsewhere: bool
) -> TokenOfMachine | OtherToken:
    if isinstance(machine, NoClaimedMachine):
        return OtherToken("no Machine has the claimed provider ID, so the bootstrap token was made for none")
    if len(owners) > 1:
        return OtherToken(f"the bootstrap token was made for {len(owners)} owners, and not for {machine} alone")
    (owner,) = owners
    if owner.kind != MACHINE_KIND or not owner.is_owner_of(machine):
        return OtherToken(f"the bootstrap token was made for {owner}, and not for {machine}")
    if owner.uid != machine.uid:
        return OtherToken(f"the bootstrap token was made for a former {machine}")
    if held_elsewhere:
        return OtherToken("a KubeadmConfig without an owner, or of another Cluster, holds the bootstrap token too")
    return TokenOfMachine()


@dataclass(frozen=True, slots=True)
class TokenFacts:
    """The input of the bootstrap token check."""

    asks: NodeAsks | TokenAsks
    machine: MachineView
    """The Machine that the evidence proves."""
    policy: Policy


def token_is_the_machines(facts: TokenFacts) -> None:
    """The bootstrap token was made for this Machine, or for its MachinePool.

    A token that led to a Machine without provider ID must be that Machine's alone.

    Raises:
        Refused: the token was made for other owners.
        Deferred: the token's owner is unknown, or not the only one, and the policy requires it; or tracing is
            interrupted.
    """
    if isinstance(facts.asks, NodeAsks):
        return
    if facts.machine.claimed_provider_id:
        require_token_of_machine_alone(facts.asks, facts.machine)
    match facts.asks.trace:
        case TracedTo(owners, held_elsewhere):
            _require_owner(owners, facts.machine)
            _require_no_other_owner(facts, owners, held_elsewhere=held_elsewhere)
        case Untraceable():
            _require_allowed(facts, f"no KubeadmConfig of Cluster {facts.machine.cluster} holds the bootstrap token")
        case TracingOff(cause):
            _require_allowed(facts, f"bootstrap tokens are not traced: {cause}")
        case TracingInterrupted(cause):
            raise Deferred(Reason.MANAGEMENT_CLUSTER_UNREACHABLE, cause, _RECHECK_AFTER_INTERRUPTION)
        case never:
            assert_never(never)


def require_token_of_machine_alone(asks: TokenAsks, machine: MachineView) -> None:
    """Every KubeadmConfig that holds the token belongs to this Machine.

    Only then may the token stand for the provider ID that the Machine does not show yet. A tenant may write a
    KubeadmConfig with a stolen token and its own Machine as the owner: with two owners, a token says nothing.

    Raises:
        Deferred: the token has other owners, or its owner cannot be determined.
    """
    credential = requester_credential(asks, machine)
    match credential:
        case TokenOfMachine():
            return
        case TokenNotTraceableNow(cause):
            raise Deferred(Reason.MANAGEMENT_CLUSTER_UNREACHABLE, cause, _RECHECK_AFTER_INTERRUPTION)
        case OtherToken(cause):
            raise Deferred(
                Reason.MACHINE_NOT_FOUND,
                f"{machine} shows no provider ID, and the bootstrap token does not lead to it: {cause}",
                _RECHECK_AFTER,
            )
        case NodeCredential():
            raise Deferred(Reason.INTERNAL_ERROR, "a bootstrap token was taken for a node's credential")
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


def _require_no_other_owner(facts: TokenFacts, owners: frozenset[TokenOwner], *, held_elsewhere: bool) -> None:
    """A thief that may write KubeadmConfigs could name its own Machine beside the owner. So may an operator that has
    preset one token for all.
    """
    others = sorted(str(owner) for owner in owners if not owner.is_owner_of(facts.machine))
    if others:
        _require_allowed(facts, f"the bootstrap token is in KubeadmConfigs of others too, such as that of {others[0]}")
    elif held_elsewhere:
        _require_allowed(
            facts, "a KubeadmConfig without an owner, or of another Cluster, holds the bootstrap token too"
        )


def _require_allowed(facts: TokenFacts, message: str) -> None:
    if facts.policy.untraceable_tokens is not UntraceableTokens.ALLOW:
        raise Deferred(Reason.BOOTSTRAP_TOKEN_UNTRACEABLE, message, _RECHECK_AFTER)
