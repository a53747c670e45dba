"""Adding a tools container at API servers of all kinds."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

import pytest

from signer.gateway import tools_starting
from signer.gateway.resolver import NotResolved, RunningContainer
from signer.gateway.tools_starting import tools_container
from signer.kube.client import JsonObject
from signer.kube.errors import ApiError, Conflict, Forbidden, Invalid, NotFound
from signer.model.tools_image import NoToolsImage
from tests.unit.signer.gateway.test_tools_container import GRANT, IMAGE, pod

TARGET: Final = RunningContainer("shop", "web-0", "p-1", "app", shares_host_network=False)
Answer = Callable[[JsonObject], JsonObject]


class Server:
    """An API server with one Pod."""

    def __init__(self, found: JsonObject | None = None, answer: Answer | ApiError | None = None) -> None:
        self.pod = pod() if found is None else found
        self.answer = answer
        self.patches: list[JsonObject] = []

    async def get(self, path: str, params: Any = None) -> JsonObject:
        del params
        assert path == "/api/v1/namespaces/shop/pods/web-0"
        return copy.deepcopy(self.pod)

    async def patch(self, path: str, patch: JsonObject, content_type: str) -> JsonObject:
        assert path == "/api/v1/namespaces/shop/pods/web-0/ephemeralcontainers"
        assert content_type == "application/strategic-merge-patch+json"
        assert patch["metadata"] == {"uid": "p-1"}
        self.patches.append(patch)
        if isinstance(self.answer, ApiError):
            raise self.answer
        (container,) = patch["spec"]["ephemeralContainers"]
        self.pod["spec"].setdefault("ephemeralContainers", []).append(container)
        statuses = self.pod["status"].setdefault("ephemeralContainerStatuses", [])
        statuses.append({"name": container["name"], "state": {"running": {}}})
        found = copy.deepcopy(self.pod)
        return self.answer(found) if self.answer is not None else found


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools_starting, "POLL_SECONDS", 0.001)
    monkeypatch.setattr(tools_starting, "START_SECONDS", 0.2)


async def refused(server: Server) -> str:
    with pytest.raises(NotResolved) as error:
        await tools_container(server, TARGET, GRANT, IMAGE)
    return error.value.message


async def test_it_is_added_once_and_then_used() -> None:
    server = Server()
    first = await tools_container(server, TARGET, GRANT, IMAGE)
    assert (first.pod, first.uid) == ("web-0", "p-1")
    assert first.container.startswith(f"node-access-{GRANT}-")
    assert await tools_container(server, TARGET, GRANT, IMAGE) == first
    assert len(server.patches) == 1


async def test_switched_off_nothing_is_asked() -> None:
    server = Server()
    with pytest.raises(NotResolved, match=r"access\.toolsImage"):
        await tools_container(server, TARGET, GRANT, NoToolsImage())
    assert not server.patches


async def test_another_pod_of_the_name_gets_none() -> None:
    server = Server()
    server.pod["metadata"]["uid"] = "p-2"
    assert "was replaced" in await refused(server)
    assert not server.patches


@pytest.mark.parametrize(
    "answer",
    [
        NotFound("the server could not find the requested resource", status=404),
        lambda _: {"kind": "EphemeralContainers", "ephemeralContainers": []},
        lambda _: {},
    ],
    ids=["switched off there", "alpha", "nothing"],
)
async def test_api_servers_before_1_25(answer: Answer | ApiError) -> None:
    """The alpha version, of 1.16 to 1.22, knows no Pod here."""
    server = Server(answer=answer)
    assert "Kubernetes 1.25 or newer" in await refused(server)
    assert len(server.patches) == 1


async def test_a_webhook_that_changes_it_is_refused() -> None:
    def change(found: JsonObject) -> JsonObject:
        found["spec"]["ephemeralContainers"][0]["securityContext"]["privileged"] = True
        return found

    assert "is not as the gateway makes it" in await refused(Server(answer=change))


@pytest.mark.parametrize(
    "error", [Forbidden("no \x1b[31m right", status=403), Invalid("violates PodSecurity", status=422)]
)
async def test_a_refusal_is_said(error: ApiError) -> None:
    message = await refused(Server(answer=error))
    assert "cannot add a tools container to pod web-0" in message
    assert "\x1b" not in message


async def test_conflicts_and_containers_that_never_run_end() -> None:
    """An API server can say so for ever."""
    assert "has not started yet" in await refused(Server(answer=Conflict("changed", status=409)))

    class Never(Server):
        async def get(self, path: str, params: Any = None) -> JsonObject:
            found = await super().get(path, params)
            found["status"].pop("ephemeralContainerStatuses", None)
            return found

    server = Never()
    assert "has not started yet" in await refused(server)
    assert len(server.patches) == 1
