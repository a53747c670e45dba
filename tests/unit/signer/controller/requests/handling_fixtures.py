"""A request handler whose decider is a stand-in, without any API server."""

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
from signer.model.csr_header import NotOurs
from signer.model.decision import Decision, Ignore
from signer.model.flow import Flow, PriorityLevel
from tests.unit.signer.requests import csr

WORKERS: Final = 8
THIEF: Final = "system:bootstrap:thief"


class Judge:
    """Stands for the adjudicator: nothing in the Cluster has what the requests claim."""

    def __init__(self) -> None:
        self.judged: list[str] = []
        self.seen: list[JsonObject] = []
        self.glances = 0

    def peek(self, manifest: JsonObject) -> Flow:
        self.glances += 1
        return Flow(PriorityLevel.UNKNOWN_MACHINE, THIEF, manifest["metadata"]["name"])

    def pre_filter(self, manifest: JsonObject) -> Flow:
        raise AssertionError("what nothing in the Cluster has is not looked at")

    async def decide(self, manifest: JsonObject) -> DecidedRequest:
        self.judged.append(manifest["metadata"]["name"])
        self.seen.append(manifest)
        return DecidedRequest(NotOurs(), Ignore())


class Panic(BaseException):
    """As of Rust code."""


class SlowJudge(Judge):
    """Knows the Machines, and takes its time; ``fault`` is what it ends with the first time."""

    def __init__(self, fault: BaseException | None = None) -> None:
        super().__init__()
        self.begun = asyncio.Event()
        self.may_go_on = asyncio.Event()
        self.fault = fault

    def peek(self, manifest: JsonObject) -> Flow:
        super().peek(manifest)
        return Flow(PriorityLevel.UNFILTERED, THIEF, "test:///machine")

    async def decide(self, manifest: JsonObject) -> DecidedRequest:
        fault, self.fault = self.fault, None
        decided_request = await super().decide(manifest)
        self.begun.set()
        await self.may_go_on.wait()
        if fault is not None:
            raise fault
        return decided_request


def handling_by(
    judge: Any,
    *,
    workers: int = WORKERS,
    worker_pool: SharedWorkerPool | None = None,
    monotonic: Callable[[], float] = lambda: 0.0,
) -> RequestHandler:
    """Decided by ``judge``."""
    key, metrics = ClusterKey("team-a", "one"), Metrics()
    pending = PendingRequests(key, peek=judge.peek, pre_filter=judge.pre_filter)
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
        decider=cast("Decider", judge),
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
    """Stands for the audit log: each decision may be carried out at once."""

    def forget(self, name: str) -> None:
        pass

    async def decided(self, name: str, manifest: JsonObject, decided_request: DecidedRequest) -> Decision:
        return decided_request.decision


def holding(
    judge: Judge, requests: int, *, workers: int = WORKERS, worker_pool: SharedWorkerPool | None = None
) -> RequestHandler:
    """With so many requests."""
    handling = handling_by(judge, workers=workers, worker_pool=worker_pool)
    for number in range(requests):
        handling.informer.applied(csr(f"node-{number}", f"uid-{number}"))
    return handling


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
