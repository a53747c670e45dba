"""The settings of the controller half: the operator's, and what a cluster's policy may add."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from attestors.contract import AttestorSettings, InvalidSettings
from attestors.tpm.constants import HashAlgorithm
from attestors.tpm.endorsement import AuthoritiesUnreadable, EndorsementAuthorities, load_endorsement_authorities
from attestors.tpm.quote import ANY_PCR_VALUES, PCRPolicy
from attestors.tpm.selection import PCR, InvalidPCRSelection, PCRSelection

ROOTS_SETTING: Final = "endorsementRootsFolder"
INTERMEDIATES_SETTING: Final = "endorsementIntermediatesFolder"
ACCEPT_EXPIRED_SETTING: Final = "acceptExpiredAuthorities"
DENIED_SETTING: Final = "deniedEndorsementKeys"
PCRS_SETTING: Final = "pcrs"

_OPERATORS: Final = frozenset({ROOTS_SETTING, INTERMEDIATES_SETTING, ACCEPT_EXPIRED_SETTING, DENIED_SETTING})
_POLICYS: Final = frozenset({PCRS_SETTING})
_DEFAULT_SELECTION: Final = "sha256:0,1,2,3,4,5,6,7"
"""Firmware, its configuration, boot loader and Secure Boot state (TCG PC Client Platform Firmware Profile)."""
_ENDORSEMENT_KEY: Final = re.compile(r"sha256:[0-9a-f]{64}")
_REGISTER: Final = re.compile(r"(?P<bank>sha256|sha384|sha512):(?P<index>[0-9]|1[0-9]|2[0-3])")
_MAXIMUM_DIGESTS: Final = 64
_MAXIMUM_FILE_BYTES: Final = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class NoAuthorities:
    """The operator configured none: an EK certificate is not asked for, whose EK it is says the Machine."""


@dataclass(frozen=True, slots=True)
class TPMSettings:
    """What the controller half judges by."""

    authorities: EndorsementAuthorities | NoAuthorities
    denied: frozenset[str]
    """Endorsement keys that are not let in any more, ``sha256:`` and hexadecimal digits of the SubjectPublicKeyInfo."""
    selection: PCRSelection
    pcr_policy: PCRPolicy

    @classmethod
    def parse(cls, settings: AttestorSettings) -> TPMSettings:
        """Read the settings. A policy may only add what registers must hold; it can open nothing.

        Raises:
            InvalidSettings: a setting is wrong or unknown, or a file of an authority cannot be read.
        """
        _only(settings.operator, _OPERATORS, "the operator's settings")
        _only(settings.policy, _POLICYS, "a policy's settings")
        selection, policy = _registers(settings.policy.get(PCRS_SETTING, {}))
        return cls(_authorities(settings.operator), _denied(settings.operator), selection, policy)


def _only(given: Mapping[str, Any], known: frozenset[str], what: str) -> None:
    unknown = set(given) - known
    if unknown:
        raise InvalidSettings(f"{what} of the TPM attestor have no {min(unknown)!r}, only {', '.join(sorted(known))}")


def _authorities(operator: Mapping[str, Any]) -> EndorsementAuthorities | NoAuthorities:
    if ROOTS_SETTING not in operator:
        if INTERMEDIATES_SETTING in operator or ACCEPT_EXPIRED_SETTING in operator:
            raise InvalidSettings(f"{ROOTS_SETTING} is missing: intermediates alone vouch for nothing")
        return NoAuthorities()
    accept_expired = operator.get(ACCEPT_EXPIRED_SETTING, False)
    if not isinstance(accept_expired, bool):
        raise InvalidSettings(f"{ACCEPT_EXPIRED_SETTING} must be true or false")
    try:
        return load_endorsement_authorities(
            roots=_files(ROOTS_SETTING, operator[ROOTS_SETTING]),
            intermediates=_files(INTERMEDIATES_SETTING, operator[INTERMEDIATES_SETTING])
            if INTERMEDIATES_SETTING in operator
            else (),
            accept_expired=accept_expired,
        )
    except AuthoritiesUnreadable as error:
        raise InvalidSettings(f"endorsement authorities: {error}") from error


def _files(name: str, folder: Any) -> list[bytes]:
    """Every file of the folder, in the order of names; hidden ones are left out (``..data`` of mounted ConfigMaps)."""
    if not isinstance(folder, str) or not folder.startswith("/"):
        raise InvalidSettings(f"{name} must be the absolute path of a folder")
    try:
        found = sorted(path for path in Path(folder).iterdir() if path.is_file() and not path.name.startswith("."))
        contents = [path.read_bytes()[: _MAXIMUM_FILE_BYTES + 1] for path in found]
    except OSError as error:
        raise InvalidSettings(f"{name}: {error.filename or folder}: {error.strerror}") from error
    if not contents:
        raise InvalidSettings(f"{name}: {folder} holds no file")
    if sum(map(len, contents)) > _MAXIMUM_FILE_BYTES:
        raise InvalidSettings(f"{name}: {folder} holds more than {_MAXIMUM_FILE_BYTES} bytes")
    return contents


def _denied(operator: Mapping[str, Any]) -> frozenset[str]:
    denied = operator.get(DENIED_SETTING, [])
    if not isinstance(denied, list) or not all(
        isinstance(one, str) and _ENDORSEMENT_KEY.fullmatch(one) for one in denied
    ):
        raise InvalidSettings(f"{DENIED_SETTING} must be a list of sha256: and 64 lower-case hexadecimal digits")
    return frozenset(denied)


def _registers(registers: Any) -> tuple[PCRSelection, PCRPolicy]:
    """``{"sha256:7": ["<hex>", ...]}``: what is named is quoted, and must have one of these values."""
    if not isinstance(registers, dict):
        raise InvalidSettings(f"{PCRS_SETTING} must be an object such as {{'sha256:7': ['<digest in hexadecimal>']}}")
    if not registers:
        return PCRSelection.parse(_DEFAULT_SELECTION), ANY_PCR_VALUES
    allowed = {_register(name): _digests(name, digests) for name, digests in registers.items()}
    banks: dict[HashAlgorithm, list[int]] = {}
    for pcr in sorted(allowed, key=lambda pcr: (pcr.bank.name, pcr.index)):
        banks.setdefault(pcr.bank, []).append(pcr.index)
    text = "+".join(f"{bank.name.lower()}:{','.join(map(str, indices))}" for bank, indices in banks.items())
    try:
        return PCRSelection.parse(text), PCRPolicy(allowed)
    except (InvalidPCRSelection, ValueError) as error:
        raise InvalidSettings(f"{PCRS_SETTING}: {error}") from error


def _register(name: object) -> PCR:
    found = _REGISTER.fullmatch(name) if isinstance(name, str) else None
    if found is None:
        raise InvalidSettings(f"{PCRS_SETTING}: a register is named as sha256:7, from 0 to 23; SHA-1 banks are refused")
    return PCR(HashAlgorithm[found["bank"].upper()], int(found["index"]))


def _digests(name: str, digests: Any) -> frozenset[bytes]:
    if not isinstance(digests, list) or not 0 < len(digests) <= _MAXIMUM_DIGESTS:
        raise InvalidSettings(f"{PCRS_SETTING}: {name} must be a list of 1 to {_MAXIMUM_DIGESTS} digests")
    try:
        return frozenset(bytes.fromhex(digest) for digest in digests)
    except (TypeError, ValueError):
        raise InvalidSettings(f"{PCRS_SETTING}: {name} holds something that is no digest in hexadecimal") from None
