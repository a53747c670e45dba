"""A client of the management cluster whose writes stay in memory. It sends no write.

Create, replace, patch and delete behave as at the API server, preconditions included, so that the controller's code for
reservations and records runs to completion. The client keeps a description of each write.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any

from signer.kube.calls import GetList
from signer.kube.client import LIST_PAGE_OBJECTS, WATCH_IDLE_SECONDS, JsonObject, Parameters
from signer.kube.errors import AlreadyExists, Conflict, NotFound
from signer.kube.resources import segment
from signer.model.decision import printable
from signer.model.fields import mapping_of, text_of


@dataclass(frozen=True, slots=True)
class _Deleted:
    """The object would have been deleted."""


class DryRunClient:
    """The calls of :class:`~signer.kube.client.Client`: reads go to the source, writes stay in memory."""

    def __init__(self, source: GetList) -> None:
        self._source = source
        self._written: dict[str, JsonObject | _Deleted] = {}
        self._versions = 0
        self._intended: list[str] = []

    @property
    def intended(self) -> tuple[str, ...]:
        """Descriptions of the writes, in order."""
        return tuple(self._intended)

    async def get(self, path: str) -> JsonObject:
        """See Client."""
        written = self._written.get(path)
        if isinstance(written, _Deleted):
            raise NotFound("it would have been deleted", status=404)
        return copy.deepcopy(written) if written is not None else await self._source.get(path)

    def list_pages(
        self,
        path: str,
        params: Parameters | None = None,
        limit: int = LIST_PAGE_OBJECTS,
        *,
        maximum_bytes: int | None = None,
    ) -> AsyncGenerator[JsonObject, None]:
        """See Client. The lists lack this client's own writes: a dry run lists everything before it decides."""
        return self._source.list_pages(path, params, limit, maximum_bytes=maximum_bytes)

    def watch(
        self,
        path: str,
        params: Parameters | None = None,
        *,
        timeout_seconds: float,
        idle_seconds: float = WATCH_IDLE_SECONDS,
        accepted: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[JsonObject, None]:
        """Not implemented: a dry run never watches."""
        raise NotImplementedError("a dry run does not watch")

    async def create(self, path: str, body: JsonObject) -> JsonObject:
        """Create an object in memory.

        Raises:
            AlreadyExists: the object exists.
            ApiError: see Client.
        """
        target = f"{path}/{segment(text_of(mapping_of(body, 'metadata'), 'name'))}"
        try:
            await self.get(target)
        except NotFound:
            self._versions += 1
            metadata = {**body["metadata"], "uid": f"dry-run-{self._versions}"}
            return self._write("create", target, {**body, "metadata": metadata})
        raise AlreadyExists("it exists", status=409, reason="AlreadyExists")

    async def replace(self, path: str, body: JsonObject) -> JsonObject:
        """Replace an object in memory."""
        current = await self.get(path)
        wanted = mapping_of(body, "metadata")
        _require_same(current, wanted.get("uid"), wanted.get("resourceVersion"))
        return self._write("change", path, body)

    async def patch(self, path: str, patch: JsonObject) -> JsonObject:
        """Apply a merge patch (RFC 7386) in memory."""
        current = await self.get(path)
        wanted = mapping_of(patch, "metadata")
        _require_same(current, wanted.get("uid"), wanted.get("resourceVersion"))
        return self._write("change", path, _merged(current, patch))

    async def delete(self, path: str, *, uid: str | None = None, resource_version: str | None = None) -> JsonObject:
        """Delete an object in memory."""
        current = await self.get(path)
        _require_same(current, uid, resource_version)
        self._describe("delete", current)
        self._written[path] = _Deleted()
        return current

    def _write(self, verb: str, path: str, manifest: JsonObject) -> JsonObject:
        self._versions += 1
        written = {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": f"dry-run-{self._versions}"}}
        self._written[path] = written
        self._describe(verb, written)
        return copy.deepcopy(written)

    def _describe(self, verb: str, manifest: JsonObject) -> None:
        metadata = mapping_of(manifest, "metadata")
        name = f"{text_of(metadata, 'namespace')}/{text_of(metadata, 'name')}"
        self._intended.append(printable(f"{verb} {text_of(manifest, 'kind') or 'object'} {name}"))


def _require_same(current: JsonObject, uid: Any, resource_version: Any) -> None:
    metadata = mapping_of(current, "metadata")
    for wanted, key in ((uid, "uid"), (resource_version, "resourceVersion")):
        if wanted is not None and metadata.get(key) != wanted:
            raise Conflict(f"{key} is not the one that was read", status=409)


def _merged(target: Any, patch: JsonObject) -> JsonObject:
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value) if isinstance(value, dict) else value
    return merged
