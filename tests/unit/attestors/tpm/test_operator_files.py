"""Files that change while the controller runs: seen at once, read in bounds, never believed from memory."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

from attestors.tpm import operator_files
from attestors.tpm.operator_files import (
    Contents,
    OperatorFile,
    OperatorFileUnusable,
    OperatorFolder,
    WatchedFiles,
    absolute_path,
)

LATER: Final = 3600 * 1_000_000_000


@dataclass
class Watch:
    """Watched files that are joined, with a count of how often they were parsed."""

    folder: Path
    now: int = field(default_factory=lambda: time.time_ns() + LATER)
    parsed: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        sources = (OperatorFolder("folder", str(self.folder)), OperatorFile("file", str(self.file)))
        self.files: WatchedFiles[bytes] = WatchedFiles(sources, self.parse, lambda: self.now)
        self.write("a", b"A")
        self.file.write_bytes(b"F")

    @property
    def file(self) -> Path:
        return self.folder.parent / "file"

    def write(self, name: str, content: bytes) -> None:
        (self.folder / name).write_bytes(content)

    def parse(self, contents: tuple[Contents, ...]) -> bytes:
        joined = b"|".join(b"".join(content.values()) for content in contents)
        self.parsed.append(joined)
        if b"malformed" in joined:
            raise OperatorFileUnusable("file: malformed")
        return joined


@pytest.fixture
def watch(tmp_path: Path) -> Watch:
    return Watch(tmp_path / "folder")


def assert_unusable(watch: Watch, part: str) -> None:
    """Each time, and not what it said before."""
    for _ in range(2):
        with pytest.raises(OperatorFileUnusable) as unusable:
            watch.files.current()
        assert part in str(unusable.value)


def test_they_are_parsed_once(watch: Watch) -> None:
    for _ in range(3):
        assert watch.files.current() == b"A|F"
    assert watch.parsed == [b"A|F"]


def test_what_they_say_is_of_now(watch: Watch) -> None:
    watch.files.current()
    watch.write("b", b"B")
    assert watch.files.current() == b"AB|F"
    watch.write("a", b"longer")
    assert watch.files.current() == b"longerB|F"
    watch.file.write_bytes(b"G")
    assert watch.files.current() == b"longerB|G"
    (watch.folder / "b").unlink()
    assert watch.files.current() == b"longer|G"
    (watch.folder / "a").rename(watch.folder / "c")
    assert watch.files.current() == b"longer|G"
    assert len(watch.parsed) == 6


def test_what_moves_from_one_file_to_the_next_is_another_content(watch: Watch) -> None:
    """All octets are the same, in the same order; each file says something else."""
    watch.write("b", b"BB")
    watch.files.current()
    watch.write("a", b"AB")
    watch.write("b", b"B")
    watch.files.current()
    watch.write("b", b"BF")
    watch.file.write_bytes(b"")
    watch.files.current()
    assert watch.parsed == [b"ABB|F", b"ABB|F", b"ABBF|"]


def test_one_that_is_replaced_by_another_of_the_same_size_and_time(watch: Watch) -> None:
    watch.files.current()
    status = watch.file.stat()
    other = watch.folder.parent / "other"
    other.write_bytes(b"G")
    os.utime(other, ns=(status.st_atime_ns, status.st_mtime_ns))
    other.replace(watch.file)
    assert watch.files.current() == b"A|G"


def test_a_stamp_that_is_ahead_of_the_clock_settles_too(watch: Watch) -> None:
    """Else all files would be read for each request, until that time has come."""
    os.utime(watch.file, ns=(watch.now, watch.now + LATER))
    for passed, settled in ((0, False), (2_000_000_000, False), (1, True)):
        watch.now += passed
        watch.files.current()
        assert is_settled(watch) is settled
    watch.file.write_bytes(b"G")
    os.utime(watch.file, ns=(watch.now, watch.now + LATER + 1))
    assert watch.files.current() == b"A|G"
    assert not is_settled(watch)


def is_settled(watch: Watch) -> bool:
    assert isinstance(watch.files._read, operator_files._Read)
    return watch.files._read.settled


@pytest.mark.parametrize("ago", [0, 2_000_000_000, -LATER], ids=["now", "just-now", "in-the-future"])
def test_one_that_changed_just_now_may_have_changed_again(watch: Watch, ago: int) -> None:
    """Within one tick of the file system's clock, which a rewritten file of the same size does not show."""
    watch.now = max(watch.file.stat().st_ctime_ns, (watch.folder / "a").stat().st_ctime_ns) + ago
    assert watch.files.current() == b"A|F"
    look = watch.files._stat
    before = look()
    watch.file.write_bytes(b"G")
    watch.files._stat = lambda: before  # type: ignore[method-assign]
    assert watch.files.current() == b"A|G"
    assert watch.files.current() == b"A|G"
    assert watch.parsed == [b"A|F", b"A|G"]


def test_one_that_changed_two_seconds_ago_is_looked_at_and_not_read(watch: Watch) -> None:
    watch.now = max(watch.file.stat().st_ctime_ns, (watch.folder / "a").stat().st_ctime_ns) + 2_000_000_001
    for _ in range(2):
        assert watch.files.current() == b"A|F"
    look = watch.files._stat
    before = look()
    watch.file.write_bytes(b"G")
    watch.files._stat = lambda: before  # type: ignore[method-assign]
    assert watch.files.current() == b"A|F"


def test_one_that_changed_just_now_and_bears_an_old_time(watch: Watch) -> None:
    """As copies do that keep their times: the file system's own time tells."""
    os.utime(watch.file, ns=(0, 0))
    watch.now = watch.file.stat().st_ctime_ns
    os.utime(watch.folder / "a", ns=(0, 0))
    assert watch.files.current() == b"A|F"
    assert isinstance(watch.files._read, operator_files._Read)
    assert not watch.files._read.settled


def test_a_link_that_is_renamed(watch: Watch) -> None:
    """What it leads to is the same as before, and stands elsewhere in the order."""
    elsewhere = watch.folder.parent / "elsewhere"
    elsewhere.write_bytes(b"B")
    (watch.folder / "b").symlink_to(elsewhere)
    assert watch.files.current() == b"AB|F"
    (watch.folder / "b").rename(watch.folder / "0")
    assert watch.files.current() == b"BA|F"


def test_each_sign_of_a_change_is_one() -> None:
    """Device, inode, size and both times: a file may change so that only one of them tells."""
    before = (0o100644, 1, 2, 1, 0, 0, 7, 0, 3, 4, 0.0, 3.0, 4.0, 0, 3_000, 4_000)
    signatures = {operator_files._signature(os.stat_result(before))}
    for place in (1, 2, 6, 14, 15):
        changed = (*before[:place], before[place] + 1, *before[place + 1 :])
        signatures.add(operator_files._signature(os.stat_result(changed)))
    assert len(signatures) == 6


def mounted(folder: Path, version: str, **files: bytes) -> None:
    """As the kubelet writes a ConfigMap: files in a folder of their own, swapped in through one symbolic link."""
    (folder / f"..{version}").mkdir(parents=True)
    for name, content in files.items():
        (folder / f"..{version}" / name).write_bytes(content)
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")
    (folder / "..data_tmp").symlink_to(f"..{version}")
    (folder / "..data_tmp").replace(folder / "..data")


def test_a_mounted_config_map_that_changes(tmp_path: Path) -> None:
    folder = tmp_path / "mounted"
    mounted(folder, "1", a=b"1", b=b"2")
    seen: list[list[str]] = []

    def parse(contents: tuple[Contents, ...]) -> bytes:
        seen.append([os.path.basename(path) for content in contents for path in content])
        return b"".join(value for content in contents for value in content.values())

    sources = (OperatorFolder("folder", str(folder)), OperatorFile("file", str(folder / "a")))
    files = WatchedFiles(sources, parse, lambda: time.time_ns() + LATER)
    assert files.current() == b"121"
    mounted(folder, "2", a=b"3", b=b"4")
    assert files.current() == b"343"
    assert seen == [["a", "b", "a"]] * 2


class TestUnusable:
    def test_one_that_is_gone(self, watch: Watch) -> None:
        watch.files.current()
        watch.file.unlink()
        assert_unusable(watch, f"file: {watch.file}: No such file")
        watch.file.write_bytes(b"F")
        assert watch.files.current() == b"A|F"

    def test_a_folder_that_is_gone(self, watch: Watch) -> None:
        watch.files.current()
        watch.folder.rename(watch.folder.parent / "elsewhere")
        assert_unusable(watch, f"folder: {watch.folder}: No such file")

    def test_a_folder_that_is_emptied(self, watch: Watch) -> None:
        watch.files.current()
        (watch.folder / "a").rename(watch.folder / ".a")
        assert_unusable(watch, f"{watch.folder} holds no file")

    def test_a_link_that_leads_nowhere(self, watch: Watch) -> None:
        watch.files.current()
        (watch.folder / "b").symlink_to("nowhere")
        assert_unusable(watch, f"folder: {watch.folder / 'b'}: No such file")

    def test_one_that_may_not_be_read(self, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without a right to read; the tests may run as root, who has it."""
        watch.files.current()

        def refuse(path: str, flags: int) -> int:
            raise PermissionError(13, "Permission denied", path)

        watch.file.write_bytes(b"changed")
        monkeypatch.setattr(os, "open", refuse)
        assert_unusable(watch, "Permission denied")

    def test_one_that_is_malformed_is_parsed_once(self, watch: Watch) -> None:
        watch.files.current()
        watch.file.write_bytes(b"malformed")
        assert_unusable(watch, "file: malformed")
        assert watch.parsed == [b"A|F", b"A|malformed"]

    @pytest.mark.parametrize("where", ["file", "folder"])
    def test_a_named_pipe_does_not_block(self, watch: Watch, where: str) -> None:
        place = watch.file if where == "file" else watch.folder / "b"
        place.unlink(missing_ok=True)
        os.mkfifo(place)
        assert_unusable(watch, f"{place}: is not a regular file")

    def test_a_folder_in_a_files_place(self, watch: Watch) -> None:
        watch.file.unlink()
        watch.file.mkdir()
        before = set(os.listdir("/proc/self/fd"))
        assert_unusable(watch, f"{watch.file}: is not a regular file")
        assert set(os.listdir("/proc/self/fd")) == before

    def test_one_that_changes_while_it_is_read(self, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
        """Half of one, half of the other."""
        watch.files.current()
        watch.write("a", b"first")
        opened = os.open

        def meanwhile(path: str, flags: int) -> int:
            descriptor = opened(path, flags)
            if path == str(watch.file):
                watch.write("a", b"second one")
            return descriptor

        with monkeypatch.context() as patch:
            patch.setattr(os, "open", meanwhile)
            with pytest.raises(OperatorFileUnusable, match="folder, file: changed during the read"):
                watch.files.current()
        assert watch.files.current() == b"second one|F"


class TestBounds:
    def test_a_file(self, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(operator_files, "MAXIMUM_BYTES", 4)
        watch.file.write_bytes(b"four")
        assert watch.files.current() == b"A|four"
        watch.file.write_bytes(b"fives")
        assert_unusable(watch, "holds more than 4 bytes")

    def test_the_files_of_a_folder_together(self, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(operator_files, "MAXIMUM_BYTES", 4)
        watch.write("b", b"bbb")
        assert watch.files.current() == b"Abbb|F"
        watch.write("c", b"c")
        assert_unusable(watch, f"{watch.folder} holds more than 4 bytes")

    def test_a_large_file_is_not_read_to_its_end(self, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
        """A sparse file costs its owner nothing."""
        with watch.file.open("wb") as file:
            file.truncate(1 << 40)
        assert_unusable(watch, "holds more than 4194304 bytes")

    def test_all_manufacturers_authorities_have_room(self, tmp_path: Path) -> None:
        folder = OperatorFolder("folder", str(tmp_path))
        for number in range(4096):
            (tmp_path / str(number)).touch()
        assert len(folder.paths()) == 4096
        (tmp_path / "more").touch()
        with pytest.raises(OperatorFileUnusable, match="holds more than 4096 files"):
            folder.paths()

    def test_the_number_of_files(self, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(operator_files, "MAXIMUM_FILES", 2)
        watch.write("b", b"B")
        assert watch.files.current() == b"AB|F"
        watch.write("c", b"C")
        assert_unusable(watch, f"{watch.folder} holds more than 2 files")


class TestLast:
    """For guesses."""

    def test_no_file_is_touched(self, watch: Watch) -> None:
        watch.files.current()
        watch.file.unlink()
        assert watch.files.last() == b"A|F"

    def test_before_the_first_look(self, watch: Watch) -> None:
        with pytest.raises(OperatorFileUnusable, match="not read yet"):
            watch.files.last()

    def test_a_malformed_one(self, watch: Watch) -> None:
        watch.file.write_bytes(b"malformed")
        assert_unusable(watch, "malformed")
        with pytest.raises(OperatorFileUnusable, match="malformed"):
            watch.files.last()


def test_an_absolute_path() -> None:
    assert absolute_path("/etc") == "/etc"
    for path in ("etc", "", "./etc", 7, None, ["/etc"], "/e\0tc"):
        with pytest.raises(ValueError, match="not an absolute path"):
            absolute_path(path)
