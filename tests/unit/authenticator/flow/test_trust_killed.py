"""SIGKILL between every two writes of a change of CAs: the node works at any time, and the change ends."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from authenticator.flow.trust import LOOK_SECONDS
from tests.support.kill_points import Steps
from tests.support.statements import bundle_of
from tests.unit.authenticator.flow.trust_fixtures import NEW, OLD, TrustNode, both

pytestmark = pytest.mark.slow

BUNDLE = bundle_of(NEW, OLD)
GOOD = (bundle_of(OLD), BUNDLE)
AT_LEAST = 10.0
"""Seconds between turns: a kubelet that does not come up is waited for in fewer of them."""
EFFECT = re.compile(r"(before (os\.(?!close|unlink)|file\.write|fcntl|restart)|amid |after restart)")
"""The steps between which something happened."""
TURNS = 40
"""More than a change and its undoing take."""


def in_fork(work: Callable[[Steps], None], last: int, names: Path) -> int:
    """Run the work in a fork, which is killed at step ``last``; returns its exit code or the negative signal."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            steps = Steps(last)
            steps.wrap_everything()
            work(steps)
            names.write_text("".join(f"{name}\n" for name in steps.names))
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def change(node: TrustNode, steps: Steps) -> None:
    node.kubelet.restart = steps.around("restart", node.kubelet.restart)  # type: ignore[method-assign]
    for _ in range(TURNS):
        node.pass_by(max(node.step.turn(), AT_LEAST))
        if node.state.rejection is not None or node.state.sequence:
            return


def node_of(folder: Path, *, fails: bool) -> TrustNode:
    node = TrustNode(folder)
    node.kubelet.refuses = bundle_of(NEW) if fails else ""
    node.publish(both())
    return node


def assert_works(node: TrustNode) -> None:
    """A kubelet that starts now reads CAs of the cluster, and this program's kubeconfig names the same."""
    for path in (node.store.authority_file, node.client_authority_file):
        assert path.read_text() in GOOD
    assert node.kubelet.loaded in (*GOOD, "")
    assert node.store.pin() is not None
    assert node.state.sequence in (0, 1)


@pytest.mark.parametrize("fails", [False, True], ids=["forward", "back"])
def test_a_kill_at_any_step_leaves_a_node_that_works_and_recovers(tmp_path: Path, fails: bool) -> None:
    names = tmp_path / "names"
    whole = node_of(tmp_path / "whole", fails=fails)
    assert in_fork(lambda steps: change(whole, steps), 0, names) == 0
    steps_of_all = names.read_text().splitlines()
    effects = [last for last, name in enumerate(steps_of_all, 1) if EFFECT.match(name)]
    assert len(effects) > 20
    for last in effects:
        node = node_of(tmp_path / f"step-{last}", fails=fails)
        ended = in_fork(lambda steps, node=node: change(node, steps), last, names)  # type: ignore[misc]
        assert ended == -signal.SIGKILL, last
        assert_works(node)
        if not node.kubelet.loaded:
            node.kubelet.start()  # systemd does it, whatever happens to the agent
        before = node.kubelet.starts
        node.step = node.new_process()
        for _ in range(TURNS):
            node.pass_by(min(max(node.step.turn(), AT_LEAST), LOOK_SECONDS))
            assert_works(node)
            if node.state.change is None and (node.state.rejection is not None or node.state.sequence):
                break
        state = node.state
        assert state.change is None, last
        assert state.sequence == (0 if fails else 1), last
        assert node.contents == {GOOD[not fails]}, last
        assert node.kubelet.loaded == GOOD[not fails], last
        assert node.kubelet.starts - before <= (2 if fails else 1), last
