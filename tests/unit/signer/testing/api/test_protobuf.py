"""Bodies in protobuf, as client-go sends them."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signer.testing.api import protobuf
from signer.testing.api.status import APIError


def _varint(value: int) -> bytes:
    encoded = b""
    while value > 0x7F:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])


def _bytes(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _body(api_version: str, kind: str, raw: bytes) -> bytes:
    type_meta = _bytes(1, api_version.encode()) + _bytes(2, kind.encode())
    return b"k8s\x00" + _bytes(1, type_meta) + _bytes(2, raw)


def test_signing_request() -> None:
    extra = _bytes(1, b"key") + _bytes(2, _bytes(1, b"a") + _bytes(1, b"b"))
    spec = _bytes(1, b"pem") + _bytes(5, b"client auth") + _bytes(6, extra) + _bytes(7, b"a.b/c") + b"\x40\xd8\x04"
    condition = _bytes(1, b"Approved") + _bytes(6, b"True") + _bytes(4, b"\x08\x00") + _bytes(5, b"\x08\x01")
    metadata = _bytes(1, b"n") + _bytes(11, _bytes(1, b"l") + _bytes(2, b"v")) + _bytes(8, b"")
    raw = _bytes(1, metadata) + _bytes(2, spec) + _bytes(3, _bytes(1, condition))
    assert protobuf.read(_body("certificates.k8s.io/v1", "CertificateSigningRequest", raw)) == {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": "n", "labels": {"l": "v"}},
        "spec": {
            "request": base64.b64encode(b"pem").decode(),
            "usages": ["client auth"],
            "extra": {"key": ["a", "b"]},
            "signerName": "a.b/c",
            "expirationSeconds": 600,
        },
        "status": {
            "conditions": [
                {
                    "type": "Approved",
                    "status": "True",
                    "lastUpdateTime": "1970-01-01T00:00:00Z",
                    "lastTransitionTime": "1970-01-01T00:00:01Z",
                }
            ]
        },
    }


def test_unknown_kind_is_left_to_the_caller() -> None:
    assert protobuf.read(_body("v1", "Node", b"")) is None


@pytest.mark.parametrize("body", [b"", b"{}", b"k8s\x00\x0a\x05a", b"k8s\x00\x0b", b"k8s\x00" + b"\xff" * 12])
def test_malformed(body: bytes) -> None:
    with pytest.raises(APIError):
        protobuf.read(body)


@given(st.binary(max_size=200))
def test_arbitrary_content_decodes_or_is_a_bad_request(raw: bytes) -> None:
    try:
        value = protobuf.read(_body("v1", "Event", raw))
    except APIError as error:
        assert error.code == 400  # noqa: PT017 - either outcome is good
    else:
        assert value is not None
        assert value["kind"] == "Event"
