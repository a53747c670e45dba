"""HTTP as an API server speaks it to the controller, which may be a hostile one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from signer.kube.http.messages import ResponseHead, ResponseParser
from tests.fuzz.target import Target, require


class _Malformed(ValueError):
    """What the connection would be closed for."""


def _read(pieces: Iterable[bytes]) -> tuple[ResponseHead | None, bool, bytes]:
    """Head, whether it is complete, and the body."""
    parser = ResponseParser()
    for piece in pieces:
        parser.feed(piece)
    require(parser.complete or not parser.reusable, "a connection is used again within an answer")
    body = parser.take()
    require(parser.held == 0, "more is held than was there to take")
    if parser.malformed:
        require(not parser.complete and not body, "something is taken of what is malformed")
        raise _Malformed("malformed")
    if parser.head is not None:
        require(200 <= parser.head.status <= 999, "an informational answer is taken for the answer")
        length = parser.head.content_length
        require(length is None or len(body) <= length, "the body is longer than it says")
    return parser.head, parser.complete, body


def _answer(data: bytes) -> tuple[ResponseHead | None, bool, bytes]:
    try:
        parts = _read(data[i : i + 1] for i in range(len(data)))
    except _Malformed:
        parts = None
    try:
        whole = _read([data])
    except _Malformed:
        require(parts is None, "malformed in one piece only")
        raise
    require(parts == whole, "cut into pieces it is another")
    return whole


TARGETS: Final = (Target("http-answer", _answer, (_Malformed,)),)
