"""Whose endorsement key it is.

A certificate says "some genuine TPM", a quote "the TPM that has this endorsement key". Which machine that TPM is in,
only whoever manages the hardware can say: here, in an annotation of the Machine.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from typing import Final, TypeAlias

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.types import PublicKeyTypes
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_der_public_key

from attestors.contract import ClaimedMachine, NoClaimedMachine
from attestors.tpm.attestation_key import EndorsementKey
from attestors.wire.names import ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION

_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")
_PEM: Final = re.compile(r"-----BEGIN PUBLIC KEY-----\s(?P<body>[A-Za-z0-9+/=\s]+)-----END PUBLIC KEY-----\s*")


@dataclass(frozen=True, slots=True)
class Owned:
    """The Machine's own TPM."""


@dataclass(frozen=True, slots=True)
class OwnedByOthers:
    """The Machine has another TPM."""

    machine: str


@dataclass(frozen=True, slots=True)
class NotSaid:
    """Nobody has said yet which TPM is in the Machine, or the annotation cannot be read."""

    message: str


Ownership: TypeAlias = Owned | OwnedByOthers | NotSaid


def fingerprint(endorsement_key: EndorsementKey) -> str:
    """``sha256:`` and the SHA-256 of the key's SubjectPublicKeyInfo (DER), in hexadecimal.

    What ``openssl pkey -pubin -outform DER | sha256sum`` says of the key that ``tpm2_readpublic -f pem`` writes.
    """
    return _fingerprint_of(endorsement_key.key)


def _fingerprint_of(key: PublicKeyTypes) -> str:
    info = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return f"sha256:{hashlib.sha256(info).hexdigest()}"


def ownership(machine: ClaimedMachine | NoClaimedMachine, endorsement_key: EndorsementKey) -> Ownership:
    """Whether the claimed Machine has that TPM."""
    if isinstance(machine, NoClaimedMachine):
        return NotSaid("no Machine has this provider ID yet, so nobody has said which TPM is in it")
    said = machine.annotations.get(ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION)
    if said is None:
        return NotSaid(
            f"Machine {machine.name} has no annotation {ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION}, which says which TPM "
            "is in it: set it to the endorsement key, or its SHA-256, as the hardware's inventory has it"
        )
    try:
        expected = _fingerprint_said(said)
    except ValueError:
        return NotSaid(
            f"annotation {ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION} of Machine {machine.name} is neither sha256: with 64 "
            "lower-case hexadecimal digits nor a public key in PEM"
        )
    return Owned() if expected == fingerprint(endorsement_key) else OwnedByOthers(machine.name)


def _fingerprint_said(said: str) -> str:
    if _DIGEST.fullmatch(said):
        return said
    found = _PEM.fullmatch(said)
    if found is None:
        raise ValueError("neither a digest nor a key")
    try:
        key = load_der_public_key(base64.b64decode("".join(found["body"].split()), validate=True))
    except (binascii.Error, UnsupportedAlgorithm) as error:
        raise ValueError("no key") from error
    return _fingerprint_of(key)
