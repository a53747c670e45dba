"""What a gateway does at its start about its killed predecessor."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from aiohttp import web

from signer.gateway import leftovers
from signer.gateway.commands import SessionMark
from signer.gateway.leftovers import Leftovers
from signer.gateway.websocket import WebSocketSession
from signer.model.tools_image import ToolsImage
from tests.support.gateway_grants import WORKLOAD
from tests.unit.signer.gateway.ssh.test_tools import bare
from tests.unit.signer.gateway.ssh.world import IDENTITY, World, gateway
from tests.unit.signer.kube.support import Authority


@pytest.fixture
async def world(
    authority: Authority, tls: ssl.SSLContext, session: WebSocketSession, tmp_path: Path
) -> AsyncIterator[World]:
    async with gateway(authority, tls, session, tmp_path, tools=ToolsImage("tools:1")) as found:
        yield found


def of(world: World) -> Leftovers:
    parts = world.parts
    return Leftovers(parts.openings, parts.clusters, parts.resolver, parts.metrics, parts.identity)


def failed(world: World) -> float:
    return world.parts.metrics.registry.get_sample_value("node_access_gateway_signals_failed_total") or 0.0


async def test_it_looks_in_the_container_of_each_live_grant(world: World) -> None:
    world.grant(11)
    world.grant(12, creator="bob")
    world.grant(13, suspend=True)
    await of(world).end()
    uids = [one["metadata"]["uid"] for one in world.grants]
    marks = {one[4]: one[6] for one in world.commands}
    assert marks == {
        SessionMark.of_place(uid, IDENTITY).value: SessionMark.of_process(uid, IDENTITY).value for uid in uids[:2]
    }
    assert all(mark.startswith(uid) for mark, uid in zip(sorted(marks), sorted(uids[:2]), strict=True))


async def test_it_waits_until_it_knows_which_grants_are_live(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leftovers, "POLL_SECONDS", 0.001)
    world.grant(11)
    world.parts.openings.grants.seen = None
    task = asyncio.create_task(of(world).end())
    for _ in range(10):
        await asyncio.sleep(0.002)
    assert not world.commands
    world.show(world.grants)
    await task
    assert len(world.commands) == 1


async def test_without_a_shell_it_looks_from_the_tools_container(world: World) -> None:
    key = world.grant(11)
    bare(world)
    await of(world).end()
    assert world.containers == ["app"], "it adds none"
    async with world.connect(key) as client:
        await client.run("ls")
    (tools,) = (one["name"] for one in world.pod["spec"]["ephemeralContainers"])
    world.containers.clear()
    await of(world).end()
    assert world.containers[-2:] == ["app", tools]


async def test_a_cluster_that_does_not_answer_holds_no_other_grant(world: World) -> None:
    world.grant(11)
    world.grant(12, container=WORKLOAD)

    async def answer(request: web.Request) -> web.StreamResponse | None:
        return web.Response(status=500) if "deployments" in request.path else None

    world.answer = answer
    await of(world).end()
    assert len(world.commands) == 1
    assert failed(world) == 1


async def test_pods_of_a_workload(world: World) -> None:
    world.grant(11, container=WORKLOAD)

    def item(uid: str, owner: str, **more: object) -> dict[str, object]:
        references = [{"uid": owner, "controller": True}]
        metadata = {"name": f"name-{uid}", "namespace": "shop", "uid": uid, "ownerReferences": references}
        return {**world.pod, "metadata": metadata, **more}

    async def answer(request: web.Request) -> web.StreamResponse | None:
        kind = request.path.rpartition("/")[2]
        match kind:
            case "web":
                selector = {"selector": {"matchLabels": {"app": "web"}}}
                return web.json_response({"metadata": {"uid": "d-1"}, "spec": selector})
            case "replicasets":
                return web.json_response({"items": [item("r-1", "d-1"), item("r-2", "d-2")]})
            case "pods":
                items = [item("p-1", "r-1"), item("p-2", "r-2"), item("p-3", "r-1", status={}), item("p-4", "r-1")]
                return web.json_response({"items": items})
        entered.append(request.path)
        return None

    entered: list[str] = []
    world.answer = answer
    await of(world).end()
    assert [one.split("/")[-2] for one in entered] == ["name-p-1", "name-p-4"]
