"""The parts of a tenant's kubeconfig that OpenSSL never gets, and that every honest one works."""

from __future__ import annotations

import ssl
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from signer.authority import der
from signer.authority.der import encode_block
from signer.kube.client_credential import CredentialUnusable, certificates_in, private_key_in
from signer.kube.connection import ClusterConnection
from signer.kube.tls import TlsMaterialRefused, client_context
from tests.unit.signer.authority.support import rsa_key
from tests.unit.signer.kube.support import Authority, Pair

ELLIPTIC = ec.generate_private_key(ec.SECP256R1())
PARAMETERS = encode_block("EC PARAMETERS", der.object_identifier("1.2.840.10045.3.1.7"))


def pem(key: Any, form: PrivateFormat = PrivateFormat.PKCS8, password: bytes | None = None) -> bytes:
    encryption = NoEncryption() if password is None else BestAvailableEncryption(password)
    return key.private_bytes(Encoding.PEM, form, encryption)  # type: ignore[no-any-return]


def pkcs8(algorithm: bytes, key: bytes) -> bytes:
    return encode_block("PRIVATE KEY", der.sequence(der.integer(0), algorithm, der.octet_string(key)))


def domain(identifier: str, *numbers: int) -> bytes:
    return der.sequence(der.object_identifier(identifier), der.sequence(*map(der.integer, numbers)))


def many_iterations() -> bytes:
    """PBES2 (RFC 8018) with two thousand million iterations."""
    function = der.sequence(
        der.object_identifier("1.2.840.113549.1.5.12"), der.sequence(der.octet_string(bytes(8)), der.integer(2**31 - 1))
    )
    cipher = der.sequence(der.object_identifier("2.16.840.1.101.3.4.1.42"), der.octet_string(bytes(16)))
    scheme = der.sequence(der.object_identifier("1.2.840.113549.1.5.13"), der.sequence(function, cipher))
    return encode_block("ENCRYPTED PRIVATE KEY", der.sequence(scheme, der.octet_string(bytes(144))))


ODD = (1 << 90_000) - 3
TAKES_MINUTES = {
    "DSA": pkcs8(domain("1.2.840.10040.4.1", ODD, ODD - 2, 2), der.integer(ODD - 6)),
    "X9.42": pkcs8(domain("1.2.840.10046.2.1", (1 << 9900) - 3, 2, 3), der.integer((1 << 9900) - 7)),
    "PKCS#3": pkcs8(domain("1.2.840.113549.1.3.1", (1 << 9900) - 3, 2), der.integer((1 << 9900) - 7)),
    "iterations": many_iterations(),
}


@pytest.fixture
def _unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    def seen(*_: object, **__: object) -> None:
        raise AssertionError("OpenSSL was shown it")

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", seen)


@pytest.mark.usefixtures("_unseen")
@pytest.mark.parametrize("key", TAKES_MINUTES.values(), ids=TAKES_MINUTES.keys())
def test_a_key_that_takes_minutes_to_load_is_not_loaded(authority: Authority, client_pair: Pair, key: bytes) -> None:
    for certificate, shown in ((client_pair.certificate, key), (client_pair.certificate + key, b"")):
        with pytest.raises(TlsMaterialRefused, match="cannot be used"):
            client_context(ClusterConnection("https://c1.example", authority.certificate, None, certificate, shown))


def test_text_beside_certificates_is_left_out(authority: Authority, client_pair: Pair) -> None:
    beside = client_pair.certificate + TAKES_MINUTES["iterations"] + authority.certificate + b"# the end\n"
    assert certificates_in(beside) == client_pair.certificate + authority.certificate


@pytest.mark.parametrize(
    "key",
    [
        pem(ELLIPTIC),
        pem(ELLIPTIC, PrivateFormat.TraditionalOpenSSL),
        pem(ec.generate_private_key(ec.SECP384R1())),
        pem(rsa_key()),
        pem(rsa_key(), PrivateFormat.TraditionalOpenSSL),
        pem(ed25519.Ed25519PrivateKey.generate()),
        PARAMETERS + pem(ELLIPTIC, PrivateFormat.TraditionalOpenSSL),
        b"Bag Attributes\n" + pem(ELLIPTIC).replace(b"\n", b"\r\n") + b"behind",
        pem(ELLIPTIC) + TAKES_MINUTES["iterations"],
    ],
)
def test_keys_that_client_go_accepts(key: bytes) -> None:
    found = load_pem_private_key(private_key_in(key), None)
    assert isinstance(found, ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | ed25519.Ed25519PrivateKey)
    if isinstance(found, ec.EllipticCurvePrivateKey) and found.curve.key_size == 256:
        assert found.private_numbers() == ELLIPTIC.private_numbers()


@pytest.mark.parametrize(
    "key",
    [
        b"",
        PARAMETERS,
        pem(ELLIPTIC, password=b"x"),
        pem(ELLIPTIC, PrivateFormat.TraditionalOpenSSL, b"x"),
        pem(rsa_key(1024)),
        pem(ec.generate_private_key(ec.SECP256K1())),
        b"-----BEGIN PRIVATE KEY-----\nA\n-----END PRIVATE KEY-----\n",
        pem(ed25519.Ed25519PrivateKey.generate()).replace(b"MC4C", b"MC8C"),
    ],
)
def test_keys_of_unsupported_kinds(key: bytes) -> None:
    with pytest.raises(CredentialUnusable):
        private_key_in(key)


@pytest.mark.parametrize(
    "text", [b"", PARAMETERS, b"-----BEGIN CERTIFICATE-----\nA\n-----END CERTIFICATE-----\n", b"\xff"]
)
def test_no_certificates(text: bytes) -> None:
    with pytest.raises(CredentialUnusable):
        certificates_in(text)
