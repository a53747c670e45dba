from __future__ import annotations

import ssl

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from signer.gateway.person import MAXIMUM_NAME_CHARACTERS, InvalidPerson, Person, PersonAPI
from signer.gateway.websocket import WebSocketSession
from signer.kube.errors import AnswerTooLarge, Forbidden
from tests.unit.signer.kube.support import Authority, aiohttp_server, status_body


def test_a_creator_becomes_a_name_of_its_own() -> None:
    person = Person.of_creator("alice")
    assert person.username == "node-access:alice"
    assert person.groups == ("node-access:containers",)
    assert person.fields == (("Impersonate-User", "node-access:alice"), ("Impersonate-Group", "node-access:containers"))


@pytest.mark.parametrize(
    "creator",
    ["alice@example.org", "system:admin", "system:serviceaccount:ci:bot", "a b", "100%", "a,b", "oidc:Alice/Dev"],
)
def test_names_stay_as_they_are(creator: str) -> None:
    assert Person.of_creator(creator).fields[0] == ("Impersonate-User", f"node-access:{creator}")


@pytest.mark.parametrize(
    "creator",
    [
        "alice ",
        "alice\t",
        "alice\r\nImpersonate-Group: system:masters",
        "alice\nx",
        "alice\0",
        "alice\x1b[2J",
        "jürgen",
        "alice\u00a0",
        "\udcff",
        "x" * MAXIMUM_NAME_CHARACTERS,
    ],
)
def test_a_name_that_no_field_carries_is_refused(creator: str) -> None:
    with pytest.raises(InvalidPerson, match="printable ASCII"):
        Person.of_creator(creator)


def test_a_creator_has_a_name() -> None:
    with pytest.raises(InvalidPerson, match="no name"):
        Person.of_creator("")


@pytest.mark.parametrize("name", ["system:admin", "system:masters", "system:", "system:node:n1"])
def test_a_reserved_name_is_never_used(name: str) -> None:
    with pytest.raises(InvalidPerson, match="must not begin with system:"):
        Person(name, ("node-access:containers",))
    with pytest.raises(InvalidPerson, match="must not begin with system:"):
        Person("node-access:alice", (name,))


@pytest.mark.parametrize("groups", [(), ("g",) * 17, ("",), ("a\nb",)])
def test_groups_that_are_refused(groups: tuple[str, ...]) -> None:
    with pytest.raises(InvalidPerson):
        Person("node-access:alice", groups)


@given(st.text(max_size=32))
def test_a_creator_is_refused_or_carried_unchanged(creator: str) -> None:
    """Two creators never act as one person."""
    try:
        person = Person.of_creator(creator)
    except InvalidPerson:
        assert not creator or not creator.isascii() or not creator.isprintable() or creator != creator.strip()
        return
    ((name, value), _) = person.fields
    assert value.encode("ascii").strip(b" \t").decode() == f"node-access:{creator}"
    assert name == "Impersonate-User"


async def test_each_call_is_in_the_persons_name(
    authority: Authority, tls: ssl.SSLContext, session: WebSocketSession
) -> None:
    async def handler(request: web.Request) -> web.Response:
        assert request.headers.getall("Impersonate-User") == ["node-access:alice"]
        assert request.headers.getall("Impersonate-Group") == ["a", "b"]
        assert request.headers["User-Agent"] == "node-access-gateway"
        return web.json_response({"kind": "Pod"})

    person = Person("node-access:alice", ("a", "b"))
    async with (
        aiohttp_server(authority, handler, context=tls) as server,
        PersonAPI(server.connection, person, session) as api,
    ):
        assert await api.get("/api/v1/namespaces/default/pods/web-0") == {"kind": "Pod"}
        assert await api.get("/api/v1/namespaces/default/pods", {"labelSelector": "a=b"}) == {"kind": "Pod"}
    assert server.requests[1] == "GET /api/v1/namespaces/default/pods?labelSelector=a%3Db"


async def test_a_refusal_is_an_error(authority: Authority, tls: ssl.SSLContext, session: WebSocketSession) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.Response(body=status_body(403, "Forbidden", "no"), status=403, content_type="application/json")

    async with (
        aiohttp_server(authority, handler, context=tls) as server,
        PersonAPI(server.connection, Person.of_creator("alice"), session) as api,
    ):
        with pytest.raises(Forbidden):
            await api.get("/api/v1/namespaces/default/pods/web-0")


async def test_answers_are_bounded(authority: Authority, tls: ssl.SSLContext, session: WebSocketSession) -> None:
    async def handler(request: web.Request) -> web.Response:
        return web.json_response({"x": "x" * 5_000_000})

    async with (
        aiohttp_server(authority, handler, context=tls) as server,
        PersonAPI(server.connection, Person.of_creator("alice"), session) as api,
    ):
        with pytest.raises(AnswerTooLarge):
            await api.get("/api/v1/namespaces/default/pods")
