"""The state of one list that is read page by page (Kubernetes API concepts, "Retrieving large results"), and its
bounds.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from signer.kube.errors import UnexpectedAnswer

LIST_SECONDS: Final = 300.0
"""For all pages of one list, without the client's own throttling; about the life of a continue token (etcd is compacted
every five minutes)."""
EMPTY_PAGES: Final = 16
"""Maximum number of consecutive empty pages. An API server fills every page but the last."""
PAGE_DIVISOR: Final = 8
"""The page size is divided by this after a page that is too large."""

_CONTINUE: Final = re.compile(r"[ -~]{0,8192}", re.ASCII)


class Listing:
    """The state of one list."""

    def __init__(
        self, params: Mapping[str, str | int | bool] | None, limit: int, *, maximum_bytes: int, now: float
    ) -> None:
        """``maximum_bytes`` bounds all pages together; ``now`` is in seconds of a clock that excludes the client's own
        throttling.
        """
        self.query: dict[str, str | int | bool] = {**(params or {}), "limit": limit}
        """The parameters of the next call."""
        self._limit = limit
        self._bytes_left = maximum_bytes
        self._ends_at = now + LIST_SECONDS
        self._empty = 0
        self._token = ""

    def reduce_page(self) -> bool:
        """A page was too large: reduce the page size; returns whether that is possible."""
        if self._limit == 1:
            return False
        self.query["limit"] = self._limit = max(1, self._limit // PAGE_DIVISOR)
        return True

    def read(self, page: Mapping[str, Any], size: int) -> int:
        """Read a page of ``size`` bytes; returns the number of its items.

        Raises:
            UnexpectedAnswer: it is no page of a list, or larger than requested.
        """
        self._bytes_left -= size
        if self._bytes_left < 0:
            raise UnexpectedAnswer("all pages of the list together are too large", status=200)
        token, items = _continue_token(page), len(page["items"])
        if items > self._limit:
            raise UnexpectedAnswer("the list's page holds more items than were asked for", status=200)
        if token and token == self.query.get("continue"):
            raise UnexpectedAnswer("the list continues with the page that was just read", status=200)
        self._token = token
        self._empty = 0 if items else self._empty + 1
        return items

    def has_next(self, now: float) -> bool:
        """Whether there is another page to request.

        Raises:
            UnexpectedAnswer: the list does not end.
        """
        if not self._token:
            return False
        if self._empty > EMPTY_PAGES or now > self._ends_at:
            raise UnexpectedAnswer("the list has no end: too many empty pages, or too much time", status=200)
        self.query["continue"] = self._token
        return True


def _continue_token(page: Mapping[str, Any]) -> str:
    metadata = page.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(page.get("items"), list):
        raise UnexpectedAnswer("the answer is no Kubernetes list", status=200)
    token = metadata.get("continue", "")
    if not isinstance(token, str) or _CONTINUE.fullmatch(token) is None:
        raise UnexpectedAnswer("the list's continue token is malformed", status=200)
    return token
