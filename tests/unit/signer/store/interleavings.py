"""Reservations under every order of calls: a management API whose every call is a scheduling point, and its explorers.

Each actor is a controller that reserves one pair, as a coroutine without an event loop: one step carries out the call
it stands at and runs on to the next. What the world must be like is checked after every step (:meth:`World._check`).
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Coroutine, Generator, Iterable, Iterator, Sequence
from typing import Any, Final, cast

from attestors.contract import Security
from signer.kube.client import JsonObject
from signer.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from signer.kube.resources import IDENTITY_RESERVATIONS, MACHINE_POOLS_V1BETA2, MACHINES_V1BETA2
from signer.model.decision import Deferred, Refused
from signer.model.floors import NO_FLOORS
from signer.model.reservation import Pair, Reservation, ReservationSeals, ReservationSide, parse_reservation
from signer.model.seal import Authentic
from signer.rules.machine import NoRecord
from signer.store.caches import Caches
from signer.store.cluster_api import ClusterAPIVersion
from signer.store.event_history import GONE, EventHistories, EventHistory, ObservedEvent, Order
from signer.store.reservations import Reservations
from tests.support.reservations import ATTESTED, KEYS
from tests.unit.signer.store.scenario import (
    MAXIMUM_CALLS,
    NAMESPACE,
    POOL,
    VERSION,
    Actor,
    End,
    Scenario,
    machine_manifest,
    pair,
    pool_manifest,
    short_name,
)

SEALS: Final = ReservationSeals(KEYS)


_VERIFIED: Final[dict[tuple[str, str], bool]] = {}


def _is_authentic(name: str, side: Reservation) -> bool:
    """Computed once for each name and seal, for speed."""
    if (name, side.seal) not in _VERIFIED:
        _VERIFIED[name, side.seal] = isinstance(SEALS.verify(side), Authentic)
    return _VERIFIED[name, side.seal]


class Violation(AssertionError):
    """The protocol violated an invariant; the message contains the schedule."""


class _Point:
    """Yields to the scheduler."""

    def __await__(self) -> Generator[None, None, None]:
        yield


class World:
    """The management API's objects, the actors, and the events so far."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.schedule: list[str] = []
        self.objects: dict[str, JsonObject] = {}
        self._sides: dict[str, Reservation] = {}
        self.versions = 0
        self.log: list[ObservedEvent] = []
        """The watch events of reservations, in order."""
        self.followed: dict[int, int] = {}
        """The index of the first event for each actor that follows."""
        self.machines = set(scenario.machines)
        self.records: dict[str, JsonObject] = {}
        """AttestedNodes by path."""
        self.events = list(scenario.events)
        self.actors: list[Actor] = []
        self._coroutines: dict[int, Any] = {}
        for number, existing in enumerate(scenario.before):
            annotations = {"attestation.cluster.x-k8s.io/contested": "true"} if existing.contested else {}
            self.put(existing.pair.name(existing.side), f"before-{number}", existing.spec(), annotations)
        for wanted in scenario.wanted:
            self.start(wanted)
        for abandoned in scenario.released:
            self.start(abandoned, releases=True)

    def put(self, name: str, uid: str, spec: JsonObject, annotations: JsonObject, version: str = "") -> JsonObject:
        """Create an object, or a new version of it; versions that were returned before are unchanged."""
        metadata = {"name": name, "namespace": NAMESPACE, "uid": uid, "resourceVersion": version or uid}
        self.objects[name] = {"metadata": {**metadata, "annotations": annotations}, "spec": spec}
        side = parse_reservation(self.objects[name])
        self._sides.pop(name, None)
        if _is_authentic(name, side):
            self._sides[name] = side
        self.log.append(((NAMESPACE, name), metadata["resourceVersion"]))
        return self.objects[name]

    def pop(self, name: str) -> JsonObject:
        """Delete an object."""
        self._sides.pop(name, None)
        self.log.append(((NAMESPACE, name), GONE))
        return self.objects.pop(name)

    def start(self, wanted: Pair, *, releases: bool = False) -> Actor:
        """Add an actor, at its first call."""
        actor = Actor(len(self.actors), wanted, releases)
        actor.excused = short_name(wanted.machine) not in self.machines or self._may_be_displaced(wanted)
        self.actors.append(actor)
        caches = inventory_of(self, actor)
        for name in self.scenario.machines:
            if name.startswith("s"):
                caches.machines.applied(machine_manifest(name))
        reservations = Reservations(Calls(self, actor), caches)
        coroutine = reservations.release(wanted) if releases else reservations.reserve(wanted, NoRecord(), ATTESTED)
        self._coroutines[actor.number] = coroutine
        coroutine.send(None)
        self._check()
        return actor

    def _may_be_displaced(self, wanted: Pair) -> bool:
        return wanted.identity.security is Security.INSECURE and any(
            other.machine == wanted.machine and other.identity.security is Security.SECURE
            for other in self.scenario.wanted
        )

    # The scheduler's choices

    def choices(self) -> list[str]:
        """The possible next steps: a step of an actor, or the next event."""
        found = [f"step {actor.number}" for actor in self.actors if actor.end is End.RUNNING]
        return [*found, "event"] if self.events else found

    def happen(self, choice: str) -> None:
        """Execute one step and check the invariants."""
        self.schedule.append(choice)
        if choice == "event":
            kind, name = self.events.pop(0)
            self._event(kind, name)
        else:
            kind, number = choice.split()
            actor = self.actors[int(number)]
            if kind == "crash":
                actor.end = End.CRASHED
                self._coroutines.pop(actor.number).close()
            else:
                self._step(actor)
        self._check()

    def _event(self, kind: str, name: str) -> None:
        if kind == "join":
            machine_name, identity_name = name.split()
            self.start(pair(machine_name, identity_name))
            return
        if kind == "back":
            self.machines.add(name)
            return
        self.machines.discard(name)
        for actor in self.actors:
            if short_name(actor.wanted.machine) == name:
                actor.excused = True

    def _step(self, actor: Actor) -> None:
        try:
            self._coroutines[actor.number].send(None)
        except StopIteration:
            actor.end = End.RELEASED if actor.releases else End.HOLDS
        except Refused:
            actor.end = End.REFUSED
        except Deferred:
            actor.end = End.DEFERRED
        else:
            self.require(actor.calls < MAXIMUM_CALLS, f"actor {actor.number} does not end")
        if actor.end is not End.RUNNING:
            actor.told.clear()
            actor.ended_at = len(self.schedule)

    def run_alone(self, actor: Actor) -> None:
        """Run one actor to its end, without steps of others."""
        while actor.end is End.RUNNING:
            self.happen(f"step {actor.number}")

    # Invariants

    def require(self, holds: bool, message: str) -> None:
        if not holds:
            calls = "\n".join(f"  actor {a.number} wants {_short(a.wanted)}: {a.end.value}" for a in self.actors)
            raise Violation(f"{message}\nschedule: {self.schedule}\n{calls}\nobjects: {self._view()}")

    def whole(self) -> set[Pair]:
        """The pairs that have both sides."""
        sides = self._sides.values()
        identity_sides = {side.pair for side in sides if side.side is ReservationSide.IDENTITY}
        return {side.pair for side in sides if side.side is ReservationSide.MACHINE} & identity_sides

    def _check(self) -> None:
        whole = self.whole()
        for actor in self.actors:
            if actor.end is End.RUNNING or actor.ended_at == len(self.schedule):
                self._observe(actor, whole)
        for actor in self.actors:
            if actor.end is End.HOLDS:
                self.require(actor.was_whole, f"actor {actor.number} succeeded, and its pair was never whole")
                self.require(actor.excused or actor.wanted in whole, f"actor {actor.number} lost what it holds")
            if actor.end is End.REFUSED:
                self.require(actor.saw_conflict, f"actor {actor.number} was refused without a conflict")
        self._check_secure_beats_insecure()

    def _observe(self, actor: Actor, whole: set[Pair]) -> None:
        if actor.wanted in whole:
            actor.was_whole, actor.whole_at = True, len(self.schedule)
        actor.saw_conflict = actor.saw_conflict or any(conflicts(other, actor.wanted) for other in whole)

    def _check_secure_beats_insecure(self) -> None:
        held = [actor for actor in self.actors if actor.end is End.HOLDS]
        for earlier, later in itertools.combinations(sorted(held, key=lambda actor: actor.whole_at), 2):
            self._require_no_conflict(earlier, later)
        # A Machine is never told late that it holds a pair: its own side is read last.
        for earlier, later in itertools.combinations(sorted(held, key=lambda actor: actor.ended_at), 2):
            if earlier.wanted.machine == later.wanted.machine:
                self._require_no_conflict(earlier, later)

    def _require_no_conflict(self, earlier: Actor, later: Actor) -> None:
        self.require(
            earlier.excused or not conflicts(earlier.wanted, later.wanted),
            f"actor {later.number} took what actor {earlier.number} holds",
        )

    def aftermath(self) -> None:
        """No other actor comes: actors that crashed or gave up retry alone, and every wanted Machine gets its owner."""
        # Secure ones first: a pair that they displace was the reason for other refusals.
        joining = [actor for actor in self.actors if not actor.releases]
        for actor in sorted(joining, key=lambda one: one.wanted.identity.security is Security.INSECURE):
            if short_name(actor.wanted.machine) in self.machines:
                again = self.start(actor.wanted)
                self.run_alone(again)
                self.require(again.end in (End.HOLDS, End.REFUSED), f"actor {again.number} is blocked")
        whole = self.whole()
        for wanted in {actor.wanted for actor in joining}:
            if short_name(wanted.machine) in self.machines:
                owned = any(one == wanted or conflicts(one, wanted) for one in whole)
                self.require(owned, f"nobody owns {_short(wanted)}")

    def signature(self) -> Any:
        """Equal worlds have the same future: an actor's state follows from what it was told in its present attempt.

        UIDs and resourceVersions only matter in that they differ: they are numbered in the order of their appearance.
        Actors that do the same are interchangeable: the world in which they have changed places is equal, too.
        """
        return frozenset(self._signature(order) for order in self._same_work())

    def _same_work(self) -> Iterator[list[Actor]]:
        """The actors in every order that differs only in the places of those that do the same."""
        for order in itertools.permutations(self.actors):
            if all(
                (one.wanted, one.releases) == (other.wanted, other.releases)
                for one, other in zip(order, self.actors, strict=True)
            ):
                yield list(order)

    def _signature(self, order: Sequence[Actor]) -> Any:
        numbers: dict[str, int] = {}
        forged = tuple(
            (name, _number(numbers, one["metadata"]["resourceVersion"]))
            for name, one in sorted(self.objects.items())
            if name not in self._sides
        )
        objects = tuple(
            (
                side.name,
                side.pair,
                side.contested,
                side.basis,
                *(_number(numbers, text) for text in (side.uid, side.resource_version)),
            )
            for side in sorted(self._sides.values(), key=lambda side: side.name)
        )
        actors = tuple(
            (
                *(actor.end, actor.was_whole, actor.saw_conflict, actor.excused, actor.attempts),
                *(_number(numbers, told) for told in actor.told),
                self._to_be_heard(actor),
            )
            for actor in order
        )
        return objects, forged, actors, frozenset(self.machines), len(self.events)

    def _to_be_heard(self, actor: Actor) -> Sequence[str]:
        """What matters of it: whether it can still be that each side of the pair was created, and nothing else."""
        sides = [actor.wanted.name(side) for side in (ReservationSide.MACHINE, ReservationSide.IDENTITY)]
        since = self.followed.get(actor.number, len(self.log))
        names = [key[1] for key, _ in self.log[since:] if key[1] in sides]
        return tuple(names) if names == sides[: len(names)] else ("otherwise",)

    def _view(self) -> list[str]:
        return [f"{_describe(side)} {side.resource_version}" for side in self._sides.values()]

    def close(self) -> None:
        for coroutine in self._coroutines.values():
            coroutine.close()


def conflicts(one: Pair, wanted: Pair) -> bool:
    """Whether both pairs exclude each other and ``one`` need not be displaced."""
    if one.machine == wanted.machine and one.identity.digest != wanted.identity.digest:
        return not (one.identity.security is Security.INSECURE and wanted.identity.security is Security.SECURE)
    return one.identity.digest == wanted.identity.digest and one.machine != wanted.machine


class Calls:
    """One actor's client."""

    def __init__(self, world: World, actor: Actor) -> None:
        self._world = world
        self._actor = actor

    async def get(self, path: str) -> JsonObject:
        await _Point()
        name = path.rpartition("/")[2]
        if path == MACHINES_V1BETA2.object(name, "team-a"):
            if name not in self._world.machines:
                raise self._refuse(NotFound(name))
            self._tell("there")
            return machine_manifest(name)
        if path == MACHINE_POOLS_V1BETA2.object(POOL, "team-a"):
            instances = sorted(one for one in self._world.machines if one.startswith("i"))
            if not instances:
                raise self._refuse(NotFound(name))
            self._tell(f"lists {instances}")
            return pool_manifest(instances)
        if path in self._world.records:
            self._tell("recorded")
            return self._world.records[path]
        return self._return(self._found(name))

    async def create(self, path: str, body: JsonObject) -> JsonObject:
        await _Point()
        assert path == IDENTITY_RESERVATIONS.collection(NAMESPACE)
        assert (body["apiVersion"], body["kind"]) == (IDENTITY_RESERVATIONS.api_version, "IdentityReservation")
        name = body["metadata"]["name"]
        if name == self._actor.wanted.name(ReservationSide.MACHINE):
            self._actor.attempts += 1
            self._actor.told.clear()
        if name in self._world.objects:
            raise self._refuse(AlreadyExists(name))
        return self._return(self._world.put(name, self._unique(), body["spec"], {}))

    async def patch(self, path: str, patch: JsonObject) -> JsonObject:
        await _Point()
        name, metadata = path.rpartition("/")[2], patch["metadata"]
        found = self._found(name)
        self._precondition(found, metadata["uid"], metadata["resourceVersion"])
        annotations = {**found["metadata"]["annotations"], **metadata["annotations"]}
        spec: JsonObject = {**found["spec"], **(patch.get("spec") or {})}
        kept = {key: value for key, value in annotations.items() if value is not None}
        return self._return(self._world.put(name, metadata["uid"], spec, kept, self._unique()))

    async def delete(self, path: str, *, uid: str | None = None, resource_version: str | None = None) -> JsonObject:
        await _Point()
        name = path.rpartition("/")[2]
        self._precondition(self._found(name), uid, resource_version)
        self._tell("deleted")
        return self._world.pop(name)

    def _found(self, name: str) -> JsonObject:
        if name not in self._world.objects:
            raise self._refuse(NotFound(name))
        return self._world.objects[name]

    def _precondition(self, found: JsonObject, uid: str | None, resource_version: str | None) -> None:
        metadata = found["metadata"]
        if uid not in (None, metadata["uid"]) or resource_version not in (None, metadata["resourceVersion"]):
            raise self._refuse(Conflict(metadata["name"]))

    def _unique(self) -> str:
        self._world.versions += 1
        return str(self._world.versions)

    def _refuse(self, error: ApiError) -> ApiError:
        self._tell(type(error).__name__)
        return error

    def _return(self, manifest: JsonObject) -> JsonObject:
        self._tell(manifest["metadata"]["resourceVersion"])
        return manifest

    def _tell(self, answer: str) -> None:
        """An actor acts only on its responses: its calls are those of one coroutine."""
        self._actor.calls += 1
        self._actor.told.append(answer)


class Watch:
    """One actor's watch, in place of its cache's :class:`~signer.store.event_history.EventHistories`. Events come as
    late as they can: no later than the one that is waited for.
    """

    def __init__(self, world: World, actor: Actor) -> None:
        self._world = world
        self._actor = actor

    @contextlib.contextmanager
    def follow(self, keys: Iterable[tuple[str, str]]) -> Iterator[Watch]:
        self._keys = set(keys)
        self._world.followed[self._actor.number] = len(self._world.log)
        try:
            yield self
        finally:
            del self._world.followed[self._actor.number]

    async def expect(self, expected: Sequence[ObservedEvent], seconds: float) -> Order:
        if not self._world.scenario.watched:
            return Order.OTHERWISE
        await _Point()
        since = self._world.followed[self._actor.number]
        event_history = EventHistory()
        for heard in self._world.log[since:]:
            if heard[0] in self._keys:
                event_history.observe(heard)
            if heard == expected[-1]:
                break
        order = await event_history.expect(expected, 0)
        self._actor.told.append(order.value)
        return order


def inventory_of(world: World, actor: Actor, version: ClusterAPIVersion = VERSION) -> Caches:
    """The caches of one actor, empty, whose watch of reservations is the world's."""
    caches = Caches(version, own_namespace=NAMESPACE, floors=NO_FLOORS)
    caches.authentic.use_keys(KEYS)
    caches.reservations.event_histories = cast("EventHistories", Watch(world, actor))
    return caches


def drive(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run to the end without stopping at any call."""
    with contextlib.suppress(StopIteration):
        while True:
            coroutine.send(None)


def explore(scenario: Scenario, *, crashes: int = 0) -> int:
    """Explore every schedule of ``scenario`` with at most that many crashes; returns the number of worlds."""
    seen: set[Any] = set()
    pending: list[tuple[str, ...]] = [()]
    while pending:
        world = replay(scenario, pending.pop())
        while (signature := world.signature()) not in seen:
            seen.add(signature)
            choices = list(_choices(world, crashes))
            if not world.choices():
                world.aftermath()
                break
            pending.extend((*world.schedule, choice) for choice in choices[1:])
            world.happen(choices[0])
        world.close()
    return len(seen)


def replay(scenario: Scenario, schedule: Sequence[str]) -> World:
    """The world after a schedule."""
    world = World(scenario)
    for choice in schedule:
        world.happen(choice)
    return world


def _choices(world: World, crashes: int) -> Iterator[str]:
    yield from world.choices()
    if sum(actor.end is End.CRASHED for actor in world.actors) < crashes:
        yield from (f"crash {actor.number}" for actor in world.actors if actor.end is End.RUNNING)


def _short(one: Pair) -> str:
    return f"({short_name(one.machine)}, {one.identity.identity})"


def _describe(side: Reservation) -> str:
    return f"{side.side.value} {_short(side.pair)}{' contested' if side.contested else ''}"


def _number(numbers: dict[str, int], text: str) -> int | str:
    """Versions as numbers in the order of their appearance; other responses unchanged."""
    if text[:1].isdigit() or text.startswith("before-"):
        return numbers.setdefault(text, len(numbers))
    return text
