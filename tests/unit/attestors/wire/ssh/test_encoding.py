"""RFC 4251's types: one encoding of each value."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestors.wire.ssh.encoding import Reader, from_base64, mpint, string, strings, to_base64, uint32, uint64
from attestors.wire.ssh.errors import SSHReason, SSHRefused


@pytest.mark.parametrize(
    ("number", "encoded"),
    [
        (0, "00000000"),
        (0x9A378F9B2E332A7, "0000000809a378f9b2e332a7"),
        (0x80, "000000020080"),
        (0x7F, "000000017f"),
    ],
)
def test_the_numbers_of_the_rfc(number: int, encoded: str) -> None:
    """RFC 4251 section 5."""
    assert mpint(number) == bytes.fromhex(encoded)


@given(st.integers(0, 2**600))
def test_a_number_reads_back(number: int) -> None:
    reader = Reader(mpint(number))
    assert reader.mpint("n", maximum_bits=601) == number
    reader.end("the number")


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**64 - 1), st.lists(st.binary(max_size=40)))
def test_fields_read_back(small: int, large: int, texts: list[bytes]) -> None:
    reader = Reader(uint32(small) + uint64(large) + strings(texts))
    assert (reader.uint32("a"), reader.uint64("b")) == (small, large)
    assert [reader.string("c", maximum=40) for _ in texts] == texts
    assert reader.is_at_end


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"\x80", SSHReason.MALFORMED),
        (b"\x00\x01", SSHReason.NOT_CANONICAL),
        (b"\x00", SSHReason.NOT_CANONICAL),
        (b"\x01\x00\x00", SSHReason.TOO_LARGE),
        (b"\x01\xff", SSHReason.TOO_LARGE),
    ],
    ids=["negative", "leading zero", "zero with a byte", "more bytes", "more bits"],
)
def test_other_numbers_are_refused(content: bytes, reason: SSHReason) -> None:
    with pytest.raises(SSHRefused) as refused:
        Reader(string(content)).mpint("n", maximum_bits=8)
    assert refused.value.reason is reason


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x00\x00", SSHReason.MALFORMED),
        (uint32(5) + b"four", SSHReason.MALFORMED),
        (uint32(9) + b"123456789", SSHReason.TOO_LARGE),
        (uint32(2**32 - 1), SSHReason.TOO_LARGE),
    ],
    ids=["length cut off", "content cut off", "too long", "far too long"],
)
def test_other_strings_are_refused(data: bytes, reason: SSHReason) -> None:
    with pytest.raises(SSHRefused) as refused:
        Reader(data).string("s", maximum=8)
    assert refused.value.reason is reason


@pytest.mark.parametrize("content", [b"a\0b", b"\xff"], ids=["NUL", "not UTF-8"])
def test_other_texts_are_refused(content: bytes) -> None:
    with pytest.raises(SSHRefused, match="Malformed"):
        Reader(string(content)).text("t", maximum=8)


def test_bytes_that_follow_are_refused() -> None:
    with pytest.raises(SSHRefused) as refused:
        Reader(b"x").end("it")
    assert refused.value.reason is SSHReason.TRAILING_BYTES


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("YQ", SSHReason.MALFORMED),
        ("YQ==\n", SSHReason.MALFORMED),
        ("Y-==", SSHReason.MALFORMED),
        ("YÄ==", SSHReason.MALFORMED),
        ("YR==", SSHReason.NOT_CANONICAL),
        ("YQ==YQ==", SSHReason.NOT_CANONICAL),
    ],
    ids=["no padding", "line end", "URL alphabet", "not ASCII", "unused bits", "padding inside"],
)
def test_base64_has_one_form(text: str, reason: SSHReason) -> None:
    with pytest.raises(SSHRefused) as refused:
        from_base64(text, "it")
    assert refused.value.reason in (reason, SSHReason.MALFORMED)


@given(st.binary(max_size=60))
def test_base64_reads_back(data: bytes) -> None:
    assert from_base64(to_base64(data), "it") == data
