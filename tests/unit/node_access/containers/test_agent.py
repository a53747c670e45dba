"""The agent: whom it serves, how many, and what it leaves. Its sessions are real in ``tests/e2e/containers``."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from node_access.containers import agent
from node_access.containers.agent import Agent, Files
from node_access.containers.finding import Bundles
from node_access.containers.protocol import NoTerminal, Run, Terminal, TransferFiles, encode_request
from node_access.containers.session import Settings
from node_access.containers.tools import Tools, ToolSet
from node_access.containers.users import Pool, Users
from tests.support.processes import wait_until
from tests.unit.node_access.containers.made import ANNOTATIONS, NAME, MadeNode

OWN = os.geteuid()
SHELL = encode_request(Run(Terminal("xterm", 24, 80), ""))


@pytest.fixture
def node(tmp_path: Path) -> MadeNode:
    made = MadeNode(tmp_path)
    made.add()
    return made


def files(node: MadeNode) -> Files:
    return Files(
        node.folder / "agent",
        node.folder / "sessions",
        node.folder / "users.json",
        node.folder / "passwd",
        os.getegid(),
    )


@contextlib.contextmanager
def running(node: MadeNode, *, first_uid: int = OWN) -> Iterator[int]:
    """Served by a child process, whose process ID this is. Its pool begins with the uid of these tests."""
    tools = Tools(ToolSet({}, {}), ToolSet({}, {}))
    settings = Settings(node.root, {}, tools)
    started = Agent(Bundles(node.tasks), Users(Pool(first_uid, 1)), settings, files(node), lambda state: None)
    child = os.fork()
    if child == 0:
        try:
            stop = threading.Event()
            signal.signal(signal.SIGTERM, lambda number, frame: stop.set())
            started.run(stop.is_set)
        finally:
            os._exit(0)
    started.close()
    try:
        wait_until((node.folder / "passwd").exists, "the agent has looked")
        yield child
    finally:
        os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)


def forked(agent_process: int) -> set[int]:
    """What the agent has forked, and runs."""
    return set(map(int, Path(f"/proc/{agent_process}/task/{agent_process}/children").read_text().split()))


def waiting(agent_process: int) -> int:
    """The process that waits for the next session, while there is no session."""
    wait_until(lambda: len(forked(agent_process)) == 1, "a process waits")
    return min(forked(agent_process))


def is_zombie(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def ask(node: MadeNode, message: bytes, *descriptors: int) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        client.settimeout(30)
        client.connect(str(node.folder / "agent"))
        with contextlib.suppress(BrokenPipeError):
            socket.send_fds(client, [message], list(descriptors))
        try:
            return client.recv(4096)
        except ConnectionResetError:
            return b""


@pytest.fixture(autouse=True)
def used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes of these tests have the uid of the pool."""
    monkeypatch.setattr(agent, "used_uids", lambda pool: set())


def test_the_user_of_a_container_is_served_and_another_is_not(node: MadeNode) -> None:
    with running(node):
        assert ask(node, SHELL).startswith(b"refused ")  # of a made container that does not run
        assert (node.folder / "passwd").read_text().startswith(f"{NAME}:*:{OWN}:")
    with running(node, first_uid=OWN + 1):
        assert ask(node, SHELL) == b""


def test_a_request_has_the_descriptors_that_belong_to_it(node: MadeNode) -> None:
    ends = os.pipe()
    try:
        with running(node):
            for message, count in (
                (SHELL, 1),
                (encode_request(TransferFiles()), 2),
                (encode_request(TransferFiles()), 0),
            ):
                assert b"descriptors that belong" in ask(node, message, *[ends[1]] * count)
            run = encode_request(Run(NoTerminal(), "id"))
            assert b"too large" in ask(node, run, *[ends[1]] * 4)
            assert b"too large" in ask(node, run + b"x" * 65536, *[ends[1]] * 3)
            with Path("/dev/null").open() as null:
                assert b"neither a pipe nor a socket" in ask(node, run, *[null.fileno()] * 3)
            assert b"descriptors" not in ask(node, run, *[ends[1]] * 3)
    finally:
        os.close(ends[0])
        os.close(ends[1])


@pytest.mark.parametrize("bound", ["MAXIMUM_SESSIONS", "MAXIMUM_SESSIONS_OF_A_CONTAINER"])
def test_sessions_are_bounded_and_the_end_of_one_makes_room(
    node: MadeNode, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(agent, bound, 2)
    with running(node), contextlib.ExitStack() as stack:
        waiting = [stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) for _ in range(2)]
        for one in waiting:
            one.connect(str(node.folder / "agent"))
        wait_until(lambda: len(list((node.folder / "sessions").iterdir())) == 2, "two sessions wait for their request")
        assert ask(node, SHELL) == b""
        waiting[0].close()
        wait_until(lambda: ask(node, SHELL) != b"", "there is room")


def test_the_process_that_waits_serves_and_another_waits_then(node: MadeNode) -> None:
    with running(node) as served_by, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        first = waiting(served_by)
        client.connect(str(node.folder / "agent"))
        wait_until(lambda: len(forked(served_by)) == 2, "another one waits")
        assert first in forked(served_by)
        client.send(SHELL)
        assert client.recv(4096).startswith(b"refused ")
        wait_until(lambda: first not in forked(served_by), "it has served one session")


def test_a_session_is_served_after_the_process_that_waits_was_killed(node: MadeNode) -> None:
    """The agent takes note of that after the session has come."""
    with running(node) as served_by, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as client:
        killed = waiting(served_by)
        os.kill(served_by, signal.SIGSTOP)
        try:
            os.kill(killed, signal.SIGKILL)
            wait_until(lambda: is_zombie(killed), "it has ended")
            client.connect(str(node.folder / "agent"))
            client.send(SHELL)
        finally:
            os.kill(served_by, signal.SIGCONT)
        client.settimeout(30)
        assert client.recv(4096).startswith(b"refused ")


def test_no_other_process_has_a_sessions_connection(node: MadeNode) -> None:
    """Neither one that has waited since before, nor one that was forked since."""
    with running(node) as served_by, contextlib.ExitStack() as stack:
        first = waiting(served_by)
        held = [stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) for _ in range(3)]
        for client in held:
            client.connect(str(node.folder / "agent"))
        wait_until(lambda: len(forked(served_by)) == 4, "three sessions, and a process that waits")
        os.kill(first, signal.SIGKILL)
        assert select.select(held, [], [], 30)[0] == held[:1]
        assert held[0].recv(4096) == b""


def test_the_process_that_waits_knows_the_containers_that_are_there(node: MadeNode) -> None:
    with running(node) as served_by:
        before = waiting(served_by)
        node.add("b" * 64, annotations={**ANNOTATIONS, "io.kubernetes.cri.sandbox-name": "web-1"})
        wait_until(lambda: forked(served_by).isdisjoint({before}), "another one waits")
        assert waiting(served_by) != before


def test_nothing_waits_for_an_agent_that_was_killed(node: MadeNode) -> None:
    with running(node) as served_by:
        left = os.pidfd_open(waiting(served_by))
        try:
            os.kill(served_by, signal.SIGKILL)
            assert select.select([left], [], [], 30)[0] == [left]
        finally:
            os.close(left)


def test_nothing_of_a_session_is_left(node: MadeNode) -> None:
    with running(node):
        ask(node, SHELL)
        wait_until(lambda: not list((node.folder / "sessions").iterdir()), "its folder is gone")


def test_what_an_earlier_agent_left_is_removed(node: MadeNode) -> None:
    left = node.folder / "sessions/0123456789abcdef"
    left.mkdir(parents=True)
    (left / "group").write_text("/etc")  # no group of a session: nothing is ended there
    with running(node):
        assert not left.exists()
    assert Path("/etc").is_dir()


def test_only_the_users_group_reaches_the_socket(node: MadeNode) -> None:
    with running(node):
        assert (node.folder / "agent").stat().st_mode & 0o777 == 0o660


def test_a_full_disk_gives_no_user_that_a_restart_would_not_know(
    node: MadeNode, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(users: Users, path: Path) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(agent, "save_users", full)
    tools = Tools(ToolSet({}, {}), ToolSet({}, {}))
    settings = Settings(node.root, {}, tools)
    with contextlib.closing(
        Agent(Bundles(node.tasks), Users(Pool(OWN, 1)), settings, files(node), lambda state: None)
    ) as started:
        started.look()
    assert not (node.folder / "passwd").exists()
    assert "get no user" in capfd.readouterr().err
