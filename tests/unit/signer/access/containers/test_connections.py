"""The Secrets in the gateway's namespace."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from signer.kube.errors import AlreadyExists, ApiError, Cause, Conflict, Forbidden, NotFound, Unreachable
from signer.kube.resources import CLUSTERS_V1BETA2, NODE_ATTESTATION_POLICIES, SECRETS
from signer.model.cluster import ClusterKey, WatchFilter
from signer.model.gateway_connection import (
    MAXIMUM_KUBECONFIG_BYTES,
    GatewayConnection,
    connection_name,
    render_gateway_connection,
)
from signer.model.shard import SomeShards
from signer.ssh.available import NotAvailable, Reason
from tests.unit.signer.access.containers.world import (
    CLUSTER,
    GATEWAYS,
    KEY,
    PATH,
    Process,
    World,
    authorities,
    authority,
    until,
)
from tests.unit.signer.ssh.world import run

GONE = ClusterKey("tenant", "gone")
GONE_PATH = SECRETS.object(connection_name(GONE), GATEWAYS)


async def connected() -> tuple[World, Process]:
    world = World()
    process = await world.started()
    await process.settle()
    return world, process


def test_both_authorities_of_a_rotation_are_there_and_no_break_glass_key() -> None:
    async def scenario() -> None:
        world, process = await connected()
        process.authorities.offer(KEY, authorities(1, 2, break_glass=(3,)))
        await process.connections.look(KEY)
        assert world.trusted == [authority(1), authority(2)]
        process.authorities.offer(KEY, authorities(2))
        await process.connections.look(KEY)
        assert world.trusted == [authority(2)]

    run(scenario())


def test_a_revoked_authority_leaves_at_once_without_the_workload_cluster() -> None:
    async def scenario() -> None:
        world, process = await connected()
        running = asyncio.create_task(process.connections.run())
        await until(lambda: process.connections._is_listed)
        process.authorities.offer(KEY, authorities(7))
        await until(lambda: world.trusted == [authority(7)])
        running.cancel()

    run(scenario())


@pytest.mark.parametrize("reason", [Reason.NOT_KNOWN, Reason.EDITED_AUTHORITY])
def test_while_authorities_are_in_doubt_the_gateway_keeps_what_it_has(reason: Reason) -> None:
    async def scenario() -> None:
        world, process = await connected()
        process.authorities.withhold(KEY, NotAvailable(reason, "why"))
        await process.connections.look(KEY)
        assert world.trusted == [authority(1)]
        said = (True, "Connected") if reason is Reason.NOT_KNOWN else (False, "AuthoritiesNotAvailable")
        assert process.condition == said
        process.authorities.offer(KEY, authorities(1))
        await process.connections.look(KEY)
        assert process.condition == (True, "Connected")

    run(scenario())


def test_without_authorities_no_secret_is_made() -> None:
    async def scenario() -> None:
        world = World()
        process = await world.started(shown=NotAvailable(Reason.MALFORMED, "why"))
        await process.settle()
        assert not world.secret
        assert process.condition == (False, "AuthoritiesNotAvailable")

    run(scenario())


def test_ssh_that_is_switched_off_removes_the_secret() -> None:
    async def scenario() -> None:
        world, process = await connected()
        process.authorities.withhold(KEY, NotAvailable(Reason.NOT_ALLOWED, "why"))
        await process.connections.look(KEY)
        assert not world.secret

    run(scenario())


@pytest.mark.parametrize(
    "change",
    [
        {"data": {"user-authorities": "c3NoLWVkMjU1MTkgQUFBQQo="}},
        {"data": {"kubeconfig": "YQ=="}},
        {"data": {"more": "YQ=="}},
        {"type": "Opaque"},
        {"immutable": True, "data": {"kubeconfig": "YQ=="}},
    ],
)
def test_what_somebody_changed_is_put_back_by_the_next_list(change: dict[str, Any]) -> None:
    async def scenario() -> None:
        world, process = await connected()
        before = world.connection
        world.management.api.edit(PATH, change)
        await process.connections.sweep()
        await process.connections.look(KEY)
        assert world.connection == before
        assert not world.secret.get("immutable")

    run(scenario())


def test_a_secret_that_somebody_deleted_comes_back() -> None:
    async def scenario() -> None:
        world, process = await connected()
        world.management.api.remove(PATH)
        await process.connections.sweep()
        await process.connections.look(KEY)
        assert world.secret

    run(scenario())


def put_gone(world: World, key: ClusterKey = GONE) -> str:
    path = SECRETS.object(connection_name(key), GATEWAYS)
    world.management.api.put(path, render_gateway_connection(GatewayConnection(key, b"k", (authority(1),)), GATEWAYS))
    return path


async def swept(process: Process, world: World) -> None:
    """A running controller has listed the Secrets, and done what follows."""
    running = asyncio.create_task(process.connections.run())
    await until(lambda: process.connections._is_listed)
    for _ in range(200):
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


def test_the_secret_of_a_cluster_that_is_gone_is_swept(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        world, process = await connected()
        put_gone(world)
        other = SECRETS.object("other", GATEWAYS)
        world.management.api.put(other, {"type": "Opaque", "data": {}})
        broken = SECRETS.object("broken", GATEWAYS)
        world.management.api.put(broken, {"type": "access.cluster.x-k8s.io/gateway-connection", "data": {}})
        await swept(process, world)
        assert not world.management.found(GONE_PATH)
        assert world.secret
        assert world.management.found(other)
        assert world.management.found(broken), "the gateway refuses it, and the log names it"

    run(scenario())
    named = [vars(one)["object"] for one in caplog.records if one.getMessage().endswith("is no connection")]
    assert set(named) == {"broken"}, "Secrets of other types, such as the host key, are not read"


def test_the_secret_goes_with_its_cluster() -> None:
    async def scenario() -> None:
        world, process = await connected()
        world.management.api.remove(CLUSTER)
        await process.connections.look(KEY)
        assert not world.secret

    run(scenario())


def test_a_replica_of_other_shards_touches_nothing() -> None:
    async def scenario() -> None:
        world, process = await connected()
        put_gone(world)
        process.ssh.caches.set_shards(SomeShards(1))
        process.authorities.offer(KEY, authorities(5))
        await process.connections.look(KEY)
        await swept(process, world)
        assert world.trusted == [authority(1)]
        assert world.management.found(GONE_PATH)

    run(scenario())


def test_new_shards_are_swept() -> None:
    async def scenario() -> None:
        world, process = await connected()
        running = asyncio.create_task(process.connections.run())
        await until(lambda: process.connections._is_listed)
        put_gone(world)
        process.connections.shards_changed()
        await until(lambda: not world.management.found(GONE_PATH))
        running.cancel()

    run(scenario())


def test_a_cluster_of_another_controller_is_not_touched() -> None:
    async def scenario() -> None:
        world, process = await connected()
        process.ssh.caches.watch_filter = WatchFilter("theirs")
        world.choose({})
        await process.connections.look(KEY)
        await swept(process, world)
        assert world.secret

    run(scenario())


def test_secrets_of_namespaces_that_are_not_watched_stay() -> None:
    async def scenario() -> None:
        world, process = await connected()
        path = put_gone(world, ClusterKey("elsewhere", "gone"))
        process.ssh.caches._watch_namespace = KEY.namespace
        await swept(process, world)
        assert world.management.found(path)

    run(scenario())


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Forbidden("no", status=403), "Forbidden"),
        (NotFound("no namespace", status=404), "GatewayNamespaceMissing"),
        (Unreachable("no answer", cause=Cause.TIMEOUT), "Failed"),
    ],
)
def test_faults_of_the_management_cluster(error: ApiError, reason: str) -> None:
    async def scenario() -> None:
        world = World()
        world.management_faults.of["POST"] = error
        process = await world.started()
        await process.reconciler.look(world.workload)
        running = asyncio.create_task(process.connections.run())
        await until(lambda: process.condition[1])
        assert process.condition == (False, reason)
        world.management_faults.of.clear()
        await until(lambda: process.connections._is_listed)
        await process.connections.look(KEY)
        assert process.condition == (True, "Connected")
        running.cancel()

    run(scenario())


def test_a_list_that_fails_is_said_and_tried_again() -> None:
    async def scenario() -> None:
        world = World()
        world.management_faults.of["LIST"] = Forbidden("no", status=403)
        process = await world.started()
        await process.reconciler.look(world.workload)
        running = asyncio.create_task(process.connections.run())
        await until(lambda: process.condition[1])
        assert process.condition == (False, "Forbidden")
        assert not world.secret, "before the first list, nothing is written"
        world.management_faults.of.clear()
        process.connections.shards_changed()
        await until(lambda: process.condition == (True, "Connected"))
        running.cancel()

    run(scenario())


@pytest.mark.parametrize("error", [Conflict("meanwhile", status=409), AlreadyExists("meanwhile", status=409)])
def test_a_write_that_another_one_came_before_is_made_again(error: ApiError, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("signer.access.containers.connections.CHANGED_SECONDS", 0.01)

    async def scenario() -> None:
        world = World()
        process = await world.started()
        await process.reconciler.look(world.workload)
        world.management_faults.of["POST"] = error
        running = asyncio.create_task(process.connections.run())
        await until(lambda: [call for call in world.client.calls if call.method == "POST"])
        world.management_faults.of.clear()
        await until(lambda: world.secret)
        assert process.condition == (True, "Connected")
        running.cancel()

    run(scenario())


def test_a_kubeconfig_that_is_too_large_holds_nobody_else() -> None:
    async def scenario() -> None:
        world, process = await connected()
        other = ClusterKey("tenant", "green")
        world.management.api.put(CLUSTERS_V1BETA2.object(other.name, other.namespace), {"spec": {}})
        world.management.api.put(
            NODE_ATTESTATION_POLICIES.object(other.name, other.namespace),
            {"spec": {"authorizedAttestors": [{"name": "keyed-mac"}], "ssh": {"access": {}}}},
        )
        process.authorities.offer(other, authorities(4))
        process.connections.offer(KEY, b"k" * (MAXIMUM_KUBECONFIG_BYTES + 1))
        process.connections.offer(other, b"fine")
        await swept(process, world)
        assert world.management.found(SECRETS.object(connection_name(other), GATEWAYS))
        assert process.condition == (False, "Failed")
        assert "kubeconfig must have 1 to 64 KiB" in process.reconciler.conditions[0].message

    run(scenario())


def test_a_list_that_works_again_clears_what_the_failure_said() -> None:
    async def scenario() -> None:
        world, process = await connected()
        world.management_faults.of["LIST"] = Forbidden("no", status=403)
        running = asyncio.create_task(process.connections.run())
        await until(lambda: process.condition == (False, "Forbidden"))
        writes = world.writes
        world.management_faults.of.clear()
        process.connections.shards_changed()
        await until(lambda: process.condition == (True, "Connected"))
        assert world.writes == writes
        running.cancel()

    run(scenario())


def test_a_credential_of_before_does_not_come_back() -> None:
    async def scenario() -> None:
        world, process = await connected()
        world.choose({})
        await process.settle()
        world.choose({"access": {}})
        await process.connections.look(KEY)
        assert not world.secret, "its ServiceAccount is gone"
        await process.settle()
        assert world.secret

    run(scenario())


def test_a_defect_is_isolated(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        world, process = await connected()
        put_gone(world)

        def fails(key: ClusterKey) -> Any:
            raise RuntimeError("a defect")

        monkeypatch.setattr(process.connections, "_authorities_of", lambda key: fails(key) if key == KEY else None)
        process.connections._is_listed = True
        process.connections.changed(KEY)
        work = asyncio.create_task(cast("Any", process.connections)._work())
        await until(lambda: process.condition == (False, "Failed"))
        work.cancel()

    run(scenario())


def test_no_log_has_a_credential(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")

    async def scenario() -> None:
        world, process = await connected()
        world.choose({})
        await process.settle()

    run(scenario())
    assert caplog.records
    assert "token-1" not in "".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)
