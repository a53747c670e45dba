"""Dialing: resolve a host name, connect, and do the TLS handshake."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import ipaddress
import os
import re
import socket
import ssl
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import aiohappyeyeballs

from attestors.net.dial import most_telling
from signer.kube.http.messages import Origin
from signer.kube.http.tls_transport import TlsTransport, connect

KEEPALIVE_IDLE_SECONDS = 30
KEEPALIVE_INTERVAL_SECONDS = 10
KEEPALIVE_PROBES = 3
HAPPY_EYEBALLS_SECONDS: Final = 0.25
"""Time after which the next address is tried in parallel (RFC 8305 section 5)."""
MAXIMUM_ADDRESSES: Final = 8
"""Maximum number of addresses of one family that are tried. A tenant's name server can return hundreds that never
answer, and each keeps a socket open until the call times out."""
LOOKUPS_AT_ONCE: Final = 32
_LOOKUPS: Final = ThreadPoolExecutor(LOOKUPS_AT_ONCE, thread_name_prefix="name look-up")
"""Separate from the threads of the event loop, of which two cores have six: a few slow name servers, perhaps tenants',
would block the signing of certificates."""
KNOWN_AFTER_SECONDS: Final = 1.0
"""A look-up that takes longer, perhaps because others' name servers occupy the threads, is not waited for where earlier
addresses are known: TLS verifies the server in any case."""
_ERRNO: Final = re.compile(r"\[Errno ([0-9]+)\]")
"""The form in which :class:`OSError` prints its number."""
Dialled = TypeVar("Dialled", bound=asyncio.Protocol)
Address = tuple[int | socket.AddressFamily, int | socket.SocketKind, int, str, Any]


def keepalive_socket(address: tuple[Any, ...]) -> socket.socket:
    """A TCP socket that notices within a minute that the peer of a silent watch is gone (tcp(7))."""
    family, kind, protocol = address[:3]
    opened = socket.socket(family, kind, protocol)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (
        ("TCP_KEEPIDLE", KEEPALIVE_IDLE_SECONDS),
        ("TCP_KEEPINTVL", KEEPALIVE_INTERVAL_SECONDS),
        ("TCP_KEEPCNT", KEEPALIVE_PROBES),
    ):
        if hasattr(socket, option):
            opened.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return opened


class Dialer:
    """Opens connections to one origin, each verified by its certificate."""

    def __init__(
        self,
        origin: Origin,
        tls: ssl.SSLContext,
        server_name: str | None,
        spent: Callable[[float], None] = lambda cpu_seconds: None,
        on_connect: Callable[[TlsTransport], None] = lambda transport: None,
    ) -> None:
        """``server_name`` is verified instead of the origin's host. ``spent`` is that of ``TlsTransport``.

        ``on_connect`` is called after each handshake, before anything is sent. It may raise what ``dial`` raises.
        """
        self._spent = spent
        self._on_connect = on_connect
        self._origin = origin
        self._tls = tls
        self._server_name = (server_name or origin.host).rstrip(".")  # RFC 6066: without the dot of a full name
        self._addresses: list[Address] | None = _literal(origin)
        self._lookup: asyncio.Task[list[Address]] | None = None
        self._known: list[Address] = []
        """The result of the last look-up that had one."""

    async def dial(self, make: Callable[[], Dialled]) -> Dialled:
        """A connection after its handshake.

        Raises:
            socket.gaierror: the host's name has no address.
            ssl.SSLError: the handshake failed; SSLCertVerificationError if the server's certificate is not valid.
            OSError: no connection.
        """
        addresses = self._addresses if self._addresses is not None else await self._resolve()
        opened = await _connected(addresses)
        connection = make()
        try:
            transport = await connect(opened, self._tls, self._server_name, connection, self._spent)
        except ssl.SSLError:  # some are also ValueErrors
            raise
        except ValueError:  # of the name, before anything is sent
            error = ssl.SSLError(ssl.SSL_ERROR_SSL, "server name")
            error.reason = "the name to verify is not valid in a certificate"
            raise error from None
        with contextlib.ExitStack() as undo:
            undo.callback(transport.abort)
            self._on_connect(transport)
            undo.pop_all()
        return connection

    async def _resolve(self) -> list[Address]:
        """Look the name up, one look-up at a time for all callers: it occupies a thread for as long as a name server
        takes. If that is long, the addresses of the last one.
        """
        if self._lookup is None or self._lookup.done():
            self._lookup = asyncio.get_running_loop().create_task(_resolved(self._origin))
            self._lookup.add_done_callback(self._looked_up)
        if self._known:
            await asyncio.wait([self._lookup], timeout=KNOWN_AFTER_SECONDS)
            if not self._lookup.done():
                return self._known
        return await asyncio.shield(self._lookup)

    def _looked_up(self, lookup: asyncio.Task[list[Address]]) -> None:
        """Keep the result. An error is retrieved, so that asyncio does not log it if every caller is gone."""
        if not lookup.cancelled() and lookup.exception() is None:
            self._known = lookup.result()


async def _connected(addresses: list[Address]) -> socket.socket:
    """A socket connected to the first address that answers.

    The library swallows a cancellation that arrives while it gives up the other addresses: the call would lose its time
    limit, and a task that is to end would go on.
    """
    task = asyncio.current_task()
    cancelled_before = task.cancelling() if task is not None else 0
    try:
        opened = await aiohappyeyeballs.start_connection(
            addresses, happy_eyeballs_delay=HAPPY_EYEBALLS_SECONDS, socket_factory=keepalive_socket
        )
    except OSError as error:
        # For several errors the library keeps only their texts; for one, asyncio's text is the address.
        codes = [int(code) for code in _ERRNO.findall(str(error))]
        if not codes:
            raise
        code = most_telling(codes)
        raise OSError(code, os.strerror(code)) from None
    if task is not None and task.cancelling() > cancelled_before:
        opened.close()
        raise asyncio.CancelledError
    return opened


def _literal(origin: Origin) -> list[Address] | None:
    try:
        version = ipaddress.ip_address(origin.host).version
    except ValueError:
        return None
    if version == 4:
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (origin.host, origin.port))]
    return [(socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (origin.host, origin.port, 0, 0))]


async def _resolved(origin: Origin) -> list[Address]:
    loop = asyncio.get_running_loop()
    look_up = functools.partial(
        socket.getaddrinfo, origin.host, origin.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
    )
    try:
        found = await loop.run_in_executor(_LOOKUPS, look_up)
    except UnicodeError:  # a label is too long for DNS
        raise socket.gaierror(socket.EAI_NONAME, "not a valid DNS name") from None
    if not found:
        raise socket.gaierror(socket.EAI_NONAME, "no address")
    of_family: Counter[int] = Counter()
    tried: list[Address] = []
    for address in found:
        of_family[address[0]] += 1
        if of_family[address[0]] <= MAXIMUM_ADDRESSES:
            tried.append(address)
    return tried
