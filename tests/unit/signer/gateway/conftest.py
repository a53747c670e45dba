"""Certificates of the test server, made once."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Iterator

import pytest

from signer.gateway.websocket import WebSocketSession
from tests.unit.signer.kube.support import Authority, Pair, server_context


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="session")
def tls(authority: Authority) -> ssl.SSLContext:
    return server_context(authority.issue("server", "127.0.0.1", "api.example"))


@pytest.fixture
async def session() -> AsyncIterator[WebSocketSession]:
    async with WebSocketSession() as opened:
        yield opened


@pytest.fixture(scope="session")
def client_pair(authority: Authority) -> Pair:
    return authority.issue("gateway")


@pytest.fixture
def unused_port() -> Iterator[int]:
    """A port that is bound but does not listen."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]
