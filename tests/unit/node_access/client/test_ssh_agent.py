"""The agent protocol, at a real ssh-agent and at ones that answer nonsense."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from attestors.wire.ssh.encoding import string
from attestors.wire.ssh.keys import Ed25519Key
from attestors.wire.ssh.principals import LoginOnNode
from attestors.wire.ssh.signatures import public_key_of, sign
from node_access.client.heartbeat import blobs_of, forget
from node_access.client.ssh_agent import WINDOWS_PIPE, NoAgent, SSHAgent, agent_address
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.grant_controller import issue
from tests.support.openssh import find_openssh, is_listening
from tests.support.processes import wait_until
from tests.support.software_token import SoftwareToken

KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[SSHAgent]:
    path = tmp_path / "agent"
    try:
        program = find_openssh("ssh-agent")
    except MissingPart as missing:
        skip_or_fail(missing)
    with subprocess.Popen([program, "-D", "-a", path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: is_listening(path), "ssh-agent")
        yield SSHAgent(str(path))
        process.kill()


def test_it_takes_key_and_certificate_and_forgets_them(agent: SSHAgent) -> None:
    assert agent.listed() == ()
    signed = issue(public_key_of(KEY), LoginOnNode("root", "worker-1"))
    agent.add_key(KEY, "comment", 60)
    agent.add_certificate(KEY, signed, "comment", 60)
    key = public_key_of(KEY)
    assert isinstance(key, Ed25519Key)
    assert set(agent.listed()) == {key.blob, signed.blob} == set(blobs_of(agent, key))
    forget(agent, blobs_of(agent, key))
    assert agent.listed() == ()


def test_a_key_ends_by_itself(agent: SSHAgent) -> None:
    agent.add_key(KEY, "comment", 0)  # at least a second
    assert len(agent.listed()) == 1
    deadline = time.monotonic() + 20
    while agent.listed() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert agent.listed() == ()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        string(b"\x05"),
        string(b"\x05\0\0\0\0"),
        string(b"\x0c"),
        b"\xff\xff\xff\xff",
        b"\0\0\0\0",
        string(b"\x0c\0\0\0\x01\0\0\0\x09a"),
        b"\0\0",
    ],
)
def test_an_agent_that_answers_nonsense(tmp_path: Path, answer: bytes) -> None:
    path = tmp_path / "agent"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()

        def serve() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.recv(1024)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(NoAgent, match="another length" if answer[:1] == b"\xff" else "agent"):
            SSHAgent(str(path)).listed()
        thread.join()


def test_an_agent_that_takes_no_keys(tmp_path: Path) -> None:
    key = public_key_of(KEY)
    with SoftwareToken(tmp_path / "token", key.blob, lambda data: sign(KEY, data)) as token:
        assert SSHAgent(str(token.socket)).listed() == (key.blob,)
        with pytest.raises(NoAgent, match="does not take a key"):
            SSHAgent(str(token.socket)).add_key(KEY, "comment", 60)


def test_where_the_agent_is() -> None:
    assert agent_address({"SSH_AUTH_SOCK": "/a"}) == "/a"
    assert agent_address({}, "win32") == WINDOWS_PIPE
    with pytest.raises(NoAgent):
        agent_address({}, "linux")
    with pytest.raises(NoAgent):
        SSHAgent("/nowhere/agent").listed()
