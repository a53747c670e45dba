"""Times as text."""

from __future__ import annotations

from datetime import UTC, datetime


def time_text(unix_time: int) -> str:
    """A time in UTC as Kubernetes writes it, in whole seconds: ``2026-01-02T03:04:05Z``."""
    return datetime.fromtimestamp(unix_time, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
