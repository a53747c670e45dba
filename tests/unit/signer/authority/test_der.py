from __future__ import annotations

from datetime import UTC, datetime

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from signer.authority import der


@given(st.lists(st.tuples(st.sampled_from([0x02, 0x04, 0x30, 0xA3]), st.binary(max_size=300)), max_size=5))
def test_reads_back_what_it_writes(parts: list[tuple[int, bytes]]) -> None:
    encoded = b"".join(der.encode(tag, content) for tag, content in parts)
    elements = der.read_elements(encoded)
    assert [(element.tag, element.content) for element in elements] == parts
    assert b"".join(element.encoded for element in elements) == encoded


@given(st.binary(max_size=40))
def test_accepts_one_encoding_only(data: bytes) -> None:
    try:
        elements = der.read_elements(data)
    except der.DerError:
        return
    assert b"".join(der.encode(element.tag, element.content) for element in elements) == data


@pytest.mark.parametrize(
    "data",
    [
        b"\x30",
        b"\x30\x01",
        b"\x30\x80\x00\x00",
        b"\x30\x81\x01\x00",
        b"\x30\x82\x00\x80" + bytes(128),
        b"\x30\x84\x00\x00\x00\x01\x00",
        b"\x30\x82\x01",
        b"\x1f\x01\x00",
    ],
    ids=["no-length", "cut", "indefinite", "long-for-short", "leading-zero", "four-octets", "cut-length", "high-tag"],
)
def test_refuses_what_is_not_der(data: bytes) -> None:
    with pytest.raises(der.DerError):
        der.read_elements(data)


@pytest.mark.parametrize("data", [b"", b"\x30\x00\x00\x00", b"\x30\x00\x00", b"\x31\x00"])
def test_single_element_has_no_company(data: bytes) -> None:
    with pytest.raises(der.DerError):
        der.read_single(data, der.Tag.SEQUENCE)


@given(st.integers(min_value=-(1 << 200), max_value=1 << 200))
def test_integer_is_minimal_twos_complement(value: int) -> None:
    content = der.read_single(der.integer(value), der.Tag.INTEGER).content
    assert int.from_bytes(content, "big", signed=True) == value
    assert len(content) == 1 or content[:1] not in (b"\x00", b"\xff") or (content[0] ^ content[1]) & 0x80


def test_long_lengths() -> None:
    assert der.octet_string(bytes(127))[:2] == b"\x04\x7f"
    assert der.octet_string(bytes(128))[:3] == b"\x04\x81\x80"
    assert der.octet_string(bytes(65536))[:5] == b"\x04\x83\x01\x00\x00"


@pytest.mark.parametrize("dotted", ["2.5.4.3", "1.2.840.113549.1.1.11", "2.999.1", "1.3.6.1.4.1.11129.2.1.21"])
def test_object_identifier_as_the_library_encodes_it(dotted: str) -> None:
    by_library = x509.ExtendedKeyUsage([x509.ObjectIdentifier(dotted)]).public_bytes()
    assert der.sequence(der.object_identifier(dotted)) == by_library


def test_time_changes_its_type_in_2050() -> None:
    assert der.time(datetime(2049, 12, 31, 23, 59, 59, tzinfo=UTC)) == b"\x17\x0d491231235959Z"
    assert der.time(datetime(2050, 1, 1, tzinfo=UTC)) == b"\x18\x0f20500101000000Z"
