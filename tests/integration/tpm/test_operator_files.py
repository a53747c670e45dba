"""Authorities and deny lists that change while the controller runs."""

from __future__ import annotations

import os

import pytest

from attestors.wire.names import Purpose
from signer.testing.fixtures import embedded_api
from signer.testing.world import WorldCluster
from tests.integration.fixtures import Harness, pending
from tests.integration.tpm.whose import (
    FIRST_USE,
    OperatorFolder,
    add_worker,
    assert_denied,
    assert_joins,
    chip,
    cluster_of,
    csr,
    nudge,
)
from tests.support.processes import wait_until
from tests.unit.attestors.tpm.fake_tpm import self_signed_root

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


@pytest.mark.parametrize("how", ["removed", "malformed", "emptied", "pipe"])
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
