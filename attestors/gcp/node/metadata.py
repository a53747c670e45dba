"""A client of Compute Engine's metadata server.

Source: "About VM metadata" of Compute Engine's documentation: HTTP on a link-local address, header
``Metadata-Flavor: Google`` in both directions. It uses no proxy and follows no redirect.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlencode

from attestors.contract import EvidenceUnavailable
from attestors.gcp.node.settings import METADATA_HOST, MetadataEndpoint
from attestors.net.dial import dial
from attestors.net.http_response import StrictResponse

TIMEOUT_SECONDS: Final = 10.0
"""How long one request is retried, while the network comes up or the server is busy."""
_ANSWER_SECONDS: Final = 5.0
"""Timeout of one answer, from its first byte to its last."""
_FIRST_DELAY_SECONDS: Final = 0.1
_LONGEST_DELAY_SECONDS: Final = 2.0
_CHUNK_BYTES: Final = 4096

_FLAVOR_HEADER: Final = "Metadata-Flavor"
_FLAVOR: Final = "Google"
_ROOT: Final = "/computeMetadata/v1/"
_RETRIED: Final = frozenset({429, 500, 502, 503, 504})


class NotFound(Exception):
    """The metadata server has no such entry."""


class _Busy(Exception):
    """A retry may succeed; the message says what happened."""


@dataclass(frozen=True, slots=True)
class MetadataServer:
    """The metadata server of this instance."""

    endpoint: MetadataEndpoint
    timeout_seconds: float = TIMEOUT_SECONDS

    def entry(self, path: str, *, maximum_bytes: int, **parameters: str) -> str:
        """The entry below ``/computeMetadata/v1/``.

        Raises:
            NotFound: there is none.
            EvidenceUnavailable: the message says what a person at this node can do.
        """
        query = f"?{urlencode(parameters)}" if parameters else ""
        last = ""
        for _ in attempts(self.timeout_seconds):
            try:
                return self._request(f"{_ROOT}{path}{query}", maximum_bytes)
            except _Busy as busy:
                last = str(busy)
        raise EvidenceUnavailable(
            f"the metadata server at {self.endpoint.host} port {self.endpoint.port} does not answer: {last}; is this a "
            "virtual machine of Compute Engine, and may this process reach that address?"
        )

    def _request(self, target: str, maximum_bytes: int) -> str:
        deadline = time.monotonic() + _ANSWER_SECONDS
        connection = http.client.HTTPConnection(self.endpoint.host, self.endpoint.port, timeout=_ANSWER_SECONDS)
        connection.response_class = StrictResponse
        try:
            connection.sock = dial(self.endpoint.host, self.endpoint.port, _ANSWER_SECONDS)
            connection.request(
                "GET", target, headers={_FLAVOR_HEADER: _FLAVOR, "Host": METADATA_HOST, "Connection": "close"}
            )
            with connection.getresponse() as response:
                _check(response)
                body = _read(response, connection, maximum_bytes, deadline)
        except (OSError, http.client.HTTPException) as error:
            raise _Busy(_describe(error)) from error
        finally:
            connection.close()
        try:
            return body.decode("ascii")
        except UnicodeDecodeError as error:
            raise EvidenceUnavailable("the metadata server's answer is not ASCII text") from error


def _check(response: http.client.HTTPResponse) -> None:
    """Check the header first: without it the answer is not Google's."""
    if response.getheader(_FLAVOR_HEADER) != _FLAVOR:
        raise EvidenceUnavailable(
            f"something answers in place of the metadata server (status {response.status}, without {_FLAVOR_HEADER}: "
            f"{_FLAVOR}): is this a virtual machine of Compute Engine, and is there a proxy in between?"
        )
    if response.status == http.client.NOT_FOUND:
        raise NotFound
    if response.status in _RETRIED:
        raise _Busy(f"status {response.status}")
    if response.status != http.client.OK:
        raise EvidenceUnavailable(f"the metadata server refuses with status {response.status}")


def _read(
    response: http.client.HTTPResponse, connection: http.client.HTTPConnection, maximum_bytes: int, deadline: float
) -> bytes:
    body = b""
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            raise _Busy("its answer takes too long")
        if connection.sock is not None:  # None: the answer is complete, or ends with the connection
            connection.sock.settimeout(left)
        chunk = response.read1(_CHUNK_BYTES)
        if not chunk:
            if response.length:
                raise _Busy("its answer is incomplete")
            return body
        body += chunk
        if len(body) > maximum_bytes:
            raise EvidenceUnavailable(f"the metadata server's answer is larger than {maximum_bytes} bytes")


def _describe(error: OSError | http.client.HTTPException) -> str:
    if isinstance(error, TimeoutError):
        return "its answer takes too long"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return type(error).__name__


def attempts(
    timeout_seconds: float,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[None]:
    """Yield once per attempt; sleeps between attempts, twice as long each time."""
    deadline = clock() + timeout_seconds
    delay = _FIRST_DELAY_SECONDS
    while True:
        yield
        if clock() + delay >= deadline:
            return
        sleep(delay)
        delay = min(2 * delay, _LONGEST_DELAY_SECONDS)
