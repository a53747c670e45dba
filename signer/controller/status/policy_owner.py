"""A policy is owned by its Cluster: deleted with it, and moved with it by ``clusterctl move``."""

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
    "grant get and patch on nodeattestationpolicies, and delete where admission plugin "
    "OwnerReferencesPermissionEnforcement is on, as in OpenShift: rbac.ownerReferences in the chart"
)


class PolicyOwner:
    """Gives one cluster's policy its owner, once for each pair of objects."""

    def __init__(self, client: GetPatch, clusters: Resource) -> None:
        """``clusters`` is the version of Cluster that owner references name."""
        self._client = client
        self._clusters = clusters
        self._owned: tuple[str, str] = ("", "")
        """UIDs of policy and Cluster that are known to belong together."""
        self._refused: tuple[str, str] = ("", "")
        """Those of which was said that a grant is missing."""

    async def ensure(self, cluster: ClusterView, policy: Policy) -> None:
        """Add the owner reference where it is missing; a fault is logged, and tried again at the next call.

        Nothing is written for a Cluster that is paused or going: `clusterctl move` rewrites references itself.
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
            self._say_what_is_missing(pair, cluster, error)
        except ApiError as error:
            _LOG.info("cannot give a policy its owner", extra={"cluster": str(cluster.key), "error": str(error)})

    def _say_what_is_missing(self, pair: tuple[str, str], cluster: ClusterView, error: Forbidden) -> None:
        """Once for each pair: it is tried again at every survey, and only a person can change the answer."""
        if pair == self._refused:
            return
        self._refused = pair
        _LOG.warning(
            "a policy has no owner, and is neither deleted nor moved with its Cluster",
            extra={"cluster": str(cluster.key), "error": str(error), "detail": _MISSING_GRANT},
        )

    def _is_former(self, owner: Mapping[str, Any], cluster: ClusterView) -> bool:
        """Whether it names the Cluster, in whichever version: others have kinds of that name, and their own owners."""
        group, _, _ = text_of(owner, "apiVersion").rpartition("/")
        named = (group, text_of(owner, "kind"), text_of(owner, "name"))
        return named == (self._clusters.group, _KIND, cluster.key.name)

    def _patch(self, metadata: Mapping[str, Any], owners: list[Mapping[str, Any]], cluster: ClusterView) -> JsonObject:
        """References to a Cluster of that name that is no more give way: the garbage collector would act on them."""
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
