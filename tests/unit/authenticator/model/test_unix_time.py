from __future__ import annotations

from authenticator.model.unix_time import time_text


def test_a_moment_is_shown_as_kubernetes_writes_it() -> None:
    assert time_text(1767323045) == "2026-01-02T03:04:05Z"
