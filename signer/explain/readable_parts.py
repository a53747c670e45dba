"""Reads what the caller may read, and keeps note of the rest, for commands that show what they can."""

from __future__ import annotations

from collections.abc import AsyncGenerator

from signer.kube.calls import GetList
from signer.kube.client import LIST_PAGE_OBJECTS, JsonObject, Parameters
from signer.kube.errors import Forbidden
from signer.kube.resources import IDENTITY_RESERVATIONS


class ReadableParts:
    """A source whose collections that the caller may not list are empty."""

    def __init__(self, source: GetList) -> None:
        self._source = source
        self._unreadable: dict[str, str] = {}

    @property
    def unreadable(self) -> str:
        """What could not be listed and why, without reservations, which only decisions need; empty if nothing."""
        return "; ".join(
            f"{plural} cannot be listed: {error}"
            for plural, error in self._unreadable.items()
            if plural != IDENTITY_RESERVATIONS.plural
        )

    async def get(self, path: str) -> JsonObject:
        """See Client."""
        return await self._source.get(path)

    async def list_pages(
        self,
        path: str,
        params: Parameters | None = None,
        limit: int = LIST_PAGE_OBJECTS,
        *,
        maximum_bytes: int | None = None,
    ) -> AsyncGenerator[JsonObject, None]:
        """See Client. Of a collection that may not be listed there is no page."""
        try:
            async for page in self._source.list_pages(path, params, limit, maximum_bytes=maximum_bytes):
                yield page
        except Forbidden as error:
            self._unreadable[path.rpartition("/")[2]] = str(error)
