"""The address that answers, for the real ssh, which takes the socket."""

from __future__ import annotations

import array
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from node_access.client import connecting
from node_access.client.cli import main

NOWHERE = "127.0.0.2"
"""Nothing listens there."""
BASTION = """#!{python}
import socket, sys, time
where = sys.argv[sys.argv.index("-W") + 1]
with open({log!r}, "a") as file:
    file.write(" ".join(sys.argv[1:]) + "\\n")
if where.startswith("192.0.2.1:"):
    time.sleep(60)
if where.startswith("192.0.2.2:"):
    sys.exit(255)
sys.stdout.write("SSH-2.0-behind " + where + "\\r\\n")
sys.stdout.flush()
sys.stdin.read()
"""


@pytest.fixture
def port() -> Iterator[int]:
    """A server that greets, as sshd does."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def received(words: Sequence[str], path: str = "") -> tuple[int, str, list[socket.socket]]:
    """The exit code, the messages, and what ssh would receive (``mm_receive_fd`` of OpenSSH)."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "node_access.client", "connect", *words],
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=subprocess.PIPE,
            env={**os.environ, **({"PATH": path} if path else {})},
        )
    with ours:
        content, ancillary, _, _ = ours.recvmsg(1, socket.CMSG_LEN(4))
        code = process.wait(60)
        assert process.stderr is not None
        with process.stderr:
            messages = os.read(process.stderr.fileno(), 65536).decode()
    numbers = array.array("i")
    for _, _, data in ancillary:
        numbers.frombytes(data)
    assert (content == b"\0") is bool(numbers)
    return code, messages, [socket.socket(fileno=number) for number in numbers]


def test_the_first_address_that_answers_counts(port: int) -> None:
    code, messages, (found,) = received([str(port), NOWHERE, "127.0.0.1"])
    with found:
        assert found.getpeername() == ("127.0.0.1", port)
        assert found.getblocking()
    assert code == 0
    assert f"{NOWHERE} port {port}: Connection refused" in messages


def test_an_address_that_does_not_answer_is_passed_over(port: int) -> None:
    """The queue of the server is full, so that it answers no more, as a filter that drops packets."""
    with socket.create_server(("127.0.0.3", 0), backlog=0) as full:
        silent = full.getsockname()[1]
        with socket.create_connection(("127.0.0.3", silent)), socket.create_server(("127.0.0.1", silent)):
            code, _, (found,) = received([str(silent), "127.0.0.3", "127.0.0.1"])
            with found:
                assert found.getpeername() == ("127.0.0.1", silent)
    assert code == 0


def test_an_address_of_a_family_that_this_machine_lacks_is_passed_over(port: int) -> None:
    code, _, (found,) = received([str(port), "2001:db8::1", "127.0.0.1"])
    with found:
        assert found.getpeername() == ("127.0.0.1", port)
    assert code == 0


def test_each_address_that_failed_is_named(port: int) -> None:
    code, messages, found = received([str(port), NOWHERE, "127.0.0.4"])
    assert (code, found) == (1, [])
    assert f"{NOWHERE} port {port}: " in messages
    assert f"127.0.0.4 port {port}: " in messages
    assert "error: no address of the node can be reached" in messages


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """An ssh that plays the bastion: it reaches neither 192.0.2.1, which is silent, nor 192.0.2.2, which refuses."""
    program = tmp_path / "ssh"
    program.write_text(BASTION.format(python=sys.executable, log=str(tmp_path / "log")))
    program.chmod(0o755)
    return tmp_path


def test_the_first_address_behind_the_bastion_that_answers_counts(programs: Path) -> None:
    words = ["--through", "b", "--config", "/x y/config", "--pause", "0.2", "22"]
    code, messages, (found,) = received([*words, "192.0.2.1", "192.0.2.2", "fd00::7"], f"{programs}:/usr/bin:/bin")
    with found:
        found.settimeout(30)
        assert found.recv(64) == b"SSH-2.0-behind [fd00::7]:22\r\n"  # all of it: nothing was taken away
    assert code == 0
    assert "192.0.2.2 port 22: not reached through the bastion" in messages
    assert (programs / "log").read_text().splitlines()[-1] == "-F /x y/config -W [fd00::7]:22 b"


def test_no_address_behind_the_bastion_answers(programs: Path) -> None:
    code, messages, found = received(["--through", "b", "22", "192.0.2.2"], f"{programs}:/usr/bin:/bin")
    assert (code, found) == (1, [])
    assert "no address of the node can be reached" in messages


def test_it_gives_up_in_time(port: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(connecting, "MAXIMUM_SECONDS", 0.0)
    assert main(["connect", str(port), "127.0.0.1"]) == 1
    assert "answered within 0 s" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        ["0", "10.0.0.7"],
        ["65536", "10.0.0.7"],
        ["22", "-oProxyCommand=x"],
        ["22", "--", "-oProxyCommand=x"],
        ["22", "a b"],
        ["22", "10.0.0.7", "--through=-oProxyCommand=x"],
    ],
)
def test_what_is_no_address(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["connect", *words]) == 2
    capsys.readouterr()


def test_it_is_for_ssh_alone(port: int) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "node_access.client", "connect", str(port), "127.0.0.1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 2
    assert "ssh starts this command" in ran.stderr
