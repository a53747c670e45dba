"""The keyed-mac attestor: a machine proves who it is with a key that it was given when it was set up.

This module is what the entry point names. It stays light: the controller and the node program import it to read
:data:`plugin`'s description, and each half is imported only when it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from attestors.contract import Attestor, AttestorDescription, AttestorSettings, Security
from attestors.wire.evidence import Evidence

if TYPE_CHECKING:
    from keyed_mac.controller import KeyedMACServerPlugin
    from keyed_mac.node import KeyedMACAgentPlugin

__all__ = ["plugin"]


class KeyedMACAttestor:
    """The entry point; implements :class:`attestors.contract.Attestor`."""

    description = AttestorDescription(
        provider="keyed-mac",
        security=Security.SECURE,
        evidence_versions=("v1",),
        renews=True,
        serves=True,
    )

    def server_plugin(self, settings: AttestorSettings) -> KeyedMACServerPlugin:
        """The half that verifies.

        Raises:
            InvalidSettings: ``masterKey`` is missing or wrong, or there is another setting.
        """
        from keyed_mac.controller import KeyedMACServerPlugin, master_key_from

        return KeyedMACServerPlugin(master_key_from(settings))

    def agent_plugin(self, settings: Mapping[str, str]) -> KeyedMACAgentPlugin:
        """The half that makes evidence.

        Raises:
            InvalidSettings: ``machine-key`` or ``provider-id`` is missing or wrong, or there is another setting.
        """
        from keyed_mac.node import agent_plugin_from

        return agent_plugin_from(settings)

    def redacted_fields(self, evidence: Evidence) -> Mapping[str, str]:
        """All of them: a MAC is good for the one key that it was made for, and for no other request."""
        return evidence.fields


plugin: Final[Attestor] = KeyedMACAttestor()
