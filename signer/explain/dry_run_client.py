"""A management cluster with what the controller would write drawn over it. Nothing is ever sent.

Creating, changing and deleting behave as at the API server, preconditions included, so that the controller's own code
for reservations and records runs to its end; what it wanted to write is kept, in words.
"""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Any

from signer.kube.calls import GetList
from signer.kube.client import LIST_PAGE_OBJECTS, JsonObject, Parameters
from signer.kube.errors import AlreadyExists, Conflict, NotFound
from signer.kube.resources import segment
from signer.model.decision import printable
from signer.model.fields import mapping_of, text_of


@dataclass(frozen=True, slots=True)
class _Deleted:
    """It would be gone."""


class DryRunClient:
    """The calls of :class:`~signer.kube.client.Client`: reads go to the source, writes into the sketch."""

    def __init__(self, source: GetList) -> None:
        self._source = source
        self._drawn: dict[str, JsonObject | _Deleted] = {}
        self._versions = 0
        self._intended: list[str] = []

    @property
    def intended(self) -> tuple[str, ...]:
        """What would have been written, in words, in its order."""
        return tuple(self._intended)

    async def get(self, path: str) -> JsonObject:
        """See Client."""
        drawn = self._drawn.get(path)
        if isinstance(drawn, _Deleted):
            raise NotFound("it would have been deleted", status=404)
        return copy.deepcopy(drawn) if drawn is not None else await self._source.get(path)

    def list_pages(
        self,
        path: str,
        params: Parameters | None = None,
        limit: int = LIST_PAGE_OBJECTS,
        *,
        maximum_bytes: int | None = None,
    ) -> AsyncGenerator[JsonObject, None]:
        """See Client; what was drawn is not in it, because everything is listed before anything is judged."""
        return self._source.list_pages(path, params, limit, maximum_bytes=maximum_bytes)

    def watch(
        self,
        path: str,
        params: Parameters | None = None,
        *,
        timeout_seconds: float,
        accepted: Callable[[], None] = lambda: None,
    ) -> AsyncGenerator[JsonObject, None]:
        """Part of the calls, and never used: a sketch is looked at once."""
        raise NotImplementedError("a sketch is not watched")

    async def create(self, path: str, body: JsonObject) -> JsonObject:
        """Draw an object where there is none.

        Raises:
            AlreadyExists: there is one.
            ApiError: as Client.
        """
        target = f"{path}/{segment(text_of(mapping_of(body, 'metadata'), 'name'))}"
        try:
            await self.get(target)
        except NotFound:
            self._versions += 1
            metadata = {**body["metadata"], "uid": f"sketched-{self._versions}"}
            return self._draw("create", target, {**body, "metadata": metadata})
        raise AlreadyExists("it exists", status=409, reason="AlreadyExists")

    async def replace(self, path: str, body: JsonObject) -> JsonObject:
        """Draw another version of an object."""
        current = await self.get(path)
        wanted = mapping_of(body, "metadata")
        _require_same(current, wanted.get("uid"), wanted.get("resourceVersion"))
        return self._draw("change", path, body)

    async def patch(self, path: str, patch: JsonObject) -> JsonObject:
        """Draw an object as a merge patch (RFC 7386) leaves it."""
        current = await self.get(path)
        wanted = mapping_of(patch, "metadata")
        _require_same(current, wanted.get("uid"), wanted.get("resourceVersion"))
        return self._draw("change", path, _merged(current, patch))

    async def delete(self, path: str, *, uid: str | None = None, resource_version: str | None = None) -> JsonObject:
        """Draw an object as gone."""
        current = await self.get(path)
        _require_same(current, uid, resource_version)
        self._intend("delete", current)
        self._drawn[path] = _Deleted()
        return current

    def _draw(self, verb: str, path: str, manifest: JsonObject) -> JsonObject:
        self._versions += 1
        drawn = {**manifest, "metadata": {**manifest["metadata"], "resourceVersion": f"sketched-{self._versions}"}}
        self._drawn[path] = drawn
        self._intend(verb, drawn)
        return copy.deepcopy(drawn)

    def _intend(self, verb: str, manifest: JsonObject) -> None:
        metadata = mapping_of(manifest, "metadata")
        name = f"{text_of(metadata, 'namespace')}/{text_of(metadata, 'name')}"
        self._intended.append(printable(f"{verb} {text_of(manifest, 'kind') or 'object'} {name}"))


def _require_same(current: JsonObject, uid: Any, resource_version: Any) -> None:
    metadata = mapping_of(current, "metadata")
    for wanted, key in ((uid, "uid"), (resource_version, "resourceVersion")):
        if wanted is not None and metadata.get(key) != wanted:
            raise Conflict(f"another {key} than was read", status=409)


def _merged(target: Any, patch: JsonObject) -> JsonObject:
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value) if isinstance(value, dict) else value
    return merged
