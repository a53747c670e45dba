"""System calls that Python 3.11 does not have."""

from __future__ import annotations

import ctypes
import os
from typing import Final

FSCONFIG_SET_FLAG: Final = 0
FSCONFIG_SET_STRING: Final = 1
FSCONFIG_CREATE: Final = 6
FSCONFIG_RECONFIGURE: Final = 7
MOUNT_READ_ONLY: Final = 1
MOUNT_NO_SUID: Final = 2
MOUNT_NO_DEVICES: Final = 4
_CLOSE_ON_EXEC: Final = 1
_EMPTY_PATH: Final = 0x1000
_NEW_NETWORK: Final = 0x40000000
_SET_CHILD_SUBREAPER: Final = 36
# The numbers are the same on every architecture but Alpha (Linux 5.1 and newer).
_FSOPEN: Final = 430
_FSCONFIG: Final = 431
_FSMOUNT: Final = 432
_MOUNT_SETATTR: Final = 442

_library: Final = ctypes.CDLL(None, use_errno=True)


class _MountAttributes(ctypes.Structure):
    """``struct mount_attr`` of mount_setattr(2)."""

    _fields_ = (
        ("attr_set", ctypes.c_uint64),
        ("attr_clr", ctypes.c_uint64),
        ("propagation", ctypes.c_uint64),
        ("userns_fd", ctypes.c_uint64),
    )


def open_filesystem(kind: bytes) -> int:
    """fsopen(2). Raises OSError, as all of these."""
    return _call(_FSOPEN, ctypes.c_char_p(kind), ctypes.c_uint(_CLOSE_ON_EXEC))


def configure_filesystem(context: int, command: int, key: bytes | None = None, value: bytes | None = None) -> None:
    """fsconfig(2)."""
    words = (ctypes.c_int(context), ctypes.c_uint(command), ctypes.c_char_p(key), ctypes.c_char_p(value))
    _call(_FSCONFIG, *words, ctypes.c_int(0))


def mount_filesystem(context: int, attributes: int) -> int:
    """fsmount(2): a mount that is nowhere in the file system. Its descriptor is closed on exec."""
    return _call(_FSMOUNT, ctypes.c_int(context), ctypes.c_uint(_CLOSE_ON_EXEC), ctypes.c_uint(attributes))


def set_mount_attributes(mount: int, added: int, removed: int = 0) -> None:
    """mount_setattr(2), for the mount itself."""
    change = _MountAttributes(added, removed, 0, 0)
    words = (ctypes.c_int(mount), ctypes.c_char_p(b""), ctypes.c_uint(_EMPTY_PATH))
    _call(_MOUNT_SETATTR, *words, ctypes.byref(change), ctypes.c_size_t(ctypes.sizeof(change)))


def enter_network(namespace: int) -> None:
    """setns(2), with a descriptor of a network namespace."""
    if _library.setns(ctypes.c_int(namespace), ctypes.c_int(_NEW_NETWORK)) != 0:
        raise _error()


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parents end (``PR_SET_CHILD_SUBREAPER`` of prctl(2))."""
    zero = ctypes.c_ulong(0)
    if _library.prctl(ctypes.c_int(_SET_CHILD_SUBREAPER), ctypes.c_ulong(1), zero, zero, zero) != 0:
        raise _error()


def _call(number: int, *words: object) -> int:
    result: int = _library.syscall(ctypes.c_long(number), *words)
    if result < 0:
        raise _error()
    return result


def _error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
