"""What is read on a node: below a folder that looks like one."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Final

import pytest

from authenticator.flow import other_ways_in
from authenticator.flow.other_ways_in import read_node
from authenticator.model.other_ways_in import KeyFile, ListeningSocket, NodeFacts, Process
from tests.unit.authenticator.model.test_other_ways_in import HEADER, IPV4, IPV6, STOCK

PASSWD: Final = (
    "root:x:0:0:root:/root:/bin/bash\n"
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
    "again:x:1:1::/root:/bin/sh\n"
    "relative:x:1:1::root:/bin/sh\n"
    "ubuntu:x:1000:1000::/home/ubuntu/:/bin/bash\n"
    "broken\n"
)


def write(root: Path, path: str, text: str) -> Path:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def add_process(root: Path, number: int, name: str, *links: str) -> Path:
    folder = root / "proc" / str(number)
    write(folder, "comm", f"{name}\n")
    write(folder, "cgroup", STOCK)
    (folder / "fd").mkdir()
    for descriptor, link in enumerate(links):
        os.symlink(link, folder / "fd" / str(descriptor))
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write(tmp_path, "proc/net/tcp", HEADER + IPV4)
    write(tmp_path, "proc/net/tcp6", HEADER + IPV6)
    write(tmp_path, "etc/passwd", PASSWD)
    return tmp_path


def test_a_node_with_nothing(root: Path) -> None:
    add_process(root, 7, "kubelet", "socket:[635]")
    assert read_node(root) == NodeFacts(sockets=(ListeningSocket(22, 635), ListeningSocket(2222, 636)))


def test_a_node_with_everything(root: Path) -> None:
    add_process(root, 7, "sshd", "/dev/null", "socket:[635]", "socket:[9]", "pipe:[4]")
    units = root / "etc/systemd/system/multi-user.target.wants"
    units.mkdir(parents=True)
    os.symlink("/lib/systemd/system/ssh.service", units / "ssh.service")
    os.symlink("/lib/systemd/system/cron.service", units / "cron.service")
    write(root, "etc/systemd/system/ssh.socket", "not enabled by this")
    write(root, "root/.ssh/authorized_keys", "ssh-ed25519 A\n# b\n")
    write(root, "home/ubuntu/.ssh/authorized_keys2", "k\nl\n")
    found = read_node(root)
    assert found.processes == (Process("sshd", STOCK, frozenset({635, 9})),)
    assert found.enabled_units == ("ssh.service",)
    assert found.key_files == (
        KeyFile("/root/.ssh/authorized_keys", 1),
        KeyFile("/home/ubuntu/.ssh/authorized_keys2", 2),
    )
    assert found.unread == ()


def test_a_process_that_ends_meanwhile(root: Path) -> None:
    (add_process(root, 7, "sshd", "socket:[635]") / "cgroup").unlink()
    (root / "proc/8").mkdir()
    assert read_node(root).processes == ()
    assert read_node(root).unread == ()


def test_without_ipv6(root: Path) -> None:
    (root / "proc/net/tcp6").unlink()
    assert read_node(root).unread == ()


def test_what_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "root/.ssh").mkdir(parents=True)
    os.mkfifo(tmp_path / "root/.ssh/authorized_keys")
    write(tmp_path, "root/.ssh/authorized_keys2", "12345")
    monkeypatch.setattr(other_ways_in, "_MAXIMUM_FILE_BYTES", 4)
    assert read_node(tmp_path).unread == (
        "/proc/net/tcp does not exist",
        "/proc cannot be read: No such file or directory",
        "/etc/passwd cannot be read: No such file or directory",
        "/root/.ssh/authorized_keys cannot be read: it is no file",
        "/root/.ssh/authorized_keys2 cannot be read: larger than 4 bytes",
    )


def test_what_is_looked_at_is_what_is_opened(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who exchanges the file at the right moment has no device opened by root."""
    keys = write(root, "root/.ssh/authorized_keys", "")
    device = write(root, "root/device", "ssh-ed25519 AAAA\n")
    looked: list[int] = []

    def is_file(mode: int) -> bool:
        if not looked:
            device.replace(keys)
        looked.append(mode)
        return True

    monkeypatch.setattr(stat, "S_ISREG", is_file)
    assert KeyFile("/root/.ssh/authorized_keys", 0) in read_node(root).key_files
    assert looked


def test_homes_are_bounded_and_hostile(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(root, "etc/passwd", "a:x:0:0::/\0:/bin/sh\nb:x:0:0::/home/\x1b[2J:/bin/sh\nc:x:0:0::/root:/bin/sh\n")
    monkeypatch.setattr(other_ways_in, "MAXIMUM_HOMES", 2)
    found = read_node(root).unread
    assert "/etc/passwd has more than 2 home folders" in found
    assert all(one.isprintable() for one in found)


def test_this_machine() -> None:
    """Linux' own tables: some test or service listens on some port."""
    found = read_node(Path("/"))
    assert not [one for one in found.unread if "/proc/net" in one]
