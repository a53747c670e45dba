from __future__ import annotations

from datetime import timedelta

import pytest

from attestors.clouds.errors import (
    DEFAULT_PAUSE,
    CloudError,
    CloudObjectMissing,
    CloudRefused,
    CloudUnavailable,
    pause_from,
)


@pytest.mark.parametrize(
    ("kind", "reason", "seconds"),
    [
        (CloudUnavailable, "CloudUnavailable", 10),
        (CloudRefused, "CloudAccessRefused", 60),
        (CloudObjectMissing, "CloudObjectMissing", 10),
    ],
)
def test_each_makes_a_request_wait_and_names_the_service(kind: type[CloudError], reason: str, seconds: int) -> None:
    outcome = kind("Some Cloud", "is away").outcome()
    assert (outcome.reason, outcome.message) == (reason, "Some Cloud: is away")
    assert outcome.retry_after == timedelta(seconds=seconds)


def test_texts_are_bounded_and_printable() -> None:
    outcome = CloudUnavailable("Some Cloud", "\x1b[31m\n" + "x" * 10_000).outcome()
    assert outcome.message.isprintable()
    assert len(outcome.message) == 400


@pytest.mark.parametrize(("asked", "given"), [(0.0, 1), (7.0, 7), (1e9, 600), (-5.0, 1)])
def test_pauses_are_bounded(asked: float, given: int) -> None:
    error = CloudUnavailable("Some Cloud", "throttles", retry_after=timedelta(seconds=min(asked, 1e8)))
    assert error.outcome().retry_after == timedelta(seconds=given)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("7", 7), ("0", 1), ("999999", 600)],
)
def test_retry_after_in_seconds(header: str, seconds: int) -> None:
    assert pause_from(header) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "header", [None, "", "-1", "1.5", "\u0667", "1" * 5000, "Fri, 31 Dec 1999 23:59:59 GMT", " 7"], ids=range(8)
)
def test_any_other_retry_after_means_the_usual_pause(header: str | None) -> None:
    assert pause_from(header) == DEFAULT_PAUSE
