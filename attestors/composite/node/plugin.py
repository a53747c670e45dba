"""The agent plugin of the composite attestor: gathers the evidence of each part, for one request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from attestors.composite.parts import load_part
from attestors.composite.wire import (
    EVIDENCE_VERSION,
    SEPARATOR,
    MalformedChallenge,
    join_evidence,
    part_of,
    split_challenge,
)
from attestors.contract import AgentPlugin, EvidenceUnavailable, Freshness, GatherRequest, InvalidSettings
from attestors.contract.composite import ATTESTORS_SETTING, check_part_names
from attestors.registry import Registry
from attestors.wire.binding import CACertHash
from attestors.wire.evidence import Evidence

PROVIDER_ID_SETTING: Final = "provider-id"


@dataclass(frozen=True, slots=True)
class AgentPart:
    """One of the attestors whose evidence is gathered."""

    name: str
    plugin: AgentPlugin
    answers: bool
    """Whether it answers challenges."""


def agent_plugin_from(settings: Mapping[str, str], registry: Registry) -> CompositeAgentPlugin:
    """The agent plugin with these settings: ``attestors``, and ``<attestor>.<setting>`` for each setting of a part.

    Raises:
        InvalidSettings: a setting is missing, wrong or unknown, or an attestor cannot be a part.
    """
    names = check_part_names(settings.get(ATTESTORS_SETTING, "").split(","), ATTESTORS_SETTING)
    unknown = {name for name in settings if part_of(name) not in names} - {ATTESTORS_SETTING}
    if unknown:
        raise InvalidSettings(
            f"the composite attestor has no setting {min(unknown)!r}, only {ATTESTORS_SETTING} and those of its "
            f"attestors, such as {names[0]}{SEPARATOR}NAME"
        )
    return CompositeAgentPlugin(tuple(_part(name, settings, registry) for name in names))


def _part(name: str, settings: Mapping[str, str], registry: Registry) -> AgentPart:
    attestor = load_part(registry, name)
    prefix = f"{name}{SEPARATOR}"
    own = {key.removeprefix(prefix): value for key, value in settings.items() if key.startswith(prefix)}
    try:
        plugin = attestor.agent_plugin(own)
    except InvalidSettings as error:
        raise InvalidSettings(f"{name}: {error}") from error
    except ImportError as error:
        raise InvalidSettings(str(registry.missing_extra(name, error))) from error
    return AgentPart(name, plugin, attestor.description.freshness is Freshness.CHALLENGE)


@dataclass(frozen=True, slots=True)
class CompositeAgentPlugin:
    """Implements :class:`attestors.contract.AgentPlugin`."""

    parts: tuple[AgentPart, ...]
    """Sorted by name."""

    def provider_id(self) -> str:
        """The provider ID that every part gives which knows one.

        Raises:
            EvidenceUnavailable: no part gives it, or two give different ones.
        """
        found: dict[str, str] = {}
        for part in self.parts:
            try:
                found[part.name] = part.plugin.provider_id()
            except EvidenceUnavailable:  # such as a TPM, which cannot know it
                continue
        if len(set(found.values())) > 1:
            shown = ", ".join(f"{name} says {one}" for name, one in found.items())
            raise EvidenceUnavailable(f"the attestors give different provider IDs: {shown}")
        if not found:
            names = ", ".join(part.name for part in self.parts)
            raise EvidenceUnavailable(f"none of {names} gives this machine's provider ID: configure it")
        return next(iter(found.values()))

    def gather(self, request: GatherRequest) -> Evidence:
        """The evidence of every part. A challenge goes to the part that it is for.

        Raises:
            EvidenceUnavailable: a part's evidence cannot be gathered, or the challenge is for none of the parts.
        """
        if request.evidence_version != EVIDENCE_VERSION:
            raise EvidenceUnavailable(f"the composite attestor writes evidence {EVIDENCE_VERSION} only: upgrade it")
        challenged = self._challenged(request.challenge) if request.challenge else {}
        gathered = {part.name: _gathered(part, request, challenged.get(part.name, "")) for part in self.parts}
        whole = Evidence(EVIDENCE_VERSION, CACertHash(request.cluster), MappingProxyType({}))
        return join_evidence(whole, gathered)

    def _challenged(self, text: str) -> Mapping[str, str]:
        try:
            name, challenge = split_challenge(text)
        except MalformedChallenge as error:
            raise EvidenceUnavailable(f"{error}: does the controller run the composite attestor?") from error
        if not any(part.name == name and part.answers for part in self.parts):
            raise EvidenceUnavailable(
                "the challenge is for an attestor that this node does not use, or that answers none: compare "
                f"{ATTESTORS_SETTING} with the controller's"
            )
        return {name: challenge}


def _gathered(part: AgentPart, request: GatherRequest, challenge: str) -> Evidence:
    try:
        evidence: object = part.plugin.gather(replace(request, challenge=challenge))
    except EvidenceUnavailable as error:
        raise EvidenceUnavailable(f"{part.name}: {error}") from error
    if not isinstance(evidence, Evidence) or evidence.version != request.evidence_version or not evidence.fields:
        raise EvidenceUnavailable(f"{part.name} made no evidence {request.evidence_version} with fields: upgrade it")
    return evidence
