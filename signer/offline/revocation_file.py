"""Replaces a key revocation list in one step. sshd refuses every login while it cannot read the file."""

from __future__ import annotations

import contextlib
import enum
import fcntl
import os
import shutil
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.keys import RevocableKey
from attestors.wire.ssh.krl import (
    MAXIMUM_LIST_BYTES,
    CertificateRevocations,
    Fingerprint,
    RevocationList,
    encode_revocation_list,
    parse_revocation_list,
)
from signer.offline.failures import CommandFailed, InputRefused
from signer.offline.revoked import Revoked

_MODE: Final = 0o644
"""sshd reads the file as root; it holds no secret."""
_CHECK_SECONDS: Final = 60


class Checked(enum.Enum):
    """Who has read the new file before it took its place."""

    BY_OPENSSH = "OpenSSH"
    BY_OUR_READER_ALONE = "OwnReaderAlone"


@dataclass(frozen=True, slots=True)
class Updated:
    """A list that was written."""

    file: Path
    revocations: RevocationList
    added: int
    checked: Checked


def update(file: Path, revoked: Sequence[Revoked]) -> Updated:
    """Add entries to the list in ``file``, or begin one. Another update at the same time waits.

    Raises:
        InputRefused: the file is there and is no revocation list that can be read.
        CommandFailed: it cannot be written, or OpenSSH does not read it; the former file is as it was.
        SSHRefused: the list would become too large.
    """
    target = Path(os.path.realpath(file))
    try:
        with _alone_in(target.parent) as folder:
            before = _read(target)
            now = _with(before, revoked)
            checked = _replace(target, now)
            os.fsync(folder)
    except OSError as error:
        raise CommandFailed(f"{file} cannot be replaced: {error.strerror or type(error).__name__}") from None
    return Updated(file, now, now.entries - before.entries, checked)


def _with(before: RevocationList, revoked: Sequence[Revoked]) -> RevocationList:
    certificates: list[CertificateRevocations] = []
    fingerprints: list[Fingerprint] = []
    keys: list[RevocableKey] = []
    for one in revoked:
        if isinstance(one, CertificateRevocations):
            certificates.append(one)
        elif isinstance(one, Fingerprint):
            fingerprints.append(one)
        else:
            keys.append(one)
    return before.with_entries(
        generated=int(time.time()), certificates=certificates, keys=keys, fingerprints=fingerprints
    )


def _read(target: Path) -> RevocationList:
    """The present list; an empty one where the file is missing or empty, as images bring it."""
    try:
        with target.open("rb") as file:
            data = file.read(MAXIMUM_LIST_BYTES + 1)
    except FileNotFoundError:
        data = b""
    if not data:
        return RevocationList(version=0, generated=0)
    try:
        return parse_revocation_list(data)
    except SSHRefused as error:
        raise InputRefused(
            f"{target} is not changed: {error}; name another file, and list both in RevokedKeys (OpenSSH 10.3 or later)"
        ) from None


def _replace(target: Path, revocations: RevocationList) -> Checked:
    descriptor, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    new = Path(name)
    try:
        with open(descriptor, "wb") as file:
            file.write(encode_revocation_list(revocations))
            os.fchmod(file.fileno(), stat.S_IMODE(target.stat().st_mode) if target.exists() else _MODE)
            file.flush()
            os.fsync(file.fileno())
        if parse_revocation_list(new.read_bytes()) != revocations:
            raise CommandFailed("the new list does not read back as what was written; the former file is as it was")
        checked = _check_by_openssh(new)
        new.replace(target)
    finally:
        new.unlink(missing_ok=True)
    return checked


def _check_by_openssh(new: Path) -> Checked:
    program = shutil.which("ssh-keygen")
    if program is None:
        return Checked.BY_OUR_READER_ALONE
    try:
        done = subprocess.run(  # noqa: S603 - ssh-keygen of PATH, with a file of ours
            [program, "-Q", "-l", "-f", str(new)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
            timeout=_CHECK_SECONDS,
        )
    except subprocess.TimeoutExpired:
        raise CommandFailed("ssh-keygen -Q did not end; the former file is as it was") from None
    if done.returncode != 0:
        raise CommandFailed(
            "ssh-keygen -Q does not read the new list, so sshd would refuse every login; the former file is as it was"
        )
    return Checked.BY_OPENSSH


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[int]:
    """Hold the folder's lock, which a process that ends lets go. Yields the folder's descriptor."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)
