"""ConfigMaps and Secrets of the Cluster's own namespace, by names that a tenant writes."""

from __future__ import annotations

from typing import Any

import pytest

from attestors.contract import Document, DocumentKind
from signer.decision.lookups import MAXIMUM_DOCUMENT_BYTES, ConfinedLookups
from signer.kube.coalescing_cache import FRESH_SECONDS
from signer.kube.errors import Forbidden, ServerError
from tests.unit.signer.builders import CLUSTER
from tests.unit.signer.decision.lookups_fixtures import (
    CONFIG_MAP,
    HIDDEN,
    MACHINE,
    SECRET,
    World,
    cause,
    encoded,
)


@pytest.fixture
def world() -> World:
    return World()


async def test_a_config_map(world: World) -> None:
    assert await world.document() == Document({"m1": "sha256:ab", "m2": "sha256:cd"}, "7")
    assert world.asked == [CONFIG_MAP]


async def test_a_secret(world: World) -> None:
    assert await world.document(DocumentKind.SECRET) == Document({"m1": "sha256:ab"}, "8")
    assert world.asked == [SECRET]


async def test_nothing_of_it_is_shown(world: World) -> None:
    world.objects[SECRET]["data"]["m1"] = encoded(HIDDEN.encode())
    found = await world.document(DocumentKind.SECRET)
    assert found.texts == {"m1": HIDDEN}
    view = ConfinedLookups(world.lookups, CLUSTER, MACHINE)
    for shown in (found, world.lookups, view, world.lookups._documents._kept):
        assert HIDDEN not in repr(shown)
    with pytest.raises(TypeError):
        found.texts["m1"] = "changed"


async def test_what_is_no_text_is_left_out(world: World) -> None:
    world.objects[SECRET]["data"] |= {
        "binary": encoded(b"\xff\xfe"),
        "broken": "=",
        "padding": "YQ",
        "list": [],
        "": "",
    }
    assert (await world.document(DocumentKind.SECRET)).texts == {"m1": "sha256:ab", "": ""}
    world.objects[CONFIG_MAP] |= {"binaryData": {"b": "YQ=="}}
    world.objects[CONFIG_MAP]["data"] |= {"number": 1}
    assert set((await world.document()).texts) == {"m1", "m2"}


@pytest.mark.parametrize("data", [None, [], "text"])
async def test_a_document_without_data(world: World, data: Any) -> None:
    world.objects[CONFIG_MAP]["data"] = data
    assert await world.document() == Document({}, "7")


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        "a/b",
        "../x",
        "A",
        "a_b",
        "-a",
        "a-",
        "a..b",
        "a.-b",
        "a%2fb",
        "a\n",
        "a b",
        "é",
        "a" * 254,
        "x?y=z",
    ],
)
@pytest.mark.parametrize("kind", list(DocumentKind))
async def test_what_is_no_name_is_not_asked_for(world: World, kind: DocumentKind, name: str) -> None:
    """A tenant writes it, and it becomes part of a path."""
    assert cause(await world.document(kind, name)) == f"what is to be looked up is no name that a {kind.value} can have"
    assert world.asked == []


@pytest.mark.parametrize("name", ["a", "0", "a.b", "a-b.c-d", "a" * 253])
async def test_names(world: World, name: str) -> None:
    assert cause(await world.document(name=name)) == f"ConfigMap team-a/{name} does not exist"
    assert world.asked == [f"/api/v1/namespaces/team-a/configmaps/{name}"]


async def test_a_document_that_is_not_there(world: World) -> None:
    del world.objects[SECRET]
    assert cause(await world.document(DocumentKind.SECRET)) == "Secret team-a/inventory does not exist"


@pytest.mark.parametrize(("kind", "path"), [(DocumentKind.CONFIG_MAP, CONFIG_MAP), (DocumentKind.SECRET, SECRET)])
async def test_no_grant_for_a_document(world: World, kind: DocumentKind, path: str) -> None:
    world.failures[path] = Forbidden(HIDDEN, status=403)
    plural = path.split("/")[-2]
    assert cause(await world.document(kind)) == (
        f"{kind.value} team-a/inventory may not be read: the grant to get {plural} in team-a is missing"
    )


async def test_a_fault_of_the_server_makes_it_wait(world: World) -> None:
    world.failures[CONFIG_MAP] = ServerError("away", status=503)
    with pytest.raises(ServerError):
        await world.document()


@pytest.mark.parametrize(
    ("kind", "path", "largest"),
    [
        (DocumentKind.CONFIG_MAP, CONFIG_MAP, "é" * (MAXIMUM_DOCUMENT_BYTES // 2 - 1)),
        (DocumentKind.SECRET, SECRET, encoded(b"x" * (MAXIMUM_DOCUMENT_BYTES // 4 * 3 // 3 * 3))),
    ],
)
async def test_a_document_that_is_too_large(world: World, kind: DocumentKind, path: str, largest: str) -> None:
    world.objects[path]["data"] = {"k": largest}
    assert isinstance(await world.document(kind), Document)
    world.clock.pass_by(FRESH_SECONDS + 0.1)
    world.objects[path]["data"] = {"k": largest * 2}
    assert cause(await world.document(kind)) == f"{kind.value} team-a/inventory is larger than a {kind.value} can be"


async def test_kinds_and_namespaces_are_kept_apart(world: World) -> None:
    config_map, secret = await world.document(), await world.document(DocumentKind.SECRET)
    assert config_map.resource_version != secret.resource_version
    assert "team-b/inventory" in cause(await world.lookups.document("team-b", DocumentKind.CONFIG_MAP, "inventory"))


async def test_a_flood_costs_one_document(world: World) -> None:
    for _ in range(100):
        await world.document()
    assert world.asked == [CONFIG_MAP]
    assert world.lookups._documents._kept_bytes == len("m1sha256:abm2sha256:cd")
    world.objects[CONFIG_MAP]["metadata"]["resourceVersion"] = "9"
    world.clock.pass_by(FRESH_SECONDS + 0.1)
    assert (await world.document()).resource_version == "9"
