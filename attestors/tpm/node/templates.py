"""The endorsement key templates, and how their policies are satisfied.

Source: TCG EK Credential Profile for TPM Family 2.0 (version 2.5; B.3 and B.4 the templates, B.6 the policies, 2.2.1.4
the NV indices).
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from attestors.tpm.constants import HashAlgorithm

_TPM_RH_ENDORSEMENT: Final = (0x4000000B).to_bytes(4, "big")
_TPM_CC_POLICY_SECRET: Final = (0x00000151).to_bytes(4, "big")
_TPM_CC_POLICY_OR: Final = (0x00000171).to_bytes(4, "big")


@dataclass(frozen=True, slots=True)
class EndorsementChoice:
    """One of the profile's endorsement keys, for which a TPM may have a certificate."""

    name: str
    """Its name in the setting."""
    title: str
    """The template's name in the profile and in tpm2-pytss."""
    certificate_index: int
    """The NV index of its certificate."""


ENDORSEMENT_CHOICES: Final = (
    EndorsementChoice("rsa-2048", "L-1", 0x01C00002),
    EndorsementChoice("ecc-p256", "L-2", 0x01C0000A),
    EndorsementChoice("high-rsa-2048", "H-1", 0x01C00012),
    EndorsementChoice("high-ecc-p256", "H-2", 0x01C00014),
    EndorsementChoice("high-ecc-p384", "H-3", 0x01C00016),
    EndorsementChoice("high-rsa-3072", "H-6", 0x01C0001C),
    EndorsementChoice("high-rsa-4096", "H-7", 0x01C0001E),
)
"""In the order in which certificates are searched."""

FIRST_ENDORSEMENT_INDEX: Final = 0x01C00000
FIRST_CHAIN_INDEX: Final = 0x01C00100
LAST_CHAIN_INDEX: Final = 0x01C001FF
"""Certificates of the authorities above the endorsement key's, concatenated over as many indices as needed."""

FIRST_PERSISTENT_HANDLE: Final = 0x81010000
LAST_PERSISTENT_HANDLE: Final = 0x8101FFFF
"""Handles reserved for persistent endorsement keys (TCG Registry of Reserved TPM 2.0 Handles, 2.3.1)."""

_POLICY_C: Final = MappingProxyType(
    {
        HashAlgorithm.SHA256: bytes.fromhex("3767e2edd43ff45a3a7e1eaefcef78643dca964632e7aad82c673a30d8633fde"),
        HashAlgorithm.SHA384: bytes.fromhex(
            "d6032ce61f2fb3c240eb3cf6a33237ef2b6a16f4293c22b455e261cffd217ad5b4947c2d73e63005eed2dc2b3593d165"
        ),
    }
)
"""TPM2_PolicyAuthorizeNV with the profile's NV index: what an owner may authorise in addition; not used here."""


class UnknownPolicy(ValueError):
    """The key's policy is not one of the profile, so it cannot be satisfied."""


@dataclass(frozen=True, slots=True)
class PolicyAuthorization:
    """How a session satisfies an endorsement key's policy: TPM2_PolicySecret, and for PolicyB also TPM2_PolicyOR."""

    hash_algorithm: HashAlgorithm
    alternatives: tuple[bytes, ...]
    """The branches for TPM2_PolicyOR; empty if TPM2_PolicySecret alone suffices."""


def authorization(policy: bytes) -> PolicyAuthorization:
    """How to satisfy ``policy``, the authPolicy of an endorsement key.

    Raises:
        UnknownPolicy: it is neither PolicyA nor PolicyB.
    """
    try:
        return _AUTHORIZATIONS[policy]
    except KeyError:
        raise UnknownPolicy("neither PolicyA nor PolicyB of the EK Credential Profile") from None


def _policy_a(algorithm: HashAlgorithm) -> bytes:
    """The digest after TPM2_PolicySecret(TPM_RH_ENDORSEMENT) with an empty reference (Part 3, 23.4)."""
    secret = _TPM_CC_POLICY_SECRET + _TPM_RH_ENDORSEMENT
    extended = hashlib.new(algorithm.text, bytes(algorithm.digest_bytes) + secret).digest()
    return hashlib.new(algorithm.text, extended).digest()


def _policy_b(algorithm: HashAlgorithm) -> bytes:
    """The digest after TPM2_PolicyOR of PolicyA and PolicyC (Part 3, 23.6)."""
    branches = _policy_a(algorithm) + _POLICY_C[algorithm]
    return hashlib.new(algorithm.text, bytes(algorithm.digest_bytes) + _TPM_CC_POLICY_OR + branches).digest()


def _authorizations() -> Mapping[bytes, PolicyAuthorization]:
    known = {}
    for algorithm, policy_c in _POLICY_C.items():
        policy_a = _policy_a(algorithm)
        known[policy_a] = PolicyAuthorization(algorithm, ())
        known[_policy_b(algorithm)] = PolicyAuthorization(algorithm, (policy_a, policy_c))
    return MappingProxyType(known)


_AUTHORIZATIONS: Final = _authorizations()
