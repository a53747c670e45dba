"""Where objects are read from: a management cluster, or a recording of one."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Protocol

from signer.kube.client import LIST_PAGE_OBJECTS, JsonObject, Parameters


class Source(Protocol):
    """The reading half of :class:`~signer.kube.client.Client`."""

    async def get(self, path: str) -> JsonObject:
        """See Client."""
        ...

    def list_pages(
        self,
        path: str,
        params: Parameters | None = None,
        limit: int = LIST_PAGE_OBJECTS,
        *,
        maximum_bytes: int | None = None,
    ) -> AsyncGenerator[JsonObject, None]:
        """See Client."""
        ...


async def items_of_list(source: Source, path: str) -> list[JsonObject]:
    """All objects of a collection.

    Raises:
        ApiError: it cannot be listed.
    """
    found: list[JsonObject] = []
    async for page in source.list_pages(path):
        items = page.get("items")
        found += [item for item in (items if isinstance(items, list) else []) if isinstance(item, dict)]
    return found
