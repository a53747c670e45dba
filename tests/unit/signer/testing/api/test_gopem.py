"""PEM as Go reads it: the first block that decodes counts, whatever stands before it."""

from __future__ import annotations

import base64

import pytest

from signer.testing.api.gopem import blocks, first_block

_TEXT = base64.b64encode(b"content").decode()


def _block(label: str, text: str = _TEXT) -> bytes:
    return f"-----BEGIN {label}-----\n{text}\n-----END {label}-----\n".encode()


def test_reads_label_content_and_rest() -> None:
    block = first_block(_block("A") + b"rest")
    assert block is not None
    assert (block.label, block.content, block.headers, block.rest) == (b"A", b"content", (), b"rest")


@pytest.mark.parametrize(
    "before",
    [
        b"garbage\n",
        _block("X", "!!!not base64!!!"),
        b"-----BEGIN X-----\n" + _TEXT.encode() + b"\n-----END Y-----\n",
        b"-----BEGIN X--\n",
    ],
)
def test_what_is_no_block_is_passed_over(before: bytes) -> None:
    block = first_block(before + _block("A"))
    assert block is not None
    assert block.label == b"A"


@pytest.mark.parametrize(
    "data", [b"", b"text", b"-----BEGIN A-----\n", b"x" + _block("A"), _block("A", "YQ"), _block("A", "YQ=")]
)
def test_nothing_is_found(data: bytes) -> None:
    assert first_block(data) is None


def test_headers_are_read() -> None:
    block = first_block(f"-----BEGIN A-----\nKey: value\n\n{_TEXT}\n-----END A-----\n".encode())
    assert block is not None
    assert block.headers == ((b"Key", b"value"),)
    assert block.content == b"content"


def test_blocks_in_order_and_an_empty_one() -> None:
    empty = b"-----BEGIN E-----\n-----END E-----\n"
    found = blocks(_block("A") + empty + b"between\n" + _block("B"))
    assert [(block.label, block.content) for block in found] == [(b"A", b"content"), (b"E", b""), (b"B", b"content")]
