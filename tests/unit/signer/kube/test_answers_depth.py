"""Deep JSON loses the deep value, never the rest of the response."""

from __future__ import annotations

import json
import ssl
from typing import Any

import msgspec
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from signer.kube.answers import MAXIMUM_DEPTH, limit_depth
from signer.kube.client import Client
from tests.unit.signer.kube.support import Authority, aiohttp_server

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=30,
)


def nested(depth: int, opening: bytes = b'{"a":', closing: bytes = b"}") -> bytes:
    return opening * depth + b"1" + closing * depth


@given(VALUES)
def test_shallow_values_are_unchanged(value: Any) -> None:
    raw = json.dumps(value).encode()
    assert limit_depth(raw) == raw


@given(st.binary(max_size=300))
def test_anything_ends(raw: bytes) -> None:
    limit_depth(raw)


@pytest.mark.parametrize("depth", [MAXIMUM_DEPTH + 1, 1_000, 10_000, 1_000_000])
@pytest.mark.parametrize(("opening", "closing"), [(b'{"a":', b"}"), (b"[", b"]")])
def test_deep_values_become_null(depth: int, opening: bytes, closing: bytes) -> None:
    raw = b'{"before":"]}{[","deep":' + nested(depth, opening, closing) + b',"after":"\\"}"}'
    decoded = msgspec.json.decode(limit_depth(raw))
    assert (decoded["before"], decoded["after"]) == ("]}{[", '"}')
    value, levels = decoded["deep"], 1
    while value is not None:
        value = value["a"] if isinstance(value, dict) else value[0]
        levels += 1
    assert levels == MAXIMUM_DEPTH


@pytest.mark.parametrize("raw", [b"[" * 100_000, b'{"a":' * 100_000 + b"1", b"]" * 1000, b"[" * 300 + b"]" * 200])
def test_invalid_json_stays_invalid(raw: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, RecursionError)):
        msgspec.json.decode(limit_depth(raw))


@pytest.mark.parametrize("end", [b"", b"\\", b"\\\\", b"]" * 1000], ids=["cut", "escape", "escaped", "closed"])
def test_an_unterminated_string_is_scanned_once(end: bytes) -> None:
    """If a scan began at each of its escaped quotes, a hostile API server's response would block the controller for
    hours.
    """
    raw = b"[" * 1000 + b'"' + b'\\"' * 1_000_000 + end
    with pytest.raises((msgspec.DecodeError, RecursionError)):
        msgspec.json.decode(limit_depth(raw))


async def test_one_deep_object_does_not_hide_the_others(authority: Authority, tls: ssl.SSLContext) -> None:
    deep = '{"metadata":{"name":"deep"},"spec":{"settings":' + nested(5_000).decode() + "}}"
    page = '{"metadata":{"resourceVersion":"1"},"items":[' + deep + ',{"metadata":{"name":"other"}}]}'

    async def answer(request: web.Request) -> web.Response:
        return web.Response(text=page, content_type="application/json")

    async with aiohttp_server(authority, answer, context=tls) as server, Client(server.connection) as client:
        pages = [page async for page in client.list_pages("/api/v1/secrets")]
    assert [item["metadata"]["name"] for item in pages[0]["items"]] == ["deep", "other"]
