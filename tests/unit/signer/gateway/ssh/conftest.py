"""A running gateway, and the API servers on both of its sides."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from signer.gateway.websocket import WebSocketSession
from tests.unit.signer.gateway.ssh.world import World, gateway
from tests.unit.signer.kube.support import Authority


@pytest.fixture
async def world(
    authority: Authority, tls: ssl.SSLContext, session: WebSocketSession, tmp_path: Path
) -> AsyncIterator[World]:
    async with gateway(authority, tls, session, tmp_path) as found:
        yield found
