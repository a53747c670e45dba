from __future__ import annotations

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from signer.controller.cluster import signers_granted
from signer.controller.cluster.signers_granted import MISSING_SECONDS, REVIEWS_AT_ONCE, SignersGranted
from signer.kube.backoff import Backoff
from signer.kube.errors import Cause, ServerError, Unreachable
from signer.model.condition import PolicyCondition
from signer.model.policy import Policy
from tests.unit.signer.builders import CLUSTER, policy

CLIENT = "cluster.x-k8s.io/kube-apiserver-client-kubelet-"
SERVING = "cluster.x-k8s.io/kubelet-serving-"
BOTH = ("approve", "sign")


def rights_for(*providers: str) -> set[tuple[str, str]]:
    return {(verb, f"{prefix}{one}") for one in providers for prefix in (CLIENT, SERVING) for verb in BOTH}


class World:
    """A workload cluster that grants ``rights`` to the controller, and the policy's attestors."""

    def __init__(self, *authorized: str) -> None:
        self.authorized = authorized
        self.rights: set[tuple[str, str]] = set()
        self.asked: list[tuple[str, str]] = []
        self.fault: Exception | None = None
        self.answer: dict[str, Any] = {}
        self.wakes = 0
        self.clock = 0.0
        self.changed = asyncio.Event()
        caches = SimpleNamespace(policies=SimpleNamespace(get=self._policy))
        self.service = SignersGranted(
            CLUSTER,
            cast("Any", caches),
            status_changed=self.changed,
            monotonic=lambda: self.clock,
            random=Random(1),
        )
        self.service.on_granted(self._wake)

    def _policy(self, namespace: str, name: str) -> Policy:
        assert (namespace, name) == (CLUSTER.namespace, CLUSTER.name)
        return policy(authorizedAttestors=[{"name": one} for one in self.authorized])

    def _wake(self) -> None:
        self.wakes += 1

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert path == "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        if self.fault is not None:
            raise self.fault
        attributes = body["spec"]["resourceAttributes"]
        asked = attributes["verb"], attributes.get("name", "*")
        self.asked.append(asked)
        allowed = asked in self.rights and "evaluationError" not in self.answer
        return {"status": {"allowed": allowed, **self.answer}}

    async def review(self) -> float:
        return await self.service._review(cast("Any", self))

    def condition(self) -> PolicyCondition:
        (shown,) = self.service.conditions
        assert shown.type == "SignersGranted"
        return shown


async def test_an_attestor_that_was_authorized_later_is_named_with_the_remedy() -> None:
    world = World("keyed-mac", "tpm")
    world.rights = rights_for("keyed-mac")
    assert await world.review() == MISSING_SECONDS
    shown = world.condition()
    assert (shown.met, shown.reason, world.changed.is_set()) == (False, "WorkloadGrantMissing", True)
    assert shown.type.counts_toward_ready(None)
    assert shown.message == (
        "the controller may not approve and sign for the signers of attestor tpm in the workload cluster: repeat "
        f"node-attestation-controller workload-kubeconfig {CLUSTER} with the flags of the features in use, or grant "
        "ClusterRole node-attestation-workload of deploy/rbac/workload.yaml with the signers of every attestor of the "
        "policy"
    )
    world.rights |= rights_for("tpm")
    await world.review()
    assert (world.service.conditions, world.wakes) == ((), 1)


@pytest.mark.parametrize("verb", BOTH)
@pytest.mark.parametrize("prefix", [CLIENT, SERVING])
async def test_one_verb_on_one_signer_is_missing(verb: str, prefix: str) -> None:
    world = World("tpm")
    world.rights = rights_for("tpm") - {(verb, f"{prefix}tpm")}
    await world.review()
    assert f"may not {verb} for the signers of attestor tpm" in world.condition().message


@pytest.mark.parametrize(
    "rights",
    [rights_for("keyed-mac", "tpm"), {(verb, "cluster.x-k8s.io/*") for verb in BOTH}, {("*", "*")}],
    ids=["by name", "by domain", "an administrator"],
)
async def test_no_condition_where_nothing_is_missing(rights: set[tuple[str, str]]) -> None:
    world = World("keyed-mac", "tpm")
    world.rights = rights
    await world.review()
    assert (world.service.conditions, world.wakes, world.changed.is_set()) == ((), 0, False)
    assert list(world.service.gauges()) == []


async def test_an_administrator_is_asked_about_once() -> None:
    world = World("keyed-mac", "tpm")
    world.rights = {("*", "*")}
    await world.review()
    assert world.asked == [("*", "*")]


@pytest.mark.parametrize(
    ("fault", "answer"),
    [
        (ServerError("500", status=500), {}),
        (None, {"evaluationError": "webhook: timeout"}),
        (None, {"allowed": "no"}),
    ],
    ids=["fails", "an authorizer fails", "neither yes nor no"],
)
async def test_what_is_no_answer_changes_nothing(fault: Exception | None, answer: dict[str, Any]) -> None:
    world = World("tpm")
    await world.review()
    world.rights = rights_for("tpm")
    before = world.condition()
    world.fault, world.answer = fault, answer
    assert await world.review() < MISSING_SECONDS
    assert world.condition() == before


async def test_the_remedy_stands_even_behind_many_attestors() -> None:
    world = World(*(f"{'a' * 30}{number}" for number in range(10, 26)))
    await world.review()
    assert "and those of 13 more in the workload cluster: repeat" in world.condition().message
    assert world.condition().message.endswith("of the policy")


async def test_an_attestor_that_is_not_authorized_any_more_is_not_shown() -> None:
    world = World("tpm")
    await world.review()
    world.authorized = ("keyed-mac",)
    assert world.service.conditions == ()


async def test_another_attestor_is_reviewed_at_once_but_not_too_often(monkeypatch: pytest.MonkeyPatch) -> None:
    world, reviews = World("keyed-mac"), 0
    slept: list[float] = []

    async def missing(client: object, providers: frozenset[str]) -> tuple[()]:
        nonlocal reviews
        reviews += 1
        world.authorized = (f"attestor-{reviews}",)
        world.service.wake()  # before the review ends: it reviewed the attestors of the moment when it began
        return ()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if seconds:
            raise asyncio.CancelledError

    monkeypatch.setattr(signers_granted, "missing_signer_rights", missing)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(asyncio.CancelledError):
        await world.service.run(cast("Any", None))
    assert (reviews, slept[-1]) == (REVIEWS_AT_ONCE, MISSING_SECONDS)
    world.service._wanted.clear()
    world.authorized = tuple(world.service._reviewed)
    world.service.wake()
    assert not world.service._wanted.is_set(), "the policy authorizes the same attestors"


async def test_after_failures_it_is_reviewed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(signers_granted, "RETRY", Backoff(base_seconds=7.0, maximum_seconds=60.0, jitter=0))
    world = World("tpm")
    world.fault = Unreachable("gone", cause=Cause.REFUSED)
    assert [await world.review() for _ in range(2)] == [7.0, 14.0]
