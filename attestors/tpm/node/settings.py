"""Settings of the agent plugin: TPM, endorsement key and provider ID."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from attestors.contract import InvalidSettings
from attestors.tpm.node.templates import ENDORSEMENT_CHOICES, EndorsementChoice
from attestors.wire.provider_id import InvalidProviderID, check_provider_id

TCTI_SETTING: Final = "tcti"
ENDORSEMENT_KEY_SETTING: Final = "ek"
PROVIDER_ID_SETTING: Final = "provider-id"
SETTINGS: Final = (TCTI_SETTING, ENDORSEMENT_KEY_SETTING, PROVIDER_ID_SETTING)

# tpm2-tss would load any shared object or, with "cmd", run any program that the text names.
_TCTI: Final = re.compile(r"(device|swtpm|mssim|tabrmd)(:[\x21-\x7e]{1,255})?")


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """The configured settings; ``None`` for one that is not set."""

    tcti: str | None
    """How tpm2-tss reaches the TPM, such as ``device:/dev/tpmrm0``; ``None``: this machine's device."""
    endorsement_choice: EndorsementChoice | None
    """``None``: the first template for which the TPM has a certificate."""
    provider_id: str | None
    """``None``: the program's own setting applies."""

    @classmethod
    def parse(cls, settings: Mapping[str, str]) -> NodeSettings:
        """Parse the settings.

        Raises:
            InvalidSettings: a setting is wrong or unknown.
        """
        unknown = set(settings) - set(SETTINGS)
        if unknown:
            raise InvalidSettings(f"the TPM attestor has no setting {min(unknown)!r}, only {', '.join(SETTINGS)}")
        return cls(
            _tcti(settings[TCTI_SETTING]) if TCTI_SETTING in settings else None,
            _choice(settings[ENDORSEMENT_KEY_SETTING]) if ENDORSEMENT_KEY_SETTING in settings else None,
            _provider_id(settings[PROVIDER_ID_SETTING]) if PROVIDER_ID_SETTING in settings else None,
        )


def _tcti(text: str) -> str:
    if not _TCTI.fullmatch(text):
        raise InvalidSettings(
            f"{TCTI_SETTING} is device, tabrmd, swtpm or mssim, optionally with a colon and an address, such as "
            "device:/dev/tpmrm0 or swtpm:host=127.0.0.1,port=2321"
        )
    return text


def _choice(text: str) -> EndorsementChoice:
    for choice in ENDORSEMENT_CHOICES:
        if choice.name == text:
            return choice
    names = ", ".join(choice.name for choice in ENDORSEMENT_CHOICES)
    raise InvalidSettings(f"{ENDORSEMENT_KEY_SETTING} is one of {names}; by default the TPM's certificates decide")


def _provider_id(text: str) -> str:
    try:
        return check_provider_id(text)
    except InvalidProviderID as error:
        raise InvalidSettings(f"{PROVIDER_ID_SETTING}: {error}") from error
