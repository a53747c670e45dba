"""Which signatures count."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa

from attestors.tpm.endorsement import (
    SignatureRefused,
)
from attestors.tpm.endorsement.der import SEQUENCE, Malformed, only
from attestors.tpm.endorsement.signatures import (
    OtherKeySignature,
    UnacceptableSignature,
    read_algorithm,
    verify_signature,
)
from signer.authority.der import context_constructed, integer, object_identifier, sequence
from tests.support import endorsement_certificates as write
from tests.unit.attestors.tpm.endorsement.support import (
    INTERMEDIATE_NAME,
    ROOT_NAME,
    Attempt,
    authority_draft,
    elliptic_key,
    endorsement,
    endorsement_draft,
    rsa_key,
)


@pytest.mark.parametrize(
    "algorithm",
    [write.SHA256_RSA, write.SHA384_RSA, write.SHA512_RSA, write.SHA256_PSS],
    ids=["SHA-256", "SHA-384", "SHA-512", "PSS"],
)
def test_rsa_signatures(algorithm: write.Algorithm) -> None:
    key = rsa_key()
    authority = authority_draft(INTERMEDIATE_NAME, ROOT_NAME, key).signed(elliptic_key("root"), write.SHA256_ECDSA)
    Attempt(endorsement(signer=key, algorithm=algorithm), intermediates=[authority]).verify()


@pytest.mark.parametrize("curve", [ec.SECP384R1(), ec.SECP521R1()], ids=lambda curve: curve.name)
@pytest.mark.parametrize("algorithm", [write.SHA384_ECDSA, write.SHA512_ECDSA], ids=["SHA-384", "SHA-512"])
def test_elliptic_signatures(curve: ec.EllipticCurve, algorithm: write.Algorithm) -> None:
    key = ec.generate_private_key(curve)
    authority = authority_draft(INTERMEDIATE_NAME, ROOT_NAME, key).signed(elliptic_key("root"), write.SHA256_ECDSA)
    Attempt(endorsement(signer=key, algorithm=algorithm), intermediates=[authority]).verify()


@pytest.mark.parametrize(
    ("key", "algorithm", "words"),
    [
        (rsa_key(), write.SHA1_RSA, "SHA-1 with RSA, which can be forged"),
        (elliptic_key("intermediate"), write.SHA1_ECDSA, "SHA-1 with ECDSA, which can be forged"),
    ],
    ids=["RSA", "ECDSA"],
)
def test_sha_1_below_a_root_is_refused(key: write.PrivateKey, algorithm: write.Algorithm, words: str) -> None:
    authority = authority_draft(INTERMEDIATE_NAME, ROOT_NAME, key).signed(elliptic_key("root"), write.SHA256_ECDSA)
    for accept_expired in (False, True):
        with pytest.raises(SignatureRefused, match=words):
            Attempt(
                endorsement(signer=key, algorithm=algorithm), intermediates=[authority], accept_expired=accept_expired
            ).verify()


PSS = write.SHA256_PSS
SHA256 = "2.16.840.1.101.3.4.2.1"
MGF1 = "1.2.840.113549.1.1.8"
ALGORITHM = sequence(object_identifier(SHA256), write.NULL)
HASH, MASK = context_constructed(0, ALGORITHM), context_constructed(1, sequence(object_identifier(MGF1), ALGORITHM))


def pss(hash_identifier: str = SHA256, mask: str = "1.2.840.113549.1.1.8", salt: int = 32, trailer: int = 1) -> bytes:
    algorithm = sequence(object_identifier(hash_identifier), write.NULL)
    return sequence(
        context_constructed(0, algorithm),
        context_constructed(1, sequence(object_identifier(mask), algorithm)),
        context_constructed(2, integer(salt)),
        context_constructed(3, integer(trailer)),
    )


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        (sequence(), "SHA-1 with RSA-PSS"),
        (sequence(context_constructed(0, sequence(object_identifier(SHA256)))), "SHA-1 with RSA-PSS"),
        (pss("1.3.14.3.2.26"), "a hash that is not SHA-256"),
        (pss(mask="1.2.3"), "unknown mask generation"),
        (pss(salt=-1), "out of bounds"),
        (pss(salt=65), "out of bounds"),
        (pss(trailer=2), "out of bounds"),
        (pss(salt=20), "does not verify"),
        (sequence(MASK), "SHA-1 with RSA-PSS"),
        (sequence(HASH, context_constructed(1, sequence(object_identifier(MGF1)))), "unknown mask generation"),
        (
            sequence(HASH, context_constructed(1, sequence(object_identifier(MGF1), ALGORITHM, ALGORITHM))),
            "unknown mask generation",
        ),
        (b"", "malformed RSA-PSS parameters"),
        (b"\x04\x00", "malformed RSA-PSS parameters"),
    ],
)
def test_other_pss_parameters_are_refused(parameters: bytes, words: str) -> None:
    algorithm = write.Algorithm(PSS.identifier, PSS.hash_algorithm, parameters, pss=True)
    issued = verify_with_rsa_issuer(algorithm)
    with pytest.raises(SignatureRefused, match=words):
        issued.verify()


@pytest.mark.parametrize(
    ("hash_identifier", "hash_algorithm"),
    [
        (SHA256, hashes.SHA256()),
        ("2.16.840.1.101.3.4.2.2", hashes.SHA384()),
        ("2.16.840.1.101.3.4.2.3", hashes.SHA512()),
    ],
)
def test_pss_parameters_written_out_in_full_are_accepted(
    hash_identifier: str, hash_algorithm: hashes.HashAlgorithm
) -> None:
    parameters = pss(hash_identifier, salt=hash_algorithm.digest_size)
    verify_with_rsa_issuer(write.Algorithm(PSS.identifier, hash_algorithm, parameters, pss=True)).verify()


@pytest.mark.parametrize(
    ("parameters", "salt"),
    [(pss(salt=0), 0), (pss(salt=64), 64), (sequence(HASH, MASK), 20)],
    ids=["none", "longest", "by-default"],
)
def test_salts_of_every_length_in_bounds_are_accepted(parameters: bytes, salt: int) -> None:
    verify_with_rsa_issuer(Salted(PSS.identifier, PSS.hash_algorithm, parameters, pss=True, salt=salt)).verify()


@dataclass(frozen=True)
class Salted(write.Algorithm):
    """RSA-PSS with a salt of another length than the digest's."""

    salt: int = 32

    def sign(self, key: write.PrivateKey, data: bytes) -> bytes:
        assert isinstance(key, rsa.RSAPrivateKey)
        return key.sign(data, padding.PSS(padding.MGF1(self.hash_algorithm), self.salt), self.hash_algorithm)


@pytest.mark.parametrize("parts", [0, 3])
def test_an_algorithm_of_another_structure_is_refused(parts: int) -> None:
    algorithm = sequence(*(object_identifier(PSS.identifier), write.NULL, write.NULL)[:parts])
    with pytest.raises(Malformed, match="has a malformed signature algorithm"):
        read_algorithm(only(algorithm, SEQUENCE))


@pytest.mark.parametrize(
    ("identifier", "named"),
    [
        ("1.2.840.113549.1.1.4", "MD5 with RSA"),
        ("1.2.840.113549.1.1.5", "SHA-1 with RSA"),
        ("1.2.840.10045.4.1", "SHA-1 with ECDSA"),
        ("1.3.14.3.2.29", "SHA-1 with RSA"),
    ],
)
def test_weak_algorithms_are_named(identifier: str, named: str) -> None:
    with pytest.raises(SignatureRefused, match=f"is made with {named}, which can be forged"):
        verify_with_rsa_issuer(write.Algorithm(identifier, PSS.hash_algorithm)).verify()


@pytest.mark.parametrize("identifier", ["1.2.840.10045.4.3.2", "1.2.840.113549.1.1.14", "1.2.3"])
def test_an_algorithm_that_does_not_go_with_the_key_is_refused(identifier: str) -> None:
    algorithm = write.Algorithm(identifier, PSS.hash_algorithm)
    with pytest.raises(SignatureRefused, match="not accepted for the issuer's key"):
        verify_with_rsa_issuer(algorithm).verify()
    with pytest.raises(SignatureRefused, match="not accepted for the issuer's key"):
        Attempt(endorsement(algorithm=write.SHA256_RSA)).verify()


@pytest.mark.parametrize(
    ("identifier", "of_another"),
    [("1.2.840.10045.4.3.2", True), ("1.2.840.10045.4.3.4", True), ("1.2.840.113549.1.1.14", False), ("1.2.3", False)],
)
def test_an_algorithm_of_another_kind_of_key_may_be_of_another_authority(identifier: str, of_another: bool) -> None:
    algorithm = read_algorithm(only(sequence(object_identifier(identifier)), SEQUENCE))
    key = rsa.generate_private_key(65537, 2048).public_key()
    with pytest.raises(UnacceptableSignature) as caught:
        verify_signature(key, algorithm, b"signed", b"signature")
    assert isinstance(caught.value, OtherKeySignature) is of_another


def verify_with_rsa_issuer(algorithm: write.Algorithm) -> Attempt:
    """The root has an RSA key and signs with this algorithm."""
    issuer = write.common_name("RSA root")
    top = write.Draft(issuer, write.public_key_information(rsa_key()), subject=issuer, version=1, extensions=None)
    draft = endorsement_draft(issuer=issuer)
    return Attempt(draft.signed(rsa_key(), algorithm), roots=[top.signed(rsa_key(), write.SHA256_RSA)])
