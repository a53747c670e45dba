"""What does not work with a provider, or works only as configured otherwise: the outcome at present."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.integration.fixtures import Harness, pending
from tests.integration.providers.infrastructure import WORLDS
from tests.integration.providers.nodes import KeyedMACNode
from tests.integration.providers.stage import assert_not_found, cluster_of, csr, early_machine, late_machine
from tests.integration.providers.world import FIRST, ProviderWorld, Shown, show

BY_NAME = {world.name: world for world in WORLDS}
LATE = tuple(world for world in WORLDS if world.shown is Shown.AFTER_JOIN)
MATCH = ("bootstrapTokens", {"matchMachines": "WithoutProviderID"})

BYOH = replace(BY_NAME["byoh"], host="")
"""The chip is named by the Machine's annotation, and no inventory names the host's."""


def test_an_attestor_that_needs_the_provider_id_waits_for_it(worlds: Harness) -> None:
    """Cluster API's Docker provider up to v1.13; any provider that shows nothing before the join."""
    world = replace(BY_NAME["docker"], name="docker-1-13")
    cluster = cluster_of(worlds, world, bootstrapTokens={"matchMachines": "WithoutProviderID"})
    machine, token = world.at(FIRST), cluster.api.bootstrap_token()
    cluster.add_kubeadm_config(machine.name, token, world.create(cluster, machine))
    node = KeyedMACNode.of(cluster, machine.node_name, machine.provider_id).with_token(token)
    name = node.post(csr())
    assert_not_found(worlds, cluster, machine)
    pending(cluster, name)


@pytest.mark.parametrize("source", ["Automatic", "MachineAddress", "ProviderID"])
def test_byoh_no_source_has_the_name_of_the_host(worlds: Harness, source: str) -> None:
    """A claimed provider ID is no source of names, and who writes the Machine's annotation names no host."""
    world = replace(BYOH, name=f"byoh-{source.lower()}", policy=(MATCH, ("nodeNames", {"sources": [source]})))
    cluster = cluster_of(worlds, world)
    name = late_machine(world, cluster, world.at(FIRST)).post_proof(csr())
    worlds.wait_for_event("MachineAddressesUnknown", cluster.name, "Cluster", world.name)
    pending(cluster, name)


@pytest.mark.parametrize("source", ["MachineName", "InfrastructureMachineName"])
def test_byoh_a_source_with_another_name(worlds: Harness, source: str) -> None:
    world = replace(BYOH, name=f"byoh-{source.lower()}", policy=(MATCH, ("nodeNames", {"sources": [source]})))
    verdict = late_machine(world, cluster_of(worlds, world), world.at(FIRST)).ask(csr())
    assert (verdict.condition, verdict.reason) == ("Denied", "NodeNameMismatch"), verdict


def test_byoh_addresses_in_a_serving_certificate(worlds: Harness) -> None:
    """The provider writes none; a policy may name their network."""
    world = replace(BY_NAME["byoh"], name="byoh-addresses")
    cluster, machine = cluster_of(worlds, world), world.at(FIRST)
    node = late_machine(world, cluster, machine)
    joined = node.joined(node.ask(csr()))
    name = joined.post_proof(csr(), (machine.node_name, "192.0.2.11"))
    worlds.wait_for_event("MachineAddressesUnknown", machine.name, namespace=world.name, part="192.0.2.11")
    pending(cluster, name)


def test_openstack_provider_id_without_the_region_that_the_machine_shows(worlds: Harness) -> None:
    """The templates' kubelet flag has no region, and the provider writes that of ``spec.identityRef``."""
    world = replace(BY_NAME["openstack-region"], name="openstack-template")
    cluster, machine = cluster_of(worlds, world), world.at(FIRST)
    early_machine(world, cluster, machine)
    show(cluster, machine)
    claimed = machine.provider_id.replace("RegionOne", "")
    name = KeyedMACNode.of(cluster, machine.node_name, claimed).post(csr())
    worlds.wait_for_event("MachineNotFound", machine.name, namespace=world.name, part="RegionOne")
    pending(cluster, name)


def test_vsphere_fqdn_without_its_domain_in_the_policy(worlds: Harness) -> None:
    world = replace(BY_NAME["vsphere-fqdn"], name="vsphere-domain-unknown", policy=())
    cluster, machine = cluster_of(worlds, world), world.at(FIRST)
    node = early_machine(world, cluster, machine)
    show(cluster, machine)
    name = node.post(csr())
    worlds.wait_for_event("MachineAddressesUnknown", machine.name, namespace=world.name, part=machine.node_name)
    pending(cluster, name)


def test_hetzner_constant_names_need_the_provider_id(worlds: Harness) -> None:
    """The name has the server's number, which the Machine shows only after the join: a deadlock."""
    bare_metal = BY_NAME["hetzner-bare-metal"]
    world = replace(bare_metal, name="hetzner-constant", node_name="bm-prod-13571{n}")
    cluster, machine = cluster_of(worlds, world), world.at(FIRST)
    name = late_machine(world, cluster, machine).post_proof(csr())
    worlds.wait_for_event("MachineAddressesUnknown", cluster.name, "Cluster", world.name, part=machine.node_name)
    pending(cluster, name)
    show(cluster, machine)
    assert cluster.wait_until_decided(name).reason == "Attested"


def test_packet_address_of_the_control_plane_among_those_of_the_machine(worlds: Harness) -> None:
    """The provider adds the elastic IP to the control plane Machine that it creates: no kubelet may have it."""
    packet = BY_NAME["packet"]
    addresses = (("ExternalIP", "198.51.100.250"), *packet.addresses)
    world = replace(packet, name="packet-control-plane", addresses=addresses)
    cluster, machine = cluster_of(worlds, world), world.at(FIRST)
    cluster.patch({"spec": {"controlPlaneEndpoint": {"host": "198.51.100.250", "port": 6443}}})
    node = early_machine(world, cluster, machine)
    show(cluster, machine)
    joined = node.joined(node.ask(csr()))
    verdict = joined.ask(csr(), (machine.node_name, "198.51.100.250"))
    assert (verdict.condition, verdict.reason) == ("Denied", "InvalidSubjectAlternativeNames"), verdict
    assert joined.ask(csr(), (machine.node_name, *machine.serving)).reason == "Attested"


@pytest.mark.parametrize(
    "world", [world for world in WORLDS if world.shown is Shown.AFTER_JOIN], ids=lambda one: one.name
)
def test_bootstrap_token_of_another_machine(worlds: Harness, world: ProviderWorld) -> None:
    """A stolen token leads to the Machine that it was made for, whose chip is another one."""
    provider_id = world.provider_id.replace("//metal3/", "//metal3-token/")
    named = replace(world, name=f"{world.name}-token", provider_id=provider_id)
    cluster = cluster_of(worlds, named)
    own, victim = (late_machine(named, cluster, named.at(number)) for number in (FIRST, FIRST + 1))
    name, claimed = victim.simulated.node_name, victim.simulated.provider_id
    verdict = own.but(node_name=name, provider_id=claimed).with_token(victim.token).ask(csr())
    assert (verdict.condition, verdict.reason) == ("Denied", "EndorsementKeyMismatch"), verdict
