"""The agent plugin of the GCP attestor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from attestors.clouds.google.provider_id import GCEProviderID, InvalidGCEName
from attestors.contract import EvidenceUnavailable, GatherRequest
from attestors.gcp import wire
from attestors.gcp.claims import NoInstance
from attestors.gcp.node.metadata import MetadataServer, NotFound
from attestors.gcp.node.settings import NodeSettings
from attestors.gcp.token import MalformedToken, UnsuitableAlgorithm, parse_token
from attestors.wire.binding import CACertHash
from attestors.wire.evidence import Evidence

_IDENTITY: Final = "instance/service-accounts/default/identity"
_MAXIMUM_ENTRY_BYTES: Final = 512


def agent_plugin_from(settings: Mapping[str, str]) -> GCPAgentPlugin:
    """Build the agent plugin with these settings.

    Raises:
        InvalidSettings: a setting is wrong or unknown.
    """
    return GCPAgentPlugin(MetadataServer(NodeSettings.parse(settings).endpoint))


@dataclass(frozen=True, slots=True)
class GCPAgentPlugin:
    """Implements :class:`attestors.contract.AgentPlugin`."""

    metadata: MetadataServer

    def provider_id(self) -> str:
        """``gce://<project>/<zone>/<name>``, according to the metadata server.

        Raises:
            EvidenceUnavailable: the message says what a person can do.
        """
        zone = self._entry("instance/zone")  # projects/<number>/zones/<zone>
        try:
            provider_id = GCEProviderID(
                project=self._entry("project/project-id"),
                zone=zone.rpartition("/")[2],
                name=self._entry("instance/name"),
            )
        except InvalidGCEName as error:
            raise EvidenceUnavailable(
                f"the metadata server returns no valid project, zone and name of an instance: {error}"
            ) from error
        return str(provider_id)

    def gather(self, request: GatherRequest) -> Evidence:
        """This instance's identity token, for this request's binding only.

        Raises:
            EvidenceUnavailable: the message says what a person can do.
        """
        if request.evidence_version != wire.EVIDENCE_VERSION:
            raise EvidenceUnavailable(f"the GCP attestor writes evidence {wire.EVIDENCE_VERSION} only: upgrade it")
        if request.challenge:
            raise EvidenceUnavailable("the GCP attestor supports no challenges; does the controller run it too?")
        token = self._identity_token(wire.audience(request.binding.value))
        return Evidence(
            wire.EVIDENCE_VERSION,
            CACertHash(request.cluster),
            MappingProxyType({wire.IDENTITY_TOKEN_FIELD: token}),
        )

    def _identity_token(self, audience: str) -> str:
        try:
            text = self.metadata.entry(
                _IDENTITY, maximum_bytes=wire.MAXIMUM_TOKEN_CHARACTERS, audience=audience, format="full"
            ).strip()
        except NotFound as error:
            raise EvidenceUnavailable(
                "the metadata server returns no identity token: attach a service account to this instance; it needs no "
                "roles"
            ) from error
        # The controller would deny such a token; here the message reaches a person who can fix it.
        try:
            claims = parse_token(text).claims
        except (MalformedToken, UnsuitableAlgorithm) as error:
            raise EvidenceUnavailable(
                f"the metadata server returns something other than an identity token: {error}"
            ) from error
        if claims.audience != audience:
            raise EvidenceUnavailable("the metadata server returns an identity token for another audience")
        if isinstance(claims.instance, NoInstance):
            raise EvidenceUnavailable(
                "the metadata server returns an identity token that names no instance (it ignores format=full); does "
                "something replace it, such as a metadata proxy for Pods?"
            )
        return text

    def _entry(self, path: str) -> str:
        try:
            return self.metadata.entry(path, maximum_bytes=_MAXIMUM_ENTRY_BYTES).strip()
        except NotFound as error:
            raise EvidenceUnavailable(f"the metadata server has no entry {path}") from error
