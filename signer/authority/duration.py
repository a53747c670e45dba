"""Plans the validity of a certificate. All functions but `new_serial_number` are pure."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from signer.authority.errors import (
    CertificateAuthorityUnavailable,
    CertificateAuthorityUnavailableReason,
    IssuanceRefused,
    IssuanceRefusedReason,
)

__all__ = ["BACKDATE", "MINIMUM_DURATION", "Validity", "certificate_validity", "new_serial_number"]

BACKDATE: Final = timedelta(minutes=5)
"""Allowance for slow clocks; the same as in kube-controller-manager."""
MINIMUM_DURATION: Final = timedelta(minutes=10)
"""Kubernetes' minimum of ``spec.expirationSeconds``, 600."""
_SHORT: Final = timedelta(hours=8)
"""Below this, kube-controller-manager does not subtract the backdating from the duration."""
_SERIAL_NUMBER_BITS: Final = 127


@dataclass(frozen=True, slots=True)
class Validity:
    """Start and end in UTC, whole seconds, both inclusive (RFC 5280 4.1.2.5)."""

    not_before: datetime
    not_after: datetime


def certificate_validity(
    now: datetime, policy_duration: timedelta, expiration_seconds: int | None, ca_not_after: datetime
) -> Validity:
    """Plan a validity: the minimum of the policy's, the request's and the CA's remaining time, backdated by 5 minutes.

    ``not_after`` is never later than ``now`` plus that minimum. From 8 hours on, the duration includes the backdating,
    as in kube-controller-manager (``pkg/controller/certificates/authority/policies.go``), so that the whole validity is
    not longer than requested. A shorter certificate is valid for the full duration from ``now``.

    Args:
        now: timezone-aware.
        policy_duration: the duration that policy and configuration allow; at least ten minutes.
        expiration_seconds: the CSR's ``spec.expirationSeconds``; None if it is not set.
        ca_not_after: end of the CA that will sign; timezone-aware.

    Raises:
        CertificateAuthorityUnavailable: ``CertificateAuthorityExpired``, or ``CertificateAuthorityExpiring`` with less
            than ten minutes left.
        IssuanceRefused: ``ExpirationTooShort``, below 600 seconds. The API server rejects that. A longer certificate
            would exceed the request.
        ValueError: ``policy_duration`` is below ten minutes, or a time is naive: a bug in the caller.
    """
    if now.tzinfo is None or ca_not_after.tzinfo is None:
        raise ValueError("times must be aware")
    if policy_duration < MINIMUM_DURATION:
        raise ValueError(f"policy_duration must be at least {MINIMUM_DURATION}")
    start = now.astimezone(UTC).replace(microsecond=0)
    ca_end = ca_not_after.astimezone(UTC).replace(microsecond=0)
    _require_time_left(now, ca_end)
    seconds = min(policy_duration // timedelta(seconds=1), (ca_end - start + BACKDATE) // timedelta(seconds=1))
    if expiration_seconds is not None:
        if expiration_seconds < MINIMUM_DURATION.total_seconds():
            raise IssuanceRefused(
                IssuanceRefusedReason.EXPIRATION_TOO_SHORT, "spec.expirationSeconds must be at least 600"
            )
        seconds = min(seconds, expiration_seconds)
    duration = timedelta(seconds=seconds)
    not_before = start - BACKDATE
    not_after = start + duration if duration < _SHORT else not_before + duration
    return Validity(not_before=not_before, not_after=min(not_after, ca_end))


def _require_time_left(now: datetime, ca_end: datetime) -> None:
    if now >= ca_end:
        raise CertificateAuthorityUnavailable(
            CertificateAuthorityUnavailableReason.EXPIRED,
            f"the CA in tls.crt expired at {ca_end.isoformat()}; rotate the cluster's CA",
        )
    if ca_end - now < MINIMUM_DURATION:
        raise CertificateAuthorityUnavailable(
            CertificateAuthorityUnavailableReason.EXPIRING,
            f"the CA in tls.crt expires at {ca_end.isoformat()}, in less than ten minutes; rotate the cluster's CA",
        )


def new_serial_number() -> int:
    """A random positive serial number of 127 bits, 126 of them random.

    RFC 5280 4.1.2.2 allows 20 octets; the CA/Browser Forum's Baseline Requirements 7.1 require 64 random bits.
    """
    return 1 << (_SERIAL_NUMBER_BITS - 1) | secrets.randbits(_SERIAL_NUMBER_BITS - 1)
