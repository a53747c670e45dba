"""Caches Google's certificates: fetched on demand, as rarely as possible, and used for a while if Google is down.

==================  ====================================================================================
fresh               as long as Cache-Control says, between 5 minutes and a day
stale               fetched again; where that fails they are used until a day after they were fetched
a key is missing    fetched again if a minute has passed, because Google may have a new one; tokens
                    with invented key IDs cause no more calls than that
a failure           remembered for 10 seconds, so that many callers do not each wait for it
==================  ====================================================================================

Concurrent callers wait for the same call.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from attestors.clouds.errors import CloudUnavailable
from attestors.gcp.certificates import CertificatesUnreadable, GoogleKey, parse_certificates
from attestors.gcp.local_checks import CLOCK_SKEW

SERVICE: Final = "Google's certificates (www.googleapis.com)"

SHORTEST_FRESH: Final = timedelta(minutes=5)
LONGEST_FRESH: Final = timedelta(days=1)
STALE_LIMIT: Final = timedelta(days=1)
"""Maximum age of certificates in use while Google does not answer."""
UNKNOWN_KEY_INTERVAL: Final = timedelta(minutes=1)
"""Minimum time between two calls for unknown keys."""
FAILURE_INTERVAL: Final = timedelta(seconds=10)
"""Minimum time between a failed call and the next one."""


class UnknownKey(Exception):
    """Google publishes no such key, and did not when the token was issued."""


class KeyNotPublishedYet(Exception):
    """The certificates, which may be older than the token, have no such key."""

    def __init__(self, retry_after: timedelta) -> None:
        super().__init__("the certificates may be older than the token")
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class CertificatesAnswer:
    """An answer of the certificate service."""

    body: bytes
    maximum_age: timedelta
    """``max-age`` of Cache-Control (RFC 9111 section 5.2.2.1); zero without it."""
    age: timedelta
    """Time that a cache on the way has kept the answer (RFC 9111 section 5.1)."""


FetchCertificates: TypeAlias = Callable[[], Awaitable[CertificatesAnswer]]
"""Makes the call; raises :class:`CloudUnavailable`."""


@dataclass(frozen=True, slots=True)
class _Published:
    keys: Mapping[str, GoogleKey]
    fetched: float
    """Monotonic, in seconds."""
    as_of: float
    """Earliest time of publication, before any cache kept the answer. Monotonic, in seconds."""
    fresh_until: float


class CertificateSource:
    """Google's certificates, for all clusters of one event loop."""

    def __init__(self, fetch: FetchCertificates, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._fetch = fetch
        self._monotonic = monotonic
        self._published: _Published | None = None
        self._refreshing: asyncio.Task[_Published] | None = None
        self._tried = float("-inf")
        self._failure = CloudUnavailable(SERVICE, "was not called yet")

    async def key(self, key_id: str, *, issued: datetime, now: datetime) -> GoogleKey:
        """The key of that ID, for a token that was issued then.

        Raises:
            UnknownKey: there is no such key, finally.
            KeyNotPublishedYet: there is no such key among certificates that may be older than the token.
            CloudUnavailable: there are no certificates.
        """
        published = await self._current()
        if not _has(published, key_id, now):
            # The token's age is measured with our clock, which may be ahead: fetch again before denying.
            if self._since(self._tried) >= UNKNOWN_KEY_INTERVAL:
                published = await self._refresh()
            if not _has(published, key_id, now):
                if self._are_older(published, now - issued):
                    raise KeyNotPublishedYet(UNKNOWN_KEY_INTERVAL - self._since(self._tried))
                raise UnknownKey(key_id)
        return published.keys[key_id]

    async def _current(self) -> _Published:
        published = self._published
        if published is not None and self._monotonic() < published.fresh_until:
            return published
        if self._refreshing is None and self._since(self._tried) < FAILURE_INTERVAL:
            return self._stale()
        try:
            return await self._refresh()
        except CloudUnavailable:
            return self._stale()

    def _stale(self) -> _Published:
        published = self._published
        if published is None or self._since(published.fetched) > STALE_LIMIT:
            # Without the traceback of earlier callers, which would grow with each one.
            raise self._failure.with_traceback(None)
        return published

    def _since(self, moment: float) -> timedelta:
        elapsed = self._monotonic() - moment
        return timedelta(seconds=elapsed) if elapsed < timedelta.max.total_seconds() else timedelta.max

    def _are_older(self, published: _Published, age_of_token: timedelta) -> bool:
        """Whether the token may be signed with a key that Google published later."""
        return self._since(published.as_of) + CLOCK_SKEW >= age_of_token

    async def _refresh(self) -> _Published:
        """A set that arrives after this call began; concurrent callers share one call.

        Raises:
            CloudUnavailable: it does not arrive, or is unreadable.
        """
        if self._refreshing is None:
            self._refreshing = asyncio.ensure_future(self._fetch_set())
            self._refreshing.add_done_callback(_consume_exception)
        # A caller that stops waiting must not cancel the call for the others.
        return await asyncio.shield(self._refreshing)

    async def _fetch_set(self) -> _Published:
        try:
            started = self._monotonic()
            answer = await self._fetch()
            try:
                keys = parse_certificates(answer.body)
            except CertificatesUnreadable as error:
                raise CloudUnavailable(SERVICE, f"returns an unreadable answer: {error}") from error
            fresh = min(max(answer.maximum_age - answer.age, SHORTEST_FRESH), LONGEST_FRESH)
            self._published = _Published(
                keys, started, started - answer.age.total_seconds(), started + fresh.total_seconds()
            )
            return self._published
        except CloudUnavailable as failure:
            self._failure = failure
            raise
        finally:
            self._tried = self._monotonic()
            self._refreshing = None


def _has(published: _Published, key_id: str, now: datetime) -> bool:
    """Whether the key exists and its certificate is valid: Google rotates a key when its certificate expires."""
    key = published.keys.get(key_id)
    return key is not None and key.not_before - CLOCK_SKEW <= now <= key.not_after + CLOCK_SKEW


def _consume_exception(task: asyncio.Task[_Published]) -> None:
    """Retrieve the exception, so that asyncio does not log it if no caller waits; the source keeps the failure."""
    if not task.cancelled():
        task.exception()
