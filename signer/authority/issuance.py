"""Issue a kubelet certificate.

The signer's policy is kube-controller-manager's: only the fields of `IssuanceRequest` go in, whatever extensions the
CSR asked for are dropped, and the result is one end-entity certificate without a chain.

The to-be-signed part is assembled here, from extension values that `cryptography` encodes, because its builder refuses
a common name of more than 64 characters (X.520's ub-common-name). Kubernetes has no such limit: ``system:node:`` and a
Machine's name of up to 63 characters make 75. For any shorter name the result is byte for byte what the builder makes,
which a test compares.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID

from signer.authority import der
from signer.authority.certificate_authority import Authority, CertificateAuthority, KeyWithheld
from signer.authority.duration import BACKDATE
from signer.authority.errors import IssuanceRefused, IssuanceRefusedReason
from signer.authority.lenient_certificate import CACertificate
from signer.authority.pem import encode_block
from signer.authority.private_key import require_supported_public_key, sign, signature_algorithm, verify

__all__ = ["CertificateUsage", "IssuanceRequest", "NodePublicKey", "encode_extension", "issue", "require_issuable"]

NodePublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey

_Reason = IssuanceRefusedReason
_NODES_GROUP: Final = "system:nodes"
_NODE_USER_PREFIX: Final = "system:node:"
_DNS_NAME = re.compile(
    r"(?=.{1,253}\Z)[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*\Z"
)
_NODE_NAME = re.compile(r"(?=.{1,253}\Z)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?(?:\.[a-z0-9](?:[a-z0-9-]*[a-z0-9])?)*\Z")
"""Kubernetes' DNS-1123 subdomain, which does not bound a label."""
_MAXIMUM_ALTERNATIVE_NAMES = 64
_MAXIMUM_SERIAL_NUMBER_BITS = 159
"""20 octets with the sign bit clear (RFC 5280 4.1.2.2)."""
_NODE_RSA_BITS = range(2048, 8193)
_NODE_CURVES = frozenset({"secp256r1", "secp384r1", "secp521r1"})


class CertificateUsage(StrEnum):
    """``spec.usages`` of a CSR (``k8s.io/api/certificates/v1`` KeyUsage), as far as kubelet certificates have them."""

    DIGITAL_SIGNATURE = "digital signature"
    KEY_ENCIPHERMENT = "key encipherment"
    CLIENT_AUTH = "client auth"
    SERVER_AUTH = "server auth"


_EXTENDED = {
    CertificateUsage.CLIENT_AUTH: ExtendedKeyUsageOID.CLIENT_AUTH,
    CertificateUsage.SERVER_AUTH: ExtendedKeyUsageOID.SERVER_AUTH,
}


@dataclass(frozen=True, slots=True)
class IssuanceRequest:
    """Everything that goes into a certificate. The same value and the same CA give the same to-be-signed bytes.

    Serial number and validity are part of it, so that the journal can fix them before approval and a retry repeats
    them. The signature is the same too, wherever OpenSSL can sign ECDSA deterministically.

    Raises:
        IssuanceRefused: a field is not what a kubelet certificate may have.
    """

    subject_common_name: str
    """``system:node:<node name>``."""
    organization: str
    """``system:nodes``."""
    public_key: NodePublicKey
    dns_names: tuple[str, ...]
    ip_addresses: tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, ...]
    usages: frozenset[CertificateUsage]
    """Digital signature, exactly one of client auth and server auth, and key encipherment if the CSR has it."""
    serial_number: int
    not_before: datetime
    """UTC, whole seconds."""
    not_after: datetime
    """UTC, whole seconds."""

    def __post_init__(self) -> None:
        self._check_subject()
        self._check_public_key()
        self._check_usages()
        self._check_alternative_names()
        if not 0 < self.serial_number < 1 << _MAXIMUM_SERIAL_NUMBER_BITS:
            raise IssuanceRefused(_Reason.SERIAL_NUMBER_INVALID, "the serial number must be positive, in 20 octets")
        for moment in (self.not_before, self.not_after):
            if moment.utcoffset() != timedelta(0) or moment.microsecond:
                raise IssuanceRefused(_Reason.VALIDITY_INVALID, "the validity must be in UTC and in whole seconds")
        if self.not_before >= self.not_after:
            raise IssuanceRefused(_Reason.VALIDITY_INVALID, "the validity ends before it begins")

    def _check_subject(self) -> None:
        before, prefix, name = self.subject_common_name.partition(_NODE_USER_PREFIX)
        if self.organization != _NODES_GROUP or before or not prefix or not _NODE_NAME.match(name):
            raise IssuanceRefused(
                _Reason.SUBJECT_INVALID, f"the subject must be O={_NODES_GROUP}, CN={_NODE_USER_PREFIX}<node name>"
            )

    def _check_public_key(self) -> None:
        key = self.public_key
        if isinstance(key, rsa.RSAPublicKey):
            supported = key.key_size in _NODE_RSA_BITS
        elif isinstance(key, ec.EllipticCurvePublicKey):
            supported = key.curve.name in _NODE_CURVES
        else:
            supported = isinstance(key, ed25519.Ed25519PublicKey)
        if not supported:
            raise IssuanceRefused(
                _Reason.PUBLIC_KEY_UNSUPPORTED,
                "the requested key must be RSA with 2048 to 8192 bits, ECDSA on P-256, P-384 or P-521, or Ed25519",
            )

    def _check_usages(self) -> None:
        purposes = self.usages & _EXTENDED.keys()
        if CertificateUsage.DIGITAL_SIGNATURE not in self.usages or len(purposes) != 1:
            raise IssuanceRefused(
                _Reason.USAGES_INVALID, "usages must hold digital signature and one of client auth and server auth"
            )

    def _check_alternative_names(self) -> None:
        count = len(self.dns_names) + len(self.ip_addresses)
        if CertificateUsage.CLIENT_AUTH in self.usages:
            problem = "a client certificate has none" if count else None
        elif not 1 <= count <= _MAXIMUM_ALTERNATIVE_NAMES:
            problem = f"a serving certificate has 1 to {_MAXIMUM_ALTERNATIVE_NAMES}"
        elif not all(_DNS_NAME.match(name) for name in self.dns_names):
            problem = "one is not a host name"
        elif any(getattr(address, "scope_id", None) is not None for address in self.ip_addresses):
            problem = "an address has a zone"
        else:
            problem = None
        if problem is not None:
            raise IssuanceRefused(
                _Reason.SUBJECT_ALTERNATIVE_NAMES_INVALID, f"subject alternative names are wrong: {problem}"
            )


def issue(authority: Authority, request: IssuanceRequest) -> bytes:
    """Sign a certificate with the cluster's signing CA; PEM, one CERTIFICATE block.

    CPU only, no clock and no network. Where ``authority.is_slow_to_sign``, call it in a thread: signing releases the
    GIL. What is returned has been read back and its signature verified with the public key in the CA certificate; a
    faulty RSA computation must not get out, since it can give the private key away.

    Raises:
        IssuanceRefused: ``OutsideAuthorityValidity``, ``UsageNotPermittedByAuthority``, ``KeyWithheld`` or
            ``SelfCheckFailed``.
    """
    require_issuable(authority, request)
    signing = authority.signing
    private_key = signing.private_key
    if isinstance(private_key, KeyWithheld):
        raise IssuanceRefused(_Reason.KEY_WITHHELD, "the CA's private key is not here; nothing can be signed")
    extensions = _extensions(signing, request)
    tbs = _tbs_certificate(signing, signature_algorithm(private_key), request, extensions)
    signature = sign(private_key, tbs)
    certificate = der.sequence(tbs, signature_algorithm(private_key), der.bit_string(signature))
    _self_check(signing, request, extensions, tbs, certificate)
    return encode_block("CERTIFICATE", certificate)


def require_issuable(authority: Authority, request: IssuanceRequest) -> None:
    """The cluster's CA may sign such a certificate; for `issue`, and for who only wants to know.

    Raises:
        IssuanceRefused: ``OutsideAuthorityValidity`` or ``UsageNotPermittedByAuthority``.
    """
    certificate = authority.signing.certificate
    if request.not_before < certificate.not_before - BACKDATE or request.not_after > certificate.not_after:
        raise IssuanceRefused(
            _Reason.OUTSIDE_AUTHORITY_VALIDITY,
            f"the planned validity does not fit the CA in tls.crt, valid from {certificate.not_before.isoformat()} to "
            f"{certificate.not_after.isoformat()}; plan it afresh",
        )
    permitted = certificate.extended_key_usage
    if permitted is None or ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in permitted:
        return
    for usage in request.usages & _EXTENDED.keys():
        if _EXTENDED[usage] not in permitted:
            raise IssuanceRefused(
                _Reason.USAGE_NOT_PERMITTED_BY_AUTHORITY,
                f"the CA certificate in tls.crt has an extended key usage without {usage.value}; no API server would "
                "accept the certificate (use a CA without that restriction)",
            )


@dataclass(frozen=True, slots=True)
class _Extension:
    value: x509.ExtensionType
    critical: bool
    encoded: bytes

    @classmethod
    def of(cls, value: x509.ExtensionType, *, critical: bool) -> _Extension:
        return cls(value, critical, encode_extension(value, critical))


_Extensions = tuple[_Extension, ...]
"""In the order of the certificate."""


def _extensions(signing: CertificateAuthority, request: IssuanceRequest) -> _Extensions:
    extensions = (*_usage_extensions(request.usages), _authority_key_identifier(signing.certificate))
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in request.dns_names]
    names += [x509.IPAddress(address) for address in request.ip_addresses]
    if names:
        return (*extensions, _Extension.of(x509.SubjectAlternativeName(names), critical=False))
    return extensions


# What certificates have in common is encoded once: it took an eighth of what issuing takes besides the signature.
@functools.lru_cache(maxsize=16)
def _usage_extensions(usages: frozenset[CertificateUsage]) -> _Extensions:
    key_usage = x509.KeyUsage(
        digital_signature=CertificateUsage.DIGITAL_SIGNATURE in usages,
        content_commitment=False,
        key_encipherment=CertificateUsage.KEY_ENCIPHERMENT in usages,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=False,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )
    purposes = [identifier for usage, identifier in _EXTENDED.items() if usage in usages]
    return (
        _Extension.of(x509.BasicConstraints(ca=False, path_length=None), critical=True),
        _Extension.of(key_usage, critical=True),
        _Extension.of(x509.ExtendedKeyUsage(purposes), critical=False),
    )


@functools.lru_cache(maxsize=1024)
def _authority_key_identifier(certificate: CACertificate) -> _Extension:
    """Copied from the CA's subject key identifier: SHA-1 or truncated SHA-256 of its key, by the Go that made it.

    A CA without one gets the identifier that RFC 5280 4.2.1.2 (1) derives from its public key.
    """
    identifier = certificate.subject_key_identifier
    if identifier is None:
        public_key = require_supported_public_key(certificate.public_key, "tls.crt")
        return _Extension.of(x509.AuthorityKeyIdentifier.from_issuer_public_key(public_key), critical=False)
    value = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)
    return _Extension.of(value, critical=False)


_VERSION_3 = der.context_constructed(0, der.integer(2))
_COMMON_NAME = der.object_identifier("2.5.4.3")
_ORGANIZATION = der.object_identifier("2.5.4.10")
_TRUE = der.encode(der.Tag.BOOLEAN, b"\xff")


def _tbs_certificate(
    signing: CertificateAuthority, algorithm: bytes, request: IssuanceRequest, extensions: _Extensions
) -> bytes:
    """TBSCertificate (RFC 5280 4.1)."""
    return der.sequence(
        _VERSION_3,
        der.integer(request.serial_number),
        algorithm,
        signing.certificate.subject,
        der.sequence(der.time(request.not_before), der.time(request.not_after)),
        der.sequence(
            _attribute(_ORGANIZATION, request.organization),
            _attribute(_COMMON_NAME, request.subject_common_name),
        ),
        request.public_key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        der.context_constructed(3, der.sequence(*(extension.encoded for extension in extensions))),
    )


def _attribute(identifier: bytes, text: str) -> bytes:
    return der.set_of_one(der.sequence(identifier, der.utf8_string(text)))


def encode_extension(value: x509.ExtensionType, critical: bool) -> bytes:
    """Extension (RFC 5280 4.1)."""
    identifier = der.object_identifier(value.oid.dotted_string)
    return der.sequence(identifier, *([_TRUE] if critical else []), der.octet_string(value.public_bytes()))


def _self_check(
    signing: CertificateAuthority, request: IssuanceRequest, extensions: _Extensions, tbs: bytes, certificate: bytes
) -> None:
    """Read the new certificate back with the library and compare.

    Not the two names: the library complains of long ones. The issuer's is a copy, the subject's two attributes differ
    between certificates in their text alone.
    """
    try:
        issued = x509.load_der_x509_certificate(certificate)
        to_be_signed = issued.tbs_certificate_bytes
        public_key = require_supported_public_key(signing.certificate.public_key, "tls.crt")
        verify(public_key, issued.signature, to_be_signed)
        as_requested = (
            issued.version is x509.Version.v3
            and to_be_signed == tbs
            and issued.serial_number == request.serial_number
            and issued.not_valid_before_utc == request.not_before
            and issued.not_valid_after_utc == request.not_after
            and issued.public_key() == request.public_key
            and [(extension.value, extension.critical) for extension in issued.extensions]
            == [(extension.value, extension.critical) for extension in extensions]
        )
    except InvalidSignature:
        raise IssuanceRefused(
            _Reason.SELF_CHECK_FAILED, "the new certificate's signature does not verify with the CA's public key"
        ) from None
    except (ValueError, TypeError, UserWarning):
        raise IssuanceRefused(_Reason.SELF_CHECK_FAILED, "the new certificate cannot be read back") from None
    if not as_requested:
        raise IssuanceRefused(_Reason.SELF_CHECK_FAILED, "the new certificate is not what was asked for")
