"""A listener of this machine for a port of a Pod. ``cat`` stands for ssh: it serves one connection on its streams."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Iterator

import pytest

from node_access.client import pod_forwarding
from node_access.client.errors import ClientFailed
from node_access.client.pod_forwarding import forward_to_pod
from node_access.client.words import PodForward
from tests.support.processes import free_port, wait_until


class Serving:
    """A forwarding that runs until it is told why it is over."""

    def __init__(self, port: int, *words: str) -> None:
        self.port, self.why, self.told = port, "", ""
        self.asked: list[int] = []
        self._words = words
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        def words(port: int) -> tuple[str, ...]:
            self.asked.append(port)
            return self._words

        try:
            forward_to_pod([PodForward(("127.0.0.1",), self.port, 80)], words, lambda: self.why)
        except ClientFailed as error:
            self.told = str(error)

    def end(self, why: str) -> None:
        self.why = why
        self._thread.join(30)
        assert not self._thread.is_alive()

    def connect(self) -> socket.socket:
        wait_until(self._answers, "it listens")
        made = socket.create_connection(("127.0.0.1", self.port), 10)
        made.settimeout(30)
        return made

    def _answers(self) -> bool:
        """Whether it listens: a second listener on the port is refused."""
        with contextlib.suppress(OSError), socket.socket() as other:
            other.bind(("127.0.0.1", self.port))
            return False
        return True


@pytest.fixture
def serving() -> Iterator[Serving]:
    made = Serving(free_port(), "cat")
    yield made
    made.end("the test is over")


def is_served(connection: socket.socket) -> bool:
    connection.sendall(b"ping")
    return connection.recv(4) == b"ping"


def test_each_connection_has_a_program_of_its_own(serving: Serving) -> None:
    with serving.connect() as one, serving.connect() as other:
        assert is_served(one)
        assert is_served(other)
        one.shutdown(socket.SHUT_WR)
        assert one.recv(1) == b"", "the program has read the end, and ended"
        assert is_served(other)
    assert serving.asked == [80, 80]


def test_further_connections_wait(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_forwarding, "MAXIMUM_CONNECTIONS", 2)
    with serving.connect() as first, serving.connect() as second, serving.connect() as third:
        assert is_served(first)
        assert is_served(second)
        third.sendall(b"ping")
        third.settimeout(1.5)
        with pytest.raises(TimeoutError):
            third.recv(4)
        assert len(serving.asked) == 2
        first.close()
        third.settimeout(30)
        assert third.recv(4) == b"ping"


def test_everything_ends_with_the_grant(serving: Serving) -> None:
    with serving.connect() as one:
        assert is_served(one)
        serving.end("it was revoked")
        assert one.recv(1) == b""
        assert serving.told == "the grant has ended: it was revoked"
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", serving.port), 10)


def test_a_port_that_is_taken() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(ClientFailed, match=re.escape("choose another port")),
    ):
        forward_to_pod([PodForward(("127.0.0.1",), taken.getsockname()[1], 80)], lambda port: ["cat"], lambda: "")


def test_an_ssh_that_cannot_be_started_ends_it() -> None:
    made = Serving(free_port(), "/nowhere/ssh")
    made.connect().close()
    made._thread.join(30)
    assert "cannot be started" in made.told
