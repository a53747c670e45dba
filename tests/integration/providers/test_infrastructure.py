"""Each infrastructure provider's Machines: their nodes join, renew and serve, and are refused where they must be."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from cryptography import x509

from signer.kube.client import JsonObject
from signer.testing.world import Verdict, WorldCluster
from tests.integration.fixtures import Harness, certificate_of, pending
from tests.integration.providers.infrastructure import WORLDS
from tests.integration.providers.nodes import Node
from tests.integration.providers.stage import assert_not_found, cluster_of, csr, early_machine, late_machine
from tests.integration.providers.world import FIRST, Answer, ProviderMachine, ProviderWorld, Shown, show


@dataclass(frozen=True)
class Joined:
    """A node that has joined, with its Machine, and another Machine of the same cluster."""

    harness: Harness
    world: ProviderWorld
    cluster: WorldCluster
    own: ProviderMachine
    newcomer: Node
    """As it was before it joined."""
    verdict: Verdict
    node: Node
    """With its certificate."""
    other: ProviderMachine

    @property
    def record(self) -> JsonObject:
        (found,) = [one for one in self.harness.records(self.cluster) if one["spec"]["nodeName"] == self.own.node_name]
        spec: JsonObject = found["spec"]
        return spec


@pytest.fixture(scope="module", params=WORLDS, ids=lambda world: world.name)
def joined(request: pytest.FixtureRequest, worlds: Harness) -> Joined:
    """The node has joined with the Machine as it is at that moment; then the provider writes the rest."""
    world: ProviderWorld = request.param
    cluster = cluster_of(worlds, world)
    own, other = world.at(FIRST), world.at(FIRST + 1)
    newcomer: Node
    if world.shown is Shown.AFTER_JOIN:
        late_machine(world, cluster, other)
        show(cluster, other)
        newcomer = late_machine(world, cluster, own)
        verdict = newcomer.ask(csr())
        assert verdict.reason == "Attested", verdict
        show(cluster, own)
    else:
        early_machine(world, cluster, other)
        show(cluster, other)
        newcomer = early_machine(world, cluster, own)
        name = newcomer.post(csr())
        assert_not_found(worlds, cluster, own)
        pending(cluster, name)
        show(cluster, own)
        verdict = cluster.wait_until_decided(name)
        assert verdict.reason == "Attested", verdict
    return Joined(worlds, world, cluster, own, newcomer, verdict, newcomer.joined(verdict), other)


def test_joins(joined: Joined) -> None:
    subject = certificate_of(joined.verdict).subject.rfc4514_string()
    assert subject == f"CN=system:node:{joined.own.node_name},O=system:nodes"


def test_renews(joined: Joined) -> None:
    """Also where the Machine showed nothing before: the record now rests on the Machine's provider ID."""
    verdict = joined.node.ask(csr())
    assert verdict.reason == "Attested", verdict
    assert joined.record["providerID"] == joined.own.provider_id
    assert joined.record.get("providerIDSource", "Machine") == "Machine"


def test_serves(joined: Joined) -> None:
    names = (joined.own.node_name, *joined.own.serving)
    verdict = joined.node.ask(csr(), names)
    assert verdict.reason == "Attested", verdict
    found = certificate_of(verdict).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    addresses = found.get_values_for_type(x509.IPAddress)
    assert {*found.get_values_for_type(x509.DNSName), *map(str, addresses)} == set(names)


def test_name_of_another_node(joined: Joined) -> None:
    thief = joined.newcomer.but(node_name=joined.other.node_name)
    if joined.world.another_name is Answer.WAITS:
        name = thief.post_proof(csr())
        assert_names_unknown(joined, name, f"for node {joined.other.node_name}")
    else:
        verdict = thief.ask(csr())
        assert (verdict.condition, verdict.reason) == ("Denied", "NodeNameMismatch"), verdict


def test_provider_id_of_another_machine(joined: Joined) -> None:
    """The node's own key or chip says nothing about another Machine, whatever token it has."""
    thief = joined.newcomer.but(node_name=joined.other.node_name, provider_id=joined.other.provider_id)
    verdict = thief.ask(csr())
    reasons = {"keyed-mac": "BindingMismatch", "tpm": "EndorsementKeyMismatch"}
    assert (verdict.condition, verdict.reason) == ("Denied", reasons[thief.simulated.provider]), verdict


def test_alternative_names_of_another_machine(joined: Joined) -> None:
    for foreign in (joined.other.node_name, *joined.other.serving[:1]):
        names = (joined.own.node_name, foreign)
        if joined.world.another_alternative_name is Answer.WAITS:
            assert_names_unknown(joined, joined.node.post_proof(csr(), names), f"alternative name {foreign}")
        else:
            verdict = joined.node.ask(csr(), names)
            assert (verdict.condition, verdict.reason) == ("Denied", "InvalidSubjectAlternativeNames"), verdict


def assert_names_unknown(joined: Joined, name: str, part: str) -> None:
    """The request waits for the Machine's addresses."""
    joined.harness.wait_for_event("MachineAddressesUnknown", joined.own.name, namespace=joined.world.name, part=part)
    pending(joined.cluster, name)
