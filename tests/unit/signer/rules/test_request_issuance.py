"""What follows from policy, record and request for a certificate."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any

import pytest

from attestors.contract import Security
from attestors.wire.names import Purpose
from signer.model.record import AttestedNode
from signer.rules.machine import NoRecord
from signer.rules.request import certificate_duration, first_requested_at, public_key_digest, requested_duration
from tests.unit.signer.builders import (
    NOW,
    SERVING_SIGNER,
    journal_entry,
    manifest,
    policy,
    record,
    signing_request,
)

CSR = manifest()
CSR["spec"]["expirationSeconds"] = 86400
REQUEST = signing_request(CSR)
KEY = hashlib.sha256(REQUEST.certificate_request.subject_public_key_info).hexdigest()
DURATIONS = policy(
    certificates={
        "clientDuration": "24h",
        "servingDuration": "48h",
        "insecureDuration": "72h",
        "deletingDuration": "36h",
    }
)


def journaled(**changes: Any) -> AttestedNode:
    return record(journal=(journal_entry(**({"public_key_digest": KEY} | changes)),))


@pytest.mark.parametrize(
    ("purpose", "security", "hours"),
    [
        (Purpose.CLIENT, Security.SECURE, 24),
        (Purpose.SERVING, Security.SECURE, 48),
        (Purpose.CLIENT, Security.INSECURE, 72),
        (Purpose.SERVING, Security.INSECURE, 72),
    ],
)
def test_how_long_it_is_valid(purpose: Purpose, security: Security, hours: int) -> None:
    assert certificate_duration(DURATIONS, purpose, security, deleting=False) == timedelta(hours=hours)
    assert certificate_duration(DURATIONS, purpose, security, deleting=True) == timedelta(hours=min(hours, 36))


def test_a_key_is_known_by_its_digest() -> None:
    assert public_key_digest(REQUEST) == KEY


@pytest.mark.parametrize(
    "kept",
    [NoRecord(), record(), journaled(public_key_digest="0" * 64), journaled(signer_name=SERVING_SIGNER)],
    ids=["no-record", "no-entry", "another-key", "another-signer"],
)
def test_a_new_key_says_how_long_it_wants_one(kept: AttestedNode | NoRecord) -> None:
    assert requested_duration(REQUEST, kept) == 86400
    assert requested_duration(signing_request(), kept) is None


def test_a_key_that_has_one_already_is_not_heeded() -> None:
    """A copy with another number, which no evidence covers, would be another certificate each time."""
    assert requested_duration(REQUEST, journaled()) is None


class TestAskedSince:
    def test_a_first_request_is_as_old_as_the_api_server_says(self) -> None:
        created = NOW - timedelta(seconds=1)
        for kept in (NoRecord(), record(), journaled(created=NOW), journaled(signer_name=SERVING_SIGNER)):
            assert first_requested_at(REQUEST, kept, NOW) == created

    def test_a_copy_is_as_old_as_the_oldest_of_its_key(self) -> None:
        first = NOW - timedelta(days=3)
        entries = (
            journal_entry(1, public_key_digest=KEY, created=first),
            journal_entry(2, public_key_digest=KEY, created=NOW - timedelta(days=2)),
            journal_entry(3, created=NOW - timedelta(days=9)),
        )
        assert first_requested_at(REQUEST, record(journal=entries), NOW) == first

    @pytest.mark.parametrize("created", ["", "yesterday", "2026-03-01T12:00:00+01:00"])
    def test_where_the_api_server_says_nothing_it_is_now(self, created: str) -> None:
        """In whole seconds, as all that it is compared with."""
        csr = manifest()
        csr["metadata"]["creationTimestamp"] = created
        now = NOW.replace(microsecond=999_999)
        for kept in (NoRecord(), record()):
            assert first_requested_at(signing_request(csr), kept, now) == NOW
