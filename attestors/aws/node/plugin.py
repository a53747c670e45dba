"""The agent plugin of the AWS attestor."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

from attestors.aws.document import (
    IdentityDocumentMalformed,
    InstanceIdentityDocument,
    parse_identity_document,
    read_recorded,
)
from attestors.aws.node.caller_identity import presigned_caller_identity
from attestors.aws.node.credentials import RoleCredentials, role_credentials
from attestors.aws.node.instance_metadata import IDENTITY_DOCUMENT, IDENTITY_DOCUMENT_PKCS7, InstanceMetadata
from attestors.aws.node.settings import NodeSettings, Proof
from attestors.aws.node.web_identity import web_identity_token
from attestors.aws.partitions import Region
from attestors.aws.wire import (
    CALLER_IDENTITY_BINDING_FIELD,
    CALLER_IDENTITY_REQUEST_FIELD,
    EVIDENCE_VERSION,
    IDENTITY_DOCUMENT_FIELD,
    MAXIMUM_IDENTITY_DOCUMENT_BYTES,
    WEB_IDENTITY_TOKEN_FIELD,
    binding_text,
)
from attestors.contract import EvidenceUnavailable, GatherRequest
from attestors.wire.binding import Binding, CACertHash
from attestors.wire.evidence import Evidence

TokenSource: TypeAlias = Callable[[RoleCredentials, Region, Binding], str]


def agent_plugin_from(settings: Mapping[str, str]) -> AWSAgentPlugin:
    """Build the agent plugin with these settings.

    Raises:
        InvalidSettings: a setting is wrong or unknown.
    """
    return AWSAgentPlugin(NodeSettings.parse(settings))


@dataclass(frozen=True, slots=True)
class AWSAgentPlugin:
    """Implements :class:`attestors.contract.AgentPlugin`."""

    settings: NodeSettings
    token_source: TokenSource = web_identity_token

    def provider_id(self) -> str:
        """``aws:///<zone>/<instance>``, according to the metadata service.

        Raises:
            EvidenceUnavailable: the service is unreachable, or its answer is unusable.
        """
        return _identity_document(InstanceMetadata(self.settings.metadata_endpoint)).provider_id

    def gather(self, request: GatherRequest) -> Evidence:
        """The signed identity document, and a fresh proof that this instance holds its role's credentials.

        Raises:
            EvidenceUnavailable: the message says what a person can do.
        """
        if request.evidence_version != EVIDENCE_VERSION:
            raise EvidenceUnavailable(f"the AWS attestor writes evidence {EVIDENCE_VERSION} only: upgrade it")
        if request.challenge:
            raise EvidenceUnavailable("this version of the AWS attestor supports no challenges: upgrade it")
        metadata = InstanceMetadata(self.settings.metadata_endpoint)
        fields = {IDENTITY_DOCUMENT_FIELD: base64.b64encode(_pkcs7(metadata)).decode("ascii")}
        region = self.settings.region or _identity_document(metadata).region
        fields |= self._proof(role_credentials(metadata), region, request.binding)
        return Evidence(EVIDENCE_VERSION, CACertHash(request.cluster), MappingProxyType(fields))

    def _proof(self, credentials: RoleCredentials, region: Region, binding: Binding) -> dict[str, str]:
        if self.settings.proof is Proof.WEB_IDENTITY:
            return {WEB_IDENTITY_TOKEN_FIELD: self.token_source(credentials, region, binding)}
        return {
            CALLER_IDENTITY_REQUEST_FIELD: presigned_caller_identity(credentials, region, binding),
            CALLER_IDENTITY_BINDING_FIELD: binding_text(binding.value),
        }


def _identity_document(metadata: InstanceMetadata) -> InstanceIdentityDocument:
    """The instance's own description, unsigned: only to find its Region and provider ID."""
    try:
        return parse_identity_document(metadata.get(IDENTITY_DOCUMENT))
    except IdentityDocumentMalformed as error:
        raise EvidenceUnavailable(f"{error}, as the instance metadata service returns it") from error


def _pkcs7(metadata: InstanceMetadata) -> bytes:
    try:
        pkcs7 = read_recorded(metadata.get(IDENTITY_DOCUMENT_PKCS7))
    except IdentityDocumentMalformed as error:
        raise EvidenceUnavailable(f"the instance metadata service: {error}") from error
    if not 0 < len(pkcs7) <= MAXIMUM_IDENTITY_DOCUMENT_BYTES:
        raise EvidenceUnavailable(
            "the instance metadata service returns an identity document that is too large or empty"
        )
    return pkcs7
