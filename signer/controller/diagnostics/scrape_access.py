"""Who may read ``/metrics``: whom the management cluster knows by their token and lets get that path.

As controller-runtime's ``filters.WithAuthenticationAndAuthorization``: TokenReview, then SubjectAccessReview for the
verb ``get`` on the nonResourceURL ``/metrics``. Metrics name clusters and say which of them is in trouble.
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
"""How long a yes is believed: as long as a token that was withdrawn may still read metrics."""
DENIED_SECONDS: Final = 10.0
REMEMBERED: Final = 128
AT_ONCE: Final = 4
"""Reviews under way: strangers' tokens must not keep the management cluster busy."""
_BEARER: Final = re.compile(r"[Bb]earer +([!-~]{1,8192})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Allowed:
    """The token's owner may read metrics."""


@dataclass(frozen=True, slots=True)
class Unauthenticated:
    """There is no token, or nobody is known by it."""


@dataclass(frozen=True, slots=True)
class NotPermitted:
    """Its owner is known, and may not."""


Verdict: TypeAlias = Allowed | Unauthenticated | NotPermitted


class ScrapeAccess:
    """Asks the management cluster, and remembers its answers for a moment; tokens themselves are not kept."""

    def __init__(self, client: Create, monotonic: Callable[[], float]) -> None:
        self._client = client
        self._monotonic = monotonic
        self._digest_key = secrets.token_bytes(32)
        self._remembered: OrderedDict[bytes, tuple[Verdict, float]] = OrderedDict()
        self._reviews = asyncio.Semaphore(AT_ONCE)

    async def judge(self, authorization: str) -> Verdict:
        """What the ``Authorization`` header entitles to.

        Raises:
            ApiError: the management cluster cannot be asked: nobody may.
        """
        bearer = _BEARER.fullmatch(authorization)
        if bearer is None:
            return Unauthenticated()
        digest = hashlib.blake2b(bearer[1].encode("ascii"), key=self._digest_key, digest_size=32).digest()
        if digest in self._remembered and self._remembered[digest][1] > self._monotonic():
            return self._remembered[digest][0]  # without waiting behind strangers
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
        asked = {"nonResourceAttributes": {"path": PATH, "verb": "get"}, **subject}
        answer = await self._client.create(
            SUBJECT_ACCESS_REVIEWS.collection(), _review("authorization", "SubjectAccess", **asked)
        )
        status = mapping_of(answer, "status")
        return Allowed() if status.get("allowed") is True and status.get("denied") is not True else NotPermitted()


_USER_FIELDS: Final = {"username": "user", "uid": "uid", "groups": "groups", "extra": "extra"}
"""What a TokenReview calls them, and what a SubjectAccessReview does."""


def _review(group: str, kind: str, **spec: Any) -> JsonObject:
    return {"apiVersion": f"{group}.k8s.io/v1", "kind": f"{kind}Review", "spec": spec}
