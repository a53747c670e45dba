from __future__ import annotations

import base64
import os

import msgspec
import pytest

from signer.controller.packed_request import COMPRESSED_FROM_BYTES, PackedRequest
from signer.kube.client import JsonObject
from tests.unit.signer.controller.requests import csr


def asking(evidence: bytes) -> JsonObject:
    """A CSR with evidence as nodes send it: base64 in a PEM block, which is base64 in JSON."""
    manifest = csr("node-0", "uid-0")
    manifest["spec"]["request"] = base64.b64encode(base64.b64encode(base64.b64encode(evidence))).decode()
    return manifest


@pytest.mark.parametrize("size", [0, 100, 5000])
def test_it_comes_back_as_it_was(size: int) -> None:
    manifest = asking(os.urandom(size))
    packed = PackedRequest.of(manifest, "uid-0")
    assert packed.unpacked() == manifest
    assert packed.uid == "uid-0"
    assert packed.compressed is (size == 5000)


def test_what_is_large_takes_half() -> None:
    manifest = asking(os.urandom(5000))
    assert PackedRequest.of(manifest, "uid-0").size < 0.6 * len(msgspec.json.encode(manifest))


def test_where_compression_begins() -> None:
    manifest = csr("node-0", "uid-0")
    short = COMPRESSED_FROM_BYTES - 1 - len(msgspec.json.encode({**manifest, "x": ""}))
    for more, compressed in ((0, False), (1, True)):
        packed = PackedRequest.of({**manifest, "x": "x" * (short + more)}, "uid-0")
        assert packed.compressed is compressed
