"""The certificate authority of one workload cluster, read from the Secret ``<cluster>-ca``.

The Secret (Cluster API ``util/secret``) holds ``tls.crt``, the CA that signs, and ``tls.key``, its private key. During
a change of CA, ``tls.crt`` may be a bundle of several PEM blocks in any order: the first one with the key of
``tls.key`` signs. The others are candidates for the issuers of that CA. A writer of the Secret can list any CA there.
So a candidate counts only if it issued the signing CA, directly or through other candidates that count. The other
candidates, and the certificates in ``ca.crt``, do not count, but may be part of a rotation.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtensionOID

from attestors.wire.names import Purpose
from signer.authority.der import PemError, read_blocks
from signer.authority.errors import CertificateAuthorityUnavailable, CertificateAuthorityUnavailableReason
from signer.authority.lenient_certificate import (
    CACertificate,
    CertificateUnreadable,
    NotIssuedBy,
    parse_ca_certificate,
)
from signer.authority.private_key import (
    AuthorityPrivateKey,
    read_private_key,
    require_supported_public_key,
    signs_slowly,
)

__all__ = [
    "CertificateAuthority",
    "KeyWithheld",
    "discovery_hashes",
    "is_processed",
    "load_authority_certificates",
    "load_certificate_authority",
    "read_certificates",
]

_Reason = CertificateAuthorityUnavailableReason
_MAXIMUM_CERTIFICATE_BYTES = 64 * 1024
_MAXIMUM_CERTIFICATES = 16
_PROCESSED = frozenset(
    {
        ExtensionOID.AUTHORITY_INFORMATION_ACCESS,
        ExtensionOID.AUTHORITY_KEY_IDENTIFIER,
        ExtensionOID.BASIC_CONSTRAINTS,
        ExtensionOID.CERTIFICATE_POLICIES,
        ExtensionOID.CRL_DISTRIBUTION_POINTS,
        ExtensionOID.EXTENDED_KEY_USAGE,
        ExtensionOID.INHIBIT_ANY_POLICY,
        ExtensionOID.KEY_USAGE,
        ExtensionOID.POLICY_CONSTRAINTS,
        ExtensionOID.POLICY_MAPPINGS,
        ExtensionOID.SUBJECT_ALTERNATIVE_NAME,
        ExtensionOID.SUBJECT_KEY_IDENTIFIER,
    }
)
"""Extensions that Go processes. Only newer versions of Go process the policy extensions."""
_CONSTRAINED_NAMES = (x509.DNSName, x509.IPAddress, x509.RFC822Name, x509.UniformResourceIdentifier)


@dataclass(frozen=True, slots=True)
class KeyWithheld:
    """In place of a CA's private key, for reading its certificate alone. Nothing can be issued with it."""


@dataclass(frozen=True, slots=True)
class CertificateAuthority:
    """One CA with its private key. `load_certificate_authority` makes it and does all checks."""

    certificate: CACertificate
    private_key: AuthorityPrivateKey | KeyWithheld = field(repr=False, compare=False)
    trusted: tuple[CACertificate, ...] = ()
    """The CAs of the Secret that this one provably chains to, nearest first."""
    listed: frozenset[str] = frozenset()
    """The discovery hashes of the Secret's other certificates, which this CA does not chain to."""

    @property
    def ca_certificate_hashes(self) -> frozenset[str]:
        """The discovery hashes (``sha256:<64 lower-case hex>``) by which evidence may name this cluster."""
        return frozenset(certificate.public_key_hash for certificate in (self.certificate, *self.trusted))

    @property
    def is_slow_to_sign(self) -> bool:
        """Whether to sign in a thread: see `signs_slowly`."""
        return not isinstance(self.private_key, KeyWithheld) and signs_slowly(self.private_key)


def load_certificate_authority(secret_data: Mapping[str, bytes], *, now: datetime) -> CertificateAuthority:
    """Read and check a cluster's CA. It takes about 3 ms of CPU for RSA-4096: cache the value for each version.

    A cached value can expire: `signer.authority.certificate_validity` checks that each time.

    Args:
        secret_data: the Secret's ``data``, base64 decoded. Only ``tls.crt``, ``tls.key`` and ``ca.crt`` are read, the
            last one for `CertificateAuthority.listed`.
        now: timezone-aware.

    Raises:
        CertificateAuthorityUnavailable: the Secret has no CA that can sign now.
    """
    certificates = read_certificates(secret_data.get("tls.crt"))
    private_key = read_private_key(secret_data.get("tls.key"))
    certificate = _certificate_of(private_key, certificates)
    _require_usable(certificate, now)
    _require_common_encoding(certificate, private_key)
    others = [other for other in certificates if other is not certificate]
    return _with_others(CertificateAuthority(certificate, private_key), others, secret_data, now)


def load_authority_certificates(secret_data: Mapping[str, bytes], *, now: datetime) -> CertificateAuthority:
    """The same without the private key, for ``explain``, which issues nothing.

    Without the key, the first certificate of a bundle counts as the one that signs.

    Raises:
        CertificateAuthorityUnavailable: the Secret has no CA certificate that could sign now.
    """
    certificate, *others = read_certificates(secret_data.get("tls.crt"))
    _require_usable(certificate, now)
    return _with_others(CertificateAuthority(certificate, KeyWithheld()), others, secret_data, now)


def _with_others(
    authority: CertificateAuthority,
    candidates: list[CACertificate],
    secret_data: Mapping[str, bytes],
    now: datetime,
) -> CertificateAuthority:
    """The CA with the Secret's other certificates: those that it chains to, and those that are merely listed."""
    chained = replace(authority, trusted=_chain(authority.certificate, candidates, now))
    hashes = {candidate.public_key_hash for candidate in candidates}.union(_read_listed(secret_data.get("ca.crt")))
    return replace(chained, listed=frozenset(hashes) - chained.ca_certificate_hashes)


def discovery_hashes(text: bytes) -> tuple[str, ...]:
    """The discovery hashes of the certificates in a PEM bundle, for messages.

    A bundle or certificate that is unreadable, or beyond the limits of a CA's Secret, is skipped.
    """
    return tuple(_read_listed(text))


def _read_listed(text: bytes | None) -> Iterator[str]:
    """The discovery hashes of the certificates in ``ca.crt``. Unreadable ones are skipped: nothing depends on them."""
    try:
        blocks = read_blocks(
            text or b"", maximum_bytes=_MAXIMUM_CERTIFICATE_BYTES, maximum_blocks=_MAXIMUM_CERTIFICATES
        )
    except PemError:
        return
    for block in blocks:
        with contextlib.suppress(CertificateUnreadable):
            yield parse_ca_certificate(block.content).public_key_hash


def _require_usable(certificate: CACertificate, now: datetime) -> None:
    """The certificate is a CA's that can sign now."""
    _require_authority(certificate)
    require_supported_public_key(certificate.public_key, "tls.crt")
    _require_valid(certificate, now)


def _certificate_of(private_key: AuthorityPrivateKey, certificates: list[CACertificate]) -> CACertificate:
    """The first certificate of the bundle that has this private key."""
    public_key = private_key.public_key()
    for certificate in certificates:
        if certificate.public_key == public_key:
            return certificate
    raise CertificateAuthorityUnavailable(
        _Reason.KEY_MISMATCH,
        "tls.key is not the private key of a certificate in tls.crt; put the signing CA into tls.crt, or its key into "
        "tls.key",
    )


def read_certificates(text: bytes | None) -> list[CACertificate]:
    """All certificates of ``tls.crt``, in order; at least one. Nothing about them is checked.

    Raises:
        CertificateAuthorityUnavailable: ``CertificateAuthorityCertificateMissing`` or ``CertificateAuthorityInvalid``.
    """
    if text is None or not text.strip():
        raise CertificateAuthorityUnavailable(
            _Reason.CERTIFICATE_MISSING, "tls.crt is missing or empty; put the cluster's CA certificate there"
        )
    try:
        blocks = read_blocks(text, maximum_bytes=_MAXIMUM_CERTIFICATE_BYTES, maximum_blocks=_MAXIMUM_CERTIFICATES)
    except PemError as error:
        raise CertificateAuthorityUnavailable(
            _Reason.INVALID, f"tls.crt {error}; it must hold the CA certificate in PEM, then at most its issuers"
        ) from None
    certificates: list[CACertificate] = []
    for position, block in enumerate(blocks, start=1):
        if block.label != "CERTIFICATE":
            raise CertificateAuthorityUnavailable(
                _Reason.INVALID, f"PEM block {position} of tls.crt is not a CERTIFICATE; remove or convert it"
            )
        try:
            certificates.append(parse_ca_certificate(block.content))
        except CertificateUnreadable as error:
            raise CertificateAuthorityUnavailable(
                _Reason.INVALID, f"certificate {position} of tls.crt {error}; replace or remove it"
            ) from None
    return certificates


def _require_authority(certificate: CACertificate) -> None:
    if not certificate.may_sign_certificates:
        raise CertificateAuthorityUnavailable(
            _Reason.NOT_AN_AUTHORITY,
            "the certificate of tls.key in tls.crt may not sign certificates (it needs basicConstraints CA:TRUE, and "
            "keyCertSign where it has a key usage); put the CA there",
        )
    for extension in certificate.extensions:
        if extension.critical and not is_processed(extension):
            raise CertificateAuthorityUnavailable(
                _Reason.INVALID,
                f"the CA certificate in tls.crt has a critical extension, {extension.oid.dotted_string}, that API "
                "servers do not process: they would accept nothing that it signs (RFC 5280 4.2); use another CA",
            )


def is_processed(extension: x509.Extension[x509.ExtensionType]) -> bool:
    """Whether API servers and kubelets process the extension if it is critical (Go, ``crypto/x509/parser.go``)."""
    if isinstance(extension.value, x509.NameConstraints):
        subtrees = (*(extension.value.permitted_subtrees or ()), *(extension.value.excluded_subtrees or ()))
        return all(isinstance(name, _CONSTRAINED_NAMES) for name in subtrees)
    return extension.oid in _PROCESSED


def _require_valid(certificate: CACertificate, now: datetime) -> None:
    if now < certificate.not_before:
        raise CertificateAuthorityUnavailable(
            _Reason.NOT_YET_VALID,
            f"the CA in tls.crt is valid only from {certificate.not_before.isoformat()}; check the clocks",
        )
    if now >= certificate.not_after:
        raise CertificateAuthorityUnavailable(
            _Reason.EXPIRED,
            f"the CA in tls.crt expired at {certificate.not_after.isoformat()}; rotate the cluster's CA",
        )


def _require_common_encoding(certificate: CACertificate, private_key: AuthorityPrivateKey) -> None:
    public_key = private_key.public_key()
    if certificate.subject_public_key_info != public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo):
        # The same key, but bound to RSASSA-PSS (RFC 4055 1.2) or with a compressed point: our plain signatures would
        # not verify, or the discovery hash would differ between programs.
        raise CertificateAuthorityUnavailable(
            _Reason.KEY_UNSUPPORTED,
            "the CA certificate in tls.crt has its public key in an uncommon encoding (RSASSA-PSS, compressed "
            "point); issue it again with the common encoding",
        )


def _chain(certificate: CACertificate, candidates: list[CACertificate], now: datetime) -> tuple[CACertificate, ...]:
    """The candidates that ``certificate`` chains to. The search is breadth first, so each has its least depth."""
    chain: list[CACertificate] = []
    remaining = [candidate for candidate in candidates if candidate.der != certificate.der]
    level, depth = [certificate], 0
    while level:
        depth += 1
        issuers = [candidate for candidate in remaining if _issued_any(candidate, level, depth, now)]
        chain += issuers
        remaining = [candidate for candidate in remaining if candidate not in issuers]
        level = issuers
    return tuple(chain)


def _issued_any(candidate: CACertificate, level: list[CACertificate], depth: int, now: datetime) -> bool:
    """Whether the candidate is a valid CA of a supported key that issued one of ``level``, ``depth`` CAs above a leaf.

    Path length counts every CA below, including self-issued ones, as in Go's crypto/x509, which nodes verify with.
    """
    constraints = candidate.basic_constraints
    if constraints is None or not candidate.may_sign_certificates:
        return False
    if constraints.path_length is not None and constraints.path_length < depth:
        return False
    if not candidate.not_before <= now < candidate.not_after:
        return False
    try:
        require_supported_public_key(candidate.public_key, "tls.crt")
    except CertificateAuthorityUnavailable:
        return False
    for certificate in level:
        try:
            certificate.require_directly_issued_by(candidate)
        except NotIssuedBy:
            continue
        return True
    return False


__all__ = ["ClientAuthorityUse", "IssuingSet"]


class ClientAuthorityUse(enum.Enum):
    """Whether the CA that signs client certificates stands for the cluster."""

    CLUSTER = "Cluster"
    """It does: nodes know the cluster by it, and evidence may name it."""
    NODES_ONLY = "NodesOnly"
    """It does not: it signs nodes' client certificates and nothing else, and no node trusts what it signs."""


@dataclass(frozen=True, slots=True)
class IssuingSet:
    """The CAs of one workload cluster by purpose: those that sign, those that evidence may name, and retired ones.

    kubeadm has one CA for clients and servers. RKE2 and K3s have two. During a rotation there are more: CAs that are
    accepted but do not sign yet, or no longer. Callers select a CA by purpose and need not know how many there are.

    Evidence may name a CA only if the controller has its private key for this cluster, or if such a CA chains to it.
    The types enforce this: ``client``, ``serving`` and ``also_accepted`` were loaded with their keys. Retired CAs are
    hashes only.
    """

    client: CertificateAuthority
    """Signs client certificates."""
    serving: CertificateAuthority
    """Signs serving certificates."""
    also_accepted: tuple[CertificateAuthority, ...] = ()
    """CAs that were loaded with their keys and that evidence may name. They sign nothing."""
    retired: frozenset[str] = frozenset()
    """Hashes of this cluster's other CAs, listed next to the one that signs or known from before. Evidence that names
    one is deferred and never denied for that, because the CA may be part of a rotation."""
    client_use: ClientAuthorityUse = ClientAuthorityUse.CLUSTER
    """What ``client`` is for."""

    @classmethod
    def of(cls, authority: CertificateAuthority) -> IssuingSet:
        """One CA for clients and servers, as in Secret ``<cluster>-ca`` of kubeadm clusters."""
        return cls.by_purpose(authority, authority)

    @classmethod
    def by_purpose(cls, client: CertificateAuthority, serving: CertificateAuthority) -> IssuingSet:
        """One CA for clients and one for servers, as in RKE2 and K3s clusters."""
        return cls(client=client, serving=serving, retired=client.listed | serving.listed)

    def signer_of(self, purpose: Purpose) -> CertificateAuthority:
        """The CA that signs every new certificate of that purpose."""
        return self.client if purpose is Purpose.CLIENT else self.serving

    @classmethod
    def with_node_client(cls, node_client: CertificateAuthority, cluster: CertificateAuthority) -> IssuingSet:
        """The cluster's one CA, and a node-client authority that signs the nodes' client certificates."""
        return cls(node_client, cluster, retired=cluster.listed, client_use=ClientAuthorityUse.NODES_ONLY)

    @property
    def known_to_nodes(self) -> tuple[CertificateAuthority, ...]:
        """The CAs by which a node may know the cluster."""
        client = (self.client,) if self.client_use is ClientAuthorityUse.CLUSTER else ()
        return (*client, self.serving, *self.also_accepted)

    @property
    def accepted_hashes(self) -> frozenset[str]:
        """Every discovery hash by which evidence may name this cluster."""
        return frozenset[str]().union(*(authority.ca_certificate_hashes for authority in self.known_to_nodes))

    @property
    def waiting_hashes(self) -> frozenset[str]:
        """The retired hashes that are not accepted. Evidence that names one is deferred."""
        return self.retired - self.accepted_hashes

    @property
    def not_after(self) -> datetime:
        """When the first of the two signing CAs expires."""
        return min(self.client.certificate.not_after, self.serving.certificate.not_after)
