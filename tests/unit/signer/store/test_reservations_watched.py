"""A first reservation with a working watch: the number of calls, and the wait for events."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from attestors.contract import Security
from signer.kube.client import JsonObject
from signer.kube.errors import AlreadyExists, Cause, NotFound, Unreachable
from signer.model.floors import NO_FLOORS
from signer.model.reservation import Pair, ReservationSide
from signer.rules.machine import NoRecord
from signer.store import reservations as module
from signer.store.cache import Cache
from signer.store.caches import Caches
from signer.store.reservations import Reservations
from tests.support.reservations import ATTESTED, KEYS
from tests.unit.signer.store.scenario import NAMESPACE, VERSION, pair

WANTED = pair("m1", "a")


class Server:
    """A management API whose watch delivers each write before the response arrives."""

    def __init__(self) -> None:
        self.caches = Caches(VERSION, own_namespace=NAMESPACE, floors=NO_FLOORS)
        self.caches.authentic.use_keys(KEYS)
        self.cache: Cache[Any] = self.caches.reservations
        self.cache.replaced([])
        self.objects: dict[str, JsonObject] = {}
        self.calls: list[str] = []
        self.tell: Callable[[JsonObject], None] = self.cache.applied
        self.reservations = Reservations(self, self.caches)

    async def get(self, path: str) -> JsonObject:
        self.calls.append("get")
        name = path.rpartition("/")[2]
        if name not in self.objects:
            raise NotFound(name, status=404)
        return self.objects[name]

    async def create(self, path: str, body: JsonObject) -> JsonObject:
        self.calls.append("create")
        name = body["metadata"]["name"]
        if name in self.objects:
            raise AlreadyExists(name, status=409)
        made = {**body, "metadata": {**body["metadata"], "uid": name, "resourceVersion": str(len(self.calls))}}
        self.objects[name] = made
        self.tell(made)
        return made

    async def patch(self, path: str, patch: JsonObject) -> JsonObject:
        raise AssertionError(path)

    async def delete(self, path: str, *, uid: str | None = None, resource_version: str | None = None) -> JsonObject:
        raise AssertionError(path)

    async def reserve(self, wanted: Pair = WANTED) -> list[str]:
        await self.reservations.reserve(wanted, NoRecord(), ATTESTED)
        assert self.reservations.cached(wanted)
        return self.calls


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """A wait that times out would be noticed."""
    monkeypatch.setattr(module, "_WATCH_SECONDS", 600.0)
    return Server()


async def test_it_is_two_calls(server: Server) -> None:
    assert await server.reserve() == ["create", "create"]
    assert len(server.cache.event_histories) == 0


async def test_an_insecure_pair_is_read_once_more(server: Server) -> None:
    assert await server.reserve(pair("m1", "a", Security.INSECURE)) == ["create", "create", "get"]


@pytest.mark.parametrize("side", ReservationSide)
async def test_an_existing_side_is_read_without_waiting_for_events(server: Server, side: ReservationSide) -> None:
    await server.reserve()
    del server.objects[WANTED.name(side.other)]
    server.cache.forget(NAMESPACE, WANTED.name(side.other))
    server.calls.clear()
    assert sorted(await server.reserve()) == ["create", "create", "get", "get"]


async def test_a_list_in_between_confirms_nothing(server: Server) -> None:
    def listed(made: JsonObject) -> None:
        server.cache.replaced([*server.objects.values()])

    server.tell = listed
    assert await server.reserve() == ["create", "create", "get"]


async def test_a_watch_that_fails_is_not_waited_for(server: Server) -> None:
    server.cache.failed(Unreachable("gone", cause=Cause.TIMEOUT), 1.0)
    server.tell = lambda made: None
    assert await server.reserve() == ["create", "create", "get"]


async def test_a_late_watch_is_waited_for_up_to_its_limit(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WATCH_SECONDS", 0.01)
    server.tell = lambda made: None
    began = time.monotonic()
    assert await server.reserve() == ["create", "create", "get"]
    assert time.monotonic() - began >= 0.01
    assert len(server.cache.event_histories) == 0


async def test_a_hanging_watch_delays_one_call_and_not_each(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_WATCH_SECONDS", 0.01)
    server.tell = lambda made: None
    await server.reserve()
    monkeypatch.setattr(module, "_WATCH_SECONDS", 600.0)
    server.calls.clear()
    assert await server.reserve(pair("m2", "b")) == ["create", "create", "get"]
    server.tell = server.cache.applied
    server.cache.synced()
    server.calls.clear()
    assert await server.reserve(pair("m3", "c")) == ["create", "create"], "it says something again"


async def test_a_change_of_the_machines_side_is_read(server: Server) -> None:
    """Another actor set a mark, and cleared it."""
    machine_side = WANTED.name(ReservationSide.MACHINE)

    def told(made: JsonObject) -> None:
        if made["metadata"]["name"] != machine_side:
            server.cache.applied(
                {**server.objects[machine_side], "metadata": {**made["metadata"], "name": machine_side}}
            )
        server.cache.applied(made)

    server.tell = told
    assert await server.reserve() == ["create", "create", "get"]
