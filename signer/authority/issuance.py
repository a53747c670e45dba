"""Issues a certificate according to a profile.

As in kube-controller-manager, only the fields of `IssuanceRequest` go into the certificate. Extensions that the CSR
requests are dropped, and the result is one end-entity certificate without a chain. The profile limits the fields
(:mod:`signer.authority.profiles`).

This module assembles the to-be-signed part from extension values that `cryptography` encodes, because that library's
builder refuses a common name of more than 64 characters (X.520's ub-common-name). Kubernetes has no such limit:
``system:node:`` and a Machine's name of up to 63 characters make 75. For shorter names, the result equals the builder's
byte for byte; a test compares them.
"""

from __future__ import annotations

import functools
import ipaddress
from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID

from signer.authority import der
from signer.authority.certificate_authority import CertificateAuthority, IssuingSet, KeyWithheld
from signer.authority.der import encode_block
from signer.authority.errors import IssuanceRefused, IssuanceRefusedReason
from signer.authority.lenient_certificate import CACertificate
from signer.authority.private_key import require_supported_public_key, sign, signature_algorithm, verify
from signer.authority.profiles import (
    BACKDATE,
    COMMON_NAME,
    EXTENDED_USAGES,
    ORGANIZATION,
    CertificateContents,
    CertificateProfile,
    CertificateUsage,
)

__all__ = ["IssuanceRequest", "NodePublicKey", "encode_extension", "issue", "require_issuable"]

NodePublicKey = rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey

_Reason = IssuanceRefusedReason
_MAXIMUM_SERIAL_NUMBER_BITS = 159
"""20 octets without the sign bit (RFC 5280 4.1.2.2)."""
_NODE_RSA_BITS = range(2048, 8193)
_NODE_CURVES = frozenset({"secp256r1", "secp384r1", "secp521r1"})


@dataclass(frozen=True, slots=True)
class IssuanceRequest:
    """All contents of a certificate. The same value and the same CA give the same to-be-signed bytes.

    The value includes serial number and validity: the journal fixes them before the approval, and a retry repeats them.
    The signature is the same too, if OpenSSL supports deterministic ECDSA.

    Raises:
        IssuanceRefused: the profile does not allow a field's value.
    """

    profile: CertificateProfile
    subject_common_name: str
    organization: str
    """Empty for none."""
    public_key: NodePublicKey
    dns_names: tuple[str, ...]
    ip_addresses: tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, ...]
    usages: frozenset[CertificateUsage]
    serial_number: int
    not_before: datetime
    """UTC, whole seconds."""
    not_after: datetime
    """UTC, whole seconds."""

    def __post_init__(self) -> None:
        self._check_public_key()
        if not 0 < self.serial_number < 1 << _MAXIMUM_SERIAL_NUMBER_BITS:
            raise IssuanceRefused(_Reason.SERIAL_NUMBER_INVALID, "the serial number must be positive, in 20 octets")
        for moment in (self.not_before, self.not_after):
            if moment.utcoffset() != timedelta(0) or moment.microsecond:
                raise IssuanceRefused(_Reason.VALIDITY_INVALID, "the validity must be in UTC and in whole seconds")
        self.profile.require(
            CertificateContents(
                organization=self.organization,
                common_name=self.subject_common_name,
                usages=self.usages,
                dns_names=self.dns_names,
                ip_addresses=self.ip_addresses,
                not_before=self.not_before,
                not_after=self.not_after,
            )
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


def issue(authority: IssuingSet, request: IssuanceRequest) -> bytes:
    """Sign a certificate with the CA for the profile's purpose. Returns PEM, one CERTIFICATE block.

    It takes CPU only. If that CA ``is_slow_to_sign``, call it in a thread: signing releases the GIL. Before it returns,
    it reads the certificate back, enforces the profile again, and verifies the signature with the public key in the CA
    certificate: a faulty RSA signature must not be published, since it can reveal the private key.

    Raises:
        IssuanceRefused: ``OutsideAuthorityValidity``, ``UsageNotPermittedByAuthority``, ``KeyWithheld`` or
            ``SelfCheckFailed``.
    """
    require_issuable(authority, request)
    signing = authority.signer_of(request.profile.purpose)
    private_key = signing.private_key
    if isinstance(private_key, KeyWithheld):
        raise IssuanceRefused(_Reason.KEY_WITHHELD, "the CA was loaded without its private key")
    extensions = _extensions(signing, request)
    tbs = _tbs_certificate(signing, signature_algorithm(private_key), request, extensions)
    signature = sign(private_key, tbs)
    certificate = der.sequence(tbs, signature_algorithm(private_key), der.bit_string(signature))
    _self_check(signing, request, extensions, tbs, certificate)
    return encode_block("CERTIFICATE", certificate)


def require_issuable(authority: IssuingSet, request: IssuanceRequest) -> None:
    """The cluster's CA may sign such a certificate. `issue` checks the same.

    Raises:
        IssuanceRefused: ``OutsideAuthorityValidity`` or ``UsageNotPermittedByAuthority``.
    """
    certificate = authority.signer_of(request.profile.purpose).certificate
    if request.not_before < certificate.not_before - BACKDATE or request.not_after > certificate.not_after:
        raise IssuanceRefused(
            _Reason.OUTSIDE_AUTHORITY_VALIDITY,
            f"the planned validity does not fit the CA in tls.crt, valid from {certificate.not_before.isoformat()} to "
            f"{certificate.not_after.isoformat()}; plan it again",
        )
    permitted = certificate.extended_key_usage
    if permitted is None or ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE in permitted:
        return
    for usage in request.usages & EXTENDED_USAGES.keys():
        if EXTENDED_USAGES[usage] not in permitted:
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
"""In the certificate's order."""


def _extensions(signing: CertificateAuthority, request: IssuanceRequest) -> _Extensions:
    extensions = (*_usage_extensions(request.usages), _authority_key_identifier(signing.certificate))
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in request.dns_names]
    names += [x509.IPAddress(address) for address in request.ip_addresses]
    if names:
        return (*extensions, _Extension.of(x509.SubjectAlternativeName(names), critical=False))
    return extensions


# Common extensions are encoded once: the encoding takes an eighth of the time of issuing without the signature.
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
    purposes = [identifier for usage, identifier in EXTENDED_USAGES.items() if usage in usages]
    return (
        _Extension.of(x509.BasicConstraints(ca=False, path_length=None), critical=True),
        _Extension.of(key_usage, critical=True),
        _Extension.of(x509.ExtendedKeyUsage(purposes), critical=False),
    )


@functools.lru_cache(maxsize=1024)
def _authority_key_identifier(certificate: CACertificate) -> _Extension:
    """A copy of the CA's subject key identifier, which is SHA-1 or truncated SHA-256 by the version of Go.

    For a CA without one, it is the identifier that RFC 5280 4.2.1.2 (1) derives from the public key.
    """
    identifier = certificate.subject_key_identifier
    if identifier is None:
        public_key = require_supported_public_key(certificate.public_key, "tls.crt")
        return _Extension.of(x509.AuthorityKeyIdentifier.from_issuer_public_key(public_key), critical=False)
    value = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)
    return _Extension.of(value, critical=False)


_VERSION_3 = der.context_constructed(0, der.integer(2))
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
            *([_attribute(ORGANIZATION, request.organization)] if request.organization else []),
            _attribute(COMMON_NAME, request.subject_common_name),
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
    """Read the new certificate back with the library, compare it with the request, and enforce the profile on it.

    The issuer's name is not compared: it is a copy, and the library warns about long names.
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
        raise IssuanceRefused(_Reason.SELF_CHECK_FAILED, "the new certificate differs from the request")
    try:
        request.profile.require_certificate(issued)
    except (IssuanceRefused, ValueError) as error:
        raise IssuanceRefused(
            _Reason.SELF_CHECK_FAILED, f"profile {request.profile.name} does not allow the new certificate: {error}"
        ) from None
