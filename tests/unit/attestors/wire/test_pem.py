from __future__ import annotations

import base64
import contextlib

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import example, given
from hypothesis import strategies as st

from attestors.wire import certificate_request, pem
from attestors.wire.pem import Block, MalformedPEM
from tests.unit.attestors.support import PATIENT, PROVIDER_ID, machine_key_pair

MAXIMUM_BYTES = 4096
MAXIMUM_BLOCKS = 3

ONE = Block("CERTIFICATE REQUEST", bytes(range(100)))
TWO = Block("X TWO", b"two")

labels = st.from_regex(r"[A-Z0-9]{1,8}( [A-Z0-9]{1,8}){0,3}", fullmatch=True)
blocks = st.builds(Block, labels, st.binary(min_size=1, max_size=300))
# Pieces of PEM in any order: far more of these come near to being accepted than of arbitrary bytes.
pieces = st.sampled_from(
    [
        b"-----BEGIN A-----",
        b"-----END A-----",
        b"-----BEGIN B C-----",
        b"-----END B C-----",
        b"-----BEGIN A-----\r",
        b"-----END A----- ",
        b"Proc-Type: 4,ENCRYPTED",
        b"",
        b"YQ==",
        b"YR==",
        b"YWI=",
        b"YWJj",
        b"YWJjZA",
        b"A" * 64,
        b"A" * 65,
        b"A" * 63 + b"=",
        b"=",
        b"text",
    ]
)
near_misses = st.lists(pieces, max_size=9).map(b"\n".join)


def split(data: bytes) -> tuple[Block, ...]:
    return pem.split(data, maximum_bytes=MAXIMUM_BYTES, maximum_blocks=MAXIMUM_BLOCKS)


def rewritten(found: tuple[Block, ...]) -> bytes:
    return b"".join(pem.encode(block) for block in found)


@PATIENT
@given(st.lists(blocks, min_size=1, max_size=MAXIMUM_BLOCKS))
def test_reads_back_what_it_writes(written: list[Block]) -> None:
    assert split(rewritten(tuple(written))) == tuple(written)


@pytest.mark.parametrize("size", [1, 2, 3, 47, 48, 49, 95, 96, 97])
def test_reads_back_content_around_the_length_of_a_line(size: int) -> None:
    block = Block("X", bytes(size))
    assert split(pem.encode(block)) == (block,)


def test_writes_the_form_of_rfc_7468() -> None:
    encoded = base64.b64encode(ONE.content)
    assert pem.encode(ONE) == (
        b"-----BEGIN CERTIFICATE REQUEST-----\n"
        + encoded[:64]
        + b"\n"
        + encoded[64:128]
        + b"\n"
        + encoded[128:]
        + b"\n-----END CERTIFICATE REQUEST-----\n"
    )


def test_the_last_newline_may_be_missing() -> None:
    assert split(rewritten((ONE, TWO)).removesuffix(b"\n")) == (ONE, TWO)


@PATIENT
@given(st.binary(max_size=600) | near_misses)
@example(b"")
@example(b"\n")
@example(b"-----BEGIN A-----\nYQ==\n-----END A-----")
def test_any_bytes_are_refused_or_are_what_would_be_written(data: bytes) -> None:
    try:
        found = split(data)
    except MalformedPEM:
        return
    assert found
    assert rewritten(found) == data.removesuffix(b"\n") + b"\n"


@PATIENT
@given(st.data())
def test_a_changed_byte_is_refused_or_changes_a_block(data: st.DataObject) -> None:
    """No two texts mean the same blocks: nothing can hide in what a reader ignores."""
    text = rewritten((ONE, TWO))
    position = data.draw(st.integers(0, len(text) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda value: value != text[position]))
    changed = text[:position] + bytes([byte]) + text[position + 1 :]
    with contextlib.suppress(MalformedPEM):
        assert split(changed) != (ONE, TWO)


@PATIENT
@given(st.binary(max_size=600) | near_misses | st.lists(blocks, min_size=1, max_size=3).map(tuple).map(rewritten))
def test_the_first_block_is_that_of_all(data: bytes) -> None:
    try:
        found = split(data)
    except MalformedPEM:
        return
    assert pem.first(data, maximum_bytes=MAXIMUM_BYTES) == found[0]


@pytest.mark.parametrize(
    "behind", [b"", b"\n", b"text", b"-----BEGIN X", b"\n-----END CERTIFICATE REQUEST-----", b"\xff"]
)
def test_what_is_behind_the_first_block_is_not_read(behind: bytes) -> None:
    assert pem.first(pem.encode(ONE) + behind, maximum_bytes=MAXIMUM_BYTES) == ONE
    assert pem.first(pem.encode(ONE).removesuffix(b"\n"), maximum_bytes=MAXIMUM_BYTES) == ONE


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"text\n" + pem.encode(ONE),
        b"-----BEGIN X-----\n" + pem.encode(TWO),
        b"-----BEGIN X-----\nYQ==\n",
        b"-----BEGIN X-----\nYR==\n-----END X-----\n",
        b"-----END X-----\n",
        pem.encode(ONE).replace(b"-----\n", b"----- \n"),
        pem.encode(ONE) + bytes(MAXIMUM_BYTES),
    ],
    ids=["empty", "text before", "nested", "no end", "loose bits", "end first", "space behind", "too large"],
)
def test_a_first_block_that_is_none(text: bytes) -> None:
    with pytest.raises(MalformedPEM):
        pem.first(text, maximum_bytes=MAXIMUM_BYTES)


REQUEST_DER = certificate_request.build(machine_key_pair(), node_name="node-1", provider_id=PROVIDER_ID)
REQUEST = pem.encode(Block("CERTIFICATE REQUEST", REQUEST_DER))


def read_by_library(load: bytes, *, as_pem: bool) -> bytes | None:
    """What `cryptography` reads, in DER; None when it refuses."""
    try:
        request = x509.load_pem_x509_csr(load) if as_pem else x509.load_der_x509_csr(load)
    except ValueError:
        return None
    return request.public_bytes(Encoding.DER)


@PATIENT
@given(st.data())
def test_whatever_is_accepted_a_lenient_loader_reads_the_same_way(data: st.DataObject) -> None:
    """What the API server validated and what the controller judges are the same bytes."""
    before = data.draw(st.sampled_from([b"", b"\n", b"text\n", pem.encode(TWO), REQUEST]))
    behind = data.draw(st.sampled_from([b"", b"\n", b"text\n", pem.encode(TWO), REQUEST]))
    position = data.draw(st.integers(0, len(REQUEST)))
    inserted = data.draw(st.sampled_from([b"", b"\n", b" ", b"\r", b"=", b"A", b"-----END CERTIFICATE REQUEST-----\n"]))
    removed = data.draw(st.integers(0, 2))
    text = before + REQUEST[:position] + inserted + REQUEST[position + removed :] + behind
    try:
        first = split(text)[0]
    except MalformedPEM:
        return
    if first.label == "CERTIFICATE REQUEST":
        assert read_by_library(text, as_pem=True) == read_by_library(first.content, as_pem=False)


def test_a_lenient_loader_reads_an_accepted_request() -> None:
    """The differential test above is not empty."""
    assert split(REQUEST)[0].content == read_by_library(REQUEST, as_pem=True) == REQUEST_DER


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(b"", "empty", id="nothing"),
        pytest.param(b"\n", "line 1: expected -----BEGIN", id="one-newline"),
        pytest.param(b"no block", "line 1: expected -----BEGIN", id="no-block"),
        pytest.param(b"text\n" + pem.encode(TWO), "line 1: expected", id="text-before"),
        pytest.param(b"\n" + pem.encode(TWO), "line 1: expected", id="empty-line-before"),
        pytest.param(b"\xef\xbb\xbf" + pem.encode(TWO), "line 1: expected", id="byte-order-mark"),
        pytest.param(pem.encode(TWO) + b"\n" + pem.encode(TWO), "line 4: expected", id="empty-line-between"),
        pytest.param(pem.encode(TWO) + b"text\n" + pem.encode(TWO), "line 4: expected", id="text-between"),
        pytest.param(pem.encode(TWO) + b"\n", "line 4: expected", id="empty-line-behind"),
        pytest.param(pem.encode(TWO) + b"text", "line 4: expected", id="text-behind"),
        pytest.param(pem.encode(TWO) + b"\0", "line 4: expected", id="zero-byte-behind"),
        pytest.param(pem.encode(TWO).replace(b"\n", b"\r\n"), "line 1: expected", id="carriage-returns"),
        pytest.param(pem.encode(TWO).replace(b"-----\n", b"----- \n"), "line 1: expected", id="space-behind-a-line"),
        pytest.param(b"-----BEGIN X-----\nYQ==\n-----END Y-----\n", "no end line of its own", id="other-end"),
        pytest.param(b"-----BEGIN X-----\nYQ==\n", "no end line of its own", id="no-end"),
        pytest.param(b"-----END X-----\n", "line 1: expected", id="end-first"),
        pytest.param(b"-----BEGIN X-----\n" + pem.encode(TWO), "no end line of its own", id="nested-other"),
        pytest.param(b"-----BEGIN X TWO-----\n" + pem.encode(TWO), "line 2: not a line of base64", id="nested-same"),
        pytest.param(b"-----BEGIN -----\nYQ==\n-----END -----\n", "line 1: expected", id="no-label"),
        pytest.param(b"-----BEGIN x-----\nYQ==\n-----END x-----\n", "line 1: expected", id="lower-case-label"),
        pytest.param(b"-----BEGIN X  Y-----\nYQ==\n-----END X  Y-----\n", "line 1: expected", id="two-spaces"),
        pytest.param(b"-----BEGIN X-Y-----\nYQ==\n-----END X-Y-----\n", "line 1: expected", id="dash-in-label"),
        pytest.param(
            b"-----BEGIN " + b"X" * 65 + b"-----\nYQ==\n-----END " + b"X" * 65 + b"-----\n",
            "line 1: expected",
            id="long-label",
        ),
        pytest.param(b"-----BEGIN X-----\n-----END X-----\n", "the block is empty", id="no-content"),
        pytest.param(b"-----BEGIN X-----\n\n-----END X-----\n", "line 2: not a line of base64", id="empty-line-within"),
        pytest.param(
            b"-----BEGIN X-----\nProc-Type: 4,ENCRYPTED\n\nYQ==\n-----END X-----\n",
            "line 2: not a line of base64",
            id="headers",
        ),
        pytest.param(b"-----BEGIN X-----\n YQ==\n-----END X-----\n", "line 2: not a line of base64", id="indented"),
        pytest.param(b"-----BEGIN X-----\nYQ-_\n-----END X-----\n", "line 2: not a line of base64", id="url-alphabet"),
        pytest.param(b"-----BEGIN X-----\nY===\n-----END X-----\n", "line 2: not a line of base64", id="three-pads"),
        pytest.param(b"-----BEGIN X-----\nYWJjZ\n-----END X-----\n", "line 2: bad base64", id="one-left-over"),
        pytest.param(b"-----BEGIN X-----\nYQ\n-----END X-----\n", "line 2: bad base64", id="no-padding"),
        pytest.param(b"-----BEGIN X-----\nYR==\n-----END X-----\n", "line 2: base64 is not canonical", id="loose-bits"),
        pytest.param(
            b"-----BEGIN X-----\nYWJj\nYWJj\n-----END X-----\n", "line 2: every line but the last", id="short-line"
        ),
        pytest.param(
            b"-----BEGIN X-----\n" + b"A" * 68 + b"\n-----END X-----\n", "line 2: not a line of base64", id="long-line"
        ),
        pytest.param(
            b"-----BEGIN X-----\n" + b"A" * 64 + b"==\n-----END X-----\n", "line 2: not a line", id="pads-behind-line"
        ),
        pytest.param(
            b"-----BEGIN X-----\n" + b"A" * 62 + b"==\nYWJj\n-----END X-----\n",
            "line 2: every line but the last",
            id="padding-within",
        ),
        pytest.param(pem.encode(TWO) * 4, "line 10: more than 3 PEM blocks", id="too-many-blocks"),
        pytest.param(b"A" * (MAXIMUM_BYTES + 1), "larger than 4096 bytes", id="too-large"),
    ],
)
def test_refuses(text: bytes, message: str) -> None:
    with pytest.raises(MalformedPEM) as refusal:
        split(text)
    assert message in str(refusal.value)


def test_the_longest_label_is_read() -> None:
    block = Block("X" * 64, b"x")
    assert split(pem.encode(block)) == (block,)


def test_the_bounds_themselves_are_allowed() -> None:
    text = pem.encode(TWO) * MAXIMUM_BLOCKS
    assert len(pem.split(text, maximum_bytes=len(text), maximum_blocks=MAXIMUM_BLOCKS)) == MAXIMUM_BLOCKS
    with pytest.raises(MalformedPEM, match="larger than"):
        pem.split(text, maximum_bytes=len(text) - 1, maximum_blocks=MAXIMUM_BLOCKS)


def test_refusals_do_not_repeat_the_content() -> None:
    with pytest.raises(MalformedPEM) as refusal:
        split(b"-----BEGIN X-----\nsecret!\n-----END X-----\n")
    assert "secret" not in str(refusal.value)


FULL = b"A" * 64


def of_lines(*lines: bytes) -> bytes:
    return b"\n".join([b"-----BEGIN A-----", *lines, b"-----END A-----", b""])


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ((FULL, FULL, FULL + b"AAAA"), "line 4: not a line of base64"),
        ((FULL, FULL + b"AAAA"), "line 3: not a line of base64"),
        ((FULL, FULL[:60], FULL[:8]), "line 3: every line but the last holds 64 characters"),
        ((FULL[:60], FULL, FULL[:8]), "line 2: every line but the last holds 64 characters"),
        ((FULL, FULL, FULL[:60], FULL), "line 4: every line but the last holds 64 characters"),
        ((FULL, FULL, b"A?=="), "line 4: not a line of base64"),
        ((FULL, FULL[:62] + b"==", FULL[:8]), "line 3: every line but the last holds 64 characters"),
    ],
)
def test_among_full_lines(lines: tuple[bytes, ...], expected: str) -> None:
    """Where most lines are as they must be, the one that is not is found, and named."""
    with pytest.raises(MalformedPEM) as refused:
        split(of_lines(*lines))
    assert str(refused.value) == expected


def test_full_lines_to_the_end() -> None:
    assert split(of_lines(FULL, FULL)) == (Block("A", bytes(96)),)
    assert split(of_lines(FULL)) == (Block("A", bytes(48)),)


def test_the_first_of_exactly_as_many_bytes_as_may_be() -> None:
    data = of_lines(FULL)
    assert pem.first(data, maximum_bytes=len(data)) == Block("A", bytes(48))
    with pytest.raises(MalformedPEM, match=f"larger than {len(data) - 1} bytes"):
        pem.first(data, maximum_bytes=len(data) - 1)
