"""OpenSSH's own programs, and keys for tests of SSH."""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from attestors.wire.ssh.keys import (
    Curve,
    ECDSAKey,
    Ed25519Key,
    PublicKey,
    RSAKey,
    SecurityKeyECDSA,
    SecurityKeyEd25519,
)
from attestors.wire.ssh.signatures import PrivateKey, public_key_of
from tests.support.binaries import MissingPart, build_cache

APPLICATION: Final = "ssh:"
_CURVES: Final = {Curve.P256: ec.SECP256R1(), Curve.P384: ec.SECP384R1(), Curve.P521: ec.SECP521R1()}
_TIMEOUT_SECONDS: Final = 60


def find_openssh(program: str) -> Path:
    """A program of Debian's openssh-client.

    Raises ``MissingPart``.
    """
    found = shutil.which(program)
    if found is None:
        raise MissingPart(f"{program} is not installed: run tests/provision/provision.sh")
    return Path(found)


def find_sshd() -> Path:
    """sshd: an installed one, else that which tests/provision/provision.sh has unpacked.

    Raises ``MissingPart``.
    """
    unpacked = build_cache().parent / "openssh-server" / "usr" / "sbin" / "sshd"
    for candidate in (Path("/usr/sbin/sshd"), unpacked):
        if os.access(candidate, os.X_OK):
            return candidate
    raise MissingPart(f"sshd is neither installed nor at {unpacked}: run tests/provision/provision.sh")


def ssh_keygen(
    *arguments: str | Path, standard_input: bytes = b"", folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``ssh-keygen`` in UTC.

    Raises ``MissingPart``.
    """
    return subprocess.run(
        [find_openssh("ssh-keygen"), *arguments],
        input=standard_input.decode("utf-8", "surrogateescape"),
        capture_output=True,
        text=True,
        errors="surrogateescape",
        check=False,
        timeout=_TIMEOUT_SECONDS,
        cwd=folder,
        env={**os.environ, "TZ": "UTC", "LC_ALL": "C.UTF-8"},
    )


@functools.cache
def private_key(name: str, seed: int = 0) -> PrivateKey:
    """The key of that kind (``ed25519``, ``nistp256``, ``rsa-3072``); another one for each seed."""
    if name == "ed25519":
        return Ed25519PrivateKey.from_private_bytes(hashlib.sha256(f"{name} {seed}".encode()).digest())
    if name.startswith("rsa-"):
        return rsa.generate_private_key(65537, int(name.removeprefix("rsa-")))
    curve = _CURVES[Curve(name)]
    # A few bits shorter than the curve's order: OpenSSH takes no short ones.
    scalar = hashlib.sha512(f"{name} {seed}".encode()).digest()[: (curve.key_size - 1) // 8]
    return ec.derive_private_key(int.from_bytes(scalar, "big"), curve)


SIGNERS: Final = ("ed25519", "nistp256", "nistp384", "nistp521", "rsa-3072")
"""Kinds of keys that sign."""


@functools.cache
def public_keys() -> dict[str, PublicKey]:
    """A key of each type, those of FIDO tokens among them."""
    found: dict[str, PublicKey] = {name: public_key_of(private_key(name)) for name in SIGNERS}
    ed25519, p256 = found["ed25519"], found["nistp256"]
    assert isinstance(ed25519, Ed25519Key)
    assert isinstance(p256, ECDSAKey)
    assert isinstance(found["rsa-3072"], RSAKey)
    return found | {
        "sk-ed25519": SecurityKeyEd25519(ed25519.point, APPLICATION),
        "sk-ecdsa": SecurityKeyECDSA(p256.point, APPLICATION),
    }


def private_key_text(key: PrivateKey) -> bytes:
    """The file that ``ssh`` and ``ssh-keygen`` read."""
    return key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())


def write_private_key(file: Path, key: PrivateKey) -> Path:
    """Write it with the mode that ``ssh`` demands."""
    file.touch(mode=0o600)
    file.write_bytes(private_key_text(key))
    return file


def is_listening(path: Path) -> bool:
    """Whether a program, such as ``ssh-agent``, takes connections at that socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        return connection.connect_ex(str(path)) == 0


def blocks(text: str, beginnings: Sequence[str]) -> list[list[str]]:
    """The lines of an output, in blocks that begin with one of these."""
    found: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith(tuple(beginnings)) or not found:
            found.append([])
        found[-1].append(line)
    return found
