"""The lenient reader of tag, length and value, on its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from attestors.tpm.endorsement import der
from attestors.tpm.endorsement.der import Malformed, read_first
from signer.authority.der import encode

UTC_TIME = encode(der.UTC_TIME, b"200101000000Z")


def test_an_element_and_what_it_was() -> None:
    for data, content in (
        (b"\x04\x00", b""),
        (b"\x04\x01a", b"a"),
        (b"\x04\x81\x00", b""),
        (b"\x04\x81\x01a", b"a"),
        (b"\x04\x84\x00\x00\x00\x01a", b"a"),
        (b"\x04\x7f" + b"a" * 127, b"a" * 127),
        (b"\x04\x81\x80" + b"a" * 128, b"a" * 128),
    ):
        for behind in (b"", b"behind"):
            element = read_first(data + behind)
            assert (element.tag, element.content, element.encoded) == (4, content, data)
            assert der.read_all(data + data) == (element, element)
            assert der.only(data, 4) == element


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "truncated"),
        (b"\x04", "truncated"),
        (b"\x04\x01", "truncated"),
        (b"\x04\x81", "truncated"),
        (b"\x04\x82\x01", "truncated"),
        (b"\x04\x82\x00", "truncated"),
        (b"\x04\x84\x00", "truncated"),
        (b"\x04\x84\xff\xff\xff\xff", "truncated"),
        (b"\x04\x80\x00\x00", "indefinite"),
        (b"\x04\x85\x00\x00\x00\x00\x00", "indefinite or excessive"),
        (b"\x1f\x01\x00", "several octets"),
    ],
)
def test_what_is_no_element(data: bytes, words: str) -> None:
    with pytest.raises(Malformed, match=words):
        read_first(data)
    with pytest.raises(Malformed, match=words):
        der.only(data, der.OCTET_STRING)
    if data:
        with pytest.raises(Malformed, match=words):
            der.read_all(b"\x04\x00" + data)


READERS: tuple[tuple[Callable[[der.Element], Any], int], ...] = (
    (der.boolean, der.BOOLEAN),
    (der.integer, der.INTEGER),
    (der.bit_string, der.BIT_STRING),
    (der.octets_of_bit_string, der.BIT_STRING),
    (der.octet_string, der.OCTET_STRING),
    (der.object_identifier, der.OBJECT_IDENTIFIER),
    (lambda element: der.children(element, der.SEQUENCE), der.SEQUENCE),
    (lambda element: der.only(element.encoded, der.SET), der.SET),
)


@pytest.mark.parametrize(("reader", "tag"), READERS)
def test_every_reader_wants_its_own_type(reader: Callable[[der.Element], Any], tag: int) -> None:
    content = b"\x00" if tag not in (der.SEQUENCE, der.SET) else b""
    reader(read_first(encode(tag, content)))
    for other in {der.BOOLEAN, der.INTEGER, der.BIT_STRING, der.OCTET_STRING, der.SET, 0x30, 0x06, 0x80, 0xA0} - {tag}:
        with pytest.raises(Malformed, match=f"type {other:#04x} where {tag:#04x} is expected"):
            reader(read_first(encode(other, content)))


@pytest.mark.parametrize(
    ("content", "value"),
    [(b"\x00", 0), (b"\xff", -1), (b"\x00\x80", 128), (b"\x00\x00\x01", 1), (b"\x01" + b"\x00" * 1024, 1 << 8192)],
)
def test_integers(content: bytes, value: int) -> None:
    assert der.integer(read_first(encode(der.INTEGER, content))) == value


@pytest.mark.parametrize("content", [b"", b"\x00" * 1026])
def test_other_integers(content: bytes) -> None:
    with pytest.raises(Malformed, match="empty or too large"):
        der.integer(read_first(encode(der.INTEGER, content)))


@pytest.mark.parametrize(
    ("content", "dotted"),
    [
        (b"\x00", "0.0"),
        (b"\x27", "0.39"),
        (b"\x28", "1.0"),
        (b"\x4f", "1.39"),
        (b"\x50", "2.0"),
        (b"\x55\x1d\x13", "2.5.29.19"),
        (b"\x67\x81\x05\x08\x01", "2.23.133.8.1"),
        (b"\x88\x37\x01", "2.999.1"),
        (b"\x2a" * 64, ".".join(["1.2", *["42"] * 63])),
    ],
)
def test_object_identifiers(content: bytes, dotted: str) -> None:
    assert der.object_identifier(read_first(encode(der.OBJECT_IDENTIFIER, content))) == dotted


@pytest.mark.parametrize("content", [b"", b"\x80", b"\x2a\x81", b"\x2a" * 65])
def test_other_object_identifiers(content: bytes) -> None:
    with pytest.raises(Malformed, match="OBJECT IDENTIFIER"):
        der.object_identifier(read_first(encode(der.OBJECT_IDENTIFIER, content)))


def test_bit_strings() -> None:
    assert der.bit_string(read_first(b"\x03\x01\x00")) == (b"", 0)
    assert der.bit_string(read_first(b"\x03\x02\x07\x80")) == (b"\x80", 7)
    for malformed in (b"\x03\x00", b"\x03\x01\x01", b"\x03\x02\x08\x00"):
        with pytest.raises(Malformed, match="BIT STRING"):
            der.bit_string(read_first(malformed))


@pytest.mark.parametrize(
    ("element", "words"),
    [
        (encode(der.OCTET_STRING, b"200101000000Z"), "unknown type"),
        (encode(der.UTC_TIME, b"200101000000"), "not in UTC"),
        (encode(der.UTC_TIME, b"2001010000001"), "not in UTC"),
        (encode(der.UTC_TIME, b"20010100000Z"), "malformed date"),
        (encode(der.UTC_TIME, b"201301000000Z"), "not in the calendar"),
        (encode(der.UTC_TIME, b"200101000061Z"), "not in the calendar"),
    ],
)
def test_other_dates(element: bytes, words: str) -> None:
    assert der.time(read_first(UTC_TIME)).year == 2020
    with pytest.raises(Malformed, match=words):
        der.time(read_first(element))
