"""The wire format of SSH (RFC 4251 section 5): strings, integers and multiple-precision integers.

A reader accepts one encoding of each value: the one that the functions here write.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from typing import Final

from attestors.wire.ssh.errors import SSHReason, SSHRefused, malformed

MAXIMUM_UINT64: Final = 2**64 - 1
_LENGTH_BYTES: Final = 4
_SIGN_BIT: Final = 0x80


def uint32(value: int) -> bytes:
    """Four bytes. Raises OverflowError for a number out of range."""
    return value.to_bytes(4, "big")


def uint64(value: int) -> bytes:
    """Eight bytes. Raises OverflowError for a number out of range."""
    return value.to_bytes(8, "big")


def string(value: bytes) -> bytes:
    """Length and content."""
    return len(value).to_bytes(_LENGTH_BYTES, "big") + value


def strings(values: Iterable[bytes]) -> bytes:
    """One string after the other."""
    return b"".join(map(string, values))


def mpint(value: int) -> bytes:
    """A number of at least 0 in two's complement, in as few bytes as possible."""
    return string(value.to_bytes((value.bit_length() + 8) // 8, "big") if value else b"")


def _ends_early(field: str) -> SSHRefused:
    return malformed(f"{field}: the data ends early")


class Reader:
    """Reads fields in order. The caller calls :meth:`end` at last."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def is_at_end(self) -> bool:
        """Whether every byte is read."""
        return self._position == len(self._data)

    @property
    def position(self) -> int:
        """Count of bytes that are read."""
        return self._position

    def take(self, length: int, field: str) -> bytes:
        """That many bytes.

        Raises:
            SSHRefused: ``Malformed``: there are fewer.
        """
        end = self._position + length
        if end > len(self._data):
            raise _ends_early(field)
        found = self._data[self._position : end]
        self._position = end
        return found

    def uint8(self, field: str) -> int:
        """One byte; raises as :meth:`take`."""
        return self.take(1, field)[0]

    def uint32(self, field: str) -> int:
        """Raises as :meth:`take`."""
        return int.from_bytes(self.take(4, field), "big")

    def uint64(self, field: str) -> int:
        """Raises as :meth:`take`."""
        return int.from_bytes(self.take(8, field), "big")

    def string(self, field: str, *, maximum: int) -> bytes:
        """A string of at most ``maximum`` bytes.

        Raises:
            SSHRefused: ``TooLarge``, or ``Malformed``: the data ends early.
        """
        start = self._position + _LENGTH_BYTES  # not by uint32 and take: nearly every field is a string
        length = int.from_bytes(self._data[self._position : start], "big")
        end = start + length
        if start <= len(self._data) and length > maximum:
            raise SSHRefused(SSHReason.TOO_LARGE, f"{field} has {length} bytes, more than {maximum}")
        if end > len(self._data):
            raise _ends_early(field)
        self._position = end
        return self._data[start:end]

    def text(self, field: str, *, maximum: int) -> str:
        """A string in UTF-8 without NUL bytes: OpenSSH reads it as a C string.

        Raises:
            SSHRefused: ``TooLarge`` or ``Malformed``.
        """
        content = self.string(field, maximum=maximum)
        if b"\0" in content:
            raise malformed(f"{field} holds a NUL byte")
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError:
            raise malformed(f"{field} is not UTF-8") from None

    def mpint(self, field: str, *, maximum_bits: int) -> int:
        """A number of at least 0.

        Raises:
            SSHRefused: ``TooLarge``, ``Malformed`` (negative), or ``NotCanonical`` (leading zeros).
        """
        content = self.string(field, maximum=maximum_bits // 8 + 1)
        if content and content[0] >= _SIGN_BIT:
            raise malformed(f"{field} is negative")
        value = int.from_bytes(content, "big")
        if mpint(value)[_LENGTH_BYTES:] != content:
            raise SSHRefused(SSHReason.NOT_CANONICAL, f"{field} has leading zeros")
        if value.bit_length() > maximum_bits:
            raise SSHRefused(SSHReason.TOO_LARGE, f"{field} has more than {maximum_bits} bits")
        return value

    def end(self, what: str) -> None:
        """Require that nothing follows.

        Raises:
            SSHRefused: ``TrailingBytes``.
        """
        if not self.is_at_end:
            raise SSHRefused(SSHReason.TRAILING_BYTES, f"{len(self._data) - self._position} bytes follow {what}")


def to_base64(data: bytes) -> str:
    """Base64 in one line (RFC 4648 section 4)."""
    return base64.b64encode(data).decode("ascii")


def from_base64(text: str, field: str) -> bytes:
    """Decode what :func:`to_base64` writes, and nothing else.

    Raises:
        SSHRefused: ``Malformed``, or ``NotCanonical``: the unused bits of the last character are not zero.
    """
    try:
        data = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise malformed(f"{field} is not Base64") from None
    if to_base64(data) != text:
        raise SSHRefused(SSHReason.NOT_CANONICAL, f"{field} is not Base64 in its only form")
    return data
