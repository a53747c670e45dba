"""The reader of validities against a whole X.509 library, and against what is no certificate."""

from __future__ import annotations

import base64
import contextlib
from datetime import UTC, datetime

from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import assume, given
from hypothesis import strategies as st

from authenticator.model.pair import UnreadablePair, parse_pair
from tests.unit.attestors.support import PATIENT
from tests.unit.authenticator.builders import certificate, key_pem, pem_of

moments = st.datetimes(datetime(1950, 1, 1), datetime(9999, 12, 31, 23, 59, 59)).map(
    lambda moment: moment.replace(microsecond=0, tzinfo=UTC)
)
DER = certificate().public_bytes(Encoding.DER)
TEXT = pem_of(certificate()) + key_pem()


def read(text: str) -> None:
    """It is read, or refused in the one way there is."""
    with contextlib.suppress(UnreadablePair):
        assert parse_pair(text).encode() == text


@PATIENT
@given(moments, moments, st.integers(1, 2**159 - 1))
def test_the_validity_is_what_the_library_reads(one: datetime, other: datetime, serial_number: int) -> None:
    assume(one != other)
    made = certificate(not_before=min(one, other), not_after=max(one, other), serial_number=serial_number)
    found = parse_pair(pem_of(made) + key_pem())
    assert found.not_before == int(made.not_valid_before_utc.timestamp())
    assert found.not_after == int(made.not_valid_after_utc.timestamp())


@PATIENT
@given(st.integers(0, len(TEXT) - 1))
def test_no_truncation_is_a_pair(length: int) -> None:
    try:
        parse_pair(TEXT[:length])
    except UnreadablePair:
        return
    raise AssertionError(length)


@PATIENT
@given(st.integers(0, len(TEXT) - 1), st.characters())
def test_a_changed_character_is_read_or_refused(position: int, character: str) -> None:
    read(TEXT[:position] + character + TEXT[position + 1 :])


@PATIENT
@given(st.integers(0, len(DER) - 1), st.binary(max_size=4), st.integers(0, 4))
def test_changed_bytes_of_a_certificate_are_read_or_refused(position: int, inserted: bytes, removed: int) -> None:
    changed = DER[:position] + inserted + DER[position + removed :]
    body = base64.encodebytes(changed).decode("ascii")
    read(f"-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n{key_pem()}")


@PATIENT
@given(st.binary(max_size=80))
def test_any_bytes_as_a_certificate_are_refused(data: bytes) -> None:
    body = base64.encodebytes(data).decode("ascii")
    read(f"-----BEGIN CERTIFICATE-----\n{body}-----END CERTIFICATE-----\n{key_pem()}")


@PATIENT
@given(st.text(max_size=60))
def test_any_text_is_refused(text: str) -> None:
    read(text)
