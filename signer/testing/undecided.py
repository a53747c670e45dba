"""Explains why a request is undecided, for the message of a test whose wait timed out."""

from __future__ import annotations

from typing import Final

from signer.kube.client import JsonObject
from signer.kube.errors import ApiError, NotFound
from signer.kube.resources import EVENTS, NODE_ATTESTATION_POLICIES
from signer.model.cluster import ClusterKey
from signer.model.explain_command import without_hint
from signer.testing.clients import BlockingClient

_MAXIMUM_EVENTS: Final = 5


def why_undecided(management: BlockingClient, cluster: ClusterKey, csr: str) -> str:
    """Events about the request, or else the readiness of the Cluster's policy."""
    try:
        events = [event for event in management.items(EVENTS.collection(cluster.namespace)) if _is_about(event, csr)]
        if events:
            return "; ".join(f"{one['reason']}: {without_hint(one['message'])}" for one in events[-_MAXIMUM_EVENTS:])
        policy = management.get(NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace))
    except NotFound:
        return f"there is no NodeAttestationPolicy {cluster}: create it with authorize()"
    except ApiError as error:
        return f"the reason cannot be read from the management cluster: {error}"
    return _readiness(policy)


def _is_about(event: JsonObject, csr: str) -> bool:
    return f"(CSR {csr}:" in event.get("message", "")


def _readiness(policy: JsonObject) -> str:
    conditions = policy.get("status", {}).get("conditions", [])
    for condition in conditions:
        if condition["type"] == "Ready":
            return f"it has no Event, and its policy is Ready {condition['status']}: {condition['message']}"
    return "it has no Event, and its policy has no conditions: no controller serves the Cluster"
