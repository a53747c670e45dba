"""A service that is told to stop does not sleep on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final
from unittest.mock import MagicMock

import pytest

from authenticator.commands import agent, parser

_ENDED: Final = 7
_PROGRAM: Final = f"""
import os, signal, sys, threading, time
from authenticator.flow.clock import interruptible_sleep

def stop(number, frame):
    os._exit({_ENDED})

def tell():
    # The system call of the main thread is not interrupted: this thread takes the signal, as one that comes just
    # before that call is taken outside of it.
    signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

signal.signal(signal.SIGTERM, stop)
sleep = interruptible_sleep()
sleep(0.001)  # one that no signal ended
threading.Timer(0.5, tell).start()
sleep(3600)
"""


@pytest.mark.slow
def test_a_signal_that_does_not_interrupt_the_system_call_ends_the_sleep() -> None:
    assert subprocess.run([sys.executable, "-c", _PROGRAM], timeout=60).returncode == _ENDED


_ANOTHER: Final = f"""
import os, signal, sys, time
from authenticator.flow.clock import interruptible_sleep

signal.signal(signal.SIGUSR1, lambda number, frame: None)
sleep = interruptible_sleep()
os.kill(os.getpid(), signal.SIGUSR1)
sleep(3600)
began = time.monotonic()
sleep(0.2)
sys.exit({_ENDED} if time.monotonic() - began >= 0.2 else 0)
"""


@pytest.mark.slow
def test_each_signal_ends_one_sleep() -> None:
    assert subprocess.run([sys.executable, "-c", _ANOTHER], timeout=60).returncode == _ENDED


def test_the_agent_sleeps_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """For once in its life, and for all that it waits for."""
    made = MagicMock()
    monkeypatch.setattr(agent, "interruptible_sleep", lambda: sleep)
    monkeypatch.setattr("authenticator.commands.agent.signal.signal", lambda *_: None)
    monkeypatch.setattr(agent, "Agent", made)

    def sleep(seconds: float) -> None:
        raise AssertionError

    arguments = ["agent", "--provider", "insecure", "--node-name", "n", "--store", str(tmp_path)]
    agent.run(parser().parse_args(arguments))
    certificates, _, clock, *_ = made.call_args.args
    assert clock.sleep is certificates.clock.sleep is sleep
