"""The authority that Constellation's RFC 016 derives from a master secret, for the day when nothing is online.

HKDF with SHA-256 (RFC 5869) makes 32 bytes from key, salt and info; they are the seed of an Ed25519 key (RFC 8032).
Info is ``ssh-ca`` as in the RFC, or what the caller says; Constellation's released code has ``key-ca_emergency_ssh``.
Generation 0 is the RFC's. Generation n from 1 on has info ``ssh-ca/<n>``, which is ours, and replaces a lost one.
One master secret serves many clusters: each has a salt of its own, which is public.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from dataclasses import dataclass, field, replace
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from signer.authority.ssh.authorities import UserAuthority
from signer.authority.ssh.errors import SSHAuthorityReason, SSHAuthorityRefused

DEFAULT_INFO: Final = "ssh-ca"
MAXIMUM_MASTER_SECRET_BYTES: Final = 16 * 1024
MAXIMUM_GENERATION: Final = 1_000_000
_SEED_BYTES: Final = 32
_KEY_RANGE: Final = range(16, 1025)
"""Constellation makes keys of 32 bytes, and accepts 16."""
_MAXIMUM_SALT_BYTES: Final = 1024
_INFO: Final = re.compile(r"[!-.0-~]{1,128}", re.ASCII)
"""Printable, without a slash: that separates the generation."""
_FORM: Final = 'write {"key": "<Base64>", "salt": "<Base64>"}'


@dataclass(frozen=True, slots=True)
class MasterSecret:
    """Key and salt.

    Raises:
        SSHAuthorityRefused: ``MasterSecretInvalid``: a length out of range.
    """

    key: bytes = field(repr=False)
    salt: bytes = b""

    def __post_init__(self) -> None:
        if len(self.key) not in _KEY_RANGE or len(self.salt) > _MAXIMUM_SALT_BYTES:
            raise SSHAuthorityRefused(
                SSHAuthorityReason.MASTER_SECRET_INVALID,
                f"the key of a master secret has {_KEY_RANGE[0]} to {_KEY_RANGE[-1]} bytes, its salt at most "
                f"{_MAXIMUM_SALT_BYTES}",
            )

    def with_salt(self, salt: bytes) -> MasterSecret:
        """The same key with another salt, such as a cluster's; raises as the constructor."""
        return replace(self, salt=salt)


def parse_master_secret(data: bytes) -> MasterSecret:
    """Parse the JSON of RFC 016. Messages never quote it.

    Raises:
        SSHAuthorityRefused: ``MasterSecretInvalid``.
    """
    if len(data) > MAXIMUM_MASTER_SECRET_BYTES:
        raise _invalid(f"it has more than {MAXIMUM_MASTER_SECRET_BYTES} bytes")
    try:
        found = json.loads(data.decode("utf-8"), object_pairs_hook=_object)
    except (ValueError, RecursionError):
        raise _invalid("it is not JSON, or a field is there twice") from None
    if not isinstance(found, dict) or not {"key"} <= found.keys() <= {"key", "salt"}:
        raise _invalid("it is not an object with key and salt, and nothing else")
    return MasterSecret(_base64(found["key"], "key"), parse_salt(found.get("salt", "")))


def parse_salt(value: object) -> bytes:
    """Parse a salt in Base64.

    Raises:
        SSHAuthorityRefused: ``MasterSecretInvalid``.
    """
    return _base64(value, "salt")


def derive_user_authority(master: MasterSecret, *, info: str = DEFAULT_INFO, generation: int = 0) -> UserAuthority:
    """Derive the authority.

    Raises:
        SSHAuthorityRefused: ``GenerationInvalid`` or ``InfoInvalid``.
    """
    if not 0 <= generation <= MAXIMUM_GENERATION:
        raise SSHAuthorityRefused(
            SSHAuthorityReason.GENERATION_INVALID, f"a generation is a number from 0 to {MAXIMUM_GENERATION}"
        )
    if _INFO.fullmatch(info) is None:
        raise SSHAuthorityRefused(
            SSHAuthorityReason.INFO_INVALID, "info is 1 to 128 printable ASCII characters without spaces and slashes"
        )
    full = f"{info}/{generation}" if generation else info
    seed = HKDF(SHA256(), _SEED_BYTES, master.salt or None, full.encode("ascii")).derive(master.key)
    return UserAuthority(Ed25519PrivateKey.from_private_bytes(seed))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("repeated")
    return found


def _base64(value: object, name: str) -> bytes:
    if not isinstance(value, str):
        raise _invalid(f"its {name} is not a string")
    try:
        return base64.b64decode(value.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise _invalid(f"its {name} is not Base64") from None


def _invalid(what: str) -> SSHAuthorityRefused:
    return SSHAuthorityRefused(SSHAuthorityReason.MASTER_SECRET_INVALID, f"the master secret: {what}; {_FORM}")
