"""Key ids: sshd logs them at each login, and a revocation list may name them.

A key id is parts joined by ``/``. Within a part, every byte that is not a letter, a digit or one of ``._~:@+=-`` is
percent-encoded (RFC 3986 section 2.1), so that a name can add no part, no line and no words to the log.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import Final

from attestors.wire.ssh.certificate import MAXIMUM_KEY_ID_BYTES
from attestors.wire.ssh.errors import SSHReason, SSHRefused

_UNESCAPED: Final = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._~:@+=-")


_ESCAPE: Final = re.compile(rb"%([0-9A-F]{2})")


@dataclass(frozen=True, slots=True)
class KeyID:
    """The key id of a certificate.

    Raises:
        SSHRefused: ``KeyIDInvalid``: no part, an empty one, or longer than 1024 characters in all.
    """

    parts: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.parts or "" in self.parts:
            raise SSHRefused(SSHReason.KEY_ID_INVALID, "a key id has one part or more, and none of them is empty")
        if len(str(self)) > MAXIMUM_KEY_ID_BYTES:
            raise SSHRefused(
                SSHReason.KEY_ID_INVALID, f"the key id is longer than {MAXIMUM_KEY_ID_BYTES} characters; shorten a name"
            )

    @classmethod
    def of(cls, *parts: str) -> KeyID:
        """The key id of those parts; raises as the constructor."""
        return cls(parts)

    @classmethod
    def parse(cls, text: str) -> KeyID:
        """Read what ``str`` writes.

        Raises:
            SSHRefused: ``KeyIDInvalid``: it is another text.
        """
        try:
            found = cls(tuple(_unescaped(part) for part in text.split("/")))
        except UnicodeDecodeError:
            raise SSHRefused(SSHReason.KEY_ID_INVALID, "the key id has a part that is not UTF-8") from None
        if str(found) != text:
            raise SSHRefused(SSHReason.KEY_ID_INVALID, "the key id has another form than the controller's")
        return found

    def __str__(self) -> str:
        return "/".join(map(_escaped, self.parts))


@functools.lru_cache(maxsize=4096)  # the same names in each certificate of a node
def _escaped(part: str) -> str:
    return "".join(
        chr(byte) if byte in _UNESCAPED else f"%{byte:02X}" for byte in part.encode("utf-8", "surrogatepass")
    )


def _unescaped(part: str) -> str:
    escaped = part.encode("utf-8", "surrogatepass")
    return _ESCAPE.sub(lambda found: bytes((int(found[1], 16),)), escaped).decode("utf-8", "surrogatepass")
