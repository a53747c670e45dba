"""The agent plugin: makes evidence, on the node."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Final

from attestors.contract import EvidenceUnavailable, GatherRequest, InvalidSettings
from attestors.wire.binding import CACertHash
from attestors.wire.evidence import Evidence
from attestors.wire.provider_id import InvalidProviderID, check_provider_id
from keyed_mac.keys import MAC_FIELD, TIME_FIELD, compute_mac, key_from_setting, time_text

MACHINE_KEY_SETTING: Final = "machine-key"
PROVIDER_ID_SETTING: Final = "provider-id"
EVIDENCE_VERSION: Final = "v1"


def agent_plugin_from(settings: Mapping[str, str]) -> KeyedMACAgentPlugin:
    """The agent plugin with these settings.

    Raises:
        InvalidSettings: a setting is missing or wrong, or there is another.
    """
    if set(settings) != {MACHINE_KEY_SETTING, PROVIDER_ID_SETTING}:
        raise InvalidSettings(f"the keyed-mac attestor needs {MACHINE_KEY_SETTING}, {PROVIDER_ID_SETTING} and no other")
    try:
        provider_id = check_provider_id(settings[PROVIDER_ID_SETTING])
    except InvalidProviderID as error:
        raise InvalidSettings(f"{PROVIDER_ID_SETTING}: {error}") from error
    return KeyedMACAgentPlugin(key_from_setting(MACHINE_KEY_SETTING, settings[MACHINE_KEY_SETTING]), provider_id)


@dataclass(frozen=True, slots=True)
class KeyedMACAgentPlugin:
    """Implements :class:`attestors.contract.AgentPlugin`."""

    machine_key: bytes = field(repr=False)
    configured_provider_id: str

    def provider_id(self) -> str:
        """The configured provider ID: no platform could be asked."""
        return self.configured_provider_id

    def gather(self, request: GatherRequest) -> Evidence:
        """The MAC over the request's binding and the present time.

        Raises:
            EvidenceUnavailable: another evidence version or an answer to a challenge is asked for.
        """
        if request.evidence_version != EVIDENCE_VERSION:
            raise EvidenceUnavailable(f"the keyed-mac attestor writes evidence {EVIDENCE_VERSION} only; upgrade it")
        if request.challenge:
            raise EvidenceUnavailable("the keyed-mac attestor answers no challenges; does the controller run it too?")
        made_at = time_text(datetime.now(UTC))
        mac = compute_mac(self.machine_key, request.binding.value, made_at)
        return Evidence(
            EVIDENCE_VERSION,
            CACertHash(request.cluster),
            MappingProxyType({MAC_FIELD: base64.b64encode(mac).decode("ascii"), TIME_FIELD: made_at}),
        )
