"""The TPM attestor: proves which TPM 2.0 chip a request comes from.

The entry point names :data:`plugin`, whose import is light: the server plugin needs no TPM library, and only the agent
plugin imports one.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from attestors.contract import (
    AttestorDescription,
    AttestorSettings,
    Freshness,
    ReasonExplanation,
    Security,
    SettingsFinding,
)
from attestors.wire.evidence import Evidence

if TYPE_CHECKING:
    from attestors.tpm.controller import TPMServerPlugin
    from attestors.tpm.node.plugin import TPMAgentPlugin

__all__ = ["plugin"]


class TPMAttestor:
    """Implements :class:`attestors.contract.Attestor`."""

    description = AttestorDescription(
        provider="tpm",
        security=Security.SECURE,
        evidence_versions=("v1",),
        freshness=Freshness.CHALLENGE,
        attests_without_provider_id=True,
    )

    def server_plugin(self, settings: AttestorSettings) -> TPMServerPlugin:
        """Build the server plugin, which challenges and verifies.

        Raises:
            InvalidSettings: a setting is wrong or unknown, or a file of an endorsement authority cannot be read.
        """
        from attestors.tpm.controller import TPMServerPlugin
        from attestors.tpm.settings import TPMSettings

        return TPMServerPlugin(TPMSettings.parse(settings), settings.challenge_keys)

    def check_operator_settings(self, operator: Mapping[str, Any], now: datetime) -> tuple[SettingsFinding, ...]:
        """The endorsement authorities in the operator's folders (:class:`attestors.contract.ChecksOperatorSettings`).

        Raises:
            InvalidSettings: a setting is wrong or unknown, or a file of an endorsement authority cannot be read.
        """
        from attestors.tpm.settings import check_operator_settings

        return check_operator_settings(operator, now)

    def agent_plugin(self, settings: Mapping[str, str]) -> TPMAgentPlugin:
        """Build the agent plugin, which uses this machine's TPM.

        Raises:
            InvalidSettings: a setting is wrong or unknown.
            ImportError: tpm2-pytss is not installed (extra ``tpm``).
        """
        from attestors.tpm.node.plugin import agent_plugin_from

        return agent_plugin_from(settings)

    def explanations(self) -> Mapping[str, ReasonExplanation]:
        """Cause and remedy of its reasons (:class:`attestors.contract.ExplainsReasons`)."""
        from attestors.tpm.reasons import EXPLANATIONS

        return EXPLANATIONS

    def redacted_fields(self, evidence: Evidence) -> Mapping[str, str]:
        """All fields as they are: public keys, certificates, and a quote that is good for one request only."""
        return evidence.fields


plugin: Final = TPMAttestor()
