"""Settings of the server plugin: the operator's, and those that a cluster's policy may set."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from attestors.clouds.google import GoogleAccess, parse_projects
from attestors.clouds.google.settings import ACCESS_SETTINGS
from attestors.contract import AttestorSettings, InvalidSettings, SettingsFinding
from attestors.tpm.attestation_key import ENDORSEMENT_TEMPLATES
from attestors.tpm.constants import HashAlgorithm
from attestors.tpm.endorsement import EndorsementAuthorities
from attestors.tpm.endorsement_key_sources import SourceName, SourcesInOrder
from attestors.tpm.operator_files import (
    OperatorFile,
    OperatorFileUnusable,
    OperatorFolder,
    WatchedFiles,
    absolute_path,
)
from attestors.tpm.presented_keys import AcceptedKeys
from attestors.tpm.quote import ANY_PCR_VALUES, PCRPolicy
from attestors.tpm.selection import PCR, PCRSelection
from attestors.tpm.source_settings import (
    INVENTORY_SETTING,
    SOURCES_SETTING,
    FirstUse,
    OperatorAllows,
    ShieldedVMs,
    parse_sources,
)
from attestors.tpm.trust import (
    DENIED,
    NoAuthorities,
    NotConfigured,
    OperatorTrust,
    TrustFromFiles,
    watched_authorities,
    watched_denied_keys,
)

ROOTS_SETTING: Final = "endorsementRootsFolder"
INTERMEDIATES_SETTING: Final = "endorsementIntermediatesFolder"
ACCEPT_EXPIRED_SETTING: Final = "acceptExpiredAuthorities"
DENIED_SETTING: Final = "deniedEndorsementKeys"
DENIED_FILE_SETTING: Final = "deniedEndorsementKeysFile"
TEMPLATES_SETTING: Final = "endorsementKeyTemplates"
CHIPS_SETTING: Final = "subjectsNameChips"
UNCERTIFIED_SETTING: Final = "allowUncertifiedEndorsementKeys"
FIRST_USE_SETTING: Final = "allowTrustOnFirstUse"
SHIELDED_PROJECTS_SETTING: Final = "shieldedVMProjects"
GOOGLE_SETTING: Final = "googleCloud"
PCRS_SETTING: Final = "pcrs"

_OPERATOR_SETTINGS: Final = frozenset(
    {
        ROOTS_SETTING,
        INTERMEDIATES_SETTING,
        ACCEPT_EXPIRED_SETTING,
        DENIED_SETTING,
        DENIED_FILE_SETTING,
        TEMPLATES_SETTING,
        CHIPS_SETTING,
        UNCERTIFIED_SETTING,
        FIRST_USE_SETTING,
        SHIELDED_PROJECTS_SETTING,
        GOOGLE_SETTING,
    }
)
_POLICY_SETTINGS: Final = frozenset({PCRS_SETTING, SOURCES_SETTING, INVENTORY_SETTING})
_DEFAULT_SELECTION: Final = "sha256:0,1,2,3,4,5,6,7"
"""Firmware, its configuration, boot loader and Secure Boot state (TCG PC Client Platform Firmware Profile)."""
_REGISTER: Final = re.compile(r"(?P<bank>sha256|sha384|sha512):(?P<index>[0-9]|1[0-9]|2[0-3])")
_MAXIMUM_DIGESTS: Final = 64
_NAMED: Final = 3
"""Of expired authorities, in a message."""


@dataclass(frozen=True, slots=True)
class TPMSettings:
    """The parsed settings of the server plugin."""

    trust: OperatorTrust = field(compare=False)
    accepted: AcceptedKeys
    """The endorsement keys that count, and what names their chips."""
    sources: SourcesInOrder
    """Endorsement key sources, in the cluster's order of preference."""
    selection: PCRSelection
    pcr_policy: PCRPolicy

    @classmethod
    def parse(cls, settings: AttestorSettings) -> TPMSettings:
        """Parse the settings.

        A policy selects the sources of endorsement keys and the required register values. It cannot allow anything that
        the operator does not allow.

        Raises:
            InvalidSettings: a setting is wrong or unknown, or an operator's file cannot be used.
        """
        _reject_unknown(settings.operator, _OPERATOR_SETTINGS, "the operator's settings")
        _reject_unknown(settings.policy, _POLICY_SETTINGS, "a policy's settings")
        trust = _trust(settings.operator)
        sources = parse_sources(settings.policy, _allows(settings.operator))
        _require_genuine(settings.operator, sources)
        return cls(trust, _accepted(settings.operator), sources, *_registers(settings.policy.get(PCRS_SETTING, {})))


def check_operator_settings(operator: Mapping[str, Any], now: datetime) -> tuple[SettingsFinding, ...]:
    """Check the operator's settings under the policy that asks the least of them.

    Raises:
        InvalidSettings: a setting is wrong or unknown, or an operator's file cannot be used.
    """
    only_shielded = {SOURCES_SETTING: [SourceName.GCP_SHIELDED_VM.value]}
    policy = only_shielded if SHIELDED_PROJECTS_SETTING in operator and ROOTS_SETTING not in operator else {}
    settings = TPMSettings.parse(AttestorSettings(operator, policy))
    try:
        return _authorities_found(settings.trust.current().authorities, now)
    except OperatorFileUnusable as error:
        raise InvalidSettings(str(error)) from error


def _authorities_found(
    authorities: EndorsementAuthorities | NoAuthorities, now: datetime
) -> tuple[SettingsFinding, ...]:
    """How many authorities there are, and which of them do not count because they expired."""
    if isinstance(authorities, NoAuthorities):
        return (SettingsFinding(ROOTS_SETTING, "not set: endorsement keys need no certificate"),)
    found = []
    for setting, group in (
        (ROOTS_SETTING, authorities.roots),
        (INTERMEDIATES_SETTING, authorities.intermediates),
    ):
        certificates = [certificate for of_subject in group.values() for certificate in of_subject]
        expired = sorted(one.subject.text for one in certificates if one.not_after < now)
        if certificates:
            found.append(SettingsFinding(setting, f"certificates: {len(certificates)}, expired: {len(expired)}"))
        if expired and not authorities.accept_expired:
            more = f" and {len(expired) - _NAMED} more" if len(expired) > _NAMED else ""
            found.append(
                SettingsFinding(
                    setting,
                    f"expired, so that chips below them are refused: {'; '.join(expired[:_NAMED])}{more}",
                    f"replace these certificates or remove them; or set {ACCEPT_EXPIRED_SETTING}: true",
                )
            )
    return tuple(found)


def _reject_unknown(given: Mapping[str, Any], known: frozenset[str], what: str) -> None:
    unknown = set(given) - known
    if unknown:
        raise InvalidSettings(f"{what} of the TPM attestor have no {min(unknown)!r}, only {', '.join(sorted(known))}")


def _trust(operator: Mapping[str, Any]) -> TrustFromFiles:
    """Reads the files once, so that mistakes surface before the first request."""
    trust = TrustFromFiles(_authorities(operator), _denied_file(operator), _denied(operator))
    try:
        trust.current()
    except OperatorFileUnusable as error:
        raise InvalidSettings(str(error)) from error
    return trust


def _authorities(operator: Mapping[str, Any]) -> WatchedFiles[EndorsementAuthorities] | NoAuthorities:
    if ROOTS_SETTING not in operator:
        if INTERMEDIATES_SETTING in operator or ACCEPT_EXPIRED_SETTING in operator:
            raise InvalidSettings(f"{ROOTS_SETTING} is missing: intermediates need a root")
        return NoAuthorities()
    intermediates = _folder(operator, INTERMEDIATES_SETTING) if INTERMEDIATES_SETTING in operator else NotConfigured()
    accept_expired = _boolean(operator, ACCEPT_EXPIRED_SETTING)
    return watched_authorities(_folder(operator, ROOTS_SETTING), intermediates, accept_expired)


def _denied_file(operator: Mapping[str, Any]) -> WatchedFiles[frozenset[str]] | NotConfigured:
    if DENIED_FILE_SETTING not in operator:
        return NotConfigured()
    try:
        path = absolute_path(operator[DENIED_FILE_SETTING])
    except ValueError as error:
        raise InvalidSettings(f"{DENIED_FILE_SETTING} must be the absolute path of a file") from error
    return watched_denied_keys(OperatorFile(DENIED_FILE_SETTING, path))


def _folder(operator: Mapping[str, Any], setting: str) -> OperatorFolder:
    try:
        return OperatorFolder(setting, absolute_path(operator[setting]))
    except ValueError as error:
        raise InvalidSettings(f"{setting} must be the absolute path of a folder") from error


def _allows(operator: Mapping[str, Any]) -> OperatorAllows:
    return OperatorAllows(_first_use(operator), _shielded_vms(operator))


def _shielded_vms(operator: Mapping[str, Any]) -> ShieldedVMs | NotConfigured:
    if SHIELDED_PROJECTS_SETTING not in operator:
        if GOOGLE_SETTING in operator:
            raise InvalidSettings(f"{SHIELDED_PROJECTS_SETTING} is missing: without it Google is not called")
        return NotConfigured()
    access = operator.get(GOOGLE_SETTING, {})
    if not isinstance(access, dict):
        raise InvalidSettings(f"{GOOGLE_SETTING} must be an object of {', '.join(sorted(ACCESS_SETTINGS))}")
    try:
        parsed = GoogleAccess.parse(access)
    except InvalidSettings as error:
        raise InvalidSettings(f"{GOOGLE_SETTING}: {error}") from error
    return ShieldedVMs(parsed, parse_projects(operator[SHIELDED_PROJECTS_SETTING], SHIELDED_PROJECTS_SETTING))


def _first_use(operator: Mapping[str, Any]) -> FirstUse:
    if not _boolean(operator, FIRST_USE_SETTING):
        return FirstUse.NOT_ALLOWED
    return FirstUse.ALLOWED if ROOTS_SETTING in operator else FirstUse.WITHOUT_AUTHORITIES


def _boolean(operator: Mapping[str, Any], setting: str) -> bool:
    value = operator.get(setting, False)
    if not isinstance(value, bool):
        raise InvalidSettings(f"{setting} must be true or false")
    return value


def _require_genuine(operator: Mapping[str, Any], sources: SourcesInOrder) -> None:
    """Something says that endorsement keys are in TPMs: certificates, the maker of the TPMs, or the operator.

    A program can play a TPM. With none of these, a Machine could be attested by a key in a file.
    """
    allowed = _boolean(operator, UNCERTIFIED_SETTING)
    if ROOTS_SETTING in operator:
        if allowed:
            raise InvalidSettings(
                f"{UNCERTIFIED_SETTING} is true beside {ROOTS_SETTING}, which requires certificates: remove one of them"
            )
        return
    if not (allowed or all(source.name is SourceName.GCP_SHIELDED_VM for source in sources.sources)):
        raise InvalidSettings(
            f"{ROOTS_SETTING} is missing, so a program could play a TPM: set it; or, if whoever names endorsement keys "
            f"takes them from genuine TPMs only, set {UNCERTIFIED_SETTING}: true"
        )


def _accepted(operator: Mapping[str, Any]) -> AcceptedKeys:
    chips = _boolean(operator, CHIPS_SETTING)
    if chips and ROOTS_SETTING not in operator:
        raise InvalidSettings(f"{ROOTS_SETTING} is missing: {CHIPS_SETTING} is about verified certificates")
    if TEMPLATES_SETTING not in operator:
        return AcceptedKeys(subjects_name_chips=chips)
    known = [template.name for template in ENDORSEMENT_TEMPLATES]
    given = operator[TEMPLATES_SETTING]
    if not isinstance(given, list) or not given or not all(isinstance(one, str) and one in known for one in given):
        raise InvalidSettings(f"{TEMPLATES_SETTING} must be a list of some of {', '.join(known)}")
    return AcceptedKeys(frozenset(given), chips)


def _denied(operator: Mapping[str, Any]) -> frozenset[str]:
    denied = operator.get(DENIED_SETTING, [])
    if not isinstance(denied, list) or not all(isinstance(one, str) and DENIED.fullmatch(one) for one in denied):
        raise InvalidSettings(
            f"{DENIED_SETTING} must be a list of sha256: or chip:sha256: and 64 lower-case hexadecimal digits"
        )
    return frozenset(denied)


def _registers(registers: Any) -> tuple[PCRSelection, PCRPolicy]:
    """``{"sha256:7": ["<hex>", ...]}``: each named register is quoted and must have one of these values."""
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
    except ValueError as error:
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
        raise InvalidSettings(f"{PCRS_SETTING}: {name} holds a value that is not a digest in hexadecimal") from None
