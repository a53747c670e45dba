"""The certificate of the webhook: an authority of its own, whose key nobody keeps, and one certificate by it.

A Secret in the controller's namespace holds it, because all replicas serve with it. A new pair has a new authority. The
former one stays in the bundle that API servers trust, for replicas that have not read the Secret again.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from signer.kube.client import JsonObject
from signer.model.fields import mapping_of, text_of

SECRET_NAME: Final = "node-access-webhook"  # noqa: S105 - a name
LIFETIME: Final = timedelta(days=365)
RENEWED_BEFORE: Final = timedelta(days=120)
_BACKDATED: Final = timedelta(hours=1)
_MAXIMUM_BYTES: Final = 64 * 1024
_AUTHORITIES, _CERTIFICATE, _KEY = "ca.crt", "tls.crt", "tls.key"
_COMMON_NAME: Final = "node-access-webhook"


@dataclass(frozen=True, slots=True)
class WebhookPair:
    """What replicas serve with, and what API servers trust."""

    authorities: bytes
    """PEM: the authority of ``certificate`` first, then the former one."""
    certificate: bytes
    """PEM."""
    key: bytes = field(repr=False)
    """PEM, PKCS #8."""


class UnusablePair(ValueError):
    """The Secret holds no pair that can be served now."""


def service_names(service: str, namespace: str) -> tuple[str, ...]:
    """The DNS names under which API servers know a Service; they verify the second."""
    return (f"{service}.{namespace}", f"{service}.{namespace}.svc", f"{service}.{namespace}.svc.cluster.local")


def make_pair(names: tuple[str, ...], now: datetime, former_authorities: bytes = b"") -> WebhookPair:
    """A new authority, and a certificate for these names."""
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority_name = _name(f"{_COMMON_NAME}-authority")
    authority = (
        _builder(authority_name, authority_name, authority_key.public_key(), now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    certificate = (
        _builder(_name(_COMMON_NAME), authority_name, key.public_key(), now)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    former = x509.load_pem_x509_certificates(former_authorities)[:1] if former_authorities else []
    return WebhookPair(
        b"".join(one.public_bytes(Encoding.PEM) for one in (authority, *former)),
        certificate.public_bytes(Encoding.PEM),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()),
    )


def pair_manifest(pair: WebhookPair, namespace: str) -> JsonObject:
    """The Secret with a pair."""
    data = {_AUTHORITIES: pair.authorities, _CERTIFICATE: pair.certificate, _KEY: pair.key}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET_NAME, "namespace": namespace},
        "type": "kubernetes.io/tls",
        "data": {name: base64.b64encode(value).decode("ascii") for name, value in data.items()},
    }


def parse_pair(secret: Mapping[str, Any], names: tuple[str, ...], now: datetime) -> WebhookPair:
    """The pair in a Secret, if it is for these names and need not be renewed.

    Raises:
        UnusablePair: it is not, or the Secret holds none.
    """
    pair = _stored(secret)
    try:
        authority = x509.load_pem_x509_certificates(pair.authorities)[0]
        certificate = x509.load_pem_x509_certificate(pair.certificate)
        key = load_pem_private_key(pair.key, None)
        certificate.verify_directly_issued_by(authority)
        of_names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        stated = set(of_names.get_values_for_type(x509.DNSName))
    except (ValueError, TypeError, IndexError, InvalidSignature, UnsupportedAlgorithm, x509.ExtensionNotFound) as error:
        raise UnusablePair(f"Secret {SECRET_NAME} holds no pair") from error
    if certificate.public_key() != key.public_key() or stated != set(names):
        raise UnusablePair(f"Secret {SECRET_NAME} holds a pair for something else")
    if not certificate.not_valid_before_utc <= now < certificate.not_valid_after_utc - RENEWED_BEFORE:
        raise UnusablePair(f"Secret {SECRET_NAME} holds a pair that ends soon")
    return pair


def former_authorities(secret: Mapping[str, Any]) -> bytes:
    """The authorities in a Secret, for the bundle of the next pair; empty if there are none that can be read."""
    try:
        found = _stored(secret).authorities
        x509.load_pem_x509_certificates(found)
    except ValueError:
        return b""
    return found


def _stored(secret: Mapping[str, Any]) -> WebhookPair:
    data = mapping_of(secret, "data")
    try:
        found = [base64.b64decode(text_of(data, name), validate=True) for name in (_AUTHORITIES, _CERTIFICATE, _KEY)]
    except (binascii.Error, ValueError) as error:
        raise UnusablePair(f"Secret {SECRET_NAME} holds no pair") from error
    if any(len(one) > _MAXIMUM_BYTES for one in found):
        raise UnusablePair(f"Secret {SECRET_NAME} is too large")
    return WebhookPair(*found)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + LIFETIME)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
