"""A policy's status: written when it changes, with transition times kept for unchanged conditions."""

from __future__ import annotations

import copy
from datetime import timedelta
from typing import Any

import pytest

from signer.configuration import Configuration, OperatorAttestor, every_attestor
from signer.controller.status.policy_status import (
    RESTORE_SECONDS,
    WATCH_LAG_SECONDS,
    PolicyStatus,
    permitted_in,
    usable_signers,
)
from signer.kube.errors import ApiError, NotFound, ServerError
from signer.model.attestor_roles import AnyOf, RequiredAttestors
from signer.model.cluster import ClusterKey
from signer.model.condition import (
    ATTESTORS_CONFIGURED,
    AUTO_APPROVAL_REMOVED,
    BOOTSTRAP_TOKENS_TRACEABLE,
    CERTIFICATE_AUTHORITY_AVAILABLE,
    READY,
    WORKLOAD_CLUSTER_REACHABLE,
    ConditionType,
    PolicyCondition,
)
from signer.model.floors import NO_FLOOR, Floor, Floors, NamespaceFloor
from signer.model.policy import Policy, parse_policy
from signer.store.policy_statuses import NOT_SHOWN, status_digest
from tests.unit.signer.controller.support import NOW, Clock, registry

PATH = "/apis/attestation.cluster.x-k8s.io/v1alpha1/namespaces/team-a/nodeattestationpolicies/prod"
START = "2026-03-01T12:00:00Z"


def policy(*attestors: str) -> Policy:
    return policy_with({"authorizedAttestors": [{"name": name} for name in attestors]})


def policy_with(spec: dict[str, Any], uid: str = "policy-1") -> Policy:
    given = {"authorizedAttestors": [{"name": "good"}], **spec}
    return parse_policy({"metadata": {"namespace": "team-a", "name": "prod", "uid": uid}, "spec": given}, NO_FLOOR)


GOOD = policy("good", "other")


def condition(
    kind: ConditionType = ATTESTORS_CONFIGURED, met: bool | None = True, message: str = "well"
) -> PolicyCondition:
    return PolicyCondition(kind, met, "Configured" if met else "Broken", message)


class World:
    def __init__(self, status: dict[str, Any] | None = None) -> None:
        self.clock = Clock()
        self.stored: dict[str, Any] | None = {"metadata": {"uid": "policy-1"}}
        if status is not None:
            self.stored["status"] = status
        self.calls: list[str] = []
        self.patches: list[dict[str, Any]] = []
        self.failure: ApiError | None = None
        self.shown = NOT_SHOWN
        self.status = self.restarted()

    def restarted(self) -> PolicyStatus:
        return PolicyStatus(
            self,
            ClusterKey("team-a", "prod"),
            registry(),
            self.clock.now,
            lambda provider: True,
            lambda: self.shown,
            self.clock.monotonic,
        )

    def watch_catches_up(self) -> None:
        """The watch shows the current status."""
        assert self.stored is not None
        self.shown = status_digest(self.stored)

    def overwrite(self, message: str = "out of a backup") -> None:
        assert self.stored is not None
        for one in self.stored["status"]["conditions"]:
            one.update(status="True", message=message)

    async def get(self, path: str) -> dict[str, Any]:
        assert path == PATH
        self.calls.append("get")
        return copy.deepcopy(self._stored())

    async def patch(self, path: str, patch: dict[str, Any]) -> dict[str, Any]:
        assert path == f"{PATH}/status"
        assert set(patch) == {"status"}
        self.calls.append("patch")
        self.patches.append(patch["status"])
        self._stored()["status"] = _merged(self._stored().get("status"), patch["status"])
        return self._stored()

    def _stored(self) -> dict[str, Any]:
        if self.failure is not None:
            raise self.failure
        if self.stored is None:
            raise NotFound(PATH)
        return self.stored

    async def write(
        self,
        *conditions: PolicyCondition,
        generation: int = 1,
        of: Policy | None = GOOD,
        credentials: dict[str, Any] | None = None,
    ) -> None:
        await self.status.write(generation, of, conditions, credentials)

    def condition(self, kind: str) -> dict[str, Any]:
        assert self.stored is not None
        (found,) = (one for one in self.stored["status"]["conditions"] if one["type"] == kind)
        return dict(found)


def _merged(before: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7386 section 2)."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = dict(before) if isinstance(before, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value)
    return merged


@pytest.fixture
def world() -> World:
    return World()


async def test_signer_names_are_published(world: World) -> None:
    await world.write(condition())
    assert world.stored is not None
    assert world.stored["status"]["clientSignerNames"] == [
        "cluster.x-k8s.io/kube-apiserver-client-kubelet-good",
        "cluster.x-k8s.io/kube-apiserver-client-kubelet-other",
    ]
    assert world.stored["status"]["servingSignerNames"] == [
        "cluster.x-k8s.io/kubelet-serving-good",
        "cluster.x-k8s.io/kubelet-serving-other",
    ]


async def test_signer_names_of_unavailable_attestors_and_invalid_policies(world: World) -> None:
    await world.write(condition(), of=policy("absent"))
    assert world.stored is not None
    assert len(world.stored["status"]["clientSignerNames"]) == 1
    assert world.stored["status"]["servingSignerNames"] == []
    assert world.stored["status"]["attestors"] == "absent"
    await world.write(condition(met=False), of=None)
    assert world.stored["status"]["attestors"] == "none"
    assert world.stored["status"]["clientSignerNames"] == []


async def test_condition_in_full(world: World) -> None:
    await world.write(condition(), generation=7)
    assert world.condition(ATTESTORS_CONFIGURED) == {
        "type": ATTESTORS_CONFIGURED,
        "status": "True",
        "observedGeneration": 7,
        "lastTransitionTime": START,
        "reason": "Configured",
        "message": "well",
    }
    assert world.stored is not None
    assert world.stored["status"]["observedGeneration"] == 7


async def test_an_unchanged_status_is_not_written(world: World) -> None:
    for _ in range(3):
        await world.write(condition())
        world.clock.pass_by(60)
    assert world.calls == ["get", "patch"]


async def test_an_unchanged_state_is_not_written_after_a_restart(world: World) -> None:
    await world.write(condition())
    world.watch_catches_up()
    world.status = world.restarted()
    for _ in range(3):
        world.clock.pass_by(60)
        await world.write(condition())
    assert world.calls == ["get", "patch", "get"]


async def test_transition_time_changes_with_the_status_only(world: World) -> None:
    await world.write(condition())
    world.clock.pass_by(60)
    await world.write(condition(message="as well as ever"))
    assert world.condition(ATTESTORS_CONFIGURED)["lastTransitionTime"] == START
    assert world.condition(ATTESTORS_CONFIGURED)["message"] == "as well as ever"
    await world.write(condition(met=False, message="not well"))
    assert world.condition(ATTESTORS_CONFIGURED)["lastTransitionTime"] == "2026-03-01T12:01:00Z"
    assert world.condition(READY)["lastTransitionTime"] == "2026-03-01T12:01:00Z"


@pytest.mark.parametrize(
    ("met", "status", "reason"),
    [
        ((True, True, True), "True", "Ready"),
        ((True, False, True), "False", "Broken"),
        ((True, None, True), "Unknown", "Broken"),
        ((None, False, True), "False", "Broken"),
    ],
)
async def test_ready_is_the_first_false_or_unknown_condition(
    world: World, met: tuple[bool | None, ...], status: str, reason: str
) -> None:
    kinds = (ATTESTORS_CONFIGURED, CERTIFICATE_AUTHORITY_AVAILABLE, WORKLOAD_CLUSTER_REACHABLE)
    await world.write(*(condition(kind, one, f"{kind} it is") for kind, one in zip(kinds, met, strict=True)))
    assert (world.condition(READY)["status"], world.condition(READY)["reason"]) == (status, reason)
    worst = False if False in met else None
    first = next((kind for kind, one in zip(kinds, met, strict=True) if one is worst), "")
    assert world.condition(READY)["message"].startswith(first or "requests")


@pytest.mark.parametrize("failure", [ServerError("etcd", status=500), NotFound("gone")])
async def test_failures_are_retried_at_the_next_call(world: World, failure: ApiError) -> None:
    world.failure = failure
    await world.write(condition())
    world.failure = None
    await world.write(condition())
    assert world.condition(READY)["status"] == "True"
    world.failure = failure
    await world.write(condition(met=False))
    world.failure = None
    await world.write(condition(met=False))
    assert world.condition(READY)["status"] == "False"


REFUSES_UNTRACEABLE = {"bootstrapTokens": {"untraceable": "Refuse"}}


@pytest.mark.parametrize("met", [False, None])
@pytest.mark.parametrize(
    ("kind", "spec", "ready"),
    [
        (AUTO_APPROVAL_REMOVED, {}, True),
        (AUTO_APPROVAL_REMOVED, {"mode": "Observe"}, True),
        (AUTO_APPROVAL_REMOVED, {"mode": "Enforce"}, False),
        (AUTO_APPROVAL_REMOVED, REFUSES_UNTRACEABLE, True),
        (BOOTSTRAP_TOKENS_TRACEABLE, {}, True),
        (BOOTSTRAP_TOKENS_TRACEABLE, {"mode": "Enforce"}, True),
        (BOOTSTRAP_TOKENS_TRACEABLE, REFUSES_UNTRACEABLE, False),
        (CERTIFICATE_AUTHORITY_AVAILABLE, {}, False),
    ],
)
async def test_conditions_that_the_policy_does_not_need_do_not_affect_ready(
    world: World, kind: ConditionType, spec: dict[str, Any], ready: bool, met: bool | None
) -> None:
    await world.write(condition(), condition(kind, met), of=policy_with(spec))
    assert (world.condition(READY)["status"] == "True") is ready
    assert world.condition(kind)["status"] == ("False" if met is False else "Unknown")


async def test_an_invalid_policy_is_not_ready(world: World) -> None:
    await world.write(condition(AUTO_APPROVAL_REMOVED, False), condition(met=False, message="no such field"), of=None)
    assert world.condition(READY)["message"] == "no such field"


async def test_a_recreated_policy_gets_its_status_again(world: World) -> None:
    await world.write(condition())
    world.stored = {"metadata": {"uid": "policy-2"}}
    attestors = [{"name": one.provider} for one in GOOD.authorized_attestors]
    await world.write(condition(), of=policy_with({"authorizedAttestors": attestors}, uid="policy-2"))
    assert world.condition(READY)["status"] == "True"


# Overwritten status


async def test_an_overwritten_status_is_restored(world: World) -> None:
    await world.write(condition(met=False))
    world.watch_catches_up()
    await world.write(condition(met=False))
    world.overwrite()
    world.watch_catches_up()
    await world.write(condition(met=False))
    assert world.condition(READY)["status"] == world.condition(ATTESTORS_CONFIGURED)["status"] == "False"
    world.watch_catches_up()
    await world.write(condition(met=False))
    assert world.calls == ["get", "patch", "get", "patch"]


async def test_an_overwritten_status_is_restored_when_the_clock_is_set_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(world.clock, "now", lambda: NOW - timedelta(seconds=world.clock.monotonic()))
    world.status = world.restarted()
    await world.write(condition(met=False))
    for number in range(2):
        world.overwrite(f"no {number}")
        world.watch_catches_up()
        world.clock.pass_by(RESTORE_SECONDS)
        await world.write(condition(met=False))
        assert world.condition(READY)["status"] == "False"


async def test_a_status_overwritten_before_the_watch_showed_ours_is_restored(world: World) -> None:
    await world.write(condition(met=False))
    world.overwrite()
    world.watch_catches_up()
    await world.write(condition(met=False))
    assert world.condition(READY)["status"] == "True", "the watch may show what stood there before ours"
    world.clock.pass_by(WATCH_LAG_SECONDS)
    await world.write(condition(met=False))
    assert world.condition(READY)["status"] == "False"


async def test_a_lagging_watch_costs_few_calls(world: World) -> None:
    world.shown = "what stood there before"
    for _ in range(30):
        await world.write(condition())
        world.clock.pass_by(20)
    assert world.calls == ["get", "patch", "get", "get"]


async def test_repeated_overwrites_are_rate_limited(world: World) -> None:
    """It may be a controller that does the same."""
    await world.write(condition(met=False))
    for number in range(30):
        world.watch_catches_up()
        await world.write(condition(met=False))
        world.overwrite(f"no {number}")
        world.clock.pass_by(20)
    assert world.calls.count("patch") == 1 + 2


def test_signers_that_the_operator_does_not_permit_are_unusable() -> None:
    configuration = Configuration(
        namespace="system",
        attestors={"other": OperatorAttestor(namespaces=frozenset({"team-b"})), "good": OperatorAttestor()},
        insecure_enabled=True,
        insecure_namespaces=frozenset({"team-b"}),
    )
    everything = policy("other", "insecure", "good", "picky")

    def names(namespace: str) -> tuple[str, ...]:
        return usable_signers(everything, registry(), permitted_in(namespace, configuration, registry())).client

    stem = "cluster.x-k8s.io/kube-apiserver-client-kubelet-"
    assert names("team-a") == (f"{stem}good",)
    assert names("team-b") == (f"{stem}other", f"{stem}insecure", f"{stem}good")


def test_signers_that_no_role_accepts_are_unusable() -> None:
    required = RequiredAttestors(AnyOf(frozenset({"other"})), AnyOf(frozenset({"good"})))
    floors = Floors((NamespaceFloor(frozenset({"team-a"}), False, Floor(required=required)),))
    configuration = Configuration("system", attestors=every_attestor(registry().providers), floors=floors)
    everything = policy("other", "good", "picky")

    def names(namespace: str) -> tuple[str, ...]:
        return usable_signers(everything, registry(), permitted_in(namespace, configuration, registry())).attestors

    assert names("team-a") == ("other", "good")
    assert names("team-b") == ("other", "good", "picky")


async def test_only_permitted_signers_are_published(world: World) -> None:
    world.status = PolicyStatus(
        world,
        ClusterKey("team-a", "prod"),
        registry(),
        world.clock.now,
        lambda provider: provider == "other",
        lambda: NOT_SHOWN,
    )
    await world.write(condition())
    assert world.stored is not None
    assert world.stored["status"]["clientSignerNames"] == ["cluster.x-k8s.io/kube-apiserver-client-kubelet-other"]
    assert world.stored["status"]["servingSignerNames"] == ["cluster.x-k8s.io/kubelet-serving-other"]


# Credentials


def rotation(**fields: Any) -> dict[str, Any]:
    return {"rotation": {"certificateAuthorities": fields}}


async def test_the_status_of_credentials_is_what_was_given(world: World) -> None:
    """Fields that are gone are removed at every depth; a merge patch would keep them."""
    await world.write(condition(), credentials=rotation(phase="Preparing", nodes={"total": 2, "lagging": ["a"]}))
    for credentials in (
        rotation(phase="Preparing", nodes={"total": 2}),
        rotation(phase="Prepared", next={"hash": "x"}),
        rotation(phase="Completed", next={"hash": "y", "notAfter": "z"}),
    ):
        await world.write(condition(), credentials=credentials)
        assert world.stored is not None
        assert world.stored["status"]["credentials"] == credentials
    assert world.calls == ["get", *["patch"] * 4]


@pytest.mark.parametrize("nothing", [None, {}])
async def test_the_status_of_credentials_ends(world: World, nothing: dict[str, Any] | None) -> None:
    await world.write(condition(), credentials=rotation(phase="Preparing"))
    await world.write(condition(), credentials=nothing)
    assert world.stored is not None
    assert "credentials" not in world.stored["status"]
    await world.write(condition(), credentials=nothing)
    assert world.calls == ["get", "patch", "patch"]


async def test_unchanged_credentials_are_not_written(world: World) -> None:
    for _ in range(3):
        await world.write(condition(), credentials=rotation(phase="Preparing", nodes={"total": 2}))
        world.clock.pass_by(60)
    assert world.calls == ["get", "patch"]


async def test_without_credentials_nothing_is_said_about_them(world: World) -> None:
    """An API server whose CRD has no such field warns about it."""
    await world.write(condition())
    await world.write(condition(met=False))
    assert all("credentials" not in patch for patch in world.patches)


async def test_credentials_that_another_wrote_are_replaced_whole(world: World) -> None:
    world.stored = {"metadata": {"uid": "policy-1"}, "status": {"credentials": rotation(phase="Prepared", step="x")}}
    await world.write(condition(), credentials=rotation(phase="Preparing"))
    assert world.stored["status"]["credentials"] == rotation(phase="Preparing")
    world.stored["status"]["credentials"] = "a text"
    world.status = world.restarted()
    await world.write(condition(), credentials=rotation(phase="Preparing"))
    assert world.stored["status"]["credentials"] == rotation(phase="Preparing")


async def test_published_authorities_stay_while_they_cannot_be_read(world: World) -> None:
    """Other replicas know by them which Clusters share a CA; an unreadable Secret is no reason to forget one."""
    published = {"keys": ["sha256:" + "ab" * 32], "issuers": [], "seal": "v2.x.y"}
    await world.status.write(1, GOOD, [condition()], authorities=published)
    assert world.stored is not None
    assert world.stored["status"]["certificateAuthorities"] == published
    for status in (world.status, world.restarted()):
        await status.write(1, GOOD, [condition()])
        assert world.stored["status"]["certificateAuthorities"] == published
    assert len(world.patches) == 1
    other = published | {"issuers": ["sha256:" + "cd" * 32]}
    await world.status.write(3, GOOD, [condition()], authorities=other)
    assert world.stored["status"]["certificateAuthorities"] == other
