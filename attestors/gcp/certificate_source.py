"""Keeps Google's certificates: fetched when they are needed, as seldom as can be, and used for a while without Google.

==================  ====================================================================================
fresh               as long as Cache-Control says, between 5 minutes and a day
stale               fetched again; where that fails they are used until a day after they were fetched
a key is missing    fetched again if a minute has passed, because Google may have a new one. Whoever
                    writes tokens with key IDs of their own makes no more calls than that
a failure           remembered for 10 seconds, so that a crowd does not wait for it one by one
==================  ====================================================================================

Everybody who needs them while they are fetched waits for that one call.
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
"""How old certificates are used at most while Google does not answer."""
UNKNOWN_KEY_INTERVAL: Final = timedelta(minutes=1)
"""Between two calls because of a key that is not among them."""
FAILURE_INTERVAL: Final = timedelta(seconds=10)
"""Between two calls of which the first failed."""


class UnknownKey(Exception):
    """Google publishes no such key, and did not when the token was issued."""


class KeyNotPublishedYet(Exception):
    """Such a key is not among the certificates, and they may be older than the token."""

    def __init__(self, retry_after: timedelta) -> None:
        super().__init__("the certificates may be older than the token")
        self.retry_after = retry_after


@dataclass(frozen=True, slots=True)
class CertificatesAnswer:
    """What the certificates' service answered."""

    body: bytes
    maximum_age: timedelta
    """``max-age`` of Cache-Control (RFC 9111 section 5.2.2.1); zero without it."""
    age: timedelta
    """How long a cache on the way had it already (RFC 9111 section 5.1)."""


FetchCertificates: TypeAlias = Callable[[], Awaitable[CertificatesAnswer]]
"""Makes the call; raises :class:`CloudUnavailable`."""


@dataclass(frozen=True, slots=True)
class _Published:
    keys: Mapping[str, GoogleKey]
    fetched: float
    """Monotonic, in seconds."""
    as_of: float
    """When Google published them at the earliest: before a cache kept them. Monotonic, in seconds."""
    fresh_until: float


class CertificateSource:
    """Google's certificates, for all clusters of one event loop."""

    def __init__(self, fetch: FetchCertificates, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._fetch = fetch
        self._monotonic = monotonic
        self._published: _Published | None = None
        self._flight: asyncio.Task[_Published] | None = None
        self._tried = float("-inf")
        self._failure = CloudUnavailable(SERVICE, "was not asked yet")

    async def key(self, key_id: str, *, issued: datetime, now: datetime) -> GoogleKey:
        """The key of that ID, for a token that was issued then.

        Raises:
            UnknownKey: there is none, for good.
            KeyNotPublishedYet: there is none among certificates that may be older than the token.
            CloudUnavailable: there are no certificates.
        """
        published = await self._current()
        if not _has(published, key_id, now):
            # How old the token is says our clock, which may be ahead: it denies nobody without a fresh look.
            if self._since(self._tried) >= UNKNOWN_KEY_INTERVAL:
                published = await self._fetched()
            if not _has(published, key_id, now):
                if self._are_older(published, now - issued):
                    raise KeyNotPublishedYet(UNKNOWN_KEY_INTERVAL - self._since(self._tried))
                raise UnknownKey(key_id)
        return published.keys[key_id]

    async def _current(self) -> _Published:
        published = self._published
        if published is not None and self._monotonic() < published.fresh_until:
            return published
        if self._flight is None and self._since(self._tried) < FAILURE_INTERVAL:
            return self._stale()
        try:
            return await self._fetched()
        except CloudUnavailable:
            return self._stale()

    def _stale(self) -> _Published:
        published = self._published
        if published is None or self._since(published.fetched) > STALE_LIMIT:
            # Without the frames of those who saw it before: they would pile up.
            raise self._failure.with_traceback(None)
        return published

    def _since(self, moment: float) -> timedelta:
        elapsed = self._monotonic() - moment
        return timedelta(seconds=elapsed) if elapsed < timedelta.max.total_seconds() else timedelta.max

    def _are_older(self, published: _Published, age_of_token: timedelta) -> bool:
        """Whether the token may have been signed with a key that Google published later."""
        return self._since(published.as_of) + CLOCK_SKEW >= age_of_token

    async def _fetched(self) -> _Published:
        """A set that arrives after this call; one call for all who wait.

        Raises:
            CloudUnavailable: it does not arrive, or cannot be read.
        """
        if self._flight is None:
            self._flight = asyncio.ensure_future(self._fly())
            self._flight.add_done_callback(_looked_at)
        # Whoever gives up waiting must not end the call for the others.
        return await asyncio.shield(self._flight)

    async def _fly(self) -> _Published:
        try:
            started = self._monotonic()
            answer = await self._fetch()
            try:
                keys = parse_certificates(answer.body)
            except CertificatesUnreadable as error:
                raise CloudUnavailable(SERVICE, f"gives an answer that cannot be read: {error}") from error
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
            self._flight = None


def _has(published: _Published, key_id: str, now: datetime) -> bool:
    """Whether the key is there and its certificate valid: what Google let run out is rotated, whoever keeps it."""
    key = published.keys.get(key_id)
    return key is not None and key.not_before - CLOCK_SKEW <= now <= key.not_after + CLOCK_SKEW


def _looked_at(flight: asyncio.Task[_Published]) -> None:
    """Nobody may be left to wait for it: its failure is kept, and asyncio need not tell of it."""
    if not flight.cancelled():
        flight.exception()
