"""Checks that a Cluster named on the command line exists, and names others if it does not."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from difflib import SequenceMatcher
from typing import Final

from signer.kube.calls import GetList
from signer.kube.client import JsonObject
from signer.kube.errors import ApiError, NotFound
from signer.kube.resources import Resource
from signer.model.cluster import ClusterKey
from signer.model.command_failures import CommandFailed
from signer.model.decision import printable
from signer.model.fields import items_of, mapping_of, text_of

_SIMILAR: Final = 0.6
"""Minimum ``difflib`` ratio of a suggestion."""
_MAXIMUM_SUGGESTIONS: Final = 3


class NoSuchCluster(CommandFailed):
    """The Cluster does not exist; the message names others."""


async def require_cluster(client: GetList, clusters: Resource, key: ClusterKey) -> None:
    """Check that the Cluster exists. Commands do this first, because a missing Cluster causes every other error.

    Raises:
        NoSuchCluster: the Cluster does not exist.
        ApiError: the management cluster did not say.
    """
    try:
        await client.get(clusters.object(key.name, key.namespace))
    except NotFound:
        raise NoSuchCluster(f"Cluster {key} does not exist: {await _suggestion(client, clusters, key)}") from None


async def _suggestion(client: GetList, clusters: Resource, key: ClusterKey) -> str:
    existing = await _list_clusters(client, clusters, key.namespace)
    similar = sorted(
        (one for one in existing if _similarity(one, key) >= _SIMILAR), key=lambda one: -_similarity(one, key)
    )
    if similar:
        return _there_is(similar)
    named = f"{_there_is(existing)}; " if existing else ""
    return (
        f"{named}`kubectl get clusters --all-namespaces` lists them; is --kubeconfig that of their management cluster?"
    )


def _there_is(clusters: list[ClusterKey]) -> str:
    return f"there is {printable(', '.join(map(str, clusters[:_MAXIMUM_SUGGESTIONS])))}"


def _similarity(one: ClusterKey, key: ClusterKey) -> float:
    """``difflib`` ratio of the names: 1 for the same name in another namespace."""
    ratio = SequenceMatcher(None, one.name, key.name).ratio()
    return max(ratio, _SIMILAR) if one.name in key.name or key.name in one.name else ratio


async def _list_clusters(client: GetList, clusters: Resource, namespace: str) -> list[ClusterKey]:
    """All Clusters, or those of the namespace if the caller may not list others; none if that fails too."""
    for path in (clusters.collection(), clusters.collection(namespace)):
        with contextlib.suppress(ApiError):
            return sorted([key async for page in client.list_pages(path) for key in _keys(page)], key=str)
    return []


def _keys(page: JsonObject) -> Iterator[ClusterKey]:
    for item in items_of(page, "items"):
        if isinstance(item, dict):
            metadata = mapping_of(item, "metadata")
            yield ClusterKey(text_of(metadata, "namespace"), text_of(metadata, "name"))
