"""Whatever is done to a signed document: it is refused, or says what was signed."""

from __future__ import annotations

import functools

from hypothesis import given
from hypothesis import strategies as st

from attestors.aws.document import (
    IdentityDocumentMalformed,
    IdentityDocumentRefused,
    parse_identity_document,
    read_recorded,
    verify_identity_document,
)
from attestors.aws.document.signed_data import parse_signed_data
from tests.support import aws_documents as aws
from tests.support.aws_documents import certificates, document
from tests.unit.attestors.support import PATIENT

_PINS = certificates()
_GENUINE = aws.sign(document())
_OF_ANOTHER = aws.sign(document(instanceId="i-0fedcba9876543210", availabilityZone="eu-west-1b"))


@functools.cache
def what_was_signed() -> tuple[object, ...]:
    return tuple(verify_identity_document(pkcs7, _PINS) for pkcs7 in (_GENUINE, _OF_ANOTHER))


def refused_or_as_signed(pkcs7: bytes) -> None:
    try:
        verified = verify_identity_document(pkcs7, _PINS)
    except IdentityDocumentRefused:
        return
    assert verified in what_was_signed()


@PATIENT
@given(st.integers(0, len(_GENUINE) - 1), st.integers(1, 255))
def test_one_octet_changed(position: int, difference: int) -> None:
    changed = bytearray(_GENUINE)
    changed[position] ^= difference
    refused_or_as_signed(bytes(changed))


@PATIENT
@given(st.integers(0, len(_GENUINE)), st.integers(0, len(_GENUINE)), st.binary(max_size=40))
def test_a_part_replaced(start: int, end: int, part: bytes) -> None:
    refused_or_as_signed(_GENUINE[:start] + part + _GENUINE[end:])


@PATIENT
@given(st.integers(0, len(_GENUINE)), st.integers(0, len(_GENUINE)))
def test_two_documents_mixed(start: int, end: int) -> None:
    refused_or_as_signed(_GENUINE[:start] + _OF_ANOTHER[end:])
    refused_or_as_signed(_GENUINE[: min(start, end)] + _OF_ANOTHER[min(start, end) : end] + _GENUINE[end:])


@PATIENT
@given(st.binary(max_size=300))
def test_anything(data: bytes) -> None:
    for parse in (parse_signed_data, parse_identity_document, read_recorded):
        try:
            parse(data)
        except IdentityDocumentMalformed:
            continue


@PATIENT
@given(
    st.lists(
        st.sampled_from(
            [
                b"\x30\x80", b"\xa0\x80", b"\x24\x80", b"\x00\x00", b"\x31\x00", b"\x04\x01x", b"\x02\x01\x01",
                aws.SIGNED_DATA, aws.DATA, aws.SHA256, aws.tlv(0x31, aws.SHA256),
            ]
        ),
        max_size=24,
    )
)  # fmt: skip
def test_any_row_of_the_parts_it_is_made_of(parts: list[bytes]) -> None:
    refused_or_as_signed(b"".join(parts))


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@PATIENT
@given(st.sampled_from(["accountId", "instanceId", "region", "availabilityZone", "privateIp", "pendingTime"]), _JSON)
def test_any_value_of_a_member(name: str, value: object) -> None:
    try:
        read = parse_identity_document(document(**{"availabilityZone": "eu-west-1a", name: value}))
    except IdentityDocumentMalformed:
        return
    assert read.provider_id.count("/") == 4
    assert len(read.account_id) == 12
