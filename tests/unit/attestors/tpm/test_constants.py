"""Names and numbers of the specification, against the TCG's own software stack and by the specification's formulas."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from attestors.tpm import constants as tpm
from attestors.tpm.constants import Curve, HashAlgorithm, ObjectAttribute, SignatureAlgorithm
from tests.support.software_tpm import LIBRARY_MISSING

TPM_CC_POLICY_SECRET = bytes.fromhex("00000151")
TPM_CC_POLICY_OR = bytes.fromhex("00000171")
TPM_RH_ENDORSEMENT = bytes.fromhex("4000000b")
POLICY_C = {
    "sha256": bytes.fromhex("3767e2edd43ff45a3a7e1eaefcef78643dca964632e7aad82c673a30d8633fde"),
    "sha384": bytes.fromhex(
        "d6032ce61f2fb3c240eb3cf6a33237ef2b6a16f4293c22b455e261cffd217ad5b4947c2d73e63005eed2dc2b3593d165"
    ),
}
"""TPM2_PolicyAuthorizeNV with the index for it (TCG EK Credential Profile, B.6.4)."""


@pytest.fixture(scope="module")
def stack() -> Any:
    """The constants of tpm2-tss."""
    return pytest.importorskip("tpm2_pytss.constants", reason=LIBRARY_MISSING, exc_type=ImportError)


def test_numbers(stack: Any) -> None:
    algorithm, curve = stack.TPM2_ALG, stack.TPM2_ECC
    assert stack.TPM2_GENERATED.VALUE == tpm.TPM_GENERATED_VALUE
    assert stack.TPM2_ST.ATTEST_QUOTE == tpm.TPM_ST_ATTEST_QUOTE
    assert (
        tpm.TPM_ALG_SHA1, tpm.TPM_ALG_NULL, tpm.TPM_ALG_RSA, tpm.TPM_ALG_ECC, tpm.TPM_ALG_AES, tpm.TPM_ALG_CFB
    ) == (algorithm.SHA1, algorithm.NULL, algorithm.RSA, algorithm.ECC, algorithm.AES, algorithm.CFB)  # fmt: skip
    for mine, theirs in ((HashAlgorithm, algorithm), (SignatureAlgorithm, algorithm), (Curve, curve)):
        assert {member.name: member.value for member in mine} == {
            member.name: int(getattr(theirs, member.name)) for member in mine
        }


def test_attributes_of_objects(stack: Any) -> None:
    for attribute in ObjectAttribute:
        assert attribute.name is not None
        theirs = getattr(
            stack.TPMA_OBJECT, attribute.name if attribute.name == "SIGN_ENCRYPT" else attribute.name.replace("_", "")
        )
        assert attribute.value == int(theirs)


def test_attributes_are_spelled_as_in_the_specification() -> None:
    spelled = {attribute.name: attribute.spelled for attribute in ObjectAttribute}
    assert {name: text.upper() for name, text in spelled.items() if name is not None} == {
        name: "SIGN" if name == "SIGN_ENCRYPT" else name.replace("_", "") for name in spelled if name is not None
    }
    assert spelled["FIXED_TPM"] == "fixedTPM"
    assert (ObjectAttribute.RESTRICTED | ObjectAttribute.FIXED_TPM).spelled == "fixedTPM, restricted"


def test_attributes_of_keys() -> None:
    """As numbers: TPMA_OBJECT of the AK that the attestor wants, and of the profile's templates."""
    assert tpm.ATTESTATION_KEY_REQUIRED == 0x50032
    assert tpm.ATTESTATION_KEY_FORBIDDEN == 0xA0804
    assert tpm.ENDORSEMENT_KEY_LOW_RANGE == 0x300B2
    assert tpm.ENDORSEMENT_KEY_HIGH_RANGE == 0x300F2


def test_policies_of_endorsement_keys() -> None:
    """From their commands (Part 3, PolicySecret and PolicyOR)."""

    def policy_a(name: str) -> bytes:
        start = bytes(hashlib.new(name).digest_size)
        inner = hashlib.new(name, start + TPM_CC_POLICY_SECRET + TPM_RH_ENDORSEMENT).digest()
        return hashlib.new(name, inner).digest()

    def policy_b(name: str) -> bytes:
        start = bytes(hashlib.new(name).digest_size)
        return hashlib.new(name, start + TPM_CC_POLICY_OR + policy_a(name) + POLICY_C[name]).digest()

    assert policy_a("sha256") == tpm.POLICY_A_SHA256
    assert policy_b("sha256") == tpm.POLICY_B_SHA256
    assert policy_b("sha384") == tpm.POLICY_B_SHA384


def test_sizes_follow_from_the_algorithms() -> None:
    for algorithm in HashAlgorithm:
        assert hashlib.new(algorithm.text).digest_size == algorithm.digest_bytes
    assert {curve: curve.coordinate_bytes for curve in Curve} == {
        Curve.NIST_P256: (256 + 7) // 8,
        Curve.NIST_P384: (384 + 7) // 8,
        Curve.NIST_P521: (521 + 7) // 8,
    }
    largest = max(algorithm.digest_bytes for algorithm in HashAlgorithm)
    assert largest == tpm.MAXIMUM_DIGEST_BYTES
    assert largest + 2 == tpm.MAXIMUM_NAME_BYTES == tpm.MAXIMUM_EXTRA_DATA_BYTES
    assert max(curve.coordinate_bytes for curve in Curve) == tpm.MAXIMUM_ECC_BYTES
    assert {2048, 3072, 4096} == tpm.RSA_KEY_BITS
    assert tpm.MAXIMUM_RSA_BYTES == 4096 // 8
    assert tpm.RSA_DEFAULT_EXPONENT == 65537
    assert {128, 256} == tpm.AES_KEY_BITS
    assert len(HashAlgorithm) == tpm.MAXIMUM_PCR_BANKS
    assert (tpm.PCR_SELECT_BYTES, tpm.PCR_COUNT) == (3, 24)


def test_structures_are_bounded() -> None:
    assert {tpm.MAXIMUM_PUBLIC_BYTES, tpm.MAXIMUM_ATTEST_BYTES, tpm.MAXIMUM_SIGNATURE_BYTES} == {1024}
