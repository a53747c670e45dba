"""Makes the Cluster the owner of its policy, so that the policy is deleted and moved (``clusterctl move``) with it."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from signer.kube.calls import GetPatch
from signer.kube.client import JsonObject
from signer.kube.errors import ApiError, Forbidden, NotFound
from signer.kube.resources import NODE_ATTESTATION_POLICIES, Resource
from signer.model.cluster import ClusterView
from signer.model.fields import items_of, mapping_of, text_of
from signer.model.policy import Policy

_LOG = logging.getLogger(__name__)
_KIND = "Cluster"
_MISSING_GRANT = (
    "grant patch on nodeattestationpolicies, rbac.policyOwner in the chart, and delete where admission plugin "
    "OwnerReferencesPermissionEnforcement is on, as in OpenShift: rbac.ownerReferences; or set the owner yourself"
)


class PolicyOwner:
    """Sets the owner of one cluster's policy, once for each pair of objects."""

    def __init__(self, client: GetPatch, clusters: Resource) -> None:
        """``clusters`` is the Cluster resource, in the version that owner references name."""
        self._client = client
        self._clusters = clusters
        self._owned: tuple[str, str] = ("", "")
        """UIDs of policy and Cluster for which the owner is set."""
        self._refused: tuple[str, str] = ("", "")
        """UIDs for which a missing grant was logged."""

    async def ensure(self, cluster: ClusterView, policy: Policy) -> None:
        """Add the owner reference if it is missing. A failure is logged and retried at the next call.

        Nothing is written for a Cluster that is paused or being deleted: ``clusterctl move`` rewrites references.
        """
        pair = (policy.uid, cluster.uid)
        if pair == self._owned or cluster.paused or cluster.deleting:
            return
        path = NODE_ATTESTATION_POLICIES.object(policy.cluster.name, policy.cluster.namespace)
        try:
            metadata = mapping_of(await self._client.get(path), "metadata")
            owners = [owner for owner in items_of(metadata, "ownerReferences") if isinstance(owner, Mapping)]
            if not any(text_of(owner, "uid") == cluster.uid for owner in owners):
                await self._client.patch(path, self._patch(metadata, owners, cluster))
            self._owned = pair
        except NotFound:
            return
        except Forbidden as error:
            self._log_missing_grant(pair, cluster, error)
        except ApiError as error:
            _LOG.info("cannot set the owner of a policy", extra={"cluster": str(cluster.key), "error": str(error)})

    def _log_missing_grant(self, pair: tuple[str, str], cluster: ClusterView, error: Forbidden) -> None:
        """Log once per pair: every reconciliation retries, but only an administrator can add the grant."""
        if pair == self._refused:
            return
        self._refused = pair
        _LOG.warning(
            "a policy has no owner, and is neither deleted nor moved with its Cluster",
            extra={"cluster": str(cluster.key), "error": str(error), "detail": _MISSING_GRANT},
        )

    def _is_former(self, owner: Mapping[str, Any], cluster: ClusterView) -> bool:
        """Whether the reference names the Cluster, in any version; another group may have a kind of the same name."""
        group, _, _ = text_of(owner, "apiVersion").rpartition("/")
        named = (group, text_of(owner, "kind"), text_of(owner, "name"))
        return named == (self._clusters.group, _KIND, cluster.key.name)

    def _patch(self, metadata: Mapping[str, Any], owners: list[Mapping[str, Any]], cluster: ClusterView) -> JsonObject:
        """Replace references to former Clusters of that name, which the garbage collector would act on."""
        others = [dict(owner) for owner in owners if not self._is_former(owner, cluster)]
        own = {
            "apiVersion": self._clusters.api_version,
            "kind": _KIND,
            "name": cluster.key.name,
            "uid": cluster.uid,
        }
        return {
            "metadata": {
                "uid": metadata.get("uid"),
                "resourceVersion": metadata.get("resourceVersion"),
                "ownerReferences": [*others, own],
            }
        }
