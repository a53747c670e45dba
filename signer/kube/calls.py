"""The calls to an API server, each as a Protocol of its own.

A component's signature names only the calls that it uses. It thus shows the verbs, and a test implements only those.
:class:`~signer.kube.client.Client` implements all of them.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Protocol

from signer.kube.client import LIST_PAGE_OBJECTS, WATCH_IDLE_SECONDS, JsonObject, Parameters


class Get(Protocol):
    """Reads one object."""

    async def get(self, path: str) -> JsonObject:
        """See Client."""
        ...


class Query(Protocol):
    """Reads one object, or with parameters a list that is known to be small."""

    async def get(self, path: str, params: Parameters | None = None) -> JsonObject:
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
    """Watches a collection."""

    def watch(
        self,
        path: str,
        params: Parameters | None = None,
        *,
        timeout_seconds: float,
        idle_seconds: float = WATCH_IDLE_SECONDS,
        accepted: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[JsonObject, None]:
        """See Client."""
        ...


class Create(Protocol):
    """Creates one object or review."""

    async def create(self, path: str, body: JsonObject) -> JsonObject:
        """See Client."""
        ...


class Replace(Protocol):
    """Replaces one whole object (RBAC verb ``update``)."""

    async def replace(self, path: str, body: JsonObject) -> JsonObject:
        """See Client."""
        ...


class Patch(Protocol):
    """Changes fields of one object."""

    async def patch(self, path: str, patch: JsonObject) -> JsonObject:
        """See Client."""
        ...


class DryRun(Protocol):
    """Creates an object, or changes fields of one, with parameters such as ``dryRun``."""

    async def create(self, path: str, body: JsonObject, params: Parameters | None = None) -> JsonObject:
        """See Client."""
        ...

    async def patch(
        self,
        path: str,
        patch: JsonObject,
        content_type: str = "application/merge-patch+json",
        params: Parameters | None = None,
    ) -> JsonObject:
        """See Client."""
        ...


class Delete(Protocol):
    """Deletes one object."""

    async def delete(self, path: str, *, uid: str | None = None, resource_version: str | None = None) -> JsonObject:
        """See Client."""
        ...


class GetList(Get, List, Protocol):
    """Reads objects and collections."""


class ListWatch(List, Watch, Protocol):
    """The calls of an informer."""


class GetListWatch(Get, ListWatch, Protocol):
    """The calls of an informer that first discovers the served version."""


class GetCreate(Get, Create, Protocol):
    """Reads objects, and creates missing ones."""


class QueryTypedPatch(Query, Protocol):
    """Reads, and changes fields of one object by a patch of a stated type."""

    async def patch(self, path: str, patch: JsonObject, content_type: str) -> JsonObject:
        """See Client."""
        ...


class GetPatch(Get, Patch, Protocol):
    """Reads objects and changes their fields."""


class GetDelete(Get, Delete, Protocol):
    """Reads objects and deletes them."""


class GetDryRun(Get, DryRun, Protocol):
    """Reads objects, and tries changes."""


class ListCreate(List, Create, Protocol):
    """Reads collections and creates reviews."""


class ListPatch(List, Patch, Protocol):
    """Reads a collection and changes fields of its objects."""


class GetCreatePatch(GetCreate, Patch, Protocol):
    """Creates objects, or changes fields of existing ones."""


class GetCreateReplace(GetCreate, Replace, Protocol):
    """Creates objects, or replaces existing ones."""


class GetListCreateReplace(GetCreateReplace, List, Protocol):
    """Creates or replaces the objects of a collection."""


class GetListCreateReplaceDelete(GetListCreateReplace, Delete, Protocol):
    """Creates, replaces or deletes the objects of a collection."""


class GetCreatePatchDelete(GetCreatePatch, Delete, Protocol):
    """Creates objects, changes their fields and deletes them."""


class GetCreateReplacePatchDelete(GetCreatePatchDelete, Replace, Protocol):
    """Reads, creates, replaces, changes fields and deletes."""


class Manage(GetCreatePatchDelete, List, Protocol):
    """Reads, lists, creates, changes fields and deletes."""


class ManageDryRun(DryRun, Manage, Protocol):
    """The same, and tries what it creates or changes."""
