"""Condition NodeAttested: True while a secure record is valid, only on Machines with the readiness gate."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from signer.controller.status import machine_condition
from signer.controller.status.machine_condition import MachineConditions
from signer.kube import scheduling as cooperative_yield
from signer.kube.errors import Forbidden, NotFound, ServerError
from signer.model.cluster import WATCH_FILTER_LABEL, MachineView, WatchFilter
from signer.model.decision import Decision, Deferred, Deny
from signer.model.fields import format_time
from signer.model.reasons import Reason
from signer.model.record import AttestedNode
from signer.model.shard import SomeShards
from signer.store.cache import ObjectKey
from tests.unit.signer import builders
from tests.unit.signer.controller.status.machine_condition_fixtures import (
    APPROVED,
    DENIED,
    NAMESPACE,
    OTHERS,
    World,
    record,
    settled,
    working,
)
from tests.unit.signer.store.over_limit import exceed


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_condition, "SETTLE_SECONDS", 0)


async def test_an_attested_machine_gets_the_condition_and_keeps_others() -> None:
    world = await settled(World())
    assert world.shown() == [
        *OTHERS,
        {
            "type": "NodeAttested",
            "status": "True",
            "lastTransitionTime": "2026-03-01T12:00:00Z",
            "reason": "Attested",
            "message": f"attested by tpm as node {builders.NODE}",
            "observedGeneration": 3,
        },
    ]


async def test_v1beta1_conditions_have_their_own_field() -> None:
    world = await settled(World("v1beta1"))
    assert world.condition()["status"] == "True"
    assert world.stored["status"]["conditions"] == [{"type": "Ready", "status": "True"}]


@pytest.mark.parametrize("gates", [[], [{"conditionType": "Other"}]])
async def test_a_machine_without_the_readiness_gate_is_not_written(gates: list[Any]) -> None:
    world = World(gates=gates)
    async with working(world):
        world.conditions.decided(world.cache(), DENIED)
        await world.settle()
    assert world.calls == []


async def test_paused_machines_are_not_written() -> None:
    paused: dict[str, Any] = {"annotations": {"cluster.x-k8s.io/paused": ""}}
    assert (await settled(World(**paused))).calls == []
    world = World()
    world.cluster(**paused)
    assert (await settled(world)).calls == []


async def test_machines_are_written_until_they_are_gone() -> None:
    """While its node drains, a deleted Machine's certificates are renewed or expire."""
    going: dict[str, Any] = {"deletionTimestamp": "2026-03-01T12:00:00Z"}
    assert (await settled(World(**going))).calls == ["get", "patch"]
    world = World()
    world.cluster(**going)
    assert (await settled(world)).calls == ["get", "patch"]
    moved = World()
    moved.cluster(**going, annotations={"clusterctl.cluster.x-k8s.io/delete-for-move": ""})
    assert (await settled(moved)).calls == []


async def test_machines_of_another_watch_filter_are_not_written() -> None:
    world = World()
    world.caches.watch_filter = WatchFilter("ours")
    assert (await settled(world)).calls == []
    world = World()
    world.caches.watch_filter = WatchFilter("ours")
    world.cluster(labels={WATCH_FILTER_LABEL: "ours"})
    assert (await settled(world)).calls == ["get", "patch"]


async def test_machines_of_another_replicas_shard_are_written_once_the_shard_is_ours() -> None:
    world = World()
    world.caches.set_shards(SomeShards(1))
    async with working(world):
        world.conditions.decided(world.cache(), DENIED)
        await world.settle()
        assert world.calls == []
        resyncing = asyncio.create_task(world.conditions._resync_forever())
        await asyncio.sleep(0)
        world.caches.set_shards(SomeShards(1, frozenset({0})))
        await asyncio.wait_for(world.patched.wait(), 5)
        resyncing.cancel()
        await asyncio.gather(resyncing, return_exceptions=True)
    assert world.condition()["status"] == "True"


async def test_a_resync_yields_to_other_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each Machine takes about 10 µs, and there may be tens of thousands."""
    monkeypatch.setattr(cooperative_yield, "SLICE_SECONDS", -1.0)
    world = World()
    order: list[str] = []

    def is_right(key: ObjectKey, machine: MachineView) -> bool:
        order.append("looked at")
        return True

    monkeypatch.setattr(world.conditions, "_is_right", is_right)
    asyncio.get_running_loop().call_soon(order.append, "others")
    world.caches.machines.applied({**world.stored, "metadata": {**world.stored["metadata"], "name": "second"}})
    await world.conditions.resync()
    assert order == ["looked at", "others", "looked at"]


async def test_machines_of_a_cluster_without_a_policy_are_not_written() -> None:
    world = World()
    world.caches.policies.removed(world.policy)
    assert (await settled(world)).calls == []


async def test_an_unchanged_state_costs_no_call_until_it_is_verified_again() -> None:
    world = World()
    async with working(world):
        for _ in range(3):
            await world.settle()
            world.clock.pass_by(60)
        assert world.calls == ["get", "patch"]
        world.stored["status"]["conditions"] = []
        world.clock.pass_by(machine_condition.VERIFY_SECONDS)
        await world.settle()
    assert world.condition()["status"] == "True"


async def test_an_unchanged_state_is_not_written_after_a_restart() -> None:
    world = await settled(World())
    world.stored["metadata"]["generation"] = 4
    world.conditions = world.restarted()
    assert (await settled(world)).calls == ["get", "patch", "get"]


async def test_expiry_is_noticed_without_an_event() -> None:
    world = World()
    async with working(world):
        await world.settle()
        world.clock.pass_by(25 * 3600)
        await world.settle()
    assert (world.condition()["status"], world.condition()["reason"]) == ("False", "AttestationExpired")
    assert world.condition()["lastTransitionTime"] == "2026-03-02T13:00:00Z"


async def test_a_renewal_writes_nothing() -> None:
    """Every write to a Machine triggers other controllers."""
    world = World()
    async with working(world):
        await world.settle()
        before = world.condition()
        world.clock.pass_by(3600)
        world.records = [record(hours=100)]
        world.conditions.decided(world.cache(), APPROVED)
        await world.settle()
    assert world.condition() == before


async def test_a_denial_shows_until_the_machine_is_attested() -> None:
    world = World()
    world.records = []
    async with working(world):
        await world.settle()
        assert world.condition()["reason"] == "NotAttestedYet"
        world.clock.pass_by(machine_condition.WRITE_SECONDS)
        world.conditions.decided(world.cache(), DENIED)
        await world.worked()
        assert (world.condition()["status"], world.condition()["reason"]) == ("False", "NodeNameMismatch")
        world.records = [record()]
        world.conditions.decided(world.cache(), APPROVED)
        await world.worked()
        assert world.condition()["status"] == "True"
        world.clock.pass_by(25 * 3600)
        await world.settle()
    assert world.condition()["reason"] == "AttestationExpired"


async def test_another_request_with_the_same_outcome_is_not_written() -> None:
    """The message names one of them, and the command that explains it."""
    world = World()
    world.records = []
    async with working(world):
        world.conditions.decided(world.cache(), DENIED, " (CSR csr-1: explain csr-1)")
        await world.worked()
        world.clock.pass_by(machine_condition.WRITE_SECONDS)
        world.conditions.decided(world.cache(), DENIED, " (CSR csr-2: explain csr-2)")
        await world.worked()
        world.conditions = world.restarted()
    async with working(world):
        world.conditions.decided(world.cache(), DENIED, " (CSR csr-3: explain csr-3)")
        await world.worked()
    assert world.condition()["message"] == f"{DENIED.message} (CSR csr-1: explain csr-1)"
    assert world.calls.count("patch") == 1


async def test_the_last_message_survives_a_restart() -> None:
    world = World()
    world.records = []
    world.conditions.decided(world.cache(), DENIED)
    await settled(world)
    world.conditions = world.restarted()
    await settled(world)
    assert world.condition()["reason"] == "NodeNameMismatch"


async def test_a_deleted_record_ends_true() -> None:
    world = await settled(World())
    world.records = []
    world.conditions = world.restarted()
    await settled(world)
    assert (world.condition()["status"], world.condition()["reason"]) == ("Unknown", "NotAttestedYet")


async def test_consecutive_denials_are_rate_limited() -> None:
    """The holder of a bootstrap token controls how often requests are denied."""
    world = World()
    world.records = []
    async with working(world):
        for number in range(20):
            world.conditions.decided(world.cache(), Deny(f"No{number}", "no"))
            await world.worked()
        assert world.calls == ["get", "patch"]
        world.clock.pass_by(machine_condition.WRITE_SECONDS)
        await world.settle()
    assert world.condition()["reason"] == "No19"


@pytest.mark.parametrize("others", [1, 4])
async def test_concurrent_writes_are_retried(others: int) -> None:
    world = World()
    world.meanwhile = others
    await settled(world)
    assert world.calls == ["get", "patch"] * (others + 1)
    assert world.condition()["status"] == "True"


async def test_another_machine_of_that_name_is_not_written() -> None:
    world = World()
    world.stored["metadata"]["uid"] = "m-2"
    assert (await settled(world)).calls == ["get"]
    world.cache()
    assert (await settled(world)).condition()["status"] == "Unknown"


async def test_a_recreated_machine_gets_the_condition_again() -> None:
    world = World()
    async with working(world):
        await world.settle()
        world.stored["metadata"]["uid"] = "m-2"
        world.stored["status"]["conditions"] = []
        world.cache()
        await world.settle()
        assert world.condition()["status"] == "Unknown", "what was attested was its predecessor"
        world.records = [replace(record(), machine_uid="m-2")]
        world.clock.pass_by(60)
        await world.settle()
    assert world.condition()["status"] == "True"


async def test_a_denial_while_attested_is_not_what_expiry_shows() -> None:
    world = World()
    async with working(world):
        await world.settle()
        world.conditions.decided(world.cache(), DENIED)
        await world.settle()
        assert world.condition()["status"] == "True"
        world.clock.pass_by(25 * 3600)
        await world.settle()
    assert world.condition()["reason"] == "AttestationExpired"


async def test_a_missing_grant_is_logged_once_and_retried_later(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.failure["patch"] = Forbidden("no", status=403)
    with caplog.at_level(logging.WARNING):
        async with working(world):
            for _ in range(4):
                await world.settle()
                world.clock.pass_by(machine_condition.DISABLED_SECONDS * 0.6)
    assert world.calls == ["get", "patch"] * 2
    assert len(caplog.records) == 1
    world.failure.clear()
    world.clock.pass_by(machine_condition.DISABLED_SECONDS)
    assert (await settled(world)).condition()["status"] == "True"


class BesideAnother(World):
    """Machines of another namespace are queued first, and writes to them are refused."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        others = [copy.deepcopy(self.stored) for _ in range(2)]
        for number, other in enumerate(others):
            other["metadata"].update(namespace="another", name=f"theirs-{number}", uid=f"theirs-{number}")
            self.caches.machines.applied(other)
        self.theirs = {other["metadata"]["name"]: other for other in others}
        for cache in (self.caches.clusters, self.caches.policies):
            named = {"namespace": "another", "name": builders.CLUSTER.name, "uid": "another"}
            cache.applied({"metadata": named, "spec": {}})
        self.conditions = self.restarted()

    def _records_of(self, machine: MachineView) -> Iterable[AttestedNode]:
        return self.records

    async def get(self, path: str) -> dict[str, Any]:
        name = path.rpartition("/")[2]
        return copy.deepcopy(self.theirs[name]) if name in self.theirs else await super().get(path)

    async def patch(self, path: str, patch: dict[str, Any]) -> dict[str, Any]:
        if "/namespaces/another/" in path:
            self.asked.append(path)
            raise Forbidden("by an admission webhook", status=403)
        return await super().patch(path, patch)


async def test_a_forbidden_namespace_disables_only_itself() -> None:
    world = BesideAnother()
    async with working(world):
        for name in world.theirs:
            world.conditions._queue.add(("another", name))
        await world.worked()
        assert len(world.asked) == 1
        await world.settle()
        assert world.condition()["status"] == "True"
        assert len(world.asked) == 1
        world.clock.pass_by(machine_condition.DISABLED_SECONDS)
        await world.settle()
        assert len(world.asked) == 2
        world.clock.pass_by(machine_condition.DISABLED_SECONDS)
        await world.conditions.resync()
    assert world.conditions._disabled_until == {}, "namespaces come and go"


async def test_a_schema_without_the_field_disables_all_namespaces() -> None:
    world = BesideAnother()
    world.keeps = False
    async with working(world):
        world.conditions._queue.add((NAMESPACE, builders.machine_view().name))
        await world.worked()
        assert world.calls == ["get", "patch"]
        await world.settle()
    assert world.asked == []


async def test_a_schema_without_the_field_is_noticed(caplog: pytest.LogCaptureFixture) -> None:
    world = World("v1beta1")
    world.keeps = False
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            await settled(world)
    assert world.calls == ["get", "patch"]
    assert "does not keep" in caplog.records[0].__dict__["detail"]


async def test_too_many_other_conditions(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.stored["status"]["conditions"] = [{"type": f"C{number}", "status": "True"} for number in range(32)]
    with caplog.at_level(logging.WARNING):
        await settled(world)
    assert world.calls == ["get"]
    assert "32 other conditions" in caplog.records[0].__dict__["detail"]


@pytest.mark.parametrize("failure", [ServerError("etcd", status=500), RuntimeError("a defect")])
async def test_a_failure_is_retried(failure: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.failure["get"] = failure
    retried: list[Any] = []
    monkeypatch.setattr(world.conditions._queue, "retry", retried.append)
    await settled(world)
    assert retried == [(NAMESPACE, builders.machine_view().name)]
    world.failure.clear()
    assert (await settled(world)).condition()["status"] == "True"


async def test_nothing_is_written_without_the_controller_key() -> None:
    world = World()

    def unavailable(machine: MachineView) -> Iterable[AttestedNode]:
        raise Deferred(Reason.INTERNAL_ERROR, "no key")

    world.conditions = MachineConditions(
        world, world.caches, unavailable, now=world.clock.now, monotonic=world.clock.monotonic
    )
    async with working(world):
        world.conditions.decided(world.cache(), APPROVED)
        await world.settle()
    assert world.calls == []


async def test_a_machine_that_is_gone_is_forgotten() -> None:
    world = await settled(World())
    world.conditions.decided(world.cache(), DENIED)
    world.caches.machines.removed(world.stored)
    await settled(world)
    assert world.conditions._last == {}
    assert world.conditions._written == {}
    assert world.calls == ["get", "patch"]


async def test_a_machine_that_is_deleted_before_its_write(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.failure["get"] = NotFound("gone", status=404)
    with caplog.at_level(logging.INFO):
        await settled(world)
    assert caplog.records == []


async def test_a_change_of_the_machine_triggers_a_write() -> None:
    world = World()
    world.stored["spec"]["providerID"] = ""
    world.caches.machines.removed(world.stored)
    world.cache()
    async with working(world):
        world.stored["spec"]["providerID"] = builders.PROVIDER_ID
        world.cache()
        await world.worked()
    assert world.condition()["status"] == "True"


async def test_run_reconciles() -> None:
    world = World()
    running = asyncio.create_task(world.conditions.run())
    await world.patched.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


@pytest.mark.parametrize("decision", [DENIED, APPROVED])
async def test_a_pool_instance_has_no_machine_to_write(decision: Decision) -> None:
    world = World()
    instance = builders.machine_view(kind="MachinePool", readiness_gates=frozenset({"NodeAttested"}))
    world.conditions.decided(instance, decision)
    assert world.conditions._queue.delayed + len(world.conditions._queue) == 0


async def test_many_machines_of_one_namespace_delay_no_other() -> None:
    """The tenant controls how often its requests are denied."""
    queue = World().conditions._queue
    for key in [*(("tenant", f"machine-{number}") for number in range(9)), ("honest", "machine")]:
        queue.add(key)
    assert [await queue.get() for _ in range(3)] == [
        ("tenant", "machine-0"),
        ("honest", "machine"),
        ("tenant", "machine-1"),
    ]


# A re-created Machine


async def test_a_recreated_machine_is_not_attested_by_its_predecessors_record() -> None:
    world = await settled(World(uid="m-2"))
    assert (world.condition()["status"], world.condition()["reason"]) == ("Unknown", "NotAttestedYet")


@pytest.mark.parametrize(("seconds", "status"), [(0, "Unknown"), (1, "True")])
async def test_a_moved_machine_stays_attested(seconds: int, status: str) -> None:
    """`clusterctl move` changes every UID, and the next renewal may be days away."""
    world = World(uid="m-2")
    (attested,) = world.records
    world.cluster(creationTimestamp=format_time(attested.last_attestation + timedelta(seconds=seconds)))
    assert (await settled(world)).condition()["status"] == status


async def test_a_predecessors_denial_is_not_shown() -> None:
    world = World()
    world.records = []
    world.conditions.decided(world.cache(), DENIED)
    world.stored["metadata"]["uid"] = "m-2"
    world.cache()
    assert (await settled(world)).condition()["reason"] == "NotAttestedYet"


def test_machine_that_shows_another_provider_id_than_its_node_claims() -> None:
    world = World()
    machine = world.cache()
    world.records = [builders.record(replace(machine, provider_id="").claiming("metal3://metal3/node-0/m1"))]
    content = world.conditions._content((machine.cluster.namespace, machine.name), machine)
    assert (content.status, content.reason) == ("False", "ProviderIDDisagrees")
    assert "metal3://metal3/node-0/m1" in content.message


@pytest.mark.parametrize("what", ["records", "policies", "clusters"])
async def test_a_machine_whose_record_was_dropped_stays_attested(what: str) -> None:
    """Its namespace is over a limit: a missing record says nothing."""
    world = await settled(World())
    before = world.shown()
    exceed(getattr(world.caches, what), NAMESPACE)
    world.records = []
    world.clock.pass_by(24 * 60 * 60)
    machine = world.cache()
    world.conditions.decided(machine, DENIED)
    await settled(world)
    assert world.shown() == before
