"""The key of a grant: a fresh one in memory, or an existing one, which may be on a FIDO token."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_ssh_private_key,
)

from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.key_line import MAXIMUM_FILE_BYTES, parse_key_file
from attestors.wire.ssh.keys import PublicKey
from node_access.client.errors import WrongUse
from node_access.client.ssh_agent import public_key_of

MAXIMUM_PRIVATE_BYTES: Final = 16 * 1024
_NO_KEY: Final = "not an Ed25519 private key of this program"


@dataclass(frozen=True, slots=True)
class FreshKey:
    """Made for one grant."""

    private: Ed25519PrivateKey = field(repr=False)

    @property
    def public(self) -> PublicKey:
        """The public half."""
        return public_key_of(self.private)

    @property
    def text(self) -> bytes:
        """The private half, as ``ssh`` reads it."""
        return self.private.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption())


@dataclass(frozen=True, slots=True)
class ExistingKey:
    """A person's own key. This program never reads its private half."""

    public: PublicKey
    identity: str
    """What ``IdentityFile`` names."""


Key: TypeAlias = FreshKey | ExistingKey


def fresh_key() -> FreshKey:
    """A new Ed25519 key."""
    return FreshKey(Ed25519PrivateKey.generate())


def existing_key(identity: str) -> ExistingKey:
    """The key of a private key file, whose public half is beside it, or of a public key file.

    Raises:
        WrongUse: there is no such public key.
    """
    file = Path(identity).expanduser().absolute()
    public = file if file.suffix == ".pub" else file.with_name(f"{file.name}.pub")
    private = file.with_suffix("") if file.suffix == ".pub" else file
    try:
        with public.open("rb") as opened:
            key = parse_key_file(opened.read(MAXIMUM_FILE_BYTES + 1))
    except OSError as error:
        raise WrongUse(f"{str(public)!a}: {error.strerror}; --identity needs a public key") from error
    except SSHRefused as error:
        raise WrongUse(f"{str(public)!a}: {error.message}") from error
    return ExistingKey(key, str(private if private.exists() else public))


def read_fresh_key(content: bytes) -> FreshKey:
    """The key of a private key file of this program.

    Raises:
        ValueError: it is none.
    """
    try:
        key = load_ssh_private_key(content, None)
    except (UnsupportedAlgorithm, ValueError, TypeError) as error:
        raise ValueError(_NO_KEY) from error
    if not isinstance(key, Ed25519PrivateKey):
        raise ValueError(_NO_KEY)
    return FreshKey(key)
