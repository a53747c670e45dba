"""Finding and opening the TPM, and reading what it lists in parts."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from attestors.contract import EvidenceUnavailable
from attestors.tpm.node import deadline as timeout
from attestors.tpm.node import device as device_module
from attestors.tpm.node.device import default_tcti
from tests.support.software_tpm import LIBRARY_MISSING

pytest.importorskip("tpm2_pytss", reason=LIBRARY_MISSING, exc_type=ImportError)

from attestors.tpm.node.connection import TPM, connected


@pytest.fixture
def devices(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Path, Path]:
    found = (tmp_path / "tpmrm0", tmp_path / "tpm0")
    monkeypatch.setattr(device_module, "DEFAULT_DEVICES", found)
    return found


def test_resource_manager_comes_before_the_bare_tpm(devices: tuple[Path, Path]) -> None:
    shared, bare = devices
    bare.touch()
    assert default_tcti() == f"device:{bare}"
    shared.touch()
    assert default_tcti() == f"device:{shared}"


@pytest.mark.parametrize(
    ("number", "sentence"),
    [
        (errno.EACCES, "no permission to use {device}: run as root, or as a member of the device's group"),
        (errno.EPERM, "no permission to use {device}"),
        (errno.ENODEV, "no TPM at {device}: enable the TPM 2.0"),
        (errno.EBUSY, "another program holds {device} exclusively: use the kernel's resource manager"),
        (errno.EIO, "{device} cannot be opened: Input/output error"),
    ],
)
def test_a_device_that_cannot_be_opened_is_reported(
    devices: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, number: int, sentence: str
) -> None:
    """The library says "input/output error" to all of them."""
    device, _ = devices
    device.mkdir()  # neither the library nor root can open it for writing

    monkeypatch.setattr(device_module, "_error_of_opening", {device: number}.__getitem__)
    monkeypatch.setattr(timeout, "BUSY_SECONDS", 0.1)
    with pytest.raises(EvidenceUnavailable) as raised, connected(None):
        pass
    assert sentence.format(device=device) in str(raised.value)


def test_a_device_that_cannot_be_examined_is_reported(
    devices: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As SELinux has it."""
    device, _ = devices

    def refused(path: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "exists", refused)
    monkeypatch.setattr(device_module, "_error_of_opening", {device: errno.EACCES}.__getitem__)
    monkeypatch.setattr(timeout, "BUSY_SECONDS", 0.1)
    with pytest.raises(EvidenceUnavailable, match="no permission to use"), connected(None):
        pass


def test_a_device_held_by_another_program_is_waited_for(
    devices: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    device, _ = devices
    device.mkdir()
    numbers = [errno.EBUSY, errno.EBUSY, errno.ENODEV, errno.ENODEV]
    monkeypatch.setattr(device_module, "_error_of_opening", lambda path: numbers.pop(0))
    with pytest.raises(EvidenceUnavailable, match="no TPM at"), connected(None):
        pass
    assert numbers == []


class Listing:
    """Lists numbers like a TPM that has little room in its answers."""

    def __init__(self, numbers: range, at_once: int, *, endless: bool = False) -> None:
        self.numbers = numbers
        self.at_once = at_once
        self.endless = endless

    def get_capability(self, capability: int, first: int, count: int) -> tuple[bool, Any]:
        left = [number for number in self.numbers if number >= first]
        part = left[: min(count, self.at_once)]
        return self.endless or len(left) > len(part), SimpleNamespace(data=SimpleNamespace(handles=part))


def test_list_that_comes_in_parts_is_read_whole() -> None:
    assert TPM(Listing(range(100, 200), 7)).handles(110, 150) == tuple(range(110, 151))


def test_empty_list() -> None:
    assert TPM(Listing(range(0), 7)).handles(0, 10) == ()
    assert TPM(Listing(range(0), 7, endless=True)).handles(0, 10) == ()


def test_endless_list_is_refused() -> None:
    with pytest.raises(EvidenceUnavailable, match="did not list its handles: the list does not end"):
        TPM(Listing(range(1000), 1, endless=True)).handles(0, 1000)
