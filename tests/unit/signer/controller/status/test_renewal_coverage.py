"""Machines that would lose renewal under Enforce: those without a valid record of an attestor that renews."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, cast

import pytest

from attestors.contract import Security
from signer.configuration import Configuration, OperatorAttestor, every_attestor
from signer.controller.status import renewal_coverage as standing_module
from signer.controller.status.policy_status import permitted_in
from signer.controller.status.renewal_coverage import Attested, MachineCoverage, RenewalCoverage, Starting, Unattested
from signer.kube.resources import CLUSTERS_V1BETA2, MACHINES_V1BETA2
from signer.model.attestor_roles import AnyOf, RequiredAttestors
from signer.model.cluster import MachineView
from signer.model.fields import format_time
from signer.model.floors import NO_FLOORS, Floor, Floors, NamespaceFloor
from signer.model.record import AttestedIdentity, AttestedNode
from signer.model.seal import ControllerKeys, RecordSeals
from signer.store.authentic_records import UnverifiedRecord
from signer.store.caches import Caches
from signer.store.cluster_api import ClusterAPIVersion
from tests.unit.signer.builders import CLUSTER, NOW, SERVING_SIGNER, journal_entry, machine_view, record
from tests.unit.signer.controller.support import registry

KEYS = ControllerKeys(bytes(32))
AUTHORIZED = [{"name": name} for name in ("good", "insecure", "absent")]
GOOD = AttestedIdentity("good", "ek:1", Security.SECURE)


def caches_of(floors: Floors = NO_FLOORS, **policy: Any) -> Caches:
    """Caches with a policy of that spec."""
    caches = Caches(ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2), own_namespace="own", floors=floors)
    caches.authentic.use_keys(KEYS)
    metadata = {"namespace": CLUSTER.namespace, "name": CLUSTER.name, "uid": "p"}
    caches.policies.applied({"metadata": metadata, "spec": {"authorizedAttestors": AUTHORIZED, **policy}})
    return caches


def coverage_of(
    caches: Caches, now: datetime = NOW, operator: Mapping[str, OperatorAttestor] | None = None
) -> RenewalCoverage:
    configuration = Configuration("own", attestors={**every_attestor(registry().providers), **(operator or {})})
    permits = permitted_in(CLUSTER.namespace, configuration, registry())
    return RenewalCoverage(CLUSTER, registry=registry(), caches=caches, permits=permits, now=lambda: now)


def with_machine(caches: Caches, machine: MachineView, *records: AttestedNode) -> Caches:
    cast("Any", caches)._machine_changed(("team-a", machine.name), None, machine)
    for number, one in enumerate(records):
        sealed = replace(one, seal=one.seal or RecordSeals(KEYS).seal(one))
        caches.authentic.changed(("team-a", f"{one.name}-{number}"), None, UnverifiedRecord(sealed))
    return caches


def renewal_coverage(machine: MachineView, *records: AttestedNode, now: datetime = NOW) -> tuple[MachineCoverage, ...]:
    return coverage_of(with_machine(caches_of(), machine, *records), now).all()


def why(found: tuple[MachineCoverage, ...]) -> str:
    (one,) = found
    return one.why if isinstance(one, Unattested) else ""


def good_record(**changes: Any) -> AttestedNode:
    return replace(record(), **{"identity": GOOD, **changes})


def test_attested() -> None:
    assert isinstance(renewal_coverage(machine_view(), good_record())[0], Attested)


def test_a_machine_without_a_node_is_starting() -> None:
    """In a cluster that scales all the time, there is always a starting Machine."""
    assert renewal_coverage(machine_view(provider_id="")) == (Starting(machine_view(provider_id="")),)


class TestDeleting:
    """A node that drains needs its renewal; one that is off, or never joined, does not."""

    DRAINING = machine_view(deleting=True, node_ref="n")

    def test_without_a_node(self) -> None:
        assert renewal_coverage(machine_view(deleting=True)) == ()

    def test_with_an_attested_node(self) -> None:
        assert isinstance(renewal_coverage(self.DRAINING, good_record())[0], Attested)

    def test_with_a_node_that_nothing_attested(self) -> None:
        assert why(renewal_coverage(self.DRAINING)) == "has no AttestedNode that counts"

    def test_with_a_node_that_cannot_renew_any_more(self) -> None:
        assert renewal_coverage(self.DRAINING, good_record(journal=(journal_entry(not_after=NOW),))) == ()

    def test_where_the_policy_ends_renewal(self) -> None:
        caches = with_machine(caches_of(certificates={"deletingDuration": "0s"}), self.DRAINING)
        assert coverage_of(caches).all() == ()

    def test_an_instance(self) -> None:
        """It has no nodeRef of its own."""
        going = pool(1, deletionTimestamp="2026-03-01T12:00:00Z").all()
        assert why(going) == "has no AttestedNode that counts"


@pytest.mark.parametrize(
    ("machine", "records", "expected"),
    [
        (machine_view(provider_id="", node_ref="n"), (), "has a node and no provider ID"),
        (machine_view(), (), "has no AttestedNode that counts"),
        (machine_view(name="other"), (good_record(),), "has no AttestedNode that counts"),
        (machine_view(), (good_record(seal="v1.0.0"),), "has no AttestedNode that counts"),
        (
            machine_view(),
            (good_record(identity=AttestedIdentity("insecure", "x", Security.INSECURE)),),
            "was attested by insecure, which does not renew",
        ),
        (
            machine_view(),
            (good_record(identity=AttestedIdentity("absent", "x", Security.SECURE)),),
            "was attested by absent, which does not renew",
        ),
        (
            machine_view(),
            (good_record(journal=(journal_entry(not_after=NOW),)),),
            "has no certificate since 2026-03-01 12:00 UTC",
        ),
        (
            machine_view(),
            (good_record(journal=(journal_entry(signer_name=SERVING_SIGNER),)),),
            "has no certificate since 2026-03-01 12:00 UTC",
        ),
    ],
    ids=[
        "no provider ID",
        "no record",
        "another's record",
        "a forged record",
        "insecure",
        "not installed",
        "expired",
        "serving only",
    ],
)
def test_machines_that_would_lose_renewal(
    machine: MachineView, records: tuple[AttestedNode, ...], expected: str
) -> None:
    assert why(renewal_coverage(machine, *records)) == expected


@pytest.mark.parametrize(
    ("spec", "operator", "expected"),
    [
        ({}, {}, ""),
        ({}, {"good": OperatorAttestor(frozenset({"team-b", CLUSTER.namespace}))}, ""),
        (
            {"authorizedAttestors": [{"name": "other"}]},
            {},
            "was attested by good, which the policy no longer authorizes",
        ),
        (
            {},
            {"good": OperatorAttestor(frozenset({"team-b"}))},
            "was attested by good, which this controller no longer allows here",
        ),
        ({"mode": "Enforced"}, {}, "was attested by good, and there is no valid policy"),
    ],
    ids=["authorized", "allowed here", "taken out of the policy", "not allowed here", "a policy that is none"],
)
def test_machines_attested_by_an_attestor_that_is_no_longer_allowed(
    spec: dict[str, Any], operator: dict[str, OperatorAttestor], expected: str
) -> None:
    """A currently valid certificate would be the last one of its node."""
    caches = with_machine(caches_of(**spec), machine_view(), good_record())
    assert why(coverage_of(caches, operator=operator).all()) == expected


def test_machines_attested_by_an_attestor_that_the_floor_does_not_accept() -> None:
    """Its renewal will be denied, so renewal without attestation must stay until it is attested again."""
    workers = Floor(required=RequiredAttestors(workers=AnyOf(frozenset({"other"}))))
    floors = Floors((NamespaceFloor(frozenset({CLUSTER.namespace}), False, workers),))
    caches = with_machine(caches_of(floors), machine_view(), good_record())
    expected = "was attested by good, which the operator's floor does not accept for its role"
    assert why(coverage_of(caches).all()) == expected
    plane = with_machine(caches_of(floors), machine_view(control_plane=True), good_record())
    assert isinstance(coverage_of(plane).all()[0], Attested)


def test_machines_whose_identity_is_not_of_all_attestors_that_the_floor_requires() -> None:
    together = Floor(required=RequiredAttestors(workers=AnyOf(frozenset({"good"}), frozenset({"good", "other"}))))
    floors = Floors((NamespaceFloor(frozenset({CLUSTER.namespace}), False, together),))
    caches = with_machine(caches_of(floors), machine_view(), good_record())
    expected = "was attested by good, which the operator's floor does not accept for its role"
    assert why(coverage_of(caches).all()) == expected


def test_without_a_policy_no_node_can_renew() -> None:
    caches = with_machine(caches_of(), machine_view(), good_record())
    caches.policies.replaced([])
    assert "there is no valid policy" in why(coverage_of(caches).all())


def test_a_recreated_machine_is_unattested() -> None:
    """It may have joined by the built-in signer, and would lose its renewal."""
    anew = machine_view(uid="m-2")
    assert why(renewal_coverage(anew, good_record())) == "was re-created since its node was attested"
    again = good_record(machine_uid="m-2", journal=(journal_entry(2),))
    (coverage,) = renewal_coverage(anew, good_record(), again)
    assert isinstance(coverage, Attested)
    assert coverage.record.machine_uid == "m-2"


@pytest.mark.parametrize(("seconds", "attested"), [(0, False), (1, True)])
def test_a_machine_moved_with_its_cluster_is_attested(seconds: int, attested: bool) -> None:
    caches = with_machine(caches_of(), machine_view(uid="m-2"), good_record())
    created = good_record().last_attestation + timedelta(seconds=seconds)
    metadata = {"namespace": CLUSTER.namespace, "name": CLUSTER.name, "creationTimestamp": format_time(created)}
    caches.clusters.applied({"metadata": metadata, "spec": {}})
    (coverage,) = coverage_of(caches).all()
    assert isinstance(coverage, Attested) == attested


def test_the_longest_lived_record_counts() -> None:
    old = good_record(node_name="formerly", journal=(journal_entry(not_after=NOW - timedelta(days=1)),))
    assert why(renewal_coverage(machine_view(), old, good_record())) == ""


def pool(listed: int, replicas: int = 0, **metadata: Any) -> RenewalCoverage:
    """Caches with a MachinePool that lists that many instances."""
    caches = caches_of()
    provider_ids = [f"test:///{number}" for number in range(listed)]
    spec = {"clusterName": CLUSTER.name, "providerIDList": provider_ids, "replicas": replicas}
    caches.machine_pools.applied(
        {"metadata": {"namespace": CLUSTER.namespace, "name": "pool", "uid": "p", **metadata}, "spec": spec}
    )
    return coverage_of(caches)


@pytest.mark.parametrize(("listed", "replicas", "missing"), [(0, 2, 2), (1, 2, 1), (2, 2, 0), (3, 2, 0)])
async def test_pool_instances_without_provider_ids_are_unattested(listed: int, replicas: int, missing: int) -> None:
    """An empty providerIDList must not pass for a fully attested pool."""
    found = await pool(listed, replicas).unattested()
    unlisted = [one.why for one in found if not one.machine.provider_id]
    assert unlisted == ([f"has {missing} instances without a provider ID"] if missing else [])
    assert len(found) - len(unlisted) == listed


async def test_unattested_machines_are_sorted_and_exclude_deleted_ones_without_a_node() -> None:
    caches = caches_of()
    for name, deleting in (("c", False), ("b", True), ("a", False)):
        machine = machine_view(name=name, provider_id=f"test:///{name}", deleting=deleting)
        cast("Any", caches)._machine_changed(("team-a", name), None, machine)
    found = await coverage_of(caches).unattested()
    assert [one.machine.name for one in found] == ["a", "c"]


async def test_unattested_yields_to_other_tasks_and_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tenants write MachinePools: ten of them can list as many instances as ten large clusters have."""
    monkeypatch.setattr(standing_module, "_PAUSE_SECONDS", 0)
    monkeypatch.setattr(standing_module, "MAXIMUM_UNATTESTED", 1500)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    found = await pool(2000).unattested()
    task.cancel()
    assert len(found) == 1500
    assert turns >= 1500 // standing_module._BATCH_SIZE


async def test_concurrent_changes_do_not_fail_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standing_module, "_PAUSE_SECONDS", 0)
    monkeypatch.setattr(standing_module, "_BATCH_SIZE", 1)
    renewal_coverage = pool(3)
    caches: Any = renewal_coverage._caches

    async def changes() -> None:
        spec = {"clusterName": CLUSTER.name, "providerIDList": ["test:///new"], "replicas": 1}
        for name in ("pool", "one", "two", "three"):
            await asyncio.sleep(0)
            metadata = {"namespace": CLUSTER.namespace, "name": name, "uid": "p"}
            caches.machine_pools.applied({"metadata": metadata, "spec": spec})

    changing = asyncio.create_task(changes())
    assert await renewal_coverage.unattested()
    await changing
