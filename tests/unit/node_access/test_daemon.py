"""The socket: who may ask, and what is answered."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from attestors.wire.ssh.principals import LoginOnEveryNode, PlainPrincipal
from node_access import daemon
from node_access.daemon import ANSWERED, Daemon
from node_access.machine import NotAsked
from node_access.principals import LoginRefused
from node_access.registry import SystemClock
from node_access.reports import Level, Report, write
from node_access.requests import MAXIMUM_REQUEST_BYTES
from node_access.values import Connection, ProcessIdentity
from tests.support.processes import wait_until


class Scripted:
    """Sessions that answer as a test says."""

    def __init__(self, answer: Callable[[int, bytes], Any]) -> None:
        self.answer = answer
        self.settled: list[Connection] = []
        self.waiting: list[Any] = []

    def tick(self) -> float:
        return 0.05

    def undecided(self) -> list[Any]:
        return self.waiting

    def settle(self, connection: Connection) -> bool:
        self.settled.append(connection)
        return True


@contextmanager
def serving(path: Path, sessions: Any, *, user: int | None = None) -> Iterator[tuple[list[Report], list[str]]]:
    reports: list[Report] = []
    states: list[str] = []
    stop = threading.Event()
    served = Daemon(
        sessions,
        path=path,
        allowed_user=os.getuid() if user is None else user,
        report=reports.append,
        clock=SystemClock(),
        alive=states.append,
    )
    thread = threading.Thread(target=served.run, args=(stop.is_set,))
    thread.start()
    try:
        yield reports, states
    finally:
        stop.set()
        thread.join()
        served.close()


def ask(path: Path, message: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(20)
        client.connect(str(path))
        client.sendall(message)
        client.shutdown(socket.SHUT_WR)
        return client.makefile("rb").read()


def test_an_answer(tmp_path: Path) -> None:
    asked: list[tuple[int, bytes]] = []

    def answer(pid: int, message: bytes) -> Any:
        asked.append((pid, message))
        return (PlainPrincipal("root"), LoginOnEveryNode("root"))

    with serving(tmp_path / "s", Scripted(answer)) as (_, states):
        assert ask(tmp_path / "s", b"x" * 100_000) == ANSWERED + b"root\nroot@*\n"
        wait_until(lambda: "WATCHDOG=1" in states, "a sign of life")
    assert asked == [(os.getpid(), b"x" * 100_000)]
    assert states[0] == "READY=1"
    assert (tmp_path / "s").stat().st_mode & 0o777 == 0o660


@pytest.mark.parametrize(
    ("error", "level"),
    [(LoginRefused("why"), Level.WARNING), (NotAsked("why"), Level.WARNING), (KeyError("k"), Level.ALERT)],
)
def test_a_refusal_is_an_answer_without_principals(tmp_path: Path, error: Exception, level: Level) -> None:
    """The command must not fall back then. Nor does a defect end the daemon."""

    def answer(pid: int, message: bytes) -> Any:
        raise error

    with serving(tmp_path / "s", Scripted(answer)) as (reports, _):
        assert ask(tmp_path / "s", b"x") == ANSWERED
        assert ask(tmp_path / "s", b"x") == ANSWERED
    assert [report.level for report in reports] == [level, level]


def test_another_user_gets_no_answer(tmp_path: Path) -> None:
    asked: list[int] = []
    sessions = Scripted(lambda pid, message: asked.append(pid))
    with serving(tmp_path / "s", sessions, user=os.getuid() + 1), socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(str(tmp_path / "s"))
        with contextlib.suppress(ConnectionError):
            client.sendall(b"x")
            client.shutdown(socket.SHUT_WR)
        with contextlib.suppress(ConnectionError):
            assert client.recv(100) == b""
    assert asked == []


def test_too_long_a_question_is_cut(tmp_path: Path) -> None:
    lengths: list[int] = []

    def answer(pid: int, message: bytes) -> Any:
        lengths.append(len(message))
        return ()

    with serving(tmp_path / "s", Scripted(answer)), socket.socket(socket.AF_UNIX) as client:
        client.connect(str(tmp_path / "s"))
        with pytest.raises(ConnectionError):
            client.sendall(bytes(8 * MAXIMUM_REQUEST_BYTES))
    assert lengths[0] <= MAXIMUM_REQUEST_BYTES + 64 * 1024


def test_a_client_that_says_nothing_is_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "_CLIENT_SECONDS", 0.1)
    with serving(tmp_path / "s", Scripted(lambda pid, message: ())), socket.socket(socket.AF_UNIX) as client:
        client.settimeout(20)
        client.connect(str(tmp_path / "s"))
        assert client.recv(1) == b""


def test_a_login_is_settled_when_its_process_ends(tmp_path: Path) -> None:
    class Waiting:
        def __init__(self, pid: int) -> None:
            self.connection = Connection("/x", 1, ProcessIdentity(1, 1))
            self.unprivileged = (ProcessIdentity(pid, 1),)

    sessions = Scripted(lambda pid, message: ())
    with subprocess.Popen(["sleep", "60"]) as process:
        sessions.waiting.append(Waiting(process.pid))
        with serving(tmp_path / "s", sessions):
            ask(tmp_path / "s", b"")
            assert sessions.settled == []
            sessions.waiting.clear()
            process.kill()
            wait_until(lambda: bool(sessions.settled), "the login is settled")
    process.wait()


def test_a_line_of_the_journal(capsys: pytest.CaptureFixture[str]) -> None:
    """systemd reads the level; what a certificate says begins no other line."""
    write(Report(Level.ALERT, "a\nb\u0085ä"))
    assert capsys.readouterr().err == "<1>a\\nb\\x85\\xe4\n"
