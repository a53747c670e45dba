from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from authenticator.model.failures import ExitCode
from authenticator.store.lock import LockHeld, locked

HOLDER = """
import sys
import time
from pathlib import Path
from authenticator.store.lock import locked
with locked(Path(sys.argv[1]), timeout=5):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "client.lock"


def test_it_is_held_and_released(path: Path) -> None:
    for _ in range(2):
        with locked(path, timeout=0):
            assert path.read_text() == f"{os.getpid()}\n"
            assert path.stat().st_mode & 0o777 == 0o600


def test_it_is_released_when_the_block_fails(path: Path) -> None:
    with pytest.raises(ZeroDivisionError), locked(path, timeout=0):
        raise ZeroDivisionError
    with locked(path, timeout=0):
        pass


def test_a_note_that_is_refused_late_is_no_failure(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over NFS, a full disk or a quota is said when the file is closed."""
    close = os.close

    def late(descriptor: int) -> None:
        close(descriptor)
        raise OSError(errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr("authenticator.store.lock.os.close", late)
    for _ in range(2):
        with locked(path, timeout=0):
            pass


def test_a_second_holder_learns_the_first_process(path: Path) -> None:
    """Two descriptions of the same file exclude each other in one process, too."""
    with locked(path, timeout=0), pytest.raises(LockHeld, match=f"process {os.getpid()} held {path} for 0 s") as held:  # noqa: SIM117
        with locked(path, timeout=0):
            raise AssertionError
    assert held.value.exit_code is ExitCode.STORE


def test_the_former_holders_number_is_gone(path: Path) -> None:
    path.write_text("99999999999999999999\n")
    with locked(path, timeout=0):
        assert path.read_text() == f"{os.getpid()}\n"


def test_the_holders_note_is_bounded(path: Path) -> None:
    with locked(path, timeout=0):
        path.write_bytes(b"\xff" * 100)
        with pytest.raises(LockHeld, match=r"process \ufffd{32} held"), locked(path, timeout=0):
            raise AssertionError
        path.write_bytes(b"")
        with pytest.raises(LockHeld, match="process unknown held"), locked(path, timeout=0):
            raise AssertionError


def test_the_wait_lasts_for_the_timeout(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(time, "sleep", lambda seconds: clock.__setitem__(0, clock[0] + seconds))
    with locked(path, timeout=0), pytest.raises(LockHeld, match="for 3 s and more"), locked(path, timeout=3):
        raise AssertionError
    assert 103 <= clock[0] < 103.1


def test_it_is_had_as_soon_as_it_is_released(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = locked(path, timeout=0)
    first.__enter__()
    monkeypatch.setattr(time, "sleep", lambda _seconds: first.__exit__(None, None, None))
    with locked(path, timeout=3600):
        assert path.read_text() == f"{os.getpid()}\n"


def test_a_link_in_its_place_is_refused(path: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    path.symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"), locked(path, timeout=0):
        raise AssertionError
    assert victim.read_text() == "untouched"


@pytest.mark.parametrize("way", ["kill", "end"])
def test_the_kernel_releases_it_however_its_holder_ends(path: Path, way: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(LockHeld, match=f"process {holder.pid} held"), locked(path, timeout=0):
            raise AssertionError
        if way == "kill":
            holder.kill()
        holder.communicate()
        with locked(path, timeout=0):
            assert path.read_text() == f"{os.getpid()}\n"


def test_a_process_that_the_holder_forks_does_not_hold_it_for_longer(path: Path) -> None:
    """As an attestor may leave one behind."""
    reading, writing = os.pipe()
    with locked(path, timeout=0):
        process = os.fork()
        if process == 0:
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
    try:
        with locked(path, timeout=0):
            pass
    finally:
        for end in (reading, writing):
            os.close(end)
        os.waitpid(process, 0)


def test_a_program_that_the_holder_starts_does_not_hold_it(path: Path) -> None:
    program = "print('started', flush=True); input()"
    pipe = subprocess.PIPE
    with locked(path, timeout=0):
        child = subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe, close_fds=False)
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"started\n"
        with locked(path, timeout=0):
            pass
        child.communicate(b"\n")
