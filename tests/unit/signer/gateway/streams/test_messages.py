from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signer.gateway.streams.messages import (
    MAXIMUM_DATA_BYTES,
    Empty,
    Output,
    PortData,
    PortError,
    PortParser,
    ProtocolViolation,
    StandardStream,
    StatusMessage,
    input_messages,
    parse_exec_message,
    port_messages,
    resize_message,
)


def test_messages_of_a_command() -> None:
    assert parse_exec_message(b"\x01out") == Output(StandardStream.STDOUT, b"out")
    assert parse_exec_message(b"\x02err") == Output(StandardStream.STDERR, b"err")
    assert parse_exec_message(b"\x03{}") == StatusMessage(b"{}")
    assert [parse_exec_message(bytes((channel,))) for channel in (1, 2, 3)] == [Empty()] * 3


@pytest.mark.parametrize("message", [b"", b"\x00x", b"\x04x", b"\x05x", b"\xff\x01", b"1x"])
def test_a_server_sends_on_three_channels_only(message: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        parse_exec_message(message)


@given(st.binary(max_size=64))
def test_no_byte_is_lost_or_invented(message: bytes) -> None:
    try:
        parsed = parse_exec_message(message)
    except ProtocolViolation:
        assert message[:1] not in (b"\x01", b"\x02", b"\x03")
        return
    match parsed:
        case Output(stream, data):
            assert bytes((stream.value,)) + data == message
        case StatusMessage(document):
            assert b"\x03" + document == message
        case Empty():
            assert len(message) == 1


@given(st.binary(max_size=3 * MAXIMUM_DATA_BYTES))
def test_what_is_sent_arrives_whole_and_in_order(data: bytes) -> None:
    for messages in (list(input_messages(data)), list(port_messages(data))):
        assert b"".join(message[1:] for message in messages) == data
        assert all(message[0] == 0 and 1 < len(message) <= MAXIMUM_DATA_BYTES + 1 for message in messages)


@given(st.integers(), st.integers())
def test_sizes_fit_their_fields(width: int, height: int) -> None:
    message = resize_message(width, height)
    assert message[0] == 4
    size = json.loads(message[1:])
    assert set(size) == {"Width", "Height"}
    assert all(0 <= value <= 65535 for value in size.values())
    if 0 <= width <= 65535:
        assert size["Width"] == width


def test_messages_of_a_port() -> None:
    parser = PortParser(8080)
    assert parser.parse(b"\x00\x90\x1f") == Empty()
    assert parser.parse(b"\x00hello") == PortData(b"hello")
    assert parser.parse(b"\x00") == Empty()
    assert parser.parse(b"\x01\x90\x1f") == Empty()
    assert parser.parse(b"\x01no\x1b[2Jthing") == PortError(r"no\x1b[2Jthing")
    assert parser.parse(b"\x00\x90\x1f") == PortData(b"\x90\x1f")


@pytest.mark.parametrize(
    "first", [b"\x00", b"\x00\x1f\x90", b"\x00\x90\x1fx", b"\x00\x90", b"\x01error", b"\x01\x50\x00"]
)
def test_another_port_than_asked_is_refused(first: bytes) -> None:
    with pytest.raises(ProtocolViolation, match="another port"):
        PortParser(8080).parse(first)


@pytest.mark.parametrize("message", [b"", b"\x02\x90\x1f", b"\x03x", b"\xff\x00"])
def test_a_port_has_two_channels(message: bytes) -> None:
    with pytest.raises(ProtocolViolation):
        PortParser(8080).parse(message)


@given(st.integers(min_value=1, max_value=65535), st.lists(st.binary(max_size=16), max_size=8))
def test_a_port_passes_on_its_data_only(port: int, pieces: list[bytes]) -> None:
    parser, number = PortParser(port), port.to_bytes(2, "little")
    parsed = [parser.parse(b"\x00" + piece) for piece in (number, *pieces)]
    assert b"".join(message.data for message in parsed if isinstance(message, PortData)) == b"".join(pieces)


@given(st.binary(max_size=4096))
def test_an_error_is_short_and_printable(text: bytes) -> None:
    parser = PortParser(1)
    parser.parse(b"\x01\x01\x00")
    parsed = parser.parse(b"\x01" + text)
    if isinstance(parsed, PortError):
        assert parsed.message.isascii()
        assert parsed.message.isprintable()
        assert len(parsed.message) <= 1024
