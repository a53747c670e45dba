"""Certificates that the tests of signer.kube share; made once, elliptic-curve keys are quick."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator

import pytest

from signer.kube.resource_limits import RateLimiter
from tests.unit.signer.kube.support import Authority, Pair, server_context


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="session")
def client_pair(authority: Authority) -> Pair:
    return authority.issue("c1-admin")


@pytest.fixture(scope="session")
def tls(authority: Authority) -> ssl.SSLContext:
    """The server side for 127.0.0.1 and the name api.example."""
    return server_context(authority.issue("server", "127.0.0.1", "api.example"))


@pytest.fixture
def unused_port() -> Iterator[int]:
    """A port that is bound but does not listen: connections are refused, and no other process can take it."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The CPU time for which clients are charged, in seconds; they never pause."""
    told: list[float] = []

    def pause(self: RateLimiter, cpu_seconds: float) -> float:
        told.append(cpu_seconds)
        return 0.0

    monkeypatch.setattr(RateLimiter, "pause_after", pause)
    return told
