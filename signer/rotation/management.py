"""The management cluster's Secrets of one Cluster's rotation, read in one pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from signer.authority import CertificateAuthority, CertificateAuthorityUnavailable, load_certificate_authority
from signer.authority.lenient_certificate import CACertificate, CertificateUnreadable, parse_ca_certificate
from signer.kube.calls import Get
from signer.kube.client import JsonObject
from signer.kube.errors import NotFound
from signer.kube.resources import SECRETS
from signer.model.authority_suffixes import NODE_CLIENT_CA
from signer.model.cluster import ClusterKey
from signer.model.seal import ControllerKeys, Generation
from signer.rotation.authorities import AuthorityKind, Role, pair_suffix
from signer.rotation.bundles import UnreadableBundle, digest_of, digests_in, is_issued_by, read_bundle
from signer.rotation.facts import (
    Absent,
    AuthorityFacts,
    HeldCertificate,
    HeldPair,
    KubeconfigFacts,
    Link,
    SigningFacts,
    TrustFacts,
    Unusable,
)
from signer.rotation.kubeconfigs import read_facts
from signer.rotation.node_client.former import FORMER_SUFFIX, Retiring, read_former
from signer.rotation.phases import SigningPairs
from signer.rotation.record import RotationRecord
from signer.rotation.secrets import (
    ABSENT,
    CERTIFICATE_KEY,
    PRIVATE_KEY,
    Pair,
    ReadSecret,
    decoded,
    read_kept_pair,
    read_secret,
)
from signer.rotation.signing_secret import read_signing

CLIENT_CA: Final = "client-ca.crt"
SERVER_CA: Final = "server-ca.crt"
LINK: Final = "link.crt"
KUBECONFIG_KEY: Final = "value"
RENEWED_BEFORE_END: Final = timedelta(days=14)
"""A link certificate with less left counts as none of those that are wanted, and is made again; unless it ends with one
of its CAs."""


@dataclass(frozen=True, slots=True)
class Authorities:
    """The two CAs of the cluster, with their keys; one that cannot be loaded is missing."""

    by_role: Mapping[Role, CertificateAuthority] = field(default_factory=dict)

    @property
    def both(self) -> tuple[CertificateAuthority, ...]:
        """Those that could be loaded, the old one first."""
        return tuple(self.by_role[role] for role in Role if role in self.by_role)


@dataclass(frozen=True, slots=True)
class ManagementSecrets:
    """Facts about the Secrets, and what is needed to write them again."""

    authorities: Mapping[AuthorityKind, AuthorityFacts]
    trust: TrustFacts | Absent | Unusable
    kubeconfig: KubeconfigFacts | Absent | Unusable
    cluster: Authorities
    signing: SigningFacts | Absent | Unusable = field(default=Absent())
    pairs: Mapping[tuple[AuthorityKind, Role], Pair] = field(default_factory=dict, repr=False)
    current: Mapping[AuthorityKind, ReadSecret] = field(default_factory=dict, repr=False)
    trust_object: JsonObject = field(default_factory=dict, repr=False)
    kubeconfig_object: JsonObject = field(default_factory=dict, repr=False)
    signing_object: JsonObject = field(default_factory=dict, repr=False)
    kept: Mapping[tuple[AuthorityKind, Role], ReadSecret] = field(default_factory=dict, repr=False)
    node_client: tuple[bytes, ...] = ()
    """DER of the node-client authority, and of a former one that is being retired. They stay in ``client-ca.crt``, and
    ``trust`` is without them. One that somebody has removed from there is not in it.
    """


async def read_secrets(
    client: Get, key: ClusterKey, record: RotationRecord, keys: ControllerKeys, now: datetime
) -> ManagementSecrets:
    """Read every Secret by name.

    Raises:
        ApiError: one cannot be read: a Secret that is merely unreachable must never count as absent.
    """
    reader = _Reader(client, key)
    facts, current, kept = {}, {}, {}
    for authority in record.authorities:
        kind = authority.kind
        current[kind] = await reader.authority(kind)
        for role in Role:
            kept[kind, role] = await reader.pair(kind, record.rotation_id, role, keys)
        facts[kind] = AuthorityFacts(
            current[kind].held,
            {role: kept[kind, role].held for role in Role},
            frozenset(role for role in Role if kept[kind, role].sealed_with is Generation.PREVIOUS),
        )
    pairs = {place: read.pair for place, read in kept.items() if isinstance(read.pair, Pair)}
    cluster = _authorities(pairs, now)
    trust, trust_object, node_client = await reader.trust(cluster, await reader.node_client(keys), now)
    known = (*_staying(record, current[AuthorityKind.CLUSTER]), *(one.certificate for one in cluster.both))
    kubeconfig, kubeconfig_object = await reader.kubeconfig(known)
    signing_object = await reader.signing(record)
    return ManagementSecrets(
        authorities=facts,
        trust=trust,
        kubeconfig=kubeconfig,
        cluster=cluster,
        pairs=pairs,
        current=current,
        trust_object=trust_object,
        kubeconfig_object=kubeconfig_object,
        signing=read_signing(signing_object),
        signing_object=signing_object,
        kept=kept,
        node_client=node_client,
    )


def _staying(record: RotationRecord, read: ReadSecret) -> tuple[CACertificate, ...]:
    """The CA of Secret ``<cluster>-ca`` once the rotation is over: the only one that is left when a person has cleared
    an abandoned rotation. In a rotation, only what can be issued again counts as known.
    """
    if not record.phase.is_over or not isinstance(read.pair, Pair):
        return ()
    ders = read_bundle(read.pair.certificate)
    return () if isinstance(ders, UnreadableBundle) else tuple(parse_ca_certificate(der) for der in ders)


def _authorities(pairs: Mapping[tuple[AuthorityKind, Role], Pair], now: datetime) -> Authorities:
    loaded = {}
    for role in Role:
        pair = pairs.get((AuthorityKind.CLUSTER, role))
        if pair is None:
            continue
        try:
            data = {CERTIFICATE_KEY: pair.certificate, PRIVATE_KEY: pair.key}
            loaded[role] = load_certificate_authority(data, now=now)
        except CertificateAuthorityUnavailable:
            continue  # expired, for example: the facts say that it is there, and nothing is signed with it
    return Authorities(loaded)


@dataclass(frozen=True, slots=True)
class _Reader:
    client: Get
    key: ClusterKey

    async def _get(self, suffix: str) -> JsonObject:
        """Empty if there is none."""
        try:
            return await self.client.get(SECRETS.object(f"{self.key.name}-{suffix}", self.key.namespace))
        except NotFound:
            return {}

    async def authority(self, kind: AuthorityKind) -> ReadSecret:
        found = await self._get(kind.value)
        return read_secret(kind, found) if found else ABSENT

    async def pair(self, kind: AuthorityKind, rotation_id: str, role: Role, keys: ControllerKeys) -> ReadSecret:
        found = await self._get(pair_suffix(kind, rotation_id, role))
        return read_kept_pair(kind, found, keys) if found else ABSENT

    async def node_client(self, keys: ControllerKeys) -> tuple[bytes, ...]:
        """DER of the node-client authority, with or without its key, and of a former one that may be in use still;
        empty if this controller has not made one.
        """
        found = await self._get(NODE_CLIENT_CA)
        own = read_kept_pair(AuthorityKind.CLUSTER, found, keys).held if found else Absent()
        ders = _certificates(found) if isinstance(own, HeldPair | HeldCertificate) else ()
        former = read_former(await self._get(FORMER_SUFFIX), keys)
        if isinstance(former.former, Retiring):
            ders = (*ders, *(one for one in _certificates(former.manifest) if one not in ders))
        return ders

    async def signing(self, record: RotationRecord) -> JsonObject:
        """Secret ``<cluster>-signing``, where the rotation has split pairs: another one of that name is not read."""
        return await self._get("signing") if record.signing_pairs is SigningPairs.SPLIT else {}

    async def trust(
        self, cluster: Authorities, node_client: tuple[bytes, ...], now: datetime
    ) -> tuple[TrustFacts | Absent | Unusable, JsonObject, tuple[bytes, ...]]:
        """The facts without the node-client authority, the object, and what of the authority must stay in it."""
        found = await self._get("trust")
        if not found:
            return Absent(), {}, node_client
        try:
            data = decoded(found)
        except ValueError as error:
            return Unusable(str(error)), found, node_client
        client, server = read_bundle(data.get(CLIENT_CA, b"")), digests_in(data.get(SERVER_CA, b""))
        if isinstance(client, UnreadableBundle) or isinstance(server, UnreadableBundle):
            return Unusable("a bundle cannot be read"), found, node_client
        own = tuple(one for one in node_client if one in client)
        others = tuple(digest_of(one) for one in client if one not in own)
        link = data.get(LINK, b"")
        return TrustFacts(others, server, link_in(link, cluster, now), link_end_in(link)), found, own

    async def kubeconfig(
        self, known: tuple[CACertificate, ...]
    ) -> tuple[KubeconfigFacts | Absent | Unusable, JsonObject]:
        found = await self._get("kubeconfig")
        if not found:
            return Absent(), {}
        try:
            value = decoded(found).get(KUBECONFIG_KEY, b"")
        except ValueError as error:
            return Unusable(str(error)), found
        return read_facts(value, *known), found


def _certificates(manifest: JsonObject) -> tuple[bytes, ...]:
    """DER of a Secret's certificates. Its content was read before."""
    certificates = read_bundle(decoded(manifest)[CERTIFICATE_KEY])
    return () if isinstance(certificates, UnreadableBundle) else certificates


def link_end_in(text: bytes) -> datetime | Absent:
    """When the only certificate there ends, of whichever link it is."""
    found = read_bundle(text)
    if isinstance(found, UnreadableBundle) or len(found) != 1:
        return Absent()
    try:
        return parse_ca_certificate(found[0]).not_after
    except CertificateUnreadable:
        return Absent()


def link_in(text: bytes, cluster: Authorities, now: datetime) -> Link:
    """Which link certificate that is, by names, keys and signatures."""
    found = read_bundle(text)
    if found == ():
        return Link.NONE
    old, new = cluster.by_role.get(Role.OLD), cluster.by_role.get(Role.NEW)
    if isinstance(found, UnreadableBundle) or len(found) != 1 or old is None or new is None:
        return Link.OTHER
    try:
        link = parse_ca_certificate(found[0])
    except CertificateUnreadable:
        return Link.OTHER
    ends = min(old.certificate.not_after, new.certificate.not_after)
    # One that ends with a CA would not end later if it were made again.
    spare = RENEWED_BEFORE_END if link.not_after < ends else timedelta()
    if not link.not_before <= now < link.not_after - spare:
        return Link.OTHER
    for kind, subject, issuer in ((Link.OLD_WITH_NEW, old, new), (Link.NEW_WITH_OLD, new, old)):
        same_key = link.subject_public_key_info == subject.certificate.subject_public_key_info
        if same_key and is_issued_by(found[0], issuer.certificate):
            return kind
    return Link.OTHER
