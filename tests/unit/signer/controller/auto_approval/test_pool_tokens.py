"""Tokens of MachinePools are extended while allowed and cut back afterwards, despite failures."""

from __future__ import annotations

import base64
import logging
from collections.abc import AsyncGenerator, Callable
from datetime import datetime, timedelta
from typing import Any

import pytest

from signer.controller.auto_approval import pool_tokens
from signer.controller.auto_approval.pool_tokens import (
    ExtensionEnded,
    GrantMissing,
    Intent,
    LeaveAlone,
    LeaveCause,
    LeftAlone,
    NothingToTend,
    Outcome,
    PoolTokens,
    Tended,
    TokensNotKnown,
    Unfinished,
    condition_of,
    intent_of,
)
from signer.kube.client import JsonObject, Parameters
from signer.kube.errors import ApiError, Cause, Conflict, Forbidden, Gone, NotFound, ServerError, Unreachable
from signer.model.bootstrap_token import EXTENDED_UNTIL_ANNOTATION, PoolTokenIDs, TracingInterrupted, TracingOff
from signer.model.condition import AUTO_APPROVAL_REMOVED, PolicyCondition
from signer.model.fields import format_time
from tests.unit.signer.builders import CLUSTER, NOW, cluster_view, policy
from tests.unit.signer.outcomes import assert_printable

SECRET_HALF = "0123456789abcdef"
MINUTES = timedelta(minutes=1)
PATH = "/api/v1/namespaces/kube-system/secrets"
LOST = Unreachable("reset", cause=Cause.RESET)


def encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


class WorkloadAPI:
    """Secrets of kube-system, with lists by field selector and merge patches with a resourceVersion."""

    def __init__(self) -> None:
        self.secrets: dict[str, JsonObject] = {}
        self.calls: list[tuple[str, str]] = []
        self.before: Callable[[str, str], None] = lambda verb, name: None
        """Called before each call is carried out, and ``after`` before its answer; both may raise."""
        self.after: Callable[[str, str], None] = lambda verb, name: None
        self.page_size = 500

    def add(self, token_id: str, expiration: datetime, **data: str) -> None:
        given = {
            "token-id": token_id,
            "token-secret": SECRET_HALF,
            "expiration": format_time(expiration),
            "usage-bootstrap-authentication": "true",
            "usage-bootstrap-signing": "true",
        } | data
        self.secrets[f"bootstrap-token-{token_id}"] = {
            "metadata": {"name": f"bootstrap-token-{token_id}", "namespace": "kube-system", "resourceVersion": "1"},
            "type": "bootstrap.kubernetes.io/token",
            "data": {key: encoded(value) for key, value in given.items()},
        }

    def touch(self, token_id: str, **data: str) -> None:
        """Another client writes."""
        secret = self.secrets[f"bootstrap-token-{token_id}"]
        secret["data"] |= {key: encoded(value) for key, value in data.items()}
        _next_version(secret)

    def left(self, token_id: str) -> timedelta:
        text = base64.b64decode(self.secrets[f"bootstrap-token-{token_id}"]["data"]["expiration"]).decode()
        return datetime.fromisoformat(text) - NOW

    def is_marked(self, token_id: str) -> bool:
        metadata = self.secrets[f"bootstrap-token-{token_id}"]["metadata"]
        return EXTENDED_UNTIL_ANNOTATION in metadata.get("annotations", {})

    def patches(self) -> list[str]:
        return [name for verb, name in self.calls if verb == "patch"]

    async def list_pages(
        self, path: str, params: Parameters | None = None, limit: int = 500, **options: Any
    ) -> AsyncGenerator[JsonObject, None]:
        assert (path, params) == (PATH, {"fieldSelector": "type=bootstrap.kubernetes.io/token"})
        self.before("list", "")
        self.calls.append(("list", ""))
        items = [_copy(secret) for secret in self.secrets.values()]
        for start in range(0, max(1, len(items)), self.page_size):
            yield {"metadata": {"resourceVersion": "1"}, "items": items[start : start + self.page_size]}
        self.after("list", "")

    async def patch(self, path: str, patch: JsonObject) -> JsonObject:
        name = path.removeprefix(f"{PATH}/")
        self.before("patch", name)
        self.calls.append(("patch", name))
        secret = self.secrets.get(name)
        if secret is None:
            raise NotFound("gone", status=404)
        if patch["metadata"]["resourceVersion"] != secret["metadata"]["resourceVersion"]:
            raise Conflict("changed", status=409)
        secret["data"] |= patch.get("data", {})
        annotations = {**secret["metadata"].get("annotations", {}), **patch["metadata"]["annotations"]}
        secret["metadata"]["annotations"] = {key: value for key, value in annotations.items() if value is not None}
        _next_version(secret)
        self.after("patch", name)
        return secret


def _next_version(secret: JsonObject) -> None:
    secret["metadata"]["resourceVersion"] = str(int(secret["metadata"]["resourceVersion"]) + 1)


def _copy(secret: JsonObject) -> JsonObject:
    return {key: dict(value) if isinstance(value, dict) else value for key, value in secret.items()}


class World:
    def __init__(self) -> None:
        self.api = WorkloadAPI()
        self.now = NOW
        self.tokens = self.restarted()

    def restarted(self) -> PoolTokens:
        return PoolTokens(CLUSTER, now=lambda: self.now)

    async def extend(self, *token_ids: str) -> Outcome:
        return await self.tokens.tend(self.api, Intent.EXTEND, PoolTokenIDs(frozenset(token_ids)))

    async def cut_back(self) -> Outcome:
        return await self.tokens.tend(self.api, Intent.CUT_BACK, PoolTokenIDs(frozenset({"aaa111"})))


@pytest.fixture
def world() -> World:
    made = World()
    made.api.add("aaa111", NOW + 15 * MINUTES)
    return made


def raising(error: ApiError, *, verb: str = "patch", times: int = 1) -> Callable[[str, str], None]:
    left = [times]

    def fail(called: str, name: str) -> None:
        if called == verb and left[0]:
            left[0] -= 1
            raise error

    return fail


# What is to become of them


def condition(met: bool | None) -> PolicyCondition:
    return PolicyCondition(AUTO_APPROVAL_REMOVED, met, "Any", "any")


@pytest.mark.parametrize(
    ("pools", "mode", "removed", "intent"),
    [
        ("Extend", "Enforce", True, Intent.EXTEND),
        ("Extend", "Enforce", None, LeaveAlone(LeaveCause.AUTO_APPROVAL_UNKNOWN)),
        ("Extend", "Enforce", False, Intent.CUT_BACK),
        ("Extend", "Observe", True, Intent.CUT_BACK),
        ("Rotate", "Enforce", True, Intent.CUT_BACK),
        ("Rotate", "Enforce", None, Intent.CUT_BACK),
    ],
)
def test_tokens_are_extended_only_while_auto_approval_is_removed(
    pools: str, mode: str, removed: bool | None, intent: Intent | LeaveAlone
) -> None:
    chosen = policy(bootstrapTokens={"machinePools": pools}, mode=mode)
    assert intent_of(chosen, cluster_view(), condition(removed)) == intent
    for state in ("paused", "deleting"):
        assert intent_of(chosen, cluster_view(**{state: True}), condition(removed)) == LeaveAlone(LeaveCause.PAUSED)


# Extending


async def test_a_pools_token_is_extended_and_annotated(world: World) -> None:
    assert await world.extend("aaa111") == Tended(alive=1, extended=1, cut_back=0)
    assert world.api.left("aaa111") == timedelta(hours=24)
    assert world.api.is_marked("aaa111")


async def test_a_token_is_extended_only_twice_a_day(world: World) -> None:
    await world.extend("aaa111")
    world.now = NOW + timedelta(hours=12)
    assert await world.extend("aaa111") == Tended(alive=1, extended=0, cut_back=0)
    world.now += timedelta(seconds=1)
    assert await world.extend("aaa111") == Tended(alive=1, extended=1, cut_back=0)
    assert world.api.left("aaa111") == timedelta(hours=36, seconds=1)


async def test_others_tokens_are_left_alone(world: World) -> None:
    world.api.add("bbb222", NOW + 15 * MINUTES)
    world.api.add("ccc333", NOW + 15 * MINUTES, **{"usage-bootstrap-authentication": "false"})
    world.api.add("ddd444", NOW - MINUTES)
    world.api.secrets["other"] = {"metadata": {"name": "other"}, "type": "Opaque", "data": {}}
    assert await world.extend("aaa111", "ccc333", "ddd444") == Tended(alive=1, extended=1, cut_back=0)
    assert world.api.patches() == ["bootstrap-token-aaa111"]


async def test_tokens_on_every_page(world: World) -> None:
    world.api.page_size = 1
    world.api.add("bbb222", NOW + 15 * MINUTES)
    assert await world.extend("aaa111", "bbb222") == Tended(alive=2, extended=2, cut_back=0)


async def test_a_token_that_its_pool_no_longer_uses(world: World) -> None:
    world.api.add("bbb222", NOW + 15 * MINUTES)
    await world.extend("aaa111")
    assert await world.extend("bbb222") == Tended(alive=1, extended=1, cut_back=1)
    assert world.api.left("aaa111") == 15 * MINUTES
    assert not world.api.is_marked("aaa111")


@pytest.mark.parametrize("cause", [TracingOff("no grant"), TracingInterrupted("webhook")])
async def test_without_knowing_the_pools_tokens_nothing_is_done(
    world: World, cause: TracingOff | TracingInterrupted
) -> None:
    await world.extend("aaa111")
    world.api.calls.clear()
    assert await world.tokens.tend(world.api, Intent.EXTEND, cause) == TokensNotKnown(cause.cause)
    assert world.api.calls == []


@pytest.mark.parametrize("cause", LeaveCause)
async def test_tokens_left_alone_do_not_end_the_extension(world: World, cause: LeaveCause) -> None:
    await world.extend("aaa111")
    world.api.calls.clear()
    known = PoolTokenIDs(frozenset({"aaa111"}))
    assert await world.tokens.tend(world.api, LeaveAlone(cause), known) == LeftAlone(cause)
    assert world.api.calls == []


# Cutting back


async def test_leaving_enforce_cuts_back_once(world: World) -> None:
    await world.extend("aaa111")
    assert await world.cut_back() == ExtensionEnded(cut_back=1)
    assert world.api.left("aaa111") == 15 * MINUTES
    world.api.calls.clear()
    assert await world.cut_back() == NothingToTend()
    assert world.api.calls == []
    assert await world.extend("aaa111") == Tended(alive=1, extended=1, cut_back=0)  # Enforce again
    assert await world.cut_back() == ExtensionEnded(cut_back=1)


async def test_tokens_extended_by_an_earlier_controller_are_cut_back(world: World) -> None:
    await world.extend("aaa111")
    world.tokens = world.restarted()
    assert await world.cut_back() == ExtensionEnded(cut_back=1)


async def test_tracing_is_not_needed_to_cut_back(world: World) -> None:
    await world.extend("aaa111")
    outcome = await world.tokens.tend(world.api, Intent.CUT_BACK, TracingOff("no grant"))
    assert outcome == ExtensionEnded(cut_back=1)


async def test_an_expiration_written_by_another_client_is_kept(world: World) -> None:
    await world.extend("aaa111")
    world.api.touch("aaa111", expiration=format_time(NOW + timedelta(days=30)))
    assert await world.cut_back() == NothingToTend()
    assert world.api.left("aaa111") == timedelta(days=30)
    assert not world.api.is_marked("aaa111")


async def test_a_cluster_that_never_requested_extension(world: World) -> None:
    """The controller lists once at its start; if that is forbidden, it does not retry."""
    assert await world.cut_back() == NothingToTend()
    assert world.api.calls == [("list", "")]
    world.tokens = world.restarted()
    world.api.before = raising(Forbidden("may not list", status=403), verb="list")
    assert await world.cut_back() == NothingToTend()
    assert await world.cut_back() == NothingToTend()
    assert world.api.calls == [("list", "")]


async def test_after_an_extension_cutting_back_is_retried_despite_forbidden(world: World) -> None:
    await world.extend("aaa111")
    world.api.before = raising(Forbidden("may not list", status=403), verb="list", times=2)
    assert isinstance(await world.cut_back(), GrantMissing)
    assert isinstance(await world.cut_back(), GrantMissing)
    assert await world.cut_back() == ExtensionEnded(cut_back=1)


async def test_forbidden_patches_are_retried(world: World) -> None:
    """Also after a restart: annotations show that tokens must be cut back."""
    await world.extend("aaa111")
    world.tokens = world.restarted()
    world.api.before = raising(Forbidden("may not patch", status=403), verb="patch")
    outcome = await world.cut_back()
    assert isinstance(outcome, GrantMissing)
    assert outcome.verb == "patch"
    assert await world.cut_back() == ExtensionEnded(cut_back=1)


# What goes wrong


async def test_the_missing_grant_is_named(world: World) -> None:
    world.api.before = raising(Forbidden("may not patch", status=403))
    outcome = await world.extend("aaa111")
    assert isinstance(outcome, GrantMissing)
    assert outcome.verb == "patch"
    message = condition_of(outcome).message
    assert "verb patch on secrets in namespace kube-system" in message


async def test_a_concurrent_write_is_read_again(world: World) -> None:
    """Cluster API's provider refreshes the token between list and write: list again, overwrite nothing."""

    def refresh(verb: str, name: str) -> None:
        if verb == "patch":
            world.api.before = lambda verb, name: None
            world.api.touch("aaa111", expiration=format_time(NOW + timedelta(hours=13)))

    world.api.before = refresh
    assert await world.extend("aaa111") == Tended(alive=1, extended=0, cut_back=0)
    assert world.api.left("aaa111") == timedelta(hours=13)


async def test_a_secret_that_is_deleted_concurrently(world: World) -> None:
    world.api.before = lambda verb, name: world.api.secrets.clear() if verb == "patch" else None
    assert await world.extend("aaa111") == Tended(alive=0, extended=0, cut_back=0)


async def test_endless_concurrent_writes(world: World) -> None:
    world.api.before = lambda verb, name: world.api.touch("aaa111", description="x") if verb == "patch" else None
    assert isinstance(await world.extend("aaa111"), Unfinished)
    assert len(world.api.patches()) == 3


@pytest.mark.parametrize("verb", ["list", "patch"])
@pytest.mark.parametrize("error", [ServerError("etcd is gone", status=500), LOST, Gone("expired", status=410)])
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_failed_call_or_a_lost_response(world: World, verb: str, error: ApiError, when: str) -> None:
    """The next reconciliation continues; extended tokens are found and cut back."""
    world.api.add("bbb222", NOW + 15 * MINUTES)
    setattr(world.api, when, raising(error, verb=verb))
    assert isinstance(await world.extend("aaa111", "bbb222"), Unfinished)
    outcome = await world.extend("aaa111", "bbb222")
    assert isinstance(outcome, Tended)
    assert outcome.alive == 2
    setattr(world.api, when, raising(error, verb=verb))
    assert isinstance(await world.cut_back(), Unfinished)
    world.tokens = world.restarted()  # a crash: nothing is remembered
    await world.cut_back()
    for token_id in ("aaa111", "bbb222"):
        assert world.api.left(token_id) == 15 * MINUTES
        assert not world.api.is_marked(token_id)


async def test_a_lost_response_counts_as_extended(world: World) -> None:
    world.api.after = raising(LOST)
    assert isinstance(await world.extend("aaa111"), Unfinished)
    world.api.before = raising(Forbidden("may not list", status=403), verb="list", times=2)
    for _ in range(2):
        assert isinstance(await world.cut_back(), GrantMissing)
    assert await world.cut_back() == ExtensionEnded(cut_back=1)


async def test_too_many_secrets(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_tokens, "MAXIMUM_SECRETS", 1)
    world.api.add("bbb222", NOW + 15 * MINUTES)
    assert isinstance(await world.extend("aaa111"), Unfinished)
    assert world.api.patches() == []


async def test_malformed_secrets_are_skipped(world: World) -> None:
    world.api.secrets["odd"] = {"metadata": {"name": "odd"}, "type": 7, "data": "none"}
    assert await world.extend("aaa111") == Tended(alive=1, extended=1, cut_back=0)


async def test_token_secrets_are_neither_logged_nor_kept(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        await world.extend("aaa111")
        await world.cut_back()
    assert [record.getMessage() for record in caplog.records] == [
        "extended the bootstrap token of a MachinePool",
        "cut back the bootstrap token of a MachinePool",
    ]
    kept = repr([vars(record) for record in caplog.records]) + repr(vars(world.tokens))
    assert SECRET_HALF not in kept
    assert encoded(SECRET_HALF) not in kept


# The condition


@pytest.mark.parametrize(
    ("outcome", "met", "reason"),
    [
        (Tended(2, 0, 0), True, "Extended"),
        (NothingToTend(), False, "AutoApprovalNotRemoved"),
        (ExtensionEnded(2), False, "AutoApprovalNotRemoved"),
        (LeftAlone(LeaveCause.PAUSED), None, "Paused"),
        (LeftAlone(LeaveCause.AUTO_APPROVAL_UNKNOWN), None, "AutoApprovalUnknown"),
        (TokensNotKnown("no\ngrant"), False, "BootstrapTokensNotTraceable"),
        (GrantMissing("list", "no\ngrant"), False, "Forbidden"),
        (Unfinished("no\nanswer"), None, "WorkloadClusterUnreachable"),
    ],
)
def test_the_condition(outcome: Outcome, met: bool | None, reason: str) -> None:
    shown = condition_of(outcome)
    assert (shown.type, shown.met, shown.reason) == ("MachinePoolTokensExtended", met, reason)
    assert_printable(shown.message)
