"""A request handler with a fake decider and without an API server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, Final, cast
from unittest.mock import MagicMock

from signer.controller.requests.auditing import Auditing
from signer.controller.requests.deferral_backoff import DeferralBackoff
from signer.controller.requests.handler import RequestHandler
from signer.controller.requests.informer import RequestInformer
from signer.controller.requests.pending import PendingRequests
from signer.controller.requests.reachability import Reachability
from signer.controller.requests.workers import SharedWorkerPool
from signer.controller.telemetry.metrics import Metrics
from signer.decision.decider import DecidedRequest, Decider
from signer.kube.client import JsonObject
from signer.model.cluster import ClusterKey
from signer.model.decision import Decision, Ignore
from signer.model.flow import Flow, PriorityLevel, requester_of
from signer.model.signing_request import NotOurs
from tests.unit.signer.requests import csr

WORKERS: Final = 8


class FakeDecider:
    """A fake decider: no Machine has the provider IDs that the requests claim."""

    def __init__(self) -> None:
        self.decided_names: list[str] = []
        self.seen: list[JsonObject] = []
        self.peeks = 0

    def peek(self, manifest: JsonObject) -> Flow:
        self.peeks += 1
        return Flow(PriorityLevel.UNKNOWN_MACHINE, requester_of(manifest), manifest["metadata"]["name"])

    def pre_filter(self, manifest: JsonObject) -> Flow:
        raise AssertionError("what nothing in the Cluster has is not looked at")

    async def decide(self, manifest: JsonObject) -> DecidedRequest:
        self.decided_names.append(manifest["metadata"]["name"])
        self.seen.append(manifest)
        return DecidedRequest(NotOurs(), Ignore())


class Panic(BaseException):
    """A panic as of Rust code."""


class SlowDecider(FakeDecider):
    """A slow fake decider that knows the Machines; ``fault`` is raised the first time."""

    def __init__(self, fault: BaseException | None = None) -> None:
        super().__init__()
        self.begun = asyncio.Event()
        self.may_go_on = asyncio.Event()
        self.fault = fault

    def peek(self, manifest: JsonObject) -> Flow:
        super().peek(manifest)
        return Flow(PriorityLevel.UNFILTERED, requester_of(manifest), "test:///machine")

    async def decide(self, manifest: JsonObject) -> DecidedRequest:
        fault, self.fault = self.fault, None
        decided_request = await super().decide(manifest)
        self.begun.set()
        await self.may_go_on.wait()
        if fault is not None:
            raise fault
        return decided_request


def handler_with(
    fake_decider: Any,
    *,
    workers: int = WORKERS,
    worker_pool: SharedWorkerPool | None = None,
    monotonic: Callable[[], float] = lambda: 0.0,
) -> RequestHandler:
    """A handler with that decider."""
    key, metrics = ClusterKey("team-a", "one"), Metrics()
    pending = PendingRequests(key, peek=fake_decider.peek, pre_filter=fake_decider.pre_filter)
    reachability = Reachability(
        key,
        pending,
        monotonic=lambda: 0.0,
        random=Random(1),
        changed=asyncio.Event(),
        reconnect=asyncio.Event(),
    )
    reporter, auditing, backoff = MagicMock(), AuditsNothing(), DeferralBackoff()
    return RequestHandler(
        key,
        decider=cast("Decider", fake_decider),
        informer=RequestInformer(pending, reachability, monotonic=monotonic, memories=(reporter, auditing, backoff)),
        reachability=reachability,
        reporter=reporter,
        auditing=cast("Auditing", auditing),
        backoff=backoff,
        metrics=metrics,
        workers_per_cluster=workers,
        worker_pool=worker_pool if worker_pool is not None else SharedWorkerPool(),
        monotonic=monotonic,
    )


class AuditsNothing:
    """A fake audit log that allows every decision."""

    def forget(self, name: str) -> None:
        pass

    async def decided(self, name: str, manifest: JsonObject, decided_request: DecidedRequest) -> Decision:
        return decided_request.decision


def holding(
    fake_decider: FakeDecider, requests: int, *, workers: int = WORKERS, worker_pool: SharedWorkerPool | None = None
) -> RequestHandler:
    """A handler with that many requests."""
    handling = handler_with(fake_decider, workers=workers, worker_pool=worker_pool)
    for number in range(requests):
        handling.informer.applied(csr(f"node-{number}", f"uid-{number}"))
    return handling


async def loop_iterations(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
