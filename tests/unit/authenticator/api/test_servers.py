"""The servers of these tests leave nothing open."""

from __future__ import annotations

import gc
import socket
import threading
from typing import Any

import pytest

from tests.support.reset_connection import abort, wait_for_reset
from tests.unit.authenticator.api.servers import ADDRESS, answers, serving


def test_a_connection_that_is_reset_before_the_handshake_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    accept = socket.socket.accept
    handed_on = threading.Event()

    def accept_too_late(listener: socket.socket) -> tuple[socket.socket, Any]:
        if accepted:
            handed_on.set()
        connection, address = accept(listener)
        accepted.append(address)
        wait_for_reset(connection)
        return connection, address

    accepted: list[Any] = []
    monkeypatch.setattr(socket.socket, "accept", accept_too_late)
    with serving(answers(200)) as server:
        abort(socket.create_connection((ADDRESS, server.port)))
        assert handed_on.wait(10)
    assert (server.peers, server.requests) == ([], [])
    # That it is closed, and not left to the garbage collector, pytest sees: a ResourceWarning is an error.
    gc.collect()
