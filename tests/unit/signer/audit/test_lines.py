"""Writing: whole lines or none, on the disk before anybody goes on, for one controller alone."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from signer.audit.lines import AuditLogInUse, FileLines
from signer.audit.stream_lines import StreamLines
from tests.unit.signer.audit.found import broken, noticed, numbers


class FullDisk:
    """A disk with room for so many bytes."""

    def __init__(self, room: int) -> None:
        self.room = room

    def write(self, descriptor: int, data: bytes) -> int:
        if self.room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = os.write(descriptor, data[: self.room])
        self.room -= written
        return written


def test_only_the_owner_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    FileLines(path, 0, 0).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_one_controller_alone(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    first = FileLines(path, 0, 0)
    with pytest.raises(AuditLogInUse, match=r"audit\.log"):
        FileLines(path, 0, 0)
    first.close()
    FileLines(path, 0, 0).close()


@pytest.mark.parametrize(
    ("error", "raised"),
    [(BlockingIOError(errno.EAGAIN, "taken"), AuditLogInUse), (OSError(errno.ENOLCK, "no"), OSError)],
)
def test_a_lock_file_that_cannot_be_locked_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: OSError, raised: type[Exception]
) -> None:
    opened = []

    def flock(descriptor: int, operation: int) -> None:
        opened.append(descriptor)
        raise error

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(raised):
        FileLines(tmp_path / "audit.log", 0, 0)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])


def test_a_file_whose_first_line_cannot_be_written_is_closed(tmp_path: Path) -> None:
    opened = []

    def write(descriptor: int, data: bytes) -> int:
        opened.append(descriptor)
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        FileLines(tmp_path / "audit.log", 0, 0, write=write)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])


def test_no_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "audit.log").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match=r"audit\.log"):
        FileLines(tmp_path / "audit.log", 0, 0)


def test_rotation(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    moment = datetime(2026, 3, 1, tzinfo=UTC)

    def now() -> datetime:
        nonlocal moment
        moment += timedelta(seconds=1)
        return moment

    lines = FileLines(path, 2000, 2, now=now)
    for number in range(20):
        lines.write([b'{"number":%d,"filling":"%s"}' % (number, b"x" * 300)])
    lines.close()
    backups = sorted(tmp_path.glob("audit-*.log"))
    assert len(backups) == 2
    assert all(backup.stat().st_size <= 2000 for backup in (*backups, path))
    kept = [number for file in (*backups, path) for number in numbers(file)]
    assert kept == list(range(kept[0], 20))
    assert broken(*backups, path) == []
    assert any("missing" in why for why in broken(backups[0], path))  # the file between is not given


def test_a_disk_that_is_full_at_a_rotation(tmp_path: Path) -> None:
    """The new file goes on with the chain, also where it could not be begun at once: a new chain would hide a gap."""
    path = tmp_path / "audit.log"
    disk = FullDisk(10_000)
    lines = FileLines(path, 600, 0, write=disk.write)  # each line has a file of its own
    lines.write([b'{"number":0}'])
    disk.room = 0
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            lines.write([b'{"number":-1}'])
    disk.room = 10_000
    lines.write([b'{"number":1}'])
    lines.close()
    backups = sorted(tmp_path.glob("audit-*.log"))
    assert [one for file in (*backups, path) for one in numbers(file)] == [0, 1]
    assert all("new chain" not in one.what for one in noticed(*backups, path))
    assert broken(*backups, path) == []


def test_other_logs_beside_it_are_left_alone(tmp_path: Path) -> None:
    others = [tmp_path / name for name in ("audit-2.log", "audit-2026.log", "audit-2026-01-01T00-00-00.000000.log.gz")]
    for other in others:
        other.write_text("another controller's")
    lines = FileLines(tmp_path / "audit.log", 1000, 1)
    for _ in range(6):
        lines.write([b'{"filling":"%s"}' % (b"x" * 300)])
    lines.close()
    assert len(list(tmp_path.glob("audit-*T*.log"))) == 1
    assert all(other.exists() for other in others)


def test_what_was_lost_before_it_was_flushed_is_no_gap(tmp_path: Path) -> None:
    """As of a network's file system that is full: nobody was told that the line was there."""
    path = tmp_path / "audit.log"
    failing = False

    def flush(descriptor: int) -> None:
        if failing:
            os.ftruncate(descriptor, size)
            raise OSError(errno.ENOSPC, "No space left on device")

    lines = FileLines(path, 0, 0, flush=flush)
    lines.write([b'{"number":0}'])
    size, failing = path.stat().st_size, True
    with pytest.raises(OSError, match="No space"):
        lines.write([b'{"number":1}'])
    failing = False
    lines.write([b'{"number":2}'])
    lines.close()
    assert numbers(path) == [0, 2]
    assert broken(path) == []


@pytest.mark.parametrize("sequence", [2**53 + 1, 10**4299])
def test_a_made_up_end_is_not_gone_on_from(tmp_path: Path, sequence: int) -> None:
    path = tmp_path / "audit.log"
    FileLines(path, 0, 0).close()
    path.write_bytes(path.read_bytes().replace(b'"sequence":0', b'"sequence":%d' % sequence))
    lines = FileLines(path, 0, 0)
    lines.write([b'{"number":0}'])
    lines.close()
    assert numbers(path) == [0]


def test_a_full_disk(tmp_path: Path) -> None:
    """Half a line stays; once there is room again the chain goes on behind it."""
    path = tmp_path / "audit.log"
    disk = FullDisk(10_000)
    lines = FileLines(path, 0, 0, write=disk.write)
    lines.write([b'{"number":0}'])
    disk.room = 30
    for _ in range(2):
        with pytest.raises(OSError, match="No space"):
            lines.write([b'{"number":1}'])
    disk.room = 10_000
    lines.write([b'{"number":2}'])
    lines.close()
    assert numbers(path) == [0, 2]
    assert broken(path) == []


def test_a_disk_that_is_full_at_the_first_line(tmp_path: Path) -> None:
    """Until there is room nobody can tell it from a log that was wiped; no decision is in it that could be lost."""
    path = tmp_path / "audit.log"
    with pytest.raises(OSError, match="No space"):
        FileLines(path, 0, 0, write=FullDisk(30).write)
    assert path.stat().st_size == 30
    (why,) = broken(path)
    assert why.startswith("no line of the file can be read")
    FileLines(path, 0, 0).close()
    assert broken(path) == []
    (cut_off,) = noticed(path)
    assert "the disk was full" in cut_off.what


def test_a_disk_that_is_full_at_the_first_line_of_another_file(tmp_path: Path) -> None:
    """The same after a rotation, and the chain goes on."""
    path = tmp_path / "audit.log"
    disk = FullDisk(10_000)
    lines = FileLines(path, 600, 0, write=disk.write)
    lines.write([b'{"number":0}'])
    disk.room = 30
    with pytest.raises(OSError, match="No space"):
        lines.write([b'{"number":-1}'])
    (why,) = broken(*sorted(tmp_path.glob("audit-*.log")), path)
    assert why.startswith("no line of the file can be read")
    disk.room = 10_000
    lines.write([b'{"number":1}'])
    lines.close()
    files = (*sorted(tmp_path.glob("audit-*.log")), path)
    assert [one for file in files for one in numbers(file)] == [0, 1]
    assert broken(*files) == []


def test_a_pipe(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    StreamLines(writing).write([b'{"number":0}'])
    os.close(writing)
    with open(reading, "rb") as pipe:
        (tmp_path / "copied.log").write_bytes(pipe.read())
    assert numbers(tmp_path / "copied.log") == [0]
    assert broken(tmp_path / "copied.log") == []


def test_a_pipe_that_takes_a_part_of_a_line(tmp_path: Path) -> None:
    """What comes after it is a line of its own."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    lines = StreamLines(writing)
    taken = b""
    with pytest.raises(BlockingIOError):
        lines.write([b'{"number":0,"filling":"%s"}' % (b"x" * 200_000)])
    taken += os.read(reading, 1_000_000)
    lines.write([b'{"number":1}'])
    taken += os.read(reading, 1_000_000)
    (tmp_path / "copied.log").write_bytes(taken)
    assert numbers(tmp_path / "copied.log") == [1]
    assert broken(tmp_path / "copied.log") == []
