"""Takes a namespace over a limit of a cache."""

from __future__ import annotations

from typing import Any

from signer.store.cache import Cache


def exceed(cache: Cache[Any], namespace: str) -> None:
    """The watch reports one object more than the limit, which every object is then."""
    cache._bound.limit = 0
    cache.added({"metadata": {"namespace": namespace, "name": "one-too-many", "resourceVersion": "1"}})
    assert cache.drops(namespace)


def relist(cache: Cache[Any], *manifests: dict[str, Any]) -> None:
    """A list shows exactly these objects, which are within the limit again."""
    cache._bound.limit = max(len(manifests), 1)
    cache.list_begins()
    cache.replaced(manifests)
