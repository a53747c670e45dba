"""Whose question it is, and what belongs to a connection."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from node_access import terminals
from node_access.control_groups import Gone, Hierarchy, NotAConnection, find_hierarchy
from node_access.machine import Machine, NotAsked
from node_access.processes import NoProcess, Processes
from node_access.terminals import is_among, pseudo_terminals
from node_access.values import Connection, Opens, ProcessIdentity
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.cpu_time import within_cpu_seconds
from tests.support.processes import wait_until
from tests.unit.node_access.made import (
    COMMAND,
    MONITOR,
    OUTSIDE,
    PATH,
    SHELL,
    UNIT,
    UNPRIVILEGED,
    Kernel,
    open_terminal,
)

TERMINAL = 136 << 8 | 5


@pytest.fixture
def kernel(tmp_path: Path) -> Kernel:
    made = Kernel(tmp_path)
    made.log_in()
    return made


def connection(kernel: Kernel) -> Connection:
    return kernel.machine.connection_of(ProcessIdentity(MONITOR, 11))


def test_a_principals_command_asks_for_its_connection(kernel: Kernel) -> None:
    found, unprivileged = kernel.machine.asking(COMMAND)
    assert (found.control_group, found.unit, found.monitor) == (PATH, UNIT, ProcessIdentity(MONITOR, 11))
    assert unprivileged == (ProcessIdentity(UNPRIVILEGED, 11),)


def test_a_connection_with_other_children_waits_for_none(kernel: Kernel) -> None:
    """It is not told apart which of them is sshd's. The session prolongs nothing."""
    kernel.start(SHELL, parent=MONITOR)
    assert kernel.machine.asking(COMMAND)[1] == ()


def test_a_connection_to_containers_is_one_and_says_so(kernel: Kernel) -> None:
    path = PATH.replace("node-access-ssh@", "node-access-containers-ssh@")
    lines = f"0::{path}\n"
    assert Hierarchy(Path("/"), "0::").connection_of(lines) == path
    assert Connection(path, 1, ProcessIdentity(MONITOR, 1)).opens is Opens.CONTAINERS
    assert Connection(PATH, 1, ProcessIdentity(MONITOR, 1)).opens is Opens.NODE


@pytest.mark.parametrize(
    "group",
    [
        "/",
        "/nodeaccess.slice/node-access-containers@1.service",
        "/system.slice/ssh.service",
        "/user.slice/node-access-ssh@1.service",
        "/nodeaccess.slice/other.service",
        f"{PATH}/deeper",
        f"/other{PATH}",
        "/nodeaccess.slice/node-access-ssh@.service",
    ],
)
def test_a_parent_in_no_connection_has_nothing_to_ask(kernel: Kernel, group: str) -> None:
    kernel.start(MONITOR, group=group)
    with pytest.raises(NotAsked):
        kernel.machine.asking(COMMAND)


def test_a_command_in_another_unit_than_its_parent(kernel: Kernel) -> None:
    kernel.connect(PATH.replace("@1-", "@2-"))
    kernel.start(COMMAND, parent=MONITOR, group=PATH.replace("@1-", "@2-"))
    with pytest.raises(NotAsked, match="another unit"):
        kernel.machine.asking(COMMAND)


def test_a_command_whose_number_came_again_meanwhile(kernel: Kernel) -> None:
    """Test 59: it has ended, and what is read next is about another process."""

    class Changing(Processes):
        def control_groups(self, pid: int) -> str:
            if pid == COMMAND:
                kernel.start(COMMAND, parent=MONITOR, started=99)
            return super().control_groups(pid)

    machine = Machine(Changing(kernel.root / "proc"), kernel.machine.hierarchy)
    with pytest.raises(NotAsked):
        machine.asking(COMMAND)


@pytest.mark.parametrize("pid", [COMMAND, MONITOR])
def test_a_process_that_has_ended_asks_nothing(kernel: Kernel, pid: int) -> None:
    kernel.end(pid)
    with pytest.raises(NotAsked):
        kernel.machine.asking(COMMAND)


def test_a_unit_that_is_gone_asks_nothing(kernel: Kernel) -> None:
    kernel.disconnect()
    with pytest.raises(NotAsked):
        kernel.machine.asking(COMMAND)


def test_a_number_that_came_again_is_another_process(kernel: Kernel) -> None:
    """Test 59."""
    first = ProcessIdentity(MONITOR, 11)
    assert kernel.machine.processes.runs(first)
    kernel.start(MONITOR, started=12)
    assert not kernel.machine.processes.runs(first)
    assert kernel.machine.processes.is_collected(first)
    with pytest.raises(NoProcess):
        kernel.machine.connection_of(first)


def test_a_zombie_does_not_run_and_is_not_collected(kernel: Kernel) -> None:
    zombie = kernel.start(UNPRIVILEGED, parent=MONITOR, state="Z")
    assert not kernel.machine.processes.runs(zombie)
    assert not kernel.machine.processes.is_collected(zombie)
    kernel.end(UNPRIVILEGED)
    assert kernel.machine.processes.is_collected(zombie)


def test_a_unit_that_came_again_is_not_killed(kernel: Kernel) -> None:
    """Test 59, for control groups."""
    found = connection(kernel)
    assert kernel.machine.exists(found)
    old = Connection(found.control_group, found.inode + 1, found.monitor)
    assert not kernel.machine.exists(old)
    kernel.machine.kill(old)
    assert not kernel.killed()
    assert kernel.machine.members(old) == ()
    kernel.machine.kill(found)
    assert kernel.killed()


def test_what_has_left(kernel: Kernel) -> None:
    """By what is seen: descent, terminal, memory, and SSH_CONNECTION."""
    shell = kernel.start(SHELL, parent=MONITOR, terminal=TERMINAL)
    (kernel.root / f"proc/{SHELL}/environ").write_text("A=b\0SSH_CONNECTION=10.0.0.2 40000 10.0.0.1 2222\0")
    for number, (parent, terminal) in enumerate([(SHELL, 0), (1, TERMINAL), (1, 0), (1, 0), (1, 0)]):
        kernel.start(OUTSIDE + number, group="/system.slice/x.service", parent=parent, terminal=terminal)
    (kernel.root / f"proc/{OUTSIDE + 3}/environ").write_text("SSH_CONNECTION=10.0.0.2 40000 10.0.0.1 2222\0")
    kernel.start(OUTSIDE + 10, parent=OUTSIDE, group="/")
    remembered = ProcessIdentity(OUTSIDE + 2, 11)
    seen = [remembered, ProcessIdentity(OUTSIDE + 4, 10)]
    found = kernel.machine.left(kernel.machine.trace(connection(kernel), seen))
    assert {one.process.identity.pid - OUTSIDE: one.is_attached for one in found} == {
        0: True,
        10: True,
        1: True,
        2: False,
        3: False,
    }
    assert shell in kernel.machine.members(connection(kernel))


def test_a_terminal_of_a_container_is_another_one(kernel: Kernel) -> None:
    """Each container has a devpts of its own: its first terminal has the number of the node's first terminal."""
    kernel.start(SHELL, parent=MONITOR, session=SHELL, terminal=TERMINAL)
    kernel.start(OUTSIDE, group="/kubepods/pod1/c", session=OUTSIDE, terminal=TERMINAL)
    assert kernel.machine.left(kernel.machine.trace(connection(kernel), [])) == []


def test_a_variable_that_names_another_connection(kernel: Kernel) -> None:
    """Anybody can set it. What another connection has is that one's, and what a member has says nothing."""
    second = PATH.replace("@1-", "@2-")
    kernel.connect(second)
    kernel.start(SHELL, parent=MONITOR)
    (kernel.root / f"proc/{SHELL}/environ").write_text("SSH_CONNECTION=\0")
    kernel.start(OUTSIDE, group=second)
    kernel.start(OUTSIDE + 1, group="/system.slice/x.service")
    kernel.start(OUTSIDE + 2, group="/system.slice/x.service")
    ours = "SSH_CONNECTION=10.0.0.2 40000 10.0.0.1 2222\0"
    for number, environment in enumerate([ours, "SSH_CONNECTION=\0", ours]):
        (kernel.root / f"proc/{OUTSIDE + number}/environ").write_text(environment)
    found = kernel.machine.left(kernel.machine.trace(connection(kernel), []))
    assert [one.process.identity.pid - OUTSIDE for one in found] == [2]


@pytest.mark.parametrize(
    ("unit", "variable"),
    [
        (UNIT, b"\0SSH_CONNECTION=10.0.0.2 40000 10.0.0.1 2222\0"),
        (
            "node-access-ssh@12-2001:db8::1:2222-2001:db8::2:40000.service",
            b"\0SSH_CONNECTION=2001:db8::2 40000 2001:db8::1 2222\0",
        ),
        ("node-access-ssh@3-1-0.service", b""),
    ],
)
def test_what_sshd_tells_a_connection_of_itself(kernel: Kernel, unit: str, variable: bytes) -> None:
    made = Connection(f"/nodeaccess.slice/{unit}", 1, ProcessIdentity(MONITOR, 11))
    assert kernel.machine.trace(made, []).variable == variable


def test_environments_of_nothing_but_ends(kernel: Kernel) -> None:
    """A process writes what it likes into its own; thousands with 256 KiB of NULs delayed the kill for minutes."""
    for number in range(100):
        kernel.start(OUTSIDE + number, group=PATH if number % 2 else "/system.slice/x.service")
        (kernel.root / f"proc/{OUTSIDE + number}/environ").write_bytes(bytes(256 * 1024))
    (kernel.root / f"proc/{OUTSIDE + 2}/environ").write_bytes(b"XSSH_CONNECTION=a\0SSH_CONNECTION=10.0.0.23\0")
    kernel.start(SHELL)
    (kernel.root / f"proc/{SHELL}/environ").write_bytes(b"SSH_CONNECTION=10.0.0.2")
    traced = connection(kernel)
    assert within_cpu_seconds(0.4, lambda: kernel.machine.left(kernel.machine.trace(traced, []))) == []


def test_the_connections(kernel: Kernel) -> None:
    kernel.connect("/nodeaccess.slice/other.service")
    assert kernel.machine.hierarchy.connections() == [PATH]
    assert Hierarchy(kernel.root / "nothing", "0::").connections() == []


@pytest.mark.parametrize(
    ("files", "root", "mark"),
    [
        (["cgroup.controllers"], ".", "0::"),
        (["unified/cgroup.controllers", "systemd/tasks"], "unified", "0::"),
        (["systemd/tasks"], "systemd", ":name=systemd:"),
    ],
    ids=["version 2", "both", "version 1"],
)
def test_where_systemd_has_its_units(tmp_path: Path, files: list[str], root: str, mark: str) -> None:
    for file in files:
        (tmp_path / file).parent.mkdir(exist_ok=True)
        (tmp_path / file).touch()
    assert find_hierarchy(tmp_path) == Hierarchy(tmp_path / root, mark)


def test_the_line_of_version_1() -> None:
    lines = f"10:pids:/x\n1:name=systemd:{PATH}\n0::/elsewhere\n"
    assert Hierarchy(Path("/"), ":name=systemd:").connection_of(lines) == PATH
    with pytest.raises(NotAConnection):
        Hierarchy(Path("/"), "0::").connection_of(lines)


def test_without_a_switch_processes_are_killed_one_by_one(kernel: Kernel) -> None:
    """Version 1, with a real process. Its list is a file here, so a thread takes the process out once it has ended."""
    (kernel.root / f"cgroup{PATH}/cgroup.kill").unlink()
    members = kernel.root / f"cgroup{PATH}/cgroup.procs"
    with subprocess.Popen(["sleep", "60"]) as process:
        members.write_text(f"{process.pid}\n")

        def take_out() -> None:
            process.wait()
            members.write_text("")

        waiter = threading.Thread(target=take_out)
        waiter.start()
        kernel.machine.kill(connection(kernel))
        waiter.join(timeout=30)
        assert process.poll() == -signal.SIGKILL
    assert members.read_text() == ""


def test_a_control_group_that_is_gone() -> None:
    with pytest.raises(Gone):
        Hierarchy(Path("/nonexistent"), "0::").kill(PATH, 1)


def test_real_processes() -> None:
    """The numbers are where proc(5) says."""
    with subprocess.Popen(["sleep", "60"]) as process:
        found = Processes().find(process.pid)
        assert found.parent == os.getpid()
        assert found.session == os.getsid(process.pid)
        assert Processes().runs(found.identity)
        assert any(one.identity == found.identity for one in Processes().all())
        # It is there a moment after exec has closed the descriptors for which Popen waits.
        wait_until(lambda: b"\0PATH=" in Processes().environment(process.pid), "environment")
        Machine().end(ProcessIdentity(process.pid, found.identity.started + 1))
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.2)
        Machine().end(found.identity)
        assert process.wait() == -signal.SIGKILL


def test_a_message_is_for_the_node_s_own_terminals(kernel: Kernel) -> None:
    """A process of another instance of devpts has a terminal of the same number, which is another person's here."""
    with open_terminal() as mine, open_terminal() as other:
        kernel.start(SHELL, parent=MONITOR, terminal=mine.device, stream=mine.path)
        kernel.start(OUTSIDE, terminal=other.device)
        kernel.start(OUTSIDE + 1, terminal=other.device, stream="/nonexistent/pts/1")
        kernel.start(OUTSIDE + 2, terminal=other.device, stream=mine.path)
        kernel.start(OUTSIDE + 3, stream=other.path)
        kernel.machine.tell(connection(kernel), "It ends.")
        assert mine.shown() == ["It ends."]
        assert other.shown() == []


def test_a_device_counts_in_the_node_s_instance_of_devpts_alone() -> None:
    with open_terminal() as terminal:
        found = os.stat(terminal.path)
        assert is_among(terminal.device, [os.stat("/dev/null"), found], found.st_dev)
        assert not is_among(terminal.device, [found], found.st_dev + 1)
        assert not is_among(terminal.device + 1, [found], found.st_dev)
        assert not is_among(terminal.device + (1 << 8), [found], found.st_dev)
        file = os.stat_result((stat.S_IFREG, *tuple(found)[1:]), {"st_rdev": found.st_rdev})
        assert not is_among(terminal.device, [file], found.st_dev)


def test_what_is_no_terminal_gets_no_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no descriptor stays open."""
    if os.geteuid() != 0:
        skip_or_fail(MissingPart("devices need root"))
    monkeypatch.setattr(terminals, "FOLDER", tmp_path)
    (tmp_path / "1").touch()
    os.mknod(tmp_path / "2", stat.S_IFCHR | 0o600, os.stat("/dev/full").st_rdev)
    written: list[int] = []
    monkeypatch.setattr(os, "write", lambda opened, _: written.append(opened))
    before = len(os.listdir("/proc/self/fd"))
    for number in range(4):
        terminals.write(number, "It ends.")
    assert written == []
    assert len(os.listdir("/proc/self/fd")) == before


def test_other_streams_are_not_even_looked_at(kernel: Kernel, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system of the user's may never answer."""
    with open_terminal() as terminal:
        kernel.start(SHELL, parent=MONITOR, terminal=terminal.device, stream="/mnt/hangs")
        looked: list[str] = []
        real = os.stat

        def noted(path: Any, **options: Any) -> os.stat_result:
            looked.append(str(path))
            return real(path, **options)

        monkeypatch.setattr(os, "stat", noted)
        kernel.machine.tell(connection(kernel), "It ends.")
        assert not [path for path in looked if "/fd/" in path]


@pytest.mark.parametrize(
    ("devices", "numbers"),
    [
        ([136 << 8 | 5], [5]),
        ([136 << 8 | 5, 136 << 8 | 5, 136 << 8], [0, 5]),
        ([136 << 8 | 0x34 | 0x12 << 20], [0x1234]),
        ([0, 4 << 8 | 1, 5 << 8], []),
    ],
)
def test_terminals(devices: list[int], numbers: list[int]) -> None:
    assert pseudo_terminals(devices) == numbers
