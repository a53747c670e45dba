from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from authenticator.store import files
from authenticator.store.files import read_bounded, remove, wipe, write_atomically


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file.pem"


@pytest.fixture
def open_umask() -> Iterator[None]:
    former = os.umask(0)
    yield
    os.umask(former)


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o7777


def failing(*_arguments: Any, **_options: Any) -> NoReturn:
    raise OSError(28, "No space left on device")


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


# Writing


def test_a_file_is_written_and_replaced(path: Path) -> None:
    write_atomically(path, "one\n")
    write_atomically(path, "two\r\n\u00e4")
    assert path.read_bytes() == "two\r\n\u00e4".encode()
    assert names(path.parent) == ["file.pem"]


@pytest.mark.usefixtures("open_umask")
@pytest.mark.parametrize("umask", [0, 0o022, 0o077, 0o277, 0o777])
def test_only_its_owner_reads_it_whatever_the_umask(path: Path, umask: int) -> None:
    os.umask(umask)
    write_atomically(path, "secret")
    assert mode(path) == 0o600


@pytest.mark.usefixtures("open_umask")
def test_other_users_cannot_read_it_during_the_write(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(os, "fchmod", lambda descriptor, _mode: seen.append(os.fstat(descriptor).st_mode & 0o7777))
    write_atomically(path, "secret")
    assert seen == [0o600]


def test_a_former_loose_mode_is_gone(path: Path) -> None:
    path.write_text("old")
    path.chmod(0o644)
    write_atomically(path, "new")
    assert mode(path) == 0o600


def test_another_mode(path: Path) -> None:
    write_atomically(path, "public", mode=0o644)
    assert mode(path) == 0o644


@pytest.mark.parametrize("step", ["replace", "fsync", "fchmod"])
def test_a_failure_leaves_the_old_content_and_nothing_beside_it(
    path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    path.write_text("old")
    with monkeypatch.context() as broken:
        broken.setattr(os, step, failing)
        with pytest.raises(OSError, match="No space left"):
            write_atomically(path, "new")
    assert path.read_text() == "old"
    assert names(path.parent) == ["file.pem"]


def test_even_an_interruption_leaves_nothing_beside_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_arguments: Any) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, "new")
    assert names(path.parent) == []


def test_the_content_is_durable_before_it_is_in_its_place_and_the_folder_after(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(descriptor: int) -> None:
        name = Path(f"/proc/self/fd/{descriptor}").readlink().name
        size = os.fstat(descriptor).st_size if name.endswith(".partial") else 0
        steps.append(f"fsync {name} {size}")
        fsync(descriptor)

    def noted_replace(source: Path, target: Path) -> None:
        steps.append(f"replace {source.name} {target.name}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    write_atomically(path, "new")
    assert steps == ["fsync .file.pem.partial 3", "replace .file.pem.partial file.pem", f"fsync {path.parent.name} 0"]


def test_what_a_crash_left_beside_it_is_removed(path: Path) -> None:
    path.with_name(".file.pem.partial").write_text("half a k")
    write_atomically(path, "new")
    assert (path.read_text(), names(path.parent)) == ("new", ["file.pem"])


def test_a_link_beside_it_is_not_followed(path: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    path.with_name(".file.pem.partial").symlink_to(victim)
    write_atomically(path, "new")
    assert (victim.read_text(), path.read_text()) == ("untouched", "new")


def test_a_link_that_appears_beside_it_at_the_last_moment_is_refused(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim = tmp_path / "victim"
    beside = path.with_name(".file.pem.partial")
    beside.symlink_to(victim)
    monkeypatch.setattr(Path, "unlink", lambda _self: None)
    with pytest.raises(FileExistsError):
        write_atomically(path, "new")
    assert not victim.exists()


def test_a_link_in_its_place_is_replaced_and_not_followed(path: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    path.symlink_to(victim)
    write_atomically(path, "new")
    assert not path.is_symlink()
    assert (victim.read_text(), path.read_text()) == ("untouched", "new")


def test_nothing_is_left_open(path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    write_atomically(path, "one")
    read_bounded(path, 9)
    wipe(path)
    assert len(os.listdir("/proc/self/fd")) == before


# Reading


def test_reading_is_bounded(path: Path) -> None:
    path.write_bytes(b"12345")
    assert read_bounded(path, 5) == b"12345"
    with pytest.raises(OSError, match="larger than 4 bytes") as refused:
        read_bounded(path, 4)
    assert refused.value.filename == str(path)


def test_reading_says_what_is_missing(path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_bounded(path, 4)


# Removing


def test_removing_is_durable_and_may_be_done_twice(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_text("x")
    synced: list[Path] = []
    monkeypatch.setattr(files, "_sync_folder", synced.append)
    remove(path)
    remove(path)
    assert not path.exists()
    assert synced == [path.parent]


def test_a_wiped_file_is_zeros_before_it_is_gone(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(b"secret" * 10)
    steps: list[str] = []
    seen: list[bytes] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        steps.append(f"fsync {set(path.read_bytes()) if path.exists() else ''}")
        fsync(descriptor)

    def removing(one: Path) -> None:
        steps.append("remove")
        seen.append(one.read_bytes())
        remove(one)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(files, "remove", removing)
    wipe(path)
    assert seen == [bytes(60)]
    assert steps[:2] == ["fsync {0}", "remove"]
    assert not path.exists()


def test_the_very_blocks_are_overwritten(path: Path, tmp_path: Path) -> None:
    """Seen through a second name of the same file, which outlives the first."""
    path.write_bytes(b"secret")
    second = tmp_path / "second"
    second.hardlink_to(path)
    wipe(path)
    assert second.read_bytes() == bytes(6)


def test_what_a_crash_left_beside_it_is_wiped_too(path: Path, tmp_path: Path) -> None:
    path.with_name(".file.pem.partial").write_bytes(b"sec")
    second = tmp_path / "second"
    second.hardlink_to(path.with_name(".file.pem.partial"))
    wipe(path)
    assert second.read_bytes() == bytes(3)
    assert names(path.parent) == ["second"]


def test_a_file_that_is_gone_is_wiped(path: Path) -> None:
    wipe(path)
    assert names(path.parent) == []


def test_wiping_follows_no_link(path: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")
    path.symlink_to(victim)
    with pytest.raises(OSError, match="symbolic links"):
        wipe(path)
    assert victim.read_text() == "untouched"


def test_a_file_that_does_not_pass_its_check_is_not_in_place(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_atomically(path, b"good\xff")

    def check(new: Path) -> None:
        assert new.read_bytes() == b"bad"
        raise ValueError("not this one")

    with pytest.raises(ValueError, match="not this one"):
        write_atomically(path, b"bad", check=check)
    assert path.read_bytes() == b"good\xff"
    assert [one.name for one in tmp_path.iterdir()] == ["file"]
