"""The tools of a session, with the kernel's own file systems."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from node_access.containers import kernel
from node_access.containers.tools import ACCOUNTS, BUSYBOX, SFTP_SERVER, Mounts, NoTools, Tools, ToolSet, load_tools
from tests.support.binaries import MissingPart, skip_or_fail

pytestmark = pytest.mark.slow
INSTALL = "run tests/provision/provision.sh containers"


@pytest.fixture(scope="module")
def tools() -> Tools:
    for path in (BUSYBOX, SFTP_SERVER, ACCOUNTS):
        if not path.exists():
            skip_or_fail(MissingPart(f"{path} is not installed: {INSTALL}"))
    return load_tools()


@pytest.fixture
def mount() -> Iterator[int]:
    if os.geteuid() != 0:
        skip_or_fail(MissingPart("a file system needs root"))
    made = ToolSet({"program": b"content"}, {"link": "program"}).mounted()
    yield made
    os.close(made)


def test_it_has_the_files_and_is_mounted_nowhere(mount: int) -> None:
    assert sorted(os.listdir(f"/proc/self/fd/{mount}/")) == ["link", "program"]
    assert sorted(os.listdir(f"/proc/self/fd/{mount}/..")) == ["link", "program"]
    assert Path(f"/proc/self/fd/{mount}/link").read_bytes() == b"content"
    found = os.stat("program", dir_fd=mount)
    assert (found.st_mode & 0o7777, found.st_uid) == (0o555, 0)
    device = f"{os.major(found.st_dev)}:{os.minor(found.st_dev)} "
    assert device not in Path("/proc/self/mountinfo").read_text()


def test_set_user_ids_and_devices_do_not_count_in_it(mount: int) -> None:
    flags = os.statvfs(f"/proc/self/fd/{mount}/").f_flag
    assert flags & os.ST_NOSUID
    assert flags & os.ST_NODEV
    assert flags & os.ST_RDONLY


def test_a_mount_that_was_made_writable_again_still_is_not(mount: int) -> None:
    """As a process with CAP_SYS_ADMIN in a user namespace of its own can do with the descriptor."""
    kernel.set_mount_attributes(mount, 0, kernel.MOUNT_READ_ONLY)
    for name, flags in (("program", os.O_WRONLY), ("new", os.O_WRONLY | os.O_CREAT)):
        with pytest.raises(OSError, match="Read-only"):
            os.open(name, flags, dir_fd=mount)
    with pytest.raises(OSError, match="Read-only"):
        os.chmod("program", 0o700, dir_fd=mount)


def test_each_session_has_its_own(tools: Tools) -> None:
    if os.geteuid() != 0:
        skip_or_fail(MissingPart("a file system needs root"))
    first, second = tools.shell.mounted(), tools.shell.mounted()
    try:
        assert os.stat("busybox", dir_fd=first).st_dev != os.stat("busybox", dir_fd=second).st_dev
    finally:
        os.close(first)
        os.close(second)


def test_what_was_made_before_goes_to_one_session_alone(tools: Tools) -> None:
    if os.geteuid() != 0:
        skip_or_fail(MissingPart("a file system needs root"))
    before = len(os.listdir("/proc/self/fd"))
    mounts = Mounts(tools.shell)
    mounts.prepare()
    assert len(os.listdir("/proc/self/fd")) == before + 1
    taken = [mounts.take(), mounts.take()]
    try:
        assert len(os.listdir("/proc/self/fd")) == before + 2
        assert os.fstat(taken[0]).st_dev != os.fstat(taken[1]).st_dev
    finally:
        for one in taken:
            os.close(one)
    mounts.prepare()
    mounts.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_nodes_programs_are_found(tools: Tools) -> None:
    assert {"sh", "ls", "tar", "vi"} <= tools.shell.links.keys()
    assert {"sftp-server", "accounts.so", "ld.so", "libc.so.6"} == tools.sftp.files.keys()
    assert b"user:x:65532:65532" in tools.sftp_for(65532, 65532).files["passwd"]


def test_a_busybox_with_libraries_is_refused(tmp_path: Path, tools: Tools) -> None:
    with pytest.raises(NoTools, match="busybox-static"):
        load_tools(busybox=Path("/bin/true"))
    with pytest.raises(NoTools, match="busybox-static"):
        load_tools(busybox=tmp_path / "missing")
    (tmp_path / "text").write_text("#!/bin/sh\n")
    with pytest.raises(NoTools, match="64 bits"):
        load_tools(busybox=tmp_path / "text")
    with pytest.raises(NoTools, match="openssh-sftp-server"):
        load_tools(sftp_server=tmp_path / "missing")


def test_the_sftp_server_runs_from_its_own_files_for_a_user_without_a_name(tools: Tools) -> None:
    if os.geteuid() != 0:
        skip_or_fail(MissingPart("a file system needs root"))
    mount = tools.sftp_for(65532, 65532).mounted()
    command = [word.replace("/proc/self/fd/3", f"/proc/self/fd/{mount}") for word in tools.sftp_arguments()]
    environment = dict(one.replace("/fd/3", f"/fd/{mount}").split("=", 1) for one in tools.sftp_environment())
    how: dict[str, Any] = {"user": 65532, "group": 65532, "extra_groups": [], "env": environment}
    try:
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(mount,), **how
        ) as server:
            assert server.stdin is not None
            assert server.stdout is not None
            server.stdin.write(b"\0\0\0\5\1\0\0\0\3")
            server.stdin.flush()
            assert server.stdout.read(9)[4:] == b"\2\0\0\0\3"
    finally:
        os.close(mount)
