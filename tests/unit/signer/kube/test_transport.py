from __future__ import annotations

import asyncio.sslproto

import pytest

from signer.kube.transport import TLS_READ_BUFFER_BYTES, shrink_tls_buffers


def test_tls_buffers_shrink(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asyncio.sslproto.SSLProtocol, "max_size", 256 * 1024)
    shrink_tls_buffers()
    assert asyncio.sslproto.SSLProtocol.max_size == TLS_READ_BUFFER_BYTES
