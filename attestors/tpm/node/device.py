"""Finds this machine's TPM, and explains why it cannot be reached."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Final

from attestors.contract import EvidenceUnavailable

DEFAULT_DEVICES: Final = (Path("/dev/tpmrm0"), Path("/dev/tpm0"))
"""The kernel's resource manager, which shares the TPM and cleans up after its users; and the bare TPM."""

_DEVICE: Final = "device"


def default_tcti() -> str:
    """The TCTI of this machine's TPM.

    Raises:
        EvidenceUnavailable: the machine has none.
    """
    for device in DEFAULT_DEVICES:
        if _may_exist(device):
            return f"{_DEVICE}:{device}"
    names = " nor ".join(str(device) for device in DEFAULT_DEVICES)
    raise EvidenceUnavailable(
        f"no TPM found: there is neither {names}; enable the TPM 2.0 in the settings of the firmware or of the "
        "hypervisor, load the kernel's driver, and pass the device to the container"
    )


def _may_exist(device: Path) -> bool:
    """Whether the device exists or cannot be examined: then opening it reports the cause."""
    try:
        return device.exists()
    except OSError:
        return True


def is_held(tcti: str) -> bool:
    """Whether another program holds the device exclusively: only one can open a bare TPM."""
    device = _device(tcti)
    return device is not None and _error_of_opening(device) == errno.EBUSY


def unreachable(tcti: str, meaning: str) -> str:
    """Why nothing could be opened at ``tcti``, for a person; ``meaning`` is the library's text."""
    device = _device(tcti)
    match None if device is None else _error_of_opening(device):
        case None:
            return (
                f"no TPM answers at {tcti} ({meaning}): is it running, is the address right, and is the library for "
                f"this kind of connection installed (libtss2-tcti-{tcti.partition(':')[0]})?"
            )
        case errno.ENOENT | errno.ENXIO | errno.ENODEV:
            return f"no TPM at {device}: enable the TPM 2.0 in the firmware's settings, or set another tcti"
        case errno.EACCES | errno.EPERM:
            return f"no permission to use {device}: run as root, or as a member of the device's group"
        case errno.EBUSY:
            return (
                f"another program holds {device} exclusively: use the kernel's resource manager "
                f"(tcti {_DEVICE}:{DEFAULT_DEVICES[0]}), which shares it"
            )
        case other:
            return f"{device} cannot be opened: {os.strerror(other)}"


def _device(tcti: str) -> Path | None:
    """The device that ``tcti`` names; by default the library uses the bare TPM."""
    kind, _, path = tcti.partition(":")
    if kind != _DEVICE:
        return None
    return Path(path) if path else DEFAULT_DEVICES[-1]


def _error_of_opening(device: Path) -> int | None:
    """The errno of opening the device; the library reports every error as an input/output error."""
    try:
        os.close(os.open(device, os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return error.errno
    return None
