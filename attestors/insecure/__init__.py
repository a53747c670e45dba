"""The insecure attestor: believes the node's claim. For tests, and for providers without any evidence.

Any holder of a bootstrap token can get a certificate for any Machine of the cluster. This is exactly the security of
Cluster API without attestation, so the attestor runs only if the controller's flag, the controller's list of namespaces
and the cluster's policy all name it. It neither renews nor serves (proposal, "Provider Specification").
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from attestors.contract import (
    INSECURE_PROVIDER,
    AssertedIdentity,
    AttestationRequest,
    AttestorDescription,
    AttestorSettings,
    Denied,
    EvidenceUnavailable,
    Freshness,
    GatherRequest,
    InvalidSettings,
    Outcome,
    Plausible,
    Security,
)
from attestors.wire.binding import CACertHash
from attestors.wire.evidence import Evidence
from attestors.wire.provider_id import InvalidProviderID, check_provider_id

PROVIDER: Final = INSECURE_PROVIDER
PROVIDER_ID_SETTING: Final = "provider-id"


class InsecureServerPlugin:
    """Verifies nothing."""

    def pre_filter(self, request: AttestationRequest) -> Plausible:
        """Every well-formed request is plausible."""
        request.evidence.expect_fields()
        return Plausible()

    async def verify_client(self, request: AttestationRequest) -> Outcome:
        """Believe the claim, within its own cluster: an unproven claim must not block other clusters."""
        request.evidence.expect_fields()
        identity = f"{request.cluster_namespace}/{request.cluster_name}/{request.provider_id}"
        return AssertedIdentity(provider_id=request.provider_id, identity=identity)

    async def verify_serving(self, request: AttestationRequest) -> Outcome:
        """Refuse. The core never calls it, and would reject a success."""
        return Denied("ServingNotSupported", "the insecure attestor signs no serving certificates")


class InsecureAgentPlugin:
    """Sends evidence without any proof."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """Take the provider ID from the settings, if present."""
        unknown = set(settings) - {PROVIDER_ID_SETTING}
        if unknown:
            raise InvalidSettings(
                f"the insecure attestor has no setting {min(unknown)!r}, only {PROVIDER_ID_SETTING!r}"
            )
        self._provider_id = settings.get(PROVIDER_ID_SETTING, "")

    def provider_id(self) -> str:
        """The configured provider ID."""
        try:
            return check_provider_id(self._provider_id)
        except InvalidProviderID as error:
            raise EvidenceUnavailable(
                f"set {PROVIDER_ID_SETTING}: the insecure attestor cannot find out this machine's provider ID ({error})"
            ) from error

    def gather(self, request: GatherRequest) -> Evidence:
        """Evidence without fields."""
        return Evidence(request.evidence_version, CACertHash(request.cluster), MappingProxyType({}))


class InsecureAttestor:
    """The entry point."""

    description = AttestorDescription(
        provider=PROVIDER, security=Security.INSECURE, evidence_versions=("v1",), freshness=Freshness.NONE
    )

    def server_plugin(self, settings: AttestorSettings) -> InsecureServerPlugin:
        """Build the server plugin. It has no settings.

        Raises:
            InvalidSettings: settings were given.
        """
        if settings.operator or settings.policy:
            raise InvalidSettings("the insecure attestor has no settings")
        return InsecureServerPlugin()

    def agent_plugin(self, settings: Mapping[str, str]) -> InsecureAgentPlugin:
        """The agent plugin for these settings."""
        return InsecureAgentPlugin(settings)

    def redacted_fields(self, evidence: Evidence) -> Mapping[str, str]:
        """All fields: none of them is a credential (:class:`attestors.contract.Auditable`)."""
        return evidence.fields


plugin: Final = InsecureAttestor()
