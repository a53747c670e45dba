"""Removing and giving back grants under every order of calls, crashes included.

Each actor is a coroutine without an event loop: one step carries out the call it stands at and runs on to the next. An
actor that crashes leaves its call undone, or still on its way: then it arrives at any later time.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Iterator
from random import Random
from typing import Any, Final

from signer.kube.client import JsonObject, Parameters
from signer.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from signer.kube.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, CONFIG_MAPS
from signer.model.auto_approval import ClusterIdentity, ClusterRoleBinding, parse_cluster_role_binding
from signer.model.cluster import ClusterKey
from signer.model.saved_bindings import lineage_field
from signer.model.seal import ControllerKeys
from signer.store.removed_bindings import RemovedBindings

NAMESPACE: Final = "own"
KEYS: Final = ControllerKeys(bytes(range(32)))
OWNER: Final = ClusterIdentity(ClusterKey("team-a", "one"), "c-1", f"sha256:{'aa' * 32}")
EARLIER: Final = ClusterIdentity(OWNER.key, "c-0", f"sha256:{'cc' * 32}")
ROTATED: Final = ClusterIdentity(OWNER.key, OWNER.uid, f"sha256:{'dd' * 32}")
"""The same Cluster under its former CA."""
ROLE: Final = "system:certificates.k8s.io:certificatesigningrequests:nodeclient"
NAMES: Final = ("first", "second")
BINDINGS: Final = CLUSTER_ROLE_BINDINGS.collection()


def removed_bindings(management: Any, namespace: str = NAMESPACE, keys: ControllerKeys = KEYS) -> RemovedBindings:
    """The saved bindings of a controller with these keys."""
    return RemovedBindings(management, namespace, lambda: keys)


def binding_manifest(name: str, role: str = ROLE, **metadata: Any) -> JsonObject:
    """A binding as a client creates it."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name, "labels": {"team": name}, "annotations": {"note": "mine"}, **metadata},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": [
            {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": f"system:bootstrappers:{name}"}
        ],
    }


def role_manifest(name: str = ROLE, *resources: str, **fields: Any) -> JsonObject:
    """A role of the certificates group."""
    wanted = list(resources) or ["certificatesigningrequests/nodeclient"]
    rule = {"apiGroups": ["certificates.k8s.io"], "resources": wanted, "verbs": ["create"]}
    return {"metadata": {"name": name}, "rules": [rule], **fields}


class ObjectStore:
    """The objects of both clusters by path, with preconditions as in an API server; stored objects are copies."""

    def __init__(self) -> None:
        self.objects: dict[str, JsonObject] = {}
        self._numbers = itertools.count(1)
        self.failures: dict[str, ApiError] = {}
        """Errors by ``METHOD path``, raised instead of executing the call."""
        self.calls: list[str] = []

    async def get(self, path: str) -> JsonObject:
        return self.do("GET", path, lambda: self._found(path))

    async def create(self, path: str, body: JsonObject) -> JsonObject:
        return self.do("POST", path, lambda: self._create(path, body))

    async def patch(self, path: str, patch: JsonObject) -> JsonObject:
        return self.do("PATCH", path, lambda: self._patch(path, patch))

    async def delete(self, path: str, *, uid: str | None = None, resource_version: str | None = None) -> JsonObject:
        return self.do("DELETE", path, lambda: self._delete(path, uid, resource_version))

    async def list_pages(
        self, path: str, params: Parameters | None = None, *arguments: Any, **options: Any
    ) -> AsyncGenerator[JsonObject, None]:
        if f"GET {path}" in self.failures:
            raise self.failures[f"GET {path}"]
        label = str((params or {}).get("labelSelector", ""))
        for name, found in list(self.objects.items()):
            if name.startswith(f"{path}/") and (not label or label in (found["metadata"].get("labels") or {})):
                yield {"items": [copy.deepcopy(found)]}

    def do(self, method: str, path: str, carry_out: Callable[[], JsonObject]) -> JsonObject:
        self.calls.append(f"{method} {path}")
        if f"{method} {path}" in self.failures:
            raise self.failures[f"{method} {path}"]
        return copy.deepcopy(carry_out())

    def put(self, path: str, manifest: JsonObject) -> JsonObject:
        """Create or replace without any precondition."""
        number = str(next(self._numbers))
        stored = copy.deepcopy(manifest)
        stored["metadata"] = {"uid": f"uid-{number}", **stored["metadata"], "resourceVersion": number}
        self.objects[path] = stored
        return stored

    def _found(self, path: str) -> JsonObject:
        if path not in self.objects:
            raise NotFound(path, status=404)
        return self.objects[path]

    def _create(self, path: str, body: JsonObject) -> JsonObject:
        assert not {"uid", "resourceVersion"} & set(body["metadata"])
        if path == CONFIG_MAPS.collection(NAMESPACE):
            assert (body["apiVersion"], body["kind"], body["metadata"]["namespace"]) == ("v1", "ConfigMap", NAMESPACE)
        full = f"{path}/{body['metadata']['name']}"
        if full in self.objects:
            raise AlreadyExists(full, status=409)
        return self.put(full, body)

    def _patch(self, path: str, patch: JsonObject) -> JsonObject:
        found = self._found(path)
        change = patch["metadata"]
        self._precondition(found, change["uid"], change["resourceVersion"])
        merged = copy.deepcopy(found)
        for name, text in (change.get("annotations") or {}).items():
            annotations = merged["metadata"].setdefault("annotations", {})
            annotations.pop(name, None)
            if text is not None:
                annotations[name] = text
        data = {**(merged.get("data") or {}), **patch.get("data", {})}
        merged["data"] = {field: text for field, text in data.items() if text is not None}
        if not merged["data"]:
            del merged["data"]
        return found if merged == found else self.put(path, merged)

    def _delete(self, path: str, uid: str | None, resource_version: str | None) -> JsonObject:
        self._precondition(self._found(path), uid, resource_version)
        if self.objects[path]["metadata"].get("finalizers"):
            marked = copy.deepcopy(self.objects[path])
            marked["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            return self.put(path, marked)
        return self.objects.pop(path)

    def _precondition(self, found: JsonObject, uid: str | None, resource_version: str | None) -> None:
        metadata = found["metadata"]
        if uid not in (None, metadata["uid"]) or resource_version not in (None, metadata["resourceVersion"]):
            raise Conflict(metadata["name"], status=409)

    def bodies(self) -> dict[str, Any]:
        """The existing bindings, as a client would create them."""
        found = {}
        for path, manifest in self.objects.items():
            if path.startswith(f"{BINDINGS}/"):
                metadata = {k: v for k, v in manifest["metadata"].items() if k not in ("uid", "resourceVersion")}
                found[manifest["metadata"]["name"]] = {**manifest, "metadata": metadata}
        return found

    def config_maps(self) -> list[JsonObject]:
        """The saved bindings."""
        prefix = f"{CONFIG_MAPS.collection(NAMESPACE)}/"
        return [manifest for path, manifest in self.objects.items() if path.startswith(prefix)]


class _Point:
    def __await__(self) -> Generator[None, None, None]:
        yield


class _ActorCalls(ObjectStore):
    """One actor's client: every call is a scheduling point."""

    def __init__(self, world: RemovalWorld) -> None:
        super().__init__()
        self._world = world
        self.pending: Callable[[], Any] = lambda: None

    async def _at(self, carry_out: Callable[[], JsonObject]) -> JsonObject:
        self.pending = carry_out
        await _Point()
        return copy.deepcopy(carry_out())

    async def get(self, path: str) -> JsonObject:
        return await self._at(lambda: self._world.store._found(path))

    async def create(self, path: str, body: JsonObject) -> JsonObject:
        return await self._at(lambda: self._world.store._create(path, body))

    async def patch(self, path: str, patch: JsonObject) -> JsonObject:
        return await self._at(lambda: self._world.store._patch(path, patch))

    async def delete(self, path: str, *, uid: str | None = None, resource_version: str | None = None) -> JsonObject:
        return await self._at(lambda: self._world.store._delete(path, uid, resource_version))


class RemovalWorld:
    """Both clusters, removers and restorers, and calls that are still under way."""

    def __init__(self, actors: str) -> None:
        """``actors``: a letter for each, ``-`` removes and ``+`` restores; ``r`` restores under the next CA, ``>``
        follows to it. After a ``.`` all was removed before, and after a ``~`` something is kept that was removed from
        an earlier cluster of the name."""
        self.store = ObjectStore()
        self.schedule: list[str] = []
        self.store.put(CLUSTER_ROLES.object(ROLE), role_manifest())
        for name in NAMES:
            self.store.put(CLUSTER_ROLE_BINDINGS.object(name), binding_manifest(name))
        self.original = self.store.bodies()
        self._calls: dict[int, _ActorCalls] = {}
        self._running: dict[int, Coroutine[Any, Any, None]] = {}
        self._on_the_way: list[Callable[[], Any]] = []
        self._others: dict[str, str] = {}
        if actors.startswith("~"):
            self._alone(_remove_from_an_earlier_cluster)
            self._others = self._lineages()
        if actors.startswith((".", "~.")):
            self._alone(_remove)
        for number, kind in enumerate(actors.lstrip(".~")):
            self._start(number, _ACTS[kind])

    def _start(self, number: int, act: Callable[[_ActorCalls], Coroutine[Any, Any, None]]) -> None:
        calls = self._calls[number] = _ActorCalls(self)
        self._running[number] = act(calls)
        self._running[number].send(None)

    def choices(self, crashes_left: int) -> list[str]:
        found = [f"step {number}" for number in self._running]
        if crashes_left:
            found += [f"{how} {number}" for number in self._running for how in ("dies", "dies-calling")]
        return [*found, *(f"arrives {number}" for number in range(len(self._on_the_way)))]

    def happen(self, choice: str) -> None:
        self.schedule.append(choice)
        kind, number = choice.split()
        if kind == "step":
            self._step(int(number))
        elif kind == "arrives":
            self._arrive(int(number))
        else:
            if kind == "dies-calling":
                self._on_the_way.append(self._calls[int(number)].pending)
            self._running.pop(int(number)).close()
        self.check()

    def _step(self, number: int) -> None:
        try:
            self._running[number].send(None)
        except StopIteration:
            del self._running[number]

    def _arrive(self, number: int) -> None:
        with contextlib.suppress(ApiError):  # the caller is gone
            self._on_the_way.pop(number)()

    def check(self) -> None:
        """Every binding is in the cluster, or saved."""
        kept = self._lineages().get(lineage_field(OWNER), "")
        there = self.store.bodies()
        for name in NAMES:
            assert name in there or f'"name": "{name}"' in kept, f"{name} is lost: {self.schedule}"

    def finish(self) -> None:
        """All other actors are gone: a restorer runs, then the pending calls arrive, then a restorer runs again."""
        while self._on_the_way:
            self._alone(_restore)
            self._arrive(0)
            self.check()
        self._alone(_restore)
        assert self.store.bodies() == self.original, self.schedule
        assert self._lineages() == self._others, self.schedule
        assert bool(self.store.config_maps()) == bool(self._others), self.schedule

    def _lineages(self) -> dict[str, str]:
        fields = {field: text for kept in self.store.config_maps() for field, text in kept["data"].items()}
        return {field: text for field, text in fields.items() if field not in ("clusterNamespace", "clusterName")}

    def _alone(self, act: Callable[[_ActorCalls], Coroutine[Any, Any, None]]) -> None:
        self._start(-1, act)
        while -1 in self._running:
            self._step(-1)
            self.check()

    def close(self) -> None:
        for coroutine in self._running.values():
            coroutine.close()


async def _remove(calls: _ActorCalls) -> None:
    """The removal, as under Enforce."""
    try:
        found = [parse_cluster_role_binding(await calls.get(CLUSTER_ROLE_BINDINGS.object(name))) for name in NAMES]
    except NotFound:
        return
    await removed_bindings(calls).save(OWNER, found)
    for binding in found:
        try:
            path = CLUSTER_ROLE_BINDINGS.object(binding.name)
            await calls.delete(path, uid=binding.uid, resource_version=binding.resource_version)
        except (NotFound, Conflict):
            continue


async def _remove_from_an_earlier_cluster(calls: _ActorCalls) -> None:
    """The same names, so that one lineage could pass for the other."""
    found = [ClusterRoleBinding(name, "uid-earlier", "1", ROLE, ()) for name in NAMES]
    await removed_bindings(calls).save(EARLIER, found)


async def _restore(calls: _ActorCalls) -> None:
    await removed_bindings(calls).restore(OWNER, calls)


async def _restore_under_the_next_ca(calls: _ActorCalls) -> None:
    await removed_bindings(calls).restore(ROTATED, calls)


async def _follow(calls: _ActorCalls) -> None:
    """The update of the lineage after a rotation of the CA."""
    await removed_bindings(calls).update_lineage(ROTATED)


_ACTS: Final = {"-": _remove, "+": _restore, "r": _restore_under_the_next_ca, ">": _follow}


def schedules(actors: str, crashes: int, random: Random, count: int) -> Iterator[RemovalWorld]:
    """That many random schedules, each run to its end."""
    for _ in range(count):
        world, left = RemovalWorld(actors), crashes
        while choices := world.choices(left):
            # Crashes are rarer than steps; otherwise no run would get far.
            steps = [choice for choice in choices if not choice.startswith("dies")]
            chosen = random.choice(steps if random.random() < 0.9 and steps else choices)
            left -= chosen.startswith("dies")
            world.happen(chosen)
        yield world


def every_schedule(actors: str, crashes: int) -> Iterator[RemovalWorld]:
    """Every schedule, each run from the beginning."""
    prefixes: list[list[str]] = [[]]
    while prefixes:
        prefix = prefixes.pop()
        world, left = RemovalWorld(actors), crashes
        for choice in prefix:
            left -= choice.startswith("dies")
            world.happen(choice)
        while choices := world.choices(left):
            prefixes += [[*world.schedule, other] for other in choices[1:]]
            world.happen(choices[0])
        yield world
