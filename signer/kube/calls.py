"""The calls to an API server that a part of the controller uses, each as a Protocol of its own.

Whoever makes calls asks for what it uses and no more: a signature shows the verbs, and a test needs to answer only
those. :class:`~signer.kube.client.Client` has them all.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Protocol

from signer.kube.client import LIST_PAGE_OBJECTS, JsonObject, Parameters


class Get(Protocol):
    """Reads one object."""

    async def get(self, path: str) -> JsonObject:
        """See Client."""
        ...


class List(Protocol):
    """Reads a collection, page by page."""

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


class Watch(Protocol):
    """Follows a collection."""

    def watch(
        self,
        path: str,
        params: Parameters | None = None,
        *,
        timeout_seconds: float,
        accepted: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[JsonObject, None]:
        """See Client."""
        ...


class Create(Protocol):
    """Creates one object, or asks a review."""

    async def create(self, path: str, body: JsonObject) -> JsonObject:
        """See Client."""
        ...


class Replace(Protocol):
    """Writes one object whole: RBAC's update."""

    async def replace(self, path: str, body: JsonObject) -> JsonObject:
        """See Client."""
        ...


class Patch(Protocol):
    """Changes fields of one object."""

    async def patch(self, path: str, patch: JsonObject) -> JsonObject:
        """See Client."""
        ...


class Delete(Protocol):
    """Deletes one object."""

    async def delete(self, path: str, *, uid: str | None = None, resource_version: str | None = None) -> JsonObject:
        """See Client."""
        ...


class GetList(Get, List, Protocol):
    """Reads."""


class ListWatch(List, Watch, Protocol):
    """What an informer needs."""


class GetListWatch(Get, ListWatch, Protocol):
    """An informer that first finds out what is served."""


class GetCreate(Get, Create, Protocol):
    """Reads, and creates what is not there."""


class GetPatch(Get, Patch, Protocol):
    """Reads, and changes fields."""


class GetDelete(Get, Delete, Protocol):
    """Looks once more, and deletes."""


class ListCreate(List, Create, Protocol):
    """Reads collections, and asks reviews."""


class ListPatch(List, Patch, Protocol):
    """Reads a collection, and changes fields of its objects."""


class GetCreatePatch(GetCreate, Patch, Protocol):
    """Creates, or changes fields of what is there."""


class GetCreateReplace(GetCreate, Replace, Protocol):
    """Creates, or writes anew what is there."""


class GetListCreateReplace(GetCreateReplace, List, Protocol):
    """The same for the objects of a collection."""


class GetListCreateReplaceDelete(GetListCreateReplace, Delete, Protocol):
    """The same, and deletes them."""


class GetCreatePatchDelete(GetCreatePatch, Delete, Protocol):
    """Creates, changes fields and deletes."""


class Manage(GetCreatePatchDelete, List, Protocol):
    """Reads, lists, creates, changes fields and deletes."""
