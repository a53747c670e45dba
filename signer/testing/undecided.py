"""Why nobody has decided a request: for the message of a test that waited for it in vain."""

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
    """What the management cluster shows: Events about the request, else how the Cluster's policy stands."""
    try:
        told = [event for event in management.items(EVENTS.collection(cluster.namespace)) if _is_about(event, csr)]
        if told:
            return "; ".join(f"{one['reason']}: {without_hint(one['message'])}" for one in told[-_MAXIMUM_EVENTS:])
        policy = management.get(NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace))
    except NotFound:
        return f"there is no NodeAttestationPolicy {cluster}: authorize() writes one"
    except ApiError as error:
        return f"the management cluster does not say why: {error}"
    return _standing(policy)


def _is_about(event: JsonObject, csr: str) -> bool:
    return f"(CSR {csr}:" in event.get("message", "")


def _standing(policy: JsonObject) -> str:
    conditions = policy.get("status", {}).get("conditions", [])
    for condition in conditions:
        if condition["type"] == "Ready":
            return f"no Event is about it, and its policy has Ready {condition['status']}: {condition['message']}"
    return "no Event is about it, and its policy has no conditions: no controller looks at it"
