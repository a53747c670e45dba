"""Reservations under every order of calls: a management API whose every call is a scheduling point, and its explorers.

Each actor is a controller that reserves one pair, as a coroutine without an event loop: one step carries out the call
it stands at and runs on to the next. What the world must be like is checked after every step (:meth:`World._check`).

A world is data alone, since ``programs`` keeps what the actors' code does: the explorer goes on with copies.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from typing import Any, Final, cast

from attestors.contract import Security
from signer.kube.client import JsonObject
from signer.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from signer.kube.resources import IDENTITY_RESERVATIONS, MACHINE_POOLS_V1BETA2, MACHINES_V1BETA2
from signer.model.floors import NO_FLOORS
from signer.model.reservation import Pair, Reservation, ReservationSeals, ReservationSide, parse_reservation
from signer.model.seal import Authentic
from signer.rules.machine import NoRecord
from signer.store.caches import Caches
from signer.store.cluster_api import ClusterAPIVersion
from signer.store.event_history import GONE, EventHistories, EventHistory, ObservedEvent, Order
from signer.store.reservations import Reservations
from tests.support.reservations import ATTESTED, KEYS
from tests.unit.signer.store.programs import Answer, Call, Client, FollowedWatch, Following, Moment, Program
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


class World:
    """The management API's objects, the actors, and the events so far."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.schedule: list[str] = []
        self.objects: dict[str, JsonObject] = {}
        self._sides: dict[str, Reservation] = {}
        self.log: list[ObservedEvent] = []
        """The watch events of reservations, in order."""
        self.followed: dict[int, int] = {}
        """The index of the first event for each actor that follows."""
        self.machines = set(scenario.machines)
        self.records: dict[str, JsonObject] = {}
        """AttestedNodes by path."""
        self.events = list(scenario.events)
        self.actors: list[Actor] = []
        self._programs: dict[tuple[Pair, bool], Program] = {}
        """Those of all copies."""
        self._moments: dict[int, Moment] = {}
        """Where each actor stands."""
        for number, existing in enumerate(scenario.before):
            annotations = {"attestation.cluster.x-k8s.io/contested": "true"} if existing.contested else {}
            self.put(existing.pair.name(existing.side), f"before-{number}", existing.spec(), annotations)
        for wanted in scenario.wanted:
            self.start(wanted)
        for abandoned in scenario.released:
            self.start(abandoned, releases=True)

    def copied(self) -> World:
        """Another world, in which everything is the same."""
        made = copy.copy(self)
        made.schedule, made.log, made.events = [*self.schedule], [*self.log], [*self.events]
        made.objects, made._sides, made.followed = dict(self.objects), dict(self._sides), dict(self.followed)
        made.machines, made.records = set(self.machines), dict(self.records)
        made._moments = dict(self._moments)
        made.actors = [actor.copied() for actor in self.actors]
        return made

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
        if (wanted, releases) not in self._programs:
            self._programs[wanted, releases] = _program(self.scenario, wanted, releases=releases)
        self._go_on(actor, self._programs[wanted, releases].first)
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
                self.followed.pop(actor.number, None)
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
        moment = self._moments[actor.number]
        assert moment.call is not None
        self._go_on(actor, moment.after(self.answer(actor, moment.call)))
        self.require(actor.end is not End.RUNNING or actor.calls < MAXIMUM_CALLS, f"actor {actor.number} does not end")
        if actor.end is not End.RUNNING:
            actor.told.clear()
            actor.ended_at = len(self.schedule)

    def _go_on(self, actor: Actor, moment: Moment) -> None:
        self._moments[actor.number], actor.end = moment, moment.end
        if moment.following is Following.BEGINS:
            self.followed[actor.number] = len(self.log)
        elif moment.following is Following.ENDS:
            self.followed.pop(actor.number, None)

    def run_alone(self, actor: Actor) -> None:
        """Run one actor to its end, without steps of others."""
        while actor.end is End.RUNNING:
            self.happen(f"step {actor.number}")

    # What calls do

    def answer(self, actor: Actor, call: Call) -> Answer:
        """Carry out one call, or one wait for the watch."""
        if call.method == "expect":
            answer = self.hears(actor, call.body)
        else:
            answer = self._carried_out(actor, call)
            actor.calls += 1
        # An actor acts only on its responses: its calls are those of one coroutine.
        actor.told.append(answer.told)
        return answer

    def hears(self, actor: Actor, expected: Sequence[ObservedEvent]) -> Answer:
        """Events come as late as they can: no later than the one that is waited for."""
        keys = {key for key, _ in expected}
        event_history = EventHistory()
        for heard in self.log[self.followed[actor.number] :]:
            if heard[0] in keys:
                event_history.observe(heard)
            if heard == expected[-1]:
                break
        try:
            event_history.expect(expected, 0).send(None)
        except StopIteration as ended:
            return Answer(ended.value.value, ended.value)
        raise AssertionError("nothing is left to wait for")

    def _carried_out(self, actor: Actor, call: Call) -> Answer:
        match call.method:
            case "get":
                return self._get(call.path)
            case "create":
                return self._create(actor, call)
            case "patch":
                return self._patch(actor, call)
            case _:
                return self._delete(call)

    def _get(self, path: str) -> Answer:
        name = path.rpartition("/")[2]
        if path == MACHINES_V1BETA2.object(name, "team-a"):
            return Answer("there", machine_manifest(name)) if name in self.machines else _refused(NotFound)
        if path == MACHINE_POOLS_V1BETA2.object(POOL, "team-a"):
            instances = sorted(one for one in self.machines if one.startswith("i"))
            return Answer(f"lists {instances}", pool_manifest(instances)) if instances else _refused(NotFound)
        if path in self.records:
            return Answer("recorded", self.records[path])
        return _told(self.objects[name]) if name in self.objects else _refused(NotFound)

    def _create(self, actor: Actor, call: Call) -> Answer:
        assert call.path == IDENTITY_RESERVATIONS.collection(NAMESPACE)
        assert (call.body["apiVersion"], call.body["kind"]) == (
            IDENTITY_RESERVATIONS.api_version,
            "IdentityReservation",
        )
        name = call.body["metadata"]["name"]
        if name == actor.wanted.name(ReservationSide.MACHINE):
            actor.attempts += 1
            actor.told.clear()
        if name in self.objects:
            return _refused(AlreadyExists)
        return _told(self.put(name, actor.new_version(), call.body["spec"], {}))

    def _patch(self, actor: Actor, call: Call) -> Answer:
        name, metadata = call.path.rpartition("/")[2], call.body["metadata"]
        if (fault := self._precondition(name, metadata["uid"], metadata["resourceVersion"])) is not None:
            return fault
        found = self.objects[name]
        annotations = {**found["metadata"]["annotations"], **metadata["annotations"]}
        spec: JsonObject = {**found["spec"], **(call.body.get("spec") or {})}
        kept = {key: value for key, value in annotations.items() if value is not None}
        return _told(self.put(name, metadata["uid"], spec, kept, actor.new_version()))

    def _delete(self, call: Call) -> Answer:
        name = call.path.rpartition("/")[2]
        if (fault := self._precondition(name, call.uid, call.resource_version)) is not None:
            return fault
        return Answer("deleted", self.pop(name))

    def _precondition(self, name: str, uid: str | None, resource_version: str | None) -> Answer | None:
        if name not in self.objects:
            return _refused(NotFound)
        metadata = self.objects[name]["metadata"]
        if uid not in (None, metadata["uid"]) or resource_version not in (None, metadata["resourceVersion"]):
            return _refused(Conflict)
        return None

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


def conflicts(one: Pair, wanted: Pair) -> bool:
    """Whether both pairs exclude each other and ``one`` need not be displaced."""
    if one.machine == wanted.machine and one.identity.digest != wanted.identity.digest:
        return not (one.identity.security is Security.INSECURE and wanted.identity.security is Security.SECURE)
    return one.identity.digest == wanted.identity.digest and one.machine != wanted.machine


class Calls(Client):
    """One actor's client, without a scheduler: :func:`drive` runs through its calls."""

    def __init__(self, world: World, actor: Actor) -> None:
        self._world = world
        self._actor = actor

    async def _ask(self, call: Call) -> Any:
        return self._world.answer(self._actor, call).take()


def _told(manifest: JsonObject) -> Answer:
    return Answer(manifest["metadata"]["resourceVersion"], manifest)


def _refused(error: type[ApiError]) -> Answer:
    return Answer(error.__name__, error=error)


class Watch:
    """The same for one actor's watch."""

    def __init__(self, world: World, actor: Actor) -> None:
        self._world = world
        self._actor = actor

    @contextlib.contextmanager
    def follow(self, keys: Iterable[tuple[str, str]]) -> Iterator[Watch]:
        self._world.followed[self._actor.number] = len(self._world.log)
        try:
            yield self
        finally:
            del self._world.followed[self._actor.number]

    async def expect(self, expected: Sequence[ObservedEvent], seconds: float) -> Order:
        if not self._world.scenario.watched:
            return Order.OTHERWISE
        return cast("Order", self._world.answer(self._actor, Call("expect", body=expected)).take())


def inventory_of(world: World, actor: Actor, version: ClusterAPIVersion = VERSION) -> Caches:
    """The caches of one actor, empty, whose watch of reservations is the world's."""
    return _caches(cast("EventHistories", Watch(world, actor)), version)


def _caches(watch: EventHistories, version: ClusterAPIVersion = VERSION) -> Caches:
    caches = Caches(version, own_namespace=NAMESPACE, floors=NO_FLOORS)
    caches.authentic.use_keys(KEYS)
    caches.reservations.event_histories = watch
    return caches


def _program(scenario: Scenario, wanted: Pair, *, releases: bool) -> Program:
    """What an actor that wants ``wanted`` may do in that scenario."""

    def code(client: Client, watch: FollowedWatch) -> Coroutine[Any, Any, None]:
        caches = _caches(cast("EventHistories", watch))
        for name in scenario.machines:
            if name.startswith("s"):
                caches.machines.applied(machine_manifest(name))
        mine = Reservations(client, caches)
        return mine.release(wanted) if releases else mine.reserve(wanted, NoRecord(), ATTESTED)

    return Program(code, watched=scenario.watched, end=End.RELEASED if releases else End.HOLDS)


def drive(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run to the end without stopping at any call."""
    with contextlib.suppress(StopIteration):
        while True:
            coroutine.send(None)


def explore(scenario: Scenario, *, crashes: int = 0) -> int:
    """Explore every schedule of ``scenario`` with at most that many crashes; returns the number of worlds."""
    seen: set[Any] = set()
    pending = [World(scenario)]
    while pending:
        world = pending.pop()
        while (signature := world.signature()) not in seen:
            seen.add(signature)
            if not world.choices():
                world.aftermath()
                break
            first, *others = _choices(world, crashes)
            for other in others:
                branch = world.copied()
                branch.happen(other)
                pending.append(branch)
            world.happen(first)
    return len(seen)


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
