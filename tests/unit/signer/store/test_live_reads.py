"""Whether the Machine in the API server equals the cached one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from signer.kube.errors import NotFound
from signer.kube.resources import CLUSTERS_V1BETA2, MACHINES_V1BETA2
from signer.model.cluster import MachineView, machine_view
from signer.store.caches import Caches
from signer.store.cluster_api import ClusterAPIVersion, NotServed
from signer.store.live_reads import LiveReads

MANIFEST: dict[str, Any] = {
    "metadata": {"namespace": "team-a", "name": "m", "uid": "1"},
    "spec": {"clusterName": "prod", "providerID": "test:///m"},
    "status": {"addresses": [{"type": "Hostname", "address": "m"}]},
}
KNOWN = machine_view(MANIFEST)


class API:
    """One Machine, or none."""

    def __init__(self, manifest: dict[str, Any] | None) -> None:
        self.manifest = manifest
        self.calls: list[str] = []

    async def get(self, path: str) -> dict[str, Any]:
        self.calls.append(path)
        if self.manifest is None:
            raise NotFound(path)
        return self.manifest


def live_reads(api: API) -> LiveReads:
    version = ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2, NotServed())
    return LiveReads(api, Caches(version, own_namespace="own"))


@pytest.mark.parametrize(
    ("known", "expected"),
    [
        pytest.param(KNOWN, True, id="as it is"),
        pytest.param(replace(KNOWN, uid="2"), False, id="made anew"),
        pytest.param(replace(KNOWN, deleting=True), False, id="another that is going"),
        pytest.param(replace(KNOWN, addresses=()), False, id="without its addresses"),
        pytest.param(replace(KNOWN, provider_id="test:///other"), False, id="other hardware"),
    ],
)
async def test_a_machine(known: MachineView, expected: bool) -> None:
    api = API(MANIFEST)
    assert await live_reads(api).is_as_known(known) is expected
    assert api.calls == [MACHINES_V1BETA2.object("m", "team-a")]


async def test_a_machine_that_is_gone() -> None:
    assert not await live_reads(API(None)).is_as_known(KNOWN)


async def test_an_instance_of_a_pool_costs_no_call() -> None:
    """A pool may list thousands."""
    api = API(None)
    assert await live_reads(api).is_as_known(replace(KNOWN, kind="MachinePool"))
    assert api.calls == []
