"""Records the attestor's calls to other services while a request is explained."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from attestors.contract import (
    AgentPlugin,
    AttestationRequest,
    AttestedBefore,
    Attestor,
    AttestorDescription,
    AttestorSettings,
    Auditable,
    DeniesIdentities,
    ExplainsReasons,
    FormerInstance,
    InstanceTerminationProver,
    Outcome,
    PreFiltered,
    ReasonExplanation,
    ServerPlugin,
    Standing,
    StillAllowed,
    Termination,
)
from attestors.registry import Registry
from attestors.wire.evidence import Evidence
from signer.audit.recorded_calls import CallRecorder, RecordedManagementCluster


class NotingRegistry(Registry):
    """The installed attestors; keeps the recorded calls of the last verification."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[dict[str, Any]] = []
        """The recorded calls, without credentials (:class:`attestors.contract.AnswerForm`)."""

    def load(self, provider: str) -> Attestor:
        """See Registry."""
        attestor = super().load(provider)
        return _NotingAttestor(attestor, self.noted) if isinstance(attestor, Auditable) else attestor


@dataclass(frozen=True, slots=True)
class WrappedAttestor:
    """An attestor with a replaced server plugin; everything else is passed through."""

    attestor: Attestor

    @property
    def description(self) -> AttestorDescription:
        return self.attestor.description

    def agent_plugin(self, settings: Mapping[str, str]) -> AgentPlugin:
        return self.attestor.agent_plugin(settings)

    def explanations(self) -> Mapping[str, ReasonExplanation]:
        """See :class:`~attestors.contract.ExplainsReasons`; empty if the attestor has none."""
        return self.attestor.explanations() if isinstance(self.attestor, ExplainsReasons) else {}


class WrapsAuditable:
    """A wrapped attestor that is :class:`~attestors.contract.Auditable`.

    A class of its own, because since Python 3.12 ``isinstance`` with a protocol ignores ``__getattr__``.
    """

    __slots__ = ()
    attestor: Attestor

    def redacted_fields(self, evidence: Evidence) -> Mapping[str, str]:
        """See Auditable."""
        if not isinstance(self.attestor, Auditable):
            raise TypeError("the wrapped attestor is not auditable")
        return self.attestor.redacted_fields(evidence)


@dataclass(frozen=True, slots=True)
class _NotingAttestor(WrapsAuditable, WrappedAttestor):
    noted: list[dict[str, Any]] = field(repr=False)

    def server_plugin(self, settings: AttestorSettings) -> ServerPlugin:
        plugin = self.attestor.server_plugin(settings)
        made = _NotingProver if isinstance(plugin, InstanceTerminationProver) else _NotingPlugin
        return made(plugin, self.noted)


@dataclass(frozen=True, slots=True)
class WrappedPlugin:
    """A server plugin whose local answers are passed through."""

    plugin: ServerPlugin

    def pre_filter(self, request: AttestationRequest) -> PreFiltered:
        """See :class:`~attestors.contract.ServerPlugin`."""
        return self.plugin.pre_filter(request)

    def standing_of(self, attested: AttestedBefore) -> Standing:
        """See :class:`~attestors.contract.DeniesIdentities`; each identity is allowed if the plugin denies none."""
        return self.plugin.standing_of(attested) if isinstance(self.plugin, DeniesIdentities) else StillAllowed()


@dataclass(frozen=True, slots=True)
class _NotingPlugin(WrappedPlugin):
    noted: list[dict[str, Any]] = field(repr=False)

    async def verify_client(self, request: AttestationRequest) -> Outcome:
        return await self._verify(self.plugin.verify_client, request)

    async def verify_serving(self, request: AttestationRequest) -> Outcome:
        return await self._verify(self.plugin.verify_serving, request)

    async def _verify(self, verify: Any, request: AttestationRequest) -> Outcome:
        recorded_calls = CallRecorder()
        management = RecordedManagementCluster(request.management, recorded_calls)
        try:
            outcome: Outcome = await verify(replace(request, recorded_calls=recorded_calls, management=management))
        finally:
            self.noted[:] = recorded_calls.recorded
        return outcome


@dataclass(frozen=True, slots=True)
class _NotingProver(_NotingPlugin):
    """A class of its own: a policy that needs the proof asks for the method."""

    async def termination_of(self, former: FormerInstance) -> Termination:
        if not isinstance(self.plugin, InstanceTerminationProver):
            raise TypeError("the wrapped plugin proves no termination")
        return await self.plugin.termination_of(former)
