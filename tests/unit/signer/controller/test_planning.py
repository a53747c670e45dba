"""Whether a journal entry still leads to a certificate."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from functools import cache

import pytest

from signer.authority import Authority, load_certificate_authority
from signer.controller.planning import fits, signing_hash
from signer.testing.certificates import EncryptionAlgorithm, new_cluster_certificate_authority
from tests.unit.signer.builders import NOW, journal_entry


@cache
def authority(number: int = 1) -> Authority:
    del number
    made = new_cluster_certificate_authority(EncryptionAlgorithm.ECDSA_P256, now=NOW, duration=timedelta(days=30))
    return Authority(load_certificate_authority(made.secret_data, now=NOW))


ENTRY = journal_entry(ca_cert_hash=signing_hash(authority()))


def test_an_entry_of_this_ca_with_time_left_fits() -> None:
    assert fits(ENTRY, authority(), NOW)


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(replace(ENTRY, ca_cert_hash=signing_hash(authority(2))), id="another CA"),
        pytest.param(replace(ENTRY, not_after=NOW - timedelta(seconds=1)), id="expired"),
        pytest.param(replace(ENTRY, not_after=NOW + timedelta(minutes=9)), id="nearly expired"),
        pytest.param(replace(ENTRY, not_after=NOW + timedelta(days=31)), id="outlives the CA that was issued anew"),
    ],
)
def test_an_entry_that_no_longer_fits_is_planned_again(entry: object) -> None:
    assert not fits(entry, authority(), NOW)  # type: ignore[arg-type]
