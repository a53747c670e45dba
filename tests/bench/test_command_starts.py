"""The times of commands."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.bench.command_starts import ASKING, COMMANDS, INTERPRETER, KUBECTL, SLOWEST, command_starts
from tests.bench.settings import QUICK

pytestmark = pytest.mark.slow


def test_each_command_is_measured_beside_kubectl() -> None:
    table = command_starts(replace(QUICK, start_runs=1), lambda what: None)
    assert [row.name for row in table.rows] == [INTERPRETER, KUBECTL, *COMMANDS, *ASKING, SLOWEST]
    ratio = table.figure(KUBECTL, "ratio")
    assert ratio is not None
    assert ratio.value == 1
    times = [figure.value for name in COMMANDS if (figure := table.figure(name, "ms")) is not None]
    slowest = table.figure(SLOWEST, "ms")
    assert slowest is not None
    assert (len(times), max(times)) == (len(COMMANDS), slowest.value)
