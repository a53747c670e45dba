"""Where this machine's TPM is, and why it cannot be reached."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

from attestors.contract import EvidenceUnavailable

DEFAULT_DEVICES: Final = (Path("/dev/tpmrm0"), Path("/dev/tpm0"))
"""The kernel's resource manager, which shares the TPM and cleans up behind those who use it; and the bare TPM."""

_DEVICE: Final = "device"


def default_tcti() -> str:
    """How this machine's TPM is reached.

    Raises:
        EvidenceUnavailable: it has none.
    """
    for device in DEFAULT_DEVICES:
        if _is_shown(device):
            return f"{_DEVICE}:{device}"
    names = " nor ".join(str(device) for device in DEFAULT_DEVICES)
    raise EvidenceUnavailable(
        f"this machine shows no TPM: there is neither {names}; enable the TPM 2.0 in the settings of the firmware or "
        "of the hypervisor, see that the kernel has its driver, and that a container is given the device"
    )


def _is_shown(device: Path) -> bool:
    """Whether it is there, or may not be looked at: opening it then says why."""
    try:
        return device.exists()
    except OSError:
        return True


def is_taken(tcti: str) -> bool:
    """Whether another program has the device for itself: only one can open a bare TPM."""
    device = _device(tcti)
    return device is not None and _error_of_opening(device) == errno.EBUSY


def unreachable(tcti: str, meaning: str) -> str:
    """Why nothing could be opened at ``tcti``, for a person; ``meaning`` is what the library says."""
    device = _device(tcti)
    match None if device is None else _error_of_opening(device):
        case None:
            return (
                f"no TPM answers at {tcti} ({meaning}): is it running, is the address right, and is the library for "
                f"this kind of connection installed (libtss2-tcti-{tcti.partition(':')[0]})?"
            )
        case errno.ENOENT | errno.ENXIO | errno.ENODEV:
            return f"no TPM at {device}: enable the TPM 2.0 in the firmware's settings, or set tcti to another"
        case errno.EACCES | errno.EPERM:
            return f"no permission to use {device}: run as root, or as a member of the group that the device has"
        case errno.EBUSY:
            return (
                f"another program has {device} for itself: use the kernel's resource manager "
                f"(tcti {_DEVICE}:{DEFAULT_DEVICES[0]}), which shares it"
            )
        case other:
            return f"{device} cannot be opened: {os.strerror(other)}"


def _device(tcti: str) -> Path | None:
    """The device that ``tcti`` names; the library takes the bare TPM where it names none."""
    kind, _, path = tcti.partition(":")
    if kind != _DEVICE:
        return None
    return Path(path) if path else DEFAULT_DEVICES[-1]


def _error_of_opening(device: Path) -> int | None:
    """Why it cannot be opened; the library calls everything an input/output error."""
    try:
        os.close(os.open(device, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return error.errno
    return None
