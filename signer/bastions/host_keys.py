"""Host keys of bastions: HKDF-SHA256 (RFC 5869) of the controller's own secret and the Bastion's UID.

A bastion that is made again has its former key, and nothing needs to be stored. The secret opens no node: it only lets
its holder pretend to be a bastion, which sees the second hop encrypted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from node_access.bastions.host_key import SEED_BYTES, BastionHostKey
from signer.configuration import InvalidConfiguration

MINIMUM_BYTES: Final = 32
MAXIMUM_BYTES: Final = 4096
_ADVICE: Final = "make one by: openssl rand -out FILE 64"
_INFO: Final = b"node-access bastion host key v1/"


@dataclass(frozen=True, slots=True)
class HostKeySecret:
    """The secret. Raises ValueError for one that is too short or too long."""

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if not MINIMUM_BYTES <= len(self.secret) <= MAXIMUM_BYTES:
            raise ValueError(f"the secret has {MINIMUM_BYTES} to {MAXIMUM_BYTES} bytes")

    def key_of(self, uid: str) -> BastionHostKey:
        """The host key of the Bastion with that UID."""
        derived = HKDF(algorithm=SHA256(), length=SEED_BYTES, salt=None, info=_INFO + uid.encode("ascii"))
        return BastionHostKey(derived.derive(self.secret))


def read_host_key_secret(path: Path) -> HostKeySecret:
    """Read the file, whose bytes are the secret.

    Raises:
        InvalidConfiguration: it cannot be read, or has another size.
    """
    try:
        return HostKeySecret(path.read_bytes())
    except OSError as error:
        raise InvalidConfiguration(f"--host-key-secret: {path}: {error.strerror}; {_ADVICE}") from error
    except ValueError as error:
        raise InvalidConfiguration(f"--host-key-secret: {path}: {error}; {_ADVICE}") from error
