"""Rollouts as an actuator: what is written, when, and what is proven."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from signer.kube.client import JsonObject
from signer.kube.errors import Conflict, Forbidden
from signer.kube.resources import CLUSTERS_V1BETA2
from signer.model.cluster import MachineView
from signer.model.fields import format_time
from signer.rotation.control_plane.kubeadm_control_plane import kubeadm_control_plane, rotated_cluster
from signer.rotation.control_plane.machines import ControlPlaneMachines
from signer.rotation.control_plane.renewal import SETTLING, ControlPlane, NotRenewed, Renewal, Renewed
from signer.rotation.control_plane.rollout import (
    ByHand,
    ByOperator,
    KubeadmRollout,
    Requested,
    ServersActuator,
    TooEarly,
    UnderWay,
    Withheld,
)
from signer.testing.api.patches import merge
from tests.unit.signer.rotation.control_plane.recorded import KUBEADM, recorded
from tests.unit.signer.rotation.control_plane.test_kubeadm_control_plane import VERSIONS
from tests.unit.signer.rotation.control_plane.test_machines import CONTROL_PLANE, machine

WRITTEN = datetime(2026, 10, 1, 8, 0, 0, 250_000, tzinfo=UTC)
RENEWAL = Renewal(WRITTEN)
AFTER = datetime(2026, 10, 1, 8, 1, 1, tzinfo=UTC)
LATER = AFTER + timedelta(minutes=5)
OWN, OF_CLASS = "cluster-v1beta2", "cluster-of-class-v1beta2"


def control_plane_machine(name: str, created: datetime, **more: Any) -> MachineView:
    return replace(machine(name, labels=CONTROL_PLANE, node=name), created=created, **more)


NEW = tuple(control_plane_machine(f"cp-{i}", AFTER + timedelta(minutes=i)) for i in range(3))
OLD = tuple(replace(one, created=WRITTEN) for one in NEW)


def settled(kubeadm: str = KUBEADM[1]) -> World:
    """A world after the rollout."""
    world = World(kubeadm)
    world.machines = NEW
    return world


class World:
    """The objects of one cluster, all of whose machines are old, with a client that patches them."""

    def __init__(self, kubeadm: str = KUBEADM[1], cluster: str = OWN, *, drops_topology_field: bool = False) -> None:
        self.version = VERSIONS[kubeadm]
        self.kubeadm = recorded(kubeadm)
        self.cluster = recorded(cluster)
        self.machines: tuple[MachineView, ...] = OLD
        self.patches: list[tuple[str, JsonObject]] = []
        self.error: Exception | None = None
        self._drops = drops_topology_field

    def seen(self) -> ControlPlane:
        return ControlPlane(
            rotated_cluster(self.cluster),
            kubeadm_control_plane(self.kubeadm, self.version),
            ControlPlaneMachines(self.machines),
        )

    async def patch(self, path: str, patch: JsonObject) -> JsonObject:
        if self.error:
            raise self.error
        name = "cluster" if path == CLUSTERS_V1BETA2.object("edge", "fleet") else "kubeadm"
        target = getattr(self, name)
        if patch["metadata"]["resourceVersion"] != target["metadata"]["resourceVersion"]:
            raise Conflict("the object has been modified", status=409)
        self.patches.append((name, patch["spec"]))
        if name == "kubeadm" or not self._drops:
            target = merge(target, patch)
        version = str(int(target["metadata"]["resourceVersion"]) + 1)
        setattr(self, name, merge(target, {"metadata": {"resourceVersion": version}}))
        found: JsonObject = getattr(self, name)
        return found

    def actuator(self, now: datetime = LATER) -> ServersActuator:
        return KubeadmRollout(self, CLUSTERS_V1BETA2, lambda: now)


# The write


def test_a_machine_counts_some_time_after_the_write() -> None:
    assert RENEWAL.not_before == AFTER
    assert RENEWAL.not_before - WRITTEN >= SETTLING
    assert Renewal(AFTER).not_before == AFTER + SETTLING


@pytest.mark.parametrize(
    ("kubeadm", "spec"),
    [
        (KUBEADM[0], {"rolloutAfter": format_time(AFTER)}),
        (KUBEADM[1], {"rollout": {"after": format_time(AFTER)}}),
    ],
)
async def test_the_rollout_is_requested_once(kubeadm: str, spec: JsonObject) -> None:
    world = World(kubeadm)
    assert await world.actuator().renew(world.seen(), RENEWAL) == Requested()
    assert world.patches == [("kubeadm", spec)]
    assert await world.actuator().renew(world.seen(), RENEWAL) == UnderWay()
    assert len(world.patches) == 1
    if kubeadm == KUBEADM[1]:
        assert world.kubeadm["spec"]["rollout"]["before"] == {"certificatesExpiryDays": 21}


async def test_two_controllers_write_once() -> None:
    world = World()
    seen = world.seen()
    assert await world.actuator().renew(seen, RENEWAL) == Requested()
    with pytest.raises(Conflict):
        await world.actuator().renew(seen, RENEWAL)
    assert len(world.patches) == 1


async def test_the_next_step_is_another_rollout() -> None:
    world = World()
    await world.actuator().renew(world.seen(), RENEWAL)
    following = Renewal(LATER)
    assert await world.actuator(LATER + timedelta(hours=1)).renew(world.seen(), following) == Requested()
    assert world.patches[-1] == ("kubeadm", {"rollout": {"after": format_time(following.not_before)}})


async def test_with_a_cluster_class_the_cluster_is_patched() -> None:
    world = World(cluster=OF_CLASS)
    assert await world.actuator().renew(world.seen(), RENEWAL) == Requested()
    wanted = {"topology": {"controlPlane": {"rollout": {"after": format_time(AFTER)}}}}
    assert world.patches == [("cluster", wanted)]
    assert await world.actuator().renew(world.seen(), RENEWAL) == UnderWay()


async def test_where_the_field_of_the_cluster_is_dropped_the_control_plane_is_patched() -> None:
    world = World(cluster=OF_CLASS, drops_topology_field=True)
    assert await world.actuator().renew(world.seen(), RENEWAL) == Requested()
    assert [name for name, _ in world.patches] == ["cluster", "kubeadm"]
    assert await world.actuator().renew(world.seen(), RENEWAL) == UnderWay()
    assert len(world.patches) == 2


@pytest.mark.parametrize("now", [WRITTEN, AFTER])
async def test_before_the_write_has_settled_nothing_is_requested(now: datetime) -> None:
    world = World()
    assert await world.actuator(now).renew(world.seen(), RENEWAL) == TooEarly(AFTER + timedelta(seconds=1))
    assert not world.patches


async def test_a_rollout_that_is_set_for_later_is_not_moved() -> None:
    world = World()
    world.kubeadm["spec"]["rollout"]["after"] = format_time(LATER + timedelta(days=1))
    found = await world.actuator().renew(world.seen(), RENEWAL)
    assert isinstance(found, Withheld)
    assert format_time(LATER + timedelta(days=1)) in found.reason
    assert not world.patches


async def test_an_earlier_rollout_does_not_count() -> None:
    world = World()
    world.kubeadm["spec"]["rollout"]["after"] = format_time(AFTER - timedelta(seconds=1))
    assert await world.actuator().renew(world.seen(), RENEWAL) == Requested()


@pytest.mark.parametrize(
    "state", ["paused cluster", "paused control plane", "deleted cluster", "deleted control plane"]
)
async def test_a_cluster_that_is_paused_or_deleted_is_left_alone(state: str) -> None:
    world = World()
    match state:
        case "paused cluster":
            world.cluster["spec"]["paused"] = True
        case "paused control plane":
            world.kubeadm["metadata"]["annotations"] = {"cluster.x-k8s.io/paused": ""}
        case "deleted cluster":
            world.cluster["metadata"]["deletionTimestamp"] = format_time(LATER)
        case "deleted control plane":
            world.kubeadm["metadata"]["deletionTimestamp"] = format_time(LATER)
    assert isinstance(await world.actuator().renew(world.seen(), RENEWAL), Withheld)
    assert not world.patches


@pytest.mark.parametrize(("cluster", "kind"), [(OWN, "kubeadmcontrolplanes"), (OF_CLASS, "clusters")])
async def test_without_the_right_a_person_is_told_what_to_do(cluster: str, kind: str) -> None:
    world = World(cluster=cluster)
    world.error = Forbidden("cannot patch", status=403)
    found = await world.actuator().renew(world.seen(), RENEWAL)
    assert isinstance(found, ByHand)
    assert f"kubectl patch {kind}.v1beta2." in found.what_to_do
    assert format_time(AFTER) in found.what_to_do


async def test_machines_that_an_upgrade_has_replaced_are_not_replaced_again() -> None:
    world = settled()
    assert await world.actuator().renew(world.seen(), RENEWAL) == UnderWay()
    world.machines = (NEW[0], OLD[1], NEW[2])
    assert await world.actuator().renew(world.seen(), RENEWAL) == Requested()
    world = World()
    world.machines = ()
    assert await world.actuator().renew(world.seen(), RENEWAL) == Requested()


async def test_by_operator_writes_nothing() -> None:
    world = World()
    actuator: ServersActuator = ByOperator(CLUSTERS_V1BETA2)
    found = await actuator.renew(world.seen(), RENEWAL)
    assert isinstance(found, ByHand)
    assert "edge-control-plane" in found.what_to_do
    assert isinstance(actuator.proof(world.seen(), RENEWAL), NotRenewed)
    world.machines = NEW
    assert await actuator.renew(world.seen(), RENEWAL) == UnderWay()
    assert actuator.proof(world.seen(), RENEWAL) == Renewed()


# The proof


@pytest.mark.parametrize("kubeadm", KUBEADM)
def test_new_machines_of_a_settled_control_plane_prove_it(kubeadm: str) -> None:
    world = settled(kubeadm)
    assert world.actuator().proof(world.seen(), RENEWAL) == Renewed()


@pytest.mark.parametrize(
    ("changed", "members"),
    [
        ({"created": AFTER - timedelta(seconds=1)}, ("cp-1",)),
        ({"created": WRITTEN.replace(microsecond=0)}, ("cp-1",)),
        ({"deleting": True}, ("cp-1",)),
        ({"node_ref": ""}, ("cp-1",)),
    ],
    ids=["old", "created in the second of the write", "being deleted", "not joined"],
)
def test_one_machine_holds_the_step(changed: dict[str, Any], members: tuple[str, ...]) -> None:
    world = settled()
    world.machines = (NEW[0], replace(NEW[1], **changed), NEW[2])
    found = world.actuator().proof(world.seen(), RENEWAL)
    assert isinstance(found, NotRenewed)
    assert found.members == members


@pytest.mark.parametrize(
    ("part", "changed"),
    [
        ("spec", {"replicas": 5}),
        ("status", {"replicas": 4}),
        ("status", {"readyReplicas": 2}),
        ("status", {"upToDateReplicas": 2}),
        ("status", {"observedGeneration": 2}),
        ("status", {"conditions": [{"type": "RollingOut", "status": "True"}]}),
        ("status", {}),
    ],
)
def test_a_control_plane_that_is_not_settled_holds_the_step(part: str, changed: dict[str, Any]) -> None:
    world = settled()
    world.kubeadm[part] = {**world.kubeadm[part], **changed} if changed else {}
    found = world.actuator().proof(world.seen(), RENEWAL)
    assert isinstance(found, NotRenewed)
    assert found.members == ("edge-control-plane",)


@pytest.mark.parametrize("machines", [(), NEW[:2]], ids=["none", "two of three"])
def test_machines_that_are_not_cached_hold_the_step(machines: tuple[MachineView, ...]) -> None:
    world = settled()
    world.machines = machines
    assert isinstance(world.actuator().proof(world.seen(), RENEWAL), NotRenewed)


def test_an_older_provider_without_the_condition_is_judged_by_its_numbers() -> None:
    world = settled(KUBEADM[0])
    del world.kubeadm["status"]["v1beta2"]
    assert world.actuator().proof(world.seen(), RENEWAL) == Renewed()
    world.kubeadm["status"]["updatedReplicas"] = 2
    assert isinstance(world.actuator().proof(world.seen(), RENEWAL), NotRenewed)
