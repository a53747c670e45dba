from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from attestors.tpm import constants as tpm
from attestors.tpm.constants import Curve, HashAlgorithm, ObjectAttribute
from attestors.tpm.reader import MalformedStructure
from attestors.tpm.structures import (
    ECCKey,
    ECDSASignature,
    RSAKey,
    RSASignature,
    Scheme,
    Signature,
    decode_public,
    decode_signature,
)
from tests.unit.attestors.tpm.support import (
    AK_ATTRIBUTES,
    ECDSA,
    RSASSA,
    SHORT,
    attestation_area,
    ecc_key,
    endorsement_area,
    fields_of_beginnings,
    public_key_of,
    rsa_key,
)

X, Y = (
    "6b17d1f2e12c4247f8bce6e563a440f277037d812deb33a0f4a13945d898c296",
    ("4fe342e2fe1a7f9b8ee7eb4a7c0f9e162bce33576b315ececbb6406837bf51f5"),
)
ECC_HEAD = "0023 000b 00050072 0000 0010 0018 000b"
ECC_AREA = f"{ECC_HEAD} 0003 0010 0020{X} 0020{Y}"
"""A signing key on P-256 whose point is the base point."""
RSA_HEAD = "0001 000b 00050072 0000 0010 0014 000b"
MODULUS = "c0" + "00" * 254 + "01"
RSA_AREA = f"{RSA_HEAD} 0800 00000000 0100{MODULUS}"


def octets(text: str) -> bytes:
    return bytes.fromhex(text)


class TestPublicArea:
    def test_ecc_is_what_the_specification_says(self) -> None:
        """Written out by hand."""
        area = decode_public(octets(ECC_AREA))
        assert area.name_algorithm is HashAlgorithm.SHA256
        assert area.attributes == AK_ATTRIBUTES
        assert area.authorization_policy == b""
        assert area.symmetric_key_bits is None
        assert area.scheme == ECDSA
        assert area.key == ECCKey(Curve.NIST_P256, octets(X), octets(Y))
        assert area.encode() == octets(ECC_AREA)

    def test_rsa_is_what_the_specification_says(self) -> None:
        """The template L-1 of the TCG EK Credential Profile, with a modulus in it."""
        head = (
            "0001 000b 000300b2 0020837197674484b3f81a90cc8d46a5d724fd52d76e06520b64f2a1da1b331469aa"
            "0006 0080 0043 0010 0800 00000000 0100"
        )
        area = decode_public(octets(head + MODULUS))
        assert area.attributes == tpm.ENDORSEMENT_KEY_LOW_RANGE
        assert area.authorization_policy == tpm.POLICY_A_SHA256
        assert area.symmetric_key_bits == 128
        assert area.scheme is None
        assert area.key == RSAKey(2048, 0, octets(MODULUS))
        assert area.encode() == octets(head + MODULUS)

    def test_the_name_is_of_everything(self) -> None:
        area = attestation_area()
        assert area.name == b"\x00\x0b" + hashlib.sha256(area.encode()).digest()
        sha384 = replace(area, name_algorithm=HashAlgorithm.SHA384)
        assert sha384.name == b"\x00\x0c" + hashlib.sha384(sha384.encode()).digest()
        unrestricted = replace(area, attributes=AK_ATTRIBUTES & ~ObjectAttribute.RESTRICTED)
        assert unrestricted.name != area.name

    @pytest.mark.parametrize(
        "area",
        [
            attestation_area(),
            attestation_area(rsa_key("rsa-4096")),
            attestation_area(ecc_key(Curve.NIST_P521), ECDSA),
            attestation_area(name_algorithm=HashAlgorithm.SHA512, authorization_policy=bytes(64)),
            attestation_area(key=None, scheme=None, symmetric_key_bits=256),
            endorsement_area("L-1"),
            endorsement_area("H-3"),
        ],
    )
    def test_round_trip(self, area: object) -> None:
        assert decode_public(area.encode()) == area  # type: ignore[attr-defined]

    @pytest.mark.parametrize(
        ("data", "fault"),
        [
            pytest.param("", "ends inside type", id="nothing"),
            pytest.param("0008" + ECC_AREA[4:], "type 0x0008 is neither", id="keyed-hash"),
            pytest.param("0025" + ECC_AREA[4:], "type 0x0025 is neither", id="symmetric-cipher"),
            pytest.param(ECC_AREA.replace("0023 000b", "0023 0004"), "nameAlg uses SHA-1", id="name-sha1"),
            pytest.param(ECC_AREA.replace("0023 000b", "0023 0010"), "nameAlg has the unknown", id="name-null"),
            pytest.param(
                ECC_AREA.replace("00050072", "00050073"), "objectAttributes has reserved bits", id="reserved-bit-0"
            ),
            pytest.param(
                ECC_AREA.replace("00050072", "80050072"), "objectAttributes has reserved bits", id="reserved-bit-31"
            ),
            pytest.param(ECC_AREA.replace("0072 0000", "0072 0001 00"), "authPolicy is neither", id="policy-size"),
            pytest.param(
                ECC_AREA.replace("0072 0000", "0072 0041" + "00" * 65),
                "authPolicy is larger than 64",
                id="policy-large",
            ),
            pytest.param(ECC_AREA.replace("0010 0018", "0006 00c0 0043 0018"), "symmetric is not", id="aes-192"),
            pytest.param(ECC_AREA.replace("0010 0018", "0006 0080 0042 0018"), "symmetric is not", id="aes-cbc"),
            pytest.param(ECC_AREA.replace("0010 0018", "0026 0080 0043 0018"), "symmetric is not", id="camellia"),
            pytest.param(ECC_AREA.replace("0018 000b", "0018 0004"), "scheme uses SHA-1", id="scheme-sha1"),
            pytest.param(ECC_AREA.replace("0018 000b", "001a 000b 0000"), "scheme 0x001a is none of", id="ecdaa"),
            pytest.param(
                ECC_AREA.replace("0018 000b", "0014 000b"), "scheme does not belong to this type", id="rsassa-on-ecc"
            ),
            pytest.param(
                RSA_AREA.replace("0014 000b", "0018 000b"), "scheme does not belong to this type", id="ecdsa-on-rsa"
            ),
            pytest.param(RSA_AREA.replace("0014 000b", "0015"), "scheme 0x0015 is none of", id="rsaes"),
            pytest.param(
                RSA_AREA.replace("0800 0000", "0400 0000"),
                "an RSA key has 2048, 3072 or 4096 bits, not 1024",
                id="rsa-1024",
            ),
            pytest.param(
                RSA_AREA.replace("0800 0000", "0801 0000"),
                "an RSA key has 2048, 3072 or 4096 bits, not 2049",
                id="rsa-2049",
            ),
            pytest.param(
                RSA_AREA.replace("0800 0000", "2000 0000"),
                "an RSA key has 2048, 3072 or 4096 bits, not 8192",
                id="rsa-8192",
            ),
            pytest.param(RSA_AREA.replace("0100" + MODULUS, "0201" + "ff" * 513), "unique is larger", id="modulus"),
            pytest.param(ECC_AREA.replace("0003 0010", "0010 0010"), "curveID 0x0010 is none of", id="bn-p256"),
            pytest.param(ECC_AREA.replace("0003 0010", "0001 0010"), "curveID 0x0001 is none of", id="p192"),
            pytest.param(ECC_AREA.replace("0003 0010", "0003 0020 000b"), "kdf is not", id="kdf"),
            pytest.param(ECC_AREA.replace("0020" + X, "002100" + X), "unique.x is larger", id="x-large"),
            pytest.param(ECC_AREA.replace("0020" + Y, "002100" + Y), "unique.y is larger", id="y-large"),
            pytest.param(
                ECC_AREA.replace("0003 0010 0020", "0005 0010 0043" + "00" * 35), "unique.x is larger", id="x-of-p521"
            ),
            pytest.param(ECC_AREA[:-2], "ends inside unique.y", id="cut"),
            pytest.param(ECC_AREA + "00", "has bytes after its end", id="trailing-byte"),
            pytest.param(RSA_AREA + "00", "has bytes after its end", id="trailing-byte-rsa"),
        ],
    )
    def test_refuses_every_other_form(self, data: str, fault: str) -> None:
        with pytest.raises(MalformedStructure, match=f"^TPMT_PUBLIC: {re.escape(fault)}"):
            decode_public(octets(data))


class TestKeys:
    def test_rsa(self) -> None:
        key = rsa_key().public_key()
        assert public_key_of(rsa_key()).public_key() == key
        area = RSAKey(2048, 65537, key.public_numbers().n.to_bytes(256, "big"))
        assert area.public_key() == key

    @pytest.mark.parametrize("curve", list(Curve))
    def test_ecc(self, curve: Curve) -> None:
        assert public_key_of(ecc_key(curve)).public_key() == ecc_key(curve).public_key()

    def test_zeros_in_front_of_a_coordinate_may_be_left_out(self) -> None:
        """As older TPMs write one key in 128."""
        padded = public_key_of(ecc_key(number=SHORT))
        assert isinstance(padded, ECCKey)
        assert padded.x[0] == 0
        area = replace(attestation_area(ecc_key(), ECDSA), key=replace(padded, x=padded.x.lstrip(b"\0")))
        decoded = decode_public(area.encode())
        assert decoded == area
        assert decoded.key.public_key() == padded.public_key()

    @pytest.mark.parametrize("exponent", [1, 3, 17, 65535, 65539, 2**32 - 1])
    def test_other_exponents_are_refused(self, exponent: int) -> None:
        modulus = rsa_key().public_key().public_numbers().n.to_bytes(256, "big")
        with pytest.raises(MalformedStructure, match="exponent is not 65537"):
            RSAKey(2048, exponent, modulus).public_key()

    @pytest.mark.parametrize(
        "modulus",
        [
            pytest.param(b"", id="none"),
            pytest.param(b"\x7f" + b"\xff" * 255, id="top-bit-clear"),
            pytest.param(bytes(255) + b"\x01", id="one"),
            pytest.param(b"\xff" * 255, id="short"),
            pytest.param(b"\xff" * 257, id="long"),
            pytest.param(b"\0" + b"\xff" * 256, id="zero-in-front"),
            pytest.param(b"\xff" * 512, id="of-4096-bits"),
        ],
    )
    def test_a_modulus_of_another_size_is_refused(self, modulus: bytes) -> None:
        with pytest.raises(MalformedStructure, match="does not have 2048 bits"):
            RSAKey(2048, 0, modulus).public_key()

    def test_an_even_modulus_is_refused(self) -> None:
        with pytest.raises(MalformedStructure, match="even"):
            RSAKey(2048, 0, b"\xff" * 255 + b"\xfe").public_key()

    @pytest.mark.parametrize(
        ("x", "y"),
        [
            pytest.param(b"", b"", id="nothing"),
            pytest.param(bytes(32), bytes(32), id="zero"),
            pytest.param(octets(X), octets(Y)[:-1] + b"\0", id="beside"),
            pytest.param(octets(Y), octets(X), id="swapped"),
            pytest.param(b"\xff" * 32, b"\xff" * 32, id="beyond-the-field"),
        ],
    )
    def test_a_point_off_the_curve_is_refused(self, x: bytes, y: bytes) -> None:
        with pytest.raises(MalformedStructure, match="not on the curve"):
            ECCKey(Curve.NIST_P256, x, y).public_key()

    def test_a_point_of_another_curve_is_refused(self) -> None:
        point = public_key_of(ecc_key(Curve.NIST_P256))
        assert isinstance(point, ECCKey)
        with pytest.raises(MalformedStructure, match="not on the curve"):
            replace(point, curve=Curve.NIST_P384).public_key()

    def test_types(self) -> None:
        assert isinstance(public_key_of(rsa_key()).public_key(), rsa.RSAPublicKey)
        assert isinstance(public_key_of(ecc_key()).public_key(), ec.EllipticCurvePublicKey)


class TestSignature:
    @pytest.mark.parametrize(
        ("data", "signature"),
        [
            ("0014 000b 0003 abcdef", Signature(RSASSA, RSASignature(octets("abcdef")))),
            ("0018 000b 0002 abcd 0001 ef", Signature(ECDSA, ECDSASignature(octets("abcd"), octets("ef")))),
        ],
    )
    def test_is_what_the_specification_says(self, data: str, signature: Signature) -> None:
        assert decode_signature(octets(data)) == signature
        assert signature.encode() == octets(data)

    @pytest.mark.parametrize("hash_algorithm", list(HashAlgorithm))
    @pytest.mark.parametrize("algorithm", list(tpm.SignatureAlgorithm))
    def test_round_trip(self, algorithm: tpm.SignatureAlgorithm, hash_algorithm: HashAlgorithm) -> None:
        ecdsa = algorithm is tpm.SignatureAlgorithm.ECDSA
        value = ECDSASignature(b"r" * 66, b"s" * 66) if ecdsa else RSASignature(b"x" * 512)
        signature = Signature(Scheme(algorithm, hash_algorithm), value)
        assert decode_signature(signature.encode()) == signature

    @pytest.mark.parametrize(
        ("data", "fault"),
        [
            pytest.param("", "ends inside sigAlg", id="nothing"),
            pytest.param("0010", "sigAlg 0x0010 is none of RSASSA, RSAPSS, ECDSA", id="null"),
            pytest.param("0005 000b" + "00" * 32, "sigAlg 0x0005 is none of", id="hmac"),
            pytest.param("001a 000b 0001 00 0001 00", "sigAlg 0x001a is none of", id="ecdaa"),
            pytest.param("001b 000b 0001 00 0001 00", "sigAlg 0x001b is none of", id="sm2"),
            pytest.param("0014 0004 0001 00", "hash uses SHA-1", id="sha1"),
            pytest.param("0014 0010 0001 00", "hash has the unknown", id="no-hash"),
            pytest.param("0014 000b 0201" + "00" * 513, "sig is larger", id="rsa-large"),
            pytest.param("0018 000b 0043" + "00" * 67 + "0001 00", "signatureR is larger", id="r-large"),
            pytest.param("0018 000b 0001 00 0043" + "00" * 67, "signatureS is larger", id="s-large"),
            pytest.param("0018 000b 0001 00", "ends inside signatureS", id="s-missing"),
            pytest.param("0014 000b 0001 00 00", "has bytes after its end", id="trailing-byte-rsa"),
            pytest.param("0018 000b 0001 00 0001 00 00", "has bytes after its end", id="trailing-byte-ecc"),
        ],
    )
    def test_refuses_every_other_form(self, data: str, fault: str) -> None:
        with pytest.raises(MalformedStructure, match=f"^TPMT_SIGNATURE: {re.escape(fault)}"):
            decode_signature(octets(data))


@pytest.mark.parametrize("decode", [decode_public, decode_signature])
def test_what_is_too_large_is_not_read(decode: Callable[[bytes], object]) -> None:
    with pytest.raises(MalformedStructure, match="larger than 1024 bytes"):
        decode(bytes(1025))
    with pytest.raises(MalformedStructure) as refused:
        decode(bytes(1024))
    assert "larger than" not in str(refused.value)


@pytest.mark.parametrize(
    ("decode", "data", "fields"),
    [
        (decode_public, RSA_AREA, "type nameAlg objectAttributes authPolicy symmetric scheme keyBits exponent unique"),
        (
            decode_public,
            ECC_AREA.replace("0010 0018", "0006 0080 0043 0018"),
            "type nameAlg objectAttributes authPolicy symmetric symmetric.keyBits symmetric.mode scheme curveID kdf"
            " unique.x unique.y",
        ),
        (decode_signature, "0014 000b 0003 abcdef", "sigAlg hash sig"),
        (decode_signature, "0018 000b 0002 abcd 0001 ef", "sigAlg hash signatureR signatureS"),
    ],
    ids=["rsa", "ecc", "rsa-signature", "ecc-signature"],
)
def test_where_it_ends_too_early_is_named(decode: Callable[[bytes], object], data: str, fields: str) -> None:
    assert fields_of_beginnings(decode, octets(data)) == fields.split()
