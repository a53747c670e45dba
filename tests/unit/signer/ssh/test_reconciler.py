"""The SSH authorities of a cluster, from the policy that turns SSH on to its end, by the real reconciler."""

from __future__ import annotations

import asyncio
import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from unittest.mock import Mock

import pytest

from attestors.wire.ssh.key_line import key_line, parse_key_line
from attestors.wire.ssh.keys import PublicKey
from signer.authority.ssh.derivation import derive_user_authority, parse_master_secret
from signer.authority.ssh.secret import host_authority_in, user_authority_in
from signer.configuration import MasterSecrets, SSHPermission
from signer.controller.ssh_authorities import SSHAuthoritiesService
from signer.controller.telemetry.metrics_collector import SSH_AUTHORITIES
from signer.kube.errors import Cause, Unreachable
from signer.kube.resources import SECRETS
from signer.model.cluster import ClusterKey
from signer.model.decision import Deferred
from signer.model.seal import ControllerKeys
from signer.model.ssh_access import MasterSecretReference
from signer.ssh.available import AvailableAuthorities, NotAvailable, Reason
from signer.ssh.master_secret import derived_keys
from signer.ssh.reconciler import CHANGED_SECONDS, MOST_CONFLICTS
from signer.ssh.secrets import CREATED_ANNOTATION, TRUST_VERSION_ANNOTATION
from signer.store.caches import Caches
from tests.unit.signer.rotation.memory_api import Call, Interfere, Moment
from tests.unit.signer.ssh.world import ANYWHERE, CLUSTER, HOST, KEY, POLICY, USER, Process, World, new_line, order, run


async def available(world: World, interfere: Interfere | None = None) -> Process:
    """A process that offers the authorities."""
    process = await Process.started(world, interfere)
    assert (await process.until_it_waits()).startswith("Available: ")
    return process


def test_from_the_choice_to_its_end() -> None:
    async def scenario() -> None:
        world = World()
        process = await Process.started(world)
        assert await process.until_it_waits() == ""
        assert isinstance(process.of(), NotAvailable)
        assert {call.path for call in process.client.calls if call.writes} == set()

        world.choose({})
        shown = await process.until_it_waits()
        found, offered = process.available(), process.offered()
        assert found.user.public_key.fingerprint in shown
        assert found.host.public_key.fingerprint in shown
        assert world.public_key(USER) == key_line(found.user.public_key)
        assert world.public_key(HOST) == key_line(found.host.public_key)
        assert found.user.public_key != found.host.public_key

        world.choose(None)
        shown = await process.until_it_waits()
        assert shown.startswith("NotChosen: ")
        assert "blue-ssh-host, blue-ssh-user" in shown
        assert (process.of(), process.reconciler.status) == (
            NotAvailable(Reason.NOT_CHOSEN, shown.removeprefix("NotChosen: ")),
            {},
        )
        world.choose({})
        await process.until_it_waits()
        assert process.offered() == offered, "made once, and kept"

    run(scenario())


def test_what_is_made() -> None:
    """Secrets that the offline commands read, and that move with the Cluster."""

    async def scenario() -> None:
        world = World(ssh={})
        process = await available(world)
        for path, read in ((USER, user_authority_in), (HOST, host_authority_in)):
            manifest = world.found(path)
            assert manifest["type"] == "cluster.x-k8s.io/secret"
            assert manifest["metadata"]["labels"] == {"cluster.x-k8s.io/cluster-name": KEY.name}
            [owner] = manifest["metadata"]["ownerReferences"]
            assert (owner["kind"], owner["name"]) == ("Cluster", KEY.name)
            assert owner["uid"] == world.found(CLUSTER)["metadata"]["uid"]
            assert key_line(read(manifest).public_key) == world.public_key(path)
            assert world.public_key(path).startswith("ssh-ed25519 ")
        secret = json.dumps([world.found(path)["data"]["ssh-privatekey"] for path in (USER, HOST)])
        shown = [process.of(), process.reconciler.conditions, process.reconciler.status, process.reconciler]
        assert "PRIVATE KEY" not in repr(shown)
        assert not [one for one in json.loads(secret) if one in repr(shown)]

    run(scenario())


def test_what_the_status_shows() -> None:
    async def scenario() -> None:
        world = World(ssh={"rotationPeriod": "240h"})
        process = await available(world)
        status = process.reconciler.status
        assert status == {
            "trustVersion": int(world.now.timestamp()),
            "userAuthorities": [
                {
                    "publicKey": world.public_key(USER),
                    "fingerprint": process.available().user.public_key.fingerprint,
                    "createdAt": "2026-01-01T00:00:00Z",
                    "state": "Issuing",
                }
            ],
            "hostAuthorities": [
                {
                    "publicKey": world.public_key(HOST),
                    "fingerprint": process.available().host.public_key.fingerprint,
                    "createdAt": "2026-01-01T00:00:00Z",
                    "state": "Issuing",
                }
            ],
        }
        [gauge] = SSHAuthoritiesService(process.reconciler).gauges()
        assert (gauge.family, gauge.value) == (SSH_AUTHORITIES, 1)
        assert not any(one.type.counts_toward_ready(None) for one in process.reconciler.conditions)

    run(scenario())


def test_the_period() -> None:
    """A condition says when it has passed, and nothing starts by itself."""

    async def scenario() -> None:
        world = World(ssh={"rotationPeriod": "240h"})
        process = await available(world)
        made = world.keys_ever(USER), world.keys_ever(HOST)
        shown: list[Any] = []
        for days in (9, 1.5):
            world.wait(days)
            await process.until_it_waits()
            shown.append([(one.met, one.reason) for one in process.reconciler.conditions])
        assert shown == [
            [(True, "Available"), (True, "WithinPeriod")],
            [(True, "Available"), (False, "PeriodPassed")],
        ]
        assert "2026-01-11T00:00:00Z" in process.reconciler.conditions[1].message
        assert (world.keys_ever(USER), world.keys_ever(HOST)) == made
        world.choose({})
        assert len(process.reconciler.conditions) == 1

    run(scenario())


@pytest.mark.parametrize("path", [USER, HOST])
def test_the_period_counts_from_the_older_authority(path: str) -> None:
    async def scenario() -> None:
        world = World(ssh={"rotationPeriod": "240h"})
        process = await available(world)
        world.wait(9)
        world.api.remove(path)
        await process.until_it_waits()
        world.wait(2)
        assert [one.reason for one in process.reconciler.conditions] == ["Available", "PeriodPassed"]
        world.api.remove(HOST if path == USER else USER)
        await process.until_it_waits()
        assert [one.reason for one in process.reconciler.conditions] == ["Available", "WithinPeriod"]

    run(scenario())


@pytest.mark.parametrize("permission", [SSHPermission(), SSHPermission(frozenset({"other"}))])
def test_beyond_the_operators_bounds(permission: SSHPermission) -> None:
    async def scenario() -> None:
        world = World(ssh={})
        process = await Process.started(world)
        process.allow(permission)
        shown = await process.until_it_waits()
        assert shown.startswith("NotAllowed: ")
        assert "ssh.namespaces" in shown
        assert (world.found(USER), world.found(HOST)) == ({}, {})
        process.allow(ANYWHERE)
        await process.until_it_waits()
        process.available()
        process.allow(permission)
        assert (await process.until_it_waits()).startswith("NotAllowed: ")
        assert isinstance(process.of(), NotAvailable)

    run(scenario())


@pytest.mark.parametrize(
    ("path", "patch", "reason"),
    [
        (CLUSTER, {"spec": {"paused": True}}, Reason.PAUSED),
        (CLUSTER, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, Reason.NOT_CHOSEN),
        (POLICY, {"spec": {"mode": "?"}}, Reason.NOT_CHOSEN),
        (POLICY, {"spec": {"ssh": {"rotationPeriod": "1s"}}}, Reason.NOT_CHOSEN),
    ],
)
def test_where_they_do_not_sign(path: str, patch: dict[str, Any], reason: Reason) -> None:
    """Neither are they made there, nor offered."""

    async def scenario() -> None:
        world = World(ssh={})
        world.api.edit(path, patch)
        process = await Process.started(world)
        await process.until_it_waits()
        assert (world.found(USER), world.found(HOST), process.errors) == ({}, {}, [])
        world = World(ssh={})
        process = await available(world)
        world.api.edit(path, patch)
        await process.until_it_waits()
        found = process.of()
        assert isinstance(found, NotAvailable)
        assert found.reason is reason

    run(scenario())


def test_without_a_cluster() -> None:
    async def scenario() -> None:
        world = World(ssh={})
        process = await available(world)
        world.api.remove(CLUSTER)
        assert await process.until_it_waits() == ""
        assert isinstance(process.of(), NotAvailable)
        assert process.authorities.of(ClusterKey("tenant", "other")) == NotAvailable(
            Reason.NOT_KNOWN, "no pass over the Secrets has been made"
        )

    run(scenario())


class Away(Interfere):
    """The management cluster does not answer while ``away``."""

    away = False

    async def __call__(self, call: Call, moment: Moment) -> None:
        if self.away:
            raise Unreachable("away", cause=Cause.NETWORK)


def test_what_cannot_be_verified_is_not_available() -> None:
    async def scenario() -> None:
        away = Away()
        process = await available(World(ssh={}), away)
        away.away = True
        running = asyncio.create_task(process.reconciler.run())
        await until(lambda: isinstance(process.of(), NotAvailable))
        found = process.of()
        assert isinstance(found, NotAvailable)
        assert found.reason is Reason.NOT_KNOWN
        assert [one.met for one in process.reconciler.conditions] == [None]
        assert process.changes == 1
        away.away = False
        await cancelled(running)

    run(scenario())


async def until(done: Any) -> None:
    """Let tasks run until it is so."""
    for _ in range(10_000):
        if done():
            return
        await asyncio.sleep(0)
    raise AssertionError("it never is")


async def cancelled(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class Editing(Interfere):
    """Another client edits the user authority's Secret before the next ``times`` writes of it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.times = 0

    async def __call__(self, call: Call, moment: Moment) -> None:
        if moment is Moment.BEFORE and call == Call("PUT", USER) and self.times:
            self.times -= 1
            self.world.api.edit(USER, {"metadata": {"annotations": {"example.com/edit": str(self.times)}}})


async def revoking(world: World, times: int) -> tuple[Process, AvailableAuthorities, SSHAuthoritiesService]:
    """A revocation is ordered, whose first writes meet a conflict; a pass for each of them is over."""
    editing = Editing(world)
    process = await available(world, editing)
    before = process.available()
    editing.times = 10**6
    order(world, "revoke-ssh-user-ca")
    for _ in range(times):
        assert await process.reconciler._try_pass() == CHANGED_SECONDS
    assert editing.times == 10**6 - times
    editing.times = 0
    return process, before, SSHAuthoritiesService(process.reconciler)


def test_a_client_that_edits_the_secret_all_the_time_keeps_no_leaked_authority() -> None:
    async def scenario() -> None:
        world = World(ssh={})
        process, before, service = await revoking(world, MOST_CONFLICTS)
        withheld = process.of()
        assert isinstance(withheld, NotAvailable)
        assert withheld.reason is Reason.NOT_KNOWN
        assert "another client changes the two Secrets all the time" in process.shown()
        assert [one.value for one in service.gauges() if one.family is SSH_AUTHORITIES] == [0.0]
        assert process.reconciler.status == {}
        assert process.changes == 1
        assert await process.reconciler._try_pass() == 0.0
        assert isinstance(process.of(), NotAvailable), "not before a pass has read what it wrote"
        while await process.reconciler._try_pass() == 0.0:
            pass
        assert process.available().user.public_key != before.user.public_key

    run(scenario())


def test_fewer_conflicts_take_nothing_away() -> None:
    """Two controllers, and clients that label a Secret, meet now and then: the writes in between begin a new count."""

    async def scenario() -> None:
        world = World(ssh={})
        process, before, _ = await revoking(world, MOST_CONFLICTS - 1)
        assert process.available() is before
        while await process.reconciler._try_pass() == 0.0:
            pass
        again = process.available()
        process.client.interfere = editing = Editing(world)
        editing.times = MOST_CONFLICTS - 1
        world.wait(0.01)
        order(world, "revoke-ssh-user-ca")
        for _ in range(MOST_CONFLICTS - 1):
            await process.reconciler._try_pass()
        assert process.available() is again

    run(scenario())


def test_it_stops_before_anything_that_may_fail() -> None:
    async def scenario() -> None:
        world, away = World(ssh={}), Away()
        process = await available(world, away)
        away.away = True
        world.choose(None)
        await process.pass_once()
        assert len(process.errors) == 1
        assert isinstance(process.of(), NotAvailable)

    run(scenario())


def test_records_are_not_looked_at_for_a_policy_without_ssh(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        world = World(ssh={})
        process = await available(world)
        monkeypatch.setattr(process.reconciler, "_reports", lambda key: pytest.fail("all records are looked at"))
        world.choose(None)
        assert (await process.until_it_waits()).startswith("NotChosen: ")

    run(scenario())


def test_after_the_end_of_the_task_nothing_is_available() -> None:
    async def scenario() -> None:
        process = await available(World(ssh={}))
        running = asyncio.create_task(process.reconciler.run())
        await asyncio.sleep(0)
        process.available()
        await cancelled(running)
        assert isinstance(process.of(), NotAvailable)

    run(scenario())


def test_a_change_of_the_policy_wakes_it() -> None:
    async def scenario() -> None:
        world = World()
        process = await Process.started(world)
        running = asyncio.create_task(process.reconciler.run())
        await until(lambda: len(process.client.calls) >= 2)
        world.choose({})
        process.reconciler.wake()
        await until(lambda: not isinstance(process.of(), NotAvailable))
        await cancelled(running)

    run(scenario())


def test_while_the_caches_are_out_of_touch_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        world = World(ssh={})
        process = await Process.started(world)
        out_of_touch = Deferred("ManagementClusterUnreachable", "no watch")
        monkeypatch.setattr(Caches, "require_in_touch", Mock(side_effect=out_of_touch))
        await process.pass_once()
        assert process.errors == [out_of_touch]
        assert (world.found(USER), world.found(HOST)) == ({}, {})

    run(scenario())


def test_the_controller_key_is_rotated_twice() -> None:
    async def scenario() -> None:
        world = World(ssh={})
        process = await available(world)
        found, seals = process.offered(), set()
        for number in range(2):
            world.set_keys(ControllerKeys(bytes([number]) * 32, world.keys.current))
            await process.read_key()
            assert (await process.until_it_waits()).startswith("Available: ")
            seals |= {json.dumps(world.found(path)["metadata"]["annotations"]) for path in (USER, HOST)}
        assert process.offered() == found
        assert len(seals) == 4
        assert (len(world.keys_ever(USER)), len(world.keys_ever(HOST))) == (1, 1)

    run(scenario())


# The version of the trust

LINES: Final = (new_line(), new_line())


def test_the_trust_version_grows_with_each_change() -> None:
    async def scenario() -> None:
        world = World(ssh={})
        process = await available(world)
        first = process.available().trust.version
        assert first == int(world.now.timestamp())
        versions = [first]
        for keys in ([LINES[0]], [LINES[0], LINES[1]], [LINES[1], LINES[0]], []):
            world.choose({"breakGlass": {"publicKeys": [{"key": line} for line in keys]}})
            await process.until_it_waits()
            versions.append(process.available().trust.version)
        assert versions == [first, first + 1, first + 2, first + 2, first + 3], "their order means nothing"
        world.wait(1)
        world.choose({"breakGlass": {"publicKeys": [{"key": LINES[0], "comment": "safe in the basement"}]}})
        await process.until_it_waits()
        later = process.available().trust.version
        assert later == int(world.now.timestamp())
        world.choose({"breakGlass": {"publicKeys": [{"key": LINES[0], "comment": "moved"}]}})
        await process.until_it_waits()
        assert process.available().trust.version == later, "a comment changes no trust"
        trust = process.available().trust
        assert trust.user_authorities == (process.available().user.public_key,)
        assert trust.break_glass_authorities == (parse_key_line(LINES[0]),)
        assert trust.host_authorities == (process.available().host.public_key,)
        assert (len(world.keys_ever(USER)), len(world.keys_ever(HOST))) == (1, 1)

    run(scenario())


def test_after_a_restored_backup_a_change_still_has_a_higher_version() -> None:
    async def scenario() -> None:
        world = World(ssh={})
        process = await available(world)
        backup = world.found(USER)
        world.wait(1)
        world.choose({"breakGlass": {"publicKeys": [{"key": LINES[0]}]}})
        await process.until_it_waits()
        shown = process.available().trust.version
        world.wait(1)
        world.api.put(USER, backup)
        await process.until_it_waits()
        assert process.available().trust.version > shown

    run(scenario())


def test_it_is_written_before_it_is_shown() -> None:
    class NoReplace(Interfere):
        refuse = False

        async def __call__(self, call: Call, moment: Moment) -> None:
            if self.refuse and call.method == "PUT" and moment is Moment.BEFORE:
                raise Unreachable("away", cause=Cause.NETWORK)

    async def scenario() -> None:
        world, refuse = World(ssh={}), NoReplace()
        process = await available(world, refuse)
        version = process.available().trust.version
        refuse.refuse = True
        world.choose({"breakGlass": {"publicKeys": [{"key": LINES[0]}]}})
        await process.pass_once()
        assert process.errors
        assert world.found(USER)["metadata"]["annotations"][TRUST_VERSION_ANNOTATION] == str(version)
        assert process.reconciler.status["trustVersion"] == version

    run(scenario())


# RFC 016 literally: a master secret

MASTER: Final = SECRETS.object("master", KEY.namespace)
MASTER_JSON: Final = json.dumps(
    {"key": base64.b64encode(bytes(range(32))).decode(), "salt": base64.b64encode(bytes(32)).decode()}
)
WITH_MASTER: Final = SSHPermission(frozenset({"*"}), MasterSecrets.ALLOWED)
NAMED: Final = {"masterSecretRef": {"name": "master"}}


def master_secret(text: str = MASTER_JSON) -> dict[str, Any]:
    return {"data": {"master-secret.json": base64.b64encode(text.encode()).decode()}}


async def with_master(
    secret: dict[str, Any] | None, ssh: Any = None, permission: SSHPermission = WITH_MASTER
) -> Process:
    """A process whose policy names a master secret, after its first passes."""
    world = World(ssh=NAMED if ssh is None else ssh)
    if secret is not None:
        world.api.put(MASTER, secret)
    process = await Process.started(world)
    process.allow(permission)
    await process.until_it_waits()
    return process


def derived(generation: int) -> PublicKey:
    return derive_user_authority(parse_master_secret(MASTER_JSON.encode()), generation=generation).public_key


def test_the_authority_of_a_master_secret_is_trusted_as_a_break_glass_key() -> None:
    async def scenario() -> None:
        process = await with_master(master_secret())
        trust, version = process.available().trust, process.available().trust.version
        assert trust.user_authorities == (process.available().user.public_key,)
        assert trust.break_glass_authorities == (derived(0),)
        process.world.choose({"masterSecretRef": {"name": "master", "generations": [0, 1]}})
        await process.until_it_waits()
        trust = process.available().trust
        assert trust.break_glass_authorities == (derived(0), derived(1))
        assert trust.version == version + 1
        # The same key by its public half: it is there once, and nothing changes.
        both = {"breakGlass": {"publicKeys": [{"key": key_line(derived(0))}]}}
        process.world.choose({"masterSecretRef": {"name": "master", "generations": [0, 1]}, **both})
        await process.until_it_waits()
        assert process.available().trust == trust

    run(scenario())


def test_without_the_operators_word_a_master_secret_is_not_even_read() -> None:
    async def scenario() -> None:
        process = await with_master(master_secret(), permission=ANYWHERE)
        assert process.shown().startswith("NotAllowed: ")
        assert "ssh.masterSecrets" in process.shown()
        assert isinstance(process.of(), NotAvailable)
        assert MASTER not in {call.path for call in process.client.calls}

    run(scenario())


@pytest.mark.parametrize(
    ("secret", "message"),
    [
        (None, "does not exist"),
        ({}, "has no master-secret.json"),
        ({"data": {"master-secret.json": "%"}}, "not Base64"),
        (master_secret("x" * 40_000), "more than 16384 bytes"),
        (master_secret("hunter2"), "not JSON"),
        (master_secret(json.dumps({"key": "aHVudGVyMg=="})), "bytes"),
        (master_secret(json.dumps({"key": "hunter2", "salt": "", "more": 1})), "nothing else"),
    ],
)
def test_a_master_secret_that_cannot_be_used_stops_everything(
    secret: dict[str, Any] | None, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    """To go on without it would take the break-glass authority from the nodes, by a version that they believe."""

    async def scenario() -> None:
        process = await with_master(secret)
        shown = process.shown()
        assert shown.startswith("MasterSecretUnusable: ")
        assert message in shown
        assert "Secret master of spec.ssh.masterSecretRef" in shown
        assert isinstance(process.of(), NotAvailable)
        assert "hunter2" not in shown + caplog.text
        process.world.api.put(MASTER, master_secret())
        await process.until_it_waits()
        assert process.available().trust.break_glass_authorities == (derived(0),)

    run(scenario())


def test_nothing_of_a_master_secret_is_kept() -> None:
    found = derived_keys(master_secret(), MasterSecretReference("master"))
    text = repr(found) + str(found)
    assert base64.b64encode(bytes(range(32))).decode() not in text
    assert repr(bytes(range(32))) not in text


@pytest.mark.parametrize("path", [USER, HOST])
def test_a_break_glass_key_that_is_an_authority(path: str) -> None:
    """Nodes would take any principal from it."""

    async def scenario() -> None:
        world = World(ssh={})
        process = await available(world)
        key = {"key": world.public_key(path)}
        world.choose({"breakGlass": {"publicKeys": [{"key": LINES[0]}, key]}})
        shown = await process.until_it_waits()
        assert shown.startswith("BreakGlassKeyIsAuthority: ")
        assert "publicKeys[1]" in shown
        assert isinstance(process.of(), NotAvailable)
        world.choose({"breakGlass": {"publicKeys": [{"key": LINES[0]}]}})
        await process.until_it_waits()
        process.available()

    run(scenario())


# A move to another management cluster


@pytest.mark.parametrize("same_key", [True, False])
def test_moved(same_key: bool) -> None:
    """``clusterctl move`` creates the objects anew, with the Cluster paused until all are there."""

    async def scenario() -> None:
        source = World(ssh={"rotationPeriod": "240h"})
        before = (await available(source)).available()
        target = World(source.keys if same_key else ControllerKeys(b"x" * 32), ssh={"rotationPeriod": "240h"})
        target.now = source.now + timedelta(days=20)
        target.api.objects.now = target.now
        target.api.edit(CLUSTER, {"spec": {"paused": True}})
        process = await Process.started(target)
        assert (await process.until_it_waits()).startswith("Paused: ")
        for path in (USER, HOST):
            manifest = json.loads(json.dumps(source.found(path)))
            for given in ("uid", "resourceVersion", "creationTimestamp"):
                del manifest["metadata"][given]
            manifest["metadata"]["ownerReferences"][0]["uid"] = target.found(CLUSTER)["metadata"]["uid"]
            target.api.put(path, manifest)
        assert (await process.until_it_waits()).startswith("Paused: ")
        target.api.edit(CLUSTER, {"spec": {"paused": None}})
        shown = await process.until_it_waits()
        assert target.public_key(USER) == key_line(before.user.public_key)
        if not same_key:
            assert shown.startswith("ForeignAuthority: ")
            assert isinstance(process.of(), NotAvailable)
            assert len(target.keys_ever(USER)) == 1, "never overwritten"
            return
        found = process.available()
        assert (found.user.public_key, found.host.public_key) == (before.user.public_key, before.host.public_key)
        assert found.trust.version == before.trust.version
        assert found.user_created_at == datetime(2026, 1, 1, tzinfo=UTC), "not when it was moved"
        assert [one.reason for one in process.reconciler.conditions] == ["Available", "PeriodPassed"]
        assert target.found(USER)["metadata"]["annotations"][CREATED_ANNOTATION] == "2026-01-01T00:00:00Z"

    run(scenario())


def test_replaced_by_hand() -> None:
    """As docs/ssh-authorities.md says: delete the Secret, and the controller makes a new authority."""

    async def scenario() -> None:
        world = World(ssh={})
        process = await available(world)
        before = process.available()
        world.api.remove(HOST)
        await process.until_it_waits()
        after = process.available()
        assert after.host.public_key != before.host.public_key
        assert after.user.public_key == before.user.public_key
        assert after.trust.version > before.trust.version
        world.api.remove(USER)
        await process.until_it_waits()
        assert process.available().user.public_key != before.user.public_key
        assert process.available().host.public_key == after.host.public_key

    run(scenario())
