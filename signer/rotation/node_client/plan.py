"""What comes next for the node-client authority of a cluster: make it, publish it, ask the API servers, sign. Pure.

Nothing but the Secrets is kept. Each pass computes again what is proven, and the authority signs only while the last
answer of every API server was that it accepts it. Until then, and whenever that is no longer so, the cluster's CA
signs: every API server accepts that one anyway.

A person may order another authority in its place (:mod:`.orders`). The former one signs nothing from then on, so
the nodes with its certificates only become fewer. Once there are none, API servers have to refuse it.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from signer.authority.presented import Presented
from signer.model.seal import Generation
from signer.rotation.authorities import AuthorityReference
from signer.rotation.facts import (
    Absent,
    Acceptance,
    AuthenticationFacts,
    Bundle,
    Held,
    HeldCertificate,
    HeldPair,
    NotObserved,
    ServerFacts,
    ServersFacts,
    Unusable,
)
from signer.rotation.node_client.former import Former, NodesGate, Retired, Retiring
from signer.rotation.proofs import AGAIN, NotKnown, NotProven, Proof, Proven, named

USED_UNTIL_BEFORE_END: Final = timedelta(days=30)
"""An authority that ends sooner signs nothing: its certificates would end with it."""
NOT_YET: Final = NotObserved("it was not so in the last pass")
_AGAIN_TEXT: Final = f"{AGAIN.total_seconds():.0f} seconds"


class Reason(enum.StrEnum):
    """Why the node-client authority does not sign; reasons of its condition."""

    NOT_CHOSEN = "NotChosen"
    NOT_ALLOWED = "NotAllowed"
    NOT_SUPPORTED = "NotSupported"
    ROTATION_UNDER_WAY = "RotationUnderWay"
    PAUSED = "Paused"
    FOREIGN_AUTHORITY = "ForeignAuthority"
    ENDS = "Ends"
    NOT_ACCEPTED = "NotAccepted"
    NOT_PROVEN = "NotProven"


class Stage(enum.StrEnum):
    """What the controller does while the authority signs; reasons of its condition."""

    SIGNING = "Signing"
    """There is no former authority, or all of it is done."""
    NODES_RENEW = "NodesRenew"
    """Nodes have certificates of the former authority."""
    SERVERS_DROP_FORMER = "ServersDropFormer"
    """It is published no longer, and not every API server has refused it yet, twice."""
    FORGET_FORMER = "ForgetFormer"
    """Aggregated API servers are told to trust it no longer. Then its key is deleted."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The policy chooses it, and nothing speaks against it."""


@dataclass(frozen=True, slots=True)
class NotWanted:
    """It must not sign, whatever the Secrets hold."""

    reason: Reason
    message: str


@dataclass(frozen=True, slots=True)
class NotAsked:
    """The API servers have not been asked in this pass."""


@dataclass(frozen=True, slots=True)
class FormerNodes:
    """The nodes that would be refused without the former authority, by their records."""

    users: tuple[str, ...] = ()
    """Nodes whose newest client certificate is by it."""
    unknown: tuple[str, ...] = ()
    """Nodes and Machines of which that is not known."""


@dataclass(frozen=True, slots=True)
class NodeClientFacts:
    """Everything that a move depends on."""

    now: datetime
    wanted: Wanted | NotWanted
    own: Held
    """Secret ``<cluster>-node-client-ca``. One that this controller did not seal is Unusable."""
    sealed_with: Generation
    """Which of the controller's keys sealed it."""
    cluster: Held
    """Secret ``<cluster>-ca``."""
    trust: Bundle | Absent | Unusable
    """``client-ca.crt`` of Secret ``<cluster>-trust``."""
    servers: ServersFacts | NotObserved | NotAsked
    signs: AuthorityReference | Absent
    """The authority that signs at the beginning of the pass."""
    former: Former = field(default=Absent())
    """Secret ``<cluster>-node-client-ca-old``."""
    former_sealed_with: Generation = Generation.CURRENT
    former_nodes: FormerNodes = FormerNodes()
    former_servers: ServersFacts | NotObserved | NotAsked = NotAsked()
    """The API servers, asked with a canary of the cluster's CA and one of the former authority."""
    refused_since: datetime | NotObserved = NOT_YET
    """The first of the passes in a row, up to this one, at which every API server refused the former authority."""
    authentication: AuthenticationFacts | NotObserved | NotAsked = NotAsked()
    absent_since: datetime | NotObserved = NOT_YET
    """The same, at which ConfigMap extension-apiserver-authentication lacked the former authority."""


@dataclass(frozen=True, slots=True)
class MakeAuthority:
    """Create Secret ``<cluster>-node-client-ca`` with a new CA."""


@dataclass(frozen=True, slots=True)
class SealAuthority:
    """Seal Secret ``<cluster>-node-client-ca`` with the controller's current key."""


@dataclass(frozen=True, slots=True)
class SealFormer:
    """Seal Secret ``<cluster>-node-client-ca-old`` with the controller's current key."""


@dataclass(frozen=True, slots=True)
class MakeSuccessor:
    """Replace the pair in Secret ``<cluster>-node-client-ca``, of which there is a copy, by that of a new CA."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Add to ``client-ca.crt`` of Secret ``<cluster>-trust`` what is missing there."""

    with_former: bool


@dataclass(frozen=True, slots=True)
class Unpublish:
    """Remove the former authority from ``client-ca.crt`` of Secret ``<cluster>-trust``."""


@dataclass(frozen=True, slots=True)
class Prune:
    """Remove the former authority from ConfigMap ``extension-apiserver-authentication``."""


@dataclass(frozen=True, slots=True)
class ForgetFormer:
    """Delete the former authority's key."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask every API server, with a canary of the cluster's CA and one of the authority."""


@dataclass(frozen=True, slots=True)
class AskFormer:
    """The same with one of the former authority, and read what aggregated API servers are told."""


@dataclass(frozen=True, slots=True)
class Sign:
    """The authority signs, and ``message`` says what is known of the API servers."""

    authority: AuthorityReference
    message: str
    stage: Stage = Stage.SIGNING


@dataclass(frozen=True, slots=True)
class DoNotSign:
    """The cluster's CA signs."""

    reason: Reason
    proof: NotProven | NotKnown


Write: TypeAlias = (
    MakeAuthority | SealAuthority | SealFormer | MakeSuccessor | Publish | Unpublish | Prune | ForgetFormer
)
Move: TypeAlias = Write | Sign | DoNotSign


def next_move(facts: NodeClientFacts) -> Move | Ask | AskFormer:
    """The one move that comes next. Never ``Ask`` or ``AskFormer`` if that has been asked."""
    if isinstance(facts.wanted, NotWanted):
        return _no(facts.wanted.reason, facts.wanted.message)
    if isinstance(facts.former, Unusable):
        message = f"Secret <cluster>-node-client-ca-old cannot be used: {facts.former.message}"
        return _no(Reason.FOREIGN_AUTHORITY, message)
    if isinstance(facts.former, (Retiring, Retired)) and facts.former_sealed_with is Generation.PREVIOUS:
        return SealFormer()
    match facts.own:
        case Absent() if not isinstance(facts.cluster, HeldPair):
            return _no(Reason.FOREIGN_AUTHORITY, "Secret <cluster>-ca holds no CA that can be read")
        case Absent():
            return MakeAuthority()
        case HeldPair(certificates=(_,)) if facts.sealed_with is Generation.PREVIOUS:
            return SealAuthority()
        case HeldPair(certificates=(_,), signs=authority):
            return _with_authority(authority, facts)
        case HeldPair():
            return _no(Reason.FOREIGN_AUTHORITY, "its Secret holds several certificates")
        case HeldCertificate():
            return _no(Reason.FOREIGN_AUTHORITY, "its Secret has no key: restore it from a backup")
        case Unusable(message):
            return _no(Reason.FOREIGN_AUTHORITY, f"its Secret cannot be used: {message}")


def _with_authority(authority: AuthorityReference, facts: NodeClientFacts) -> Move | Ask | AskFormer:
    if not isinstance(facts.cluster, HeldPair):
        return _no(Reason.FOREIGN_AUTHORITY, "Secret <cluster>-ca holds no CA that can be read")
    match facts.former:
        case Retiring(former) if former.public_key_hash == authority.public_key_hash:
            return MakeSuccessor()
        case Retired(former) if former.public_key_hash == authority.public_key_hash:
            message = "its Secret holds the former authority again: delete it, and the controller makes another one"
            return _no(Reason.FOREIGN_AUTHORITY, message)
    if authority.public_key_hash == facts.cluster.signs.public_key_hash:
        return _no(Reason.FOREIGN_AUTHORITY, "its Secret holds the cluster's own CA")
    if authority.not_after - facts.now < USED_UNTIL_BEFORE_END:
        return _no(Reason.ENDS, f"it ends at {authority.not_after:%Y-%m-%d}: replace it (docs/rotation.md)")
    if isinstance(facts.trust, Unusable):
        return _no(Reason.FOREIGN_AUTHORITY, f"Secret <cluster>-trust cannot be used: {facts.trust.message}")
    needed = {authority.digest, facts.cluster.signs.digest}
    in_use = former_in_use(facts)
    if isinstance(in_use, Retiring):
        needed.add(in_use.authority.digest)
    if isinstance(facts.trust, Absent) or not needed <= set(facts.trust):
        return Publish(with_former=isinstance(in_use, Retiring))
    if isinstance(facts.servers, NotAsked):
        return Ask()
    match every_server_accepts(facts.servers):
        case Proven() as proof:
            return _retire(Sign(authority, "every API server accepts its certificates"), proof, facts)
        case NotProven() as proof:
            return DoNotSign(Reason.NOT_ACCEPTED, proof)
        case NotKnown(message) as proof if facts.signs == authority:
            # What was proven stays so until a server says otherwise: one that is off refuses nothing.
            return _retire(Sign(authority, message), proof, facts)
        case NotKnown() as proof:
            return DoNotSign(Reason.NOT_PROVEN, proof)


def former_in_use(facts: NodeClientFacts) -> Retiring | Absent:
    """The former authority, if API servers must go on to accept it: some node may have nothing else."""
    match facts.former:
        case Retiring(authority, retirement) as former if (
            (facts.former_nodes.users or facts.former_nodes.unknown)
            and retirement.nodes is NodesGate.WAITED_FOR
            and facts.now < authority.not_after
        ):
            return former
        case _:
            return Absent()


def _retire(sign: Sign, accepted: Proven | NotKnown, facts: NodeClientFacts) -> Move | AskFormer:
    """What comes next for the former authority, once the present one signs."""
    assert not isinstance(facts.trust, (Absent, Unusable))
    match facts.former:
        case Retired(former) if former.digest in facts.trust:
            return Unpublish()  # somebody has published it again
        case Retiring(former) if facts.signs == sign.authority:
            pass
        case _:
            return sign
    if isinstance(former_in_use(facts), Retiring):
        return replace(sign, message=_nodes_wait(facts.former_nodes), stage=Stage.NODES_RENEW)
    dropping = replace(sign, stage=Stage.SERVERS_DROP_FORMER)
    if isinstance(accepted, NotKnown):
        return dropping
    if former.digest in facts.trust:
        return Unpublish()
    if isinstance(facts.former_servers, NotAsked) or isinstance(facts.authentication, NotAsked):
        return AskFormer()
    refused = _is_refused(former, facts)
    if not isinstance(refused, Proven):
        return replace(dropping, message=refused.message)
    return _forget(replace(sign, stage=Stage.FORGET_FORMER), former, facts)


def _is_refused(former: AuthorityReference, facts: NodeClientFacts) -> Proof:
    assert not isinstance(facts.former_servers, NotAsked)
    if facts.now >= former.not_after:
        return Proven()  # no API server accepts a certificate of a CA that has ended
    refused = every_server_refuses(facts.former_servers)
    if isinstance(refused, Proven) and not _lasts(facts.refused_since, facts.now):
        return NotProven(f"every API server refuses the former authority, and is asked again after {_AGAIN_TEXT}")
    return refused


def _forget(sign: Sign, former: AuthorityReference, facts: NodeClientFacts) -> Move:
    where = "ConfigMap kube-system/extension-apiserver-authentication"
    if not isinstance(facts.authentication, AuthenticationFacts):
        reason = facts.authentication.message if isinstance(facts.authentication, NotObserved) else "it was not read"
        return replace(sign, message=f"{where} cannot be read: {reason}")
    if former.digest in facts.authentication.client:
        return Prune()
    if not _lasts(facts.absent_since, facts.now):
        return replace(sign, message=f"{where} is read again after {_AGAIN_TEXT}: an API server may add it again")
    return ForgetFormer()


def _lasts(since: datetime | NotObserved, now: datetime) -> bool:
    return not isinstance(since, NotObserved) and now - since >= AGAIN


def _nodes_wait(nodes: FormerNodes) -> str:
    parts = []
    if nodes.users:
        parts.append(
            f"nodes that have a certificate of the former authority and are told to renew it: {named(nodes.users)}"
        )
    if nodes.unknown:
        parts.append(f"nodes and Machines whose newest certificate is not known: {named(nodes.unknown)}")
    return "; ".join(parts)


def every_server_accepts(servers: ServersFacts | NotObserved) -> Proof:
    """Every API server accepts clients of the authority, which are asked as the new CA's, and of the cluster's CA."""
    if isinstance(servers, NotObserved):
        return NotKnown(f"the API servers cannot be asked: {servers.message}")
    refused = tuple(sorted(one.machine for one in servers.seen if one.new is Acceptance.REFUSED))
    if refused:
        return NotProven(
            f"these API servers do not accept it: {named(refused)}. Have their Machines replaced, or write key "
            "client-ca.crt of Secret <cluster>-trust to the file of their flag client-ca-file",
            refused,
        )
    unknown = tuple(sorted({*servers.unseen, *(one.machine for one in servers.seen if not _accepts(one))}))
    if unknown:
        return NotKnown(f"these API servers could not be asked: {named(unknown)}{_first_reason(servers)}", unknown)
    if not servers.seen:
        return NotKnown("the cluster shows no API server")
    return Proven()


def every_server_refuses(servers: ServersFacts | NotObserved) -> Proof:
    """Every API server refuses clients of the former authority, which are asked as the new CA's, and accepts those of
    the cluster's CA: it is no server that refuses everything.
    """
    if isinstance(servers, NotObserved):
        return NotKnown(f"the API servers cannot be asked for the former authority: {servers.message}")
    accepting = tuple(sorted(one.machine for one in servers.seen if one.new is Acceptance.ACCEPTED))
    if accepting:
        return NotProven(
            f"these API servers still accept the former authority: {named(accepting)}. Have their Machines replaced, "
            "or write key client-ca.crt of Secret <cluster>-trust to the file of their flag client-ca-file",
            accepting,
        )
    unknown = tuple(sorted({*servers.unseen, *(one.machine for one in servers.seen if not _refuses(one))}))
    if unknown:
        message = f"these API servers could not be asked for the former authority: {named(unknown)}"
        return NotKnown(f"{message}{_first_reason(servers)}", unknown)
    if not servers.seen:
        return NotKnown("the cluster shows no API server")
    return Proven()


def _refuses(server: ServerFacts) -> bool:
    return _is_known(server) and (server.old, server.new) == (Acceptance.ACCEPTED, Acceptance.REFUSED)


def _accepts(server: ServerFacts) -> bool:
    """It presents a certificate of the cluster's CA, and accepts clients of both."""
    return _is_known(server) and (server.old, server.new) == (Acceptance.ACCEPTED, Acceptance.ACCEPTED)


def _is_known(server: ServerFacts) -> bool:
    return server.presents in (Presented.OLD, Presented.OLD_LINKED)


def _first_reason(servers: ServersFacts) -> str:
    return f" ({servers.unseen[min(servers.unseen)]})" if servers.unseen else ""


def _no(reason: Reason, message: str) -> DoNotSign:
    return DoNotSign(reason, NotProven(message))
