"""The host key of a bastion: Ed25519, from a seed that the controller derives from its own secret and the UID.

The same seed gives the same file, byte for byte: a cloud that is asked twice to make one machine compares the requests.
``cryptography`` writes random check numbers into the file, so this module writes it (OpenSSH's PROTOCOL.key).
"""

from __future__ import annotations

import base64
import hashlib
from dataclasses import dataclass, field
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from attestors.wire.ssh.encoding import string, uint32

SEED_BYTES: Final = 32
_MAGIC: Final = b"openssh-key-v1\x00"
_TYPE: Final = b"ssh-ed25519"
_BLOCK: Final = 8
_LINE: Final = 70


@dataclass(frozen=True, slots=True)
class BastionHostKey:
    """The private key. Raises ValueError for a seed of another length."""

    seed: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.seed) != SEED_BYTES:
            raise ValueError(f"the seed of a host key has {SEED_BYTES} bytes")

    def private_key(self) -> Ed25519PrivateKey:
        """The key itself."""
        return Ed25519PrivateKey.from_private_bytes(self.seed)

    def private_file(self) -> bytes:
        """The file that sshd reads, unencrypted; the same bytes at each call."""
        public = self.private_key().public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        blob = string(_TYPE) + string(public)
        # Two equal numbers: OpenSSH sees by them whether it decrypted the file. Nothing else depends on them.
        check = hashlib.sha256(b"check" + blob).digest()[:4]
        inner = check * 2 + string(_TYPE) + string(public) + string(self.seed + public) + string(b"")
        inner += bytes(range(1, 1 + -len(inner) % _BLOCK))
        body = _MAGIC + string(b"none") + string(b"none") + string(b"") + uint32(1) + string(blob) + string(inner)
        text = base64.b64encode(body).decode("ascii")
        lines = [text[start : start + _LINE] for start in range(0, len(text), _LINE)]
        return "\n".join(
            ["-----BEGIN OPENSSH PRIVATE KEY-----", *lines, "-----END OPENSSH PRIVATE KEY-----", ""]
        ).encode("ascii")
