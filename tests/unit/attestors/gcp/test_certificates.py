"""Google's certificates, and signatures."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.types import CertificatePublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from attestors.gcp.certificates import (
    MAXIMUM_CERTIFICATES_BYTES,
    CertificatesUnreadable,
    InvalidSignature,
    parse_certificates,
)
from attestors.gcp.token import parse_token
from tests.support.fake_google import SigningKey
from tests.support.fake_google.signing import base64url
from tests.unit.attestors.gcp.support import KEY, NOW, OTHER_KEY, claims, token
from tests.unit.attestors.tpm.support import FIXTURES
from tests.unit.authenticator.model.test_chain import of_version_5

PUBLISHED = {KEY.key_id: KEY.certificate_pem, OTHER_KEY.key_id: OTHER_KEY.certificate_pem}


def body(document: object) -> bytes:
    return json.dumps(document).encode()


def certificate(key: CertificatePublicKeyTypes) -> str:
    """Of that public key; who signed it does not matter."""
    name = x509.Name([])
    builder = x509.CertificateBuilder(name, name, key, 1, NOW, NOW + timedelta(days=1))
    return builder.sign(KEY.key, hashes.SHA256()).public_bytes(Encoding.PEM).decode()


def fixture(name: str) -> rsa.RSAPrivateKey:
    key = load_pem_private_key((FIXTURES / "keys" / f"{name}.pem").read_bytes(), None)
    assert isinstance(key, rsa.RSAPrivateKey)
    return key


def test_what_google_publishes() -> None:
    keys = parse_certificates(body(PUBLISHED))
    assert set(keys) == set(PUBLISHED)
    key = keys[KEY.key_id]
    assert key.verify(parse_token(token())).claims == parse_token(token()).claims
    assert key.not_before < NOW < key.not_after


def test_larger_keys_are_taken() -> None:
    assert set(parse_certificates(body({"large": certificate(fixture("rsa-4096").public_key())}))) == {"large"}


@pytest.mark.parametrize(
    "pem",
    [
        certificate(ec.generate_private_key(ec.SECP256R1()).public_key()),
        certificate(ed25519.Ed25519PrivateKey.generate().public_key()),
        certificate(fixture("rsa-1024").public_key()),
        certificate(fixture("rsa-2047").public_key()),
        certificate(rsa.RSAPublicNumbers(65537, 2**8192 + 1).public_key()),
        certificate(fixture("rsa-2048-exponent-3").public_key()),
    ],
    ids=["elliptic", "Edwards curve", "1024 bits", "2047 bits", "8193 bits", "exponent 3"],
)
def test_keys_that_no_token_needs_are_left_out(pem: str) -> None:
    assert set(parse_certificates(body({"other": pem, **PUBLISHED}))) == set(PUBLISHED)
    with pytest.raises(CertificatesUnreadable, match="no RSA key"):
        parse_certificates(body({"other": pem}))


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"", "not JSON"),
        (b"<html>", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"[" * 60_000, "more than 512 objects and lists"),
        (body({}), "not an object of 1 to"),
        (body({f"k{number}": KEY.certificate_pem for number in range(33)}), "not an object of 1 to"),
        (body({"keys": [{"kty": "RSA"}]}), "not certificates in PEM by key ID"),
        (body({"../x": KEY.certificate_pem}), "not certificates in PEM by key ID"),
        (body({"": KEY.certificate_pem}), "not certificates in PEM by key ID"),
        (body({"a": ""}), "not exactly one certificate"),
        (body({"a": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"}), "not exactly one certificate"),
        (body({"a": KEY.certificate_pem * 2}), "not exactly one certificate"),
        (b'{"a": "x", ' + body(PUBLISHED | {"a": KEY.certificate_pem})[1:], "repeated"),
        (body(PUBLISHED) + b" " * MAXIMUM_CERTIFICATES_BYTES, "larger than"),
    ],
    ids=[
        "empty",
        "HTML",
        "not UTF-8",
        "a list",
        "deep nesting",
        "none",
        "too many",
        "JSON Web Keys",
        "key ID is a path",
        "empty key ID",
        "empty certificate",
        "no certificate",
        "two certificates",
        "repeated key ID",
        "huge",
    ],
)
def test_what_is_no_set_of_certificates(content: bytes, part: str) -> None:
    with pytest.raises(CertificatesUnreadable, match=part):
        parse_certificates(content)


class TestSignature:
    """Whatever the attacker writes, it must be signed with the very key that it names."""

    KEYS = parse_certificates(body(PUBLISHED))

    def refuse(self, text: str, key: SigningKey = KEY) -> None:
        with pytest.raises(InvalidSignature):
            self.KEYS[key.key_id].verify(parse_token(text))

    def test_another_key_of_googles(self) -> None:
        self.refuse(token(key=OTHER_KEY, kid=KEY.key_id))

    def test_the_key_of_another_id(self) -> None:
        """Even where it did sign: the caller has mixed up keys."""
        self.refuse(token(kid=OTHER_KEY.key_id))

    def test_an_attackers_key(self) -> None:
        self.refuse(token(key=SigningKey(KEY.key_id, fixture("rsa-2048"), "")))

    def test_a_key_in_the_header(self) -> None:
        attacker = SigningKey(KEY.key_id, fixture("rsa-2048"), "")
        self.refuse(token(key=attacker, jwk=attacker.jwk, x5c=["AA=="], jku="https://example.com/keys"))

    def test_an_edited_payload(self) -> None:
        head, _, signature = token().split(".")
        self.refuse(f"{head}.{token(claims(email='other@example.com')).split('.')[1]}.{signature}")

    @pytest.mark.parametrize("signature", [b"\0", bytes(256), bytes(255) + b"\1", b"\xff" * 256, b"\xff" * 1024])
    def test_no_signature(self, signature: bytes) -> None:
        self.refuse(f"{token().rpartition('.')[0]}.{base64url(signature)}")

    def test_another_padding(self) -> None:
        content = token().rpartition(".")[0]
        pss = padding.PSS(padding.MGF1(hashes.SHA256()), padding.PSS.DIGEST_LENGTH)
        self.refuse(f"{content}.{base64url(KEY.key.sign(content.encode(), pss, hashes.SHA256()))}")

    def test_another_hash(self) -> None:
        content = token().rpartition(".")[0]
        self.refuse(f"{content}.{base64url(KEY.key.sign(content.encode(), padding.PKCS1v15(), hashes.SHA512()))}")


def test_a_certificate_of_a_version_that_there_is_none_of() -> None:
    with pytest.raises(CertificatesUnreadable, match="not exactly one certificate"):
        parse_certificates(json.dumps({"a" * 40: of_version_5().decode()}).encode())
