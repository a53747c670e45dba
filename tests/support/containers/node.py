"""A node: processes, mounts and network of its own on this machine, with the paths that every node has.

In it ``/run``, ``/var/lib`` and ``/var/log`` are empty folders, so that containerd and the kubelet use their default
paths, and several nodes do not meet. The rest of the file system is this machine's. Everything in the node ends with
its first process, which ends with this process; if this process is killed, empty control groups are left.
"""

from __future__ import annotations

import contextlib
import os
import random
import secrets
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.deploy.running_machine import TUNABLES
from tests.support.binaries import MissingPart
from tests.support.closing import ClosedAtTheEnd
from tests.support.processes import Program, ProgramFailed, Programs, wait_until

_OWN_FOLDERS: Final = ("run", "var/lib", "var/log")
_COMMAND_SECONDS: Final = 120
_END_SECONDS: Final = 10
_NAMESPACES: Final = ("mnt", "pid", "net")
_INTERFACE: Final = "eth0"
_RANDOM: Final = random.SystemRandom()
_ATTEMPTS: Final = 50


@dataclass(frozen=True, slots=True)
class NodeNetwork:
    """The addresses of the node with this number, of the network for benchmarks (RFC 2544): nothing else uses it."""

    number: int

    @property
    def link(self) -> str:
        """This machine's end of the cable to the node."""
        return f"na-node-{self.number}"

    @property
    def host_address(self) -> str:
        """This machine, as the node sees it."""
        return f"198.18.{self.number}.1"

    @property
    def address(self) -> str:
        """The node."""
        return f"198.18.{self.number}.2"

    @property
    def pods(self) -> str:
        """The network of its Pods; this machine has a route to it."""
        return f"198.19.{self.number}.0/24"


class LeftBehind(AssertionError):
    """Something of a node outlived it; the message names what."""


class Node(ClosedAtTheEnd):
    """A node without programs; a context manager that ends it.

    ``programs`` are those that run in it, ``folder`` is a temporary one of this machine, and ``name`` is its host name.

    Raises:
        MissingPart: the tests do not run as root, or the machine allows no namespaces.
    """

    def __init__(self) -> None:
        if os.geteuid() != 0:
            raise MissingPart("a node with containers needs root")
        self.programs = Programs("node-attestation-node-")
        self.process_id = 0
        """Of the node's first process, as this machine sees it."""
        self._namespaces: Mapping[str, int] = {}
        """Their names, and open files of them: without those, the kernel gives a name again once its namespace ends."""
        self._link = ""
        self._is_ended = False
        with self.closed_on_failure():
            self.folder = self.programs.folder
            self.name = f"node-{secrets.token_hex(4)}"
            self.control_group = f"node-attestation-{self.name}"
            """Name of the control group of all its Pods, in every hierarchy."""
            for hierarchy in _control_group_hierarchies():
                (hierarchy / self.control_group).mkdir()
            self._start()
            self.network = self._connect()

    # For tests

    def path(self, path: str) -> Path:
        """A path of the node, as this machine sees it. Absolute symbolic links there lead elsewhere."""
        return Path(f"/proc/{self.process_id}/root{path}")

    def inside(self, *command: str | Path) -> list[str]:
        """The command that runs this one in the node."""
        own = ("--mount", "--pid", "--uts", "--net", "--root", "--wd")
        return ["nsenter", f"--target={self.process_id}", *own, *map(str, command)]

    def start(self, name: str, command: Sequence[str | Path], environment: Mapping[str, str] | None = None) -> Program:
        """Start a program in the node; it ends with the node. Its log is ``NAME.log`` in ``folder``."""
        return self.programs.start(name, self.inside(*command), environment)

    def run(
        self, *command: str | Path, standard_input: bytes = b"", timeout: float = _COMMAND_SECONDS
    ) -> subprocess.CompletedProcess[bytes]:
        """Run a program in the node until it ends."""
        return subprocess.run(
            self.inside(*command), input=standard_input, capture_output=True, check=False, timeout=timeout
        )

    def checked(self, *command: str | Path) -> str:
        """The output of a program that succeeds. Raises ``ProgramFailed`` with what it said."""
        return _checked(self.inside(*command))

    def close(self) -> None:
        """End the node. Raises ``LeftBehind``, which may be closed again, if something is left."""
        if not self._is_ended:
            self._is_ended = True
            if self.process_id:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.process_id, signal.SIGKILL)
            self.programs.close()
        try:
            wait_until(lambda: not any(self._processes()), "no process of the node is left", _END_SECONDS)
            self._forget_namespaces()
            wait_until(lambda: not self._remains(), "nothing of the node is left", _END_SECONDS)
        except TimeoutError:
            raise LeftBehind("\n".join(self._remains())) from None

    # Start and end

    def _start(self) -> None:
        namespaces = ("--mount", "--pid", "--mount-proc", "--net", "--uts", "--ipc", "--fork", "--kill-child")
        holder = self.programs.start(
            "node", ["unshare", *namespaces, "/bin/sh", "-ec", _script(self.folder, self.name)]
        )
        try:
            holder.wait_ready((self.folder / "ready").exists)
        except ProgramFailed as failure:
            raise MissingPart(f"no namespaces for a node: {' '.join(str(failure).split())}") from None
        [first] = Path(f"/proc/{holder.process.pid}/task/{holder.process.pid}/children").read_text().split()
        self.process_id = int(first)
        folder = Path("/proc", first, "ns")
        self._namespaces = {os.readlink(folder / kind): os.open(folder / kind, os.O_RDONLY) for kind in _NAMESPACES}

    def _forget_namespaces(self) -> None:
        """The network interface and the mounts end with them, and other nodes may have their names."""
        namespaces, self._namespaces = self._namespaces, {}
        for opened in namespaces.values():
            os.close(opened)

    def _connect(self) -> NodeNetwork:
        """Lay a cable between this machine and the node. Its name is the lock of the node's number."""
        for _ in range(_ATTEMPTS):
            network = NodeNetwork(_RANDOM.randrange(1, 255))
            ends = ["link", "add", network.link, "type", "veth"]
            peer = ["peer", "name", _INTERFACE, "netns", str(self.process_id)]
            done = subprocess.run(["ip", *ends, *peer], capture_output=True, text=True, check=False, timeout=30)
            if done.returncode == 0:
                break
            if "File exists" not in done.stderr:
                raise MissingPart(f"no network for a node: {done.stderr.strip()}")
        else:
            raise ProgramFailed(f"{_ATTEMPTS} numbers of nodes are taken: see `ip link`")
        self._link = network.link
        host, node = network.host_address, network.address
        _checked(["ip", "address", "add", f"{host}/30", "dev", network.link])
        _checked(["ip", "link", "set", network.link, "up"])
        self.checked("ip", "link", "set", "lo", "up")
        self.checked("ip", "address", "add", f"{node}/30", "dev", _INTERFACE)
        self.checked("ip", "link", "set", _INTERFACE, "up")
        self.checked("ip", "route", "add", "default", "via", host)
        _checked(["ip", "route", "add", network.pods, "via", node])
        return network

    def _remains(self) -> list[str]:
        """What is there of a node that has ended, after removing its control groups, which are empty by then."""
        found = [f"process {pid}: {command}" for pid, command in self._processes()]
        if not found:
            groups = [hierarchy / self.control_group for hierarchy in _control_group_hierarchies()]
            found += [f"control group {group}" for group in groups if not _remove(group)]
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
        found += [f"mount {line.split()[4]}" for line in mounts if str(self.folder) in line]
        if self._link and Path("/sys/class/net", self._link).exists():
            found.append(f"network interface {self._link}")
        if self.folder.exists():
            found.append(f"folder {self.folder}")
        return found

    def _processes(self) -> Iterator[tuple[int, str]]:
        """Those in one of its namespaces, and those in one of its control groups."""
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                own = {os.readlink(folder / "ns" / kind) for kind in _NAMESPACES}
                if own & self._namespaces.keys() or f"/{self.control_group}" in (folder / "cgroup").read_text():
                    yield int(folder.name), (folder / "cmdline").read_text(errors="replace").replace("\0", " ")


def _script(folder: Path, name: str) -> str:
    """What the node's first process does before it only waits."""
    node = shlex.quote(str(folder / "node"))
    lines = [f"hostname {name}"]
    for own in _OWN_FOLDERS:
        lines += [f"mkdir -p {node}/{own}", f"mount --bind {node}/{own} /{own}"]
    # A kubelet sets them, and the kernel is this machine's.
    for number, tunable in enumerate(TUNABLES):
        lines += [f"cat /proc/sys/{tunable} > {node}/{number}", f"mount --bind {node}/{number} /proc/sys/{tunable}"]
    # The parent of orphans. The kernel reaps them, because it ignores SIGCHLD.
    lines += ["trap '' CHLD", f"touch {shlex.quote(str(folder / 'ready'))}", "exec sleep infinity"]
    return "\n".join(lines)


def _control_group_hierarchies() -> list[Path]:
    """Where they are mounted: several of version 1, or one of version 2, or both."""
    lines = Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines()
    fields = [line.partition(" - ") for line in lines]
    return [Path(mount.split()[4]) for mount, _, system in fields if system.split()[0] in ("cgroup", "cgroup2")]


def _remove(group: Path) -> bool:
    """Remove a control group with those below it, if they are empty."""
    with contextlib.suppress(OSError):
        for folder, _, _ in os.walk(group, topdown=False):
            os.rmdir(folder)
    return not group.exists()


def _checked(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_COMMAND_SECONDS)
    if done.returncode != 0:
        raise ProgramFailed(f"{' '.join(command)} ended with {done.returncode}: {(done.stdout + done.stderr).strip()}")
    return done.stdout
