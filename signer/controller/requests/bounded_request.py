"""What is kept of one pending CSR: bounded, because a workload API server may send objects of any form and size, and
packed, because its text is base64 of base64 of base64, and a flood has thousands.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from sys import getsizeof
from typing import Any, Final

import msgspec

from signer.kube.answers import MAXIMUM_DEPTH, read_object
from signer.kube.client import JsonObject
from signer.kube.resources import segment
from signer.model.signing_request import MAXIMUM_REQUEST_TEXT

MAXIMUM_ANNOTATION_BYTES: Final = 64 * 1024
"""Limit for one CSR's annotations and labels, in bytes of memory; those that the controller reads are far smaller."""
MAXIMUM_OBJECT_BYTES: Final = 256 * 1024
"""Limit for one CSR, in bytes of memory: the largest request (88 KiB of base64) and its requester, with a margin."""
MAXIMUM_UID_CHARACTERS: Final = 128
"""API servers use UUIDs of 36 characters; the controller keeps UIDs of settled CSRs longer than the CSRs."""


class UnusableRequest(Exception):
    """The CSR has no usable name or UID, cannot take a condition or annotation, or is too large even when cut."""


def bounded(manifest: JsonObject) -> tuple[JsonObject, int]:
    """Cut a pending CSR (``is_pending``) to what is kept of it, and measure that in bytes of memory.

    Raises:
        UnusableRequest: the CSR cannot be kept.
    """
    metadata, spec, status = manifest.get("metadata"), manifest["spec"], manifest.get("status") or {}
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise UnusableRequest("it has no name that is text")
    name, uid = metadata["name"], metadata.get("uid")
    try:
        segment(name)
    except ValueError as error:
        raise UnusableRequest(str(error)) from error
    if not isinstance(uid, str) or not 0 < len(uid) <= MAXIMUM_UID_CHARACTERS:
        raise UnusableRequest(f"its UID is no text of 1 to {MAXIMUM_UID_CHARACTERS} characters")
    if not can_be_answered(metadata, status):
        raise UnusableRequest("its annotations are no map, or its conditions no list: no answer can be added to them")
    request = spec.get("request")
    if isinstance(request, str) and len(request) > MAXIMUM_REQUEST_TEXT:
        # Enough to see that it is too large. Base64 is cut at a group boundary, or the API server could not decode the
        # denial; the API server keeps its own spec in any case.
        spec = {**spec, "request": request[: MAXIMUM_REQUEST_TEXT + 4]}
    kept = {
        **manifest,
        "metadata": {field: value for field, value in metadata.items() if field != "managedFields"},
        "spec": spec,
    }
    size = _size(kept, MAXIMUM_OBJECT_BYTES)
    # A small object has no large annotations: an ordinary CSR is measured once.
    if size <= MAXIMUM_ANNOTATION_BYTES or (size <= MAXIMUM_OBJECT_BYTES and not _is_described_at_length(metadata)):
        return kept, size
    kept = {
        "metadata": {"name": name, "uid": uid, "resourceVersion": metadata.get("resourceVersion")},
        "spec": spec,
        "status": {"conditions": status["conditions"]} if "conditions" in status else {},
    }
    size = _size(kept, MAXIMUM_OBJECT_BYTES)
    if size > MAXIMUM_OBJECT_BYTES:
        raise UnusableRequest(f"spec and conditions take more than {MAXIMUM_OBJECT_BYTES} bytes")
    return kept, size


def can_be_answered(metadata: JsonObject, status: JsonObject) -> bool:
    """Whether an annotation and a condition can be added to the CSR."""
    return isinstance(metadata.get("annotations"), dict | None) and isinstance(status.get("conditions"), list | None)


def is_too_large(parts: Sequence[JsonObject]) -> bool:
    """Whether these parts of a CSR exceed the limit for one CSR."""
    return _size([*parts], MAXIMUM_OBJECT_BYTES) > MAXIMUM_OBJECT_BYTES


def _is_described_at_length(metadata: JsonObject) -> bool:
    described = [metadata.get("annotations"), metadata.get("labels")]
    return _size(described, MAXIMUM_ANNOTATION_BYTES) > MAXIMUM_ANNOTATION_BYTES


def _size(value: Any, maximum: int) -> int:
    """Bytes of memory that a JSON value takes, or some number above ``maximum``.

    Measuring stops once the value exceeds ``maximum`` or is nested deeper than any CSR, which Python could decode but
    not encode. All values count, not only strings: one megabyte of ``{},{},...`` takes thirty.
    """
    size = 0
    level = [value]
    for _ in range(MAXIMUM_DEPTH):
        items, level = level, []
        for item in items:
            size += getsizeof(item)
            kind = type(item)
            if kind is str:  # most of them
                continue
            # Check before the items of a long list are visited. Each item takes at least a pointer in its container, so
            # checking at containers is enough.
            if kind is dict:
                if size > maximum:
                    return size
                level += item
                level += item.values()
            elif kind is list:
                if size > maximum:
                    return size
                level += item
        if not level:
            return size
    return maximum + 1


_FASTEST: Final = 1
"""zlib level."""


@dataclass(frozen=True, slots=True)
class PackedRequest:
    """The CSR's JSON, half as large as the object; compressed (about 0.03 ms of CPU) a third."""

    uid: str
    content: bytes
    compressed: bool

    @classmethod
    def of(cls, manifest: JsonObject, uid: str, *, compressed: bool) -> PackedRequest:
        """Pack an object that was decoded from JSON."""
        content = msgspec.json.encode(manifest)
        return cls(uid, zlib.compress(content, _FASTEST) if compressed else content, compressed)

    @property
    def size(self) -> int:
        """Bytes of memory."""
        return getsizeof(self) + getsizeof(self.uid) + getsizeof(self.content)

    def unpacked(self) -> JsonObject:
        """The original object."""
        return read_object(zlib.decompress(self.content) if self.compressed else self.content)
