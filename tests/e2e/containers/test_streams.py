"""The gateway's streams into real containers, through kube-apiserver and the kubelet, in a person's name."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator, Iterator
from typing import Any, Final

import pytest

from signer.gateway.person import CONTAINERS_GROUP, Person, PersonAPI
from signer.gateway.streams import (
    CommandResult,
    EndOfInputUnsupported,
    ExecStream,
    Exited,
    Failed,
    Output,
    PodName,
    PortForwardFailed,
    StandardStream,
    StreamEnded,
    exec_stream,
    port_stream,
)
from signer.gateway.websocket import WebSocketSession
from signer.kube.client import Client
from signer.kube.connection import ClusterConnection
from signer.kube.errors import Forbidden, Invalid, NotFound
from tests.support.containers.cluster import ContainerCluster
from tests.support.containers.images import APPLICATION_USER, GREETING, PAGE, WEB_PORT
from tests.support.containers.pods import distroless_container, pod_manifest, shell_container

pytestmark = [pytest.mark.real, pytest.mark.slow]

GATEWAY: Final = "node-access-gateway"
SHELL: Final = PodName("default", "streams")
DISTROLESS: Final = PodName("default", "streams-distroless")
MEGABYTES: Final = 20
_RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"


def role(name: str, *rules: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name}, "rules": list(rules)}


def binding(name: str, kind: str, subject: str) -> dict[str, Any]:
    group = "rbac.authorization.k8s.io"
    return {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": group, "kind": kind, "name": subject}],
    }


@pytest.fixture(scope="module")
def connection(container_cluster: ContainerCluster) -> Iterator[ClusterConnection]:
    """A credential that may only impersonate, rights of the group, and two Pods."""
    impersonate = {"apiGroups": [""], "verbs": ["impersonate"]}
    pods = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}
    streams = {"apiGroups": [""], "resources": ["pods/exec", "pods/portforward"], "verbs": ["get", "create"]}
    users, group = {"resources": ["users"]}, {"resources": ["groups"], "resourceNames": [CONTAINERS_GROUP]}
    made = {
        "clusterroles": (
            role("streams-gateway", impersonate | users, impersonate | group),
            role("streams-containers", pods, streams),
        ),
        "clusterrolebindings": (
            binding("streams-gateway", "User", GATEWAY),
            binding("streams-containers", "Group", CONTAINERS_GROUP),
        ),
    }
    administrator = container_cluster.administrator
    for kind, objects in made.items():
        for one in objects:
            administrator.post(f"{_RBAC}/{kind}", one).expect(201)
    container_cluster.create(pod_manifest(SHELL.name, [shell_container()]))
    container_cluster.create(pod_manifest(DISTROLESS.name, [distroless_container()]))
    yield container_cluster.plane.connection(GATEWAY, ())
    for kind, objects in made.items():  # the gateway's tests count on their own
        for one in objects:
            administrator.delete(f"{_RBAC}/{kind}/{one['metadata']['name']}").expect(200)


@pytest.fixture
async def session() -> AsyncIterator[WebSocketSession]:
    async with WebSocketSession() as opened:
        yield opened


@pytest.fixture
async def api(connection: ClusterConnection, session: WebSocketSession) -> AsyncIterator[PersonAPI]:
    async with PersonAPI(connection, Person.of_creator("alice"), session) as opened:
        yield opened


async def all_of(stream: ExecStream) -> tuple[bytes, bytes, CommandResult]:
    """Standard output, standard error and result; closes the stream."""
    outputs = {StandardStream.STDOUT: bytearray(), StandardStream.STDERR: bytearray()}
    results: list[CommandResult] = []
    async with asyncio.timeout(60):
        async for item in stream:
            if isinstance(item, Output):
                outputs[item.stream] += item.data
            else:
                results.append(item)
    await stream.close()
    (result,) = results
    return bytes(outputs[StandardStream.STDOUT]), bytes(outputs[StandardStream.STDERR]), result


async def run(api: PersonAPI, *command: str, tty: bool = False) -> tuple[bytes, bytes, CommandResult]:
    return await all_of(await exec_stream(api, SHELL, "app", command, tty=tty, stdin=False))


async def test_a_command_and_its_exit_code(api: PersonAPI) -> None:
    out, err, result = await run(api, "sh", "-c", "id -u; echo 'a  b'\"$0\"; echo fault >&2; exit 3", "ä;&%\n")
    assert out == f"{APPLICATION_USER}\na  bä;&%\n\n".encode()
    assert (err, result) == (b"fault\n", Exited(3))
    assert await run(api, "true") == (b"", b"", Exited(0))


async def test_a_signal_is_an_exit_code(api: PersonAPI) -> None:
    assert await run(api, "sh", "-c", "kill -9 $$") == (b"", b"", Exited(137))


async def test_a_program_that_is_not_there_is_no_exit_code(api: PersonAPI) -> None:
    _, _, result = await run(api, "nosuch")
    assert isinstance(result, Failed)
    assert "nosuch" in result.message
    stream = await exec_stream(api, DISTROLESS, "server", ["sh"], tty=False)
    _, _, result = await all_of(stream)
    assert isinstance(result, Failed)


async def test_input_ends_where_the_api_server_can_say_so(api: PersonAPI, container_cluster: ContainerCluster) -> None:
    """From Kubernetes 1.30 on; before that the stream says that it cannot."""
    stream = await exec_stream(api, SHELL, "app", ["cat"], tty=False)
    await stream.send(b"hello\n")
    assert await anext(stream) == Output(StandardStream.STDOUT, b"hello\n")
    if container_cluster.can_end_input:
        await stream.send(b"bye\n")
        await stream.end_input()
        assert await all_of(stream) == (b"bye\n", b"", Exited(0))
        return
    with pytest.raises(EndOfInputUnsupported):
        await stream.end_input()
    await stream.close()
    (result,) = [item async for item in stream]
    assert isinstance(result, Failed)


async def test_the_end_of_input_follows_all_of_it(api: PersonAPI, container_cluster: ContainerCluster) -> None:
    if not container_cluster.can_end_input:
        pytest.skip("version 5 of the protocol: kube-apiserver 1.30 or newer")
    data = secrets.token_bytes(4 * 1024 * 1024)
    stream = await exec_stream(api, SHELL, "app", ["sha256sum"], tty=False)
    await stream.send(data)
    await stream.end_input()
    out, _, result = await all_of(stream)
    assert (out.split()[0].decode(), result) == (hashlib.sha256(data).hexdigest(), Exited(0))


async def test_megabytes_in_both_directions(api: PersonAPI) -> None:
    total = MEGABYTES * 1024 * 1024
    piece = secrets.token_bytes(64 * 1024)
    sent, received, size = hashlib.sha256(), hashlib.sha256(), 0
    stream = await exec_stream(api, SHELL, "app", ["head", "-c", str(total)], tty=False)

    async def upload() -> None:
        for number in range(total // len(piece)):
            data = number.to_bytes(8) + piece[8:]
            sent.update(data)
            await stream.send(data)

    async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
        tasks.create_task(upload())
        async for item in stream:
            if isinstance(item, Output):
                received.update(item.data)
                size += len(item.data)
            else:
                assert item == Exited(0)
    await stream.close()
    assert size == total
    assert received.digest() == sent.digest()


async def test_output_is_not_read_ahead_of_the_caller(api: PersonAPI) -> None:
    """The container fills what is between, and no memory of ours."""
    stream = await exec_stream(api, SHELL, "app", ["sh", "-c", "yes | tee /tmp/written"], tty=False, stdin=False)
    await anext(stream)
    written = -1
    while written != (written := int((await run(api, "sh", "-c", "wc -c < /tmp/written"))[0])):  # noqa: ASYNC110
        await asyncio.sleep(1)
    assert 0 < written < 128 * 1024 * 1024
    await stream.close()


async def test_more_input_than_a_command_reads(api: PersonAPI) -> None:
    """With more than a pipe holds, containerd 1.6 itself never ends the stream; kubectl waits for ever, too."""
    stream = await exec_stream(api, SHELL, "app", ["sh", "-c", "head -c 5; exit 4"], tty=False)
    await stream.send(bytes(32 * 1024))
    assert await all_of(stream) == (bytes(5), b"", Exited(4))
    with pytest.raises(StreamEnded):
        await stream.send(b"x")


async def shown_until(stream: ExecStream, text: bytes) -> bytes:
    """What a terminal shows up to ``text``."""
    shown = b""
    async with asyncio.timeout(60):
        while text not in shown:
            item = await anext(stream)
            assert isinstance(item, Output), (item, shown)
            assert item.stream is StandardStream.STDOUT
            shown += item.data
    return shown


async def test_a_terminal_and_its_size(api: PersonAPI) -> None:
    """Sizes and input are channels of their own, so the kubelet may take them in another order."""
    sized = 'until [ "$(stty size)" = "43 132" ]; do sleep 1; done; tty; echo fault >&2; read said; exit $said'
    stream = await exec_stream(api, SHELL, "app", ["sh", "-c", sized], tty=True)
    await stream.resize(132, 43)
    assert b"/dev/pts/" in await shown_until(stream, b"fault\r\n")
    await stream.send(b"6\n")
    assert (await all_of(stream))[1:] == (b"", Exited(6))


async def test_a_size_that_changes(api: PersonAPI) -> None:
    changes = "trap 'stty size' WINCH; echo ready; while :; do sleep 1; done"
    stream = await exec_stream(api, SHELL, "app", ["sh", "-c", changes], tty=True)
    await shown_until(stream, b"ready")
    await stream.resize(44, 111)
    await shown_until(stream, b"111 44\r\n")
    await stream.send(b"\x03")
    assert isinstance((await all_of(stream))[2], Exited)


async def test_a_port_of_the_pod(api: PersonAPI) -> None:
    stream = await port_stream(api, SHELL, WEB_PORT)
    await stream.write(b"GET / HTTP/1.0\r\n\r\n")
    answer = bytearray()
    while data := await stream.read():
        answer += data
    await stream.close()
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(PAGE)


async def test_megabytes_through_a_port(api: PersonAPI) -> None:
    total = 4 * 1024 * 1024
    piece = secrets.token_bytes(64 * 1024)
    stream = await port_stream(api, DISTROLESS, WEB_PORT)

    async def upload() -> None:
        for _ in range(total // len(piece)):
            await stream.write(piece)

    received = bytearray()
    async with asyncio.timeout(120), asyncio.TaskGroup() as tasks:
        tasks.create_task(upload())
        while len(received) < len(GREETING) + total:
            received += await stream.read()
    await stream.close()
    assert received == GREETING + piece * (total // len(piece))


async def test_a_port_on_which_nothing_listens(api: PersonAPI) -> None:
    stream = await port_stream(api, SHELL, 9)
    with pytest.raises(PortForwardFailed, match="9"):
        await stream.read()
    await stream.close()


# What is refused


async def test_containers_and_pods_that_are_not_there(api: PersonAPI) -> None:
    with pytest.raises(Invalid, match="container nosuch is not valid for pod streams"):
        await exec_stream(api, SHELL, "nosuch", ["true"], tty=False)
    with pytest.raises(NotFound, match='pods "nosuch" not found'):
        await exec_stream(api, PodName("default", "nosuch"), "app", ["true"], tty=False)
    with pytest.raises(NotFound, match='pods "nosuch" not found'):
        await port_stream(api, PodName("default", "nosuch"), WEB_PORT)


async def test_a_person_has_the_groups_rights_only(connection: ClusterConnection, session: WebSocketSession) -> None:
    async with PersonAPI(connection, Person.of_creator("alice"), session) as api:
        assert (await api.get("/api/v1/namespaces/default/pods/streams"))["kind"] == "Pod"
        with pytest.raises(Forbidden, match='User "node-access:alice" cannot list resource "secrets"'):
            await api.get("/api/v1/namespaces/default/secrets")
    async with PersonAPI(connection, Person("node-access:alice", ("administrators",)), session) as api:
        with pytest.raises(Forbidden, match='cannot impersonate resource "groups"'):
            await exec_stream(api, SHELL, "app", ["true"], tty=False)
    async with Client(connection) as gateway:
        with pytest.raises(Forbidden, match='User "node-access-gateway" cannot get resource "pods"'):
            await gateway.get("/api/v1/namespaces/default/pods/streams")


NAMES: Final = ["alice@example.org", "a  b", "100%41", "a,b", 'a"b\\', "system:serviceaccount:ci:bot", "~!#$&'()*;=<>"]


@pytest.fixture(scope="module")
def readers(container_cluster: ContainerCluster) -> None:
    """Each of these names, and no other, may list Nodes."""
    administrator = container_cluster.administrator
    nodes = role("readers", {"apiGroups": [""], "resources": ["nodes"], "verbs": ["list"]})
    administrator.post(f"{_RBAC}/clusterroles", nodes).expect(201)
    bound = binding("readers", "User", "")
    subjects = [{**bound["subjects"][0], "name": f"node-access:{creator}"} for creator in NAMES]
    administrator.post(f"{_RBAC}/clusterrolebindings", {**bound, "subjects": subjects}).expect(201)


@pytest.mark.usefixtures("readers")
@pytest.mark.parametrize("creator", NAMES)
async def test_the_api_server_takes_names_as_they_are(
    connection: ClusterConnection, session: WebSocketSession, creator: str
) -> None:
    async with PersonAPI(connection, Person.of_creator(creator), session) as api:
        assert (await api.get("/api/v1/nodes"))["kind"] == "NodeList"
    async with PersonAPI(connection, Person.of_creator(f"{creator}x"), session) as api:
        with pytest.raises(Forbidden):
            await api.get("/api/v1/nodes")


@pytest.mark.usefixtures("readers")
async def test_the_api_server_drops_spaces_at_the_ends(connection: ClusterConnection) -> None:
    """So a name that ends with one would act as another person; ``Person`` refuses it."""
    fields = (("Impersonate-User", "node-access:a  b "), ("Impersonate-Group", CONTAINERS_GROUP))
    async with Client(connection, fields=fields) as client:
        assert (await client.get("/api/v1/nodes"))["kind"] == "NodeList"
