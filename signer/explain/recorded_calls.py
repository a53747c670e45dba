"""What others answered an attestor while a request was explained, noted for the recording."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from attestors.contract import (
    AttestationRequest,
    Attestor,
    AttestorDescription,
    AttestorSettings,
    Auditable,
    ControllerHalf,
    ExplainsReasons,
    NodeHalf,
    Outcome,
    ReasonExplanation,
    Screened,
)
from attestors.registry import Registry
from attestors.wire.evidence import Evidence
from signer.audit.recorded_calls import ConsultedManagement, RecordedConsultations


class NotingRegistry(Registry):
    """The installed attestors; of the last judgement, what those answered that they asked."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[dict[str, Any]] = []
        """Without anything that lets its holder act (:class:`attestors.contract.AnswerForm`)."""

    def load(self, provider: str) -> Attestor:
        """See Registry."""
        attestor = super().load(provider)
        return _NotingAttestor(attestor, self.noted) if isinstance(attestor, Auditable) else attestor


@dataclass(frozen=True, slots=True)
class WrappedAttestor:
    """An attestor whose controller half is another; all else that it has, it has still."""

    attestor: Attestor

    @property
    def description(self) -> AttestorDescription:
        return self.attestor.description

    def node_half(self, settings: Mapping[str, str]) -> NodeHalf:
        return self.attestor.node_half(settings)

    def explanations(self) -> Mapping[str, ReasonExplanation]:
        """See :class:`~attestors.contract.ExplainsReasons`; none where it has none."""
        return self.attestor.explanations() if isinstance(self.attestor, ExplainsReasons) else {}


class WrapsAuditable:
    """A wrapped attestor that is :class:`~attestors.contract.Auditable`.

    Written out: since Python 3.12 ``isinstance`` does not ask ``__getattr__`` what a protocol looks for.
    """

    __slots__ = ()
    attestor: Attestor

    def redacted_fields(self, evidence: Evidence) -> Mapping[str, str]:
        """See Auditable."""
        if not isinstance(self.attestor, Auditable):
            raise TypeError("only an attestor that is auditable is wrapped so")
        return self.attestor.redacted_fields(evidence)


@dataclass(frozen=True, slots=True)
class _NotingAttestor(WrapsAuditable, WrappedAttestor):
    noted: list[dict[str, Any]] = field(repr=False)

    def controller_half(self, settings: AttestorSettings) -> ControllerHalf:
        return _NotingHalf(self.attestor.controller_half(settings), self.noted)


@dataclass(frozen=True, slots=True)
class _NotingHalf:
    half: ControllerHalf
    noted: list[dict[str, Any]] = field(repr=False)

    def screen(self, request: AttestationRequest) -> Screened:
        return self.half.screen(request)

    async def verify_client(self, request: AttestationRequest) -> Outcome:
        return await self._verify(self.half.verify_client, request)

    async def verify_serving(self, request: AttestationRequest) -> Outcome:
        return await self._verify(self.half.verify_serving, request)

    async def _verify(self, verify: Any, request: AttestationRequest) -> Outcome:
        consultations = RecordedConsultations()
        management = ConsultedManagement(request.management, consultations)
        try:
            outcome: Outcome = await verify(replace(request, consultations=consultations, management=management))
        finally:
            self.noted[:] = consultations.noted
        return outcome
