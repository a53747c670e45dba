"""Fetches Google's certificates: one GET of one URL, bounded in time and size, without redirects."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from attestors.clouds.calls import CloudCalls, Deadline, shared_calls
from attestors.clouds.errors import CloudThrottled, CloudUnavailable, pause_from
from attestors.clouds.urls import NO_PROXY, Proxy
from attestors.gcp.certificate_source import SERVICE, CertificatesAnswer, FetchCertificates
from attestors.gcp.certificates import CERTIFICATES_URL, MAXIMUM_CERTIFICATES_BYTES

_OK: Final = 200
_TOO_MANY_REQUESTS: Final = 429
_SECONDS: Final = re.compile(r"[0-9]{1,9}")
_NONE: Final = timedelta()


def certificate_service(
    url: str = CERTIFICATES_URL, *, proxy: Proxy = NO_PROXY, calls: CloudCalls | None = None
) -> FetchCertificates:
    """The function that fetches the certificates.

    ``url`` differs from Google's only in tests: its server can vouch for every instance.

    Raises:
        ImportError: requests is not installed (extra ``gcp``).
    """
    from attestors.clouds.exchange import Exchange

    runner = calls or shared_calls()

    def call(deadline: Deadline) -> CertificatesAnswer:
        # Calls are hours apart, so the connection is not kept.
        with contextlib.closing(Exchange(proxy=proxy, maximum_body_bytes=MAXIMUM_CERTIFICATES_BYTES)) as exchange:
            answer = exchange.send("GET", url, deadline=deadline, headers={"Accept": "application/json"})
        if answer.status != _OK:
            pause = pause_from(answer.headers.get("Retry-After"))
            kind = CloudThrottled if answer.status == _TOO_MANY_REQUESTS else CloudUnavailable
            raise kind(SERVICE, f"answers with status {answer.status}", retry_after=pause)
        return CertificatesAnswer(answer.body, maximum_age(answer.headers), _seconds(answer.headers.get("Age", "")))

    async def fetch() -> CertificatesAnswer:
        return await runner.run(SERVICE, "certificates", call)

    return fetch


def maximum_age(headers: Mapping[str, str]) -> timedelta:
    """``max-age`` of Cache-Control (RFC 9111 section 5.2.2.1); zero if missing, malformed or contradicted."""
    directives = [part.strip().lower() for part in headers.get("Cache-Control", "").split(",")]
    ages = {value for name, _, value in (part.partition("=") for part in directives) if name == "max-age"}
    if len(ages) != 1 or {"no-store", "no-cache"} & set(directives):
        return _NONE
    return _seconds(ages.pop())


def _seconds(text: str) -> timedelta:
    return timedelta(seconds=int(text)) if _SECONDS.fullmatch(text) else _NONE
