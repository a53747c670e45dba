"""The form of the PKCS#7: the one that AWS writes, DER, and nothing else."""

from __future__ import annotations

import pytest

from attestors.aws.document import IdentityDocumentMalformed, verify_identity_document
from attestors.aws.document.signed_data import parse_signed_data
from attestors.aws.wire import MAXIMUM_IDENTITY_DOCUMENT_BYTES
from tests.support import aws_documents as aws
from tests.support.aws_documents import REGION, authority, certificates, document, indefinite, signer_info, tlv

_AWS = authority(REGION)
_CONTENT = document()
_SIGNER = signer_info(_AWS, _CONTENT)
_GENUINE = aws.sign(_CONTENT)


def test_genuine_form() -> None:
    assert _GENUINE.startswith(bytes.fromhex("308006092a864886f70d010702a0803080020101310d300b"))
    assert _GENUINE.endswith(bytes(6))
    assert parse_signed_data(_GENUINE).content == _CONTENT


def refused(pkcs7: bytes, match: str) -> None:
    with pytest.raises(IdentityDocumentMalformed, match=f"^the PKCS#7 of the instance identity document .*{match}"):
        verify_identity_document(pkcs7, certificates())


@pytest.mark.parametrize("behind", [b"\x00", b"\x00\x00", b"x", _GENUINE])
def test_bytes_behind_the_end(behind: bytes) -> None:
    refused(_GENUINE + behind, "has bytes after its end")


def test_every_beginning_alone() -> None:
    for length in range(len(_GENUINE)):
        with pytest.raises(IdentityDocumentMalformed):
            parse_signed_data(_GENUINE[:length])


def test_size() -> None:
    content = document(billingProducts="x" * 7000)
    larger = content + b" " * (MAXIMUM_IDENTITY_DOCUMENT_BYTES - len(aws.sign(content)))
    largest = aws.sign(larger[: MAXIMUM_IDENTITY_DOCUMENT_BYTES - len(aws.sign(larger))] or larger)
    assert len(largest) == MAXIMUM_IDENTITY_DOCUMENT_BYTES
    assert verify_identity_document(largest, certificates()).instance_id == aws.INSTANCE
    refused(largest + b"\x00", "is larger than 8192 bytes")


@pytest.mark.parametrize("depth", [10, 1000, 4000])
def test_nested_deeply(depth: int) -> None:
    refused(b"\x30\x80" * depth, "where contentType is expected")
    nested = b"\x24\x80" * (depth // 2) + bytes(depth // 2 * 2)
    refused(
        aws.signed_data(_SIGNER, content=nested)[:MAXIMUM_IDENTITY_DOCUMENT_BYTES], "has something unexpected in eC"
    )


@pytest.mark.parametrize(
    ("pkcs7", "match"),
    [
        (b"", "ends where ContentInfo is expected"),
        (b"\x30", "ends where ContentInfo is expected"),
        (tlv(0x04, _GENUINE), "type 0x04 where ContentInfo is expected"),
        (tlv(0x30, aws.DATA, tlv(0xA0, tlv(0x04, _CONTENT))), "is not SignedData"),
        (aws.signed_data(_SIGNER, content=tlv(0x04, _CONTENT), content_info_type=aws.ENVELOPED_DATA), "not SignedData"),
        (
            aws.signed_data(_SIGNER, content=tlv(0x04, _CONTENT), content_type=aws.SIGNED_DATA),
            "has a content that is not plain data",
        ),
        (aws.signed_data(_SIGNER, content=tlv(0x04, _CONTENT), version=b"\x02\x01\x03"), "another version than 1"),
        (aws.signed_data(_SIGNER, content=tlv(0x0C, _CONTENT)), "where eContent is expected"),
        (aws.signed_data(_SIGNER, content=tlv(0x24, tlv(0x04, _CONTENT))), "in segments but of definite length"),
        (
            aws.signed_data(_SIGNER, content=indefinite(0x24, indefinite(0x24, tlv(0x04, _CONTENT)))),
            "has something unexpected in eContent",
        ),
        (
            aws.signed_data(_SIGNER, content=indefinite(0x24, tlv(0x0C, _CONTENT))),
            "has something unexpected in eContent",
        ),
        (
            aws.signed_data(_SIGNER, content=indefinite(0x24, tlv(0x04, _CONTENT), *60 * [tlv(0x04, b"")] * 2)),
            "content of more than 64 segments",
        ),
        (
            aws.signed_data(_SIGNER, content=tlv(0x04, _CONTENT) + tlv(0x04, _CONTENT)),
            "has something unexpected in eContent",
        ),
        (
            aws.signed_data(_SIGNER, content=tlv(0x04, _CONTENT), streamed=False, between=tlv(0x30)),
            "where signerInfos is expected",
        ),
        (
            aws.signed_data(_SIGNER, content=tlv(0x04, _CONTENT), between=indefinite(0xA0, _AWS.der)),
            "has an indefinite length for certificates",
        ),
        (
            aws.signed_data(_SIGNER, content=tlv(0x04, _CONTENT), between=2 * tlv(0xA0, _AWS.der)),
            "where signerInfos is expected",
        ),
        (
            aws.signed_data(_SIGNER + tlv(0x04), content=tlv(0x04, _CONTENT)),
            "where one of its values is expected",
        ),
        (
            aws.signed_data(tlv(0x30, _SIGNER[4:], b"\x05\x00"), content=tlv(0x04, _CONTENT)),
            "has bytes after its end",
        ),
    ],
)
def test_other_forms(pkcs7: bytes, match: str) -> None:
    refused(pkcs7, match)


@pytest.mark.parametrize(
    "field",
    [b"\x30" + _SIGNER[1:2], aws.SHA256, tlv(0x31, aws.SHA256), aws.VERSION_1, aws.SIGNED_DATA],
    ids=["SignerInfo", "digestAlgorithm", "digestAlgorithms", "version", "contentType"],
)
def test_only_the_outer_layers_may_be_of_indefinite_length(field: bytes) -> None:
    position = _GENUINE.index(field)
    indefinite_there = _GENUINE[: position + 1] + b"\x80" + _GENUINE[position + 2 :]
    with pytest.raises(IdentityDocumentMalformed, match="indefinite length"):
        parse_signed_data(indefinite_there)


_LENGTH_POSITION = _GENUINE.index(aws.SHA256) - 1
"""Where the length of digestAlgorithms stands: 0x0d."""


@pytest.mark.parametrize("length", ["810d", "82000d", "8300000d", "840000000d", "ff"])
def test_lengths_that_are_not_the_shortest(length: str) -> None:
    assert _GENUINE[_LENGTH_POSITION] == len(aws.SHA256)
    longer = _GENUINE[:_LENGTH_POSITION] + bytes.fromhex(length) + _GENUINE[_LENGTH_POSITION + 1 :]
    with pytest.raises(IdentityDocumentMalformed, match=r"not the shortest|excessive length"):
        parse_signed_data(longer)


def test_length_that_would_have_done_in_one_octet_less() -> None:
    content = b"x" * 200
    info = signer_info(_AWS, content)
    good = aws.signed_data(info, content=tlv(0x04, content))
    assert parse_signed_data(good).content == content
    with pytest.raises(IdentityDocumentMalformed, match="not the shortest"):
        parse_signed_data(good.replace(b"\x04\x81\xc8x", b"\x04\x82\x00\xc8x"))


def test_definite_layer_that_ends_early_or_late() -> None:
    good = aws.signed_data(_SIGNER, content=tlv(0x04, _CONTENT), streamed=False)
    assert parse_signed_data(good).content == _CONTENT
    assert good[:2] == b"\x30\x82"
    for difference in (-1, 1):
        length = int.from_bytes(good[2:4], "big") + difference
        with pytest.raises(IdentityDocumentMalformed):
            parse_signed_data(good[:2] + length.to_bytes(2, "big") + good[4:])


def test_inner_layer_that_reaches_out_of_the_outer_one() -> None:
    """What follows the outer value must not be read as part of the inner one."""
    inside = tlv(0x30, aws.SIGNED_DATA, b"\xa0\x20")
    with pytest.raises(IdentityDocumentMalformed, match="ends inside content"):
        parse_signed_data(inside + bytes(0x20))
