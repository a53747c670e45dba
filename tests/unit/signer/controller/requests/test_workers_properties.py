"""No ready request stays without a worker, regardless of how workers end."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any, Final, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from signer.controller.requests.handler import RequestHandler
from signer.controller.requests.publisher import Publisher
from signer.controller.requests.workers import OWN_WORKERS, SharedWorkerPool, Workers
from signer.decision.decider import DecidedRequest
from signer.kube.client import Client, JsonObject
from signer.model.decision import Ignore
from signer.model.flow import Flow, PriorityLevel
from signer.model.signing_request import NotOurs
from signer.store.caches import ALL_PROVIDER_IDS
from tests.unit.signer.controller.requests.handling_fixtures import handler_with
from tests.unit.signer.kube.support import VirtualTimeLoop
from tests.unit.signer.requests import csr

NAMES: Final = [f"csr-{number}" for number in range(OWN_WORKERS + 6)]
FAULT, PANIC, SETTLED = "fault", "panic", "settled"


class Panic(BaseException):
    """A panic as of Rust code."""


class FakeDecider:
    """A fake decider whose decisions complete when a test says so."""

    def __init__(self) -> None:
        self.in_hand: dict[str, asyncio.Future[str]] = {}
        self.fails_at_peek = False

    def peek(self, manifest: JsonObject) -> Flow:
        if self.fails_at_peek:
            raise Panic
        return Flow(PriorityLevel.UNFILTERED, "requester")

    pre_filter = peek

    async def decide(self, manifest: JsonObject) -> DecidedRequest:
        name = manifest["metadata"]["name"]
        assert name not in self.in_hand, "two workers have it"
        answer = self.in_hand[name] = asyncio.get_running_loop().create_future()
        try:
            outcome = await answer
        finally:
            del self.in_hand[name]
        if outcome == SETTLED:
            return DecidedRequest(NotOurs(), Ignore())
        raise OSError if outcome == FAULT else Panic


class WorkersMachine(RuleBasedStateMachine):
    """Drives the requests of a cluster and its workers; ``there`` is the API server's state."""

    names = st.sampled_from(NAMES)

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualTimeLoop()
        self.tasks: list[asyncio.Task[Any]] = []
        """In the order in which they were made."""
        self.loop.set_task_factory(self._make_task)
        self.fake_decider = FakeDecider()
        self.worker_pool = SharedWorkerPool(2)
        self.there: dict[str, int] = {}
        self.uids = 0
        self.lost: set[str] = set()
        """What a cancelled worker had in hand: the list of the next connection brings it back."""
        self.stopped = False

    @initialize(limit=st.sampled_from([1, 2, 3, OWN_WORKERS + 2, OWN_WORKERS + 4]))
    def begin(self, limit: int) -> None:
        self.limit = limit
        self.handling: RequestHandler = self._do(
            lambda: handler_with(
                self.fake_decider, workers=limit, worker_pool=self.worker_pool, monotonic=self.loop.time
            )
        )
        # Its backoff is drawn: the same each time that an example is tried.
        self.handling.informer.queue._random = random.Random(1)
        self.workers: Workers = self._do(self._call_workers)

    def _make_task(self, loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **options)
        self.tasks.append(task)
        return task

    def teardown(self) -> None:
        if hasattr(self, "workers"):
            self.loop.run_until_complete(self.workers.end())
        self.loop.close()

    def _do(self, action: Callable[[], Any]) -> Any:
        async def main() -> Any:
            return action()

        return self.loop.run_until_complete(main())

    def _settle(self) -> None:
        """Run until nothing is left to do at this time."""

        async def main() -> None:
            for _ in range(100):
                await asyncio.sleep(0)

        self.loop.run_until_complete(main())

    def _call_workers(self) -> Workers:
        return self.handling.workers_over(cast("Client", None), cast("Publisher", None))

    def _known(self) -> set[str]:
        """The places where a kept request may be."""
        queue = self.handling.informer.queue
        return {*queue._ready, *queue._due, *queue._again, *queue._processing}

    @rule(posted=st.sets(names, min_size=1))
    def applied(self, posted: set[str]) -> None:
        """Create or change requests within one iteration of the event loop."""
        for name in posted - self.there.keys():
            self.uids += 1
            self.there[name] = self.uids
        manifests = [csr(name, f"uid-{self.there[name]}") for name in sorted(posted)]

        def seen() -> None:
            for manifest in manifests:
                self.handling.informer.applied(manifest)

        self._do(seen)
        self.lost -= posted

    @rule(name=names)
    def removed(self, name: str) -> None:
        uid = self.there.pop(name, 0)
        self._do(lambda: self.handling.informer.removed(csr(name, f"uid-{uid}")))
        self.lost.discard(name)

    @rule()
    def everything_woken(self) -> None:
        self._do(lambda: self.handling.informer.wake(ALL_PROVIDER_IDS))
        self.lost.clear()

    @precondition(lambda self: self.fake_decider.in_hand)
    @rule(data=st.data(), fails_at_peek=st.booleans(), more=st.sets(names))
    def decided(self, data: st.DataObject, fails_at_peek: bool, more: set[str]) -> None:
        """Complete some decisions one by one, and post ``more`` in the same iteration."""
        outcomes = data.draw(
            st.dictionaries(
                st.sampled_from(sorted(self.fake_decider.in_hand)), st.sampled_from([FAULT, PANIC, SETTLED]), min_size=1
            )
        )

        def answer() -> None:
            for name, outcome in outcomes.items():
                self.fake_decider.in_hand[name].set_result(outcome)
                if outcome == SETTLED:
                    self.there.pop(name, None)

        self._do(answer)
        if more:
            self.applied(more)
        self.fake_decider.fails_at_peek = fails_at_peek
        self._settle()
        self.fake_decider.fails_at_peek = False

    @rule(data=st.data(), posted=st.sets(names))
    def cancelled(self, data: st.DataObject, posted: set[str]) -> None:
        """Cancel some workers that have just been woken."""
        if posted:
            self.applied(posted)
        queue = self.handling.informer.queue
        waiting = {*queue._ready, *queue._processing}  # what a worker is about to take goes with it, too
        tasks = [task for task in self.tasks if task in self.workers._tasks]
        chosen = data.draw(st.lists(st.integers(0, self.limit), max_size=3))
        self._do(lambda: [tasks[number % len(tasks)].cancel() for number in chosen if tasks])
        self._settle()
        lost = waiting - self._known()
        assert len(lost) <= len(chosen)
        self.lost |= lost

    @rule(seconds=st.floats(0, 20))
    def time_passes(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))

    @rule(others=st.integers(0, 2))
    def other_clusters_use_the_pool(self, others: int) -> None:
        self.worker_pool.available = 2 - others - self.workers._borrowed

    @precondition(lambda self: not self.stopped)
    @rule(posted=st.sets(names))
    def connection_replaced(self, posted: set[str]) -> None:
        self.loop.run_until_complete(self.workers.end())
        assert not self.fake_decider.in_hand
        if posted:
            self.applied(posted)
        self.workers = self._do(self._call_workers)
        listed = [csr(name, f"uid-{uid}") for name, uid in self.there.items()]
        self._do(lambda: self.handling.informer.replaced(listed))
        self.lost.clear()

    @precondition(lambda self: self.loop.time() > 60)
    @rule()
    def stop(self) -> None:
        """Each worker finishes its current request and takes no other."""
        self.stopped = True
        self._do(self.handling.informer.stop)
        self._settle()
        assert len(self.workers) == len(self.fake_decider.in_hand)

    @invariant()
    def ready_requests_have_a_worker(self) -> None:
        if not hasattr(self, "workers"):
            return
        self._settle()
        queue = self.handling.informer.queue
        # None of them has ended without having been let go.
        running = sum(not task.done() for task in self.workers._tasks)
        assert running == len(self.workers) <= self.limit
        assert self.workers._borrowed == max(0, running - OWN_WORKERS)
        if self.stopped:
            assert running == len(self.fake_decider.in_hand)
            return
        if queue._ready:
            assert len(self.fake_decider.in_hand) == running >= min(self.limit, OWN_WORKERS)
        assert set(self.handling.informer.pending) <= self._known() | self.lost


TestWorkers = pytest.mark.slow(WorkersMachine.TestCase)
TestWorkers.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)
