"""The composite attestor: one request proves several attestors at once.

Its parts are other installed attestors. Each verifies its part of the evidence with its own server plugin, for the very
same request. The entry point names :data:`plugin`, whose import is light.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from attestors.contract import (
    AttestorDescription,
    AttestorSettings,
    Auditable,
    Freshness,
    ReasonExplanation,
    Security,
    SettingsFinding,
    digest_of,
)
from attestors.contract.composite import COMPOSITE_PROVIDER
from attestors.registry import AttestorUnavailable, Registry
from attestors.wire.evidence import Evidence, MalformedEvidence

if TYPE_CHECKING:
    from attestors.composite.controller import CompositeServerPlugin
    from attestors.composite.node.plugin import CompositeAgentPlugin

__all__ = ["CompositeAttestor", "plugin"]


class CompositeAttestor:
    """Implements :class:`attestors.contract.Attestor`.

    Args:
        registry: where its parts are found; by default the installed attestors.
    """

    description = AttestorDescription(
        provider=COMPOSITE_PROVIDER,
        security=Security.SECURE,
        evidence_versions=("v1",),
        # Every part knows that its own evidence is fresh. A part that needs a challenge issues one.
        freshness=Freshness.TIMESTAMP,
    )

    def __init__(self, registry: Callable[[], Registry] = Registry) -> None:
        self._registry = registry

    def server_plugin(self, settings: AttestorSettings) -> CompositeServerPlugin:
        """Build the server plugin, with those of its parts.

        Raises:
            InvalidSettings: a setting is missing, wrong or unknown, or an attestor cannot be a part.
        """
        from attestors.composite.controller import CompositeServerPlugin
        from attestors.composite.parts import server_parts

        return CompositeServerPlugin(server_parts(settings, self._registry()))

    def check_operator_settings(self, operator: Mapping[str, Any], now: datetime) -> tuple[SettingsFinding, ...]:
        """Check the parts' settings (:class:`attestors.contract.ChecksOperatorSettings`).

        Raises:
            InvalidSettings: a setting is missing, wrong or unknown, or an attestor cannot be a part.
        """
        from attestors.composite.parts import check_parts

        return check_parts(operator, self._registry(), now)

    def agent_plugin(self, settings: Mapping[str, str]) -> CompositeAgentPlugin:
        """Build the agent plugin, with those of its parts.

        Raises:
            InvalidSettings: a setting is missing, wrong or unknown, or an attestor cannot be a part.
        """
        from attestors.composite.node.plugin import agent_plugin_from

        return agent_plugin_from(settings, self._registry())

    def explanations(self) -> Mapping[str, ReasonExplanation]:
        """Cause and remedy of its own reasons (:class:`attestors.contract.ExplainsReasons`)."""
        from attestors.composite.reasons import EXPLANATIONS

        return EXPLANATIONS

    def redacted_fields(self, evidence: Evidence) -> Mapping[str, str]:
        """The fields as each part redacts its own; a field of no part is replaced whole.

        See :class:`attestors.contract.Auditable`.
        """
        from attestors.composite.wire import join_evidence, part_of, split_evidence

        names = sorted({part_of(name) for name in evidence.fields})
        try:
            parts = split_evidence(evidence, names)
        except MalformedEvidence:
            parts = {}
        if not parts or "" in parts:  # a field without a part's name
            return {name: digest_of(value) for name, value in evidence.fields.items()}
        redacted = {name: self._redacted(name, part) for name, part in parts.items()}
        if all(redacted[name] is part.fields for name, part in parts.items()):
            return evidence.fields
        kept = {name: Evidence(evidence.version, evidence.cluster, fields) for name, fields in redacted.items()}
        return join_evidence(evidence, kept).fields

    def _redacted(self, name: str, evidence: Evidence) -> Mapping[str, str]:
        try:
            attestor: object = self._registry().load(name)
        except AttestorUnavailable:
            attestor = None
        if name == COMPOSITE_PROVIDER or not isinstance(attestor, Auditable):
            return {field: digest_of(value) for field, value in evidence.fields.items()}
        return attestor.redacted_fields(evidence)


plugin: Final = CompositeAttestor()
