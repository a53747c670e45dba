"""Leader election: writes, tolerated failures, and when leadership is given up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

import pytest

from signer.configuration import LeaderElection
from signer.controller.replicas.leadership import Leadership, LeadershipLost
from signer.kube.errors import AlreadyExists, Conflict, Forbidden, NotFound, ServerError, UnexpectedAnswer, Unreachable
from signer.kube.errors import Cause as UnreachableCause
from signer.model.lease import ElectionTimes
from signer.rules.leadership import Leading, StandingBy
from tests.unit.signer.controller.support import Clock

ELECTION = LeaderElection(ElectionTimes(), "the-lease")
PATH = "/apis/coordination.k8s.io/v1/namespaces/own/leases/the-lease"


class Leases:
    """An API server with one Lease that behaves like kube-apiserver."""

    def __init__(self) -> None:
        self.stored: dict[str, Any] | None = None
        self.calls: list[str] = []
        self.fault: Callable[[str], Exception | None] = lambda verb: None
        self.after: Callable[[str], BaseException | None] = lambda verb: None
        """What becomes of the answer to what was carried out."""
        self._version = 0

    async def get(self, path: str) -> dict[str, Any]:
        self._called("get", path)
        if self.stored is None:
            raise NotFound("no Lease", status=404)
        return self.stored

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self._called("create", f"{path}/{body['metadata']['name']}")
        if self.stored is not None:
            raise AlreadyExists("it exists", status=409)
        return self._answered("create", body)

    async def replace(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self._called("update", path)
        if self.stored is None:
            raise NotFound("no Lease", status=404)
        if body["metadata"]["resourceVersion"] != self.stored["metadata"]["resourceVersion"]:
            raise Conflict("stale", status=409)
        return self._answered("update", body)

    def _called(self, verb: str, path: str) -> None:
        assert path == PATH
        self.calls.append(verb)
        if (fault := self.fault(verb)) is not None:
            raise fault

    def _answered(self, verb: str, body: dict[str, Any]) -> dict[str, Any]:
        stored = self._store(body)
        if (fault := self.after(verb)) is not None:
            raise fault
        return stored

    def _store(self, body: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        self.stored = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self._version)}}
        return self.stored

    @property
    def holder(self) -> str:
        assert self.stored is not None
        holder: str = self.stored["spec"]["holderIdentity"]
        return holder


class World:
    """Replicas with one API server and one clock; a pause only advances the clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.leases = Leases()
        self.clock = Clock()
        self.pauses: list[float] = []
        self.after_pause: Callable[[], None] = lambda: None
        monkeypatch.setattr(asyncio, "sleep", self._sleep)

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.clock.pass_by(seconds)
        self.after_pause()

    def replica(self) -> Leadership:
        return Leadership(self.leases, "own", ELECTION, now=self.clock.now, monotonic=self.clock.monotonic)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


async def test_the_first_replica_leads_at_once(world: World) -> None:
    first = world.replica()
    await first.lead()
    assert isinstance(first.standing(), Leading)
    assert world.leases.holder == first.identity
    assert (world.pauses, world.leases.calls) == ([], ["get", "create"])


def test_identities_are_unique(world: World) -> None:
    assert world.replica().identity != world.replica().identity


async def test_a_standby_takes_over_an_expired_lease(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    first, second = world.replica(), world.replica()
    await first.lead()
    await second.lead()
    assert (world.leases.holder, sum(world.pauses) >= 15) == (second.identity, True)
    assert world.leases.stored is not None
    assert world.leases.stored["spec"]["leaseTransitions"] == 1
    assert all(2.0 <= pause <= 2.4 for pause in world.pauses)
    assert [record.message for record in caplog.records].count("standing by") == 1, "logged once"


async def test_a_renewal_is_one_write(world: World) -> None:
    leader = world.replica()
    await leader.lead()
    world.leases.calls.clear()
    await renewals(world, leader, 3)
    assert world.leases.calls == ["update"] * 3
    assert world.leases.stored is not None
    spec = world.leases.stored["spec"]
    assert (spec["leaseTransitions"], spec["acquireTime"] < spec["renewTime"]) == (0, True)


async def renewals(world: World, leader: Leadership, count: int) -> None:
    """Renew the Lease for that many pauses, and then cancel."""
    pauses = 0

    def after_pause() -> None:
        nonlocal pauses
        pauses += 1
        if pauses > count:
            raise asyncio.CancelledError

    world.after_pause = after_pause
    with pytest.raises(asyncio.CancelledError):
        await leader.renew_until_lost()
    world.after_pause = lambda: None


async def test_a_foreign_label_on_the_lease_is_kept(world: World) -> None:
    leader = world.replica()
    await leader.lead()
    assert world.leases.stored is not None
    world.leases._store({**world.leases.stored, "metadata": {"name": "the-lease", "labels": {"by": "a person"}}})
    world.leases.calls.clear()
    await renewals(world, leader, 2)
    assert world.leases.calls == ["update", "get", "update", "update"]
    assert world.leases.stored["metadata"]["labels"] == {"by": "a person"}


async def test_a_deleted_lease_is_created_again(world: World) -> None:
    leader = world.replica()
    await leader.lead()
    world.leases.stored = None
    await renewals(world, leader, 1)
    assert world.leases.holder == leader.identity


async def test_a_leader_tolerates_failures_until_the_deadline(world: World, caplog: pytest.LogCaptureFixture) -> None:
    leader = world.replica()
    await leader.lead()
    began = world.clock.monotonic()
    world.leases.fault = lambda verb: Unreachable("reset", cause=UnreachableCause.RESET)
    with pytest.raises(LeadershipLost, match="could not be renewed within 10 seconds"):
        await leader.renew_until_lost()
    assert world.clock.monotonic() - began == pytest.approx(10.0)
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [record.message for record in warnings] == ["cannot take or renew the Lease"], "logged once"


async def test_one_success_before_the_deadline_is_enough(world: World) -> None:
    leader = world.replica()
    await leader.lead()
    passed = 0

    def fault(verb: str) -> Exception | None:
        nonlocal passed
        passed += 1
        return None if passed % 4 == 0 else Forbidden("no", status=403)

    world.leases.fault = fault
    await renewals(world, leader, 30)
    assert isinstance(leader.standing(), Leading)


async def test_a_leader_whose_lease_another_replica_holds_gives_up_at_once(world: World) -> None:
    leader, other = world.replica(), world.replica()
    await leader.lead()
    assert world.leases.stored is not None
    spec = {**world.leases.stored["spec"], "holderIdentity": other.identity}
    world.leases._store({**world.leases.stored, "spec": spec})
    world.pauses.clear()
    with pytest.raises(LeadershipLost, match=f"{other.identity} holds the Lease now"):
        await leader.renew_until_lost()
    assert len(world.pauses) == 1


async def test_after_a_stall_no_call_is_made(world: World) -> None:
    """The process was stopped for a minute, so its state is stale before its first call."""
    leader = world.replica()
    await leader.lead()
    world.leases.calls.clear()
    world.clock.pass_by(60)
    with pytest.raises(LeadershipLost):
        await leader.renew_until_lost()
    assert world.leases.calls == []


async def test_of_two_concurrent_replicas_one_leads(world: World) -> None:
    """Both found no Lease; the slower one's write fails, which is not an error."""
    first, second = world.replica(), world.replica()

    def fault(verb: str) -> Exception | None:
        if verb == "create" and world.leases.stored is None:
            world.leases.fault = lambda verb: None
            world.leases._store({"metadata": {"name": "the-lease"}, "spec": {**HELD, "holderIdentity": first.identity}})
        return None

    world.leases.fault = fault
    await second._attempt()
    assert second.standing() == StandingBy("")
    await second._attempt()
    assert second.standing() == StandingBy(first.identity)


HELD = {"leaseDurationSeconds": 15, "leaseTransitions": 0, "renewTime": "2026-01-01T00:00:00.000000Z"}


async def test_a_released_lease_is_taken_at_once(world: World) -> None:
    first, second = world.replica(), world.replica()
    await first.lead()
    await second._attempt()
    assert second.standing() == StandingBy(first.identity)
    await first.release()
    assert world.leases.holder == ""
    assert not isinstance(first.standing(), Leading)
    await second._attempt()
    assert isinstance(second.standing(), Leading)


async def test_a_concurrent_change_does_not_prevent_the_release(world: World) -> None:
    leader = world.replica()
    await leader.lead()
    assert world.leases.stored is not None
    world.leases._store({**world.leases.stored, "spec": {**world.leases.stored["spec"], "renewTime": "later"}})
    await leader.release()
    assert world.leases.holder == ""


CARRIED_OUT = {
    "cut off": asyncio.CancelledError(),
    "no answer": Unreachable("it does not answer", cause=UnreachableCause.TIMEOUT),
    "a proxy's answer": ServerError("bad gateway", status=502),
    "an answer that cannot be read": UnexpectedAnswer("not JSON", status=200),
}


@pytest.mark.parametrize("error", CARRIED_OUT.values(), ids=CARRIED_OUT)
@pytest.mark.parametrize("verb", ["create", "update"])
async def test_a_write_with_a_lost_response_is_released(world: World, verb: str, error: BaseException) -> None:
    """Otherwise the next replica would wait for a Lease to expire that no replica knows it holds."""
    if verb == "update":
        former = world.replica()
        await former.lead()
        await former.release()
    replica = world.replica()
    world.leases.after = lambda called: error if called == verb else None
    with contextlib.suppress(asyncio.CancelledError):
        await replica._attempt()
    world.leases.after = lambda called: None
    assert (world.leases.holder, replica.standing()) == (replica.identity, StandingBy(""))
    await replica.release()
    assert world.leases.holder == ""


async def test_after_a_refused_write_nothing_is_released(world: World) -> None:
    replica = world.replica()
    world.leases.fault = lambda verb: AlreadyExists("it exists", status=409) if verb == "create" else None
    await replica._attempt()
    assert world.leases.calls == ["get", "create"]
    await replica.release()
    assert world.leases.calls == ["get", "create"]


async def test_a_lease_that_another_replica_took_is_not_released(world: World) -> None:
    leader = world.replica()
    await leader.lead()
    assert world.leases.stored is not None
    world.leases._store({**world.leases.stored, "spec": {**HELD, "holderIdentity": "another"}})
    await leader.release()
    assert world.leases.holder == "another"


async def test_a_standby_releases_nothing(world: World) -> None:
    first, second = world.replica(), world.replica()
    await first.lead()
    await second._attempt()
    await second.release()
    world.clock.pass_by(11)
    world.leases.calls.clear()
    await first.release()
    assert (world.leases.holder, world.leases.calls) == (first.identity, [])


@pytest.mark.parametrize("error", [Conflict("stale", status=409), Forbidden("no", status=403)])
async def test_a_failed_release_raises_nothing(world: World, error: Exception) -> None:
    leader = world.replica()
    await leader.lead()
    world.leases.fault = lambda verb: error
    await leader.release()
    assert world.leases.holder == leader.identity


async def test_in_touch_while_the_api_server_answers(world: World) -> None:
    first, second = world.replica(), world.replica()
    assert not second.is_in_touch()
    await first.lead()
    await second._attempt()
    world.clock.pass_by(14)
    assert second.is_in_touch()
    world.leases.fault = lambda verb: Forbidden("no", status=403)
    await second._attempt()
    world.clock.pass_by(1)
    assert not second.is_in_touch()
