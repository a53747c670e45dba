"""What is hostile has bounds: sizes of files, counts of files, and lengths of chains."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from attestors.wire.ssh.certificate import MAXIMUM_CERTIFICATE_BYTES
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.signatures import public_key_of
from node_access.control_groups import find_hierarchy
from node_access.node_files import NodeFiles
from node_access.processes import Processes
from node_access.records import Records
from node_access.requests import MAXIMUM_REQUEST_BYTES
from node_access.values import ProcessIdentity
from tests.unit.node_access.made import BREAK_GLASS, MONITOR, OUTSIDE, SHELL, Kernel, session

ELSEWHERE = "/system.slice/x.service"


@pytest.mark.parametrize(("size", "is_read"), [(64 * 1024, True), (64 * 1024 + 1, False)])
def test_a_file_of_authorities(tmp_path: Path, size: int, is_read: bool) -> None:
    line = f"{key_line(public_key_of(BREAK_GLASS))}\n#"
    (tmp_path / "break_glass_ca_keys").write_text(line.ljust(size, "x"))
    assert bool(NodeFiles(tmp_path).node().break_glass) is is_read


@pytest.mark.parametrize(("size", "is_read"), [(1024 * 1024, True), (1024 * 1024 + 1, False)])
def test_a_record(tmp_path: Path, size: int, is_read: bool) -> None:
    records = Records(tmp_path, tmp_path / "fallback")
    records.save(session())
    [file] = tmp_path.iterdir()
    document = {**json.loads(file.read_text()), "more": ""}
    document["more"] = "x" * (size - len(json.dumps(document)))
    file.write_text(json.dumps(document))
    assert file.stat().st_size == size
    sessions, unusable = records.load()
    assert (len(sessions), len(unusable)) == (int(is_read), int(not is_read))


def test_logins_without_the_daemon(tmp_path: Path) -> None:
    for number in range(257):
        (tmp_path / f"{number + 1}-1").touch()
    records = Records(tmp_path / "records", tmp_path)
    assert [len(records.take_fallback_logins()) for _ in range(3)] == [256, 1, 0]


def test_an_environment(tmp_path: Path) -> None:
    kernel = Kernel(tmp_path)
    kernel.start(SHELL)
    (tmp_path / f"proc/{SHELL}/environ").write_bytes(b"x" * (256 * 1024 + 1))
    assert Processes(tmp_path / "proc").environment(SHELL) == b"\0" + b"x" * (256 * 1024) + b"\0"


def test_ancestors(tmp_path: Path) -> None:
    """Of a process that left, 64 are looked at. The first one's parent is a member."""
    kernel = Kernel(tmp_path)
    kernel.log_in()
    for number in range(65):
        kernel.start(OUTSIDE + number, parent=OUTSIDE + number - 1 if number else MONITOR, group=ELSEWHERE)
    found = kernel.machine.connection_of(ProcessIdentity(MONITOR, 11))
    attached = {identity.pid - OUTSIDE for identity in kernel.machine.trace(found, []).attached}
    assert attached == set(range(64))


def test_a_question() -> None:
    """A certificate in base64 takes a third more than the certificate."""
    assert MAXIMUM_REQUEST_BYTES == 2 * MAXIMUM_CERTIFICATE_BYTES


def test_control_groups_are_where_every_system_has_them() -> None:
    assert find_hierarchy() == find_hierarchy(Path("/sys/fs/cgroup"))
