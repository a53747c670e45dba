"""Writing: whole lines or none, on the disk before anybody goes on, for one controller alone."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from attestors.registry import Registry
from signer.audit.chain import MAXIMUM_LINE_BYTES, Unreadable, read_lines
from signer.audit.halves import Halves
from signer.audit.log import AuditLogInUse, AuditLogUnavailable, FileLines, GroupedAuditLog, StreamLines, open_audit_log
from signer.audit.verification import Broken, Finding, Noticed, verify


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


async def found_in(*paths: Path) -> list[Finding]:
    return [one async for one in verify(paths, Halves(Registry(), {}))]


def broken(*paths: Path) -> list[str]:
    found = asyncio.run(found_in(*paths))
    return [one.why for one in found if isinstance(one, Broken) and "no decision" not in one.why]


def noticed(*paths: Path) -> list[Noticed]:
    return [one for one in asyncio.run(found_in(*paths)) if isinstance(one, Noticed)]


def numbers(path: Path) -> list[int]:
    lines = [line for line in read_lines(path) if not isinstance(line, Unreadable)]
    return [line.content["number"] for line in lines if "number" in line.content]


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


def test_a_file_that_was_deleted(tmp_path: Path) -> None:
    """Nobody would ever see what is written there: it is said, and a new one goes on with the chain."""
    path = tmp_path / "audit.log"
    lines = FileLines(path, 0, 0)
    lines.write([b'{"number":0}'])
    path.unlink()
    with pytest.raises(OSError, match="deleted"):
        lines.write([b'{"number":1}'])
    lines.write([b'{"number":2}'])
    lines.close()
    assert numbers(path) == [2]
    (said,) = noticed(path)
    assert said.what == "begins with line 2 of its chain: what was before is not given"


@pytest.mark.parametrize("created", [False, True], ids=["nocreate", "create"])
def test_a_file_that_others_renamed(tmp_path: Path, created: bool) -> None:
    """The next line is in a file at the path, whatever becomes of the other; nothing is refused and nothing missing."""
    path, rotated = tmp_path / "audit.log", tmp_path / "audit.log.1"
    lines = FileLines(path, 0, 0)
    lines.write([b'{"number":0}'])
    path.rename(rotated)
    if created:
        path.touch()
    lines.write([b'{"number":1}'])
    lines.write([b'{"number":2}'])
    lines.close()
    assert (numbers(rotated), numbers(path)) == ([0], [1, 2])
    assert broken(rotated, path) == []
    assert noticed(rotated, path) == []


def test_a_file_that_is_full_is_renamed_where_others_rename_too(tmp_path: Path) -> None:
    """An empty file that somebody put there is no backup of ours."""
    path, rotated = tmp_path / "audit.log", tmp_path / "audit.log.1"
    lines = FileLines(path, 1000, 0)
    lines.write([b'{"number":0}'])
    path.rename(rotated)
    path.touch()
    for number in range(1, 6):
        lines.write([b'{"number":%d,"filling":"%s"}' % (number, b"x" * 300)])
    lines.close()
    files = (rotated, *sorted(tmp_path.glob("audit-*.log")), path)
    assert [number for file in files for number in numbers(file)] == list(range(6))
    assert broken(*files) == []


class Rotator:
    """Renames the file, and perhaps makes a new one, at the first line that is written once it is ready."""

    def __init__(self, path: Path, *, creates: bool = False) -> None:
        self.ready = False
        self._path = path
        self._creates = creates

    def write(self, descriptor: int, data: bytes) -> int:
        if self.ready:
            self.ready = False
            self._path.rename(self._path.with_name("audit.log.1"))
            if self._creates:
                self._path.touch()
        return os.write(descriptor, data)


@pytest.mark.parametrize("created", [False, True], ids=["nocreate", "create"])
def test_a_file_that_others_rename_while_a_line_is_written(tmp_path: Path, created: bool) -> None:
    """Whoever renamed it may have copied it before the line was there: nobody is told that it is on the disk."""
    path = tmp_path / "audit.log"
    rotator = Rotator(path, creates=created)
    lines = FileLines(path, 0, 0, write=rotator.write)
    rotator.ready = True
    with pytest.raises(OSError, match="renamed while it was written to"):
        lines.write([b'{"number":0}'])
    lines.write([b'{"number":1}'])
    lines.close()
    assert (numbers(tmp_path / "audit.log.1"), numbers(path)) == ([0], [1])
    assert broken(tmp_path / "audit.log.1", path) == []


def test_a_file_that_others_rename_before_it_is_full(tmp_path: Path) -> None:
    """Among the lines of one batch: what was put in its place is not renamed over again."""
    path = tmp_path / "audit.log"
    rotator = Rotator(path, creates=True)
    lines = FileLines(path, 1500, 0, write=rotator.write)
    rotator.ready = True
    with pytest.raises(OSError, match="renamed while it was written to"):
        lines.write([b'{"number":%d,"filling":"%s"}' % (number, b"x" * 300) for number in range(4)])
    assert list(tmp_path.glob("audit-*.log")) == []
    lines.write([b'{"number":9}'])
    lines.close()
    assert broken(tmp_path / "audit.log.1", path) == []


def test_an_old_copy_that_is_put_in_its_place(tmp_path: Path) -> None:
    """The chain goes on behind what was written, and not behind what is there: the gap is seen."""
    path, copied = tmp_path / "audit.log", tmp_path / "copied"
    lines = FileLines(path, 0, 0)
    lines.write([b'{"number":0}'])
    copied.write_bytes(path.read_bytes())
    lines.write([b'{"number":1}'])
    path.rename(tmp_path / "taken away")
    copied.rename(path)
    lines.write([b'{"number":2}'])
    lines.close()
    assert broken(path) == ["1 line is missing before line 3 of its chain"]
    assert numbers(path) == [0, 2]


def test_a_log_of_others_that_is_put_in_its_place(tmp_path: Path) -> None:
    """However long it is: it does not become the chain that is gone on with."""
    path, other = tmp_path / "audit.log", tmp_path / "other.log"
    others = FileLines(other, 0, 0)
    others.write([b'{"number":-1}'] * 9)
    others.close()
    lines = FileLines(path, 0, 0)
    lines.write([b'{"number":0}'])
    path.rename(tmp_path / "audit.log.1")
    other.rename(path)
    lines.write([b'{"number":1}'])
    lines.close()
    assert broken(path) == ["the line is of another chain than the one before it"]


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


def test_no_link_that_is_put_in_its_place_is_followed(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    lines = FileLines(path, 0, 0)
    path.rename(tmp_path / "audit.log.1")
    path.symlink_to(tmp_path / "audit.log.1")
    for _ in range(2):
        with pytest.raises(OSError, match=r"audit\.log"):
            lines.write([b'{"number":0}'])
    lines.close()
    assert numbers(tmp_path / "audit.log.1") == []


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


async def test_what_cannot_be_flushed_is_not_written(tmp_path: Path) -> None:
    failing = True

    def flush(descriptor: int) -> None:
        if failing and descriptor in flushed:
            raise OSError(errno.EIO, "Input/output error")
        flushed.append(descriptor)

    flushed: list[int] = []
    log = GroupedAuditLog(FileLines(tmp_path / "audit.log", 0, 0, flush=flush))
    with pytest.raises(AuditLogUnavailable, match="Input/output error"):
        await log.append(b'{"number":0}')
    failing = False
    await log.append(b'{"number":1}')
    await log.close()


async def test_many_at_once_in_their_order(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    log = open_audit_log(str(path), maximum_mebibytes=1, maximum_backups=0)
    await asyncio.gather(*(log.append(b'{"number":%d}' % number) for number in range(200)))
    await log.close()
    assert numbers(path) == list(range(200))


async def test_a_batch_is_flushed_once(tmp_path: Path) -> None:
    flushes: list[int] = []
    log = GroupedAuditLog(FileLines(tmp_path / "audit.log", 0, 0, flush=flushes.append))
    before = len(flushes)
    await asyncio.gather(*(log.append(b'{"number":1}') for _ in range(100)))
    await log.close()
    assert len(flushes) - before <= 2


async def test_who_gave_up_does_not_hold_up_others(tmp_path: Path) -> None:
    log = open_audit_log(str(tmp_path / "audit.log"), maximum_mebibytes=1, maximum_backups=0)
    given_up = asyncio.ensure_future(log.append(b'{"number":0}'))
    await asyncio.sleep(0)
    given_up.cancel()
    await log.append(b'{"number":1}')
    await log.close()


async def test_lines_are_bounded(tmp_path: Path) -> None:
    log = open_audit_log(str(tmp_path / "audit.log"), maximum_mebibytes=1, maximum_backups=0)
    with pytest.raises(AuditLogUnavailable, match="larger"):
        await log.append(b"{" + b"x" * MAXIMUM_LINE_BYTES)
    await log.close()


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
