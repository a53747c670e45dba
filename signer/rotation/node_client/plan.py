"""What comes next for the node-client authority of a cluster: make it, publish it, ask the API servers, sign. Pure.

Nothing but the Secrets is kept. Each pass computes again what is proven, and the authority signs only while the last
answer of every API server was that it accepts it. Until then, and whenever that is no longer so, the cluster's CA
signs: every API server accepts that one anyway.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from signer.authority.presented import Presented
from signer.model.seal import Generation
from signer.rotation.authorities import AuthorityReference
from signer.rotation.facts import (
    Absent,
    Acceptance,
    Bundle,
    Held,
    HeldCertificate,
    HeldPair,
    NotObserved,
    ServerFacts,
    ServersFacts,
    Unusable,
)
from signer.rotation.proofs import NotKnown, NotProven, Proof, Proven, named

USED_UNTIL_BEFORE_END: Final = timedelta(days=30)
"""An authority that ends sooner signs nothing: its certificates would end with it."""


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


@dataclass(frozen=True, slots=True)
class MakeAuthority:
    """Create Secret ``<cluster>-node-client-ca`` with a new CA."""


@dataclass(frozen=True, slots=True)
class SealAuthority:
    """Seal Secret ``<cluster>-node-client-ca`` with the controller's current key."""


@dataclass(frozen=True, slots=True)
class Publish:
    """Add the authority to ``client-ca.crt`` of Secret ``<cluster>-trust``."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask every API server, with a canary of the cluster's CA and one of the authority."""


@dataclass(frozen=True, slots=True)
class Sign:
    """The authority signs, and ``message`` says what is known of the API servers."""

    authority: AuthorityReference
    message: str


@dataclass(frozen=True, slots=True)
class DoNotSign:
    """The cluster's CA signs."""

    reason: Reason
    proof: NotProven | NotKnown


Move: TypeAlias = MakeAuthority | SealAuthority | Publish | Sign | DoNotSign


def next_move(facts: NodeClientFacts) -> Move | Ask:
    """The one move that comes next. Never ``Ask`` if the API servers have been asked."""
    if isinstance(facts.wanted, NotWanted):
        return _no(facts.wanted.reason, facts.wanted.message)
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


def _with_authority(authority: AuthorityReference, facts: NodeClientFacts) -> Move | Ask:
    if not isinstance(facts.cluster, HeldPair):
        return _no(Reason.FOREIGN_AUTHORITY, "Secret <cluster>-ca holds no CA that can be read")
    if authority.public_key_hash == facts.cluster.signs.public_key_hash:
        return _no(Reason.FOREIGN_AUTHORITY, "its Secret holds the cluster's own CA")
    if authority.not_after - facts.now < USED_UNTIL_BEFORE_END:
        return _no(Reason.ENDS, f"it ends at {authority.not_after:%Y-%m-%d}: replace it (docs/rotation.md)")
    if isinstance(facts.trust, Unusable):
        return _no(Reason.FOREIGN_AUTHORITY, f"Secret <cluster>-trust cannot be used: {facts.trust.message}")
    if isinstance(facts.trust, Absent) or not {authority.digest, facts.cluster.signs.digest} <= set(facts.trust):
        return Publish()
    if isinstance(facts.servers, NotAsked):
        return Ask()
    match every_server_accepts(facts.servers):
        case Proven():
            return Sign(authority, "every API server accepts its certificates")
        case NotProven() as proof:
            return DoNotSign(Reason.NOT_ACCEPTED, proof)
        case NotKnown(message) as proof:
            # What was proven stays so until a server says otherwise: one that is off refuses nothing.
            return Sign(authority, message) if facts.signs == authority else DoNotSign(Reason.NOT_PROVEN, proof)


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


def _accepts(server: ServerFacts) -> bool:
    """It presents a certificate of the cluster's CA, and accepts clients of both."""
    is_known = server.presents in (Presented.OLD, Presented.OLD_LINKED)
    return is_known and (server.old, server.new) == (Acceptance.ACCEPTED, Acceptance.ACCEPTED)


def _first_reason(servers: ServersFacts) -> str:
    return f" ({servers.unseen[min(servers.unseen)]})" if servers.unseen else ""


def _no(reason: Reason, message: str) -> DoNotSign:
    return DoNotSign(reason, NotProven(message))
