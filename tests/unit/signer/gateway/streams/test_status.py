from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signer.gateway.streams.status import MAXIMUM_STATUS_BYTES, Exited, Failed, parse_status

NO_EXIT_CODES = ("0", "", "00", "01", "-1", "256", "1.0", "1e0", "\u0661", "1 ")


def failure(reason: str = "NonZeroExitCode", *causes: dict[str, Any], **fields: Any) -> bytes:
    return json.dumps(
        {"metadata": {}, "status": "Failure", "reason": reason, "details": {"causes": list(causes)}} | fields
    ).encode()


def code(text: str) -> dict[str, Any]:
    return {"reason": "ExitCode", "message": text}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (b'{"metadata":{},"status":"Success"}', 0),
        (b'{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Success"}', 0),
        (failure("NonZeroExitCode", code("1")), 1),
        (failure("NonZeroExitCode", code("137")), 137),
        (failure("NonZeroExitCode", code("255")), 255),
        (failure("NonZeroExitCode", {"reason": "Other", "message": "9"}, code("3")), 3),
    ],
)
def test_exit_codes(document: bytes, expected: int) -> None:
    assert parse_status(document) == Exited(expected)


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"null",
        b"[]",
        b"0",
        b'"Success"',
        b"{}",
        b'{"status":"Success"',
        b'{"status":"Success"}{"status":"Success"}',
        b'{"status":"success"}',
        b'{"status":0}',
        b'{"status":null}',
        b'{"Status":"Success"}',
        b'{"status":"Success","reason":"NonZeroExitCode"}',
        b'{"status":"Success","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}',
        b'{"status":"Success","message":3}',
        b'\xff{"status":"Success"}',
        b"[" * 100_000,
        b'{"status":"Success","metadata":' + b"[" * 60_000,
        b'{"status":"Success","metadata":"' + b" " * MAXIMUM_STATUS_BYTES + b'"}',
        failure(),
        failure("NonZeroExitCode", details=None),
        failure("NonZeroExitCode", details={"causes": None}),
        failure("NonZeroExitCode", details={"causes": [None]}),
        failure("NonZeroExitCode", {"reason": "ExitCode", "message": 0}),
        *(failure("NonZeroExitCode", code(text)) for text in NO_EXIT_CODES),
        failure("NonZeroExitCode", code("1"), code("2")),
        failure("InternalError", code("3")),
        failure("NonZeroExitCode", code("3"), status="failure"),
        failure("", code("3")),
    ],
)
def test_all_else_is_a_failure(document: bytes) -> None:
    assert isinstance(parse_status(document), Failed)


def test_the_message_of_a_failure_is_shown() -> None:
    text = 'error executing command in container: exec: "nosuch": executable file not found in $PATH'
    assert parse_status(failure("InternalError", message=text)) == Failed(text)
    assert parse_status(failure("Timeout")) == Failed("Timeout")


def test_the_message_can_control_no_terminal() -> None:
    result = parse_status(failure("InternalError", message="\x1b]0;owned\x07" + "é" + "x" * 5000))
    assert isinstance(result, Failed)
    assert result.message.startswith(r"\x1b]0;owned\x07\xe9xxx")
    assert len(result.message) <= 1024


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=16,
)
LIKELY = st.fixed_dictionaries(
    {},
    optional={
        "status": st.sampled_from(["Success", "Failure", "success", ""]) | JSON,
        "reason": st.sampled_from(["NonZeroExitCode", "", "InternalError"]) | JSON,
        "message": JSON,
        "details": JSON
        | st.fixed_dictionaries(
            {"causes": st.lists(st.fixed_dictionaries({"reason": st.just("ExitCode"), "message": JSON}), max_size=3)}
        ),
    },
)


@given(LIKELY | JSON)
def test_zero_is_never_an_accident(document: Any) -> None:
    result = parse_status(json.dumps(document).encode())
    is_success = isinstance(document, dict) and document.get("status") == "Success"
    assert not isinstance(result, Exited) or (result.code == 0) is is_success
    assert not isinstance(result, Exited) or 0 <= result.code <= 255
    assert isinstance(result, Exited) or (result.message.isascii() and result.message.isprintable())


@given(st.binary(max_size=256))
def test_bytes_are_no_exit_code(document: bytes) -> None:
    assert isinstance(parse_status(document), Failed)


@given(st.integers())
def test_only_codes_of_processes(number: int) -> None:
    result = parse_status(failure("NonZeroExitCode", code(str(number))))
    assert (result == Exited(number)) is (1 <= number <= 255)
