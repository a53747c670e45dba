from __future__ import annotations

from datetime import timedelta, timezone

import pytest

from signer.model.fields import format_time, parse_time
from tests.unit.signer.builders import NOW


def test_round_trip() -> None:
    assert format_time(NOW) == "2026-03-01T12:00:00Z"
    assert parse_time("2026-03-01T12:00:00Z") == NOW
    assert format_time(NOW.replace(microsecond=999_999)) == "2026-03-01T12:00:00Z"
    assert format_time(NOW.astimezone(timezone(timedelta(hours=9)))) == "2026-03-01T12:00:00Z"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Z",
        "2026-03-01T12:00:00",
        "2026-03-01T12:00:00z",
        "2026-03-01 12:00:00Z",
        "2026-03-01T12:00:00.0Z",
        "2026-03-01T12:00:00+00:00",
        "20260301T120000.000Z",
        "2026-W09-7T12:00:00Z",
        "2026-02-30T12:00:00Z",
        "2026-03-01T24:00:01Z",
        "0000-03-01T12:00:00Z",
        "\u0662026-03-01T12:00:00Z",
        "2026-03-01T12:00:00Z\n",
    ],
)
def test_of_another_form(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parse_time(text)
