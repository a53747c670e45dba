"""The version of this machine's OpenSSH, and what depends on it."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final, TypeAlias

from node_access.client.programs import run_bounded
from node_access.client.touching import program

_VERSION: Final = re.compile(r"OpenSSH(?:_for_Windows)?_([0-9]+)\.([0-9]+)", re.ASCII)
_CHOOSES_PROTOCOL: Final = (8, 7)
"""scp has ``-O`` and ``-s`` from then on."""
_USES_SFTP: Final = (9, 0)
"""scp uses SFTP from then on, if nothing else is asked for."""


@dataclass(frozen=True, slots=True)
class Version:
    """Of OpenSSH."""

    numbers: tuple[int, int]

    def __str__(self) -> str:
        return ".".join(map(str, self.numbers))

    @property
    def copies_by_sftp(self) -> bool:
        """Whether scp uses SFTP by itself."""
        return self.numbers >= _USES_SFTP

    @property
    def chooses_protocol(self) -> bool:
        """Whether scp can be told which protocol to use."""
        return self.numbers >= _CHOOSES_PROTOCOL


@dataclass(frozen=True, slots=True)
class NotOpenSSH:
    """Another program, or a version that it does not say."""


AnyVersion: TypeAlias = Version | NotOpenSSH


def openssh_version() -> AnyVersion:
    """What ``ssh -V`` says.

    Raises:
        ClientFailed: ssh is not installed, or does not end.
    """
    found = run_bounded([program("ssh"), "-V"], maximum_bytes=4096, seconds=10, environment=os.environ)
    return version_of(found.error + found.output.decode("ascii", "replace"))


def version_of(text: str) -> AnyVersion:
    """The version in that text. Pure."""
    found = _VERSION.search(text)
    return NotOpenSSH() if found is None else Version((int(found[1]), int(found[2])))


def protocol_options(version: AnyVersion, *, legacy: bool, to_container: bool) -> tuple[str, ...]:
    """What scp is told about its protocol. Pure.

    The legacy protocol needs a program ``scp`` where the files are, which few images of containers have. An older scp
    that cannot be told uses it all the same.
    """
    if isinstance(version, NotOpenSSH):
        return ("-O",) if legacy else ()
    if legacy:
        return ("-O",) if version.chooses_protocol else ()
    return ("-s",) if to_container and version.chooses_protocol and not version.copies_by_sftp else ()
