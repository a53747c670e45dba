"""Garbage, truncations and flipped bits, in any number."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestors.tpm.endorsement import (
    CertificateUnreadable,
    EndorsementCertificateRefused,
    verify_endorsement_certificate,
)
from attestors.tpm.endorsement.certificate import (
    read_certificates,
    read_stored_certificate,
)
from signer.authority.der import sequence
from tests.unit.attestors.support import PATIENT
from tests.unit.attestors.tpm.endorsement.imitations import FOLDERS, read, verify
from tests.unit.attestors.tpm.endorsement.support import (
    NOW,
    Attempt,
    elliptic_key,
    endorsement,
)

ENCODED = endorsement()
AUTHORITIES = Attempt().authorities()


@PATIENT
@given(st.sampled_from(FOLDERS), st.data())
def test_no_bit_of_the_signed_part_may_change(folder: Path, data: st.DataObject) -> None:
    certificate = read(folder)
    start = certificate.encoded.index(certificate.signed)
    position = data.draw(st.integers(start * 8, (start + len(certificate.signed)) * 8 - 1))
    changed = bytearray(certificate.encoded)
    changed[position // 8] ^= 1 << position % 8
    with pytest.raises(EndorsementCertificateRefused):
        verify(folder, bytes(changed))


@PATIENT
@given(st.sampled_from(FOLDERS), st.data())
def test_a_certificate_that_is_cut_short_is_refused(folder: Path, data: st.DataObject) -> None:
    encoded = read(folder).encoded
    with pytest.raises(EndorsementCertificateRefused):
        verify(folder, encoded[: data.draw(st.integers(0, len(encoded) - 1))])


@PATIENT
@given(st.binary(max_size=200) | st.binary(max_size=200).map(sequence) | st.binary(max_size=99).map(ENCODED.__add__))
def test_garbage_is_refused_in_our_own_words(data: bytes) -> None:
    key = elliptic_key("another chip").public_key()
    with pytest.raises(EndorsementCertificateRefused):
        verify_endorsement_certificate(data, endorsement_key=key, authorities=AUTHORITIES, at=NOW)


@PATIENT
@given(st.data())
def test_any_octet_may_be_wrong_without_harm(data: st.DataObject) -> None:
    """Reads or refuses, and nothing else: also where the change makes lengths and types lie."""
    position = data.draw(st.integers(0, len(ENCODED) - 1))
    octets = data.draw(st.binary(min_size=1, max_size=3))
    changed = ENCODED[:position] + octets + ENCODED[position + len(octets) :]
    with contextlib.suppress(CertificateUnreadable):
        read_stored_certificate(changed)
    with contextlib.suppress(CertificateUnreadable):
        read_certificates(changed, maximum_count=3)
