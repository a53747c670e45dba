"""Certificates and Secrets for the tests of the certificate authority, and OpenSSL as a second opinion."""

from __future__ import annotations

import subprocess
import warnings
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from signer.authority import (
    KUBELET_CLIENT,
    KUBELET_SERVING,
    CertificateAuthorityUnavailable,
    CertificateAuthorityUnavailableReason,
    CertificateUsage,
    IssuanceRequest,
    IssuingSet,
    load_certificate_authority,
)
from signer.authority.der import Tag, integer, read_elements, read_single, sequence
from signer.testing.certificates import new_cluster_certificate_authority

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
CLIENT = frozenset({CertificateUsage.DIGITAL_SIGNATURE, CertificateUsage.CLIENT_AUTH})
SERVING = frozenset({CertificateUsage.DIGITAL_SIGNATURE, CertificateUsage.SERVER_AUTH})
IssuerKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


def rsa_key(bits: int = 2048, *, number: int = 0) -> rsa.RSAPrivateKey:
    """One key per size and number; making one is slow."""
    return _rsa_key(bits, number)


def ec_key(number: int = 0) -> ec.EllipticCurvePrivateKey:
    """One P-256 key per number."""
    return _ec_key(number)


@cache
def _rsa_key(bits: int, number: int) -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=bits)


@cache
def _ec_key(number: int) -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def pem_key(key: Any, form: PrivateFormat = PrivateFormat.PKCS8) -> bytes:
    return key.private_bytes(Encoding.PEM, form, NoEncryption())  # type: ignore[no-any-return]


@dataclass(frozen=True)
class Made:
    """A CA that a test made, able to sign others."""

    certificate: x509.Certificate
    key: Any

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    def secret(self, *further: Made) -> dict[str, bytes]:
        return {"tls.crt": self.pem + b"".join(ca.pem for ca in further), "tls.key": pem_key(self.key)}


def key_usage(*, key_cert_sign: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=key_cert_sign,
        crl_sign=False,
        encipher_only=False,
        decipher_only=False,
    )


def make(
    name: str,
    key: IssuerKey,
    issuer: Made | None = None,
    *,
    ca: bool | None = True,
    path_length: int | None = None,
    usage: x509.KeyUsage | None = None,
    extra: tuple[tuple[x509.ExtensionType, bool], ...] = (),
    not_before: datetime = NOW - timedelta(days=1),
    not_after: datetime = NOW + timedelta(days=3650),
) -> Made:
    """A certificate by the library's own builder; self-signed without an issuer."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    signing_key = key if issuer is None else issuer.key
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject if issuer is None else issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(not_before)
        .not_valid_after(not_after)
    )
    if ca is not None:
        builder = builder.add_extension(x509.BasicConstraints(ca=ca, path_length=path_length), critical=True)
    if usage is not None:
        builder = builder.add_extension(usage, critical=True)
    for value, critical in extra:
        builder = builder.add_extension(value, critical=critical)
    algorithm = None if isinstance(signing_key, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    return Made(builder.sign(signing_key, algorithm), key)


def with_serial_number(made: Made, serial_number: int, signing_key: ec.EllipticCurvePrivateKey) -> bytes:
    """DER of the same certificate with another serial number, signed anew with a P-256 key."""
    tbs, algorithm, _ = read_elements(read_single(made.certificate.public_bytes(Encoding.DER), Tag.SEQUENCE).content)
    fields = [element.encoded for element in read_elements(tbs.content)]
    fields[1] = integer(serial_number)
    patched = sequence(*fields)
    signature = signing_key.sign(patched, ec.ECDSA(hashes.SHA256()))
    return sequence(patched, algorithm.encoded, b"\x03" + bytes((len(signature) + 1, 0)) + signature)


def capi_secret(number: int = 0, **options: Any) -> dict[str, bytes]:
    """A Cluster API CA on a cheap key."""
    options = {"key": ec_key(number), "now": NOW, **options}
    return new_cluster_certificate_authority(**options).secret_data


def authority(secret: dict[str, bytes] | None = None) -> IssuingSet:
    return IssuingSet.of(load_certificate_authority(secret or capi_secret(), now=NOW))


def request(**changes: Any) -> IssuanceRequest:
    """A kubelet's; by the serving profile where the usages are exactly a server's."""
    usages = changes.get("usages", CLIENT) - {CertificateUsage.KEY_ENCIPHERMENT}
    fields: dict[str, Any] = {
        "profile": KUBELET_SERVING if usages == SERVING else KUBELET_CLIENT,
        "subject_common_name": "system:node:worker-1",
        "organization": "system:nodes",
        "public_key": ec_key(100).public_key(),
        "dns_names": (),
        "ip_addresses": (),
        "usages": CLIENT,
        "serial_number": 0x6A5B_4C3D_2E1F_0011_2233_4455_6677_8899,
        "not_before": NOW - timedelta(minutes=5),
        "not_after": NOW + timedelta(days=7),
    }
    return IssuanceRequest(**{**fields, **changes})


def unavailable(
    secret: dict[str, bytes], reason: CertificateAuthorityUnavailableReason, *, now: datetime = NOW
) -> CertificateAuthorityUnavailable:
    """Load a Secret that must be refused for this reason."""
    with pytest.raises(CertificateAuthorityUnavailable) as caught:
        load_certificate_authority(secret, now=now)
    assert caught.value.reason is reason, caught.value
    return caught.value


def announced_release(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `cryptography` refuse serial numbers below one, as its warning announces for a coming release."""
    today = x509.load_der_x509_certificate

    def load_der(data: bytes, backend: object = None) -> x509.Certificate:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            certificate = today(data)
            if certificate.serial_number <= 0:
                raise ValueError("Parsed a serial number which wasn't positive")
        return certificate

    def load_pem(data: bytes, backend: object = None) -> x509.Certificate:
        raise AssertionError("certificates are loaded from DER here")

    monkeypatch.setattr(x509, "load_der_x509_certificate", load_der)
    monkeypatch.setattr(x509, "load_pem_x509_certificate", load_pem)
    monkeypatch.setattr(x509, "load_pem_x509_certificates", load_pem)


def openssl(*arguments: str) -> str:
    """Run OpenSSL; its exit code must be 0."""
    finished = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def openssl_verify(folder: Path, ca: bytes, certificate: bytes, purpose: str, *, at: datetime = NOW) -> None:
    """Have OpenSSL verify a chain of one."""
    (folder / "ca.pem").write_bytes(ca)
    (folder / "leaf.pem").write_bytes(certificate)
    openssl(
        *("verify", "-x509_strict", "-attime", str(int(at.timestamp())), "-purpose", purpose),
        *("-CAfile", str(folder / "ca.pem"), str(folder / "leaf.pem")),
    )
