"""The gateway's own keys, by which clients know it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import asyncssh

from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.keys import HostKey, host_key, parse_public_key

MAXIMUM_FILE_BYTES: Final = 16 * 1024
MAXIMUM_KEYS: Final = 3
_ADVICE: Final = "make one by: ssh-keygen -t ed25519 -N '' -f FILE"


class HostKeyRefused(ValueError):
    """The file is no private key that the gateway may use. The message holds nothing of it."""


@dataclass(frozen=True, slots=True)
class HostKeys:
    """Private keys, and what clients compare."""

    private: tuple[asyncssh.SSHKey, ...] = field(repr=False)
    public: tuple[HostKey, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        """``type base64``, for ``known_hosts``."""
        return tuple(key_line(one) for one in self.public)


def read_host_keys(paths: Sequence[Path]) -> HostKeys:
    """Read files of ``ssh-keygen``, without a passphrase.

    Raises:
        HostKeyRefused: a file cannot be read, or has no acceptable key.
    """
    if not 1 <= len(paths) <= MAXIMUM_KEYS:
        raise HostKeyRefused(f"--host-key must be given once to {MAXIMUM_KEYS} times")
    private, public = [], []
    for path in paths:
        key = _read(path)
        try:
            public.append(host_key(parse_public_key(key.public_data)))
        except SSHRefused as refused:
            raise HostKeyRefused(f"--host-key {path}: {refused}") from None
        private.append(key)
    return HostKeys(tuple(private), tuple(public))


def _read(path: Path) -> asyncssh.SSHKey:
    try:
        with path.open("rb") as file:
            data = file.read(MAXIMUM_FILE_BYTES + 1)
    except OSError as error:
        raise HostKeyRefused(f"--host-key {path}: {error.strerror}; {_ADVICE}") from None
    if len(data) > MAXIMUM_FILE_BYTES:
        raise HostKeyRefused(f"--host-key {path}: the file is larger than any key")
    try:
        return asyncssh.import_private_key(data)
    except (asyncssh.KeyImportError, asyncssh.KeyEncryptionError, ValueError):
        raise HostKeyRefused(f"--host-key {path}: no private key without a passphrase; {_ADVICE}") from None


__all__ = ["HostKeyRefused", "HostKeys", "read_host_keys"]
