"""Whether the Machine in the API server equals the cached one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from signer.kube.errors import NotFound
from signer.kube.resources import CLUSTERS_V1BETA2, MACHINES_V1BETA2
from signer.model.cluster import MachineView, machine_view
from signer.model.floors import NO_FLOORS
from signer.model.record import MachineKey
from signer.model.record_object import record_spec
from signer.model.seal import ControllerKeys, RecordSeals
from signer.store.caches import Caches
from signer.store.cluster_api import ClusterAPIVersion, NotServed
from signer.store.live_reads import LiveReads
from tests.unit.signer.builders import record

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
    return LiveReads(api, Caches(version, own_namespace="own", floors=NO_FLOORS))


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


class TestMachineWithoutProviderID:
    """Reservations and records name it by a claimed provider ID."""

    API = API({**MANIFEST, "spec": {"clusterName": "prod"}})
    CLAIMED = replace(KNOWN, provider_id="").claiming("test:///m")

    async def test_it_is_as_known(self) -> None:
        assert await live_reads(self.API).is_as_known(self.CLAIMED)

    @pytest.mark.parametrize(
        ("uid", "gone"), [("1", False), ("2", True), ("", True)], ids=["this Machine", "a former one", "no claim"]
    )
    async def test_whether_it_is_gone(self, uid: str, gone: bool) -> None:
        reads = live_reads(self.API)
        reads._caches.authentic.use_keys(ControllerKeys(bytes(32)))
        key = replace(MachineKey.of(self.CLAIMED), claimed_by=uid)
        assert await reads.is_gone(key) is gone

    async def test_a_record_claims_it_again(self) -> None:
        """The Machine was created again under its name, and its node was attested with the claim of the former one."""
        reads = live_reads(self.API)
        keys = ControllerKeys(bytes(32))
        reads._caches.authentic.use_keys(keys)
        made = record(self.CLAIMED)
        metadata = {"namespace": "team-a", "name": made.name, "uid": "u", "resourceVersion": "1"}
        spec = {**record_spec(made), "seal": RecordSeals(keys).seal(made)}
        reads._caches.records.applied({"metadata": metadata, "spec": spec})
        assert not await reads.is_gone(replace(made.machine, claimed_by="2"))

    async def test_it_shows_another(self) -> None:
        shows = live_reads(API({**MANIFEST, "spec": {"clusterName": "prod", "providerID": "test:///other"}}))
        shows._caches.authentic.use_keys(ControllerKeys(bytes(32)))
        assert await shows.is_gone(MachineKey.of(self.CLAIMED))
