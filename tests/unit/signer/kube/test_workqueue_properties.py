from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from signer.kube.backoff import Backoff
from signer.kube.workqueue import WorkQueue
from signer.model.flow import Flow, PriorityLevel
from tests.unit.signer.kube.support import VirtualTimeLoop

FIXED = Backoff(base_seconds=1.0, maximum_seconds=8.0, jitter=0.0)


class QueueMachine(RuleBasedStateMachine):
    """Drives a queue and a plain model of it: what must come, and what a worker has."""

    keys = st.integers(0, 4)
    flows = st.builds(Flow, st.sampled_from(PriorityLevel), st.sampled_from("rs"), st.sampled_from("pq"))

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualTimeLoop()
        self.flow = dict.fromkeys(range(5), Flow(PriorityLevel.UNFILTERED, "r"))
        self.queue: WorkQueue[int] = WorkQueue(backoff=FIXED, flow_of=self.flow.__getitem__)
        self.wanted: dict[int, float] = {}  # key -> latest time at which it must be ready
        self.held: set[int] = set()

    def teardown(self) -> None:
        self.loop.close()

    def _do(self, action: Callable[[], Any]) -> Any:
        async def main() -> Any:
            return action()

        return self.loop.run_until_complete(main())

    def _want(self, key: int, seconds: float) -> None:
        due = self.loop.time() + max(0.0, seconds)
        self.wanted[key] = min(due, self.wanted.get(key, due))

    @rule(key=keys)
    def add(self, key: int) -> None:
        self._do(lambda: self.queue.add(key))
        self._want(key, 0)

    @rule(key=keys, flow=flows)
    def pre_filtered(self, key: int, flow: Flow) -> None:
        self.flow[key] = flow

    @rule(key=keys, seconds=st.floats(-1, 50))
    def add_after(self, key: int, seconds: float) -> None:
        self._do(lambda: self.queue.add_after(key, seconds))
        self._want(key, seconds)

    @rule(key=keys)
    def retry(self, key: int) -> None:
        self._want(key, self._do(lambda: self.queue.retry(key)))

    @rule(key=keys)
    def forget(self, key: int) -> None:
        self._do(lambda: self.queue.forget(key))

    @rule(key=keys)
    def discard(self, key: int) -> None:
        self._do(lambda: self.queue.discard(key))
        self.wanted.pop(key, None)

    @rule(seconds=st.floats(0, 20))
    def pass_time(self, seconds: float) -> None:
        self.loop.run_until_complete(asyncio.sleep(seconds))

    def _due(self) -> set[int]:
        return {key for key, due in self.wanted.items() if due <= self.loop.time() and key not in self.held}

    @precondition(lambda self: self._due())
    @rule()
    def get(self) -> None:
        key = self.loop.run_until_complete(asyncio.wait_for(self.queue.get(), 1))
        assert key not in self.held
        assert key in self.wanted
        # The queue may be up to one tick of the timer early, never more.
        assert self.wanted.pop(key) <= self.loop.time() + 0.002
        self.held.add(key)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.held)))
        self._do(lambda: self.queue.done(key))
        self.held.remove(key)

    @invariant()
    def nothing_is_lost_or_invented(self) -> None:
        assert self.queue.processing == len(self.held)
        assert len(self.queue) + self.queue.delayed == len(self.wanted)
        assert set(self.queue._ready) == set(self.queue._order._flows)
        assert len(self.queue._heap) <= 2 * self.queue.delayed + 64


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
