"""Messages between the program of a session and the agent."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from node_access.containers.protocol import (
    MAXIMUM_ANSWER_BYTES,
    MAXIMUM_REQUEST_BYTES,
    VERSION,
    Connect,
    NoTerminal,
    Request,
    RequestRefused,
    Run,
    Terminal,
    TransferFiles,
    encode_request,
    parse_request,
    refused,
)

COMMANDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=50)
TERMINALS = st.builds(
    Terminal,
    st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,20}", fullmatch=True),
    st.integers(0, 9999),
    st.integers(0, 9999),
)


@given(
    st.one_of(
        st.builds(Run, st.one_of(TERMINALS, st.just(NoTerminal())), COMMANDS),
        st.just(TransferFiles()),
        st.builds(Connect, st.integers(1, 65535)),
    )
)
def test_a_request_arrives_as_it_was_sent(request: Request) -> None:
    assert parse_request(encode_request(request)) == request


@pytest.mark.parametrize(
    "words",
    [
        (),
        (b"",),
        (b"run",),
        (b"run", b"", b"id", b"more"),
        (b"run", b"xterm", b"id"),
        (b"run", b"xterm 1 2 3", b"id"),
        (b"run", b"xterm 01 80", b"id"),
        (b"run", b"xterm -1 80", b"id"),
        (b"run", b"xterm 10000 80", b"id"),
        (b"run", b"x\nterm 24 80", b"id"),
        (b"run", b"-xterm 24 80", b"id"),
        (b"run", b"a" * 65 + b" 24 80", b"id"),
        (b"run", b"", b"\xff"),
        (b"sftp", b""),
        (b"connect",),
        (b"connect", b""),
        (b"connect", b"0"),
        (b"connect", b"080"),
        (b"connect", b"65536"),
        (b"connect", b"80", b"10.0.0.1"),
        (b"connect", "\u0668\u0660".encode()),
        (b"container", b"shop_web-0_app"),
    ],
    ids=str,
)
def test_anything_else_is_refused(words: tuple[bytes, ...]) -> None:
    with pytest.raises(RequestRefused):
        parse_request(b"\0".join([VERSION, *words]))


def test_another_version_and_a_large_request_are_refused() -> None:
    with pytest.raises(RequestRefused, match="version"):
        parse_request(b"node-access-containers/2\0sftp")
    command = "x" * (MAXIMUM_REQUEST_BYTES - len(encode_request(Run(NoTerminal(), ""))))
    assert parse_request(encode_request(Run(NoTerminal(), command))) == Run(NoTerminal(), command)
    with pytest.raises(RequestRefused, match="larger"):
        parse_request(encode_request(Run(NoTerminal(), command + "x")))


@given(st.text(max_size=3000))
def test_a_refusal_is_safe_on_a_terminal(why: str) -> None:
    answer = refused(why)
    assert answer.decode("ascii").isprintable()
    assert len(answer) <= MAXIMUM_ANSWER_BYTES
