"""requests' connections, to hosts and to a proxy, try the next address beside one that is silent."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import pytest
import urllib3
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from attestors.clouds.calls import Deadline
from attestors.clouds.errors import CloudTimeout, CloudUnavailable
from attestors.clouds.exchange import Exchange
from attestors.clouds.pools import POOLS
from attestors.clouds.urls import PlainHosts, Proxy
from tests.support.fake_google import FakeGoogle
from tests.support.silent_address import resolve, silent

NAME = "metadata.google.internal"
SIX, FOUR = "::1", "127.0.0.1"


@pytest.fixture
def port() -> Iterator[int]:
    """Of a server that answers at its IPv4 address, and is silent at the other."""
    with FakeGoogle() as google:
        found = urlsplit(google.base_url).port or 0
        with silent(SIX, found):
            yield found


def send(exchange: Exchange, port: int, seconds: float) -> int:
    answer = exchange.send(
        "GET",
        f"http://{NAME}:{port}/oauth2/v3/certs",
        deadline=Deadline("Google", seconds),
        headers={},
        plain_hosts=PlainHosts.LOOPBACK_AND_METADATA,
    )
    return answer.status


def test_a_silent_address_keeps_no_call_from_the_next(monkeypatch: pytest.MonkeyPatch, port: int) -> None:
    resolve(monkeypatch, NAME, SIX, FOUR)
    with contextlib.closing(Exchange()) as exchange:
        assert send(exchange, port, 10.0) == 200


def test_the_proxy_too(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve(monkeypatch, "proxy.example", SIX, FOUR)
    said: list[bytes] = []
    with socket.create_server((FOUR, 0)) as proxy:

        def hear() -> None:
            connection, _ = proxy.accept()
            with connection:
                said.append(connection.recv(1000))

        port = proxy.getsockname()[1]
        hearing = threading.Thread(target=hear, daemon=True)
        began = time.monotonic()
        hearing.start()
        with silent(SIX, port), contextlib.closing(Exchange(proxy=Proxy(f"http://proxy.example:{port}"))) as exchange:
            deadline = Deadline("Google", 60.0)
            with pytest.raises(CloudUnavailable):
                exchange.send("GET", "https://www.googleapis.com/", deadline=deadline, headers={})
        hearing.join(10)
    assert time.monotonic() - began < 30
    assert said[0].startswith(b"CONNECT www.googleapis.com:443 ")


def test_addresses_that_all_are_silent_take_no_longer_than_one(monkeypatch: pytest.MonkeyPatch) -> None:
    resolve(monkeypatch, NAME, *[SIX, FOUR] * 20)
    with silent(SIX) as (_, port), silent(FOUR, port), contextlib.closing(Exchange()) as exchange:
        began = time.monotonic()
        with pytest.raises(CloudTimeout, match="did not answer in time"):
            send(exchange, port, 0.5)
        assert time.monotonic() - began < 5


@pytest.mark.parametrize(
    "name", ["nobody.invalid", f"{'a' * 64}.example", FOUR], ids=["no name", "too long", "refused"]
)
def test_no_server_listens(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    with socket.socket() as taken, contextlib.closing(Exchange()) as exchange:
        taken.bind((FOUR, 0))
        with pytest.raises(CloudUnavailable, match=r"is unreachable|in HTTP"):
            exchange.send(
                "GET",
                f"http://{name}:{taken.getsockname()[1]}/",
                deadline=Deadline("Google", 10.0),
                headers={},
                plain_hosts=PlainHosts.ANYWHERE,
            )


def test_pools_are_what_they_were_otherwise(port: int) -> None:
    """Also for who says nothing of time: urllib3 itself sets its options on the connection."""
    assert issubclass(POOLS["http"], HTTPConnectionPool)
    assert issubclass(POOLS["https"], HTTPSConnectionPool)
    with urllib3.PoolManager() as manager:
        manager.pool_classes_by_scheme = POOLS
        pool = manager.connection_from_url(f"http://{FOUR}:{port}/")
        assert pool.request("GET", "/oauth2/v3/certs").status == 200
        connection: Any = pool._get_conn()
        assert connection.sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1
        connection.close()
