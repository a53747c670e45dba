"""One workload cluster: its objects, its credential, and the condition."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from signer.access.containers.objects import GATEWAY
from signer.configuration import ContainersSwitchedOff
from signer.controller.container_access import ContainerAccessService
from signer.controller.telemetry.metrics_collector import CONTAINER_ACCESS
from signer.kube.connection import ClusterConnection
from signer.kube.errors import ApiError, Cause, Conflict, Forbidden, NotFound, Unreachable
from tests.unit.signer.access.containers.world import ANYWHERE, KEY, World, authority, until
from tests.unit.signer.ssh.world import run

UNREACHABLE = Unreachable("no answer", cause=Cause.TIMEOUT)


def token_in(kubeconfig: bytes) -> str:
    return kubeconfig.decode().split('"token":"')[1].split('"')[0]


def test_off_by_default() -> None:
    assert isinstance(ANYWHERE.containers, ContainersSwitchedOff)


def test_from_the_policy_to_the_secret() -> None:
    async def scenario() -> None:
        world = World()
        process = await world.started()
        await process.settle()
        assert world.workload.found("serviceaccounts", GATEWAY)
        connection = world.connection
        assert connection.cluster == KEY
        assert connection.user_authorities == (authority(1),)
        assert token_in(connection.kubeconfig) == "token-1"
        assert process.condition == (True, "Connected")
        (gauge,) = ContainerAccessService(process.reconciler).gauges()
        assert (gauge.family, gauge.value) == (CONTAINER_ACCESS, 1.0)
        assert "followed" in process.changes

    run(scenario())


def test_a_look_without_a_change_writes_nothing() -> None:
    async def scenario() -> None:
        world = World()
        process = await world.started()
        await process.settle()
        before = len(world.workload.asked), world.writes
        for _ in range(5):
            world.wait(minutes=5)
            await process.settle()
        assert (len(world.workload.asked), world.writes) == before
        assert not [call for call in world.workload.calls if call.method in ("PUT", "PATCH", "DELETE")]

    run(scenario())


def test_the_token_is_renewed_at_half_of_its_life() -> None:
    async def scenario() -> None:
        world = World()
        process = await world.started()
        await process.settle()
        world.wait(hours=9)
        await process.settle()
        assert world.workload.tokens == ["token-1"]
        world.wait(hours=3)
        await process.settle()
        assert world.workload.tokens == ["token-1", "token-2"]
        assert token_in(world.connection.kubeconfig) == "token-2"

    run(scenario())


def test_the_next_look_comes_when_a_short_token_is_due() -> None:
    async def scenario() -> None:
        world = World()
        world.workload.lifetime = timedelta(minutes=4)
        process = await world.started()
        pause = await process.reconciler.look(world.workload)
        assert pause <= 120

    run(scenario())


def test_a_token_of_a_service_account_that_was_made_again_is_replaced() -> None:
    async def scenario() -> None:
        world = World()
        process = await world.started()
        await process.settle()
        path = next(one for one in world.workload.api.objects.found if one.endswith(f"/serviceaccounts/{GATEWAY}"))
        world.workload.api.remove(path)
        await process.settle()
        assert token_in(world.connection.kubeconfig) == "token-2"

    run(scenario())


def test_the_secret_follows_the_address_and_the_cas_of_the_connection() -> None:
    """A rotation of the CA changes the Cluster's kubeconfig, and the controller connects anew."""

    async def scenario() -> None:
        world = World()
        process = await world.started()
        await process.settle()
        before = world.connection.kubeconfig
        world.workload.server = ClusterConnection("https://10.0.0.1:6443", b"the CA and the next one", "kubernetes")
        await process.settle()
        assert world.connection.kubeconfig != before
        assert world.workload.tokens == ["token-1"]

    run(scenario())


def test_withdrawn_access_takes_everything_away() -> None:
    async def scenario() -> None:
        world = World()
        process = await world.started()
        await process.settle()
        world.choose({})
        await process.settle()
        assert not world.secret
        left = [path for path in world.workload.api.objects.found if not path.endswith("/namespaces/node-access")]
        assert not left
        assert process.condition == (None, "")
        assert ContainerAccessService(process.reconciler).gauges() == ()
        calls = len(world.workload.calls)
        await process.settle()
        assert len(world.workload.calls) == calls, "it is taken away once"
        world.choose({"access": {}})
        await process.settle()
        assert token_in(world.connection.kubeconfig) == "token-2"

    run(scenario())


def test_a_cluster_that_never_had_access_is_asked_once_and_not_changed() -> None:
    async def scenario() -> None:
        world = World(access=False)
        process = await world.started()
        await process.settle()
        await process.settle()
        assert {call.method for call in world.workload.calls} == {"GET"}
        assert len(world.workload.calls) == 5
        assert process.condition == (None, "")

    run(scenario())


@pytest.mark.parametrize("error", [Forbidden("no", status=403), UNREACHABLE])
def test_a_cluster_without_access_whose_api_server_refuses_has_no_condition(error: ApiError) -> None:
    async def scenario() -> None:
        world = World(access=False)
        world.workload.faults.of["GET"] = error
        process = await world.started()
        await process.settle()
        assert process.condition == (None, "")

    run(scenario())


@pytest.mark.parametrize("error", [Forbidden("no", status=403), UNREACHABLE])
def test_what_cannot_be_taken_away_is_said(error: ApiError) -> None:
    async def scenario() -> None:
        world = World()
        process = await world.started()
        await process.settle()
        world.workload.faults.of["DELETE"] = error
        world.choose({})
        await process.settle()
        assert process.condition == (False, "NotRemoved")
        assert not world.secret, "the gateway loses its credential all the same"
        world.workload.faults.of.clear()
        await process.settle()
        assert process.condition == (None, "")

    run(scenario())


def test_a_foreign_object_is_said_and_stays() -> None:
    async def scenario() -> None:
        world = World()
        theirs = world.workload.api.put(
            f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{GATEWAY}", {"kind": "ClusterRole", "rules": []}
        )
        process = await world.started()
        await process.settle()
        assert process.condition == (False, "ForeignObject")
        assert "delete it" in process.reconciler.conditions[0].message
        assert world.workload.found("clusterroles", GATEWAY) == theirs
        assert not world.secret
        (gauge,) = ContainerAccessService(process.reconciler).gauges()
        assert gauge.value == 0.0

    run(scenario())


@pytest.mark.parametrize(
    ("fault", "error", "reason"),
    [
        ("POST /apis/rbac", Forbidden("no", status=403), "Forbidden"),
        ("GET /api/v1/namespaces/node-access", UNREACHABLE, "Failed"),
        ("/token", NotFound("no such subresource", status=404), "Failed"),
        ("POST /apis/rbac", Conflict("meanwhile", status=409), "Failed"),
    ],
)
def test_faults_of_the_workload_cluster(fault: str, error: ApiError, reason: str) -> None:
    async def scenario() -> None:
        world = World()
        world.workload.faults.of[fault] = error
        process = await world.started()
        pauses = [await process.reconciler.look(world.workload) for _ in range(8)]
        assert process.condition == (False, reason)
        assert pauses == sorted(pauses, key=lambda pause: round(pause / 60)), "it waits longer and longer"
        assert 4 <= pauses[0] <= 5 < pauses[-1] <= 300
        assert not world.secret
        world.workload.faults.of.clear()
        await process.settle()
        assert process.condition == (True, "Connected")

    run(scenario())


def test_a_paused_cluster_is_left_alone() -> None:
    async def scenario() -> None:
        world = World()
        process = await world.started()
        await process.settle()
        world.patch_cluster({"spec": {"paused": True}})
        calls, writes = len(world.workload.calls), world.writes
        world.wait(hours=20)
        await process.settle()
        assert (len(world.workload.calls), world.writes) == (calls, writes)
        assert world.secret

    run(scenario())


def test_after_a_restart_the_old_credential_counts_until_the_new_one_is_there() -> None:
    async def scenario() -> None:
        world = World()
        await (await world.started()).settle()
        again = await world.started()
        await again.connections.sweep()
        await again.connections.look(KEY)
        assert token_in(world.connection.kubeconfig) == "token-1"
        await again.settle()
        assert token_in(world.connection.kubeconfig) == "token-2"

    run(scenario())


def test_it_runs_until_cancelled_and_wakes() -> None:
    async def scenario() -> None:
        world = World()
        process = await world.started()
        running = asyncio.create_task(ContainerAccessService(process.reconciler).run(world.workload))
        await until(lambda: world.workload.tokens)
        calls = len(world.workload.calls)
        process.reconciler.wake()
        await until(lambda: len(world.workload.calls) > calls)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    run(scenario())
