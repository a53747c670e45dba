"""Where objects are read from: a management cluster, or a recording of one."""

from __future__ import annotations

from signer.kube.calls import GetList
from signer.kube.client import JsonObject


async def items_of_list(source: GetList, path: str) -> list[JsonObject]:
    """All objects of a collection.

    Raises:
        ApiError: it cannot be listed.
    """
    found: list[JsonObject] = []
    async for page in source.list_pages(path):
        items = page.get("items")
        found += [item for item in (items if isinstance(items, list) else []) if isinstance(item, dict)]
    return found
