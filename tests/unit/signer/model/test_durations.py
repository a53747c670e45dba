from __future__ import annotations

from datetime import timedelta

import pytest

from signer.model.durations import parse_duration


def test_parse_duration() -> None:
    assert parse_duration("1h2m3s") == timedelta(hours=1, minutes=2, seconds=3)
    for text in ("168h", "90m", "1s"):
        assert parse_duration(text) > timedelta(0)
    for text in ("", "1h1h", "1000000h", "\u0661h"):
        with pytest.raises(ValueError, match="a duration must be hours, minutes and seconds"):
            parse_duration(text)
