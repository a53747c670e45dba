"""Parses TPM marshalling (TPM 2.0 Library, Part 1, 3.2 "Marshaling"): big-endian, with sizes before contents."""

from __future__ import annotations


class MalformedStructure(ValueError):
    """The bytes are not the expected structure; the message names the structure, the field and the error."""


class Reader:
    """Parses a structure from front to back, and requires that no bytes are left."""

    def __init__(self, data: bytes, structure: str, *, maximum_bytes: int) -> None:
        """Raises ``MalformedStructure``: ``data`` is larger than ``maximum_bytes``."""
        self._data = data
        self._position = 0
        self._structure = structure
        if len(data) > maximum_bytes:
            raise self.malformed(f"larger than {maximum_bytes} bytes")

    def malformed(self, fault: str) -> MalformedStructure:
        """The error to raise, prefixed with the structure's name."""
        return MalformedStructure(f"{self._structure}: {fault}")

    def octets(self, count: int, field: str) -> bytes:
        """Exactly ``count`` bytes.

        Raises:
            MalformedStructure: there are fewer.
        """
        end = self._position + count
        if end > len(self._data):
            raise self.malformed(f"ends inside {field}")
        octets = self._data[self._position : end]
        self._position = end
        return octets

    def integer(self, count: int, field: str) -> int:
        """An unsigned integer of ``count`` bytes.

        Raises:
            MalformedStructure: there are fewer.
        """
        return int.from_bytes(self.octets(count, field), "big")

    def sized(self, field: str, *, maximum_bytes: int) -> bytes:
        """The content of a TPM2B: a two-byte size, then that many bytes.

        Raises:
            MalformedStructure: the size exceeds ``maximum_bytes`` or the available bytes.
        """
        size = self.integer(2, field)
        if size > maximum_bytes:
            raise self.malformed(f"{field} is larger than {maximum_bytes} bytes")
        return self.octets(size, field)

    def finish(self) -> None:
        """Raises ``MalformedStructure`` if bytes are left."""
        if self._position != len(self._data):
            raise self.malformed("has bytes after its end")


def sized(content: bytes) -> bytes:
    """A TPM2B with this content."""
    return len(content).to_bytes(2, "big") + content
