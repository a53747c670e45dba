"""Sizes are read to the letter, in every way of reading, and what is none never has more read than was asked for."""

from __future__ import annotations

import http.client
import io
import socket
from collections.abc import Callable
from typing import Final, cast

import pytest

from attestors.net.http_response import MalformedSize, StrictResponse

MAXIMUM: Final = 1000
READERS: Final[dict[str, Callable[[StrictResponse], bytes]]] = {
    "read": lambda response: response.read(MAXIMUM),
    "read1": lambda response: response.read1(MAXIMUM),
    "readline": lambda response: response.readline(MAXIMUM),
}
"""What is used of the response somewhere in this repository."""


class Received:
    """Stands in for a socket: what came over it."""

    def __init__(self, data: bytes) -> None:
        self.stream = io.BytesIO(data)

    def makefile(self, mode: str) -> io.BufferedReader:
        """As of a socket."""
        assert mode == "rb"
        return io.BufferedReader(cast("io.RawIOBase", self.stream), 512)


def response_of(received: Received) -> StrictResponse:
    response = StrictResponse(cast("socket.socket", received))
    response.begin()
    return response


def chunked(line: bytes, data: bytes = b"12345\r\n0\r\n\r\n") -> Received:
    return Received(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + line + data)


def sized(*lengths: bytes) -> Received:
    fields = b"".join(b"Content-Length: " + length + b"\r\n" for length in lengths)
    return Received(b"HTTP/1.1 200 OK\r\n" + fields + b"\r\n12345 and more")


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("line", [b"5\r\n", b"05\r\n", b"0000000000000005\r\n", b"5\n", b"5;a=b\r\n", b"5 ; a\r\n"])
def test_a_chunk_is_read(reader: str, line: bytes) -> None:
    assert READERS[reader](response_of(chunked(line))) == b"12345"


@pytest.mark.parametrize("line", [b"a\r\n", b"A\r\n"])
def test_sizes_are_hexadecimal(line: bytes) -> None:
    assert response_of(chunked(line, b"1234567890\r\n0\r\n\r\n")).read() == b"1234567890"


@pytest.mark.parametrize("reader", READERS)
def test_a_chunk_may_be_larger_than_what_is_read_of_it(reader: str) -> None:
    assert len(READERS[reader](response_of(chunked(b"7fffffff\r\n", b"x" * 100_000)))) < 2 * MAXIMUM


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize(
    "line",
    [
        b"-1\r\n",
        b"-5\r\n",
        b"-0\r\n",
        b"+5\r\n",
        b"0x5\r\n",
        b"1_0\r\n",
        b" 5\r\n",
        b"5 \r\n",
        b"5\r\r\n",
        b"5\x0b\r\n",
        b"\r\n",
        b"",
        b"5",
        b"g\r\n",
        b"80000000\r\n",
        b"f" * 16 + b"\r\n",
        b"0" * 16 + b"5\r\n",
        b"5;" + b"a" * 5000 + b"\r\n",
    ],
    ids=repr,
)
def test_what_is_no_size_of_a_chunk_ends_the_answer(reader: str, line: bytes) -> None:
    received = chunked(line, b"" if line in (b"", b"5") else b"x" * 1_000_000)
    response = response_of(received)
    with pytest.raises(MalformedSize, match="chunk size"):
        READERS[reader](response)
    assert received.stream.tell() < 10_000


def test_callers_know_it_as_an_error_of_http() -> None:
    assert issubclass(MalformedSize, http.client.HTTPException)


@pytest.mark.parametrize("length", [b"5", b" 5\t", b"0000000000000000005"], ids=repr)
def test_a_length_is_read(length: bytes) -> None:
    assert response_of(sized(length)).read(MAXIMUM) == b"12345"


@pytest.mark.parametrize(
    "lengths",
    [[b"-1"], [b"+5"], [b"1_0"], [b"0x5"], [b"5.0"], [b"5, 5"], [b""], [b"5 5"], [b"0" * 19 + b"5"], [b"5", b"-1"]],
    ids=repr,
)
def test_what_is_no_length_ends_the_answer(lengths: list[bytes]) -> None:
    with pytest.raises(MalformedSize, match="Content-Length"):
        response_of(sized(*lengths))
