"""No program outlives the test that started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import ProgramFailed, Programs, wait_until

pytestmark = pytest.mark.slow

_ROOT = Path(__file__).parents[2]

# A background job of a shell, such as a CI run, ignores SIGINT, and its children inherit that.
_STARTER = """
import os, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from tests.support.processes import Programs
programs = Programs("node-attestation-test-")
program = programs.start("sleeper", ["/bin/sh", "-c", "sleep 600 & sleep 600"])
print(programs.folder, program.process.pid, flush=True)
os.kill(os.getpid(), signal.{signal})
signal.pause()
"""


def _group_is_gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False


@pytest.mark.parametrize("number", ["SIGKILL", "SIGTERM", "SIGINT"])
def test_programs_and_folder_are_removed_when_the_starter_dies(number: str) -> None:
    starter = subprocess.run(
        [sys.executable, "-c", _STARTER.format(signal=number)],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    folder, _, group = starter.stdout.strip().rpartition(" ")
    wait_until(lambda: _group_is_gone(int(group)), "the programs are gone")
    wait_until(lambda: not Path(folder).exists(), "the folder is gone")


def test_program_is_stopped_with_its_children_and_the_folder_removed() -> None:
    with Programs("node-attestation-test-") as programs:
        program = programs.start("sleeper", ["/bin/sh", "-c", "sleep 600 & sleep 600"])
        assert not _group_is_gone(program.process.pid)
    wait_until(lambda: _group_is_gone(program.process.pid), "the programs are gone")
    assert program.process.returncode == -signal.SIGTERM
    assert not programs.folder.exists()


def test_program_that_ends_too_early_is_reported_with_its_log() -> None:
    with Programs("node-attestation-test-") as programs:
        program = programs.start("failing", ["/bin/sh", "-c", "echo the reason; exit 3"])
        with pytest.raises(ProgramFailed, match=r"failing ended with 3\nthe reason"):
            program.wait_ready(lambda: False)


def test_program_that_is_not_ready_in_time_is_reported_with_its_log() -> None:
    with Programs("node-attestation-test-") as programs:
        program = programs.start("slow", ["/bin/sh", "-c", "echo still busy; sleep 600"])
        wait_until(lambda: "busy" in program.log_tail(), "the program writes")
        with pytest.raises(ProgramFailed, match=r"slow was not ready within 0 s\nstill busy"):
            program.wait_ready(lambda: False, timeout=0)
