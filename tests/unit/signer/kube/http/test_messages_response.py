"""The response parser: any fragmentation, and any bytes of a hostile server."""

from __future__ import annotations

import gc
import itertools
import weakref
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signer.kube.http.messages import (
    MAXIMUM_FIELDS,
    MAXIMUM_HEAD_BYTES,
    MAXIMUM_OVERHEAD_BYTES,
    ResponseHead,
    ResponseParser,
)

OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
ONE = b"Content-Length: 1\r\n\r\na"


@dataclass(frozen=True)
class Outcome:
    malformed: bool
    complete: bool
    reusable: bool
    head: ResponseHead | None
    body: bytes


def outcome(*pieces: bytes) -> Outcome:
    parser = ResponseParser()
    for piece in pieces:
        parser.feed(piece)
    return Outcome(parser.malformed, parser.complete, parser.reusable, parser.head, parser.take())


def byte_by_byte(data: bytes) -> list[bytes]:
    return [data[i : i + 1] for i in range(len(data))]


GOOD = {
    "length": (OK + b"Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}", 200, b"{}", True),
    "no body": (OK + b"Content-Length: 0\r\n\r\n", 200, b"", True),
    "no reason": (b"HTTP/1.1 200\r\n" + ONE, 200, b"a", True),
    "chunks": (OK + CHUNKED + b"1\r\n{\r\n0001\r\n}\r\n0\r\n\r\n", 200, b"{}", True),
    "chunk extension": (OK + CHUNKED + b'1;a=b;c="d"\r\na\r\n0;e\r\n\r\n', 200, b"a", True),
    "trailers": (OK + CHUNKED + b"1\r\na\r\n0\r\nContent-Type: x\r\nRetry-After: 9\r\n\r\n", 200, b"a", True),
    "informational": (b"HTTP/1.1 100 Continue\r\nRetry-After: 9\r\n\r\n" + OK + ONE, 200, b"a", True),
    "early hints": (b"HTTP/1.1 103 X\r\n\r\n" * 3 + b"HTTP/1.1 409 Conflict\r\n" + ONE, 409, b"a", True),
    "not modified": (b"HTTP/1.1 304 X\r\nContent-Length: 9\r\n\r\n", 304, b"", True),
    "not modified, without a length": (b"HTTP/1.1 304 X\r\n\r\n", 304, b"", True),
    "no content": (b"HTTP/1.1 204 X\r\n\r\n", 204, b"", True),
    "informational, the last": (b"HTTP/1.1 199 X\r\nRetry-After: 9\r\n\r\n" + OK + ONE, 200, b"a", True),
    "chunks in capitals": (OK + b"Transfer-Encoding: Chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", 200, b"a", True),
    "closing": (OK + b"Connection: close\r\n" + ONE, 200, b"a", False),
    "older": (b"HTTP/1.0 200 OK\r\n" + ONE, 200, b"a", False),
    "older, kept alive": (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n" + ONE, 200, b"a", True),
    "upgrade unasked": (OK + b"Connection: upgrade\r\nUpgrade: h2c\r\n" + ONE, 200, b"a", True),
}
good = pytest.mark.parametrize(("response", "status", "body", "reusable"), GOOD.values(), ids=GOOD)


@good
def test_a_response(response: bytes, status: int, body: bytes, reusable: bool) -> None:
    read = outcome(response)
    assert (read.malformed, read.complete, read.reusable, read.body) == (False, True, reusable, body)
    assert read.head is not None
    assert (read.head.status, read.head.retry_after, read.head.ends_with_connection) == (status, None, False)


@given(st.sampled_from(sorted(GOOD)), st.lists(st.integers(0, 200)))
def test_any_fragmentation_parses_the_same(name: str, cuts: list[int]) -> None:
    response = GOOD[name][0]
    places = sorted({0, *(cut % len(response) for cut in cuts), len(response)})
    pieces = [response[start:end] for start, end in itertools.pairwise(places)]
    assert outcome(*pieces) == outcome(response) == outcome(*byte_by_byte(response))


@good
def test_a_prefix_is_no_complete_response(response: bytes, status: int, body: bytes, reusable: bool) -> None:
    for length in range(len(response)):
        read = outcome(response[:length])
        assert not read.malformed
        assert not read.complete
        assert not read.reusable


def test_used_header_fields() -> None:
    fields = (
        b"content-TYPE: application/json\r\nContent-Encoding:\tgzip \r\nRetry-After: 7\r\nX-Other: 1\r\n"
        b"Content-Length: 0012\r\n\r\n"
    )
    assert outcome(OK + fields).head == ResponseHead(200, "application/json", "gzip", 12, "7")
    assert outcome(OK + b"Content-Type: XX\r\n" + ONE).head == ResponseHead(200, "XX", content_length=1)


def test_missing_fields_are_empty() -> None:
    head = outcome(OK + ONE).head
    assert head is not None
    said = (head.content_type, head.content_encoding, head.content_length, head.retry_after, head.ends_with_connection)
    assert said == ("", "", 1, None, False)


def test_a_repeated_field_is_a_list() -> None:
    read = outcome(OK + b"Content-Type: application/json\r\nContent-Type: text/html\r\n" + ONE)
    assert read.head == ResponseHead(200, "application/json, text/html", content_length=1)


MALFORMED = {
    "another protocol": b"220 smtp.example ESMTP\r\n\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "version 0.9": b"HTTP/0.9 200 OK\r\n" + ONE,
    "version 2.0": b"HTTP/2.0 200 OK\r\n" + ONE,
    "status of two digits": b"HTTP/1.1 99 X\r\n" + ONE,
    "status of four digits": b"HTTP/1.1 1000 X\r\n" + ONE,
    "status 099": b"HTTP/1.1 099 X\r\n" + ONE,
    "status 000": b"HTTP/1.1 000 X\r\n" + ONE,
    "switching protocols": b"HTTP/1.1 101 X\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
    "switching to nothing": b"HTTP/1.1 101 X\r\n\r\n",
    "bare line feeds": b"HTTP/1.1 200 OK\nContent-Length: 1\n\na",
    "folded field": OK + b"X: a\r\n b\r\n" + ONE,
    "NUL": OK + b"X: a\0b\r\n" + ONE,
    "space before the colon": OK + b"Content-Length : 1\r\n\r\na",
    "field without a name": OK + b": x\r\n" + ONE,
    "length twice": OK + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\na",
    "lengths that differ": OK + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "list of lengths": OK + b"Content-Length: 1, 1\r\n\r\na",
    "length below zero": OK + b"Content-Length: -1\r\n\r\n",
    "length with a sign": OK + b"Content-Length: +1\r\n\r\na",
    "length of nothing": OK + b"Content-Length: \r\n\r\n",
    "length beyond 64 bits": OK + b"Content-Length: 18446744073709551616\r\n\r\n",
    "length of many digits": OK + b"Content-Length: " + b"0" * 5000 + b"1\r\n\r\na",
    "length and chunks": OK + b"Content-Length: 5\r\n" + CHUNKED + b"0\r\n\r\n",
    "chunks and length": OK + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    "coding gzip": OK + b"Transfer-Encoding: gzip\r\n\r\nab",
    "coding gzip, chunked": OK + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "coding chunked, gzip": OK + b"Transfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n",
    "coding twice": OK + b"Transfer-Encoding: chunked\r\n" + CHUNKED + b"0\r\n\r\n",
    "coding like chunked": OK + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunk of no size": OK + CHUNKED + b"zz\r\na\r\n0\r\n\r\n",
    "chunk beyond 64 bits": OK + CHUNKED + b"10000000000000000\r\n",
    "chunk without an end": OK + CHUNKED + b"1\r\nab\r\n0\r\n\r\n",
    "too many fields": OK + b"X: y\r\n" * MAXIMUM_FIELDS + ONE,
    "too large a head": OK + (b"X: " + b"y" * 1020 + b"\r\n") * (MAXIMUM_HEAD_BYTES // 1024) + ONE,
    "too large a field": OK + b"X: " + b"y" * MAXIMUM_HEAD_BYTES + b"\r\n" + ONE,
}


@pytest.mark.parametrize("response", MALFORMED.values(), ids=MALFORMED)
def test_malformed_responses(response: bytes) -> None:
    for pieces in ([response], byte_by_byte(response)):
        read = outcome(*pieces)
        assert read.malformed
        assert not read.complete
        assert not read.reusable
        assert read.body == b""


@pytest.mark.parametrize(("fields", "length"), [(100, 1), (2, 16 * 1024 - 24)], ids=["fields", "bytes"])
def test_a_head_is_bounded_to_the_byte(fields: int, length: int) -> None:
    """100 fields, or 16 KiB of names and values with four bytes around each; of these 24 are not the value's."""
    head = OK + b"X: y\r\n" * (fields - 2)
    value = b"y" * length
    assert outcome(head + b"X: " + value + b"\r\n" + ONE).body == b"a"
    one_more = b"Y: \r\n" if fields == 100 else b""
    assert outcome(head + b"X: " + value + b"y\r\n" + one_more + ONE).malformed


def test_overhead_is_bounded_to_the_byte() -> None:
    begun = OK + b"X: "
    parser = ResponseParser()
    parser.feed(begun + b"y" * (32 * 1024 - len(begun)))
    assert not parser.malformed
    parser.feed(b"y")
    assert parser.malformed


ENDLESS = {
    "reason": (b"HTTP/1.1 200 ", b"x"),
    "field name": (OK, b"x"),
    "field value": (OK + b"X: ", b"x"),
    "fields": (OK, b"X: y\r\n"),
    "informational answers": (b"", b"HTTP/1.1 100 X\r\n\r\n"),
    "empty lines": (b"", b"\r\n"),
    "chunk extension": (OK + CHUNKED, b"1;" + b"x"),
    "extensions": (OK + CHUNKED + b"1;", b"x;"),
    "zeros of a chunk's size": (OK + CHUNKED, b"0"),
    "trailer": (OK + CHUNKED + b"0\r\nX: ", b"x"),
    "trailers": (OK + CHUNKED + b"0\r\n", b"X: y\r\n"),
    "extensions of each byte": (OK + CHUNKED, b"1;" + b"x" * 100 + b"\r\na\r\n"),
}


@pytest.mark.parametrize(("begin", "again"), ENDLESS.values(), ids=ENDLESS)
def test_an_endless_response_is_cut_off(begin: bytes, again: bytes) -> None:
    parser = ResponseParser()
    parser.feed(begin)
    fed = 0
    while not parser.malformed:
        parser.feed(again * 10)
        parser.take()
        fed += 10 * len(again)
        assert fed < 2 * MAXIMUM_OVERHEAD_BYTES
    assert not parser.reusable


def test_a_body_in_the_smallest_chunks_may_be_long() -> None:
    parser = ResponseParser()
    parser.feed(OK + CHUNKED)
    for piece in byte_by_byte(b"1\r\na\r\n" * 20_000):
        parser.feed(piece)
    assert (parser.malformed, parser.held) == (False, 20_000)


def test_a_truncated_response_never_completes() -> None:
    parser = ResponseParser()
    parser.feed(OK + CHUNKED + b"1;" + b"x" * (40 * 1024))
    assert parser.malformed
    parser.feed(b"\r\na\r\n0\r\n\r\n")
    assert (parser.malformed, parser.complete, parser.reusable, parser.held) == (True, False, False, 0)


def test_overhead_is_forgiven_in_proportion_to_the_body() -> None:
    parser = ResponseParser()
    parser.feed(OK + CHUNKED + b"ffff\r\n" + b"a" * 0xFFFF + b"\r\n")
    parser.feed(b"1;" + b"x" * (32 * 1024 - 2))
    assert not parser.malformed
    parser.feed(b"x")
    assert parser.malformed


@pytest.mark.parametrize(("chunk", "bounded"), [(b"1;xx\r\na\r\n", False), (b"1;xxx\r\na\r\n", True)], ids=["8", "9"])
def test_each_byte_of_a_body_allows_eight_of_overhead(chunk: bytes, bounded: bool) -> None:
    parser = ResponseParser()
    parser.feed(OK + CHUNKED)
    for _ in range(40):
        parser.feed(chunk * 1000)
        parser.take()
    assert parser.malformed is bounded


@pytest.mark.parametrize("status", [200, 203, 205, 303, 305, 500])
def test_every_other_response_states_its_length(status: int) -> None:
    head = outcome(b"HTTP/1.1 %d X\r\n\r\n" % status).head
    assert head == ResponseHead(status, ends_with_connection=True)


def test_a_response_that_ends_with_the_connection_is_not_read() -> None:
    parser = ResponseParser()
    parser.feed(OK + b"Content-Type: application/json\r\n\r\n{}")
    parser.feed(b"{}" * 1000)
    assert parser.head == ResponseHead(200, "application/json", ends_with_connection=True)
    assert (parser.held, parser.complete, parser.reusable) == (0, False, False)


@pytest.mark.parametrize(
    "behind", [b"x", OK + ONE, b"HTTP/1.1 204 X\r\n\r\n"], ids=["garbage", "answer", "empty answer"]
)
@pytest.mark.parametrize(
    "response", [OK + ONE, OK + CHUNKED + b"1\r\na\r\n0\r\n\r\n", OK + b"Connection: close\r\n" + ONE]
)
def test_bytes_after_a_response_are_never_the_next(response: bytes, behind: bytes) -> None:
    for pieces in ([response + behind], [response, behind], byte_by_byte(response + behind)):
        read = outcome(*pieces)
        assert (read.complete, read.malformed, read.body) == (True, False, b"a")
        assert not read.reusable


def test_a_body_after_a_response_without_one() -> None:
    read = outcome(b"HTTP/1.1 304 X\r\nContent-Length: 3\r\n\r\nabc")
    assert (read.complete, read.reusable, read.body) == (True, False, b"")


@given(st.binary(max_size=200), st.sampled_from(sorted(GOOD)), st.integers(0, 100), st.integers(0, 100))
def test_mutated_responses_parse_the_same_in_any_fragmentation(put: bytes, name: str, at: int, over: int) -> None:
    response = GOOD[name][0]
    changed = response[:at] + put + response[at + over :]
    whole, parts = outcome(changed), outcome(*byte_by_byte(changed))
    assert (whole.malformed, whole.complete, whole.head, whole.body) == (
        parts.malformed,
        parts.complete,
        parts.head,
        parts.body,
    )


def test_a_part_of_the_buffer_is_taken() -> None:
    parser = ResponseParser()
    parser.feed(OK + CHUNKED + b"3\r\nabc\r\n3\r\ndef\r\n")
    assert parser.held == 6
    assert [parser.take(4), parser.held, parser.take(4), parser.held, parser.take(4)] == [b"abcd", 2, b"ef", 0, b""]


@pytest.mark.parametrize("response", [OK + ONE, b"garbage", OK + CHUNKED + b"ffff\r\n" + b"x" * 1000])
def test_no_reference_cycle_keeps_data(response: bytes) -> None:
    class Observed(ResponseParser):
        """Takes weak references, which one with slots alone does not."""

    gc.disable()
    try:
        parser = Observed()
        parser.feed(response)
        parser.close()
        gone = weakref.ref(parser)
        del parser
        assert gone() is None
    finally:
        gc.enable()
