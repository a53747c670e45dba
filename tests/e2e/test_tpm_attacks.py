"""The attacks on the TPM attestor against the real kube-apiserver: those of the integration tests, and more.

The first run as they are, with fake TPMs, on another world. The others have software TPMs, and victims that run
the node's own program.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from attestors.contract import EvidenceUnavailable
from attestors.tpm import wire
from attestors.wire import evidence as evidence_format
from attestors.wire import request as request_format
from attestors.wire.evidence import Evidence
from attestors.wire.names import CHALLENGE_ANNOTATION
from authenticator.model.failures import ExitCode
from signer.configuration import OperatorAttestor
from signer.controller.telemetry import recorder
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.testing.fixtures import open_controllers
from signer.testing.nodes import SimulatedNode
from signer.testing.world import ManagementCluster, Verdict, WorldCluster
from tests.e2e.test_tpm import fingerprint
from tests.integration.endorsement_key_sources import assert_one_owner_each
from tests.integration.fixtures import Harness, certificate_of, provider_id
from tests.integration.tpm import test_attacks as attacks
from tests.integration.tpm.fake_tpm_node import add_machine
from tests.integration.tpm.test_attacks import assert_denied, csr
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.control_plane import ControlPlane
from tests.support.grants import as_service_account, restrict_in_workload_cluster
from tests.support.node_program import NodeProgram
from tests.support.software_tpm import SoftwareTPM, find_tpm_library
from tests.unit.attestors.tpm.endorsement.support import intermediate, root

pytestmark = [pytest.mark.real, pytest.mark.slow]

# With fake TPMs. pytest runs them again here, with the fixtures of this module.
victim, attacker = attacks.victim, attacks.attacker
test_an_honest_machine_joins = attacks.test_an_honest_machine_joins
test_a_first_request_is_refused = attacks.test_a_first_request_is_refused
test_an_answer_is_refused = attacks.test_an_answer_is_refused
test_an_attestation_key_that_is_not_of_the_certified_chip = (
    attacks.test_an_attestation_key_that_is_not_of_the_certified_chip
)
TestCopies, TestWhoseChip, TestRenewal = attacks.TestCopies, attacks.TestWhoseChip, attacks.TestRenewal


@pytest.fixture(scope="module")
def maker() -> Iterator[SoftwareTPM]:
    """A software TPM, of whose maker the others are."""
    try:
        find_tpm_library()
        with SoftwareTPM() as tpm:
            yield tpm
    except MissingPart as missing:
        skip_or_fail(missing)


@pytest.fixture(scope="module")
def control_planes() -> Iterator[tuple[ControlPlane, ControlPlane]]:
    """Of this module alone: it looks at every CSR and every record that there is."""
    try:
        with ControlPlane() as first, ControlPlane() as second:
            first.seed_kubeadm()
            second.seed_kubeadm()
            yield first, second
            first.check_running()
            second.check_running()
    except MissingPart as missing:
        skip_or_fail(missing)


@pytest.fixture(scope="module")
def settings(maker: SoftwareTPM, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The operator trusts the maker of the fake TPMs, and that of the software TPMs."""
    folder = tmp_path_factory.mktemp("authorities")
    made = {"roots": (root(), maker.root_certificate), "intermediates": (intermediate(), maker.issuer_certificate)}
    for name, (fake, software) in made.items():
        (folder / name).mkdir()
        (folder / name / "fake.der").write_bytes(fake)
        (folder / name / "software.pem").write_bytes(software)
    return {
        "endorsementRootsFolder": str(folder / "roots"),
        "endorsementKeyTemplates": ["rsa-2048", "ecc-p256"],
        "endorsementIntermediatesFolder": str(folder / "intermediates"),
    }


@pytest.fixture(scope="module")
def running(control_planes: tuple[ControlPlane, ControlPlane], settings: dict[str, Any]) -> Iterator[Harness]:
    """A harness on real control planes, the first of which is management cluster, too; its controller runs."""
    workloads = iter(control_planes)

    def make_cluster(name: str = "workload", *, namespace: str = "default", **_: Any) -> WorldCluster:
        workload = next(workloads)
        cluster = management.add_cluster(name, workload, namespace=namespace)
        as_service_account(control_planes[0], namespace)
        restrict_in_workload_cluster(cluster, workload)
        return cluster

    with (
        pytest.MonkeyPatch.context() as patch,
        ManagementCluster(control_planes[0]) as management,
        open_controllers(management) as start,
    ):
        patch.setattr(recorder, "BURST", 10_000)
        attestors = {"tpm": OperatorAttestor(settings=settings)}
        start(connection=as_service_account(control_planes[0]), attestors=attestors)
        yield Harness(management, make_cluster, start)


@pytest.fixture(scope="module")
def clusters(running: Harness) -> tuple[WorldCluster, WorldCluster]:
    """One on each control plane."""
    made = running.make_cluster("tpm"), running.make_cluster("other", namespace="elsewhere")
    for cluster in made:
        cluster.authorize("tpm")
    return made


@pytest.fixture(scope="module")
def cluster(clusters: tuple[WorldCluster, WorldCluster]) -> WorldCluster:
    return clusters[0]


@pytest.fixture(scope="module")
def other_cluster(clusters: tuple[WorldCluster, WorldCluster]) -> WorldCluster:
    return clusters[1]


class TestSoftwareTPM:
    """Real TPMs, and victims that run the node's own program."""

    @pytest.fixture
    def chips(self, maker: SoftwareTPM) -> Iterator[tuple[SoftwareTPM, SoftwareTPM]]:
        """Two that nobody has seen, by the same maker."""
        with SoftwareTPM(same_authority_as=maker) as first, SoftwareTPM(same_authority_as=maker) as second:
            yield first, second

    @staticmethod
    def machine(cluster: WorldCluster, chip: SoftwareTPM) -> str:
        """A Machine with that chip."""
        name = csr("chip")
        add_machine(cluster, name, fingerprint(chip))
        return name

    @staticmethod
    def node(cluster: WorldCluster, machine: str, chip: SoftwareTPM) -> SimulatedNode:
        """Who says to be that machine, with that chip: what the attacker posts by hand."""
        settings = {"tcti": chip.tcti, "provider-id": provider_id(machine)}
        return SimulatedNode(machine, provider_id(machine), cluster.ca_cert_hash, "tpm", settings)

    def program(self, cluster: WorldCluster, machine: str, chip: SoftwareTPM, folder: Path) -> NodeProgram:
        """The node's own program there."""
        program = NodeProgram(folder, self.node(cluster, machine, chip))
        program.supply_bootstrap(cluster)
        return program

    @staticmethod
    def ask(cluster: WorldCluster, manifest: dict[str, Any]) -> Verdict:
        cluster.submit_with_token(manifest)
        return cluster.wait_until_decided(manifest["metadata"]["name"])

    def challenge(self, cluster: WorldCluster, node: SimulatedNode, evidence: Evidence | None = None) -> str:
        verdict = self.ask(cluster, node.client_request(csr(), evidence_of=evidence))
        assert verdict.reason == "ChallengeIssued", verdict
        return verdict.annotations[CHALLENGE_ANNOTATION]

    @staticmethod
    def posted(cluster: WorldCluster, machine: str) -> list[dict[str, Any]]:
        """What everybody with a bootstrap token can read of that machine's requests, in their order."""
        with cluster.client(cluster.api.token_connection(cluster.api.bootstrap_token())) as client:
            found = client.items(CERTIFICATE_SIGNING_REQUESTS.collection())
        mine = [item for item in found if provider_id(machine).encode() in _request(item).certificate_request]
        return sorted(mine, key=lambda item: int(item["metadata"]["resourceVersion"]))

    def test_everything_that_a_node_posted_is_worth_nothing_to_others(
        self, running: Harness, cluster: WorldCluster, chips: tuple[SoftwareTPM, SoftwareTPM], tmp_path: Path
    ) -> None:
        machine = self.machine(cluster, chips[0])
        joined = self.program(cluster, machine, chips[0], tmp_path).credential().certificate()
        first, answer = self.posted(cluster, machine)
        thief = self.node(cluster, machine, chips[1])
        challenged = self.challenge(cluster, thief, _evidence(first))
        with pytest.raises(EvidenceUnavailable, match="not for this TPM's keys"):
            thief.evidence(challenge=challenged)
        copied = self.ask(cluster, thief.client_request(csr(), evidence_of=_evidence(answer)))
        assert_denied(copied, "BindingMismatch")
        elsewhere = self.node(cluster, self.machine(cluster, chips[1]), chips[1])
        copied = self.ask(cluster, elsewhere.client_request(csr(), evidence_of=_evidence(answer)))
        assert_denied(copied, "EndorsementKeyMismatch")
        spec = {key: answer["spec"][key] for key in ("request", "signerName", "usages")}
        replayed = self.ask(cluster, {**answer, "metadata": {"name": csr()}, "spec": spec, "status": {}})
        assert certificate_of(replayed) == joined, "the very same certificate: no use without its key"
        assert_one_owner_each(running, [cluster])

    def test_keys_and_certificates_of_two_chips(
        self, cluster: WorldCluster, chips: tuple[SoftwareTPM, SoftwareTPM], tmp_path: Path
    ) -> None:
        machine = self.machine(cluster, chips[0])
        node, other = (self.node(cluster, machine, chip) for chip in chips)
        own, others = node.evidence(), other.evidence()

        def mixed(field: str) -> Evidence:
            return Evidence(own.version, own.cluster, {**own.fields, field: others.fields[field]})

        verdict = self.ask(cluster, node.client_request(csr(), evidence_of=mixed(wire.ENDORSEMENT_CERTIFICATE_FIELD)))
        assert_denied(verdict, "EndorsementCertificateRefused", "belongs to another TPM")
        verdict = self.ask(cluster, node.client_request(csr(), evidence_of=mixed(wire.ENDORSEMENT_PUBLIC_FIELD)))
        assert_denied(verdict, "EndorsementCertificateRefused", "belongs to another TPM")
        challenged = self.challenge(cluster, node, mixed(wire.ATTESTATION_PUBLIC_FIELD))
        for one in (node, other):
            with pytest.raises(EvidenceUnavailable, match="not for this TPM's keys"):
                one.evidence(challenge=challenged)
        quoted = node.evidence(challenge=self.challenge(cluster, node)).fields
        forged = {**quoted, wire.ATTESTATION_PUBLIC_FIELD: others.fields[wire.ATTESTATION_PUBLIC_FIELD]}
        verdict = self.ask(cluster, node.client_request(csr(), evidence_of=Evidence(own.version, own.cluster, forged)))
        assert_denied(verdict, "QuoteRefused", "did not sign this quote")
        assert self.program(cluster, machine, chips[0], tmp_path).credential().exit_code == ExitCode.DONE

    def test_two_nodes_race_for_one_machine(
        self, running: Harness, cluster: WorldCluster, chips: tuple[SoftwareTPM, SoftwareTPM], tmp_path: Path
    ) -> None:
        machine = self.machine(cluster, chips[0])
        programs = [self.program(cluster, machine, chip, tmp_path / str(number)) for number, chip in enumerate(chips)]
        with ThreadPoolExecutor(2) as pool:
            won, lost = pool.map(lambda program: program.credential(), programs)
        assert won.exit_code == ExitCode.DONE, won.log
        assert lost.exit_code == ExitCode.DENIED, lost.log
        assert "EndorsementKeyMismatch" in lost.log
        assert_one_owner_each(running, [cluster])

    @pytest.mark.parametrize("where", ["one-cluster", "two-clusters"])
    def test_one_chip_for_two_machines(
        self,
        running: Harness,
        cluster: WorldCluster,
        other_cluster: WorldCluster,
        chips: tuple[SoftwareTPM, SoftwareTPM],
        tmp_path: Path,
        where: str,
    ) -> None:
        second = cluster if where == "one-cluster" else other_cluster
        for number, (owner, outcome) in enumerate(((cluster, ExitCode.DONE), (second, ExitCode.DENIED))):
            machine = self.machine(owner, chips[0])
            ran = self.program(owner, machine, chips[0], tmp_path / str(number)).credential()
            assert ran.exit_code == outcome, ran.log
            assert ("IdentityConflict" in ran.log) == (outcome is ExitCode.DENIED)
        assert_one_owner_each(running, [cluster, other_cluster])


def _request(manifest: dict[str, Any]) -> request_format.RequestBlocks:
    return request_format.decode(base64.b64decode(manifest["spec"]["request"]))


def _evidence(manifest: dict[str, Any]) -> Evidence:
    return evidence_format.decode(_request(manifest).evidence)
