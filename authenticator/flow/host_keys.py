"""The host keys of this machine's sshd: read to sign, and for nothing else."""

from __future__ import annotations

import grp
import os
import stat
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_ssh_private_key

from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.keys import HostKey
from attestors.wire.ssh.signatures import PrivateKey, public_key_of

_MAXIMUM_BYTES: Final = 16 * 1024
_OPENSSH: Final = b"-----BEGIN OPENSSH PRIVATE KEY-----"
_ROOT: Final = 0
_FORBIDDEN: Final = stat.S_IRWXG | stat.S_IRWXO
_READ_BY_GROUP: Final = stat.S_IRGRP
_HOST_KEY_GROUP: Final = "ssh_keys"
"""On Fedora and RHEL, host keys are readable by this group, of which only ssh-keysign is a member."""


class UnusableHostKey(Exception):
    """The file holds no host key that can be certified; the message names the file, and quotes nothing of it."""


@dataclass(frozen=True, slots=True)
class OwnHostKey:
    """A host key of this machine."""

    file: Path
    private_key: PrivateKey = field(repr=False)
    public_key: HostKey


def read_host_key(file: Path) -> OwnHostKey:
    """Read a host key: Ed25519, ECDSA, or RSA from 3072 bits on; not encrypted.

    sshd takes a host key only if no other user can read it (``sshkey_perm_ok`` in OpenSSH's authfile.c), and so does
    this function.

    Raises:
        UnusableHostKey: it is missing, unreadable, readable by others, or no such key.
    """
    content = _content(file)
    load = load_ssh_private_key if content.lstrip().startswith(_OPENSSH) else load_pem_private_key
    # "from None": a library's error might quote the key.
    try:
        key = load(content, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise UnusableHostKey(f"{file}: no unencrypted private key of a kind that is known") from None
    if not isinstance(key, Ed25519PrivateKey | ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey):
        raise UnusableHostKey(f"{file}: a host key is Ed25519, ECDSA or RSA")
    try:
        return OwnHostKey(file, key, public_key_of(key))
    except SSHRefused as refused:
        raise UnusableHostKey(f"{file}: {refused.message}") from None


def _content(file: Path) -> bytes:
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a FIFO must not block
        with os.fdopen(descriptor, "rb") as opened:
            _require_private(file, os.fstat(opened.fileno()))
            content = opened.read(_MAXIMUM_BYTES + 1)
    except OSError as error:
        raise UnusableHostKey(f"{file}: {error.strerror}") from None
    if len(content) > _MAXIMUM_BYTES:
        raise UnusableHostKey(f"{file}: larger than {_MAXIMUM_BYTES} bytes")
    return content


def _require_private(file: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise UnusableHostKey(f"{file}: no file")
    if found.st_uid not in (_ROOT, os.geteuid()):
        raise UnusableHostKey(f"{file}: belongs to another user")
    allowed = _READ_BY_GROUP if _is_host_key_group(found.st_gid) else 0
    if found.st_mode & _FORBIDDEN & ~allowed:
        raise UnusableHostKey(f"{file}: others may read or write it: chmod 600")


def _is_host_key_group(group: int) -> bool:
    try:
        return grp.getgrgid(group).gr_name == _HOST_KEY_GROUP
    except KeyError:
        return False
