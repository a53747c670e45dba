"""The memory and time that a hostile API server's JSON costs."""

from __future__ import annotations

import sys
from typing import Any

import msgspec
import pytest

from signer.kube.answers import _TOKEN, VALUE_BYTES, _number, count_values, decoded, read_object
from signer.kube.errors import UnexpectedAnswer
from signer.kube.resource_limits import SMALL_BYTES, MemoryQuotaExceeded, ResourceLimits


def read(raw: bytes, resource_limits: ResourceLimits | None = None) -> dict[str, Any]:
    with (resource_limits or ResourceLimits()).memory_quota() as memory_quota:
        return decoded(raw, "no JSON object", memory_quota)


@pytest.mark.parametrize(
    ("text", "value"),
    [("0.1", 0.1), ("-2.5e-3", -0.0025), ("1e23", 1e23), ("4.9e-324", 5e-324), ("1e-400", 0.0), ("2", 2)],
)
def test_numbers_are_decoded_exactly(text: str, value: float) -> None:
    assert read(f'{{"a":[{text}]}}'.encode()) == {"a": [value]}


@pytest.mark.parametrize("text", ["1e400", "-1e400", "1.", ".5", "1e", "NaN", "Infinity", "1_0.0", "0x1p3"])
def test_malformed_numbers(text: str) -> None:
    with pytest.raises(UnexpectedAnswer, match="no JSON object"):
        read(f'{{"a":{text}}}'.encode())


def test_numbers_are_parsed_by_python() -> None:
    """Over some, such as 8.999999999999e-300, msgspec takes five to eight microseconds each: an answer of eight
    megabytes took two seconds of everybody's time.
    """
    seen: list[str] = []

    def noted(text: str) -> float:
        seen.append(text)
        return _number(text)

    reading: Any = read_object
    assert reading.__self__.float_hook is _number
    numbers = ["8.999999999999e-300", "2.22507385850720113605740979670913197593481954635164564e-308"]
    raw = f'{{"a":[{",".join(numbers)}]}}'.encode()
    msgspec.json.Decoder(dict[str, Any], float_hook=noted).decode(raw)
    assert seen == numbers  # msgspec passes them on unparsed


def test_strings_after_a_value_that_is_too_deep() -> None:
    """Two million of them took half a second with one step each."""
    assert len(list(_TOKEN.finditer(b'"",' * 1000))) <= 2
    with pytest.raises(UnexpectedAnswer):
        read(b'{"a":' + b"[" * 3000 + b'""' * 2000)


def test_decoded_data_counts_against_the_memory_quota() -> None:
    raw = b'{"a":[%b{}]}' % (b"{}," * 39_999)
    assert count_values(raw) == 80_001
    size = len(raw) + VALUE_BYTES * count_values(raw)
    resource_limits = ResourceLimits(large_bytes=size - SMALL_BYTES)
    with resource_limits.memory_quota() as memory_quota:
        decoded(raw, "no JSON object", memory_quota)
        assert resource_limits.bytes_left == 0
        with pytest.raises(MemoryQuotaExceeded):
            read(raw, resource_limits)
    assert resource_limits.bytes_left == size - SMALL_BYTES
    assert len(read(raw, resource_limits)["a"]) == 40_000


@pytest.mark.parametrize(
    ("text", "width"),
    [("x", 1), ("é", 2), ("\\u003c", 2), ("🦀", 4), ("\\ud83e\\udd80", 4), ("\\uD83E\\uDD80", 4)],
    ids=["ASCII", "two bytes", "escaped", "four bytes", "pair", "pair in capitals"],
)
def test_one_wide_character_widens_the_whole_text(text: str, width: int) -> None:
    raw = b'{"a":"%b%b"}' % (b"x" * SMALL_BYTES, text.encode())
    resource_limits = ResourceLimits()
    before = resource_limits.bytes_left
    with resource_limits.memory_quota() as memory_quota:
        value = decoded(raw, "no JSON object", memory_quota)["a"]
        assert before - resource_limits.bytes_left == width * len(raw) + VALUE_BYTES - SMALL_BYTES
        assert sys.getsizeof(value) <= width * len(raw) + 100
