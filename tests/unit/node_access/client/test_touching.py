"""A connection for a moment, with an ssh that prints what a real one prints."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from node_access.client import touching
from node_access.client.touching import touch
from tests.support.processes import wait_until

SSH = """#!{python}
import pathlib, sys, time
folder = pathlib.Path({folder!r})
(folder / "words").write_text("\\n".join(sys.argv[1:]))
print("banner", file=sys.stderr)
{body}
"""
LOGGED_IN = 'print("Authenticated to worker-1 ([10.0.0.7]:22) using \\"publickey\\".", file=sys.stderr, flush=True)'


@pytest.fixture
def ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def write(folder: Path, body: str) -> None:
    program = folder / "ssh"
    program.write_text(SSH.format(python=sys.executable, folder=str(folder), body=body))
    program.chmod(0o755)


def test_it_stays_for_a_moment_and_goes(ssh: Path) -> None:
    """The node's daemon must see that the login goes on."""
    write(ssh, f"{LOGGED_IN}\ntime.sleep(0.1); (folder / 'stayed').touch(); time.sleep(600); (folder / 'late').touch()")
    assert touch(ssh / "config", "worker-1.production", "admin")
    assert (ssh / "stayed").exists()
    words = (ssh / "words").read_text().split("\n")
    assert words[:3] == ["-F", str(ssh / "config"), "-N"]
    assert words[-3:] == ["-l", "admin", "worker-1.production"]
    assert {"BatchMode=yes", "ControlPath=none", "ClearAllForwardings=yes"} <= set(words)


def test_a_login_that_fails_is_told(ssh: Path) -> None:
    write(ssh, 'print("Permission denied (publickey).", file=sys.stderr); sys.exit(255)')
    assert not touch(ssh / "config", "worker-1.production", "root")


def test_a_bastion_that_never_answers_is_given_up_with_what_waits_for_it(
    ssh: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ssh starts another ssh for the bastion, which keeps standard error open when the first one is killed."""
    monkeypatch.setattr(touching, "_SECONDS", 1.5)
    child = "import os, pathlib, sys, time; pathlib.Path(sys.argv[1]).write_text(str(os.getpid())); time.sleep(60)"
    write(
        ssh,
        f"import subprocess; subprocess.Popen([sys.executable, '-c', {child!r}, str(folder / 'child')])\n"
        "time.sleep(60)",
    )
    began = time.monotonic()
    assert not touch(ssh / "config", "worker-1.production", "root")
    assert time.monotonic() - began < 30
    wait_until(lambda: not is_alive(int((ssh / "child").read_text())), "the end of the child")


def is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_one_that_says_too_much_is_given_up(ssh: Path) -> None:
    write(ssh, 'print("x\\n" * 500, file=sys.stderr, flush=True); time.sleep(600)')
    assert not touch(ssh / "config", "worker-1.production", "root")
