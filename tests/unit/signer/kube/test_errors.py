from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signer.kube import errors
from signer.kube.errors import ApiError, Retry, bounded_text, error_for_status, retry_after_seconds


@pytest.mark.parametrize(
    ("status", "reason", "expected"),
    [
        (400, "BadRequest", errors.Invalid),
        (401, "Unauthorized", errors.Unauthorized),
        (403, "Forbidden", errors.Forbidden),
        (404, "NotFound", errors.NotFound),
        (409, "Conflict", errors.Conflict),
        (409, "AlreadyExists", errors.AlreadyExists),
        (410, "Expired", errors.Gone),
        (422, "Invalid", errors.Invalid),
        (429, "TooManyRequests", errors.TooManyRequests),
        (500, "InternalError", errors.ServerError),
        (504, "Timeout", errors.ServerError),
        (405, "MethodNotAllowed", errors.UnexpectedAnswer),
        (302, "", errors.UnexpectedAnswer),
        (600, "", errors.UnexpectedAnswer),
    ],
)
def test_status_and_reason_choose_the_class(status: int, reason: str, expected: type[ApiError]) -> None:
    error = error_for_status(status, reason=reason, message="m")
    assert type(error) is expected
    assert error.status == status
    assert str(error).startswith(f"{status} ")


def test_already_exists_is_no_conflict() -> None:
    assert not issubclass(errors.AlreadyExists, errors.Conflict)


def test_errors_that_may_be_retried() -> None:
    assert errors.Invalid.retry is Retry.NEVER
    assert errors.Conflict.retry is Retry.REREAD
    assert errors.Unreachable.retry is Retry.BACKOFF


@pytest.mark.parametrize("hostile", ["", "No\nSuch", "x" * 65, "Not Found", "Nöt"])
def test_a_reason_that_is_no_reason_is_replaced(hostile: str) -> None:
    assert error_for_status(404, reason=hostile, message="m").reason == "NotFound"
    assert error_for_status(404, reason=hostile).reason == "NotFound"


def test_an_unknown_path_says_nothing_about_an_object() -> None:
    error = error_for_status(404)
    assert type(error) is errors.ResourceNotServed
    assert not isinstance(error, errors.NotFound)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("5", 5.0),
        (" 7 ", 7.0),
        (3, 3.0),
        ("0", 0.0),
        ("999999999", 300.0),
        ("9999999999", None),
        (None, None),
        ("", None),
        ("-1", None),
        ("1e9", None),
        ("inf", None),
        ("Sat, 21 Nov 2026 00:00:00 GMT", None),
        (True, None),
        ("٣", None),
    ],
)
def test_retry_after_is_bounded_seconds(value: str | int | None, seconds: float | None) -> None:
    assert retry_after_seconds(value) == seconds


def test_control_characters_and_direction_marks_are_escaped() -> None:
    assert bounded_text("a\nb\x1b[31m\u202ec") == "a\\nb\\x1b[31m\\u202ec"


@given(st.text(), st.integers(min_value=8, max_value=300))
def test_text_is_always_bounded_and_printable(text: str, limit: int) -> None:
    bounded = bounded_text(text, limit)
    assert len(bounded) <= limit
    assert bounded.isprintable()
    if len(text) <= limit and text.isprintable():
        assert bounded == text
