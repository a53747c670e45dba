"""The Cluster that a person names on the command line is there, or what there is instead is said."""

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
from signer.model.decision import printable
from signer.model.fields import items_of, mapping_of, text_of

_NEAR: Final = 0.6
"""From so much likeness on, as ``difflib`` measures it, one name may have been meant for the other."""
_AT_MOST: Final = 3


class NoSuchCluster(Exception):
    """It does not exist; the message says which ones may have been meant."""


async def require_cluster(client: GetList, clusters: Resource, key: ClusterKey) -> None:
    """Whatever else is missing follows from it: so it is looked at first.

    Raises:
        NoSuchCluster: it does not exist.
        ApiError: it cannot be told.
    """
    try:
        await client.get(clusters.object(key.name, key.namespace))
    except NotFound:
        raise NoSuchCluster(f"Cluster {key} does not exist: {await _instead(client, clusters, key)}") from None


async def _instead(client: GetList, clusters: Resource, key: ClusterKey) -> str:
    there = await _all(client, clusters, key.namespace)
    near = sorted((one for one in there if _likeness(one, key) >= _NEAR), key=lambda one: -_likeness(one, key))
    if near:
        return f"there is {printable(', '.join(map(str, near[:_AT_MOST])))}"
    return "`kubectl get clusters --all-namespaces` says which do; is --kubeconfig that of their management cluster?"


def _likeness(one: ClusterKey, key: ClusterKey) -> float:
    """1 for the same name in another namespace."""
    ratio = SequenceMatcher(None, one.name, key.name).ratio()
    return max(ratio, _NEAR) if one.name in key.name or key.name in one.name else ratio


async def _all(client: GetList, clusters: Resource, namespace: str) -> list[ClusterKey]:
    """Those of the namespace, for who may not list the others; none where even that fails: they are a help only."""
    for path in (clusters.collection(), clusters.collection(namespace)):
        with contextlib.suppress(ApiError):
            return sorted([key async for page in client.list_pages(path) for key in _keys(page)], key=str)
    return []


def _keys(page: JsonObject) -> Iterator[ClusterKey]:
    for item in items_of(page, "items"):
        if isinstance(item, dict):
            metadata = mapping_of(item, "metadata")
            yield ClusterKey(text_of(metadata, "namespace"), text_of(metadata, "name"))
