"""The files with the CAs that the kubelet trusts: read, checked, replaced and restored together."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from authenticator.model.trust_state import FormerFile
from authenticator.store.files import read_bounded, write_atomically

_MAXIMUM_BYTES: Final = 512 * 1024
_PUBLIC: Final = 0o644


class UnusableFiles(Exception):
    """The files are not this program's to change; the message names the file and the reason."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class AuthorityFiles:
    """The CA file of the kubelet's kubeconfig, and those of its configuration (``clientCAFile``)."""

    required: Path
    others: Sequence[Path]
    others_may_be_missing: bool

    def read(self) -> tuple[FormerFile, ...]:
        """The files that exist, symbolic links resolved.

        Raises:
            UnusableFiles: a file is missing or unreadable, or a CA's private key lies beside it. On a control plane,
                the API server and kube-controller-manager read the same file, and a bundle there would stop the latter.
        """
        found: dict[str, FormerFile] = {}
        for path in (self.required, *self.others):
            real = os.path.realpath(path)
            if os.path.lexists(Path(real).with_suffix(".key")) or os.path.lexists(path.with_suffix(".key")):
                raise UnusableFiles("ControlPlane", f"{path} has its private key beside it: this is a control plane")
            try:
                content = read_bounded(Path(real), _MAXIMUM_BYTES).decode("ascii")
            except FileNotFoundError:
                if path != self.required and self.others_may_be_missing:
                    continue
                raise UnusableFiles("FileMissing", f"{path} does not exist") from None
            except OSError as error:
                raise UnusableFiles("FileUnreadable", f"{path}: {error.strerror}") from None
            except UnicodeDecodeError:
                raise UnusableFiles("FileUnreadable", f"{path} is no PEM") from None
            found[real] = FormerFile(real, content)
        return tuple(found.values())


def replace_content(files: Sequence[FormerFile], content: str) -> None:
    """Write the new content into each file that does not have it.

    Raises:
        OSError: a file cannot be written.
    """
    for file in files:
        _write(Path(file.path), content)


def restore(files: Sequence[FormerFile]) -> None:
    """Write the former content into each file.

    Raises:
        OSError: a file cannot be written.
    """
    for file in files:
        _write(Path(file.path), file.content)


def _write(path: Path, content: str) -> None:
    try:
        if read_bounded(path, _MAXIMUM_BYTES) == content.encode("ascii"):
            return
        mode = stat.S_IMODE(path.stat().st_mode)
    except FileNotFoundError:
        mode = _PUBLIC
    write_atomically(path, content, mode=mode)
