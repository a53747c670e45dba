"""The tools of a session: a read-only file system that is mounted nowhere, and that one session alone has.

A container without a shell gets one, and an SFTP server, by a descriptor. The files are in no directory of the
container, and in no mount table. Each session has a file system of its own: a container with CAP_SYS_ADMIN could make
one that others share writable, and then run its own programs in other people's sessions.
"""

from __future__ import annotations

import contextlib
import os
import platform
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from node_access.containers import kernel

DESCRIPTOR: Final = 3
"""The first after the standard streams: ``runc exec --preserve-fds 1`` passes that one."""
FOLDER: Final = f"/proc/self/fd/{DESCRIPTOR}"
"""The tools, as each process of the session sees them."""
BUSYBOX: Final = Path("/usr/bin/busybox")
SFTP_SERVER: Final = Path("/usr/lib/openssh/sftp-server")
"""OpenSSH's. Green End's answers out of order, and scp of OpenSSH 9.0 to 9.3 then truncates what it has sent."""
ACCOUNTS: Final = Path(f"/usr/lib/{platform.machine()}-linux-gnu/libnss_wrapper.so")
"""OpenSSH's SFTP server ends where its user has no name, as in most images. This library gives it one."""
_LOADER: Final = "ld.so"
_SFTP_NAME: Final = "sftp-server"
_ACCOUNTS_NAME: Final = "accounts.so"
_MAXIMUM_FILE_BYTES: Final = 16 * 1024 * 1024
_MAXIMUM_APPLETS: Final = 1000
_PROGRAM_MODE: Final = 0o555
_SECONDS: Final = 30
_APPLET: Final = re.compile(r"[A-Za-z0-9_.\[+-]{1,64}")
_LIBRARY: Final = re.compile(r"\t(?:(?P<name>[A-Za-z0-9_.+-]+) => )?(?P<path>/\S+) \(0x[0-9a-f]+\)")
_VIRTUAL_LIBRARY: Final = re.compile(r"\tlinux-(?:vdso|gate)\.so\.1 \(0x[0-9a-f]+\)")
_INTERPRETER: Final = 3
"""``PT_INTERP`` of elf(5)."""


class NoTools(Exception):
    """A program that sessions need is missing, or is not as it should be; the message names the remedy."""


@dataclass(frozen=True, slots=True)
class ToolSet:
    """The content of a file system of tools."""

    files: Mapping[str, bytes] = field(repr=False)
    links: Mapping[str, str] = field(repr=False)
    """Symbolic links, by name."""

    def mounted(self) -> int:
        """A descriptor of a new file system with it, which nobody can write to.

        Raises:
            OSError: the kernel is older than 5.12, or memory is full.
        """
        context = kernel.open_filesystem(b"tmpfs")
        try:
            size = sum(map(len, self.files.values())) + 1024 * 1024
            for key, value in ((b"size", str(size)), (b"mode", "0555"), (b"nr_inodes", str(len(self.links) + 64))):
                kernel.configure_filesystem(context, kernel.FSCONFIG_SET_STRING, key, value.encode("ascii"))
            kernel.configure_filesystem(context, kernel.FSCONFIG_CREATE)
            mount = kernel.mount_filesystem(context, kernel.MOUNT_NO_SUID | kernel.MOUNT_NO_DEVICES)
            try:
                self._fill(mount)
                # The mount alone could be made writable again, with CAP_SYS_ADMIN in any user namespace.
                kernel.configure_filesystem(context, kernel.FSCONFIG_SET_FLAG, b"ro")
                kernel.configure_filesystem(context, kernel.FSCONFIG_RECONFIGURE)
                kernel.set_mount_attributes(mount, kernel.MOUNT_READ_ONLY)
            except BaseException:  # nothing may leave a mount behind
                os.close(mount)
                raise
            return mount
        finally:
            os.close(context)

    def _fill(self, mount: int) -> None:
        for name, content in self.files.items():
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            with open(os.open(name, flags, _PROGRAM_MODE, dir_fd=mount), "wb") as file:
                os.fchmod(file.fileno(), _PROGRAM_MODE)
                file.write(content)
        for name, target in self.links.items():
            os.symlink(target, name, dir_fd=mount)


class Mounts:
    """File systems of one session, of which one may be made before anybody asks: that takes a while."""

    def __init__(self, tools: ToolSet) -> None:
        self._tools = tools
        self._made: list[int] = []

    def prepare(self) -> None:
        """Make one. If that fails, :meth:`take` tries again, and says why."""
        with contextlib.suppress(OSError):
            self._made.append(self._tools.mounted())

    def take(self) -> int:
        """A descriptor of one that nothing has had before. Raises OSError as :meth:`ToolSet.mounted`."""
        return self._made.pop() if self._made else self._tools.mounted()

    def close(self) -> None:
        """Remove what nobody takes."""
        while self._made:
            os.close(self._made.pop())


@dataclass(frozen=True, slots=True)
class Tools:
    """What sessions may have: a shell with its programs, or an SFTP server."""

    shell: ToolSet
    sftp: ToolSet

    @staticmethod
    def shell_arguments(command: str) -> list[str]:
        """The command line for that command; for an empty one, of a login shell."""
        return [f"{FOLDER}/sh", "-c", command] if command else [f"{FOLDER}/sh", "-l"]

    @staticmethod
    def sftp_arguments() -> list[str]:
        """The command line of the SFTP server. The cache of the container's own loader says nothing about our files."""
        loader = [f"{FOLDER}/{_LOADER}", "--inhibit-cache", "--library-path", FOLDER]
        return [*loader, "--preload", f"{FOLDER}/{_ACCOUNTS_NAME}", f"{FOLDER}/{_SFTP_NAME}"]

    @staticmethod
    def sftp_environment() -> list[str]:
        """What the SFTP server needs in its environment."""
        return [f"NSS_WRAPPER_PASSWD={FOLDER}/passwd", f"NSS_WRAPPER_GROUP={FOLDER}/group"]

    def sftp_for(self, uid: int, gid: int) -> ToolSet:
        """The tools of an SFTP session of that user of the container."""
        accounts = {"passwd": f"user:x:{uid}:{gid}::/:/\n".encode(), "group": f"user:x:{gid}:\n".encode()}
        return ToolSet({**self.sftp.files, **accounts}, self.sftp.links)


def load_tools(busybox: Path = BUSYBOX, sftp_server: Path = SFTP_SERVER, accounts: Path = ACCOUNTS) -> Tools:
    """Read the node's programs.

    Raises:
        NoTools: one is missing, or busybox is not statically linked.
    """
    return Tools(_shell(busybox), _sftp(sftp_server, accounts))


def _shell(busybox: Path) -> ToolSet:
    content = _read(busybox, "busybox-static")
    if _is_dynamic(busybox, content):
        raise NoTools(f"{busybox} is not statically linked: install busybox-static")
    names = _output([str(busybox), "--list"]).split("\n")
    applets = [name for name in names[:_MAXIMUM_APPLETS] if _APPLET.fullmatch(name) and name not in (".", "..")]
    if "sh" not in applets:
        raise NoTools(f"{busybox} has no shell: install busybox-static")
    return ToolSet({"busybox": content}, {name: "busybox" for name in applets if name != "busybox"})


def _sftp(server: Path, accounts: Path) -> ToolSet:
    files = {_SFTP_NAME: _read(server, "openssh-sftp-server"), _ACCOUNTS_NAME: _read(accounts, "libnss-wrapper")}
    for program in (server, accounts):
        for line in _output(["ldd", str(program)]).splitlines():
            found = _LIBRARY.fullmatch(line)
            if found is not None:
                files[found["name"] or _LOADER] = _read(Path(found["path"]), "libc6")
            elif _VIRTUAL_LIBRARY.fullmatch(line) is None:
                raise NoTools(f"{program} needs a library that is missing: install its package again")
    if _LOADER not in files:
        raise NoTools(f"{server} is no program with a loader: install openssh-sftp-server")
    return ToolSet(files, {})


def _read(path: Path, package: str) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_MAXIMUM_FILE_BYTES + 1)
    except OSError as error:
        raise NoTools(f"{path}: {error.strerror}: install {package}") from None
    if len(content) > _MAXIMUM_FILE_BYTES:
        raise NoTools(f"{path} is larger than {_MAXIMUM_FILE_BYTES} bytes")
    return content


def _output(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(  # noqa: S603 - words of ours, and paths of the command line
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_SECONDS, check=True
        )
        return done.stdout.decode("ascii")
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError) as error:
        raise NoTools(f"{' '.join(command)} failed: {type(error).__name__}") from None


def _is_dynamic(busybox: Path, content: bytes) -> bool:
    """Whether an ELF file of 64 bits names a loader (program headers of elf(5))."""
    if content[:5] != b"\x7fELF\x02":
        raise NoTools(f"{busybox} is no program of a machine with 64 bits: install busybox-static")
    order = "little" if content[5] == 1 else "big"
    start = int.from_bytes(content[32:40], order)  # type: ignore[arg-type]
    size, count = (int.from_bytes(content[at : at + 2], order) for at in (54, 56))  # type: ignore[arg-type]
    kinds = (content[start + size * one : start + size * one + 4] for one in range(count))
    return any(int.from_bytes(kind, order) == _INTERPRETER for kind in kinds)  # type: ignore[arg-type]
