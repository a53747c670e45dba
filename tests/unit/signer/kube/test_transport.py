from __future__ import annotations

import asyncio.sslproto
import socket

import pytest

from signer.kube.transport import TLS_READ_BUFFER_BYTES, keepalive_socket, shrink_tls_buffers


def test_sockets_probe_a_silent_peer() -> None:
    with keepalive_socket((socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 1))) as opened:
        assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        idle = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
        probes = opened.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL) * opened.getsockopt(
            socket.IPPROTO_TCP, socket.TCP_KEEPCNT
        )
    assert idle + probes <= 60


def test_tls_buffers_shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio.sslproto.SSLProtocol, "max_size", 256 * 1024)
    shrink_tls_buffers()
    assert asyncio.sslproto.SSLProtocol.max_size == TLS_READ_BUFFER_BYTES
