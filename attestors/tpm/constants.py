"""Names and numbers of the TPM 2.0 Library Specification, and the bounds on parsed data.

"Part 2" is the specification's "Part 2: Structures"; section numbers are those of revision 1.59. Only values that this
package reads or writes are defined: an algorithm without a name here is rejected. SHA-1 (TPM_ALG_SHA1, 0x0004) has no
enum member on purpose.
"""

from __future__ import annotations

import enum
from typing import Final

TPM_GENERATED_VALUE: Final = 0xFF544347
"""TPM_GENERATED (Part 2, 6.2): starts every TPM attestation structure; a restricted key signs nothing else with it."""
TPM_ST_ATTEST_QUOTE: Final = 0x8018
"""TPM_ST (Part 2, 6.9): the structure is a quote."""
TPM_ALG_SHA1: Final = 0x0004
"""TPM_ALG_ID (Part 2, 6.3); named only for the message that rejects it."""
TPM_ALG_NULL: Final = 0x0010
TPM_ALG_RSA: Final = 0x0001
TPM_ALG_ECC: Final = 0x0023
TPM_ALG_AES: Final = 0x0006
TPM_ALG_CFB: Final = 0x0043

AES_KEY_BITS: Final = frozenset({128, 256})
RSA_KEY_BITS: Final = frozenset({2048, 3072, 4096})
RSA_DEFAULT_EXPONENT: Final = 65537
"""TPMS_RSA_PARMS (Part 2, 12.2.3.5): an exponent of zero means this one."""

MAXIMUM_PUBLIC_BYTES: Final = 1024
"""TPMT_PUBLIC; the largest accepted one, RSA-4096 with a SHA-512 policy, has 600."""
MAXIMUM_ATTEST_BYTES: Final = 1024
"""TPMS_ATTEST of a quote; the largest accepted one has less than 400."""
MAXIMUM_SIGNATURE_BYTES: Final = 1024
"""TPMT_SIGNATURE; RSA-4096 has 518."""
MAXIMUM_RSA_BYTES: Final = max(RSA_KEY_BITS) // 8
MAXIMUM_ECC_BYTES: Final = 66
"""TPM2B_ECC_PARAMETER (Part 2, 11.2.5.1) of NIST P-521."""
MAXIMUM_NAME_BYTES: Final = 66
"""TPM2B_NAME (Part 2, 10.5.3): an algorithm identifier and a SHA-512 digest."""
MAXIMUM_EXTRA_DATA_BYTES: Final = 66
"""TPM2B_DATA (Part 2, 10.4.3): as large as TPMT_HA."""
MAXIMUM_DIGEST_BYTES: Final = 64
MAXIMUM_PCR_BANKS: Final = 3
"""One per accepted hash algorithm; a repeated bank is rejected."""
PCR_SELECT_BYTES: Final = 3
"""TPMS_PCR_SELECTION.sizeofSelect (Part 2, 10.6.2): 24 PCRs, as the PC Client Platform TPM Profile has."""
PCR_COUNT: Final = PCR_SELECT_BYTES * 8


class HashAlgorithm(enum.Enum):
    """TPMI_ALG_HASH (Part 2, 9.27): the accepted algorithms for names, signatures and PCR banks."""

    SHA256 = 0x000B
    SHA384 = 0x000C
    SHA512 = 0x000D

    @property
    def text(self) -> str:
        """The name in ``hashlib`` and in text."""
        return self.name.lower()

    @property
    def digest_bytes(self) -> int:
        """The size of a digest."""
        return _DIGEST_BYTES[self]


_DIGEST_BYTES: Final = {HashAlgorithm.SHA256: 32, HashAlgorithm.SHA384: 48, HashAlgorithm.SHA512: 64}


class SignatureAlgorithm(enum.Enum):
    """TPMI_ALG_SIG_SCHEME (Part 2, 11.2.1.5): the accepted schemes."""

    RSASSA = 0x0014
    RSAPSS = 0x0016
    ECDSA = 0x0018


class Curve(enum.Enum):
    """TPM_ECC_CURVE (Part 2, 6.4): the accepted curves."""

    NIST_P256 = 0x0003
    NIST_P384 = 0x0004
    NIST_P521 = 0x0005

    @property
    def coordinate_bytes(self) -> int:
        """The size of one coordinate."""
        return _COORDINATE_BYTES[self]


_COORDINATE_BYTES: Final = {Curve.NIST_P256: 32, Curve.NIST_P384: 48, Curve.NIST_P521: 66}


class ObjectAttribute(enum.IntFlag, boundary=enum.STRICT):
    """TPMA_OBJECT (Part 2, 8.3). Every other bit is reserved and must be zero."""

    FIXED_TPM = 1 << 1
    ST_CLEAR = 1 << 2
    FIXED_PARENT = 1 << 4
    SENSITIVE_DATA_ORIGIN = 1 << 5
    USER_WITH_AUTH = 1 << 6
    ADMIN_WITH_POLICY = 1 << 7
    NO_DA = 1 << 10
    ENCRYPTED_DUPLICATION = 1 << 11
    RESTRICTED = 1 << 16
    DECRYPT = 1 << 17
    SIGN_ENCRYPT = 1 << 18
    X509_SIGN = 1 << 19

    @property
    def spelled(self) -> str:
        """The attributes as the specification spells them, such as ``fixedTPM, restricted``."""
        return ", ".join(_SPELLINGS[attribute] for attribute in self)


_SPELLINGS: Final = {
    ObjectAttribute.FIXED_TPM: "fixedTPM",
    ObjectAttribute.ST_CLEAR: "stClear",
    ObjectAttribute.FIXED_PARENT: "fixedParent",
    ObjectAttribute.SENSITIVE_DATA_ORIGIN: "sensitiveDataOrigin",
    ObjectAttribute.USER_WITH_AUTH: "userWithAuth",
    ObjectAttribute.ADMIN_WITH_POLICY: "adminWithPolicy",
    ObjectAttribute.NO_DA: "noDA",
    ObjectAttribute.ENCRYPTED_DUPLICATION: "encryptedDuplication",
    ObjectAttribute.RESTRICTED: "restricted",
    ObjectAttribute.DECRYPT: "decrypt",
    ObjectAttribute.SIGN_ENCRYPT: "sign",
    ObjectAttribute.X509_SIGN: "x509sign",
}


ATTESTATION_KEY_REQUIRED: Final = (
    ObjectAttribute.FIXED_TPM
    | ObjectAttribute.FIXED_PARENT
    | ObjectAttribute.SENSITIVE_DATA_ORIGIN
    | ObjectAttribute.RESTRICTED
    | ObjectAttribute.SIGN_ENCRYPT
)
"""0x50032: the key was created in the TPM, never leaves it, and signs only TPM-generated data."""
ATTESTATION_KEY_FORBIDDEN: Final = (
    ObjectAttribute.DECRYPT
    | ObjectAttribute.ENCRYPTED_DUPLICATION
    | ObjectAttribute.ST_CLEAR
    | ObjectAttribute.X509_SIGN
)

ENDORSEMENT_KEY_LOW_RANGE: Final = (
    ObjectAttribute.FIXED_TPM
    | ObjectAttribute.FIXED_PARENT
    | ObjectAttribute.SENSITIVE_DATA_ORIGIN
    | ObjectAttribute.ADMIN_WITH_POLICY
    | ObjectAttribute.RESTRICTED
    | ObjectAttribute.DECRYPT
)
"""0x300b2: TCG EK Credential Profile for TPM Family 2.0, templates L-1 and L-2."""
ENDORSEMENT_KEY_HIGH_RANGE: Final = ENDORSEMENT_KEY_LOW_RANGE | ObjectAttribute.USER_WITH_AUTH
"""0x300f2: the same profile, templates H-1 and up."""

POLICY_A_SHA256: Final = bytes.fromhex("837197674484b3f81a90cc8d46a5d724fd52d76e06520b64f2a1da1b331469aa")
"""TPM2_PolicySecret(TPM_RH_ENDORSEMENT): the same profile, PolicyA."""
POLICY_B_SHA256: Final = bytes.fromhex("ca3d0a99a2b93906f7a3342414efcfb3a385d44cd1fd459089d19b5071c0b7a0")
"""TPM2_PolicyOR of PolicyA and of a policy that an owner authorises through an NV index: the same profile, PolicyB."""
POLICY_B_SHA384: Final = bytes.fromhex(
    "b26e7d28d11a50bc53d882bcf5fd3a1a074148bb35d3b4e4cb1c0ad9bde419cacb47ba09699646150f9fc000f3f80e12"
)
