"""Handling of requests by a judge that stands for the adjudicator; nobody heeds what it says of its connection."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Final, cast

from signer.configuration import Configuration
from signer.controller.requests.handler import Heeds, RequestHandler
from signer.controller.requests.request_budget import SharedRequestMemory
from signer.controller.requests.workers import SharedWorkerPool
from signer.controller.surroundings import Surroundings
from signer.controller.telemetry.metrics import Metrics
from signer.decision.decider import DecidedRequest, Decider
from signer.kube.client import JsonObject
from signer.model.cluster import ClusterKey
from signer.model.csr_header import NotOurs
from signer.model.decision import Ignore
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
    judge: object, *, workers: int = WORKERS, worker_pool: SharedWorkerPool | None = None
) -> RequestHandler:
    """Judged by ``judge``; nobody heeds what it says of its connection."""
    around = SimpleNamespace(
        metrics=Metrics(),
        machine_conditions=None,
        monotonic=lambda: 0.0,
        audit_log=None,
        shared_request_memory=SharedRequestMemory(),
        worker_pool=worker_pool if worker_pool is not None else SharedWorkerPool(),
        configuration=Configuration(namespace="here", workers_per_cluster=workers),
    )
    return RequestHandler(
        ClusterKey("team-a", "one"),
        cast("Surroundings", around),
        cast("Decider", judge),
        cast("Heeds", SimpleNamespace(requests_overflowed=lambda: None, list_again=lambda: None)),
    )


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
