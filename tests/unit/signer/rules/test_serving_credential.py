"""Serving requests by nodes: with a client certificate that was issued here."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from attestors.wire.names import Purpose
from signer.model.reasons import Reason
from signer.model.record import HELD_AFTER_END, JOURNAL_ENTRIES, AttestedNode
from signer.model.signing_request import CertificateCredential, NoCredentialNamed, OtherCredential
from signer.rules.machine import MachineFacts, NoRecord
from signer.rules.serving import (
    credential_is_attested,
    valid_clients,
)
from tests.unit.signer.builders import (
    NOW,
    SERVING_SIGNER,
    attested_identity,
    journal_entry,
    machine_facts,
    machine_view,
    record,
)
from tests.unit.signer.outcomes import deferred, refused

DIGEST = journal_entry().certificate_digest
OTHER = journal_entry(2, certificate_digest="11" * 32)


def asked_with(credential: Any, **changes: Any) -> MachineFacts:
    return machine_facts(purpose=Purpose.SERVING, credential=credential, **{"record": record(), **changes})


class TestCredential:
    def test_that_we_issued(self) -> None:
        credential_is_attested(asked_with(CertificateCredential(DIGEST)))

    def test_that_is_not_named(self) -> None:
        credential_is_attested(asked_with(NoCredentialNamed()))
        credential_is_attested(asked_with(NoCredentialNamed(), record=NoRecord()))

    @pytest.mark.parametrize("credential", [CertificateCredential("00" * 32), OtherCredential()])
    def test_that_we_did_not_issue(self, credential: Any) -> None:
        assert refused(credential_is_attested, asked_with(credential)).reason == Reason.FOREIGN_CREDENTIAL

    def test_clients_may_come_with_any(self) -> None:
        """So that an older node gets its first attested certificate."""
        credential_is_attested(replace(asked_with(OtherCredential()), purpose=Purpose.CLIENT))

    def test_without_a_record_it_waits(self) -> None:
        facts = asked_with(CertificateCredential(DIGEST), record=NoRecord())
        assert deferred(credential_is_attested, facts).reason == Reason.NODE_NOT_ATTESTED
        assert (
            refused(credential_is_attested, replace(facts, credential=OtherCredential())).reason
            == Reason.FOREIGN_CREDENTIAL
        )

    def test_of_a_certificate_that_has_run_out(self) -> None:
        facts = asked_with(CertificateCredential(DIGEST))
        nearly = replace(facts, now=journal_entry().not_after - timedelta(seconds=1))
        credential_is_attested(nearly)
        assert (
            refused(credential_is_attested, replace(facts, now=journal_entry().not_after)).reason
            == Reason.FOREIGN_CREDENTIAL
        )

    def test_of_a_serving_certificate(self) -> None:
        serving_only = replace(record(), journal=(journal_entry(signer_name=SERVING_SIGNER),))
        assert (
            refused(credential_is_attested, asked_with(CertificateCredential(DIGEST), record=serving_only)).reason
            == Reason.FOREIGN_CREDENTIAL
        )

    def test_of_the_former_node_of_that_name(self) -> None:
        former = record()
        newer = journal_entry(2, certificate_digest="11" * 32, decided=NOW + timedelta(days=1))
        current = former.with_entry(newer, machine=machine_view(), identity=attested_identity("ek:2"))
        later = {"record": current, "now": newer.decided}
        credential_is_attested(asked_with(CertificateCredential("11" * 32), **later))
        assert (
            refused(credential_is_attested, asked_with(CertificateCredential(DIGEST), **later)).reason
            == Reason.FOREIGN_CREDENTIAL
        )

    def test_a_journal_that_has_lost_valid_certificates_is_no_ground_to_deny(self) -> None:
        overfull = _with_entries(JOURNAL_ENTRIES + 1)
        assert overfull.dropped_not_after == journal_entry().not_after
        asked = asked_with(CertificateCredential(DIGEST), record=overfull)
        assert deferred(credential_is_attested, asked).reason == Reason.NODE_NOT_ATTESTED
        full = _with_entries(JOURNAL_ENTRIES)
        assert (
            refused(credential_is_attested, asked_with(CertificateCredential(DIGEST), record=full)).reason
            == Reason.FOREIGN_CREDENTIAL
        )

    @pytest.mark.parametrize(("since", "lost"), [(-1, True), (0, False)])
    def test_what_had_run_out_when_it_was_lost_is_none_of_it(self, since: int, lost: bool) -> None:
        """Ten minutes for clocks included."""
        ended = NOW - HELD_AFTER_END - timedelta(seconds=since)
        asked = asked_with(CertificateCredential(DIGEST), record=record(journal=(OTHER,), dropped_not_after=ended))
        if lost:
            assert deferred(credential_is_attested, asked).reason == Reason.NODE_NOT_ATTESTED
        else:
            assert refused(credential_is_attested, asked).reason == Reason.FOREIGN_CREDENTIAL

    def test_a_kind_that_this_version_does_not_know_is_no_ground_to_deny(self) -> None:
        """A newer version wrote it, perhaps of another client certificate; it is no ground to approve either."""
        unknown = replace(OTHER, kind="of-a-later-version", certificate_digest=DIGEST)
        asked = asked_with(CertificateCredential(DIGEST), record=record(journal=(OTHER, unknown)))
        assert deferred(credential_is_attested, asked).reason == Reason.NODE_NOT_ATTESTED


def test_valid_clients() -> None:
    current = journal_entry(2)
    entries = (
        journal_entry(1, decided=NOW - timedelta(days=1)),
        current,
        journal_entry(3, signer_name=SERVING_SIGNER),
        journal_entry(4, not_after=NOW),
    )
    valid = valid_clients(replace(record(), journal=entries), NOW)
    assert (valid.own, valid.former, valid.is_all) == ((current,), entries[:1], True)


def _with_entries(count: int) -> AttestedNode:
    first, *others = (journal_entry(number, certificate_digest=f"{number:064x}") for number in range(1, count + 1))
    made = record(journal=(first,))
    for entry in others:
        made = made.with_entry(entry, machine=machine_view(), identity=attested_identity())
    return made
