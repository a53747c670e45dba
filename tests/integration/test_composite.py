"""A floor requires a machine's key and its chip together, and one request proves both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from attestors.composite.wire import split_challenge
from attestors.contract import GatherRequest
from attestors.contract.composite import CompositeIdentity
from attestors.wire import binding as binding_format
from attestors.wire.binding import Binding, CACertHash
from attestors.wire.evidence import Evidence
from attestors.wire.names import (
    CHALLENGE_ANNOTATION,
    ENDORSEMENT_KEY_ANNOTATION,
    EVIDENCE_VERSION,
    Purpose,
    SignerName,
)
from signer.configuration import OperatorAttestor
from signer.kube.connection import ClusterConnection
from signer.model.attestor_roles import AnyOf, RequiredAttestors
from signer.model.floors import Floor, Floors, NamespaceFloor
from signer.testing.nodes import SimulatedNode
from signer.testing.world import Verdict, WorldCluster
from tests.integration.fixtures import Harness, keyed_mac, node_of, provider_id
from tests.integration.tpm.fake_tpm_node import add_machine
from tests.integration.tpm.whose import OperatorFolder
from tests.support import endorsement_certificates as write
from tests.unit.attestors.tpm.endorsement.support import ENDORSEMENT
from tests.unit.attestors.tpm.fake_tpm import FakeTPM
from tests.unit.attestors.tpm.fixtures import ANY_KEYS
from tests.unit.attestors.tpm.test_controller import GOOGLE_INSTANCE, instance

pytestmark = pytest.mark.slow

BOTH = AnyOf(frozenset({"composite"}), frozenset({"keyed-mac", "tpm"}))
NAMED = (*ENDORSEMENT, write.extension(GOOGLE_INSTANCE, instance(7, 42)))
"""Extensions of a certificate that names its chip."""
FLOORS = Floors((NamespaceFloor(frozenset(), True, Floor(required=RequiredAttestors(BOTH, BOTH))),))


@dataclass(frozen=True)
class CompositeNode:
    """A machine with a key of keyed-mac and a chip."""

    cluster: WorldCluster
    machine: str
    chip: FakeTPM
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    credential: ClusterConnection | None = None

    @property
    def node(self) -> SimulatedNode:
        """It posts with the signer of the composite attestor."""
        return SimulatedNode(
            self.machine, provider_id(self.machine), self.cluster.ca_cert_hash, "composite", {}, self.key
        )

    @property
    def binding(self) -> Binding:
        """The binding of its request."""
        return binding_format.compute(
            evidence_version=EVIDENCE_VERSION,
            cluster=CACertHash(self.cluster.ca_cert_hash),
            signer_name=SignerName(Purpose.CLIENT, "composite"),
            subject_public_key_info=self.node.subject_public_key_info,
        )

    def ask(self, name: str, chip_fields: Mapping[str, str]) -> Verdict:
        """Post the evidence of key and chip, and wait for the verdict."""
        with_key = node_of(self.cluster, self.machine)
        agent_plugin = with_key.registry.load("keyed-mac").agent_plugin(with_key.settings)
        request = GatherRequest(self.binding, self.cluster.ca_cert_hash, EVIDENCE_VERSION, Purpose.CLIENT, "")
        fields = {f"keyed-mac.{key}": value for key, value in agent_plugin.gather(request).fields.items()}
        fields |= {f"tpm.{key}": value for key, value in chip_fields.items()}
        evidence = Evidence(EVIDENCE_VERSION, CACertHash(self.cluster.ca_cert_hash), MappingProxyType(fields))
        manifest = self.node.client_request(name, evidence_of=evidence)
        if self.credential is None:
            self.cluster.submit_with_token(manifest)
        else:
            self.cluster.submit(manifest, self.credential)
        return self.cluster.wait_until_decided(name)

    def attest(self, name: str) -> Verdict:
        """Both requests, as an honest node makes them."""
        first = self.ask(f"{name}-first", self.chip.first())
        assert (first.condition, first.reason) == ("Denied", "ChallengeIssued"), first
        part, challenge = split_challenge(first.annotations[CHALLENGE_ANNOTATION])
        assert part == "tpm"
        return self.ask(name, self.chip.answer(challenge, self.binding))


def attestors_with(tpm: Mapping[str, Any]) -> dict[str, OperatorAttestor]:
    """The operator's attestors, each alone and together, with these settings of tpm."""
    alone = {**keyed_mac(), "tpm": OperatorAttestor(settings=tpm)}
    parts = {name: dict(attestor.settings) for name, attestor in alone.items()}
    return {**alone, "composite": OperatorAttestor(settings={"attestors": parts})}


def certified(folder: Path) -> dict[str, OperatorAttestor]:
    """The same, where chips need certificates."""
    return attestors_with(OperatorFolder(folder).attestors["tpm"].settings)


@pytest.fixture(scope="module")
def cluster(shared_harness: Harness) -> WorldCluster:
    """Its policy authorizes the composite attestor, and each of its parts alone."""
    shared_harness.run(attestors=attestors_with(ANY_KEYS), floors=FLOORS)
    return shared_harness.cluster(attestors=("composite", "keyed-mac", "tpm"))


def test_a_machine_joins_and_renews_with_its_key_and_its_chip(shared_harness: Harness, cluster: WorldCluster) -> None:
    chip = FakeTPM.new(1)
    add_machine(cluster, "both", chip.fingerprint)
    node = CompositeNode(cluster, "both", chip)
    joined = node.attest("join")
    assert (joined.condition, joined.reason) == ("Approved", "Attested"), joined
    assert joined.annotations[ENDORSEMENT_KEY_ANNOTATION] == chip.fingerprint
    (record,) = [one for one in shared_harness.records(cluster) if one["spec"]["machineRef"]["name"] == "both"]
    assert list(CompositeIdentity.parse(record["spec"]["identity"]).parts) == ["keyed-mac", "tpm"]
    own = node.node.connection(cluster.api.connection(), joined.certificate)
    renewed = CompositeNode(cluster, "both", chip, credential=own).attest("renew")
    assert (renewed.condition, renewed.reason) == ("Approved", "Attested"), renewed
    shared_harness.assert_audited()


def test_the_floor_denies_one_of_them_alone(shared_harness: Harness, cluster: WorldCluster) -> None:
    """The policy's author authorized it: a stolen key would be enough."""
    cluster.add_machine("alone", provider_id=provider_id("alone"))
    cluster.submit_with_token(node_of(cluster, "alone").client_request("alone"))
    denied = cluster.wait_until_decided("alone")
    assert (denied.condition, denied.reason, denied.certificate) == ("Denied", "AttestorNotAuthorized", b"")
    assert "accepts composite with keyed-mac and tpm for" in denied.message
    shared_harness.assert_audited()


def test_a_chip_is_one_machine_whatever_key_stands_beside_it(shared_harness: Harness, cluster: WorldCluster) -> None:
    """A mistake, or a tenant, named the chip for a second Machine."""
    chip = FakeTPM.new(2)
    for machine in ("one", "two"):
        add_machine(cluster, machine, chip.fingerprint)
    assert CompositeNode(cluster, "one", chip).attest("one").reason == "Attested"
    refused = CompositeNode(cluster, "two", chip).attest("two")
    assert (refused.condition, refused.reason, refused.certificate) == ("Denied", "IdentityConflict", b"")
    shared_harness.assert_audited()


def test_a_chip_of_another_machine_beside_the_machines_own_key(cluster: WorldCluster) -> None:
    """The challenge is relayed to a genuine chip elsewhere: it is not the one that the Machine has."""
    add_machine(cluster, "relay", FakeTPM.new(3).fingerprint)
    denied = CompositeNode(cluster, "relay", FakeTPM.new(4)).ask("relay", FakeTPM.new(4).first())
    assert (denied.condition, denied.reason) == ("Denied", "EndorsementKeyMismatch")
    assert denied.message.startswith("tpm: ")


@pytest.mark.parametrize("shown_first", ["named", "not named"])
def test_a_chip_is_one_machine_whichever_of_its_certificates_it_shows(
    harness: Harness, tmp_path: Path, shown_first: str
) -> None:
    """Its key has two: one names the chip, and the other one does not."""
    harness.run(attestors=certified(tmp_path), floors=FLOORS)
    cluster = harness.cluster(attestors=("composite",))
    chips = {"named": FakeTPM.new(5).certified(extensions=NAMED), "not named": FakeTPM.new(5).certified()}
    for machine in ("one", "two"):
        add_machine(cluster, machine, chips["named"].fingerprint)
    first, second = chips.pop(shown_first), chips.popitem()[1]
    assert CompositeNode(cluster, "one", first).attest("one").reason == "Attested"
    refused = CompositeNode(cluster, "two", second).attest("two")
    assert (refused.condition, refused.reason, refused.certificate) == ("Denied", "IdentityConflict", b"")
    assert CompositeNode(cluster, "one", second).attest("one-again").reason == "Attested"


def test_a_chip_that_is_named_since_stays_the_machines(harness: Harness, tmp_path: Path) -> None:
    """The operator requires certificates now, which name chips. All nodes would be denied at renewal otherwise."""
    before = harness.run(attestors=attestors_with(ANY_KEYS), floors=FLOORS)
    cluster = harness.cluster(attestors=("composite",))
    node = CompositeNode(cluster, "one", FakeTPM.new(6).certified(extensions=NAMED))
    for machine in ("one", "two"):
        add_machine(cluster, machine, node.chip.fingerprint)
    assert node.attest("before").reason == "Attested"
    before.stop()
    harness.run(attestors=certified(tmp_path), floors=FLOORS)
    again = replace(node, key=ec.generate_private_key(ec.SECP256R1()))
    assert again.attest("since").reason == "Attested"
    refused = CompositeNode(cluster, "two", node.chip).attest("two")
    assert (refused.condition, refused.reason) == ("Denied", "IdentityConflict")
