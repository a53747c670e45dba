"""Sessions in containers whose image has neither a shell nor a server of SFTP."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import web

from signer.gateway.websocket import WebSocketSession
from signer.model.tools_image import ToolsImage
from tests.unit.signer.access.containers.world import until
from tests.unit.signer.gateway.ssh.world import World, gateway
from tests.unit.signer.gateway.support import SUCCESS, exit_status
from tests.unit.signer.kube.support import Authority

NO_PROGRAM: Final = (
    b"\x03"
    + json.dumps(
        {"status": "Failure", "message": 'exec: "sh": executable file not found in $PATH', "reason": "InternalError"}
    ).encode()
)


@pytest.fixture
def off(world: World) -> World:
    return bare(world)


@pytest.fixture
async def on(
    authority: Authority, tls: ssl.SSLContext, session: WebSocketSession, tmp_path: Path
) -> AsyncIterator[World]:
    async with gateway(authority, tls, session, tmp_path, tools=ToolsImage("tools:1")) as found:
        yield bare(found)


def bare(world: World) -> World:
    """The grant's container has no program but its own."""
    context = {"runAsUser": 65532, "runAsGroup": 65532}
    world.pod["spec"] = {"containers": [{"name": "app", "securityContext": context}]}

    async def script(websocket: web.WebSocketResponse, command: tuple[str, ...]) -> None:
        del command
        if world.containers[-1] == "app":
            await websocket.send_bytes(NO_PROGRAM)
            return
        await websocket.send_bytes(b"\x01with tools\n")
        await websocket.send_bytes(exit_status("3"))

    world.script = script
    return world


async def ask(world: World, key: Any, *command: str, **how: Any) -> Any:
    async with world.connect(key) as client:
        return await client.run(*command, **how)


async def begin_sftp(world: World) -> str:
    """A client that has sent its first message. Returns what it is told."""
    async with world.connect(world.grant()) as client:
        process = await client.create_process(subsystem="sftp", encoding=None)
        process.stdin.write(bytes.fromhex("000000050100000003"))
        return bytes(await process.stderr.read()).decode()


async def test_a_command_runs_in_a_tools_container(on: World) -> None:
    key = on.grant()
    async with on.connect(key) as client:
        for _ in range(2):
            done = await client.run("ls", input="input that the first attempt must not take")
            assert (done.exit_status, done.stdout) == (3, "with tools\n"), done.stderr
            assert "files of app are below /proc/1/root" in str(done.stderr)
    (container,) = on.pod["spec"]["ephemeralContainers"]
    assert on.grants[0]["metadata"]["uid"] in container["name"]
    ran = [one for one, where in zip(on.commands, on.containers, strict=True) if where == container["name"]]
    assert ran[0][-2:] == ("ls", "/proc/1/root")

    def signalled() -> set[str]:
        return {where for one, where in zip(on.commands, on.containers, strict=True) if "KILL" in one}

    await until(lambda: signalled() == {"app", container["name"]})


async def test_switched_off_the_remedy_is_said(off: World) -> None:
    done = await ask(off, off.grant(), "ls")
    assert done.exit_status == 255
    assert "the image has no shell" in done.stderr
    assert "access.toolsImage" in done.stderr
    assert "ephemeralContainers" not in off.pod["spec"]


async def test_sftp_says_the_remedy_and_uses_a_tools_container(off: World, on: World) -> None:
    refused = await begin_sftp(off)
    assert "the image has no SFTP server" in refused
    assert "access.toolsImage" in refused
    assert "ephemeralContainers" not in off.pod["spec"]
    assert "files of app are below /proc/1/root" in await begin_sftp(on)
    assert len(on.pod["spec"]["ephemeralContainers"]) == 1


async def test_a_forced_command_was_not_written_for_another_image(on: World) -> None:
    done = await ask(on, on.grant(permissions={"command": "backup"}), "ls")
    assert "the image has no shell" in done.stderr
    assert "ephemeralContainers" not in on.pod["spec"]


async def test_an_image_with_a_shell_gets_no_container(on: World) -> None:
    async def succeed(websocket: web.WebSocketResponse, command: tuple[str, ...]) -> None:
        del command
        await websocket.send_bytes(SUCCESS)

    on.script = succeed
    assert (await ask(on, on.grant(), "ls")).exit_status == 0
    assert "ephemeralContainers" not in on.pod["spec"]


async def test_a_connection_looks_for_a_shell_once(on: World) -> None:
    """Each look is a command in the container. Another connection looks for itself."""

    async def script(websocket: web.WebSocketResponse, command: tuple[str, ...]) -> None:
        del command
        await websocket.send_bytes(SUCCESS)

    on.script = script
    key, probe = on.grant(), ("sh", "-c", ":")
    for looks in (1, 2):
        async with on.connect(key) as client:
            for _ in range(2):
                assert (await client.run("true")).exit_status == 0
        assert on.commands.count(probe) == looks
