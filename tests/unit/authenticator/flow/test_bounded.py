"""What hangs is ended by the kernel, also within a call in C that keeps Python's lock; what does not is left alone."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from authenticator.flow.bounded import longest

ROOT = Path(__file__).parents[3]
HANGING_IN_C = "ctypes.PyDLL(None).sleep(600)"


def run(*lines: str) -> subprocess.CompletedProcess[str]:
    """Python, with these lines; the test fails where it takes a minute."""
    code = "\n".join(("import ctypes, signal, time", "from authenticator.flow.bounded import bounded", *lines))
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60, cwd=ROOT
    )


@pytest.mark.slow
@pytest.mark.parametrize("hanging", [HANGING_IN_C, "time.sleep(600)"], ids=["in C", "in Python"])
@pytest.mark.parametrize(
    "before",
    [
        "pass",
        "signal.signal(signal.SIGALRM, signal.SIG_IGN)",
        "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])",
        "with bounded(9): pass",
    ],
    ids=["plainly", "ignored before", "blocked before", "a second time"],
)
def test_what_hangs_is_ended_and_says_where(hanging: str, before: str) -> None:
    done = run(before, "def hang(secret):", f"    {hanging}", "with bounded(0.1):", "    hang('a secret')")
    assert done.returncode == -signal.SIGALRM
    assert "in hang" in done.stderr
    assert "secret" not in done.stderr


@pytest.mark.slow
def test_what_ends_in_time_leaves_no_bound_behind() -> None:
    left = ["with bounded(600):", "    assert 590 < signal.getitimer(signal.ITIMER_REAL)[0] <= 600"]
    failing = ["try:", "    with bounded(600): 1 / 0", "except ZeroDivisionError:", "    pass"]
    done = run(*left, *failing, "print(signal.getitimer(signal.ITIMER_REAL)[0])")
    assert (done.returncode, done.stdout) == (0, "0.0\n"), done.stderr


def test_exchanges_have_time_for_their_waits_and_for_the_attestor() -> None:
    assert longest(exchanges=1, timeout=0) == 600
    assert longest(exchanges=1, timeout=300) == 900
    assert longest(exchanges=2, timeout=300) == 1200
