"""Kubernetes' durations of hours, minutes and seconds."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

_DURATION: Final = re.compile(r"(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m)?(?:([0-9]{1,6})s)?")


def parse_duration(text: str) -> timedelta:
    """Read a Kubernetes duration of hours, minutes and seconds, such as ``168h`` or ``1h30m``.

    Raises:
        ValueError: it has another form.
    """
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        raise ValueError("a duration must be hours, minutes and seconds, such as 168h or 1h30m")
    hours, minutes, seconds = (int(group or 0) for group in match.groups())
    return timedelta(hours=hours, minutes=minutes, seconds=seconds)


def duration_text(duration: timedelta) -> str:
    """The duration of whole seconds in the form of :func:`parse_duration`, without units that are zero."""
    hours, rest = divmod(int(duration.total_seconds()), 3600)
    minutes, seconds = divmod(rest, 60)
    parts = ((hours, "h"), (minutes, "m"), (seconds, "s"))
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "0s"
