"""A connection that is reset before the handshake is an error, and is closed: nothing is left to the collector.

pytest sees what is left open: a ResourceWarning is an error.
"""

from __future__ import annotations

import socket
import ssl

import pytest

from attestors.net.dial import ConnectedSocket
from signer.testing.api.authorities import Issuer, server_context
from tests.support.reset_connection import reset_connection


def _client_context() -> ssl.SSLContext:
    return ssl.create_default_context()


def _server_context() -> ssl.SSLContext:
    issuer = Issuer.new()
    return server_context(*issuer.serving(["localhost"], ["127.0.0.1"]), issuer.certificate_pem)


@pytest.mark.parametrize(
    ("context", "arguments"),
    [(_client_context(), {"server_hostname": "localhost"}), (_server_context(), {"server_side": True})],
    ids=["client", "server"],
)
def test_a_connection_that_was_reset_is_an_error(context: ssl.SSLContext, arguments: dict[str, object]) -> None:
    context.sslsocket_class = ConnectedSocket
    plain = reset_connection()
    descriptor = plain.fileno()
    with pytest.raises(ConnectionResetError):
        context.wrap_socket(plain, **arguments)  # type: ignore[arg-type]
    with pytest.raises(OSError, match="Bad file descriptor"):
        socket.socket(fileno=descriptor)


def test_a_connection_that_stands_has_a_peer() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        context = _client_context()
        context.sslsocket_class = ConnectedSocket
        plain = socket.create_connection(listener.getsockname())
        with context.wrap_socket(plain, server_hostname="localhost", do_handshake_on_connect=False) as connected:
            assert isinstance(connected, ConnectedSocket)
            assert connected.getpeername() == listener.getsockname()
