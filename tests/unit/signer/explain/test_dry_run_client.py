"""The dry-run client behaves like an API server, and sends no write."""

from __future__ import annotations

import copy
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from signer.explain.dry_run_client import DryRunClient
from signer.kube.errors import AlreadyExists, Conflict, NotFound

COLLECTION = "/apis/g/v1/namespaces/n/things"
HELD: dict[str, Any] = {
    "kind": "Thing",
    "metadata": {"name": "held", "namespace": "n", "uid": "u", "resourceVersion": "1", "annotations": {"a": "b"}},
    "spec": {"x": 1, "y": {"z": 2}},
}


class Held:
    """A source with one object."""

    def __init__(self) -> None:
        self.stored = copy.deepcopy(HELD)

    async def get(self, path: str) -> dict[str, Any]:
        if path != f"{COLLECTION}/held":
            raise NotFound("no such thing", status=404)
        return self.stored

    async def list_pages(self, path: str, *arguments: Any, **named: Any) -> AsyncGenerator[dict[str, Any], None]:
        yield {"items": [self.stored], "path": path}


@pytest.fixture
def source() -> Held:
    return Held()


@pytest.fixture
def dry_run_client(source: Held) -> DryRunClient:
    return DryRunClient(source)


def thing(name: str) -> dict[str, Any]:
    return {"kind": "Thing", "metadata": {"name": name, "namespace": "n"}, "spec": {}}


async def test_a_created_object_can_be_read(dry_run_client: DryRunClient, source: Held) -> None:
    created = await dry_run_client.create(COLLECTION, thing("new"))
    assert created["metadata"]["uid"]
    assert await dry_run_client.get(f"{COLLECTION}/new") == created
    assert dry_run_client.intended == ("create Thing n/new",)
    with pytest.raises(NotFound):
        await source.get(f"{COLLECTION}/new")
    with pytest.raises(AlreadyExists):
        await dry_run_client.create(COLLECTION, thing("new"))
    with pytest.raises(AlreadyExists):
        await dry_run_client.create(COLLECTION, thing("held"))


async def test_a_patch_is_merged_and_checks_the_version(dry_run_client: DryRunClient, source: Held) -> None:
    path = f"{COLLECTION}/held"
    for stale in ({"resourceVersion": "0"}, {"uid": "other", "resourceVersion": "1"}):
        with pytest.raises(Conflict):
            await dry_run_client.patch(path, {"metadata": stale})
    patch = {"metadata": {"resourceVersion": "1", "annotations": {"a": None, "c": "d"}}, "spec": {"y": {"w": 3}}}
    changed = await dry_run_client.patch(path, patch)
    assert changed["metadata"]["annotations"] == {"c": "d"}
    assert changed["spec"] == {"x": 1, "y": {"z": 2, "w": 3}}
    assert changed["metadata"]["resourceVersion"] != "1"
    assert await dry_run_client.get(path) == changed
    assert source.stored == HELD
    with pytest.raises(Conflict):
        await dry_run_client.patch(path, patch)
    with pytest.raises(NotFound):
        await dry_run_client.patch(f"{COLLECTION}/nobody", {})


async def test_a_deleted_object_is_gone_and_can_be_created_again(dry_run_client: DryRunClient, source: Held) -> None:
    path = f"{COLLECTION}/held"
    with pytest.raises(Conflict):
        await dry_run_client.delete(path, uid="other")
    await dry_run_client.delete(path, uid="u", resource_version="1")
    with pytest.raises(NotFound):
        await dry_run_client.get(path)
    again = await dry_run_client.create(COLLECTION, thing("held"))
    assert again["metadata"]["uid"] != "u"
    assert dry_run_client.intended == ("delete Thing n/held", "create Thing n/held")
    assert source.stored == HELD


async def test_reads_return_copies(dry_run_client: DryRunClient) -> None:
    created = await dry_run_client.create(COLLECTION, thing("new"))
    created["spec"]["changed"] = True
    assert (await dry_run_client.get(f"{COLLECTION}/new"))["spec"] == {}


async def test_lists_come_from_the_source(dry_run_client: DryRunClient) -> None:
    await dry_run_client.create(COLLECTION, thing("new"))
    assert [page async for page in dry_run_client.list_pages(COLLECTION)] == [{"items": [HELD], "path": COLLECTION}]
    with pytest.raises(NotImplementedError):
        dry_run_client.watch(COLLECTION, timeout_seconds=1.0)


async def test_names_are_escaped(dry_run_client: DryRunClient) -> None:
    await dry_run_client.create(COLLECTION, {"kind": "Th\x1b[31m", "metadata": {"name": "new", "namespace": "n\n"}})
    assert dry_run_client.intended[0].isprintable()
