"""The certificates of access grants, issued as the controller issues them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from attestors.wire.ssh.certificate import SignedCertificate
from attestors.wire.ssh.keys import HostKey, PublicKey
from signer.access.certificates import KeyFacts, access_of, hop_requests, hops_of
from signer.access.parts import Hop, IssuanceFacts, NoBastion, ReadyBastion, TargetNode, TargetsFound
from signer.access.record import JournalEntry, content_of
from signer.authority.ssh.authorities import UserAuthority
from signer.authority.ssh.requests import Nonce, Serial
from signer.model.access import AccessGrant, Nodes, parse_access_grant
from signer.rules.access_certificates import certificate_request
from signer.ssh.revocations import Revocation
from tests.support.access_objects import grant_object
from tests.unit.signer.authority.ssh.requests import authority_key

AUTHORITY: Final = UserAuthority(authority_key("ed25519", 300))
SECRET: Final = bytes(range(32))
NOW: Final = datetime(2026, 11, 27, 14, 30, tzinfo=UTC)
HOUR: Final = timedelta(hours=1)


def grant_of(**spec: Any) -> AccessGrant:
    """The grant ``repair`` of alice."""
    return parse_access_grant(grant_object(**spec))


def bastion(*egress: str, keys: tuple[HostKey, ...] = ()) -> ReadyBastion:
    """A bastion that nodes see coming from there."""
    return ReadyBastion({"ip": "203.0.113.9", "port": 2222}, egress, keys)


def facts_of(grant: AccessGrant, **changes: Any) -> IssuanceFacts:
    """All of the grant's nodes have attested."""
    names = grant.target.names if isinstance(grant.target, Nodes) else ()
    found = TargetsFound(tuple(TargetNode(name, ("10.0.0.5",), 22) for name in names))
    return replace(IssuanceFacts(grant, "alice", 0, found, NoBastion(), HOUR), **changes)


def key_facts(
    *trusted: PublicKey, revoked: tuple[Revocation, ...] = (), holders: Any = (), authority: UserAuthority = AUTHORITY
) -> KeyFacts:
    """Nothing is against the key."""
    return KeyFacts(authority.public_key, (authority.public_key, *trusted), holders, revoked)


def issued(
    facts: IssuanceFacts,
    *,
    serial: int = 4711,
    step: int = 1,
    now: datetime = NOW,
    authority: UserAuthority = AUTHORITY,
) -> dict[Hop, SignedCertificate]:
    """The certificates, with nonces of their journal entries. Serial numbers are ``step`` apart."""
    access, found = access_of(facts), {}
    requests = hop_requests(facts, key_facts(authority=authority))
    for number, (request, hop) in enumerate(zip(requests, hops_of(facts), strict=True)):
        fingerprint = authority.public_key.fingerprint
        ends, key_id = now + facts.lifetime, str(request.key_id)
        entry = JournalEntry(request.hop, serial + step * number, now, ends, key_id, fingerprint, content_of(request))
        nonce = Nonce.of_entry(SECRET, entry.canonical)
        asked = certificate_request(access, hop, Serial(entry.serial), nonce, now, facts.lifetime)
        found[request.hop] = authority.sign(asked)
    return found
