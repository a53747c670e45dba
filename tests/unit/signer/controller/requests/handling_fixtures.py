"""Handling of requests by a judge that stands for the adjudicator; nobody heeds what it says of its connection."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Final, cast

from signer.configuration import Configuration
from signer.controller.diagnostics.metrics import Metrics
from signer.controller.requests.handler import Heeds, RequestHandling
from signer.controller.requests.request_budget import Together
from signer.controller.requests.workers import Crew
from signer.controller.surroundings import Surroundings
from signer.decision.decider import Adjudication, Adjudicator
from signer.kube.client import JsonObject
from signer.model.cluster import ClusterKey
from signer.model.csr_header import NotOurs
from signer.model.decision import Ignore
from signer.model.flow import Lane, Screening
from tests.unit.signer.requests import csr

WORKERS: Final = 8
THIEF: Final = "system:bootstrap:thief"


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
        handling.intake.applied(csr(f"node-{number}", f"uid-{number}"))
    return handling


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
