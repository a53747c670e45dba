"""Reservations under every order of calls: a management API whose every call is a scheduling point, and its explorers.

Each actor is a controller that reserves one pair, as a coroutine without an event loop: one step carries out the call it
stands at and runs on to the next. What the world must be like is checked after every step (:meth:`World._check`).
"""

from __future__ import annotations

import copy
import enum
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from attestors.contract import Security
from signer.kube.client import JsonObject
from signer.kube.errors import AlreadyExists, Conflict, NotFound
from signer.kube.resources import CLUSTERS_V1BETA2, IDENTITY_RESERVATIONS, MACHINES_V1BETA2
from signer.model.cluster import ClusterKey
from signer.model.decision import Deferred, Refused
from signer.model.record import AttestedIdentity, MachineKey
from signer.model.reservation import Pair, Reservation, ReservationSide, parse_reservation, reservation_spec
from signer.rules.machine import NoRecord
from signer.store.inventory import ClusterAPIVersion, Inventory
from signer.store.reservations import Reservations

NAMESPACE: Final = "node-attestation-system"
VERSION: Final = ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2)
MAXIMUM_CALLS: Final = 120
"""Of one actor, whatever the others do: 8 attempts at fewer than 15 calls."""


def machine(name: str, cluster: str = "prod") -> MachineKey:
    return MachineKey(ClusterKey("team-a", cluster), "Machine", name, f"test:///{name}")


def identity(name: str, security: Security = Security.SECURE) -> AttestedIdentity:
    return AttestedIdentity("tpm" if security is Security.SECURE else "insecure", name, security)


def pair(machine_name: str, identity_name: str, security: Security = Security.SECURE) -> Pair:
    return Pair(machine(machine_name), identity(identity_name, security))


class Violation(AssertionError):
    """The protocol broke an invariant; the message holds the schedule."""


class End(enum.Enum):
    """How an actor ended."""

    RUNNING = "running"
    HOLDS = "holds"
    REFUSED = "refused"
    DEFERRED = "deferred"
    CRASHED = "crashed"


class _Point:
    """Where the scheduler takes over."""

    def __await__(self) -> Generator[None, None, None]:
        yield


@dataclass(frozen=True)
class Half:
    """An object that a crash left behind before the scenario begins."""

    side: ReservationSide
    pair: Pair
    contested: bool = False


@dataclass(frozen=True)
class Scenario:
    """Who wants what, in which world."""

    wanted: tuple[Pair, ...]
    """One actor each."""
    before: tuple[Half, ...] = ()
    machines: frozenset[str] = frozenset({"m1", "m2"})
    """Machines that exist at the beginning."""
    events: tuple[tuple[str, str], ...] = ()
    """``("gone", machine)`` and ``("back", machine)``, which happen in this order, at any time."""


@dataclass
class Actor:
    """One controller that reserves one pair."""

    number: int
    wanted: Pair
    end: End = End.RUNNING
    history: list[Any] = field(default_factory=list)
    writes: int = 0
    was_whole: bool = False
    """The wanted pair was whole at some moment of the call."""
    saw_conflict: bool = False
    """A whole pair of somebody else stood in the way at some moment of the call."""
    excused: bool = False
    """What it holds may be taken away: its Machine was gone, or a secure one wants an insecure one's Machine."""


class World:
    """The management API's objects, the actors, and what has happened."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.schedule: list[str] = []
        self.objects: dict[str, JsonObject] = {}
        self.machines = set(scenario.machines)
        self.events = list(scenario.events)
        self.actors: list[Actor] = []
        self._coroutines: dict[int, Any] = {}
        for number, half in enumerate(scenario.before):
            annotations = {"attestation.cluster.x-k8s.io/contested": "true"} if half.contested else {}
            self._put(half.pair.name(half.side), f"before-{number}", reservation_spec(half.pair), annotations)
        for wanted in scenario.wanted:
            self.start(wanted)

    def _put(self, name: str, unique: str, spec: JsonObject, annotations: JsonObject) -> JsonObject:
        metadata = {"name": name, "namespace": NAMESPACE, "uid": unique, "resourceVersion": unique}
        self.objects[name] = {"metadata": {**metadata, "annotations": annotations}, "spec": spec}
        return self.objects[name]

    def start(self, wanted: Pair) -> Actor:
        """One more actor, at its first call."""
        actor = Actor(len(self.actors), wanted)
        actor.excused = wanted.machine.name not in self.machines or self._may_be_displaced(wanted)
        self.actors.append(actor)
        reservations = Reservations(Calls(self, actor), Inventory(VERSION, own_namespace=NAMESPACE))
        coroutine = reservations.reserve(wanted, NoRecord())
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
        """What can happen next: a step of an actor, or the next event."""
        found = [f"step {actor.number}" for actor in self.actors if actor.end is End.RUNNING]
        return [*found, "event"] if self.events else found

    def happen(self, choice: str) -> None:
        """One thing happens, and the invariants hold."""
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
        if kind == "back":
            self.machines.add(name)
            return
        self.machines.discard(name)
        for actor in self.actors:
            if actor.wanted.machine.name == name:
                actor.excused = True

    def _step(self, actor: Actor) -> None:
        try:
            self._coroutines[actor.number].send(None)
        except StopIteration:
            actor.end = End.HOLDS
        except Refused:
            actor.end = End.REFUSED
        except Deferred:
            actor.end = End.DEFERRED
        else:
            self.require(len(actor.history) < MAXIMUM_CALLS, f"actor {actor.number} does not end")

    def run_alone(self, actor: Actor) -> None:
        """Nobody else moves until it ends."""
        while actor.end is End.RUNNING:
            self.happen(f"step {actor.number}")

    # What must hold

    def require(self, holds: bool, message: str) -> None:
        if not holds:
            calls = "\n".join(f"  actor {a.number} wants {_short(a.wanted)}: {a.end.value}" for a in self.actors)
            raise Violation(f"{message}\nschedule: {self.schedule}\n{calls}\nobjects: {self._view()}")

    def whole(self) -> set[Pair]:
        """The pairs of which both sides stand."""
        sides = [parse_reservation(manifest) for manifest in self.objects.values()]
        identity_sides = {side.pair for side in sides if side.side is ReservationSide.IDENTITY}
        return {side.pair for side in sides if side.side is ReservationSide.MACHINE} & identity_sides

    def _check(self) -> None:
        whole = self.whole()
        for actor in self.actors:
            if actor.end is End.RUNNING:
                self._observe(actor, whole)
        for actor in self.actors:
            if actor.end is End.HOLDS:
                self.require(actor.was_whole, f"actor {actor.number} succeeded, and its pair was never whole")
                self.require(actor.excused or actor.wanted in whole, f"actor {actor.number} lost what it holds")
            if actor.end is End.REFUSED:
                self.require(actor.saw_conflict, f"actor {actor.number} was refused without a conflict")
        self._check_secure_beats_insecure()

    def _observe(self, actor: Actor, whole: set[Pair]) -> None:
        actor.was_whole = actor.was_whole or actor.wanted in whole
        actor.saw_conflict = actor.saw_conflict or any(conflicts(other, actor.wanted) for other in whole)

    def _check_secure_beats_insecure(self) -> None:
        ended: list[Actor] = [actor for actor in self.actors if actor.end is End.HOLDS]
        ended.sort(key=lambda actor: max(i for i, choice in enumerate(self.schedule) if choice[5:] == str(actor.number)))
        for earlier, later in ((a, b) for i, a in enumerate(ended) for b in ended[i + 1 :]):
            self.require(
                earlier.excused or not conflicts(earlier.wanted, later.wanted),
                f"actor {later.number} took what actor {earlier.number} holds",
            )

    def aftermath(self) -> None:
        """Nobody else comes: who crashed or gave up tries again, alone, and every wanted Machine gets its owner."""
        for actor in list(self.actors):
            if actor.wanted.machine.name in self.machines:
                again = self.start(actor.wanted)
                self.run_alone(again)
                self.require(again.end in (End.HOLDS, End.REFUSED), f"actor {again.number} is blocked")
        whole = self.whole()
        for wanted in {actor.wanted for actor in self.actors}:
            if wanted.machine.name in self.machines:
                owned = any(one == wanted or conflicts(one, wanted) for one in whole)
                self.require(owned, f"nobody owns {_short(wanted)}")

    def signature(self) -> Any:
        """Equal worlds have the same future: the actors' states follow from what they were answered."""
        actors = tuple((a.end, tuple(a.history), a.was_whole, a.saw_conflict, a.excused) for a in self.actors)
        return frozenset(self._view()), actors, frozenset(self.machines), len(self.events)

    def _view(self) -> list[str]:
        return [
            f"{name[:12]} {_describe(parse_reservation(manifest))} {manifest['metadata']['resourceVersion']}"
            for name, manifest in sorted(self.objects.items())
        ]

    def close(self) -> None:
        for coroutine in self._coroutines.values():
            coroutine.close()


def conflicts(one: Pair, wanted: Pair) -> bool:
    """Whether both cannot be, and ``one`` need not give way."""
    if one.machine == wanted.machine and one.identity.digest != wanted.identity.digest:
        return not (one.identity.security is Security.INSECURE and wanted.identity.security is Security.SECURE)
    return one.identity.digest == wanted.identity.digest and one.machine != wanted.machine


class Calls:
    """One actor's client. UIDs and resourceVersions name their writer, so that equal histories make equal worlds."""

    def __init__(self, world: World, actor: Actor) -> None:
        self._world = world
        self._actor = actor

    async def get(self, path: str) -> JsonObject:
        await _Point()
        name = path.rpartition("/")[2]
        if path.startswith(MACHINES_V1BETA2.collection("team-a")):
            if name not in self._world.machines:
                raise self._answer("machine", NotFound(name))
            self._answer("machine", name)
            spec = {"clusterName": "prod", "providerID": f"test:///{name}"}
            return {"metadata": {"namespace": "team-a", "name": name, "uid": name}, "spec": spec}
        found = self._found("get", name)
        self._answer("get", found["metadata"]["resourceVersion"])
        return copy.deepcopy(found)

    async def create(self, path: str, body: JsonObject) -> JsonObject:
        await _Point()
        assert path == IDENTITY_RESERVATIONS.collection(NAMESPACE)
        name = body["metadata"]["name"]
        if name in self._world.objects:
            raise self._answer("create", AlreadyExists(name))
        unique = self._unique()
        self._answer("create", unique)
        return copy.deepcopy(self._world._put(name, unique, body["spec"], {}))

    async def patch(self, path: str, patch: JsonObject) -> JsonObject:
        await _Point()
        name, metadata = path.rpartition("/")[2], patch["metadata"]
        found = self._found("patch", name)
        self._precondition("patch", found, metadata["uid"], metadata["resourceVersion"])
        annotations = {**found["metadata"]["annotations"], **metadata["annotations"]}
        found["metadata"]["annotations"] = {key: value for key, value in annotations.items() if value is not None}
        found["metadata"]["resourceVersion"] = self._unique()
        self._answer("patch", found["metadata"]["resourceVersion"])
        return copy.deepcopy(found)

    async def delete(self, path: str, *, uid: str | None = None, resource_version: str | None = None) -> JsonObject:
        await _Point()
        name = path.rpartition("/")[2]
        self._precondition("delete", self._found("delete", name), uid, resource_version)
        self._answer("delete", "done")
        return self._world.objects.pop(name)

    def _found(self, call: str, name: str) -> JsonObject:
        if name not in self._world.objects:
            raise self._answer(call, NotFound(name))
        return self._world.objects[name]

    def _precondition(self, call: str, found: JsonObject, uid: str | None, resource_version: str | None) -> None:
        metadata = found["metadata"]
        if uid not in (None, metadata["uid"]) or resource_version not in (None, metadata["resourceVersion"]):
            raise self._answer(call, Conflict(metadata["name"]))

    def _unique(self) -> str:
        self._actor.writes += 1
        return f"{self._actor.number}-{self._actor.writes}"

    def _answer(self, call: str, answer: Any) -> Any:
        """Remember what the actor now knows."""
        told = type(answer).__name__ if isinstance(answer, Exception) else answer
        self._actor.history.append((call, told))
        return answer


def explore(scenario: Scenario, *, crashes: int = 0) -> int:
    """Every schedule of ``scenario``, with at most so many crashes at any call; returns how many worlds there were."""
    seen: set[Any] = set()
    pending: list[tuple[str, ...]] = [()]
    while pending:
        world = replay(scenario, pending.pop())
        while world.signature() not in seen:
            seen.add(world.signature())
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
    return f"({one.machine.name}, {one.identity.identity})"


def _describe(side: Reservation) -> str:
    return f"{side.side.value} {_short(side.pair)}{' contested' if side.contested else ''}"
