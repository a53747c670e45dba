"""A CSR as it is kept while it waits: its text is base64 of base64 of base64, and in a flood there are thousands."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from sys import getsizeof
from typing import Any, Final

import msgspec

from signer.kube.client import JsonObject

_FASTEST: Final = 1
"""Of zlib's levels."""
_decode = msgspec.json.Decoder(dict[str, Any]).decode


@dataclass(frozen=True, slots=True)
class PackedRequest:
    """Half as large as the object, for 0.05 ms of CPU each way."""

    uid: str
    compressed: bytes

    @classmethod
    def of(cls, manifest: JsonObject, uid: str) -> PackedRequest:
        """Pack an object that came as JSON."""
        return cls(uid, zlib.compress(msgspec.json.encode(manifest), _FASTEST))

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return getsizeof(self) + getsizeof(self.uid) + getsizeof(self.compressed)

    def unpacked(self) -> JsonObject:
        """The object, as it came."""
        return _decode(zlib.decompress(self.compressed))
