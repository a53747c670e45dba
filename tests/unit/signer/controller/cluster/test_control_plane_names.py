"""What the objects of one cluster state for its API servers: what stays in force, and for how long requests wait."""

from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from signer.controller.cluster import control_plane_names
from signer.controller.cluster.control_plane_names import GIVE_UP_FAILURES, KUBEADM_CONFIG, ControlPlaneNames
from signer.kube.errors import ApiError, Cause, Forbidden, NotFound, ResourceNotServed, Unreachable
from signer.kube.resources import (
    CLUSTERS_V1BETA2,
    KUBEADM_CONTROL_PLANES_V1BETA1,
    KUBEADM_CONTROL_PLANES_V1BETA2,
)
from tests.unit.signer.builders import CLUSTER, cluster_view

PATH = CLUSTERS_V1BETA2.object(CLUSTER.name, CLUSTER.namespace)
NEWER = KUBEADM_CONTROL_PLANES_V1BETA2.object("cp", CLUSTER.namespace)
OLDER = KUBEADM_CONTROL_PLANES_V1BETA1.object("cp", CLUSTER.namespace)
GONE = Unreachable("gone", cause=Cause.REFUSED)
NAMES = ("cp.example", "cm.example", "other.example")


def cluster(name: str = "cp", group: str = "controlplane.cluster.x-k8s.io") -> dict[str, Any]:
    return {"spec": {"controlPlaneRef": {"apiGroup": group, "kind": "KubeadmControlPlane", "name": name}}}


def control_plane(*names: str) -> dict[str, Any]:
    return {"spec": {"kubeadmConfigSpec": {"clusterConfiguration": {"apiServer": {"certSANs": [*names]}}}}}


def config_map(*names: str) -> dict[str, Any]:
    return {"data": {"ClusterConfiguration": f"apiServer: {{certSANs: [{', '.join(names)}]}}"}}


class World:
    """Both clusters; a path without an answer has no object."""

    def __init__(self, kind: str = "KubeadmControlPlane") -> None:
        self.answers: dict[str, Any] = {
            PATH: cluster(),
            NEWER: control_plane("cp.example"),
            KUBEADM_CONFIG: config_map("cm.example"),
        }
        self.asked: list[str] = []
        caches = SimpleNamespace(
            clusters=SimpleNamespace(get=lambda namespace, name: cluster_view(control_plane_kind=kind)),
            version=SimpleNamespace(clusters=CLUSTERS_V1BETA2),
        )
        self.changed = asyncio.Event()
        self.time = 1000.0
        self.names = ControlPlaneNames(
            CLUSTER,
            self,
            cast("Any", caches),
            status_changed=self.changed,
            random=Random(1),
            monotonic=lambda: self.time,
        )
        self.names.report.certificates_unknown = ""
        self.wakes = 0
        self.names.on_change(self._wake)

    def _wake(self) -> None:
        self.wakes += 1

    async def get(self, path: str) -> Any:
        self.asked.append(path)
        answer = self.answers.get(path, NotFound(path))
        if isinstance(answer, ApiError):
            raise answer
        return answer

    async def passes(self, number: int = 1) -> float:
        """Let it read that often; the seconds after which it would read again."""
        pauses: list[float] = []

        async def sleep(seconds: float) -> None:
            pauses.append(seconds)
            self.time += seconds
            if len(pauses) == number:
                raise asyncio.CancelledError

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(control_plane_names, "asyncio", SimpleNamespace(sleep=sleep))
            with pytest.raises(asyncio.CancelledError):
                await self.names.run(cast("Any", self))
        return pauses[-1]

    def refused(self) -> set[str]:
        return set(self.names.report.names_among(NAMES))

    def lacking(self) -> str:
        return "".join(one.message.partition("not read: ")[2] for one in self.names.conditions)


async def test_names_of_both_objects() -> None:
    world = World()
    assert world.names.report.unknown == (
        "the controller has not read ConfigMap kube-system/kubeadm-config and KubeadmControlPlane yet"
    )
    assert await world.passes() == control_plane_names.READ_SECONDS
    assert (world.refused(), world.names.report.unknown) == ({"cp.example", "cm.example"}, "")
    assert (world.asked, world.wakes, world.lacking()) == ([PATH, NEWER, KUBEADM_CONFIG], 1, "")
    assert (world.changed.is_set(), list(world.names.gauges())) == (False, [])
    world.names.wake()


async def test_a_name_that_is_taken_out_is_free_again() -> None:
    world = World()
    await world.passes()
    world.answers[NEWER] = control_plane("other.example")
    await world.passes()
    assert (world.refused(), world.wakes) == ({"cm.example", "other.example"}, 1)


async def test_a_management_cluster_with_the_older_version_alone() -> None:
    world = World()
    world.answers |= {NEWER: ResourceNotServed("no"), OLDER: control_plane("cp.example")}
    await world.passes()
    assert world.refused() == {"cp.example", "cm.example"}


@pytest.mark.parametrize(
    "answers",
    [
        {PATH: NotFound("no")},
        {PATH: {"spec": {}}},
        {PATH: cluster(group="other.example")},
        {PATH: cluster(name="../../clusters/x")},
        {NEWER: NotFound("no")},
        {NEWER: ResourceNotServed("no"), OLDER: ResourceNotServed("no")},
    ],
)
async def test_no_kubeadm_control_plane(answers: dict[str, Any]) -> None:
    world = World()
    world.answers |= answers
    await world.passes()
    assert (world.refused(), world.names.report.unknown, world.lacking()) == ({"cm.example"}, "", "")


async def test_a_cluster_of_another_kind_costs_no_call() -> None:
    world = World("RKE2ControlPlane")
    world.answers[KUBEADM_CONFIG] = NotFound("no")
    await world.passes()
    assert (world.asked, world.names.report.unknown, world.lacking()) == ([KUBEADM_CONFIG], "", "")


@pytest.mark.parametrize("fault", [Forbidden("no"), NotFound("no"), GONE], ids=repr)
@pytest.mark.parametrize("path", [PATH, NEWER, KUBEADM_CONFIG])
async def test_a_fault_opens_nothing(path: str, fault: ApiError) -> None:
    """Also not the names of the other object."""
    world = World()
    await world.passes()
    world.answers[path] = fault
    await world.passes(GIVE_UP_FAILURES + 1)
    assert (world.refused(), world.names.report.unknown) == ({"cp.example", "cm.example"}, "")


async def test_another_connection_reads_nothing_again() -> None:
    """An API server that ends its connections causes no calls to the management cluster."""
    world = World()
    await world.passes()
    world.time -= 1
    await world.passes()
    assert world.asked == [PATH, NEWER, KUBEADM_CONFIG]


async def test_a_configuration_that_cannot_be_read_opens_nothing() -> None:
    world = World()
    await world.passes()
    world.answers[KUBEADM_CONFIG] = {"data": {"ClusterConfiguration": "["}}
    await world.passes()
    assert (world.refused(), world.changed.is_set()) == ({"cp.example", "cm.example"}, True)
    assert world.lacking().startswith("ConfigMap kube-system/kubeadm-config: data.ClusterConfiguration cannot be read")


async def test_without_the_grants() -> None:
    world = World()
    world.answers |= {NEWER: Forbidden("no"), KUBEADM_CONFIG: Forbidden("no")}
    await world.passes()
    assert (world.names.report.unknown, world.wakes) == ("", 1)
    (condition,) = world.names.conditions
    assert (condition.type, condition.met, condition.reason) == ("ControlPlaneNamesRead", False, "NotRead")
    assert world.lacking().count("a grant is missing: Forbidden: no") == 2


@pytest.mark.parametrize("path", [PATH, NEWER, KUBEADM_CONFIG])
async def test_requests_wait_for_a_fault_to_pass_and_not_for_ever(path: str) -> None:
    world = World()
    right = world.answers[path]
    world.answers[path] = GONE
    assert 0 < await world.passes(GIVE_UP_FAILURES - 1) <= 60
    assert (world.names.report.unknown != "", world.wakes, world.lacking()) == (True, 0, "")
    await world.passes()
    assert (world.names.report.unknown, world.wakes) == ("", 1)
    assert "gone" in world.lacking()
    world.answers[path] = right
    assert await world.passes() > 60
    assert (world.refused(), world.lacking()) == ({"cp.example", "cm.example"}, "")


async def test_entries_that_are_left_out() -> None:
    world = World()
    world.answers[NEWER] = control_plane("cp.example", "")
    await world.passes()
    assert world.lacking() == "KubeadmControlPlane: 1 entries are no names, or beyond the first 256"
    assert world.refused() == {"cp.example", "cm.example"}
