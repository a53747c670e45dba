"""An API server's objects in memory: resource versions, preconditions, lists, watches, and faults at every call."""

from __future__ import annotations

import enum
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from signer.kube.client import JsonObject, Parameters
from signer.kube.connection import ClusterConnection
from signer.kube.errors import AlreadyExists, Conflict, Invalid, NotFound
from signer.model.fields import format_time
from signer.store.cache import Cache
from signer.testing.api.patches import merge

WRITES: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
SERVER: Final = ClusterConnection("https://10.0.0.1:6443", b"")


def copied(manifest: JsonObject) -> JsonObject:
    """A copy of JSON, in a fifth of the time that ``copy.deepcopy`` takes."""
    return {key: _copied(value) for key, value in manifest.items()}


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return copied(value)
    return [_copied(one) for one in value] if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class Collection:
    """One collection; an empty namespace means all."""

    root: str
    namespace: str
    plural: str

    def has(self, other: Collection) -> bool:
        """Whether objects of ``other`` are listed here."""
        return (self.root, self.plural) == (other.root, other.plural) and self.namespace in ("", other.namespace)


def split(path: str, *, is_object: bool) -> tuple[Collection, str]:
    """Collection and name of a path."""
    parts = path.strip("/").split("/")
    name = parts.pop() if is_object else ""
    cut = 2 if parts[0] == "api" else 3
    root, rest = "/".join(parts[:cut]), parts[cut:]
    if rest[0] == "namespaces" and len(rest) == 3:
        return Collection(root, rest[1], rest[2]), name
    return Collection(root, "", rest[0]), name


@dataclass
class Objects:
    """What an API server keeps. Copied as a whole, it is a backup."""

    found: dict[str, JsonObject] = field(default_factory=dict)
    version: int = 0
    now: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    contents: dict[str, list[JsonObject]] = field(default_factory=dict)
    """Every content that an object ever had, by path."""

    def put(self, path: str, manifest: JsonObject) -> JsonObject:
        """Store without any precondition."""
        self.version += 1
        collection, name = split(path, is_object=True)
        stored = copied(manifest)
        given = {"name": name, "uid": f"uid-{self.version}", "creationTimestamp": format_time(self.now)}
        if collection.namespace:
            given["namespace"] = collection.namespace
        stored["metadata"] = {**given, **(stored.get("metadata") or {}), "resourceVersion": str(self.version)}
        self.found[path] = stored
        self.contents.setdefault(path, []).append(stored)
        return stored


class Moment(enum.Enum):
    """When a fault happens."""

    BEFORE = "before the call"
    AFTER = "after its effect, so that the answer is lost"


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a client."""

    method: str
    path: str

    @property
    def writes(self) -> bool:
        """Whether it changes something."""
        return self.method in WRITES


class Interfere:
    """Called before and after each call; it may raise, or wait."""

    async def __call__(self, call: Call, moment: Moment) -> None:
        """Nothing happens."""


class MemoryAPI:
    """The API server: its objects, and the caches that watch them."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects
        self.watches: list[tuple[Collection, Cache[Any]]] = []
        self.changed: Callable[[str], None] = lambda path: None

    def put(self, path: str, manifest: JsonObject) -> JsonObject:
        """Store an object as another client does, without preconditions."""
        stored = self.objects.put(path, manifest)
        self._tell(path, stored, gone=False)
        return copied(stored)

    def remove(self, path: str) -> None:
        """Delete an object, as another client does."""
        self._tell(path, self.objects.found.pop(path), gone=True)

    def edit(self, path: str, patch: JsonObject) -> JsonObject:
        """Merge a patch, as another client does."""
        return self.put(path, merge(self.objects.found[path], patch))

    def _tell(self, path: str, stored: JsonObject, *, gone: bool) -> None:
        collection, _ = split(path, is_object=True)
        for watched, cache in list(self.watches):
            if watched.has(collection):
                (cache.removed if gone else cache.applied)(copied(stored))
        self.changed(path)

    # Calls with preconditions

    def get(self, path: str) -> JsonObject:
        """Raises NotFound."""
        if path not in self.objects.found:
            raise NotFound(path, status=404)
        return copied(self.objects.found[path])

    def create(self, path: str, body: JsonObject) -> JsonObject:
        """Raises AlreadyExists."""
        assert not {"uid", "resourceVersion"} & set(body["metadata"]), "an API server refuses to create such an object"
        full = f"{path}/{body['metadata']['name']}"
        if full in self.objects.found:
            raise AlreadyExists(full, status=409)
        return self.put(full, body)

    def replace(self, path: str, body: JsonObject) -> JsonObject:
        """Raises Conflict or NotFound."""
        found = self.get(path)
        _require_same(found, body["metadata"])
        if found.get("type") != body.get("type") or found.get("immutable"):
            raise Invalid("type, or an immutable object", status=422)
        kept = {key: found["metadata"][key] for key in ("uid", "creationTimestamp", "resourceVersion")}
        wanted = {**body, "metadata": {**body["metadata"], **kept}}
        return found if wanted == found else self.put(path, wanted)

    def patch(self, path: str, patch: JsonObject) -> JsonObject:
        """A merge patch. Raises Conflict or NotFound."""
        found = self.get(path)
        _require_same(found, patch.get("metadata") or {})
        wanted = merge(found, patch)
        return found if wanted == found else self.put(path, wanted)

    def delete(self, path: str, preconditions: Mapping[str, str | None]) -> JsonObject:
        """Raises Conflict or NotFound."""
        found = self.get(path)
        _require_same(found, {name: value for name, value in preconditions.items() if value is not None})
        self.remove(path)
        return found

    def listed(self, path: str, params: Parameters) -> list[JsonObject]:
        """The objects of a collection."""
        collection, _ = split(path, is_object=False)
        found = []
        for own, manifest in self.objects.found.items():
            if collection.has(split(own, is_object=True)[0]) and _selected(manifest, params):
                found.append(copied(manifest))
        return found


def _require_same(found: JsonObject, given: JsonObject) -> None:
    for name in ("uid", "resourceVersion"):
        if given.get(name, found["metadata"][name]) != found["metadata"][name]:
            raise Conflict(f"{name} is not that of the object", status=409)


def _selected(manifest: JsonObject, params: Parameters) -> bool:
    name, _, value = str(params.get("labelSelector", "")).partition("=")
    if name and (manifest["metadata"].get("labels") or {}).get(name) != value:
        return False
    field_name, _, wanted = str(params.get("fieldSelector", "")).partition("=")
    values = {"": "", "metadata.name": manifest["metadata"]["name"], "type": manifest.get("type")}
    return values.get(field_name) == wanted


class MemoryClient:
    """One client of an API server."""

    def __init__(self, api: MemoryAPI, interfere: Interfere) -> None:
        self.api = api
        self.interfere = interfere
        self.server = SERVER
        self.calls: list[Call] = []

    async def _do(self, method: str, path: str, carry_out: Callable[[], JsonObject]) -> JsonObject:
        call = Call(method, path)
        self.calls.append(call)
        await self.interfere(call, Moment.BEFORE)
        answer = carry_out()
        await self.interfere(call, Moment.AFTER)
        return answer

    def get(self, path: str) -> Awaitable[JsonObject]:
        return self._do("GET", path, lambda: self.api.get(path))

    def create(self, path: str, body: JsonObject) -> Awaitable[JsonObject]:
        return self._do("POST", path, lambda: self.api.create(path, body))

    def replace(self, path: str, body: JsonObject) -> Awaitable[JsonObject]:
        return self._do("PUT", path, lambda: self.api.replace(path, body))

    def patch(self, path: str, patch: JsonObject) -> Awaitable[JsonObject]:
        return self._do("PATCH", path, lambda: self.api.patch(path, patch))

    def delete(
        self, path: str, *, uid: str | None = None, resource_version: str | None = None
    ) -> Awaitable[JsonObject]:
        return self._do(
            "DELETE", path, lambda: self.api.delete(path, {"uid": uid, "resourceVersion": resource_version})
        )

    async def list_pages(
        self, path: str, params: Parameters | None = None, *arguments: Any, **options: Any
    ) -> AsyncGenerator[JsonObject, None]:
        found = await self._do("LIST", path, lambda: {"items": self.api.listed(path, params or {})})
        yield found
