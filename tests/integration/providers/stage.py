"""Clusters, Machines and nodes of the providers' worlds, on one management cluster."""

from __future__ import annotations

import itertools
from typing import Any, Final

from attestors.tpm.endorsement_key_sources import INVENTORY_KEY
from attestors.wire.names import ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION
from signer.kube.client import JsonObject
from signer.kube.resources import CONFIG_MAPS
from signer.testing.world import WorldCluster
from tests.integration.fixtures import Harness
from tests.integration.providers.nodes import ChipNode, KeyedMACNode
from tests.integration.providers.world import ProviderMachine, ProviderWorld, Shown
from tests.integration.tpm.whose import chip
from tests.support.byoh import BYO_MACHINE, add_byo_host, add_byo_machine, attach
from tests.support.metal3 import add_bare_metal_host, provision
from tests.unit.attestors.tpm.fake_tpm import FakeTPM

_NUMBERS: Final = itertools.count(1)
_INVENTORY: Final = "tpm-inventory"
_SERVICES: Final = ("10.96.0.0/12", "2001:db8:5::/112")
"""No address of any world is in them."""


def csr() -> str:
    """A name for a request."""
    return f"csr-{next(_NUMBERS)}"


def cluster_of(harness: Harness, world: ProviderWorld, name: str = "prod", **changes: Any) -> WorldCluster:
    """A cluster on that provider; ``changes`` are other fields of its policy."""
    attestor: JsonObject = {"name": "keyed-mac"}
    if world.shown is Shown.AFTER_JOIN:
        attestor = {"name": "tpm", "settings": _tpm_settings(world)}
    policy = {"authorizedAttestors": [attestor], **dict(world.policy), **changes}
    cluster = harness.cluster(name, [attestor["name"]], namespace=world.name, policy=policy)
    if _is_listed(world):
        inventory = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": _INVENTORY}}
        cluster.management.client.create(CONFIG_MAPS.collection(cluster.namespace), inventory)
    cluster.patch({"spec": {"clusterNetwork": {"services": {"cidrBlocks": list(_SERVICES)}}}})
    return cluster


def late_machine(world: ProviderWorld, cluster: WorldCluster, machine: ProviderMachine) -> ChipNode:
    """A Machine with a bootstrap token of its own, whose chip is named, and its node."""
    created, token, own = world.create(cluster, machine), cluster.api.bootstrap_token(), chip()
    cluster.add_kubeadm_config(machine.name, token, created)
    named = {ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION: own.fingerprint}
    if _is_listed(world):
        add_byo_host(cluster, machine.host)
        add_byo_machine(cluster, created, machine.infrastructure_name)
        attach(cluster, machine.host, machine.infrastructure_name)
        list_chip(cluster, f"byoh://{machine.host}", own)
    elif machine.host:
        add_bare_metal_host(cluster, machine.host, **named)
        provision(cluster, created, machine.host)
    else:
        cluster.patch_machine(machine.name, {"metadata": {"annotations": named}})
    return ChipNode.of(cluster, machine.node_name, machine.provider_id, own, token)


def list_chip(cluster: WorldCluster, host: str, own: FakeTPM) -> None:
    """The operator adds a line to the inventory."""
    path = CONFIG_MAPS.object(_INVENTORY, cluster.namespace)
    known = (cluster.management.client.get(path).get("data") or {}).get(INVENTORY_KEY, "")
    cluster.management.client.patch(path, {"data": {INVENTORY_KEY: f"{known}{host} {own.fingerprint}\n"}})


def _is_listed(world: ProviderWorld) -> bool:
    return bool(world.host) and world.kind == BYO_MACHINE


def _tpm_settings(world: ProviderWorld) -> JsonObject:
    if _is_listed(world):
        inventory = {"kind": "ConfigMap", "name": _INVENTORY}
        return {"endorsementKeySources": ["Inventory"], "inventory": inventory}
    return {"endorsementKeySources": ["HostAnnotation" if world.host else "MachineAnnotation"]}


def early_machine(world: ProviderWorld, cluster: WorldCluster, machine: ProviderMachine) -> KeyedMACNode:
    """A Machine whose provider has written nothing yet, and its node."""
    world.create(cluster, machine)
    return KeyedMACNode.of(cluster, machine.node_name, machine.provider_id)


def assert_not_found(harness: Harness, cluster: WorldCluster, machine: ProviderMachine, part: str = "") -> None:
    """A request waits because no Machine shows its provider ID; a Machine called like the node has the Event."""
    called_so = machine.name == machine.node_name
    subject, kind = (machine.name, "Machine") if called_so else (cluster.name, "Cluster")
    harness.wait_for_event("MachineNotFound", subject, kind, cluster.namespace, part=part or machine.provider_id)
