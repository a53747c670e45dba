"""Reads on the node what other ways in than SSH certificates there are. It changes nothing."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from authenticator.model.answer import printable
from authenticator.model.other_ways_in import (
    SERVERS,
    STOCK_UNITS,
    KeyFile,
    ListeningSocket,
    NodeFacts,
    Process,
    key_count,
    listening_sockets,
)
from authenticator.store.files import read_bounded

KEY_FILES: Final = (".ssh/authorized_keys", ".ssh/authorized_keys2")
"""sshd_config(5), AuthorizedKeysFile: the default."""
UNITS_FOLDER: Final = "etc/systemd/system"
MAXIMUM_HOMES: Final = 1000
_MAXIMUM_TABLE_BYTES: Final = 32 * 1024 * 1024
_MAXIMUM_FILE_BYTES: Final = 1024 * 1024
_MAXIMUM_NAME_BYTES: Final = 4096
_MAXIMUM_PATH_CHARACTERS: Final = 256
_SOCKET: Final = re.compile(r"socket:\[(\d{1,20})\]", re.ASCII)


def read_node(root: Path) -> NodeFacts:
    """What there is below ``root``, which is ``/`` but for tests. What cannot be read is named."""
    unread: list[str] = []
    return NodeFacts(
        sockets=tuple(_sockets(root, unread)),
        processes=tuple(_processes(root, unread)),
        enabled_units=tuple(_enabled_units(root, unread)),
        key_files=tuple(_key_files(root, unread)),
        unread=tuple(unread),
    )


def _sockets(root: Path, unread: list[str]) -> Iterator[ListeningSocket]:
    for name in ("tcp", "tcp6"):
        try:
            table = read_bounded(root / "proc/net" / name, _MAXIMUM_TABLE_BYTES)
        except FileNotFoundError:
            if name == "tcp":  # a kernel may be without IPv6
                unread.append("/proc/net/tcp does not exist")
        except OSError as error:
            unread.append(_why(f"/proc/net/{name}", error))
        else:
            yield from listening_sockets(table.decode("ascii", "replace"))


def _processes(root: Path, unread: list[str]) -> Iterator[Process]:
    """Those whose name is an SSH server's. A process may end meanwhile."""
    try:
        numbers = [name for name in os.listdir(root / "proc") if name.isdecimal()]
    except OSError as error:
        unread.append(_why("/proc", error))
        return
    for number in sorted(numbers, key=int):
        folder = root / "proc" / number
        try:
            name = read_bounded(folder / "comm", _MAXIMUM_NAME_BYTES).decode("ascii", "replace").strip()
            if name in SERVERS:
                cgroup = read_bounded(folder / "cgroup", _MAXIMUM_FILE_BYTES).decode("ascii", "replace")
                yield Process(name, cgroup, frozenset(_inodes(folder / "fd")))
        except (FileNotFoundError, ProcessLookupError):
            continue
        except OSError as error:
            unread.append(_why(f"/proc/{number}", error))


def _inodes(folder: Path) -> Iterator[int]:
    for name in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):
            if found := _SOCKET.fullmatch(os.readlink(folder / name)):
                yield int(found[1])


def _enabled_units(root: Path, unread: list[str]) -> Iterator[str]:
    """An enabled unit has a link in the ``.wants`` or ``.requires`` folder of a target (systemd.unit(5))."""
    try:
        folders = sorted(os.listdir(root / UNITS_FOLDER))
    except FileNotFoundError:
        return
    except OSError as error:
        unread.append(_why(f"/{UNITS_FOLDER}", error))
        return
    for folder in folders:
        if folder.endswith((".wants", ".requires")):
            with contextlib.suppress(OSError):  # no folder
                names = os.listdir(root / UNITS_FOLDER / folder)
                yield from STOCK_UNITS.intersection(names)


def _key_files(root: Path, unread: list[str]) -> Iterator[KeyFile]:
    for home in _homes(root, unread):
        for name in KEY_FILES:
            path = f"{home.rstrip('/')}/{name}"
            try:
                text = _read_file_of_user(root / path.lstrip("/")).decode("utf-8", "replace")
            except (FileNotFoundError, NotADirectoryError):
                continue
            except (OSError, ValueError) as error:
                unread.append(_why(path, error))
            else:
                yield KeyFile(printable(path, _MAXIMUM_PATH_CHARACTERS), key_count(text))


def _read_file_of_user(path: Path) -> bytes:
    """A user may have put a pipe or a device there, which must not stop or trouble the reader.

    What is looked at is what is opened: the mere opening of a device may reboot the machine (/dev/watchdog).
    """
    found = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(found).st_mode):
            raise OSError(errno.EINVAL, "it is no file", str(path))
        descriptor = os.open(f"/proc/self/fd/{found}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        os.close(found)
    with open(descriptor, "rb") as file:
        content = file.read(_MAXIMUM_FILE_BYTES + 1)
    if len(content) > _MAXIMUM_FILE_BYTES:
        raise OSError(errno.EFBIG, f"larger than {_MAXIMUM_FILE_BYTES} bytes", str(path))
    return content


def _homes(root: Path, unread: list[str]) -> tuple[str, ...]:
    """The home folders of all users (passwd(5))."""
    try:
        text = read_bounded(root / "etc/passwd", _MAXIMUM_FILE_BYTES).decode("utf-8", "replace")
    except OSError as error:
        unread.append(_why("/etc/passwd", error))
        return ("/root",)
    lines = [line.split(":") for line in text.splitlines()]
    homes = dict.fromkeys(line[5] for line in lines if len(line) == 7 and line[5].startswith("/"))
    if len(homes) > MAXIMUM_HOMES:
        unread.append(f"/etc/passwd has more than {MAXIMUM_HOMES} home folders")
    return tuple(homes)[:MAXIMUM_HOMES]


def _why(path: str, error: OSError | ValueError) -> str:
    why = error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__
    return f"{printable(path, _MAXIMUM_PATH_CHARACTERS)} cannot be read: {why}"


__all__ = ["read_node"]
