"""A process that waits for a session, and what becomes of it."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from node_access.containers.waiting import Ended, Task, Waiting, fork_waiting
from tests.support.processes import wait_until

TASK = Task("shop_web-0_app", Path("/sessions/0123456789abcdef"))


def serve(connection: socket.socket, task: Task, prepared: str) -> None:
    connection.sendall(f"{prepared} {task.name} {task.folder}".encode())


def defective(connection: socket.socket, task: Task, prepared: str) -> None:
    raise MemoryError


@pytest.fixture
def waiting() -> Iterator[Waiting]:
    forked = fork_waiting(lambda: "prepared", serve)
    yield forked
    forked.close()
    os.kill(forked.process_id, signal.SIGKILL)
    os.waitpid(forked.process_id, 0)


def ends(waiting: Waiting) -> bool:
    """Whether it has ended. It stays to be waited for."""
    return os.waitid(os.P_PID, waiting.process_id, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None


def test_it_serves_the_session_that_is_handed_over_and_ends(waiting: Waiting) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            assert waiting.hand_over(theirs, TASK) == waiting.process_id
        assert ours.recv(4096) == b"prepared shop_web-0_app /sessions/0123456789abcdef"
        assert ours.recv(4096) == b""
    wait_until(lambda: ends(waiting), "it has served one session")


def test_one_that_has_ended_gets_no_session(waiting: Waiting) -> None:
    os.kill(waiting.process_id, signal.SIGKILL)
    wait_until(lambda: ends(waiting), "it has ended")
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.raises(Ended):
        waiting.hand_over(theirs, TASK)


def test_it_ends_with_the_agent(capfd: pytest.CaptureFixture[str]) -> None:
    """A killed agent has closed its end of the channel, too."""
    forked = fork_waiting(lambda: "prepared", serve)
    forked.close()
    try:
        wait_until(lambda: ends(forked), "it has nobody to wait for")
    finally:
        os.kill(forked.process_id, signal.SIGKILL)
        os.waitpid(forked.process_id, 0)
    assert capfd.readouterr().err == ""


def test_a_defect_ends_it_and_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    forked = fork_waiting(lambda: "prepared", defective)
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            forked.hand_over(theirs, TASK)
        assert ours.recv(4096) == b""
    assert os.waitpid(forked.process_id, 0) == (forked.process_id, 0)
    assert capfd.readouterr().err == "<1>a defect before a session: MemoryError\n"
