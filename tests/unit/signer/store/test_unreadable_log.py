"""Objects that a cache leaves out are in the log, a bounded number for each namespace."""

from __future__ import annotations

import pytest

from signer.store.cache import Cache
from signer.store.unreadable_log import LOG_BURST, LOG_INTERVAL_SECONDS, UnreadableLog

ONE = "ignored an object that cannot be read"
FURTHER = "ignored further objects that cannot be read, and does not log each"


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, str]]:
    """Level, message and namespace."""
    return [(one.levelname, one.getMessage(), one.__dict__["namespace"]) for one in caplog.records]


def test_a_line_names_the_object_and_the_error(caplog: pytest.LogCaptureFixture) -> None:
    UnreadableLog("machines").left_out("team-a", "node-1", "spec is no object")
    [line] = caplog.records
    fields = {name: line.__dict__[name] for name in ("resource", "namespace", "object", "error")}
    assert fields == {"resource": "machines", "namespace": "team-a", "object": "node-1", "error": "spec is no object"}


def test_a_tenant_that_changes_an_object_again_and_again_does_not_flood_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Other namespaces keep their lines."""
    log = UnreadableLog("machines", lambda: 0.0)
    for number in range(1000):
        log.left_out("team-a", "node-1", f"fault {number}")
    log.left_out("team-b", "node-1", "a fault")
    expected = [*[("WARNING", ONE, "team-a")] * LOG_BURST, ("WARNING", FURTHER, "team-a"), ("WARNING", ONE, "team-b")]
    assert logged(caplog) == expected


def test_lines_come_again_after_a_while_and_so_does_the_word_about_further_ones(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 0.0
    log = UnreadableLog("machines", lambda: now)
    for _ in range(LOG_BURST + 3):
        log.left_out("team-a", "node-1", "a fault")
    caplog.clear()
    now = LOG_INTERVAL_SECONDS
    for _ in range(3):
        log.left_out("team-a", "node-1", "a fault")
    assert [message for _, message, _ in logged(caplog)] == [ONE, FURTHER]


def test_a_cache_logs_so(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(manifest: object) -> int:
        raise ValueError("never readable")

    cache = Cache("machines", refuse, monotonic=lambda: 0.0)
    for version in range(LOG_BURST + 100):
        metadata = {"namespace": "team-a", "name": "node-1", "resourceVersion": str(version)}
        cache.applied({"metadata": metadata})
    assert [message for _, message, _ in logged(caplog)] == [*[ONE] * LOG_BURST, FURTHER]
