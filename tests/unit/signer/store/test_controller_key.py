"""The controller key: created once, read again, never overwritten, never logged."""

from __future__ import annotations

import asyncio
import base64
import logging
import secrets
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import pytest

from signer.kube.backoff import Backoff
from signer.kube.errors import AlreadyExists, ApiError, Conflict, Forbidden, NotFound, ServerError
from signer.model.decision import Deferred
from signer.model.record import AttestedNode
from signer.model.seal import KEY_BYTES, ControllerKeys, NoPreviousKey, RecordSeals
from signer.rules.machine import NoRecord
from signer.store import controller_key
from signer.store.authentic_records import AuthenticRecords, UnverifiedRecord, stored_record
from signer.store.controller_key import (
    MISSING_KEY_REMEDY,
    SECRET_NAME,
    ControllerKey,
    controller_key_secret,
    parse_controller_keys,
)
from tests.unit.signer.builders import CLUSTER, record
from tests.unit.signer.store.test_authentic_records import manifest

NAMESPACE: Final = "own"
PATH: Final = f"/api/v1/namespaces/{NAMESPACE}/secrets/{SECRET_NAME}"
KEYS: Final = ControllerKeys(bytes(range(32)), b"p" * 32)


class API:
    """One Secret."""

    def __init__(self) -> None:
        self.secret: dict[str, Any] | None = None
        self.calls: list[str] = []
        self.fault: ApiError | None = None
        self.before_create: Callable[[], None] = lambda: None
        self._version = 0

    def put(self, body: dict[str, Any]) -> dict[str, Any]:
        self._version += 1
        self.secret = {**body, "metadata": {**body["metadata"], "uid": "u", "resourceVersion": str(self._version)}}
        return self.secret

    async def get(self, path: str) -> dict[str, Any]:
        assert path == PATH
        self.calls.append("get")
        if self.fault is not None:
            raise self.fault
        if self.secret is None:
            raise NotFound(path)
        return self.secret

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert path == PATH.rpartition("/")[0]
        assert (body["apiVersion"], body["kind"], body["type"]) == ("v1", "Secret", "Opaque")
        assert body["metadata"] == {"name": SECRET_NAME, "namespace": NAMESPACE}
        self.calls.append("create")
        self.before_create()
        if self.secret is not None:
            raise AlreadyExists(SECRET_NAME)
        return self.put(body)

    async def patch(self, path: str, patch: dict[str, Any]) -> dict[str, Any]:
        assert path == PATH
        self.calls.append("patch")
        assert self.secret is not None
        for key, value in patch["metadata"].items():
            if self.secret["metadata"][key] != value:
                raise Conflict(SECRET_NAME)
        return self.put({**self.secret, "data": {**self.secret["data"], **patch["data"]}})


class World:
    def __init__(self) -> None:
        self.api = API()
        self.records = AuthenticRecords()
        self.key = ControllerKey(NAMESPACE, self.records)

    async def refresh(self) -> bool:
        return await self.key.refresh(self.api)

    def seal(self) -> str:
        return self.records.require_keys().seal(record())


@pytest.fixture
def world() -> World:
    return World()


async def test_the_first_replica_creates_it(world: World) -> None:
    assert await world.refresh()
    assert world.api.calls == ["get", "create"]
    assert world.api.secret is not None
    assert world.api.secret["metadata"]["name"] == SECRET_NAME
    assert list(world.api.secret["data"]) == ["current"]
    keys = parse_controller_keys(world.api.secret)
    assert world.seal() == RecordSeals(keys).seal(record())
    assert await world.refresh()
    assert world.api.calls == ["get", "create", "get"]
    other = World()
    assert await other.refresh()
    assert other.seal() != world.seal(), "random"


async def test_the_second_replica_uses_the_key_of_the_first(world: World) -> None:
    def first() -> None:
        world.api.put(controller_key_secret(NAMESPACE, KEYS))

    world.api.before_create = first
    assert await world.refresh()
    assert world.api.calls == ["get", "create", "get"]
    assert world.seal() == RecordSeals(KEYS).seal(record())


def test_the_name_of_the_secret_never_changes() -> None:
    """Operators copy it when they move Clusters; under another name every record would be invalid."""
    assert SECRET_NAME == "node-attestation-controller-key"


MALFORMED: Final = {
    "no data": None,
    "no current": {"previous": base64.b64encode(b"p" * 32).decode()},
    "short": {"current": base64.b64encode(b"secret-16-octets").decode()},
    "empty": {"current": ""},
    "no base64": {"current": "secret!" * 8},
    "base64 with something between": {"current": f"!{base64.b64encode(b'k' * 32).decode()}"},
    "no text": {"current": 7},
    "malformed previous": {"current": base64.b64encode(b"k" * 32).decode(), "previous": "c2VjcmV0"},
}


@pytest.mark.parametrize("name", MALFORMED)
async def test_a_malformed_secret_is_not_overwritten_and_everything_waits(
    world: World, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    await world.refresh()
    body = controller_key_secret(NAMESPACE, KEYS)
    world.api.put({**body, "data": MALFORMED[name]})
    kept = world.api.secret
    assert not await world.refresh()
    assert not world.key.readable
    assert world.api.secret is kept
    with pytest.raises(Deferred, match=f"Secret {NAMESPACE}/{SECRET_NAME}: ") as deferred:
        world.records.require_keys()
    shown = str(deferred.value) + "".join(str(entry.__dict__) for entry in caplog.records)
    assert "secret!" not in shown
    assert "secret-16-octets" not in shown
    world.api.put(body)
    assert await world.refresh(), "mended"
    assert world.seal() == RecordSeals(KEYS).seal(record())


async def test_without_the_grant_everything_waits(world: World) -> None:
    world.api.fault = Forbidden("secrets is forbidden", status=403)
    assert not await world.refresh()
    with pytest.raises(Deferred, match="secrets is forbidden"):
        world.records.require_keys()
    assert world.api.calls == ["get"]


@pytest.mark.parametrize("fault", [ServerError("etcd", status=500), NotFound("deleted")])
async def test_keys_that_were_read_stay_in_use(world: World, fault: ApiError) -> None:
    """A deleted Secret is not created again: that would make every record invalid."""
    await world.refresh()
    before, world.api.calls = world.seal(), []
    world.api.fault = fault
    assert (await world.refresh(), world.key.readable) == (False, False), "who starts now has none"
    assert world.seal() == before
    assert world.api.calls == ["get"]
    world.api.fault = None
    assert (await world.refresh(), world.key.readable) == (True, True)


async def test_its_deletion_is_logged_as_an_error_with_the_remedy(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The next controller to start would create a new key, and no record would count any more."""
    await world.refresh()
    world.api.fault = NotFound("deleted")
    assert not await world.refresh()
    (said,) = [one for one in caplog.records if one.levelname == "ERROR"]
    assert said.message == "the controller key was deleted: restore its copy before this controller ends"


@pytest.mark.parametrize("was_read", [True, False])
async def test_other_read_failures_are_not_reported_as_deletion(
    world: World, was_read: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor is the response to a create in a missing namespace."""
    if was_read:
        await world.refresh()
        world.api.fault = Forbidden("secrets is forbidden", status=403)
    else:
        world.api.before_create = no_namespace
    assert not await world.refresh()
    (said,) = [one for one in caplog.records if one.levelname != "INFO"]
    assert (said.levelname, said.message) == ("WARNING", "cannot read the controller key")


def no_namespace() -> None:
    raise NotFound('namespaces "own" not found', status=404)


def test_it_is_not_readable_before_the_first_read(world: World) -> None:
    assert not world.key.readable
    assert MISSING_KEY_REMEDY.startswith("has the controller run, ")


async def test_no_key_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    await world.refresh()
    rotate(world)
    await world.refresh()
    assert world.api.secret is not None
    shown = "".join(str(entry.__dict__) for entry in caplog.records)
    assert "created the controller key" in shown
    for encoded in world.api.secret["data"].values():
        assert encoded not in shown


# Rotation


def rotate(world: World) -> None:
    """As an operator does with kubectl: current becomes previous, and there is a new current one."""
    assert world.api.secret is not None
    former = parse_controller_keys(world.api.secret).current
    rotated = ControllerKeys(secrets.token_bytes(KEY_BYTES), former)
    world.api.put({**world.api.secret, "data": controller_key_secret(NAMESPACE, rotated)["data"]})


async def test_rotation_keeps_the_former_key(world: World) -> None:
    await world.refresh()
    before = world.seal()
    rotate(world)
    assert world.api.secret is not None
    rotated = parse_controller_keys(world.api.secret)
    assert isinstance(rotated.previous, bytes)
    assert RecordSeals(ControllerKeys(rotated.previous)).seal(record()) == before
    await world.refresh()
    assert world.seal() != before
    world.records.changed((CLUSTER.namespace, record().name), None, _stored(before))
    assert isinstance(world.records.get(CLUSTER.namespace, record().name), AttestedNode)


async def test_rotating_twice_drops_the_oldest(world: World) -> None:
    await world.refresh()
    before = world.seal()
    rotate(world)
    rotate(world)
    await world.refresh()
    world.records.changed((CLUSTER.namespace, record().name), None, _stored(before))
    await world.refresh()
    assert world.records.get(CLUSTER.namespace, record().name) == NoRecord()


def test_both_generations_are_written_and_read() -> None:
    for keys in (KEYS, ControllerKeys(KEYS.current, NoPreviousKey())):
        assert parse_controller_keys(controller_key_secret(NAMESPACE, keys)) == keys


# In the background


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_key, "MINIMUM_READ_INTERVAL_SECONDS", 0.001)
    monkeypatch.setattr(controller_key, "_RETRY", Backoff(base_seconds=0.001, maximum_seconds=0.002, jitter=0.5))


async def run_until(world: World, condition: Callable[[], bool]) -> None:
    """Run in the background until the condition holds."""
    running = asyncio.create_task(world.key.run(world.api))
    try:
        async with asyncio.timeout(10):
            await world.key.attempted.wait()
            while not condition():  # noqa: ASYNC110 - the condition has no event
                await asyncio.sleep(0.001)
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running


async def test_it_is_read_again_at_once_for_an_unknown_key(world: World, soon: None) -> None:
    world.api.put(controller_key_secret(NAMESPACE, ControllerKeys(b"1" * 32)))
    name = record().name

    def rotated_by_another_replica() -> bool:
        if len(world.api.calls) == 1:
            world.api.put(controller_key_secret(NAMESPACE, KEYS))
            world.records.changed((CLUSTER.namespace, name), None, _stored(RecordSeals(KEYS).seal(record())))
        try:
            return isinstance(world.records.get(CLUSTER.namespace, name), AttestedNode)
        except Deferred:
            return False

    await run_until(world, rotated_by_another_replica)
    assert world.api.calls == ["get", "get"]


async def test_unknown_keys_do_not_cause_endless_reads(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a flood of records with other keys, the Secret is read once, then not for some time."""
    monkeypatch.setattr(controller_key, "MINIMUM_READ_INTERVAL_SECONDS", 3600.0)
    flood = iter(range(50))

    def flooded() -> bool:
        world.records.changed((CLUSTER.namespace, record().name), None, _stored(f"v1.{'0' * 16}.{'0' * 64}"))
        return next(flood, None) is None

    world.api.put(controller_key_secret(NAMESPACE, KEYS))
    await run_until(world, flooded)
    assert world.api.calls == ["get"]


async def test_it_is_read_every_few_minutes_when_nothing_needs_it(world: World, soon: None) -> None:
    world.api.put(controller_key_secret(NAMESPACE, KEYS))
    looks = iter(range(50))
    await run_until(world, lambda: next(looks, None) is None)
    assert world.api.calls == ["get"]


async def test_repeated_faults_back_off(world: World, soon: None, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts: list[int] = []

    class Noting:
        def delay(self, attempt: int, random: object) -> float:
            attempts.append(attempt)
            return 0.001

    monkeypatch.setattr(controller_key, "_RETRY", Noting())
    world.api.fault = ServerError("etcd", status=500)
    await run_until(world, lambda: len(attempts) >= 3)
    assert attempts[:3] == [0, 1, 2]


async def test_after_a_fault_it_is_tried_again(world: World, soon: None) -> None:
    world.api.fault = ServerError("etcd", status=500)

    def recovered() -> bool:
        if len(world.api.calls) == 3:
            world.api.fault = None
        try:
            world.records.require_keys()
        except Deferred:
            return False
        return True

    await run_until(world, recovered)


def _stored(seal: str) -> UnverifiedRecord:
    made = manifest(record())
    made["spec"]["seal"] = seal
    stored = stored_record(made)
    assert isinstance(stored, UnverifiedRecord)
    return stored


async def _done(value: dict[str, Any]) -> dict[str, Any]:
    return value
