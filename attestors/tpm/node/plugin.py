"""The agent plugin of the TPM attestor."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from attestors.contract import EvidenceUnavailable, GatherRequest, ShownKey
from attestors.tpm.node.answer import activate, quote
from attestors.tpm.node.attestation_key import attestation_key
from attestors.tpm.node.challenge import Challenge, parse_challenge
from attestors.tpm.node.connection import TPM, LoadedKey, connected
from attestors.tpm.node.endorsement_key import EndorsementKey, certified_choices, endorsement_key
from attestors.tpm.node.settings import PROVIDER_ID_SETTING, NodeSettings
from attestors.tpm.wire import (
    ATTESTATION_PUBLIC_FIELD,
    CHALLENGE_TOKEN_FIELD,
    ENDORSEMENT_CERTIFICATE_FIELD,
    ENDORSEMENT_CHAIN_FIELD,
    ENDORSEMENT_PUBLIC_FIELD,
    EVIDENCE_VERSION,
    PCR_VALUES_FIELD,
    QUOTE_FIELD,
    QUOTE_SIGNATURE_FIELD,
    qualifying_data,
)
from attestors.wire.binding import Binding, CACertHash
from attestors.wire.evidence import Evidence


def agent_plugin_from(settings: Mapping[str, str]) -> TPMAgentPlugin:
    """Build the agent plugin with these settings.

    Raises:
        InvalidSettings: a setting is wrong or unknown.
    """
    return TPMAgentPlugin(NodeSettings.parse(settings))


@dataclass(frozen=True, slots=True)
class TPMAgentPlugin:
    """Implements :class:`attestors.contract.AgentPlugin`."""

    settings: NodeSettings

    def provider_id(self) -> str:
        """The configured provider ID.

        Raises:
            EvidenceUnavailable: none is configured; a TPM cannot know it.
        """
        if self.settings.provider_id is None:
            raise EvidenceUnavailable(f"set {PROVIDER_ID_SETTING}: a TPM does not know this machine's provider ID")
        return self.settings.provider_id

    def gather(self, request: GatherRequest) -> Evidence:
        """The keys and certificates of this machine's TPM, and with a challenge the answer to it.

        Raises:
            EvidenceUnavailable: the message says what a person can do.
        """
        if request.evidence_version != EVIDENCE_VERSION:
            raise EvidenceUnavailable(f"the TPM attestor writes evidence {EVIDENCE_VERSION} only: upgrade it")
        challenge = parse_challenge(request.challenge) if request.challenge else None
        with (
            connected(self.settings.tcti) as tpm,
            endorsement_key(tpm, self.settings.endorsement_choice) as endorsement,
            attestation_key(tpm) as attestation,
        ):
            fields = _identity(endorsement, attestation)
            if challenge is not None:
                fields |= _answer(tpm, endorsement.key, attestation, challenge, request.binding)
        return Evidence(EVIDENCE_VERSION, CACertHash(request.cluster), MappingProxyType(fields))

    def shown_keys(self, *, every: bool) -> Sequence[ShownKey]:
        """See :class:`attestors.contract.ShowsKeys`.

        Raises:
            EvidenceUnavailable: the message says what a person can do.
        """
        from attestors.tpm.node.shown_keys import shown  # no request needs the parser of certificates

        with connected(self.settings.tcti) as tpm:
            choices = certified_choices(tpm) if every else (self.settings.endorsement_choice,)
            keys = []
            for choice in choices:
                with endorsement_key(tpm, choice) as endorsement:
                    keys.append(shown(endorsement))
        return keys


def _identity(endorsement: EndorsementKey, attestation: LoadedKey) -> dict[str, str]:
    fields = {
        ENDORSEMENT_PUBLIC_FIELD: _text(endorsement.key.public_bytes),
        ATTESTATION_PUBLIC_FIELD: _text(attestation.public_bytes),
    }
    if endorsement.certificate:
        fields[ENDORSEMENT_CERTIFICATE_FIELD] = _text(endorsement.certificate)
    if endorsement.chain:
        fields[ENDORSEMENT_CHAIN_FIELD] = _text(endorsement.chain)
    return fields


def _answer(
    tpm: TPM, endorsement: LoadedKey, attestation: LoadedKey, challenge: Challenge, binding: Binding
) -> dict[str, str]:
    secret = activate(tpm, endorsement, attestation, challenge)
    quoted = quote(tpm, attestation, qualifying_data(secret, binding.value), challenge.pcr_selection)
    return {
        CHALLENGE_TOKEN_FIELD: challenge.token,
        QUOTE_FIELD: _text(quoted.attested),
        QUOTE_SIGNATURE_FIELD: _text(quoted.signature),
        PCR_VALUES_FIELD: _text(quoted.pcr_values),
    }


def _text(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")
