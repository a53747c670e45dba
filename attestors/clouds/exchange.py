"""One HTTP exchange with a cloud, through requests: bounded in time and size, without redirects.

This module needs the requests library; import it only where it is used.
"""

from __future__ import annotations

import http.cookiejar
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import requests
import requests.adapters
import urllib3.exceptions

from attestors.clouds.calls import Deadline, too_slow
from attestors.clouds.errors import CloudUnavailable
from attestors.clouds.pools import POOLS
from attestors.clouds.urls import NO_PROXY, PlainHosts, Proxy, check_url

MAXIMUM_BODY_BYTES: Final = 1024 * 1024
_CHUNK: Final = 64 * 1024
_CONNECTIONS: Final = 16


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    """By name, case-insensitive."""
    body: bytes = field(repr=False)


class Exchange:
    """A thread-safe pool of reused connections.

    It ignores environment variables for proxies and certificates, and ``.netrc``, so that only the settings decide
    where secrets are sent.
    """

    def __init__(self, *, proxy: Proxy = NO_PROXY, maximum_body_bytes: int = MAXIMUM_BODY_BYTES) -> None:
        self._maximum = maximum_body_bytes
        self._session = requests.Session()
        self._session.trust_env = False
        self._session.cookies.set_policy(http.cookiejar.DefaultCookiePolicy(allowed_domains=[]))
        self._session.proxies = {"https": proxy.url} if proxy.url else {}
        adapter = _Adapter(pool_connections=_CONNECTIONS, pool_maxsize=_CONNECTIONS, max_retries=0)
        self._session.mount("https://", adapter)
        self._session.mount("http://", adapter)

    def send(
        self,
        method: str,
        url: str,
        *,
        deadline: Deadline,
        headers: Mapping[str, str],
        body: bytes | str | None = None,
        plain_hosts: PlainHosts = PlainHosts.LOOPBACK,
    ) -> Answer:
        """Send, and read the whole answer, whatever its status; a redirect is an error.

        Raises:
            CloudUnavailable: no connection, no answer in time, a redirect, too large, or compressed without request.
            InvalidURL: the URL may not be called.
        """
        check_url(url, plain_hosts)
        service = deadline.service
        left = deadline.remaining()
        try:
            response = self._session.request(
                method,
                url,
                data=body,
                headers={**headers, "Accept-Encoding": "identity"},
                timeout=(left, left),
                allow_redirects=False,
                stream=True,
            )
            with response:
                if 300 <= response.status_code < 400:
                    raise CloudUnavailable(service, "answers with a redirect, which is never followed")
                return Answer(response.status_code, response.headers, self._read(response, deadline))
        except (requests.exceptions.Timeout, urllib3.exceptions.TimeoutError):
            raise too_slow(service) from None
        except (requests.exceptions.RequestException, urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            # The exceptions' texts repeat addresses, and data of the server.
            raise CloudUnavailable(service, _cause(error)) from None

    def _read(self, response: Any, deadline: Deadline) -> bytes:
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise CloudUnavailable(deadline.service, "answers compressed, which was not requested")
        chunks: list[bytes] = []
        size = 0
        # One socket read at a time, so that a slow answer ends at the deadline too.
        while chunk := response.raw.read1(_CHUNK, decode_content=False):
            size += len(chunk)
            if size > self._maximum:
                raise CloudUnavailable(deadline.service, f"answers with more than {self._maximum} bytes")
            chunks.append(chunk)
            deadline.remaining()
        return b"".join(chunks)

    def close(self) -> None:
        """Close the connections."""
        self._session.close()


class _Adapter(requests.adapters.HTTPAdapter):  # type: ignore[misc]
    """An adapter that uses our connection pools for hosts and for a proxy."""

    def init_poolmanager(self, *arguments: Any, **named: Any) -> None:
        """Override of requests."""
        super().init_poolmanager(*arguments, **named)
        self.poolmanager.pool_classes_by_scheme = POOLS

    def proxy_manager_for(self, *arguments: Any, **named: Any) -> Any:
        """Override of requests."""
        manager = super().proxy_manager_for(*arguments, **named)
        manager.pool_classes_by_scheme = POOLS
        return manager


def _cause(error: Exception) -> str:
    if isinstance(error, requests.exceptions.SSLError):
        return "its TLS certificate cannot be verified, or TLS failed otherwise"
    if isinstance(error, requests.exceptions.ProxyError):
        return "the proxy is unreachable, or rejects the controller"
    if isinstance(error, requests.exceptions.ConnectionError):
        return "is unreachable, or closed the connection"
    return "aborted its answer, or did not answer in HTTP"
