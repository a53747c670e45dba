"""One HTTPS GET to a host that was chosen here: no credentials, no redirects, no proxies, bounded in bytes and time.

For what is asked of a cloud without credentials of ours: STS with a node's signature, an issuer's published keys. The
standard library's client is enough, and a connection serves one request.
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Protocol

from attestors.clouds.calls import CloudCalls, Deadline, too_slow
from attestors.clouds.errors import CloudUnavailable
from attestors.contract import CloudCallOutcome
from attestors.net.dial import ConnectedSocket, dial
from attestors.net.http_response import StrictResponse

_PORT: Final = 443
_TOO_MANY_REQUESTS: Final = 429
_SERVER_ERROR: Final = 500
_CHUNK_BYTES: Final = 16 * 1024
_NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class HTTPSAnswer:
    """What a host answered, redirects too; nobody has looked at it yet."""

    status: int
    content_type: str
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Route:
    """Where a host is to be found, elsewhere than DNS says: for tests. It must show that host's certificate there."""

    address: str
    port: int
    trusted: ssl.SSLContext


class HTTPS(Protocol):
    """Something that gets."""

    async def get(
        self,
        service: str,
        operation: str,
        host: str,
        target: str,
        *,
        headers: Mapping[str, str] = _NO_HEADERS,
        maximum_bytes: int,
    ) -> HTTPSAnswer:
        """``https://<host><target>``, once, with these headers; ``service`` is who is called, for a person.

        ``operation`` is what is asked, for who counts calls; see :meth:`attestors.clouds.calls.CloudCalls.run`. Hosts
        are few: each has threads of its own, so that one which does not answer keeps no other's answers.

        Raises:
            CloudUnavailable: no answer, not in time, not from that host, or more than ``maximum_bytes``.
        """
        ...


class HTTPSClient:
    """Implements :class:`HTTPS` in the threads of ``calls``."""

    def __init__(self, calls: CloudCalls, *, routes: Mapping[str, Route] = MappingProxyType({})) -> None:
        """``routes`` are for tests alone: no setting leads here."""
        self._calls = calls
        self._routes = routes
        self._system_authorities: ssl.SSLContext | None = None

    async def get(
        self,
        service: str,
        operation: str,
        host: str,
        target: str,
        *,
        headers: Mapping[str, str] = _NO_HEADERS,
        maximum_bytes: int,
    ) -> HTTPSAnswer:
        """See :meth:`HTTPS.get`."""
        return await self._calls.run(
            service,
            operation,
            lambda deadline: self._get(deadline, host, target, headers, maximum_bytes),
            site=host,
            outcome_of=_outcome,
        )

    def _get(
        self, deadline: Deadline, host: str, target: str, headers: Mapping[str, str], maximum_bytes: int
    ) -> HTTPSAnswer:
        connection = _Connection(host, self._route(host), deadline)
        try:
            connection.request("GET", target, headers={"Connection": "close", **headers})
            with connection.getresponse() as response:
                body = _read(response, deadline, maximum_bytes)
                return HTTPSAnswer(response.status, response.headers.get("Content-Type", ""), body)
        except TimeoutError:
            raise too_slow(deadline.service, host) from None
        except ssl.SSLError:
            raise CloudUnavailable(deadline.service, f"{host} shows no certificate that is trusted here") from None
        except (OSError, http.client.HTTPException, ValueError):
            # Their texts repeat addresses, and what the server sent.
            raise CloudUnavailable(deadline.service, f"{host} cannot be reached, or broke off its answer") from None
        finally:
            connection.close()

    def _route(self, host: str) -> Route:
        if host in self._routes:
            return self._routes[host]
        if self._system_authorities is None:
            self._system_authorities = ssl.create_default_context()
        return Route(host, _PORT, self._system_authorities)


def _outcome(answer: HTTPSAnswer) -> CloudCallOutcome:
    """By the status; one of 400 to 499 is about what was asked, which a node may have chosen: the service is well."""
    if answer.status == _TOO_MANY_REQUESTS:
        return CloudCallOutcome.THROTTLED
    return CloudCallOutcome.ERROR if answer.status >= _SERVER_ERROR else CloudCallOutcome.OK


class _Connection(http.client.HTTPSConnection):
    """To where the route says, for the host that was meant: its name is asked for, and stands in the certificate."""

    response_class = StrictResponse

    def __init__(self, host: str, route: Route, deadline: Deadline) -> None:
        super().__init__(host, context=route.trusted)
        route.trusted.sslsocket_class = ConnectedSocket
        self._route = route
        self._deadline = deadline

    def connect(self) -> None:
        """Open the connection, as :class:`http.client.HTTPSConnection` does."""
        plain = dial(self._route.address, self._route.port, self._deadline.remaining())
        try:
            plain.settimeout(self._deadline.remaining())
            self.sock = self._route.trusted.wrap_socket(plain, server_hostname=self.host)
        except BaseException:
            plain.close()
            raise


def _read(response: http.client.HTTPResponse, deadline: Deadline, maximum_bytes: int) -> bytes:
    """One read of the socket at a time: an answer that comes byte by byte ends at the deadline too."""
    body = bytearray()
    while chunk := response.read1(_CHUNK_BYTES):
        body += chunk
        if len(body) > maximum_bytes:
            raise CloudUnavailable(deadline.service, f"answers with more than {maximum_bytes} bytes")
        deadline.remaining()
    return bytes(body)
