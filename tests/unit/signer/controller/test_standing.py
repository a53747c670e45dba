"""Who would lose renewal under Enforce: everybody without a live record of an attestor that renews."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, cast

import pytest

from attestors.contract import Security
from signer.controller.standing import Attested, Standing, Standings, Starting, Unattested
from signer.kube.resources import CLUSTERS_V1BETA2, MACHINES_V1BETA2
from signer.model.cluster import MachineView
from signer.model.record import AttestedIdentity, AttestedNode
from signer.model.seal import ControllerKeys, RecordSeals
from signer.store.authentic_records import UnverifiedRecord
from signer.store.inventory import ClusterAPIVersion, Inventory
from tests.unit.signer.builders import CLUSTER, NOW, SERVING_SIGNER, journal_entry, machine_view, record
from tests.unit.signer.controller.support import registry

KEYS = ControllerKeys(bytes(32))
GOOD = AttestedIdentity("good", "ek:1", Security.SECURE)


def standings(machine: MachineView, *records: AttestedNode, now: datetime = NOW) -> tuple[Standing, ...]:
    inventory = Inventory(ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2), own_namespace="own")
    inventory.authentic.use_keys(KEYS)
    cast("Any", inventory)._machine_changed(("team-a", machine.name), None, machine)
    for number, one in enumerate(records):
        sealed = replace(one, seal=one.seal or RecordSeals(KEYS).seal(one))
        inventory.authentic.changed(("team-a", f"{one.name}-{number}"), None, UnverifiedRecord(sealed))
    return Standings(CLUSTER, registry=registry(), inventory=inventory, now=lambda: now).all()


def why(machine: MachineView, *records: AttestedNode, now: datetime = NOW) -> str:
    (one,) = standings(machine, *records, now=now)
    return one.why if isinstance(one, Unattested) else ""


def good_record(**changes: Any) -> AttestedNode:
    return replace(record(), **{"identity": GOOD, **changes})


def test_attested() -> None:
    assert isinstance(standings(machine_view(), good_record())[0], Attested)


def test_one_without_a_node_has_nothing_to_lose() -> None:
    """In a cluster that scales all the time, some Machine is always starting."""
    assert standings(machine_view(provider_id="")) == (Starting(machine_view(provider_id="")),)


def test_one_that_is_being_deleted_needs_nothing() -> None:
    assert standings(machine_view(deleting=True)) == ()


@pytest.mark.parametrize(
    ("machine", "records", "said"),
    [
        (machine_view(provider_id="", node_ref="n"), (), "has a node and no provider ID"),
        (machine_view(), (), "was never attested"),
        (machine_view(name="other"), (good_record(),), "was never attested"),
        (machine_view(), (good_record(seal="v1.0.0"),), "was never attested"),
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
def test_who_would_lose_renewal(machine: MachineView, records: tuple[AttestedNode, ...], said: str) -> None:
    assert why(machine, *records) == said


def test_the_longest_lived_record_counts() -> None:
    old = good_record(node_name="formerly", journal=(journal_entry(not_after=NOW - timedelta(days=1)),))
    assert why(machine_view(), old, good_record()) == ""


@pytest.mark.parametrize(("listed", "replicas", "missing"), [(0, 2, 2), (1, 2, 1), (2, 2, 0), (3, 2, 0)])
def test_instances_whose_provider_ids_are_not_known_may_have_nodes(listed: int, replicas: int, missing: int) -> None:
    """An empty providerIDList must not pass for a pool in which everybody is attested."""
    inventory = Inventory(ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2), own_namespace="own")
    inventory.authentic.use_keys(KEYS)
    provider_ids = [f"test:///{number}" for number in range(listed)]
    spec = {"clusterName": CLUSTER.name, "providerIDList": provider_ids, "replicas": replicas}
    inventory.machine_pools.applied(
        {"metadata": {"namespace": CLUSTER.namespace, "name": "pool", "uid": "p"}, "spec": spec}
    )
    found = Standings(CLUSTER, registry=registry(), inventory=inventory, now=lambda: NOW).unattested()
    unlisted = [one.why for one in found if not one.machine.provider_id]
    assert unlisted == ([f"has {missing} instances without a provider ID"] if missing else [])
    assert len(found) - len(unlisted) == listed
