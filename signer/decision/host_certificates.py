"""Host certificates of sshd, issued with a kubelet's client certificate to a request that names host keys.

The record names them before they are signed, and they leave this process only after the approval: as the kubelet's
certificate. Whatever is wrong with them, the kubelet gets its certificate.

Two nodes must not have one host key. This replica refuses a key that a record of another identity holds, as far as it
sees the records, or that it records at the same time. Two replicas that serve different clusters may both certify one
key within the time of a watch event. From then on, each refuses it to both nodes.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Final, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from attestors.wire.names import SSH_HOST_KEYS_OID, Purpose
from attestors.wire.node_access import NodeAccess, NodeAccessRefused, Trust, render
from attestors.wire.ssh.certificate import SignedCertificate
from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.key_line import key_line, parse_key_line
from attestors.wire.ssh.keys import HostKey, host_key
from signer.audit.decision_inputs import HostKeysStage
from signer.authority.ssh.authorities import HostAuthority
from signer.authority.ssh.errors import SSHAuthorityRefused
from signer.authority.ssh.requests import HostCertificateRequest, Nonce, Serial
from signer.decision.cached_facts import ServingFactsSource
from signer.model.cluster import ClusterKey
from signer.model.decision import Deferred
from signer.model.host_keys import (
    NO_FORMER,
    NOT_ASKED,
    AttestedHostKey,
    AttestedHostKeys,
    HostCertificateReason,
    HostCertificates,
    HostCertificatesIssued,
    HostCertificatesRefused,
    NoFormerHostCertificates,
    NotAsked,
    with_reported,
)
from signer.model.policy import Policy
from signer.model.reasons import Reason
from signer.model.record import AttestedNode
from signer.model.reservation import CLOCKS_APART
from signer.model.seal import ControllerKeys, KeyUse, joined
from signer.model.signing_request import SigningRequest
from signer.model.ssh_access import SSHSettings
from signer.rules.host_certificates import (
    HostAuthorityFacts,
    HostKeysNotCertified,
    HostNameFacts,
    ProvenHostKeys,
    host_certificate_end,
    host_names,
    key_id_of,
    planned_host_keys,
    principal_of,
    proven_host_keys,
    reported_trust_version,
)
from signer.rules.machine import MachineFacts, NoRecord
from signer.store.caches import Caches
from signer.store.records import RecordChanged, Records, conflicting_names

_SOON: Final = timedelta(seconds=0.1)
_LONGEST_WAIT_SECONDS: Final = 10.0
_NEVER: Final = float("-inf")
_MOST_WRITES: Final = 3


@dataclass(frozen=True, slots=True)
class SigningHostAuthority:
    """The authority that may sign now, and what nodes are told to trust."""

    host: HostAuthority = field(repr=False)
    trust: Trust


@dataclass(frozen=True, slots=True)
class NoSigningHostAuthority:
    """None may sign now."""

    message: str


@dataclass(frozen=True, slots=True)
class HostAuthorityNotRead:
    """This controller has just begun to serve the Cluster, and will know in a moment."""


@dataclass(frozen=True, slots=True)
class ShownHostAuthority:
    """The authority that the controller says may sign now, without its key: a dry run plans with it."""

    public_key: HostKey
    trust: Trust


HostAuthorityAnswer: TypeAlias = (
    SigningHostAuthority | NoSigningHostAuthority | HostAuthorityNotRead | ShownHostAuthority
)
HostAuthorityOf: TypeAlias = Callable[[ClusterKey], HostAuthorityAnswer]
"""The authority of one Cluster. The answer holds for one signature."""


@dataclass(frozen=True, slots=True)
class HostCertificatesSwitchedOff:
    """The controller runs without SSH: the extension counts as any other unknown one."""


SWITCHED_OFF: Final = HostCertificatesSwitchedOff()


class HostKeysBeingCertified:
    """The host keys that this replica is about to record, of all clusters."""

    def __init__(self) -> None:
        self._keys: set[str] = set()

    @contextlib.contextmanager
    def hold(self, keys: tuple[str, ...]) -> Iterator[None]:
        """Keep others from recording them meanwhile.

        Raises:
            Deferred: another request with one of them is being recorded.
        """
        if not self._keys.isdisjoint(keys):
            raise Deferred(Reason.RESERVATION_PENDING, "the host key of this request is being recorded", _SOON)
        self._keys.update(keys)
        try:
            yield
        finally:
            self._keys.difference_update(keys)


@dataclass(frozen=True, slots=True)
class HostCertificateParts:
    """What all clusters share."""

    authority_of: HostAuthorityOf
    being_certified: HostKeysBeingCertified = field(default_factory=HostKeysBeingCertified)
    host_keys_oids: tuple[str, ...] = (SSH_HOST_KEYS_OID,)
    """Of the CSR's extension. The first one that a request has counts."""


HostCertificateSwitch: TypeAlias = HostCertificateParts | HostCertificatesSwitchedOff

Planned: TypeAlias = AttestedHostKeys | HostCertificatesRefused | NotAsked


class HostCertificateIssuer:
    """Plans and signs the host certificates of one cluster."""

    def __init__(
        self,
        key: ClusterKey,
        switch: HostCertificateSwitch,
        caches: Caches,
        records: Records,
        serving: ServingFactsSource,
        monotonic: Callable[[], float],
    ) -> None:
        self._monotonic = monotonic
        self._waiting_since = _NEVER
        self._key = key
        self._switch = switch
        self._caches = caches
        self._records = records
        self._serving = serving

    @contextlib.contextmanager
    def recording(self, planned: Planned) -> Iterator[None]:
        """Around the write of the record.

        Raises:
            Deferred: another request with the same host key is being recorded.
        """
        if isinstance(self._switch, HostCertificatesSwitchedOff) or not isinstance(planned, AttestedHostKeys):
            yield
            return
        with self._switch.being_certified.hold(tuple(one.public_key for one in planned.host_keys)):
            yield

    def plan(self, request: SigningRequest, facts: MachineFacts, note: Callable[[HostKeysStage], None]) -> Planned:
        """The certificates to journal. ``note`` gets what the answer depends on.

        Raises:
            Deferred: the controller key is not available.
        """
        asked = self._asked(request, facts.policy)
        if isinstance(asked, NotAsked):
            return NOT_ASKED
        parts, settings, oid, value = asked.parts, asked.settings, asked.oid, asked.value
        found = self._authority(parts)
        if isinstance(found, NoSigningHostAuthority):
            note(HostKeysStage(oid, unavailable=found.message))
            return HostCertificatesRefused(HostCertificateReason.AUTHORITIES_NOT_AVAILABLE, found.message)
        authority = _facts_of(found, self._caches.authentic.keys())
        stage = HostKeysStage(oid, authority=authority)
        try:
            proven = proven_host_keys(value, request.certificate_request.subject_public_key_info)
            holders, names = self._holders(proven, facts), self._names(facts)
            stage = HostKeysStage(oid, authority=authority, holders=holders, names=names)
            serials = tuple([_serial_number() for _ in proven.keys])
            return planned_host_keys(proven, serials, facts, names, holders, authority, settings)
        except HostKeysNotCertified as refused:
            return HostCertificatesRefused(refused.reason, refused.message)
        finally:
            note(stage)

    def recorded(
        self, planned: Planned, request: SigningRequest, facts: MachineFacts, wanted: AttestedNode
    ) -> AttestedNode:
        """The record with what was planned. Where certificates are refused, it still has the trust that the node
        attested: it may have been given any, and a rotation waits for it.
        """
        if isinstance(planned, AttestedHostKeys):
            return replace(wanted, ssh=planned)
        asked = self._asked(request, facts.policy)
        if isinstance(planned, NotAsked) or isinstance(asked, NotAsked):
            return wanted
        return replace(wanted, ssh=with_reported(wanted.ssh, reported_trust_version(asked.value), facts.now))

    async def issue(self, planned: Planned, record: AttestedNode) -> HostCertificates:
        """Sign what the record holds since just now.

        Raises:
            Deferred: the controller key is not available; the record has the certificates.
        """
        if not isinstance(planned, AttestedHostKeys):
            return planned
        return await self._signed(planned, record)

    async def issue_again(self, request: SigningRequest, facts: MachineFacts, record: AttestedNode) -> HostCertificates:
        """The certificates that were journaled for the host keys of a request whose kubelet certificate is published
        again.

        Raises:
            Deferred: as :meth:`plan`.
        """
        asked = self._asked(request, facts.policy)
        if isinstance(asked, NotAsked):
            return NOT_ASKED
        try:
            proven = proven_host_keys(asked.value, request.certificate_request.subject_public_key_info)
        except HostKeysNotCertified as refused:
            return HostCertificatesRefused(refused.reason, refused.message)
        recorded = record.ssh
        if not isinstance(recorded, AttestedHostKeys) or not recorded.has(frozenset(proven.keys)):
            return _not_journaled("no host certificates were journaled for these host keys with it")
        if recorded.not_after > host_certificate_end(facts, asked.settings) + CLOCKS_APART:
            return _not_journaled("they would be valid for longer than the policy lets them now")
        return await self._signed(recorded, record)

    async def answered(self, node_name: str, issued: HostCertificatesIssued) -> None:
        """Record that the workload API server has taken an answer with these certificates: the node can read them, so
        those of another authority, which it had, count no longer. Without this, they do until the node's next request.

        Raises:
            Deferred: the controller key is not available.
            ApiError: from the management cluster.
            RecordChanged: other clients write the record again and again.
        """
        if isinstance(issued.recorded.former, NoFormerHostCertificates):
            return
        for left in reversed(range(_MOST_WRITES)):
            record = self._records.recorded(self._key, node_name)
            cluster = self._caches.clusters.get(self._key.namespace, self._key.name)
            if cluster is None or cluster.paused or isinstance(record, NoRecord):
                return  # it is gone, or may be moving
            ssh = record.ssh
            if not isinstance(ssh, AttestedHostKeys) or ssh.host_keys != issued.recorded.host_keys:
                return  # of a later request, which has an answer of its own
            try:
                await self._records.write(replace(record, ssh=replace(ssh, former=NO_FORMER)), cluster)
            except RecordChanged:
                if not left:
                    raise
                continue
            return

    async def _signed(self, recorded: AttestedHostKeys, record: AttestedNode) -> HostCertificates:
        if isinstance(self._switch, HostCertificatesSwitchedOff):
            return NOT_ASKED
        found = self._authority(self._switch)
        if isinstance(found, NoSigningHostAuthority):
            return HostCertificatesRefused(HostCertificateReason.AUTHORITIES_NOT_AVAILABLE, found.message)
        if _public_key_of(found).fingerprint != recorded.authority:
            return _not_journaled(f"host authority {recorded.authority}, which was to sign them, signs no longer")
        if isinstance(found, ShownHostAuthority):
            return HostCertificatesIssued(recorded, (), b"")
        secret = nonce_secret(self._caches.authentic.keys(), recorded.nonce_key)
        if not secret:
            return _not_journaled("the controller key of their journal entry is no longer in use")
        try:
            requests = [certificate_request(recorded, one, record, secret) for one in recorded.host_keys]
            if isinstance(found.host.private_key, ec.EllipticCurvePrivateKey):  # slow, and releases the GIL
                signed = await asyncio.to_thread(_sign, found.host, requests)
            else:
                signed = _sign(found.host, requests)
            text = render(NodeAccess(signed, found.trust))
        except (SSHRefused, SSHAuthorityRefused, NodeAccessRefused) as refused:
            return HostCertificatesRefused(HostCertificateReason.SIGNING_FAILED, str(refused))
        return HostCertificatesIssued(recorded, tuple(one.line for one in signed), text)

    def _asked(self, request: SigningRequest, policy: Policy) -> _Asked | NotAsked:
        if (
            isinstance(self._switch, HostCertificatesSwitchedOff)
            or request.header.signer.purpose is not Purpose.CLIENT
            or not isinstance(policy.ssh, SSHSettings)
        ):
            return NOT_ASKED
        for oid in self._switch.host_keys_oids:
            value = extension_value(request, oid)
            if not isinstance(value, NotAsked):
                return _Asked(self._switch, policy.ssh, oid, value)
        return NOT_ASKED

    def _authority(
        self, parts: HostCertificateParts
    ) -> SigningHostAuthority | ShownHostAuthority | NoSigningHostAuthority:
        """The authority; a node that asks while the controller starts would else wait for its next renewal.

        Raises:
            Deferred: it has not been read yet. The wait is short: the kubelet waits too.
        """
        found = parts.authority_of(self._key)
        if not isinstance(found, HostAuthorityNotRead):
            self._waiting_since = _NEVER  # after the next disconnection they are read anew
            return found
        now = self._monotonic()
        if self._waiting_since == _NEVER:
            self._waiting_since = now
        if now < self._waiting_since + _LONGEST_WAIT_SECONDS:
            raise Deferred(Reason.CERTIFICATE_AUTHORITY_UNAVAILABLE, "the SSH authorities are being read", _SOON)
        return NoSigningHostAuthority("they have not been read")

    def _holders(self, proven: ProvenHostKeys, facts: MachineFacts) -> tuple[AttestedNode, ...]:
        """A record of another identity that holds one of the keys now; one suffices."""
        for key in proven.keys:
            for record in self._caches.authentic.with_host_key(key):
                if record.identity.digest != facts.identity.digest and facts.now < record.held_until:
                    return (record,)
        return ()

    def _names(self, facts: MachineFacts) -> HostNameFacts:
        names = host_names(facts)
        return HostNameFacts(
            conflicting_names(self._caches, self._records, facts.machine, names.dns_names, names.ip_addresses),
            self._serving.facts(facts.policy, facts.machine, names),
        )


@dataclass(frozen=True, slots=True)
class _Asked:
    parts: HostCertificateParts
    settings: SSHSettings
    oid: str
    value: bytes


def extension_value(request: SigningRequest, oid: str) -> bytes | NotAsked:
    """The value of the CSR's extension with host keys."""
    for extension in request.certificate_request.library.extensions:
        if extension.oid.dotted_string == oid and isinstance(extension.value, x509.UnrecognizedExtension):
            return extension.value.value
    return NOT_ASKED


def nonce_secret(keys: ControllerKeys, identifier: str) -> bytes:
    """The subkey under which a journal entry's nonces are made; empty if its controller key is not in use any more."""
    for subkey in keys.subkeys(KeyUse.SSH_NONCE):
        if hmac.compare_digest(subkey.identifier, identifier):
            return subkey.secret
    return b""


def certificate_request(
    recorded: AttestedHostKeys, one: AttestedHostKey, record: AttestedNode, secret: bytes
) -> HostCertificateRequest:
    """What the authority signs for one host key: all of it follows from the record.

    Raises:
        SSHRefused, SSHAuthorityRefused: no certificate can hold it.
    """
    cluster = record.machine.cluster
    entry = joined(
        cluster.namespace,
        cluster.name,
        record.node_name,
        one.public_key,
        str(one.serial_number),
        *recorded.principals,
        recorded.not_before.isoformat(),
        recorded.not_after.isoformat(),
        recorded.authority,
    )
    return HostCertificateRequest(
        public_key=_host_key(one.public_key),
        key_id=key_id_of(cluster.namespace, cluster.name, record.node_name),
        principals=tuple(map(principal_of, recorded.principals)),
        serial=Serial(one.serial_number),
        nonce=Nonce.of_entry(secret, entry.encode("utf-8")),
        now=int(recorded.attested.timestamp()),
        lifetime=recorded.not_after - recorded.attested,
    )


def _sign(authority: HostAuthority, requests: list[HostCertificateRequest]) -> tuple[SignedCertificate, ...]:
    return tuple([authority.sign(one) for one in requests])


def _host_key(line: str) -> HostKey:
    return host_key(parse_key_line(line))


def _public_key_of(found: SigningHostAuthority | ShownHostAuthority) -> HostKey:
    return found.public_key if isinstance(found, ShownHostAuthority) else found.host.public_key


def _facts_of(found: SigningHostAuthority | ShownHostAuthority, keys: ControllerKeys) -> HostAuthorityFacts:
    public_key = _public_key_of(found)
    return HostAuthorityFacts(
        key_line(public_key),
        public_key.fingerprint,
        tuple(map(key_line, (*found.trust.all_user_authorities, *found.trust.host_authorities))),
        keys.subkeys(KeyUse.SSH_NONCE)[0].identifier,
    )


def _serial_number() -> int:
    return secrets.randbelow(2**63 - 1) + 1


def _not_journaled(message: str) -> HostCertificatesRefused:
    return HostCertificatesRefused(HostCertificateReason.NOT_JOURNALED, message)
