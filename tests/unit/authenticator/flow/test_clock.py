"""A service that is told to stop does not sleep on."""

from __future__ import annotations

import subprocess
import sys

import pytest

_ENDED = 7
_PROGRAM = f"""
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
