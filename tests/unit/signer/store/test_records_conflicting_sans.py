"""The names and addresses of a serving request that others have."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address
from typing import Any, cast

import pytest

from signer.model.cluster import MachineView
from signer.model.decision import Deferred
from signer.model.floors import NO_FLOORS
from signer.model.record import AttestedNode
from signer.model.seal import ControllerKeys
from signer.store.authentic_records import KeysUnavailable
from signer.store.caches import Caches
from signer.store.records import Records, conflicting_names
from tests.unit.signer.builders import CLUSTER, machine_view, record
from tests.unit.signer.store.scenario import NAMESPACE, VERSION
from tests.unit.signer.store.test_authentic_records import KEYS, manifest

MINE = machine_view(name="mine")
NEIGHBOUR = machine_view(name="neighbour", provider_id="test:///neighbour")


class Town:
    """Records and Machines of one cluster."""

    def __init__(self, *records: AttestedNode, keys: ControllerKeys = KEYS) -> None:
        self.caches = Caches(VERSION, own_namespace=NAMESPACE, floors=NO_FLOORS)
        self.caches.authentic.use_keys(KEYS)
        for made in records:
            self.caches.records.applied(manifest(made, keys=keys))
        self.caches.authentic.begin_key_read()
        self.caches.authentic.use_keys(KEYS)

    def add_machine(self, machine: MachineView, *addresses: str) -> None:
        self.caches.machines.applied(
            {
                "metadata": {"namespace": CLUSTER.namespace, "name": machine.name, "uid": machine.name},
                "spec": {"clusterName": CLUSTER.name, "providerID": machine.provider_id},
                "status": {"addresses": [{"type": "InternalIP", "address": one} for one in addresses]},
            }
        )

    def held(self, *names: str, addresses: tuple[str, ...] = (), machine: MachineView = MINE) -> frozenset[str]:
        records = Records(cast("Any", None), self.caches)
        return conflicting_names(self.caches, records, machine, names, tuple(ip_address(one) for one in addresses))


def test_unused_names_do_not_conflict() -> None:
    assert Town().held("mine", "free", addresses=("192.0.2.1",)) == frozenset()


def test_the_name_of_a_recorded_node_is_its_machines() -> None:
    """Its Machine may have another name, and may be gone: its certificate may still be valid."""
    town = Town(record(NEIGHBOUR, node_name="theirs"), record(MINE, node_name="ours"))
    assert town.held("theirs", "ours", "free") == {"theirs"}
    assert town.held("theirs", "ours", "free", machine=NEIGHBOUR) == {"ours"}


def test_the_name_of_a_recorded_node_in_another_spelling() -> None:
    assert Town(record(NEIGHBOUR, node_name="theirs")).held("THEIRS.") == {"theirs"}


def test_a_machine_created_again_under_its_name_is_another() -> None:
    town = Town(record(MINE, node_name="ours"))
    assert town.held("ours", machine=replace(MINE, provider_id="test:///other")) == {"ours"}


def test_names_and_addresses_of_another_machine_conflict() -> None:
    town = Town()
    town.add_machine(NEIGHBOUR, "192.0.2.11")
    town.add_machine(MINE, "192.0.2.10")
    assert town.held("neighbour", "mine", addresses=("192.0.2.10", "192.0.2.11")) == {"neighbour", "192.0.2.11"}
    assert town.held(addresses=("::ffff:192.0.2.11",)) >= {"192.0.2.11"}


def test_each_is_found_beside_the_other() -> None:
    """A Machine that has one name, and a record that has another."""
    town = Town(record(NEIGHBOUR, node_name="theirs"))
    town.add_machine(machine_view(name="third", provider_id="test:///third"))
    assert town.held("theirs", "third") == {"theirs", "third"}


def test_without_the_controller_key_it_is_deferred() -> None:
    town = Town(record(NEIGHBOUR, node_name="theirs"))
    town.caches.authentic.use_no_keys(KeysUnavailable("no key"))
    with pytest.raises(Deferred, match="no key"):
        town.held("theirs")


def test_a_forged_record_holds_nothing() -> None:
    assert Town(record(NEIGHBOUR, node_name="theirs"), keys=ControllerKeys(b"o" * 32)).held("theirs") == frozenset()
