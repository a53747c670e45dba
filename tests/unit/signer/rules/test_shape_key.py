from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, x25519
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key

from signer.model.certificate_request import KeyKind, PublicKeyFacts
from signer.model.reasons import Reason
from signer.rules.checks import CLUSTER_CHECKS, REQUEST_CHECKS
from signer.rules.request import RequestFacts
from signer.rules.shape import key_is_acceptable
from tests.unit.signer.builders import (
    der_request,
    ec_key,
    integer,
    node_subject,
    oid,
    pkcs10,
    public_key_info,
    request_facts,
    rsa_key,
    rsa_public_key_info,
    sequence,
    tlv,
)
from tests.unit.signer.outcomes import all_of, refused

judge: Callable[[RequestFacts], None] = all_of((*CLUSTER_CHECKS, *REQUEST_CHECKS))


def denied(der: bytes) -> str:
    return refused(judge, request_facts(der_request(der))).reason


def modulus(bits: int) -> int:
    return (1 << bits - 1) + 1


def encoded(key: object) -> bytes:
    return public_key_info(key)


def compressed_point() -> bytes:
    point = ec_key().public_key().public_bytes(Encoding.X962, PublicFormat.CompressedPoint)
    algorithm = sequence(oid("1.2.840.10045.2.1"), oid("1.2.840.10045.3.1.7"))
    return sequence(algorithm, tlv(0x03, b"\0" + point))


def explicit_parameters() -> bytes:
    """P-256 spelled out: with it came forged generators (CVE-2020-0601)."""
    prime = 2**256 - 2**224 + 2**192 + 2**96 - 1
    point = ec_key().public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    curve = sequence(tlv(0x04, (prime - 3).to_bytes(32, "big")), tlv(0x04, bytes(32)))
    field = sequence(oid("1.2.840.10045.1.1"), integer(prime))
    parameters = sequence(integer(1), field, curve, tlv(0x04, point), integer(prime))
    return sequence(sequence(oid("1.2.840.10045.2.1"), parameters), tlv(0x03, b"\0" + point))


def probabilistic_rsa() -> bytes:
    key = rsa_key("rsa-2048").public_key().public_bytes(Encoding.DER, PublicFormat.PKCS1)
    return sequence(sequence(oid("1.2.840.113549.1.1.10")), tlv(0x03, b"\0" + key))


def diffie_hellman() -> bytes:
    number = integer((1 << 2048) - 3)
    group = sequence(oid("1.2.840.10046.2.1"), sequence(number, integer(2), number))
    return sequence(group, tlv(0x03, b"\0" + integer(5)))


KEYS = {
    "P-224": encoded(ec_key(ec.SECP224R1)),
    "P-192": encoded(ec_key(ec.SECP192R1)),
    "secp256k1": encoded(ec_key(ec.SECP256K1)),
    "brainpoolP256r1": encoded(ec_key(ec.BrainpoolP256R1)),
    "brainpoolP384r1": encoded(ec_key(ec.BrainpoolP384R1)),
    "explicit curve parameters": explicit_parameters(),
    "compressed point": compressed_point(),
    "point at infinity": sequence(sequence(oid("1.2.840.10045.2.1"), oid("1.2.840.10045.3.1.7")), tlv(0x03, b"\0\0")),
    "point off the curve": encoded(ec_key())[:-1] + bytes([encoded(ec_key())[-1] ^ 1]),
    "RSA restricted to PSS": probabilistic_rsa(),
    "Ed25519": encoded(ed25519.Ed25519PrivateKey.generate()),
    "X25519": encoded(x25519.X25519PrivateKey.generate()),
    # Spelled out (FIPS 204, RFC 9881): cryptography makes one only where its OpenSSL is 3.5 or newer.
    "ML-DSA-44": sequence(sequence(oid("2.16.840.1.101.3.4.3.17")), tlv(0x03, bytes(1 + 1312))),
    "X9.42 Diffie-Hellman": diffie_hellman(),
    "unknown algorithm": sequence(sequence(oid("1.2.3.4")), tlv(0x03, b"\0x")),
}
WEAK_RSA = {
    "1024": (modulus(1024), 65537),
    "2047": (modulus(2047), 65537),
    "8193": (modulus(8193), 65537),
    "16384": (modulus(16384), 65537),
}
NOT_ALWAYS_LOADED = {"1": 1, "2": 2, "65538": 65538}
"""From version 50 on, cryptography loads no key with one of these: then it is of another kind."""
EXPONENTS = {"3": 3, "17": 17, "65535": 65535, "of 33 bits": 2**32 + 1, "of 2048 bits": modulus(2048) - 2}


def _message_of_exponent(public_key: bytes) -> str:
    """Our own rule has the word where the library loads the key."""
    try:
        load_der_public_key(public_key)
    except ValueError:
        return "the key is neither RSA nor ECDSA on P-256, P-384 or P-521"
    return "the RSA key's public exponent must be odd, at least 65537, and at most 32 bits"


class TestKey:
    @pytest.mark.parametrize("public_key", KEYS.values(), ids=KEYS.keys())
    def test_of_another_kind(self, public_key: bytes) -> None:
        deny = refused(judge, request_facts(der_request(pkcs10(public_key=public_key))))
        assert deny.reason == Reason.UNACCEPTABLE_KEY
        assert deny.message == "the key is neither RSA nor ECDSA on P-256, P-384 or P-521"

    @pytest.mark.parametrize(("number", "exponent"), WEAK_RSA.values(), ids=WEAK_RSA.keys())
    def test_rsa_of_another_size(self, number: int, exponent: int) -> None:
        der = pkcs10(public_key=rsa_public_key_info(number, exponent))
        deny = refused(judge, request_facts(der_request(der)))
        assert deny.reason == Reason.UNACCEPTABLE_KEY
        assert deny.message == f"an RSA key must have 2048 to 8192 bits, not {number.bit_length()}"

    @pytest.mark.parametrize("exponent", EXPONENTS.values(), ids=EXPONENTS.keys())
    def test_rsa_exponent(self, exponent: int) -> None:
        der = pkcs10(public_key=rsa_public_key_info(modulus(2048), exponent))
        deny = refused(judge, request_facts(der_request(der)))
        assert deny.reason == Reason.UNACCEPTABLE_KEY
        assert "exponent" in deny.message

    @pytest.mark.parametrize("exponent", NOT_ALWAYS_LOADED.values(), ids=NOT_ALWAYS_LOADED.keys())
    def test_rsa_exponent_that_not_every_library_loads(self, exponent: int) -> None:
        der = pkcs10(public_key=rsa_public_key_info(modulus(2048), exponent))
        deny = refused(judge, request_facts(der_request(der)))
        assert deny.reason == Reason.UNACCEPTABLE_KEY
        assert deny.message == _message_of_exponent(rsa_public_key_info(modulus(2048), exponent))

    @pytest.mark.parametrize("exponent", [65536, 65538])
    def test_even_rsa_exponent_whatever_the_library_reads(self, exponent: int) -> None:
        request = der_request(pkcs10(rsa_key("rsa-2048")))
        content = request.certificate_request
        changed = replace(request, certificate_request=replace(content, key=replace(content.key, exponent=exponent)))
        assert "exponent" in refused(key_is_acceptable, request_facts(changed)).message

    @pytest.mark.parametrize(
        "key", [PublicKeyFacts(KeyKind.OTHER, 256, 0, "secp256r1"), PublicKeyFacts(KeyKind.ECDSA, 256, 0, "")]
    )
    def test_kind_and_curve_both_matter(self, key: PublicKeyFacts) -> None:
        request = der_request(pkcs10())
        changed = replace(request, certificate_request=replace(request.certificate_request, key=key))
        assert refused(key_is_acceptable, request_facts(changed)).reason == Reason.UNACCEPTABLE_KEY

    @pytest.mark.parametrize(
        ("bits", "exponent"), [(2048, 65537), (2048, 65539), (2048, 2**32 - 1), (4096, 65537), (8192, 65537)]
    )
    def test_rsa_within_bounds(self, bits: int, exponent: int) -> None:
        key_is_acceptable(request_facts(der_request(pkcs10(public_key=rsa_public_key_info(modulus(bits), exponent)))))

    @pytest.mark.parametrize("name", ["rsa-1024", "rsa-2047", "rsa-2048-exponent-3"])
    def test_weak_rsa_with_a_good_signature(self, name: str) -> None:
        assert denied(pkcs10(rsa_key(name))) == Reason.UNACCEPTABLE_KEY

    @pytest.mark.parametrize("name", ["rsa-2048", "rsa-4096"])
    def test_rsa(self, name: str) -> None:
        judge(request_facts(der_request(pkcs10(rsa_key(name)))))

    @pytest.mark.parametrize("curve", [ec.SECP256R1, ec.SECP384R1, ec.SECP521R1])
    def test_ecdsa(self, curve: type[ec.EllipticCurve]) -> None:
        judge(request_facts(der_request(pkcs10(ec_key(curve)))))


class TestSignature:
    @pytest.mark.parametrize("hash_name", ["sha256", "sha384", "sha512"])
    def test_strong_hash(self, hash_name: str) -> None:
        judge(request_facts(der_request(pkcs10(hash_name=hash_name))))

    @pytest.mark.parametrize("hash_name", ["sha1", "sha224"])
    def test_weak_hash(self, hash_name: str) -> None:
        deny = refused(judge, request_facts(der_request(pkcs10(hash_name=hash_name))))
        assert deny.reason == Reason.INVALID_SIGNATURE
        assert deny.message == "the request must be signed with SHA-256, SHA-384 or SHA-512"

    def test_probabilistic(self) -> None:
        request = x509.load_der_x509_csr(pkcs10(rsa_key("rsa-2048")))
        builder = x509.CertificateSigningRequestBuilder(request.subject, list(request.extensions))
        pss = padding.PSS(padding.MGF1(SHA256()), padding.PSS.DIGEST_LENGTH)
        signed = builder.sign(rsa_key("rsa-2048"), SHA256(), rsa_padding=pss)
        judge(request_facts(der_request(signed.public_bytes(Encoding.DER))))

    @pytest.mark.parametrize("signature", [b"", b"\x30\x00", bytes(72), b"\x30\x06\x02\x01\x00\x02\x01\x00"])
    def test_nonsense(self, signature: bytes) -> None:
        deny = refused(judge, request_facts(der_request(pkcs10(signature=signature))))
        assert deny.reason == Reason.INVALID_SIGNATURE
        assert deny.message == "the request's signature does not verify with its own key"

    def test_of_another_key(self) -> None:
        other = ec.generate_private_key(ec.SECP256R1())
        assert denied(pkcs10(public_key=public_key_info(other))) == Reason.INVALID_SIGNATURE

    def test_of_another_kind_of_key(self) -> None:
        assert denied(pkcs10(public_key=public_key_info(rsa_key("rsa-2048")))) == Reason.INVALID_SIGNATURE
        assert denied(pkcs10(rsa_key("rsa-2048"), public_key=public_key_info(ec_key()))) == Reason.INVALID_SIGNATURE

    def test_of_another_content(self) -> None:
        signed = x509.load_der_x509_csr(pkcs10())
        signature = signed.signature
        assert denied(pkcs10(subject=node_subject("other"), signature=signature)) == Reason.INVALID_SIGNATURE

    def test_unknown_algorithm(self) -> None:
        der = pkcs10().replace(oid("1.2.840.10045.4.3.2"), oid("1.2.840.10045.4.3.9"))
        assert denied(der) == Reason.INVALID_SIGNATURE
