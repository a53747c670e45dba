"""No connection outlives the event loop that it was served in."""

from __future__ import annotations

import contextlib
import socket

from signer.testing.api import EmbeddedAPI


def test_a_connection_in_its_handshake_ends_with_its_server() -> None:
    """The server does not know of it yet: of a client that comes back while everything ends."""
    with contextlib.ExitStack() as stack:
        with EmbeddedAPI() as api:
            host, _, port = api.server.removeprefix("https://").partition(":")
            client = stack.enter_context(socket.create_connection((host, int(port)), timeout=10))
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""
