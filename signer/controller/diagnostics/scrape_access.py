"""Authenticates and authorizes clients of ``/metrics`` with the management cluster.

It works like controller-runtime's ``filters.WithAuthenticationAndAuthorization``: TokenReview, then SubjectAccessReview
for the verb ``get`` on the nonResourceURL ``/metrics``. Metrics are sensitive: they name clusters and their problems.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from signer.kube.calls import Create
from signer.kube.client import JsonObject
from signer.kube.resources import SUBJECT_ACCESS_REVIEWS, TOKEN_REVIEWS
from signer.model.fields import mapping_of

PATH: Final = "/metrics"
ALLOWED_SECONDS: Final = 60.0
"""How long "allowed" is cached, and so how long a revoked token can still read metrics."""
DENIED_SECONDS: Final = 10.0
REMEMBERED: Final = 128
CONCURRENT_REVIEWS: Final = 4
"""Concurrent reviews: unknown tokens must not overload the management cluster."""
_BEARER: Final = re.compile(r"[Bb]earer +([!-~]{1,8192})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Allowed:
    """The token's owner may read metrics."""


@dataclass(frozen=True, slots=True)
class Unauthenticated:
    """There is no token, or the management cluster does not accept it."""


@dataclass(frozen=True, slots=True)
class NotPermitted:
    """The token's owner is authenticated but not authorized."""


Verdict: TypeAlias = Allowed | Unauthenticated | NotPermitted


class ScrapeAccess:
    """Reviews tokens with the management cluster and caches the verdicts briefly, by keyed digest instead of token."""

    def __init__(self, client: Create, monotonic: Callable[[], float]) -> None:
        self._client = client
        self._monotonic = monotonic
        self._digest_key = secrets.token_bytes(32)
        self._remembered: OrderedDict[bytes, tuple[Verdict, float]] = OrderedDict()
        self._reviews = asyncio.Semaphore(CONCURRENT_REVIEWS)

    async def authorize(self, authorization: str) -> Verdict:
        """The verdict for an ``Authorization`` header.

        Raises:
            ApiError: the management cluster cannot be queried; the caller must refuse.
        """
        bearer = _BEARER.fullmatch(authorization)
        if bearer is None:
            return Unauthenticated()
        digest = hashlib.blake2b(bearer[1].encode("ascii"), key=self._digest_key, digest_size=32).digest()
        if digest in self._remembered and self._remembered[digest][1] > self._monotonic():
            return self._remembered[digest][0]  # without queueing behind unknown tokens
        async with self._reviews:
            verdict, until = self._remembered.get(digest, (Unauthenticated(), float("-inf")))
            if until > self._monotonic():
                return verdict
            verdict = await self._review(bearer[1])
            seconds = ALLOWED_SECONDS if isinstance(verdict, Allowed) else DENIED_SECONDS
            self._remembered.pop(digest, None)
            self._remembered[digest] = (verdict, self._monotonic() + seconds)
            if len(self._remembered) > REMEMBERED:
                self._remembered.popitem(last=False)
            return verdict

    async def _review(self, token: str) -> Verdict:
        review = await self._client.create(TOKEN_REVIEWS.collection(), _review("authentication", "Token", token=token))
        status = mapping_of(review, "status")
        user = mapping_of(status, "user")
        if status.get("authenticated") is not True or not user.get("username"):
            return Unauthenticated()
        subject = {key: user[theirs] for theirs, key in _USER_FIELDS.items() if user.get(theirs)}
        attributes = {"nonResourceAttributes": {"path": PATH, "verb": "get"}, **subject}
        answer = await self._client.create(
            SUBJECT_ACCESS_REVIEWS.collection(), _review("authorization", "SubjectAccess", **attributes)
        )
        status = mapping_of(answer, "status")
        return Allowed() if status.get("allowed") is True and status.get("denied") is not True else NotPermitted()


_USER_FIELDS: Final = {"username": "user", "uid": "uid", "groups": "groups", "extra": "extra"}
"""Field names in a TokenReview and in a SubjectAccessReview."""


def _review(group: str, kind: str, **spec: Any) -> JsonObject:
    return {"apiVersion": f"{group}.k8s.io/v1", "kind": f"{kind}Review", "spec": spec}
