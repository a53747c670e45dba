"""Evidence as each attestor's server plugin reads it: all that it does before it asks anybody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from attestors.contract import AttestationRequest, AttestorSettings, Plausible, PreFiltered, ServerPlugin
from attestors.contract import Denied as AttestorDenied
from attestors.registry import Registry
from attestors.wire import evidence
from attestors.wire.binding import Binding, BindingMismatch
from attestors.wire.evidence import MalformedEvidence, UnsupportedVersion
from tests.fuzz.target import MAXIMUM_MESSAGE_CHARACTERS, Shape, Target, require
from tests.unit.attestors.support import attestation_request

BINDING: Final = Binding(bytes.fromhex("0f" * 32))
NOW: Final = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
PROVIDER_IDS: Final = {
    "aws": "aws:///ap-southeast-2a/i-0123456789abcdef0",
    "composite": "gce://capi-workloads/europe-west1-b/worker-1",
    "gcp": "gce://capi-workloads/europe-west1-b/worker-1",
    "insecure": "example://rack-7/machine-12",
    "tpm": "example://rack-7/machine-12",
}
OPERATOR: Final[Mapping[str, Mapping[str, Any]]] = {
    "aws": {"allowedRoles": ["arn:aws:iam::123456789012:role/nodes.example"]},
    "composite": {
        "attestors": {
            "gcp": {"projects": {"capi-workloads": 730000000001}},
            "tpm": {"allowUncertifiedEndorsementKeys": True},
        }
    },
    "gcp": {"projects": {"capi-workloads": 730000000001}},
    "insecure": {},
    "tpm": {"allowUncertifiedEndorsementKeys": True},
}


def plugin_of(provider: str) -> ServerPlugin:
    """The server plugin, with an operator's plainest settings."""
    return Registry().load(provider).server_plugin(AttestorSettings(operator=dict(OPERATOR[provider])))


def _request(provider: str, data: bytes) -> AttestationRequest:
    made = attestation_request(evidence.decode(data), binding=BINDING, provider_id=PROVIDER_IDS[provider])
    return replace(made, now=NOW)


def _target(provider: str) -> Target:
    plugin = plugin_of(provider)

    def pre_filter(data: bytes) -> PreFiltered:
        pre_filtered = plugin.pre_filter(_request(provider, data))
        if isinstance(pre_filtered, AttestorDenied):
            require(len(pre_filtered.message) <= MAXIMUM_MESSAGE_CHARACTERS, "a message without bound")
        else:
            require(isinstance(pre_filtered, Plausible), "neither denied nor plausible")
        return pre_filtered

    return Target(
        f"evidence-{provider}", pre_filter, (MalformedEvidence, UnsupportedVersion, BindingMismatch), Shape.JSON
    )


TARGETS: Final = tuple(_target(provider) for provider in sorted(PROVIDER_IDS))
