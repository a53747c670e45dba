"""The keyed-mac attestor: a machine proves who it is with a key that it was given when it was set up.

This module is what the entry point names. It stays light: the controller and the node program import it to read
:data:`plugin`'s description, and each half is imported only when it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from attestors.contract import (
    Attestor,
    AttestorDescription,
    AttestorSettings,
    Freshness,
    Security,
    SettingsFinding,
)
from attestors.wire.evidence import Evidence

if TYPE_CHECKING:
    from keyed_mac.controller import KeyedMACServerPlugin
    from keyed_mac.node import KeyedMACAgentPlugin

__all__ = ["plugin"]


class KeyedMACAttestor:
    """The entry point; implements :class:`attestors.contract.Attestor`."""

    description = AttestorDescription(
        provider="keyed-mac", security=Security.SECURE, evidence_versions=("v1",), freshness=Freshness.TIMESTAMP
    )

    def server_plugin(self, settings: AttestorSettings) -> KeyedMACServerPlugin:
        """The half that verifies.

        Raises:
            InvalidSettings: ``masterKey`` is missing, or a setting is wrong or unknown.
        """
        from keyed_mac.controller import server_plugin_from

        return server_plugin_from(settings)

    def agent_plugin(self, settings: Mapping[str, str]) -> KeyedMACAgentPlugin:
        """The half that makes evidence.

        Raises:
            InvalidSettings: ``machine-key`` or ``provider-id`` is missing or wrong, or there is another setting.
        """
        from keyed_mac.node import agent_plugin_from

        return agent_plugin_from(settings)

    def check_operator_settings(self, operator: Mapping[str, Any], now: datetime) -> tuple[SettingsFinding, ...]:
        """Check the settings before the first request: no policy can complete them.

        Raises:
            InvalidSettings: as :meth:`server_plugin`.
        """
        self.server_plugin(AttestorSettings(operator=operator))
        return ()

    def redacted_fields(self, evidence: Evidence) -> Mapping[str, str]:
        """All of them: a MAC is good for the one key that it was made for, and for no other request."""
        return evidence.fields


plugin: Final[Attestor] = KeyedMACAttestor()
