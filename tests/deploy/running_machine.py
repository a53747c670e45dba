"""A running machine in a scratch root, with systemd, the real kubeadm and the real kubelet.

It has its own name, processes, mounts and control group, which end when it is closed. It shares the network and the
kernel with the host, so its systemd targets, which would change kernel settings, are empty.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.deploy.embedded import ROOT
from tests.deploy.machine import ENVIRONMENT, Machine, bind, make_image, mounts, unshare
from tests.deploy.units import UNIT_FOLDER
from tests.support.binaries import MissingPart
from tests.support.closing import ClosedAtTheEnd
from tests.support.processes import ProgramFailed, Programs

PROGRAMS: Final = "/usr/local/bin"
HOST_FILES: Final = ("etc/os-release", "etc/passwd", "etc/group")
_SCRIPT_SECONDS: Final = 180.0
_READY: Final = "run/ready"
STATIC_PODS: Final = "static-pods.service"
"""Once started, it runs the programs of the manifests that kubeadm writes, because containers do not run here."""
_STAND_INS: Final = {"static-pods": "static_pods"}
_SYSTEMD: Final = "/lib/systemd/systemd"
TARGET: Final = "machine.target"
_UNITS: Final = {
    # kubeadm's packages enable the kubelet. Until the machine joins, it starts and exits without its configuration.
    TARGET: "[Unit]\nRequires=systemd-journald.socket\nAfter=systemd-journald.socket\n"
    f"Wants=ready.service kubelet.service {STATIC_PODS}\n",
    "ready.service": f"[Service]\nType=oneshot\nExecStart=/bin/touch /{_READY}\n",
    # The distribution's units of these targets would change the host, which shares the kernel.
    **{f"{name}.target": f"[Unit]\nDescription={name}\n" for name in ("sysinit", "basic", "network-online")},
    STATIC_PODS: f"[Service]\nExecStart={PROGRAMS}/static-pods\n",
}
MANAGER: Final = "[Manager]\nDefaultEnvironment=PYTHONDONTWRITEBYTECODE=1\n"
INTERPRETER: Final = "[Service]\nProtectHome=tmpfs\nBindReadOnlyPaths={paths}\n"
"""Makes a checkout in a home folder or in ``/tmp`` visible. An image has its programs elsewhere."""
_DEVICES: Final = ("null", "zero", "full", "random", "urandom", "tty", "kmsg")
TUNABLES: Final = (
    *("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops"),
    *("kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"),
)
"""Kernel settings that a kubelet changes (``setupKernelTunables``). It gets copies: the kernel is the host's."""


@dataclass(slots=True)
class Power:
    """The processes of a machine."""

    root: Path
    script: str
    """Sets up the environment of systemd, and executes systemd."""
    programs: Programs | None = None
    process_id: int = 0
    """Process ID of the first process, as the host sees it."""

    def on(self) -> None:
        """Start the machine; returns when systemd has started the enabled units.

        Raises:
            MissingPart: the host does not allow process and mount namespaces.
        """
        self.programs = Programs("node-attestation-machine-")
        with self.programs.closed_on_failure():
            namespaces = ("--pid", "--uts", "--ipc", "--fork", "--kill-child")
            holder = self.programs.start("machine", [*unshare(), *namespaces, "/bin/sh", "-ec", self.script])
            try:
                holder.wait_ready((self.root / _READY).exists)
            except ProgramFailed as failure:
                told = " ".join(str(failure).split())
                raise MissingPart(f"no process and mount namespaces for a machine: {told}") from None
            [first] = Path(f"/proc/{holder.process.pid}/task/{holder.process.pid}/children").read_text().split()
            self.process_id = int(first)

    def off(self) -> None:
        """Kill the first process, with which all others end."""
        if self.programs is None:
            return
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process_id, signal.SIGKILL)
        self.programs.close()
        _remove_control_group(self.root)
        self.programs = None


@dataclass(frozen=True, slots=True)
class RunningMachine(Machine, ClosedAtTheEnd):
    """A machine that is switched on; a context manager that switches it off."""

    power: Power

    def run(self, script: str) -> None:
        """Run a shell script. Services that it starts keep running. ``output`` is its output."""
        (self.root / "run/script").write_text(script, encoding="utf-8")
        # A file, because services inherit the descriptor and keep it open.
        with (self.root / "run/output").open("wb") as output:
            subprocess.run(
                [*self._inside(), "/bin/sh", "/run/script"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
                timeout=_SCRIPT_SECONDS,
                env=ENVIRONMENT,
            )

    def log(self, unit: str) -> str:
        """The log of a service, with systemd's messages about it."""
        command = [*self._inside(), "/usr/bin/journalctl", "--no-pager", f"--unit={unit}"]
        return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=60).stdout

    def _inside(self) -> list[str]:
        own = ("--mount", "--pid", "--uts", "--cgroup", "--root", "--wd")
        return ["nsenter", f"--target={self.power.process_id}", *own]

    def reboot(self) -> None:
        """Switch the machine off like a power cut, and on again."""
        self.power.off()
        shutil.rmtree(self.path("/run"))
        self.path("/run").mkdir()
        self.power.on()

    def close(self) -> None:
        """Switch the machine off."""
        self.power.off()


def switch_on(
    root: Path,
    name: str,
    *,
    binaries: Mapping[str, Path],
    folders: Mapping[str, Path],
    program_folder: str = PROGRAMS,
) -> RunningMachine:
    """Start a machine that has never joined, in an empty folder, with kubelet-authenticator in ``program_folder``.

    ``binaries`` maps program names in the machine to programs of the host; ``folders`` maps paths in the machine to
    folders of the host.

    Raises:
        MissingPart: the host does not allow process and mount namespaces.
    """
    if not Path(_SYSTEMD).exists():
        raise MissingPart("systemd is not installed: run tests/provision/provision.sh")
    make_image(root, programs=program_folder, kubelet=f"{PROGRAMS}/kubelet", stand_ins=_STAND_INS)
    for unit, text in _UNITS.items():
        (root / UNIT_FOLDER / unit).write_text(text, encoding="utf-8")
    paths = " ".join(sorted({str(ROOT), sys.prefix, sys.base_prefix}))
    drop_in = root / UNIT_FOLDER / "kubelet-authenticator.service.d/90-interpreter.conf"
    drop_in.parent.mkdir()
    drop_in.write_text(INTERPRETER.format(paths=paths), encoding="utf-8")
    (root / "etc/systemd/system.conf").write_text(MANAGER, encoding="utf-8")
    for file in HOST_FILES:
        shutil.copy(f"/{file}", root / file)
    (root / "etc/machine-id").write_text(f"{secrets.token_hex(16)}\n", encoding="utf-8")
    (root / "etc/hosts").write_text(f"127.0.0.1 localhost {name}\n", encoding="utf-8")
    (root / "etc/resolv.conf").touch()
    power = Power(root, "\n".join([*setting_up(root, binaries, folders), *handing_over(root, name)]))
    power.on()
    return RunningMachine(root, power)


def setting_up(root: Path, binaries: Mapping[str, Path], folders: Mapping[str, Path]) -> Iterable[str]:
    """Commands that mount what the machine needs."""
    quoted = shlex.quote(str(root))
    # The kubelet looks up the mount of its folder.
    yield f"mount --bind {quoted} {quoted}"
    yield f"cd {quoted}"
    yield from mounts(root)
    yield bind(Path("/sys"), root)
    yield f"mkdir -p {quoted}/proc && mount -t proc proc {quoted}/proc"
    for number, tunable in enumerate(TUNABLES):
        yield f"cat {quoted}/proc/sys/{tunable} > {quoted}/run/tunable-{number}"
        yield f"mount --bind {quoted}/run/tunable-{number} {quoted}/proc/sys/{tunable}"
    for at, folder in folders.items():
        yield bind(folder, root, at)
    for name, binary in binaries.items():
        yield f"touch {quoted}/programs/{name}"
        yield f"mount --bind {shlex.quote(str(binary))} {quoted}{PROGRAMS}/{name}"


def handing_over(root: Path, name: str) -> Iterable[str]:
    """The shell executes systemd, in the machine's own control group."""
    yield "mount -t tmpfs -o mode=755 devices dev"
    for device in _DEVICES:
        yield f"touch dev/{device} && mount --bind /dev/{device} dev/{device}"
    yield "ln -s /proc/self/fd dev/fd"
    # Make it a mount. Otherwise systemd mounts over it.
    yield "mount --rbind run run"
    yield "mkdir run/old"
    yield f"hostname {shlex.quote(name)}"
    group = f"sys/fs/cgroup/{_control_group(root)}"
    yield f"mount -t cgroup2 cgroup2 sys/fs/cgroup && mkdir {group} && echo 0 > {group}/cgroup.procs"
    yield "umount sys/fs/cgroup"
    inside = [
        "mount -t cgroup2 cgroup2 sys/fs/cgroup",
        "pivot_root . run/old",
        "umount -l /run/old",
        f"exec env -i container=scratch-root {_SYSTEMD} --unit={TARGET} --log-target=journal --show-status=0",
    ]
    yield f"exec unshare --cgroup /bin/sh -ec {shlex.quote(chr(10).join(inside))}"


def _remove_control_group(root: Path) -> None:
    """Wait until the killed processes are gone, then remove the control group."""
    folder = shlex.quote(str(root))
    group = f"{folder}/{_control_group(root)}"
    lines = [
        f"mount -t cgroup2 cgroup2 {folder}",
        f"while grep -q 'populated 1' {group}/cgroup.events; do sleep 0.05; done",
        f"find {group} -depth -type d -exec rmdir {{}} +",
    ]
    subprocess.run([*unshare(), "/bin/sh", "-ec", "\n".join(lines)], check=True, timeout=_SCRIPT_SECONDS)


def _control_group(root: Path) -> str:
    return f"node-attestation-{hashlib.sha256(bytes(root)).hexdigest()[:16]}"
