"""Opens a TCP connection by host name and races the host's addresses (Happy Eyeballs, RFC 8305).

``socket.create_connection`` spends the whole timeout on each address in turn: if IPv6 packets are dropped on the way,
a call never reaches an IPv4 address that would answer at once. asyncio and aiohappyeyeballs need an event loop, which
neither the node's program nor a thread for cloud calls has. The peer may
reset a connection at any moment, also before the TLS handshake: :class:`ConnectedSocket`.
"""

from __future__ import annotations

import errno
import itertools
import os
import selectors
import socket
import ssl
import time
from collections.abc import Iterable
from typing import Any, Final

ATTEMPT_SECONDS: Final = 0.25
"""Delay before the next address is tried in parallel (RFC 8305 section 5)."""
_UNREACHABLE: Final = frozenset(
    {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EHOSTUNREACH, errno.EINVAL, errno.ENETUNREACH}
)

_Address = tuple[int, int, int, str, Any]
"""A tuple of ``getaddrinfo``."""


def dial(host: str, port: int, seconds: float) -> socket.socket:
    """Connect to the first of the host's addresses that answers; the socket's timeout is ``seconds`` too.

    Raises:
        TimeoutError: no address answered within ``seconds``.
        OSError: every address failed; ``socket.gaierror`` if the host has no address.
        UnicodeError: the host name cannot be encoded for DNS.
    """
    end = time.monotonic() + seconds
    left = _interleave_families(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    failures: list[int] = []
    opened: list[socket.socket] = []
    connected: socket.socket | None = None
    try:
        with selectors.DefaultSelector() as trying:
            while (left or trying.get_map()) and (now := time.monotonic()) < end:
                if left:
                    _begin(left.pop(0), opened, trying, failures)
                until = min(now + ATTEMPT_SECONDS, end) if left else end
                connected = _connected(trying, until, failures)
                if connected is not None:
                    connected.settimeout(seconds)
                    return connected
            if trying.get_map():
                failures.append(errno.ETIMEDOUT)
    finally:
        for one in opened:
            if one is not connected:
                one.close()
    code = most_telling(failures)
    raise OSError(code, os.strerror(code))


def most_telling(failures: Iterable[int]) -> int:
    """The error (``errno``) to report out of those of all addresses.

    An answer from an address takes precedence over a timeout, and a timeout over a missing route: a machine without
    IPv6, for example, has no route to any IPv6 address.
    """
    known = tuple(failures) or (errno.ETIMEDOUT,)
    return min(known, key=lambda code: 2 if code in _UNREACHABLE else int(code == errno.ETIMEDOUT))


def _interleave_families(found: Iterable[_Address]) -> list[_Address]:
    """Alternate the address families; the first address stays first (RFC 8305 section 4)."""
    families: dict[int, list[_Address]] = {}
    for address in found:
        families.setdefault(address[0], []).append(address)
    together = itertools.chain.from_iterable(itertools.zip_longest(*families.values()))
    return [address for address in together if address is not None]


def _begin(address: _Address, opened: list[socket.socket], trying: selectors.BaseSelector, failures: list[int]) -> None:
    family, kind, protocol, _, where = address
    try:
        attempt = socket.socket(family, kind, protocol)
    except OSError as error:  # the kernel does not support the family
        failures.append(error.errno or errno.EAFNOSUPPORT)
        return
    opened.append(attempt)
    attempt.setblocking(False)
    code = attempt.connect_ex(where)
    if code in (0, errno.EINPROGRESS):
        trying.register(attempt, selectors.EVENT_WRITE)
    else:
        failures.append(code)


def _connected(trying: selectors.BaseSelector, until: float, failures: list[int]) -> socket.socket | None:
    """The first socket that connects; None if an attempt failed or none answered, so that the next address is tried."""
    if not trying.get_map():
        return None
    for key, _ in trying.select(max(0.0, until - time.monotonic())):
        attempt = key.fileobj
        assert isinstance(attempt, socket.socket)
        trying.unregister(attempt)
        code = attempt.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code == 0:
            return attempt
        failures.append(code)
    return None


class ConnectedSocket(ssl.SSLSocket):
    """What ``wrap_socket`` makes of a connection where it is the context's ``sslsocket_class``.

    ``wrap_socket`` takes the plain socket's descriptor, and then asks for the peer. Where the other side has reset the
    connection by then, it would leave the descriptor open when it fails, or hand out a socket without TLS (``ssl``
    takes such a one for a socket that is not connected yet).
    """

    def getpeername(self) -> Any:
        """As in ``socket``; a connection that the other side has reset is closed.

        Raises:
            ConnectionResetError: there is no peer any more.
        """
        try:
            return super().getpeername()
        except OSError as error:
            self.close()
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)) from error
