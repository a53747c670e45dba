"""The Cluster API version that is read: the absence of a version is concluded from one document only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import pytest

from signer.kube.errors import ApiError, ResourceNotServed, ServerError
from signer.kube.resources import (
    CLUSTERS_V1BETA1,
    CLUSTERS_V1BETA2,
    MACHINE_POOLS_V1BETA1,
    MACHINE_POOLS_V1BETA2,
    MACHINES_V1BETA1,
    MACHINES_V1BETA2,
)
from signer.store.cluster_api import ClusterAPIVersion, NotServed, discover_cluster_api

V1BETA1 = ClusterAPIVersion(CLUSTERS_V1BETA1, MACHINES_V1BETA1, MACHINE_POOLS_V1BETA1)
V1BETA2 = ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2, MACHINE_POOLS_V1BETA2)
GROUP = "/apis/cluster.x-k8s.io"


ALL = ("clusters", "machines", "machines/status", "machinepools", "machinepools/status")


class Discovery:
    """An API server that serves some versions of the group; ``unknown`` are documents that it does not know yet, and
    ``plurals`` what stands in those that have not all.
    """

    def __init__(
        self,
        *served: str,
        plurals: Mapping[str, Sequence[str]] = MappingProxyType({}),
        unknown: tuple[str, ...] = (),
        failure: ApiError | None = None,
    ) -> None:
        self._served = served
        self._plurals = plurals
        self._unknown = unknown
        self._failure = failure

    async def get(self, path: str) -> dict[str, Any]:
        if self._failure is not None:
            raise self._failure
        if path == GROUP and self._served:
            return {"kind": "APIGroup", "versions": [None, *({"version": version} for version in self._served)]}
        version = path.removeprefix(f"{GROUP}/")
        if version not in self._served or version in self._unknown:
            raise ResourceNotServed(path)
        resources = [{"name": name} for name in self._plurals.get(version, ALL)]
        return {"kind": "APIResourceList", "resources": [None, *resources]}


@pytest.mark.parametrize("served", [("v1beta2",), ("v1beta1", "v1beta2")])
async def test_v1beta2_where_it_is_served(served: tuple[str, ...]) -> None:
    assert await discover_cluster_api(Discovery(*served)) == V1BETA2


async def test_v1beta1_elsewhere() -> None:
    assert await discover_cluster_api(Discovery("v1alpha4", "v1beta1")) == V1BETA1


async def test_an_api_server_that_has_just_started_is_not_taken_for_an_older_one() -> None:
    """It knows one version some milliseconds before the other; a controller that took the older one for what there is
    read Machines in the wrong form until it was started again, and no node joined.
    """
    with pytest.raises(ResourceNotServed):
        await discover_cluster_api(Discovery("v1beta2", "v1beta1", unknown=("v1beta2",)))


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
@pytest.mark.parametrize("also", [(), ("machinepools/status",)])
async def test_without_machine_pools(version: str, also: tuple[str, ...]) -> None:
    plurals = dict.fromkeys(("v1beta1", "v1beta2"), ("clusters", "machines", *also))
    found = await discover_cluster_api(Discovery(*{"v1beta1", version}, plurals=plurals))
    assert found.machine_pools == NotServed()
    assert str(found) == f"cluster.x-k8s.io/{version} without MachinePools"


@pytest.mark.parametrize(
    "there",
    [("clusterclasses",), ("clusters",), ("machines", "machinepools"), ("clusters", "machines")],
)
async def test_a_partly_installed_version_is_not_taken_for_complete(there: tuple[str, ...]) -> None:
    """Of definitions that are replaced one after the other the last is perhaps MachinePools: what the older version
    has is there, and its instances are not gone.
    """
    with pytest.raises(ResourceNotServed):
        await discover_cluster_api(Discovery("v1beta1", "v1beta2", plurals={"v1beta2": there}))


def test_a_version_in_words() -> None:
    assert str(V1BETA2) == "cluster.x-k8s.io/v1beta2"


@pytest.mark.parametrize("served", [(), ("v1beta3",)])
async def test_neither_is_an_error(served: tuple[str, ...]) -> None:
    with pytest.raises(
        ResourceNotServed, match=r"neither cluster\.x-k8s\.io/v1beta2 nor v1beta1: install Cluster API there"
    ):
        await discover_cluster_api(Discovery(*served))


async def test_a_fault_is_not_taken_for_an_older_version() -> None:
    with pytest.raises(ServerError):
        await discover_cluster_api(Discovery("v1beta1", failure=ServerError("etcd", status=500)))
