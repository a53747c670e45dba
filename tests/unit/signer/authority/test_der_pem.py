from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signer.authority.der import PemError, PemHeadersError, encode_block, read_blocks

ONE = encode_block("CERTIFICATE", b"one" * 40)
TWO = encode_block("X TWO", b"two")


def read(text: bytes) -> list[tuple[str, bytes]]:
    return [(block.label, block.content) for block in read_blocks(text, maximum_bytes=4096, maximum_blocks=3)]


@given(st.binary(min_size=1, max_size=400))
def test_reads_back_what_it_writes(content: bytes) -> None:
    assert read(encode_block("CERTIFICATE", content)) == [("CERTIFICATE", content)]


@pytest.mark.parametrize(
    "text",
    [
        ONE + TWO,
        ONE.rstrip() + b"\n" + TWO.rstrip(),
        (ONE + TWO).replace(b"\n", b"\r\n"),
        b"Certificate:\n    Data: \xc3\xa9\n" + ONE + b"\nsubject=/CN=x\n" + TWO + b"\n\n",
        ONE.replace(b"-----\n", b"----- \t\n") + TWO,
    ],
    ids=["plain", "no-last-line-feed", "crlf", "explanatory-text", "white-space-at-line-ends"],
)
def test_tolerates(text: bytes) -> None:
    assert read(text) == [("CERTIFICATE", b"one" * 40), ("X TWO", b"two")]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n \n",
        b"no block at all",
        ONE + b"garbage",
        ONE[:-10],
        ONE.replace(b"-----END CERTIFICATE-----\n", b""),
        ONE.replace(b"END CERTIFICATE", b"END X"),
        b"-----END CERTIFICATE-----\n" + ONE,
        b"-----BEGIN CERTIFICATE-----\n" + ONE,
        b" " + ONE,
        b"x" + ONE,
        ONE.rstrip() + TWO,
        ONE.replace(b"BEGIN CERT", b"BEGIN  CERT"),
        b"-----BEGIN X-----\n-----END X-----\n",
        b"-----BEGIN X-----\nYQ\n-----END X-----\n",
        b"-----BEGIN X-----\nYQ==YQ==\n-----END X-----\n",
        b"-----BEGIN X-----\nY*==\n-----END X-----\n",
        TWO * 4,
        ONE * 3 + b"\n" * 4096,
    ],
)
def test_refuses(text: bytes) -> None:
    with pytest.raises(PemError):
        read(text)


def test_headers_have_an_error_of_their_own() -> None:
    with pytest.raises(PemHeadersError):
        read(b"-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nYQ==\n-----END RSA PRIVATE KEY-----\n")


def test_content_is_not_in_the_representation() -> None:
    assert "secret" not in repr(read_blocks(encode_block("X", b"secret"), maximum_bytes=4096, maximum_blocks=1))


@given(st.binary(max_size=200))
def test_arbitrary_bytes_end_in_blocks_or_in_the_error(text: bytes) -> None:
    for candidate in (text, b"-----BEGIN X-----\n" + text + b"\n-----END X-----\n"):
        try:
            assert read(candidate)
        except PemError:
            continue
