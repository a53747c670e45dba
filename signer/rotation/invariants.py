"""The invariants of a rotation, asserted before every write and every step. Pure.

Each is a rule that no order of events may break. They repeat, in other words, what the plan already makes sure of: a
defect in the plan stops here instead of in a cluster.

========  ==============================================================================================================
I1        Every Secret of an authority holds a pair that matches, and its first certificate is the key's. That of the
          cluster's CA holds one certificate.
I2        Nothing is signed with an authority before every verifier is proven to trust it.
I3        Nothing is dropped while a certificate of it is known to be in use, or a Machine that pins it has not joined.
I4        The new authority exists durably, and the record seals its digest, before anything refers to it.
I5        What the workload cluster says can only delay a step: no fact of it alone advances one.
I6        The old key is deleted last.
I7        A Machine that is made at any moment joins: what it is given trusts every API server it may meet.
========  ==============================================================================================================
"""

from __future__ import annotations

from signer.authority.presented import Presented
from signer.rotation.authorities import AuthorityKind, NotMade, Role
from signer.rotation.desired import (
    AsBefore,
    DeleteKey,
    KeepPair,
    PruneAuthentication,
    SealPair,
    Write,
    WriteAuthority,
    WriteClusterInfo,
    WriteKubeconfig,
    WritePins,
    WriteSigning,
    WriteTrust,
    signing,
)
from signer.rotation.facts import Acceptance, Facts, HeldPair, NotObserved, Publication, ServersFacts, SigningFacts
from signer.rotation.operations import Gate
from signer.rotation.phases import SigningPairs, Step
from signer.rotation.record import RotationRecord

_MET_WITH_NEW = frozenset({Presented.OLD_LINKED, Presented.NEW, Presented.NEW_LINKED})
_MET_WITH_OLD = frozenset({Presented.OLD, Presented.OLD_LINKED, Presented.NEW_LINKED})


class InvariantBroken(Exception):
    """A write would break an invariant: it is not made, and the rotation stalls. A defect, unless facts are forged."""


def require_write(write: Write, record: RotationRecord, facts: Facts) -> None:
    """The write breaks no invariant.

    Raises:
        InvariantBroken: it would; the message begins with the invariant's number.
    """
    match write:
        case KeepPair() | SealPair():
            return
        case WriteAuthority(kind, contents):
            _made(record)
            if contents.key is not contents.certificates[0]:
                raise InvariantBroken("I1: the first certificate is not that of the key")
            if kind is AuthorityKind.CLUSTER and len(contents.certificates) != 1:
                raise InvariantBroken("I1: the Secret of the cluster's CA must hold one certificate")
            _pairs_are_kept(record, facts, kind)
            if contents.key is Role.NEW:
                _every_server_accepts(facts, Role.NEW)
            if kind is AuthorityKind.SERVICE_ACCOUNT and contents.key is Role.NEW:
                _key_is_published(facts)
            if kind is AuthorityKind.CLUSTER:
                _joins_with(contents.key, facts)
            if Role.OLD not in contents.certificates and kind is not AuthorityKind.CLUSTER:
                _old_is_not_used(record, facts)
        case WriteTrust(client, server, _):
            _made(record)
            if Role.OLD not in client or Role.OLD not in server:
                _old_is_not_used(record, facts)
            if Role.NEW not in client or Role.NEW not in server:
                _new_is_not_used(record, facts)
        case WriteSigning(pairs):
            _made(record)
            _pairs_are_kept(record, facts, AuthorityKind.CLUSTER)
            if Role.NEW in (pairs.client, pairs.serving):
                _every_server_accepts(facts, Role.NEW)
            if Role.OLD in (pairs.client, pairs.serving):
                _no_server_refuses_old(facts)
        case WriteKubeconfig(authorities, client):
            _made(record)
            if client is Role.NEW:
                _every_server_accepts(facts, Role.NEW)
            _trusts_every_server(authorities, facts)
        case WriteClusterInfo(authorities):
            _made(record)
            _trusts_every_server(authorities, facts)
        case WritePins(_, authorities):
            _made(record)
            _trusts_every_server(authorities, facts)
        case PruneAuthentication():
            _every_server_refuses_old(facts)
        case DeleteKey(_, role):
            if role is Role.OLD and record.step is not Step.FORGET:
                raise InvariantBroken("I6: the old key is deleted last")
            if role is Role.NEW and record.step is not Step.DISCARD_NEW:
                raise InvariantBroken("I6: the new key is deleted at the end of the way back")
            held = facts.authorities[AuthorityKind.CLUSTER].secret
            kept = record.authority(AuthorityKind.CLUSTER).of(Role.NEW if role is Role.OLD else Role.OLD)
            if not isinstance(held, HeldPair) or held.signs.digest != kept.digest:
                raise InvariantBroken("I6: the Secret of the cluster's CA does not hold the authority that stays")
            if record.signing_pairs is SigningPairs.SPLIT and facts.signing != SigningFacts(kept.digest, kept.digest):
                raise InvariantBroken("I6: kube-controller-manager's Secret does not hold the authority that stays")


def require_step(after: RotationRecord, before: RotationRecord, facts: Facts) -> None:
    """Entering the step of ``after`` breaks no invariant.

    Raises:
        InvariantBroken: it would.
    """
    if after.step is not Step.NEW_AUTHORITY and not after.goes_back:
        _made(after)
    then, now = signing(before), signing(after)
    if isinstance(now, AsBefore):
        return
    signs = {now.client, now.serving} - (set() if isinstance(then, AsBefore) else {then.client, then.serving})
    if Role.NEW in signs:
        _every_server_accepts(facts, Role.NEW)
    if Role.OLD not in now.accepted:
        _old_is_not_used(after, facts)


def require_joins(record: RotationRecord, facts: Facts) -> None:
    """A Machine of the control plane that is made now joins.

    Raises:
        InvariantBroken: it would not.
    """
    held, cluster = facts.authorities[AuthorityKind.CLUSTER].secret, record.authority(AuthorityKind.CLUSTER)
    if not isinstance(held, HeldPair):
        raise InvariantBroken("I7: the Secret of the cluster's CA has no usable pair")
    _joins_with(Role.NEW if held.signs.digest == cluster.made.digest else Role.OLD, facts)


def _made(record: RotationRecord) -> None:
    if any(isinstance(authority.new, NotMade) for authority in record.authorities):
        raise InvariantBroken("I4: the record does not seal every new authority yet")


def _pairs_are_kept(record: RotationRecord, facts: Facts, kind: AuthorityKind) -> None:
    """A write of the authority's Secret overwrites the only other copy of its key."""
    for role in Role:
        held = facts.authorities[kind].pairs[role]
        if not isinstance(held, HeldPair) or held.signs.digest != record.authority(kind).of(role).digest:
            raise InvariantBroken(f"I4: the {role.value} pair of authority {kind.value} is not kept")


def _servers(facts: Facts) -> ServersFacts:
    if not isinstance(facts.servers, ServersFacts) or facts.servers.unseen or not facts.servers.seen:
        raise InvariantBroken("I2: not every API server could be asked")
    return facts.servers


def _every_server_accepts(facts: Facts, role: Role) -> None:
    servers = _servers(facts)
    if any((one.new if role is Role.NEW else one.old) is not Acceptance.ACCEPTED for one in servers.seen):
        raise InvariantBroken(f"I2: an API server does not accept the {role.value} CA's client certificates")


def _key_is_published(facts: Facts) -> None:
    """Every API server publishes the new service-account key, or none publishes any."""
    found = facts.published_keys
    states = set() if isinstance(found, NotObserved) else set(found.values())
    if states not in ({Publication.PUBLISHED}, {Publication.NOT_SERVED}):
        raise InvariantBroken("I2: not every API server publishes the new service-account key")


def _no_server_refuses_old(facts: Facts) -> None:
    """Of those that were seen: kube-controller-manager may always go on with the CA with which it signed before."""
    seen = facts.servers.seen if isinstance(facts.servers, ServersFacts) else ()
    if any(one.old is Acceptance.REFUSED for one in seen):
        raise InvariantBroken("I2: an API server refuses the old CA's client certificates")


def _every_server_refuses_old(facts: Facts) -> None:
    servers = _servers(facts)
    if any(one.old is not Acceptance.REFUSED or one.new is not Acceptance.ACCEPTED for one in servers.seen):
        raise InvariantBroken("I3: an API server still accepts the old CA's client certificates")


def _trusts_every_server(authorities: tuple[Role, ...], facts: Facts) -> None:
    """A client that trusts only these CAs accepts every API server that was seen."""
    if not isinstance(facts.servers, ServersFacts):
        if set(authorities) != set(Role):
            raise InvariantBroken("I7: not every API server could be asked")
        return
    for one in facts.servers.seen:
        if one.presents is Presented.OLD and Role.OLD not in authorities:
            raise InvariantBroken(f"I7: the API server of {one.machine} presents the old CA's certificate")
        if one.presents is Presented.NEW and Role.NEW not in authorities:
            raise InvariantBroken(f"I7: the API server of {one.machine} presents the new CA's certificate")


def _joins_with(role: Role, facts: Facts) -> None:
    """A Machine of the control plane that knows this CA alone accepts every API server that it may meet.

    One that is joining now presents what the Secrets held when it was made, so it must have joined first.
    """
    accepted = {Role.NEW: _MET_WITH_NEW, Role.OLD: _MET_WITH_OLD}[role]
    for one in _servers(facts).seen:
        if one.presents not in accepted:
            raise InvariantBroken(
                f"I7: a Machine with the {role.value} CA alone would refuse the API server of {one.machine}, which "
                f"presents: {one.presents.value}"
            )
    if any(not machine.joined for machine in facts.control_plane):
        raise InvariantBroken("I7: a Machine of the control plane has not joined")


def _old_is_not_used(record: RotationRecord, facts: Facts) -> None:
    servers = _servers(facts)
    if any(one.presents not in (Presented.NEW, Presented.NEW_LINKED) for one in servers.seen):
        raise InvariantBroken("I3: an API server does not present the new CA's certificate")
    if any(not machine.joined for machine in facts.control_plane):
        raise InvariantBroken("I3: a Machine of the control plane has not joined")


def _new_is_not_used(record: RotationRecord, facts: Facts) -> None:
    servers = _servers(facts)
    if any(one.presents in (Presented.NEW, Presented.NEW_LINKED) for one in servers.seen):
        raise InvariantBroken("I3: an API server presents the new CA's certificate")
    new = record.authority(AuthorityKind.CLUSTER).made.public_key_hash
    skips = record.skips(Gate.UNREACHABLE_NODES)
    if not skips and any(new in (node.client, node.serving) for node in facts.nodes):
        raise InvariantBroken("I3: a node's newest certificate is by the new CA")
