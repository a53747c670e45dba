"""The published keys of accounts' token issuers: fetched, cached, and fetched again for an unknown key.

A requester can name any key, so an issuer is called for unknown keys at a limited rate. Cached keys stay usable for
some hours while the issuer is unreachable; AWS publishes old keys for longer than a token lives.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from attestors.clouds.errors import CloudUnavailable
from attestors.clouds.https import HTTPS
from attestors.clouds.json_objects import parse_object, text_of
from attestors.clouds.json_web_token import MAXIMUM_KEY_SET_BYTES, InvalidKeySet, PublicKey, parse_key_set

DISCOVERY_PATH: Final = "/.well-known/openid-configuration"
LIFETIME_SECONDS: Final = 3600.0
PAUSE_SECONDS: Final = 20.0
"""Minimum time between two fetches from one issuer, for any purpose."""
STALE_SECONDS: Final = 6 * 3600.0
"""Maximum age of keys while the issuer is unreachable."""

_ISSUER: Final = re.compile(r"https://(?P<host>[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?)")
_MAXIMUM_DISCOVERY_BYTES: Final = 16 * 1024
_OK: Final = 200


class UnknownKey(Exception):
    """The issuer publishes no key of that name, and was asked after the token was made."""


class KeyNotPublishedYet(Exception):
    """The cached keys, which may be older than the token, have none of that name."""

    def __init__(self, retry_after_seconds: float) -> None:
        super().__init__("the issuer's keys may be older than the token")
        self.retry_after_seconds = retry_after_seconds


def is_issuer(text: str) -> bool:
    """Whether ``text`` has the form of AWS's account issuers: ``https://<host>`` and nothing after it."""
    return _ISSUER.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class _Keys:
    by_id: Mapping[str, PublicKey]
    fetched_at: float


@dataclass(slots=True)
class _Issuer:
    """Cached state of one issuer."""

    keys: _Keys | None = None
    asked_at: float | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class IssuerKeys:
    """Keys by issuer and name. Only the operator's configured issuers are used, so there are few."""

    def __init__(self, https: HTTPS, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._https = https
        self._clock = clock
        self._issuers: dict[str, _Issuer] = {}

    async def key(self, issuer: str, key_id: str, *, made_seconds_ago: float) -> PublicKey:
        """The issuer's key of this name, for a token that was made at least ``made_seconds_ago``.

        Raises:
            UnknownKey: the issuer has no such key, finally.
            KeyNotPublishedYet: the cached keys have none, and it is too early to fetch again.
            CloudUnavailable: the keys are unavailable.
        """
        known = self._issuers.setdefault(issuer, _Issuer())
        async with known.lock:
            if not self._has(known, key_id) and self._may_fetch(known):
                await self._refresh(issuer, known)
                made_seconds_ago = math.inf  # fetched after the token arrived, and therefore after it was made
            return self._find(issuer, known, key_id, made_seconds_ago)

    def _has(self, known: _Issuer, key_id: str) -> bool:
        keys = known.keys
        return keys is not None and self._age(keys) < LIFETIME_SECONDS and key_id in keys.by_id

    def _may_fetch(self, known: _Issuer) -> bool:
        return known.asked_at is None or self._clock() - known.asked_at >= PAUSE_SECONDS

    async def _refresh(self, issuer: str, known: _Issuer) -> None:
        known.asked_at = asked_at = self._clock()
        try:
            known.keys = _Keys(await self._fetch(issuer), asked_at)
        except CloudUnavailable:
            if known.keys is None or self._age(known.keys) >= STALE_SECONDS:
                raise

    def _find(self, issuer: str, known: _Issuer, key_id: str, made_seconds_ago: float) -> PublicKey:
        keys = known.keys
        if keys is None or self._age(keys) >= STALE_SECONDS:
            raise CloudUnavailable(_service(issuer), "its keys were unavailable a moment ago")
        if key_id in keys.by_id:
            return keys.by_id[key_id]
        if keys.fetched_at != known.asked_at:
            raise CloudUnavailable(_service(issuer), "is unavailable for a key that it did not have before")
        if self._age(keys) >= made_seconds_ago:
            raise KeyNotPublishedYet(PAUSE_SECONDS - self._age(keys))
        raise UnknownKey("the issuer publishes no key of that name")

    def _age(self, keys: _Keys) -> float:
        return self._clock() - keys.fetched_at

    async def _fetch(self, issuer: str) -> Mapping[str, PublicKey]:
        service, host = _service(issuer), issuer.removeprefix("https://")
        discovery = await self._https.get(
            service, "configuration", host, DISCOVERY_PATH, maximum_bytes=_MAXIMUM_DISCOVERY_BYTES
        )
        path = _keys_path(service, issuer, discovery.status, discovery.body)
        published = await self._https.get(service, "keys", host, path, maximum_bytes=MAXIMUM_KEY_SET_BYTES)
        if published.status != _OK:
            raise CloudUnavailable(service, f"answers {published.status} instead of its keys")
        try:
            return parse_key_set(published.body)
        except InvalidKeySet as error:
            raise CloudUnavailable(service, str(error)) from error


def _service(issuer: str) -> str:
    return f"AWS STS token issuer {issuer}"


def _keys_path(service: str, issuer: str, status: int, body: bytes) -> str:
    """The path of the keys, which must be on the issuer's own host (OpenID Connect Discovery 1.0 section 4.3)."""
    if status != _OK:
        raise CloudUnavailable(service, f"answers {status} instead of its configuration")
    try:
        document = parse_object(body)
        named, url = text_of(document, "issuer"), urlsplit(text_of(document, "jwks_uri"))
    except ValueError as error:
        raise CloudUnavailable(service, "answers with something other than its configuration") from error
    if (
        named != issuer
        or f"{url.scheme}://{url.netloc}" != issuer
        or url.query
        or url.fragment
        or not url.path.isascii()
    ):
        raise CloudUnavailable(service, "is another issuer, or publishes its keys on another host")
    return url.path
