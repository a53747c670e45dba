from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signer.authority import (
    CertificateAuthorityUnavailable,
    CertificateAuthorityUnavailableReason,
    IssuanceRefused,
    IssuanceRefusedReason,
    certificate_validity,
    new_serial_number,
)
from tests.unit.signer.authority.support import NOW

WEEK = timedelta(days=7)
FAR = NOW + timedelta(days=3650)
BACKDATE = timedelta(minutes=5)


def test_policy_alone() -> None:
    validity = certificate_validity(NOW, WEEK, None, FAR)
    assert validity.not_before == NOW - BACKDATE
    assert validity.not_after - validity.not_before == WEEK


@pytest.mark.parametrize(
    ("seconds", "not_after"),
    [
        (600, NOW + timedelta(seconds=600)),
        (8 * 3600 - 1, NOW + timedelta(seconds=8 * 3600 - 1)),
        (8 * 3600, NOW + timedelta(hours=8) - BACKDATE),
        (86400, NOW + timedelta(days=1) - BACKDATE),
        (30 * 86400, NOW + WEEK - BACKDATE),
        (1 << 70, NOW + WEEK - BACKDATE),
    ],
)
def test_the_shorter_of_policy_and_request(seconds: int, not_after: datetime) -> None:
    assert certificate_validity(NOW, WEEK, seconds, FAR).not_after == not_after


@pytest.mark.parametrize("left", [timedelta(minutes=10), timedelta(hours=7, minutes=58), timedelta(days=6)])
def test_ends_with_the_authority(left: timedelta) -> None:
    assert certificate_validity(NOW, WEEK, None, NOW + left).not_after == NOW + left


def test_the_last_representable_date_does_not_overflow() -> None:
    end = datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)
    assert certificate_validity(NOW, timedelta.max, None, end).not_after == end


@pytest.mark.parametrize(
    ("left", "reason"),
    [
        (timedelta(0), CertificateAuthorityUnavailableReason.EXPIRED),
        (timedelta(days=-1), CertificateAuthorityUnavailableReason.EXPIRED),
        (timedelta(seconds=1), CertificateAuthorityUnavailableReason.EXPIRING),
        (timedelta(seconds=599), CertificateAuthorityUnavailableReason.EXPIRING),
    ],
)
def test_an_authority_at_its_end(left: timedelta, reason: CertificateAuthorityUnavailableReason) -> None:
    with pytest.raises(CertificateAuthorityUnavailable) as caught:
        certificate_validity(NOW, WEEK, None, NOW + left)
    assert caught.value.reason is reason
    assert "tls.crt" in caught.value.message


@pytest.mark.parametrize("seconds", [599, 0, -1])
def test_a_request_below_ten_minutes_is_not_lengthened(seconds: int) -> None:
    with pytest.raises(IssuanceRefused) as caught:
        certificate_validity(NOW, WEEK, seconds, FAR)
    assert caught.value.reason is IssuanceRefusedReason.EXPIRATION_TOO_SHORT


def test_faults_of_the_caller() -> None:
    with pytest.raises(ValueError, match="aware"):
        certificate_validity(NOW.replace(tzinfo=None), WEEK, None, FAR)
    with pytest.raises(ValueError, match="aware"):
        certificate_validity(NOW, WEEK, None, FAR.replace(tzinfo=None))
    with pytest.raises(ValueError, match="policy_duration"):
        certificate_validity(NOW, timedelta(seconds=599), None, FAR)


@given(
    now=st.datetimes(datetime(2000, 1, 1), datetime(2200, 1, 1)),
    offset=st.integers(-14, 14),
    policy=st.timedeltas(timedelta(minutes=10), timedelta(days=20000)),
    seconds=st.none() | st.integers(600, 1 << 40),
    left=st.timedeltas(timedelta(minutes=10, seconds=1), timedelta(days=20000)),
)
def test_never_longer_than_any_of_the_three(
    now: datetime, offset: int, policy: timedelta, seconds: int | None, left: timedelta
) -> None:
    moment = now.replace(tzinfo=timezone(timedelta(hours=offset)))
    end = moment.astimezone(UTC) + left
    validity = certificate_validity(moment, policy, seconds, end)
    remaining = validity.not_after - moment
    window = validity.not_after - validity.not_before
    assert remaining <= policy
    assert validity.not_after <= end
    assert seconds is None or remaining <= timedelta(seconds=seconds)
    assert window <= max(policy, timedelta(hours=8, minutes=5))
    assert remaining >= timedelta(minutes=9, seconds=58)
    for value in (validity.not_before, validity.not_after):
        assert value.utcoffset() == timedelta(0)
        assert value.microsecond == 0
    assert timedelta(0) <= moment - validity.not_before - BACKDATE < timedelta(seconds=1)


def test_serial_numbers() -> None:
    numbers = {new_serial_number() for _ in range(200)}
    assert len(numbers) == 200
    assert {number.bit_length() for number in numbers} == {127}
