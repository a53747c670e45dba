"""The client of the conformance tests closes its connections."""

from __future__ import annotations

import gc
import socket

import pytest

from signer.testing.api import EmbeddedAPI
from tests.support.raw_client import RawClient
from tests.support.reset_connection import reset_connection


def test_a_connection_that_is_reset_before_the_handshake_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    with EmbeddedAPI() as api, RawClient(api.connection()) as client:
        plain = reset_connection()
        monkeypatch.setattr(socket, "create_connection", lambda *_: plain)
        with pytest.raises(ConnectionResetError):
            client.get("/version")
    # An unclosed connection would raise a ResourceWarning here, which pytest treats as an error.
    gc.collect()
