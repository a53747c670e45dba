"""Files that others delete, rename or replace while they are written to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from signer.audit.lines import FileLines
from tests.unit.signer.audit.found import broken, noticed, numbers, start_lines


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
    assert said.what == "begins with line 2 of its chain: the lines before it are not given"


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


def test_made_up_lines_of_the_same_chain_that_are_put_in_its_place(tmp_path: Path) -> None:
    """As many as were written, or more: only a line of this process is gone on from."""
    for longer in (0, 2):
        path = tmp_path / f"{longer}.log"
        lines = FileLines(path, 0, 0)
        lines.write([b'{"number":0}', b'{"number":1}'])
        made_up = start_lines(path.read_bytes().splitlines()[0], lines.end.sequence + longer)
        path.rename(tmp_path / "taken away")
        path.write_bytes(made_up)
        lines.write([b'{"number":2}'])
        lines.close()
        assert len(broken(path)) == 1
        assert numbers(path) == [2]


def test_a_line_that_lacks_its_line_feed_alone_is_gone_on_from(tmp_path: Path) -> None:
    """As a full disk leaves it: the line is there, though nobody was told so."""
    path, room = tmp_path / "audit.log", [True]

    def write(descriptor: int, data: bytes) -> int:
        return os.write(descriptor, data if room[0] else data[:-1])

    lines = FileLines(path, 0, 0, write=write)
    lines.write([b'{"number":0}'])
    room[0] = False
    with pytest.raises(OSError, match="No space"):
        lines.write([b'{"number":1}'])
    room[0] = True
    lines.write([b'{"number":2}'])
    lines.close()
    assert numbers(path) == [0, 1, 2]
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
