"""Authorities and deny lists that change while the controller runs."""

from __future__ import annotations

import os

import pytest

from attestors.wire.names import CHIP_ANNOTATION, Purpose
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.testing.fixtures import embedded_api
from signer.testing.world import Verdict, WorldCluster
from tests.integration.fixtures import Harness, pending
from tests.integration.kubelets import builtin_serving_request
from tests.integration.tpm.fake_tpm_node import FakeTPMNode
from tests.integration.tpm.whose import (
    FIRST_USE,
    NUMBERS,
    OperatorFolder,
    add_worker,
    assert_denied,
    assert_joins,
    chip,
    cluster_of,
    csr,
    nudge,
)
from tests.support import endorsement_certificates as write
from tests.support.processes import wait_until
from tests.unit.attestors.tpm.endorsement.support import ENDORSEMENT
from tests.unit.attestors.tpm.fake_tpm import self_signed_root
from tests.unit.attestors.tpm.test_controller import GOOGLE_INSTANCE, instance

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> OperatorFolder:
    return OperatorFolder(tmp_path_factory.mktemp("operator"))


@pytest.fixture(scope="module")
def harness(shared_harness: Harness, folder: OperatorFolder) -> Harness:
    """A harness whose controller runs; its tests leave the operator's files as they were."""
    shared_harness.run(attestors=folder.attestors)
    return shared_harness


@pytest.fixture(scope="module")
def cluster(harness: Harness) -> WorldCluster:
    """One whose nodes join already: the attestor is ready."""
    cluster = cluster_of(harness, "first-use", *FIRST_USE)
    assert_joins(add_worker(cluster))
    return cluster


def test_a_denied_key_ends_renewals_at_once(cluster: WorldCluster, folder: OperatorFolder) -> None:
    """Recorded or not, and also with an answer that was under way."""
    stolen, other = assert_joins(add_worker(cluster)), assert_joins(add_worker(cluster))
    answer = stolen.chip.answer(stolen.challenge(csr()), stolen.binding())
    folder.deny(stolen.chip)
    assert_denied(stolen.ask(csr(), answer), "EndorsementKeyDenied", stolen.chip.fingerprint)
    for purpose in Purpose:
        verdict = stolen.with_new_key().ask(csr(), stolen.chip.first(), purpose)
        assert_denied(verdict, "EndorsementKeyDenied")
    with_token = stolen.but(credential=None)
    assert_denied(with_token.ask(csr(), stolen.chip.first()), "EndorsementKeyDenied")
    assert_joins(other)
    folder.deny()
    assert_joins(stolen.with_new_key())


def test_a_chip_that_is_denied_before_its_certificate_gets_none(cluster: WorldCluster, folder: OperatorFolder) -> None:
    """The approval came before; the request passes every check again before the certificate."""
    stolen, name = add_worker(cluster), csr()
    held = embedded_api(cluster).faults.inject(f"PUT */{name}/status", status=503, times=None)
    answer = stolen.chip.answer(stolen.challenge(csr()), stolen.binding())
    stolen.post(name, answer)
    wait_until(
        lambda: bool(embedded_api(cluster).requests.matching(f"PUT */{name}/status")), "the certificate, held off"
    )
    folder.deny(stolen.chip)
    try:
        held.times = 0
        verdict = cluster.wait_until_decided(name)
    finally:
        folder.deny()
    assert (verdict.condition, verdict.reason, verdict.certificate) == ("Failed", "EndorsementKeyDenied", b"")


class TestBuiltinServing:
    """A kubelet's own serving requests show no chip: they rest on the record, while its client certificate lasts."""

    def test_a_denied_key_ends_them_at_once(
        self, harness: Harness, approving: WorldCluster, folder: OperatorFolder
    ) -> None:
        stolen, other = assert_joins(add_worker(approving)), assert_joins(add_worker(approving))
        assert _serves(stolen).reason == "Attested"
        folder.deny(stolen.chip)
        try:
            assert_denied(_serves(stolen), "EndorsementKeyDenied", stolen.chip.fingerprint)
            assert _serves(other).reason == "Attested"
        finally:
            folder.deny()
        assert _serves(stolen).reason == "Attested"
        harness.assert_audited()

    def test_a_denied_chip_ends_them(self, approving: WorldCluster, folder: OperatorFolder) -> None:
        node = add_worker(approving)
        extensions = (*ENDORSEMENT, write.extension(GOOGLE_INSTANCE, instance(7, next(NUMBERS))))
        verdict = node.but(chip=node.chip.certified(extensions=extensions)).attest(csr())
        assert verdict.reason == "Attested", verdict
        stolen, name = node.joined(verdict), verdict.annotations[CHIP_ANNOTATION]
        assert _serves(stolen).reason == "Attested"
        folder.write(name)
        try:
            assert_denied(_serves(stolen), "EndorsementKeyDenied", name)
        finally:
            folder.deny()

    def test_without_a_list_they_wait(self, harness: Harness, approving: WorldCluster, folder: OperatorFolder) -> None:
        node, name = assert_joins(add_worker(approving)), csr()
        assert node.credential is not None
        folder.denied.unlink()
        try:
            approving.submit(builtin_serving_request(name, node.machine, [node.machine]), node.credential)
            harness.wait_for_event("OperatorFileUnusable", node.machine)
            pending(approving, name)
        finally:
            folder.deny()
        nudge(node)
        assert _decided(approving, name).reason == "Attested"


@pytest.fixture(scope="module")
def approving(harness: Harness) -> WorldCluster:
    """The controller approves its kubelets' own serving requests."""
    return cluster_of(harness, "approving", *FIRST_USE, builtin_serving_requests="Approve")


def _serves(node: FakeTPMNode) -> Verdict:
    """The verdict about its kubelet's own request. Nothing signs here."""
    assert node.credential is not None
    name = csr()
    node.cluster.submit(builtin_serving_request(name, node.machine, [node.machine]), node.credential)
    return _decided(node.cluster, name)


def _decided(cluster: WorldCluster, name: str) -> Verdict:
    path = CERTIFICATE_SIGNING_REQUESTS.collection()
    found = cluster.client().wait_for(path, name, lambda one: bool((one.get("status") or {}).get("conditions")))
    return Verdict.of(found)


def test_a_list_that_a_mounted_config_map_brings(cluster: WorldCluster, folder: OperatorFolder) -> None:
    """The kubelet swaps a symbolic link; the path that the operator named stays."""
    stolen = assert_joins(add_worker(cluster))
    mounted = folder.path / f"mounted-{stolen.machine}"
    for version, content in (("1", "# nobody\n"), ("2", f"{stolen.chip.fingerprint}\n")):
        (mounted / version).mkdir(parents=True)
        (mounted / version / "keys").write_text(content)
    (mounted / "..data").symlink_to("1")
    folder.denied.unlink()
    folder.denied.symlink_to(mounted / "..data" / "keys")
    try:
        stolen = assert_joins(stolen)
        (mounted / "..data_tmp").symlink_to("2")
        (mounted / "..data_tmp").replace(mounted / "..data")
        assert_denied(stolen.ask(csr(), stolen.chip.first()), "EndorsementKeyDenied")
    finally:
        folder.deny()


@pytest.mark.parametrize("how", ["removed", "malformed", "emptied", "pipe", "folded"])
def test_an_unusable_list_makes_all_requests_wait(
    harness: Harness, cluster: WorldCluster, folder: OperatorFolder, how: str
) -> None:
    """An open door is what a thief would make of it, and a closed one for good is not the nodes' fault."""
    node = add_worker(cluster)
    name = csr()
    if how == "malformed":
        folder.denied.write_text(f"{node.chip.fingerprint} # stolen\n")
    elif how == "emptied":
        folder.denied.write_text("")
    elif how == "folded":  # by `>` in YAML, where each key has a comment before it
        folder.denied.write_text(f"# May. {node.chip.fingerprint}\n# June. {chip().fingerprint}\n")
    else:
        folder.denied.unlink()
        if how == "pipe":
            os.mkfifo(folder.denied)
    try:
        node.post(name, node.chip.first())
        message = harness.wait_for_event("OperatorFileUnusable", node.machine)
        assert message.startswith(f"deniedEndorsementKeysFile: {folder.denied}: ")
        assert pending(cluster, name).annotations == {}
    finally:
        folder.deny()
    nudge(node)
    assert cluster.wait_until_decided(name).reason == "ChallengeIssued"


def test_authorities_that_are_added_and_taken_away(
    harness: Harness, cluster: WorldCluster, folder: OperatorFolder
) -> None:
    """A maker whom the operator does not trust yet, or any more."""
    node = add_worker(cluster)
    maker = folder.path / "roots" / "maker.der"
    content = maker.read_bytes()
    maker.write_bytes(self_signed_root(chip()))
    name = csr()
    try:
        node.post(name, node.chip.first())
        harness.wait_for_event("EndorsementAuthorityMissing", node.machine)
        assert pending(cluster, name).annotations == {}
    finally:
        maker.write_bytes(content)
    nudge(node)
    assert cluster.wait_until_decided(name).reason == "ChallengeIssued"
