"""New authorities for a rotation: a CA that succeeds another one, and a key for service account tokens.

A new CA differs from those of Cluster API (``newSelfSignedCACert`` in its ``util/secret/certificates.go``) in three
ways: its name is unique, so that no client confuses two roots of one name; its serial number is positive (RFC 5280
4.1.2.2); and it has no path length limit, so that it can certify its own successor (`signer.authority.link`).
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final, Literal

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID

from signer.authority import der
from signer.authority.authority_certificate import (
    SIGNS_CERTIFICATES,
    AuthorityContents,
    Extension,
    derived_key_identifier,
    sign_authority_certificate,
)
from signer.authority.lenient_certificate import CACertificate
from signer.authority.private_key import AuthorityPrivateKey, AuthorityPublicKey, require_supported_public_key
from signer.authority.profiles import COMMON_NAME, MINIMUM_DURATION, Validity

__all__ = [
    "AUTHORITY_LIFETIME",
    "NewAuthority",
    "AuthorityKind",
    "NodeClientAuthority",
    "RotatedCertificateAuthority",
    "ServiceAccountKey",
    "new_authority",
    "new_node_client_authority",
    "new_service_account_key",
]

AUTHORITY_LIFETIME: Final = timedelta(days=3650)
"""The lifetime of Cluster API's CAs."""
_BACKDATE: Final = timedelta(hours=1)
_IDENTIFIER: Final = re.compile(r"[a-z2-7]{8}\Z")
_RSA_EXPONENT: Final = 65537


class AuthorityKind(StrEnum):
    """The authorities of a cluster that rotate. The value is the suffix of Cluster API's Secret ``<cluster>-...``."""

    CLUSTER = "ca"
    """Signs the certificates of API servers, kubelets and their clients."""
    ETCD = "etcd"
    """Signs the certificates of etcd's members and clients."""
    FRONT_PROXY = "proxy"
    """Signs the certificate by which API servers call aggregated API servers."""
    SERVICE_ACCOUNT = "sa"
    """Signs service account tokens. A key pair without a certificate."""


RotatedCertificateAuthority = Literal[AuthorityKind.CLUSTER, AuthorityKind.ETCD, AuthorityKind.FRONT_PROXY]
"""The authorities that have a certificate."""

_NAMES: Final[dict[RotatedCertificateAuthority, str]] = {
    AuthorityKind.CLUSTER: "kubernetes",
    AuthorityKind.ETCD: "kubernetes-etcd",
    AuthorityKind.FRONT_PROXY: "kubernetes-front-proxy",
}
"""Prefixes of the common names. Cluster API names all three CAs ``kubernetes``."""
_NODE_CLIENT_NAME: Final = "kubernetes-node-client"


@dataclass(frozen=True, slots=True)
class NewAuthority:
    """A new CA. `signer.authority.load_certificate_authority` reads ``secret_data``."""

    kind: RotatedCertificateAuthority
    certificate: CACertificate
    certificate_pem: bytes = field(repr=False)
    private_key_pem: bytes = field(repr=False)
    """PKCS#1 or SEC1, as Cluster API writes it."""

    @property
    def discovery_hash(self) -> str:
        """kubeadm's discovery hash, ``sha256:<64 lower-case hex>``."""
        return self.certificate.public_key_hash

    @property
    def secret_data(self) -> dict[str, bytes]:
        """``data`` of the Secret, before base64."""
        return {"tls.crt": self.certificate_pem, "tls.key": self.private_key_pem}


@dataclass(frozen=True, slots=True)
class NodeClientAuthority:
    """A new node-client authority: a CA for client certificates of nodes alone."""

    certificate: CACertificate
    certificate_pem: bytes = field(repr=False)
    private_key_pem: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ServiceAccountKey:
    """A key pair that signs service account tokens."""

    public_key_pem: bytes
    """SubjectPublicKeyInfo, which Cluster API writes into ``tls.crt`` and kubeadm into ``sa.pub``."""
    private_key_pem: bytes = field(repr=False)
    """PKCS#1 or SEC1, as Cluster API writes it."""
    key_id: str
    """The ``kid`` of its tokens and in the JWKS."""

    @property
    def secret_data(self) -> dict[str, bytes]:
        """``data`` of the Secret, before base64."""
        return {"tls.crt": self.public_key_pem, "tls.key": self.private_key_pem}


def new_authority(
    kind: RotatedCertificateAuthority,
    identifier: str,
    *,
    like: CACertificate,
    now: datetime,
    lifetime: timedelta = AUTHORITY_LIFETIME,
) -> NewAuthority:
    """Make a CA that succeeds another one. The key alone takes up to seconds for RSA-4096: call it in a thread.

    Args:
        kind: selects the name: ``kubernetes-<identifier>`` for the cluster's CA.
        identifier: the rotation's, 8 characters of ``a-z2-7``.
        like: the old CA: the new key has the algorithm and size of its key.
        now: timezone-aware.
        lifetime: counted from ``now``; at least ten minutes.

    Raises:
        ValueError: an argument is outside of its limits, or ``now`` is naive: a bug in the caller.
        CertificateAuthorityUnavailable: the old CA's kind or size of key is not supported.
        IssuanceRefused: ``SelfCheckFailed``.
    """
    extensions: tuple[Extension, ...] = ((_KEY_USAGE, True), (x509.BasicConstraints(ca=True, path_length=None), True))
    return NewAuthority(kind, *_self_signed(f"{_NAMES[kind]}-", identifier, extensions, like, now, lifetime))


def new_node_client_authority(
    identifier: str, *, like: CACertificate, now: datetime, lifetime: timedelta = AUTHORITY_LIFETIME
) -> NodeClientAuthority:
    """Make a node-client authority. Call it in a thread, as :func:`new_authority`.

    Its certificate says that it signs certificates of clients alone, and no CA: an extended key usage of a CA limits
    what it signs (Go, ``crypto/x509``, ``checkChainForKeyUsage``). No extension limits the users and groups.

    Args:
        identifier: 8 characters of ``a-z2-7``; the common name is ``kubernetes-node-client-<identifier>``.
        like: the cluster's CA: the key has the algorithm and size of its key.
        now: timezone-aware.
        lifetime: counted from ``now``; at least ten minutes.

    Raises:
        ValueError: as for :func:`new_authority`.
        CertificateAuthorityUnavailable: the kind or size of the cluster CA's key is not supported.
        IssuanceRefused: ``SelfCheckFailed``.
    """
    extensions: tuple[Extension, ...] = (
        (SIGNS_CERTIFICATES, True),
        (x509.BasicConstraints(ca=True, path_length=0), True),
        (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), False),
    )
    return NodeClientAuthority(*_self_signed(f"{_NODE_CLIENT_NAME}-", identifier, extensions, like, now, lifetime))


def _self_signed(
    prefix: str,
    identifier: str,
    extensions: tuple[Extension, ...],
    like: CACertificate,
    now: datetime,
    lifetime: timedelta,
) -> tuple[CACertificate, bytes, bytes]:
    """A CA certificate, its PEM, and its key's. See :func:`new_authority` for arguments and errors."""
    if not _IDENTIFIER.match(identifier):
        raise ValueError("a rotation's identifier has 8 characters of a-z2-7")
    if now.tzinfo is None:
        raise ValueError("times must be aware")
    if lifetime < MINIMUM_DURATION:
        raise ValueError(f"lifetime must be at least {MINIMUM_DURATION}")
    start = now.astimezone(UTC).replace(microsecond=0)
    key = _new_key(require_supported_public_key(like.public_key, "tls.crt"))
    name = _common_name(prefix + identifier)
    public_key = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    contents = AuthorityContents(
        issuer=name,
        subject=name,
        subject_public_key_info=public_key,
        validity=Validity(start - _BACKDATE, start + timedelta(seconds=lifetime // timedelta(seconds=1))),
        extensions=(*extensions, (x509.SubjectKeyIdentifier(derived_key_identifier(public_key)), False)),
    )
    certificate = sign_authority_certificate(contents, key)
    return certificate, der.encode_block("CERTIFICATE", certificate.der), _private_key_pem(key)


def new_service_account_key(*, like: AuthorityPublicKey) -> ServiceAccountKey:
    """Make a key pair for service account tokens, of the same algorithm and size as the old public key ``like``."""
    key = _new_key(like)
    public_key = key.public_key()
    information = public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return ServiceAccountKey(
        public_key_pem=public_key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo),
        private_key_pem=_private_key_pem(key),
        key_id=_key_id(information),
    )


def _key_id(subject_public_key_info: bytes) -> str:
    """``keyIDFromPublicKey`` of Kubernetes (``pkg/serviceaccount/jwt.go``)."""
    return base64.urlsafe_b64encode(hashlib.sha256(subject_public_key_info).digest()).rstrip(b"=").decode("ascii")


def _new_key(like: AuthorityPublicKey) -> AuthorityPrivateKey:
    if isinstance(like, rsa.RSAPublicKey):
        return rsa.generate_private_key(public_exponent=_RSA_EXPONENT, key_size=like.key_size)
    return ec.generate_private_key(like.curve)


def _private_key_pem(key: AuthorityPrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.TraditionalOpenSSL, NoEncryption())


def _common_name(text: str) -> bytes:
    """DER of a Name with a common name alone."""
    return der.sequence(der.set_of_one(der.sequence(COMMON_NAME, der.utf8_string(text))))


_KEY_USAGE: Final = x509.KeyUsage(
    digital_signature=True,
    content_commitment=False,
    key_encipherment=True,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)
"""The key usage of Cluster API's CAs."""
