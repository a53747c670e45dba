"""The certificates that a server has sent: told as they were sent, or not at all."""

from __future__ import annotations

import asyncio
import ssl
import sys

import pytest

from signer.kube.client import Client
from signer.kube.errors import Cause, Unreachable
from signer.kube.http.tls_transport import TlsTransport
from tests.unit.signer.kube.http.conversation import Conversation, conversations
from tests.unit.signer.kube.support import Authority, Pair, http_answer, server_context

PATH = "/api/v1/secrets"


async def answering(conversation: Conversation) -> None:
    while True:
        await conversation.hear()
        await conversation.say(http_answer(b"{}"))


def der(pem: bytes) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pem.decode())


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_the_chain_is_told_as_it_was_sent(authority: Authority, version: ssl.TLSVersion) -> None:
    """Also certificates that verification does not use, in the server's order."""
    leaf, other, another = (authority.issue(name, "127.0.0.1") for name in ("server", "other", "another"))
    sent = Pair(leaf.certificate + another.certificate + other.certificate, leaf.key)
    context = server_context(sent)
    context.maximum_version = version
    chains: list[tuple[bytes, ...]] = []
    async with (
        conversations(authority, context, answering) as server,
        Client(server.connection, on_connect=lambda transport: chains.append(transport.presented_chain())) as client,
    ):
        await client.get(PATH)
        await client.get(PATH)
    assert chains == [tuple(der(one.certificate) for one in (leaf, another, other))], "one connection"


async def test_a_refusal_of_the_connection_sends_nothing(authority: Authority) -> None:
    def refuse(transport: TlsTransport) -> None:
        raise ssl.SSLError(ssl.SSL_ERROR_SSL, "not this one")

    context = server_context(authority.issue("server", "127.0.0.1"))
    context.maximum_version = ssl.TLSVersion.TLSv1_2  # its handshake ends at the client
    async with (
        conversations(authority, context, answering) as server,
        Client(server.connection, on_connect=refuse) as client,
    ):
        gone = server.gone.setdefault(0, asyncio.Event())
        with pytest.raises(Unreachable) as refused:
            await client.get(PATH)
        assert refused.value.cause is Cause.TLS
        async with asyncio.timeout(10):
            await gone.wait()
        assert server.asked == []


class _Certificate:
    """As Python before 3.13 holds it."""

    def __init__(self, der: bytes) -> None:
        self._der = der

    def public_bytes(self, encoding: int) -> bytes:
        return self._der


class _Connection:
    """In place of OpenSSL's."""

    def __init__(self, chain: list[bytes]) -> None:
        self._chain = chain
        self._sslobj = self

    def get_unverified_chain(self) -> list[bytes] | list[_Certificate]:
        return self._chain if sys.version_info >= (3, 13) else [_Certificate(der) for der in self._chain]

    def getpeercert(self, binary_form: bool) -> bytes:
        return b"leaf"


@pytest.mark.parametrize("chain", [[], [b"other"], [b"other", b"leaf"]])
async def test_a_chain_that_is_not_the_servers_is_not_told(authority: Authority, chain: list[bytes]) -> None:
    def told(transport: TlsTransport) -> None:
        transport._tls = _Connection(chain)  # type: ignore[assignment]
        transport.presented_chain()

    context = server_context(authority.issue("server", "127.0.0.1"))
    async with (
        conversations(authority, context, answering) as server,
        Client(server.connection, on_connect=told) as client,
    ):
        with pytest.raises(Unreachable) as refused:
            await client.get(PATH)
        assert "certificates are not known" in str(refused.value)
