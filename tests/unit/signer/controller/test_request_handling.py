from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import cast

import pytest

from signer.controller import request_handling
from signer.controller.adjudicator import Adjudication, Adjudicator
from signer.controller.metrics import Metrics
from signer.controller.publisher import Publisher
from signer.controller.request_handling import Heeds, RequestHandling
from signer.controller.surroundings import Surroundings
from signer.kube.client import Client, JsonObject
from signer.kube.fair_order import CROWD
from signer.model.cluster import ClusterKey
from signer.model.decision import Ignore
from signer.model.lane import Lane, Screening
from signer.model.signing_request import NotOurs
from signer.store.inventory import ALL_PROVIDER_IDS
from tests.unit.signer.controller.requests import csr

WORKERS = 8
THIEF = "system:bootstrap:thief"


class Judge:
    """Stands for the adjudicator: nothing in the Cluster has what the requests claim."""

    def __init__(self) -> None:
        self.judged: list[str] = []
        self.glances = 0

    def glance(self, manifest: JsonObject) -> Lane:
        self.glances += 1
        return Lane(Screening.UNKNOWN_MACHINE, THIEF, manifest["metadata"]["name"])

    def screen(self, manifest: JsonObject) -> Lane:
        raise AssertionError("what nothing in the Cluster has is not looked at")

    async def adjudicate(self, manifest: JsonObject) -> Adjudication:
        self.judged.append(manifest["metadata"]["name"])
        return Adjudication(NotOurs(), Ignore())


def holding(judge: Judge, requests: int) -> RequestHandling:
    """With so many requests."""
    around = SimpleNamespace(metrics=Metrics(), machine_conditions=None, monotonic=lambda: 0.0, audit_log=None)
    handling = RequestHandling(
        ClusterKey("team-a", "one"),
        cast("Surroundings", around),
        cast("Adjudicator", judge),
        cast("Heeds", SimpleNamespace()),
    )
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


async def test_a_change_of_a_machine_is_a_reason_to_glance_again_and_one_of_the_cluster_is_none() -> None:
    """A glance reads the whole request; thousands of them in one go hold up all other clusters."""
    judge = Judge()
    handling = holding(judge, 2)
    assert judge.glances == 2
    handling.wake(ALL_PROVIDER_IDS)
    assert judge.glances == 2
    handling.wake(frozenset({"node-1"}))
    assert judge.glances == 3
