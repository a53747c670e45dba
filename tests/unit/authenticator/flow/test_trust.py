from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from attestors.wire import statement
from attestors.wire.names import Purpose
from attestors.wire.statement import ClusterIdentity
from authenticator.api.errors import Unreachable
from authenticator.flow.trust import LOOK_SECONDS
from authenticator.model.cluster import Cluster
from authenticator.model.failures import StoreUnusable
from authenticator.model.trust_state import TrustState, pair_digest
from authenticator.store.store import KnownCluster
from signer.authority.statement_signing import StatementKeys
from tests.support.statements import authority, bundle_of, controller, signed, trust_of
from tests.unit.authenticator.builders import NODE, SERVER, pair
from tests.unit.authenticator.flow.trust_fixtures import NEW, OLD, TURN, TrustNode, both

BUNDLE = bundle_of(NEW, OLD)
THIEF = authority("thief")


@pytest.fixture
def node(tmp_path: Path) -> TrustNode:
    return TrustNode(tmp_path / "node")


def assert_untouched(node: TrustNode) -> None:
    assert node.contents == {bundle_of(OLD)}
    assert node.kubelet.starts == 1
    assert node.kubelet.loaded == bundle_of(OLD)
    assert node.state.sequence == 0
    assert node.state.change is None


def test_without_a_statement_nothing_happens(node: TrustNode) -> None:
    node.run(3)
    assert_untouched(node)
    assert node.state == TrustState()
    assert node.told == []


def test_the_new_ca_is_trusted_and_named_first(node: TrustNode) -> None:
    node.publish(both())
    node.run(3)
    assert node.contents == {BUNDLE}
    assert node.kubelet.loaded == BUNDLE
    assert node.kubelet.starts == 2
    state = node.state
    assert (state.sequence, state.change, state.rejection) == (1, None, None)
    stored = {purpose: node.store.pair(purpose) for purpose in Purpose}
    assert dict(state.superseded) == {purpose: pair_digest(one) for purpose, one in stored.items() if one is not None}
    assert all(state.is_superseded(purpose, one) for purpose, one in stored.items())
    assert not state.is_superseded(Purpose.CLIENT, pair(key=7))
    assert state.covers([OLD.certificate.public_key_hash])


def test_a_statement_in_force_is_not_looked_at_again(node: TrustNode) -> None:
    node.publish(both())
    node.run(3)
    told = len(node.told)
    node.run(5)
    assert node.kubelet.starts == 2
    assert len(node.told) == told


def test_the_old_ca_is_dropped(node: TrustNode) -> None:
    node.publish(both())
    node.run(3)
    node.publish(signed(trust_of(NEW, nodes=(NODE,)), NEW, sequence=2, not_before=TURN))
    node.run(6)
    assert node.contents == {bundle_of(NEW)}
    assert node.kubelet.loaded == bundle_of(NEW)
    assert node.state.sequence == 2


def test_it_goes_back_to_the_old_ca_by_a_later_statement(node: TrustNode) -> None:
    node.publish(both())
    node.run(3)
    node.publish(signed(trust_of(OLD, nodes=(NODE,)), OLD, sequence=2, not_before=TURN))
    node.run(6)
    assert (node.kubelet.loaded, node.state.sequence) == (bundle_of(OLD), 2)
    node.publish(both(1))
    node.run(6)
    assert (node.kubelet.loaded, node.reason) == (bundle_of(OLD), "Replayed")


REFUSED = [
    (b"{", "Malformed"),
    (b"[" * 2**20, "Malformed"),
    (statement.encode(both()).replace(b'"version":"v1"', b'"version":"v9"'), "Unsupported"),
    (
        signed(trust_of(THIEF, nodes=(NODE,)), OLD, THIEF, keys=StatementKeys(()), not_before=TURN),
        "NotSignedByController",
    ),
    (signed(trust_of(NEW, nodes=(NODE,)), NEW, not_before=TURN), "NotSignedByTrustedCA"),
    (
        signed(trust_of(NEW, OLD), OLD, NEW, cluster=ClusterIdentity("fleet", "other", "u"), not_before=TURN),
        "WrongCluster",
    ),
    (signed(controller().public, OLD, not_before=TURN), "WrongKind"),
    (signed(trust_of(NEW, OLD), OLD, NEW, not_before=TURN - 9, not_after=TURN), "Expired"),
]


@pytest.mark.parametrize(("published", "reason"), REFUSED, ids=[reason for _, reason in REFUSED])
def test_a_refused_statement_touches_nothing(node: TrustNode, published: bytes, reason: str) -> None:
    node.publish(published)
    node.run(3)
    assert_untouched(node)
    assert node.reason == reason
    assert sum("TrustRejected" in line for line in node.told) == 1, "told once"
    node.publish(both())
    node.run(3)
    assert (node.kubelet.loaded, node.reason) == (BUNDLE, ""), "a good one makes up for it"


# Turns.


def test_a_node_waits_for_its_turn(node: TrustNode) -> None:
    node.publish(both())
    node.time = TURN + 120.0  # another node's
    seconds = node.step.turn()
    assert_untouched(node)
    assert seconds == LOOK_SECONDS
    node.pass_by(seconds)
    assert node.step.turn() == 60.0, "until its turn begins"
    node.pass_by(60)
    node.run(3)
    assert node.kubelet.loaded == BUNDLE


def test_nothing_begins_in_the_second_half_of_a_turn(node: TrustNode) -> None:
    node.publish(both())
    node.time = TURN + 60.0
    node.step.turn()
    assert_untouched(node)


def test_nothing_begins_while_the_node_is_not_ready(node: TrustNode) -> None:
    node.publish(both())
    node.api.ready = False
    node.run(2)
    assert_untouched(node)
    assert node.reason == "NodeNotReady"


# What is in place already.


def test_a_node_that_joined_with_these_cas_is_not_restarted(node: TrustNode) -> None:
    for path in (node.store.authority_file, node.client_authority_file):
        path.write_text(BUNDLE)
    node.store.save_known_cluster(KnownCluster(Cluster(SERVER, BUNDLE), ""))
    node.publish(both())
    node.run()
    assert (node.state.sequence, node.kubelet.starts) == (1, 1)


def test_files_alone_are_no_proof(node: TrustNode) -> None:
    """Somebody wrote them, and the kubelet has not read them: its evidence named the old CA."""
    for path in (node.store.authority_file, node.client_authority_file):
        path.write_text(BUNDLE)
    node.publish(both())
    node.run(3)
    assert (node.kubelet.starts, node.kubelet.loaded) == (2, BUNDLE)


# Failures.


@pytest.mark.parametrize("failure", ["command", "nothing", "does not start", "no heartbeat", "not ready", "no API"])
def test_a_failure_restores_the_former_cas(node: TrustNode, failure: str) -> None:
    node.publish(both())
    if failure == "command":
        node.kubelet.fails = "exit code 1"
    elif failure == "nothing":
        node.kubelet.ignores = True
    elif failure == "does not start":
        node.kubelet.refuses = bundle_of(NEW)
    elif failure == "no heartbeat":
        node.api.silent = True
    node.step.turn()
    if failure == "not ready":
        node.api.ready = False
    elif failure == "no API":
        node.api.failure = Unreachable("nothing listens")
    for _ in range(70):
        node.pass_by(1)
        node.step.turn()
    node.kubelet.fails, node.kubelet.ignores = "", False
    for _ in range(5):
        node.pass_by(LOOK_SECONDS)
        node.step.turn()
    state = node.state
    assert state.change is None
    assert (state.sequence, state.superseded) == (0, ())
    assert node.contents == {bundle_of(OLD)}
    assert node.kubelet.loaded == bundle_of(OLD)
    assert node.reason in ("KubeletFailed", "NodeNotReady")
    assert state.rejection is not None
    assert state.rejection.failures == 1


def test_a_change_that_failed_is_tried_again_later(node: TrustNode) -> None:
    node.publish(both())
    node.kubelet.refuses = bundle_of(NEW)
    while node.state.rejection is None:
        node.run()
    rejection = node.state.rejection
    assert (rejection.reason, rejection.failures) == ("KubeletFailed", 1)
    starts = node.kubelet.starts
    node.kubelet.refuses = ""
    while node.time < rejection.until - LOOK_SECONDS:
        node.run()
        assert node.kubelet.starts == starts
    for _ in range(10):
        node.run()
    assert (node.kubelet.loaded, node.state.sequence, node.reason) == (BUNDLE, 1, "")


def test_a_lower_sequence_is_not_begun_after_a_failure(node: TrustNode) -> None:
    node.publish(both(2))
    node.kubelet.refuses = bundle_of(NEW)
    while node.state.rejection is None:
        node.run()
    node.publish(both(1))
    node.kubelet.refuses = ""
    node.run(30)
    assert (node.reason, node.kubelet.loaded) == ("Replayed", bundle_of(OLD))


def test_a_file_that_cannot_be_written_restores_the_others(node: TrustNode, monkeypatch: pytest.MonkeyPatch) -> None:
    node.publish(both())
    replace = os.replace

    def broken(source: str, target: Path) -> None:
        if Path(target).name == "ca.crt":
            raise OSError(errno.ENOSPC, "No space left on device", str(target))
        replace(source, target)

    monkeypatch.setattr(os, "replace", broken)
    node.run()
    monkeypatch.undo()
    node.run(3)
    assert (node.contents, node.reason) == ({bundle_of(OLD)}, "FileNotWritten")


# What is not this program's.


def test_a_control_plane_is_left_alone(node: TrustNode) -> None:
    """kube-controller-manager does not start with a bundle in its ca.crt."""
    (node.folder / "ca.key").touch()
    node.publish(both())
    node.run(2)
    assert_untouched(node)
    assert node.reason == "ControlPlane"


def test_a_configured_file_must_exist(node: TrustNode) -> None:
    node.client_authority_file.unlink()
    node.publish(both())
    node.run(2)
    assert node.reason == "FileMissing"
    assert node.kubelet.starts == 1


def test_a_kubeconfig_with_another_ca_file_is_not_managed(node: TrustNode, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere.crt"
    elsewhere.write_text(bundle_of(OLD))
    kubeconfig = node.configuration.kubeconfig
    kubeconfig.write_text(kubeconfig.read_text().replace(str(node.store.authority_file), str(elsewhere)))
    node.publish(both())
    node.run(4)
    assert (node.contents, node.reason) == ({bundle_of(OLD)}, "NotManaged")


def test_files_keep_their_mode_and_links_their_place(node: TrustNode, tmp_path: Path) -> None:
    real = tmp_path / "real.crt"
    node.client_authority_file.rename(real)
    node.client_authority_file.symlink_to(real)
    real.chmod(0o640)
    node.publish(both())
    node.run(3)
    assert node.client_authority_file.is_symlink()
    assert real.read_text() == BUNDLE
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_a_damaged_state_stops_the_step_and_changes_nothing(node: TrustNode) -> None:
    (node.store.folder / "kubelet-authenticator-trust.json").write_text("{}")
    node.publish(both())
    with pytest.raises(StoreUnusable):
        node.step.turn()
    assert node.contents == {bundle_of(OLD)}


def test_another_agent_holds_the_lock(node: TrustNode) -> None:
    node.publish(both())
    with node.store.trust_lock():
        assert node.step.turn() == LOOK_SECONDS
    assert_untouched(node)


def test_an_agent_that_is_restarted_with_the_kubelet_does_not_restart_it_again(node: TrustNode) -> None:
    """``PartOf=kubelet.service``: systemd ends the agent right after the command."""
    node.publish(both())
    node.step.turn()
    assert node.kubelet.starts == 2
    node.step = node.new_process()
    node.run(3)
    assert (node.kubelet.starts, node.state.sequence) == (2, 1)
