"""An agent plugin that writes two versions of evidence and answers challenges. It proves nothing."""

from __future__ import annotations

import hashlib
from types import MappingProxyType
from typing import Final

from attestors.contract import AttestorDescription, Freshness, GatherRequest, Security
from attestors.wire.binding import CACertHash
from attestors.wire.evidence import Evidence
from authenticator.configuration import Configuration
from authenticator.flow.evidence import Attestation

PROVIDER: Final = "challenging"
NEW_VERSION: Final = "v2"
OLD_VERSION: Final = "v1"
BINDING_FIELD: Final = "binding"
ANSWER_FIELD: Final = "answer"
"""Only in evidence that answers a challenge."""


class ChallengeAgentPlugin:
    """Implements :class:`attestors.contract.AgentPlugin`."""

    def provider_id(self) -> str:
        """Not implemented: the provider ID is always configured."""
        return "test:///challenged"

    def gather(self, request: GatherRequest) -> Evidence:
        """Evidence with the binding, and with the challenge's digest if there is a challenge."""
        fields = {BINDING_FIELD: request.binding.value.hex()}
        if request.challenge:
            fields[ANSWER_FIELD] = answer_to(request.challenge)
        return Evidence(request.evidence_version, CACertHash(request.cluster), MappingProxyType(fields))


class BothVersions(Attestation):
    """Writes the newer version too, although this project's wire format has only the older one."""

    def versions(self) -> tuple[str, ...]:
        """Both, newest last."""
        return self.description.evidence_versions


def answer_to(challenge: str) -> str:
    """The answer to a challenge."""
    return hashlib.sha256(challenge.encode("utf-8")).hexdigest()


def load(configuration: Configuration) -> Attestation:
    """Replaces :meth:`Attestation.of`."""
    description = AttestorDescription(PROVIDER, Security.SECURE, (OLD_VERSION, NEW_VERSION), Freshness.CHALLENGE)
    return BothVersions(description, ChallengeAgentPlugin(), configuration.provider_id, configuration.provider_id_oid)
