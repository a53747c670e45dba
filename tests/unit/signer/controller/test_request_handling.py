from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from signer.controller import request_handling
from signer.controller.adjudicator import Adjudication, Adjudicator
from signer.controller.bounded_request import MAXIMUM_OBJECT_BYTES
from signer.controller.configuration import Configuration
from signer.controller.metrics import Metrics
from signer.controller.publisher import Publisher
from signer.controller.request_handling import Heeds, RequestHandling
from signer.controller.room import Together
from signer.controller.surroundings import Surroundings
from signer.controller.workers import OWN_WORKERS, Crew
from signer.kube.client import Client, JsonObject
from signer.kube.fair_order import CROWD
from signer.model.cluster import ClusterKey
from signer.model.decision import Defer, Ignore
from signer.model.lane import Lane, Screening
from signer.model.reasons import Reason
from signer.model.signing_request import Malformed, NotOurs, RequestEnvelope
from signer.store.inventory import ALL_PROVIDER_IDS
from tests.unit.signer.controller.requests import csr

WORKERS = 8
THIEF = "system:bootstrap:thief"


class Judge:
    """Stands for the adjudicator: nothing in the Cluster has what the requests claim."""

    def __init__(self) -> None:
        self.judged: list[str] = []
        self.seen: list[JsonObject] = []
        self.glances = 0

    def glance(self, manifest: JsonObject) -> Lane:
        self.glances += 1
        return Lane(Screening.UNKNOWN_MACHINE, THIEF, manifest["metadata"]["name"])

    def screen(self, manifest: JsonObject) -> Lane:
        raise AssertionError("what nothing in the Cluster has is not looked at")

    async def adjudicate(self, manifest: JsonObject) -> Adjudication:
        self.judged.append(manifest["metadata"]["name"])
        self.seen.append(manifest)
        return Adjudication(NotOurs(), Ignore())


def handling_by(judge: object, *, workers: int = WORKERS, crew: Crew | None = None) -> RequestHandling:
    """Judged by ``judge``; nobody heeds what it says of its connection."""
    around = SimpleNamespace(
        metrics=Metrics(),
        machine_conditions=None,
        monotonic=lambda: 0.0,
        audit_log=None,
        requests_together=Together(),
        crew=crew if crew is not None else Crew(),
        configuration=Configuration(namespace="here", workers_per_cluster=workers),
    )
    return RequestHandling(
        ClusterKey("team-a", "one"),
        cast("Surroundings", around),
        cast("Adjudicator", judge),
        cast("Heeds", SimpleNamespace(requests_left_out=lambda: None, list_again=lambda: None)),
    )


def holding(judge: Judge, requests: int, *, workers: int = WORKERS, crew: Crew | None = None) -> RequestHandling:
    """With so many requests."""
    handling = handling_by(judge, workers=workers, crew=crew)
    for number in range(requests):
        handling.applied(csr(f"node-{number}", f"uid-{number}"))
    return handling


async def judged_at_once(requests: int) -> int:
    """How many of so many requests are judged before a pause is over."""
    judge = Judge()
    handling = holding(judge, requests)
    nobody = cast("Client", None), cast("Publisher", None)
    workers = [asyncio.create_task(handling.work(*nobody)) for _ in range(WORKERS)]
    for _ in range(20 * requests):
        await asyncio.sleep(0)
    for worker in workers:
        worker.cancel()
    await asyncio.gather(*workers, return_exceptions=True)
    return len(judge.judged)


@pytest.fixture(autouse=True)
def _pauses_that_never_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(request_handling, "_UNKNOWN_EVERY_SECONDS", 3600)


async def test_a_crowd_that_no_machine_has_is_held_back() -> None:
    """Else the watch, behind which honest nodes' requests wait, falls behind."""
    assert await judged_at_once(CROWD + WORKERS + 1) == 0


async def test_a_few_are_judged_at_once() -> None:
    assert await judged_at_once(CROWD) == CROWD


class Panic(BaseException):
    """As of Rust code."""


class SlowJudge(Judge):
    """Knows the Machines, and takes its time; ``fault`` is what it ends with the first time."""

    def __init__(self, fault: BaseException | None = None) -> None:
        super().__init__()
        self.begun = asyncio.Event()
        self.may_go_on = asyncio.Event()
        self.fault = fault

    def glance(self, manifest: JsonObject) -> Lane:
        super().glance(manifest)
        return Lane(Screening.UNSCREENED, THIEF, "test:///machine")

    async def adjudicate(self, manifest: JsonObject) -> Adjudication:
        fault, self.fault = self.fault, None
        adjudication = await super().adjudicate(manifest)
        self.begun.set()
        await self.may_go_on.wait()
        if fault is not None:
            raise fault
        return adjudication


@pytest.mark.parametrize(
    ("fault", "meanwhile", "judged", "glances"),
    [
        (None, "uid-0", 1, 1),  # settled: what came back through the watch is not looked at
        (OSError(), "uid-0", 2, 2),  # not settled: judged as it is by now
        (Panic(), "uid-0", 2, 2),  # and by the same worker
        (None, "uid-1", 2, 2),  # another one under its name
    ],
    ids=["settled", "not settled", "panic", "re-created"],
)
async def test_what_changes_while_it_is_judged(
    fault: BaseException | None, meanwhile: str, judged: int, glances: int
) -> None:
    judge = SlowJudge(fault)
    handling = holding(judge, 1)
    worker = asyncio.create_task(handling.work(cast("Client", None), cast("Publisher", None)))
    await judge.begun.wait()
    handling.applied(csr("node-0", meanwhile))
    judge.may_go_on.set()
    for _ in range(20):
        await asyncio.sleep(0)
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    assert (len(judge.judged), judge.glances, len(handling.pending)) == (judged, glances, 0)


async def test_a_list_is_newer_than_what_was_held_back() -> None:
    judge = SlowJudge(OSError())
    handling = holding(judge, 1)
    worker = asyncio.create_task(handling.work(cast("Client", None), cast("Publisher", None)))
    await judge.begun.wait()
    handling.applied(csr("node-0", "uid-0", labels={"version": "2"}))
    handling.replaced([csr("node-0", "uid-0", labels={"version": "3"})])
    judge.begun.clear()
    judge.may_go_on.set()
    await judge.begun.wait()
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)
    assert [manifest["metadata"].get("labels") for manifest in judge.seen] == [None, {"version": "3"}]


async def test_what_is_too_large_is_dropped_also_while_it_is_judged() -> None:
    """A hostile API server may send anything under the name of what a worker has: it is measured all the same."""
    judge = SlowJudge()
    handling = holding(judge, 1)
    worker = asyncio.create_task(handling.work(cast("Client", None), cast("Publisher", None)))
    await judge.begun.wait()
    changed = csr("node-0", "uid-0")
    changed["spec"]["extra"] = {"x": ["y" * MAXIMUM_OBJECT_BYTES]}
    handling.applied(changed)
    assert len(handling.pending) == 0
    worker.cancel()
    await asyncio.gather(worker, return_exceptions=True)


async def test_a_change_of_a_machine_is_a_reason_to_glance_again_and_one_of_the_cluster_is_none() -> None:
    """A glance reads the whole request; thousands of them in one go hold up all other clusters."""
    judge = Judge()
    handling = holding(judge, 2)
    assert judge.glances == 2
    handling.wake(ALL_PROVIDER_IDS)
    assert judge.glances == 2
    handling.wake(frozenset({"node-1"}))
    assert judge.glances == 3


async def test_what_no_machine_has_waits_for_it_also_where_it_cannot_be_read() -> None:
    """Its denial says what is wrong, and need not wait behind a crowd."""
    judge = Judge()
    handling = holding(judge, 1)
    parsed = Malformed(cast("RequestEnvelope", None), Reason.UNSUPPORTED_VERSION, "newer")
    handling._awaits("node-0", parsed, Defer(Reason.MACHINE_NOT_FOUND, "none yet"))
    assert handling.pending.waiting_for(["node-0"]) == ["node-0"]


async def _turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


async def test_workers_come_as_they_are_needed_and_one_stays() -> None:
    judge = SlowJudge()
    handling = holding(judge, 1)
    workers = handling.workers_over(cast("Client", None), cast("Publisher", None))
    await _turns(5)
    assert (len(workers), len(judge.judged)) == (1, 1)  # what waited already
    for number in range(1, WORKERS + 3):
        handling.applied(csr(f"node-{number}", f"uid-{number}"))
    await _turns(20)
    assert (len(workers), len(judge.judged)) == (WORKERS, WORKERS)  # and no more at once
    judge.may_go_on.set()
    await _turns(100)
    assert len(judge.judged) == WORKERS + 3
    assert len(workers) == 1  # an idle cluster has one worker
    judge.begun.clear()
    handling.applied(csr("later", "uid-later"))
    await judge.begun.wait()
    assert len(judge.judged) == WORKERS + 4
    handling.stop()
    await workers.finished()
    await workers.end()


async def test_what_waits_when_a_connection_begins_has_as_many_workers_as_it_needs() -> None:
    judge = SlowJudge()
    handling = holding(judge, WORKERS + 1)
    first = handling.workers_over(cast("Client", None), cast("Publisher", None))
    assert len(first) == WORKERS
    await first.end()
    assert not judge.judged
    second = handling.workers_over(cast("Client", None), cast("Publisher", None))
    await judge.begun.wait()
    judge.may_go_on.set()
    await _turns(100)
    assert len(judge.judged) == WORKERS + 1
    await second.end()


async def test_what_cannot_be_looked_at_after_it_was_judged_is_judged_again(caplog: pytest.LogCaptureFixture) -> None:
    """What changed meanwhile makes the glance panic, which is no ``Exception``: the worker goes on."""
    judge = SlowJudge(OSError())
    handling = holding(judge, 1)
    workers = handling.workers_over(cast("Client", None), cast("Publisher", None))
    await judge.begun.wait()
    handling.applied(csr("node-0", "uid-0", labels={"version": "2"}))

    def panics(manifest: JsonObject) -> Lane:
        raise Panic

    handling.pending._glance = panics
    judge.may_go_on.set()
    await _turns(20)
    assert [record.message for record in caplog.records] == ["unexpected fault"] * 2
    assert (len(workers), handling._queue.delayed) == (1, 1)
    await workers.end()


async def test_who_takes_one_calls_another_where_there_is_room_by_now() -> None:
    """The crew was with other clusters when the requests came."""
    judge, crew = SlowJudge(), Crew(0)
    handling = holding(judge, 4 * OWN_WORKERS, workers=OWN_WORKERS + 3, crew=crew)
    workers = handling.workers_over(cast("Client", None), cast("Publisher", None))
    await judge.begun.wait()
    assert len(workers) == OWN_WORKERS
    crew.left = 3
    judge.may_go_on.set()
    judge.may_go_on.clear()
    await _turns(20)
    assert (len(workers), crew.left) == (OWN_WORKERS + 3, 0)
    await workers.end()


async def test_another_takes_what_one_was_woken_for_that_goes_away() -> None:
    """While it goes it still has its place, which is the only one."""
    judge = SlowJudge()
    handling = holding(judge, 0, workers=1)
    workers = handling.workers_over(cast("Client", None), cast("Publisher", None))
    await _turns(5)
    handling.applied(csr("node-0", "uid-0"))
    (woken,) = workers._tasks
    woken.cancel()
    await _turns(10)
    assert (judge.judged, len(workers)) == (["node-0"], 1)
    await workers.end()
