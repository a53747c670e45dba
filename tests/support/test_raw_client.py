"""The client of the conformance tests closes its connections."""

from __future__ import annotations

import gc
import socket
from typing import NoReturn

import pytest

from signer.testing.api import EmbeddedAPI
from tests.support import raw_client
from tests.support.raw_client import RawClient, Watch
from tests.support.reset_connection import reset_connection


def test_a_connection_that_is_reset_before_the_handshake_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedAPI() as api, RawClient(api.connection()) as client:
        plain = reset_connection()
        monkeypatch.setattr(socket, "create_connection", lambda *_: plain)
        with pytest.raises(ConnectionResetError):
            client.get("/version")
    # An unclosed connection would raise a ResourceWarning here, which pytest treats as an error.
    gc.collect()


def follow(watch: Watch) -> NoReturn:
    """Take events until there is none for half a second."""
    while True:
        watch.next(0.5)


def test_a_quiet_watch_has_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw_client, "_TIMEOUT_SECONDS", 0.2)
    with EmbeddedAPI() as api, RawClient(api.connection()) as client, client.watch("/api/v1/namespaces") as watch:
        with pytest.raises(TimeoutError):
            follow(watch)
        manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "later"}}
        client.post("/api/v1/namespaces", manifest).expect(201)
        assert watch.next(5).name == "later"
