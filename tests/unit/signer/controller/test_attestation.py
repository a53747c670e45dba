"""What an attestor is told of the Machine that a request claims."""

from __future__ import annotations

from typing import Any, Final, cast

import pytest

from attestors.contract import AttestationRequest, ClaimedMachine, NoClaimedMachine, Plausible, Screened
from attestors.wire.names import ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION
from signer.controller.attestation import Attestation
from signer.controller.attestor_set import AttestorSet, ReadyAttestor
from signer.controller.authority_source import AuthoritySource
from signer.controller.case import Case
from signer.controller.configuration import Configuration
from signer.kube.resources import CLUSTERS_V1BETA2, MACHINE_POOLS_V1BETA2, MACHINES_V1BETA2
from signer.store.inventory import ClusterAPIVersion, Inventory
from tests.unit.signer.builders import CLUSTER, NOW, PROVIDER_ID, TPM, cluster_view, policy, signing_request

VERSION: Final = ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2, MACHINE_POOLS_V1BETA2)
SAID: Final = {ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION: "sha256:" + "ab" * 32}


class Asked:
    """A controller half, and the set of attestors that has it alone."""

    def __init__(self) -> None:
        self.requests: list[AttestationRequest] = []

    def screen(self, request: AttestationRequest) -> Screened:
        self.requests.append(request)
        return Plausible()

    def ready(self, provider: str) -> ReadyAttestor:
        return ReadyAttestor(TPM, cast("Any", self))


class World:
    def __init__(self) -> None:
        self.inventory = Inventory(VERSION, own_namespace="own")
        self._attestation = Attestation(
            CLUSTER, Configuration("own"), cast("AuthoritySource", None), self.inventory, lambda: 0.0
        )

    def add_machine(self, name: str, provider_id: str = PROVIDER_ID, cluster: str = CLUSTER.name, **more: Any) -> None:
        metadata = {"namespace": CLUSTER.namespace, "name": name, "uid": name, "annotations": SAID, **more}
        self.inventory.machines.applied(
            {"metadata": metadata, "spec": {"clusterName": cluster, "providerID": provider_id}}
        )

    def add_pool(self, name: str, *provider_ids: str) -> None:
        metadata = {"namespace": CLUSTER.namespace, "name": name, "uid": name, "annotations": SAID}
        spec = {"clusterName": CLUSTER.name, "providerIDList": list(provider_ids)}
        self.inventory.machine_pools.applied({"metadata": metadata, "spec": spec})

    def told(self) -> AttestationRequest:
        asked = Asked()
        case = Case(cluster_view(), policy(), cast("AttestorSet", asked), NOW)
        assert self._attestation.screen(signing_request(), case, TPM) == Plausible()
        (request,) = asked.requests
        return request


@pytest.fixture
def world() -> World:
    return World()


def test_what_the_management_cluster_says_of_the_machine(world: World) -> None:
    world.add_machine("worker-1", annotations={**SAID, "example.com/note": "of somebody else"})
    assert world.told().machine == ClaimedMachine("worker-1", SAID)
    assert world.told().provider_id == PROVIDER_ID
    assert world.told().now == NOW


def test_it_cannot_be_changed(world: World) -> None:
    world.add_machine("worker-1")
    machine = world.told().machine
    assert isinstance(machine, ClaimedMachine)
    with pytest.raises(TypeError):
        cast("Any", machine.annotations)["key"] = "value"


def test_a_machine_of_which_nobody_says_anything(world: World) -> None:
    world.add_machine("worker-1", annotations={})
    assert world.told().machine == ClaimedMachine("worker-1", {})


def test_no_machine(world: World) -> None:
    world.add_machine("another", "test:///another")
    world.add_machine("of-another-cluster", cluster="lab")
    assert world.told().machine == NoClaimedMachine()


def test_a_machine_that_is_gone(world: World) -> None:
    world.add_machine("worker-1")
    world.inventory.machines.removed({"metadata": {"namespace": CLUSTER.namespace, "name": "worker-1"}})
    assert world.told().machine == NoClaimedMachine()


def test_of_two_machines_with_one_provider_id_it_is_neither(world: World) -> None:
    """Else a tenant's second Machine would say which TPM is in the first."""
    world.add_machine("worker-1")
    world.add_machine("worker-2")
    assert world.told().machine == NoClaimedMachine()


def test_an_instance_of_a_pool_is_no_machine(world: World) -> None:
    """What the pool's annotations say is of no instance of it."""
    world.add_pool("pool", PROVIDER_ID)
    assert world.told().machine == NoClaimedMachine()


def test_a_machine_beside_a_pools_instance_is_neither(world: World) -> None:
    world.add_pool("pool", PROVIDER_ID)
    world.add_machine("worker-1")
    assert world.told().machine == NoClaimedMachine()


def test_the_machine_of_a_pool_is_one(world: World) -> None:
    world.add_pool("pool", PROVIDER_ID)
    owner = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "MachinePool", "name": "pool", "uid": "pool"}
    world.add_machine("pool-1", ownerReferences=[owner])
    assert world.told().machine == ClaimedMachine("pool-1", SAID)
