"""One HTTPS GET to a host chosen by code: no credentials, no redirects, no proxies, bounded in bytes and time.

For calls to a cloud without credentials of the controller: STS with a node's signature, an issuer's published keys. The
standard library's client suffices, and a connection serves one request.
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
    """An HTTP answer as received; it may be a redirect."""

    status: int
    content_type: str
    body: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class Route:
    """A replacement for DNS, for tests. The server there must still present the host's certificate."""

    address: str
    port: int
    trusted: ssl.SSLContext


class HTTPS(Protocol):
    """Sends HTTPS GET requests."""

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
        """Get ``https://<host><target>`` once, with these headers; ``service`` names the called service for a person.

        ``operation`` names the call for metrics; see :meth:`attestors.clouds.calls.CloudCalls.run`. There must be few
        hosts: each has its own threads, so that an unresponsive host delays no other.

        Raises:
            CloudUnavailable: no answer, not in time, not from that host, or more than ``maximum_bytes``.
        """
        ...


class HTTPSClient:
    """Implements :class:`HTTPS` in the threads of ``calls``."""

    def __init__(self, calls: CloudCalls, *, routes: Mapping[str, Route] = MappingProxyType({})) -> None:
        """``routes`` are only for tests: no setting sets them."""
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
            raise CloudUnavailable(deadline.service, f"{host} presents no certificate that is trusted here") from None
        except (OSError, http.client.HTTPException, ValueError):
            # The exceptions' texts repeat addresses, and data of the server.
            raise CloudUnavailable(deadline.service, f"{host} is unreachable, or aborted its answer") from None
        finally:
            connection.close()

    def _route(self, host: str) -> Route:
        if host in self._routes:
            return self._routes[host]
        if self._system_authorities is None:
            self._system_authorities = ssl.create_default_context()
        return Route(host, _PORT, self._system_authorities)


def _outcome(answer: HTTPSAnswer) -> CloudCallOutcome:
    """By status. 400 to 499 concern the request, which a node may have influenced, so the service counts as healthy."""
    if answer.status == _TOO_MANY_REQUESTS:
        return CloudCallOutcome.THROTTLED
    return CloudCallOutcome.ERROR if answer.status >= _SERVER_ERROR else CloudCallOutcome.OK


class _Connection(http.client.HTTPSConnection):
    """Connects to the route's address, but verifies the certificate for the host."""

    response_class = StrictResponse

    def __init__(self, host: str, route: Route, deadline: Deadline) -> None:
        super().__init__(host, context=route.trusted)
        route.trusted.sslsocket_class = ConnectedSocket
        self._route = route
        self._deadline = deadline

    def connect(self) -> None:
        """Override of :class:`http.client.HTTPSConnection`: open the connection."""
        with dial(self._route.address, self._route.port, self._deadline.remaining()) as plain:
            plain.settimeout(self._deadline.remaining())
            # It takes the descriptor away from ``plain``.
            self.sock = self._route.trusted.wrap_socket(plain, server_hostname=self.host)


def _read(response: http.client.HTTPResponse, deadline: Deadline, maximum_bytes: int) -> bytes:
    """Read the body, one socket read at a time, so that a slow answer ends at the deadline too."""
    body = bytearray()
    while chunk := response.read1(_CHUNK_BYTES):
        body += chunk
        if len(body) > maximum_bytes:
            raise CloudUnavailable(deadline.service, f"answers with more than {maximum_bytes} bytes")
        deadline.remaining()
    return bytes(body)
