"""An attestor that reports the requests and look-ups that it gets from the core. It proves nothing.

The agent plugin's settings go into the evidence, which makes the server plugin look up an object or annotate.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeAlias

from attestors.contract import (
    AttestationRequest,
    AttestorDescription,
    AttestorSettings,
    Document,
    DocumentKind,
    Freshness,
    GatherRequest,
    NotThere,
    Plausible,
    Security,
    VerifiedIdentity,
)
from attestors.registry import Registry
from attestors.wire.binding import CACertHash
from attestors.wire.evidence import Evidence
from attestors.wire.names import ENDORSEMENT_KEY_ANNOTATION, ENTRY_POINT_GROUP

PROVIDER: Final = "reporting"
PROVIDER_ID_SETTING: Final = "provider-id"
IDENTITY_SETTING: Final = "identity"
ANNOTATION_SETTING: Final = "annotation"
"""The endorsement key annotation to set; none by default."""
LOOK_UP_SETTING: Final = "look-up"
"""The object to look up: ``infrastructure``, or KIND/NAME; none by default."""
REPORT_SETTING: Final = "report"
"""The operator's setting with the recipient of reports, an object that no file can hold."""

Answer: TypeAlias = Mapping[str, str] | Document | NotThere


@dataclass(frozen=True, slots=True)
class Report:
    """One request, and the result of its look-up."""

    request: AttestationRequest
    answers: tuple[Answer, ...]


@dataclass(frozen=True, slots=True)
class ReportingServerPlugin:
    """Implements :class:`attestors.contract.ServerPlugin`."""

    report: Callable[[Report], None] = field(repr=False)

    def pre_filter(self, request: AttestationRequest) -> Plausible:
        """Filter nothing."""
        return Plausible()

    async def verify_client(self, request: AttestationRequest) -> VerifiedIdentity:
        """Report the request, and accept any evidence."""
        fields = request.evidence.fields
        answers = [await _looked_up(request, wanted) for wanted in fields.get(LOOK_UP_SETTING, "").split()]
        self.report(Report(request, tuple(answers)))
        annotation = fields.get(ANNOTATION_SETTING)
        return VerifiedIdentity(
            provider_id=request.provider_id,
            identity=fields[IDENTITY_SETTING],
            binding=request.binding.prove(bytes.fromhex(fields["binding"])),
            annotations={} if annotation is None else {ENDORSEMENT_KEY_ANNOTATION: annotation},
        )

    async def verify_serving(self, request: AttestationRequest) -> VerifiedIdentity:
        """The same."""
        return await self.verify_client(request)


async def _looked_up(request: AttestationRequest, wanted: str) -> Answer:
    if wanted == "infrastructure":
        return await request.management.infrastructure_annotations()
    kind, _, name = wanted.partition("/")
    return await request.management.document(DocumentKind(kind), name)


@dataclass(frozen=True, slots=True)
class ReportingAgentPlugin:
    """Implements :class:`attestors.contract.AgentPlugin`."""

    settings: Mapping[str, str]

    def provider_id(self) -> str:
        """The configured provider ID."""
        return self.settings[PROVIDER_ID_SETTING]

    def gather(self, request: GatherRequest) -> Evidence:
        """Evidence with the binding and the settings."""
        fields = {"binding": request.binding.value.hex(), **self.settings}
        fields.setdefault(IDENTITY_SETTING, f"of {self.provider_id()}")
        return Evidence(request.evidence_version, CACertHash(request.cluster), MappingProxyType(fields))


class ReportingAttestor:
    """Implements :class:`attestors.contract.Attestor`."""

    description = AttestorDescription(PROVIDER, Security.SECURE, ("v1",), Freshness.TIMESTAMP)

    def server_plugin(self, settings: AttestorSettings) -> ReportingServerPlugin:
        """A plugin that reports to the recipient in the operator's settings."""
        return ReportingServerPlugin(settings.operator[REPORT_SETTING])

    def agent_plugin(self, settings: Mapping[str, str]) -> ReportingAgentPlugin:
        """A plugin with these settings."""
        return ReportingAgentPlugin(settings)


plugin: Final = ReportingAttestor()


def registry() -> Registry:
    """The installed attestors and this one, which no distribution installs."""
    own = importlib.metadata.EntryPoint(PROVIDER, f"{__name__}:plugin", ENTRY_POINT_GROUP)
    return Registry([own, *importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)])
