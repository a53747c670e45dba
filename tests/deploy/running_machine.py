"""A machine in a scratch root whose services run: the real kubeadm and kubelet, with a service manager of ours.

It has a name, processes and mounts of its own, which all go when it is closed; the network is the host's.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import shlex
import shutil
import signal
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.deploy.machine import ENVIRONMENT, Machine, bind, make_image, mounts, unshare
from tests.deploy.units import UNIT_FOLDER
from tests.support.binaries import MissingPart
from tests.support.processes import ProgramFailed, Programs

PROGRAMS: Final = "/usr/local/bin"
_HOST_FILES: Final = ("etc/os-release", "etc/passwd", "etc/group")
_SCRIPT_SECONDS: Final = 180.0
_READY: Final = "run/mounted"
STATIC_PODS: Final = "static-pods.service"
"""Runs the programs of the manifests that kubeadm writes, once it is started: containers do not run here."""
_STATIC_PODS_UNIT: Final = f"[Service]\nExecStart={PROGRAMS}/static-pods\n"
_STAND_INS: Final = {"systemctl": "running_systemctl", "static-pods": "static_pods"}
_TUNABLES: Final = (
    *("vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops"),
    *("kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"),
)
"""What a kubelet sets in the kernel (``setupKernelTunables``), which is the host's: it gets copies."""


@dataclass(frozen=True, slots=True)
class RunningMachine(Machine):
    """A machine that is switched on; a context manager that switches it off."""

    programs: Programs
    process_id: int
    """Of its first process, as the host sees it."""

    def run(self, script: str) -> None:
        """Run a shell script; services that it starts stay. ``output`` is what it printed."""
        (self.root / "run/script").write_text(script, encoding="utf-8")
        enter = ["nsenter", f"--target={self.process_id}", "--mount", "--pid", "--uts", "--root", "--wd"]
        # A file, for services inherit it and keep it open.
        with (self.root / "run/output").open("wb") as output:
            subprocess.run(
                [*enter, "/bin/sh", "/run/script"],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
                timeout=_SCRIPT_SECONDS,
                env=ENVIRONMENT,
            )

    def log(self, unit: str) -> str:
        """What a service wrote."""
        return self.path(f"/run/units/{unit}.log").read_text(encoding="utf-8", errors="replace")

    def close(self) -> None:
        """Switch it off: all its processes go with the first."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process_id, signal.SIGKILL)
        self.programs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def switch_on(
    root: Path,
    name: str,
    *,
    binaries: Mapping[str, Path],
    folders: Mapping[str, Path],
    program_folder: str = PROGRAMS,
) -> RunningMachine:
    """A machine that never joined, in an empty folder, with kubelet-authenticator in ``program_folder``.

    ``binaries`` are programs of the host by the names that they have here; ``folders`` of the host appear at these
    paths.

    Raises:
        MissingPart: this machine lets nobody have processes and mounts of his own.
    """
    programs = Programs("node-attestation-machine-")
    try:
        make_image(root, programs=program_folder, kubelet=f"{PROGRAMS}/kubelet", stand_ins=_STAND_INS)
        (root / UNIT_FOLDER / STATIC_PODS).write_text(_STATIC_PODS_UNIT, encoding="utf-8")
        for file in _HOST_FILES:
            shutil.copy(f"/{file}", root / file)
        (root / "etc/machine-id").write_text(f"{secrets.token_hex(16)}\n", encoding="utf-8")
        (root / "etc/hosts").write_text(f"127.0.0.1 localhost {name}\n", encoding="utf-8")
        (root / "etc/resolv.conf").touch()
        lines = [f"hostname {shlex.quote(name)}", *_setting_up(root, binaries, folders)]
        last = f"exec chroot {shlex.quote(str(root))} /bin/sh -c 'touch /{_READY}; exec sleep infinity'"
        command = [*unshare(), "--pid", "--uts", "--fork", "--kill-child", "/bin/sh", "-ec", "\n".join([*lines, last])]
        holder = programs.start("machine", command)
        try:
            holder.wait_ready((root / _READY).exists)
        except ProgramFailed as failure:
            told = " ".join(str(failure).split())
            raise MissingPart(f"no processes and mounts of its own for a machine: {told}") from None
        [first] = Path(f"/proc/{holder.process.pid}/task/{holder.process.pid}/children").read_text().split()
        return RunningMachine(root, programs, int(first))
    except BaseException:
        programs.close()
        raise


def _setting_up(root: Path, binaries: Mapping[str, Path], folders: Mapping[str, Path]) -> Iterable[str]:
    quoted = shlex.quote(str(root))
    # The kubelet looks for the mount that its folder is on.
    yield f"mount --bind {quoted} {quoted}"
    yield f"cd {quoted}"
    yield from mounts(root)
    yield bind(Path("/sys"), root)
    yield f"mkdir -p {quoted}/proc && mount -t proc proc {quoted}/proc"
    for number, tunable in enumerate(_TUNABLES):
        yield f"cat {quoted}/proc/sys/{tunable} > {quoted}/run/tunable-{number}"
        yield f"mount --bind {quoted}/run/tunable-{number} {quoted}/proc/sys/{tunable}"
    for at, folder in folders.items():
        yield bind(folder, root, at)
    for name, binary in binaries.items():
        yield f"touch {quoted}/programs/{name}"
        yield f"mount --bind {shlex.quote(str(binary))} {quoted}{PROGRAMS}/{name}"
