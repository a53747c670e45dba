"""A logged approval's journal entry and certificate, held against its request and its facts."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_der_public_key
from cryptography.x509.oid import NameOID

from signer.audit.decision_inputs import DecisionInputs, RequestStage
from signer.audit.decision_line import DecisionLine, NoEntry, read_decision_line
from signer.audit.errors import Inconsistent
from signer.audit.issued import require_issued
from signer.model.record import JournalEntry, new_record
from signer.model.signing_request import SigningRequest, parse_signing_request
from signer.rules.approval import Approver
from signer.rules.machine import MachineFacts, NoRecord
from signer.rules.request import first_requested_at
from tests.unit.signer.audit.test_consistency import logged
from tests.unit.signer.builders import attested_identity, journal_entry, machine_facts, machine_view, record

LINE: Final = read_decision_line(logged("Approve"))
NODE: Final = LINE.decision.node_name
assert isinstance(LINE.decision.entry, JournalEntry)
ENTRY: Final = LINE.decision.entry
NOW: Final = datetime.fromisoformat("2026-11-26T19:52:55.240675Z")
"""When it was decided."""
SECOND: Final = timedelta(seconds=1)


def request() -> SigningRequest:
    parsed = parse_signing_request(LINE.request.manifest(), frozenset({"keyed-mac"}), (LINE.request.provider_id_oid,))
    assert isinstance(parsed, SigningRequest)
    return parsed


def line(**changes: Any) -> DecisionLine:
    return replace(LINE, decision=replace(LINE.decision, **changes))


def facts(**changes: Any) -> MachineFacts:
    given = {"now": NOW, "created": first_requested_at(request(), NoRecord(), NOW), "node_name": NODE}
    return machine_facts(**(given | changes))


def stage() -> RequestStage:
    assert isinstance(LINE.decision_inputs.request, RequestStage)
    return LINE.decision_inputs.request


def refuses(words: str, judge: Callable[[], None]) -> None:
    with pytest.raises(Inconsistent, match=words):
        judge()


def test_the_one_that_the_facts_plan() -> None:
    require_issued(LINE, request(), facts(), stage())


def test_where_nothing_was_issued_nothing_is_held_against_anything() -> None:
    nothing = line(entry=NoEntry(), certificate="", node_name="other")
    require_issued(nothing, request(), facts(), stage())


def test_a_ca_that_had_run_out_issues_nothing() -> None:
    expired = replace(stage(), ca_not_after=NOW)
    refuses("no certificate could be issued then", lambda: require_issued(LINE, request(), facts(), expired))


def test_a_duration_that_no_certificate_has() -> None:
    asked = request()
    asked = replace(asked, header=replace(asked.header, expiration_seconds=1))
    refuses(
        "no certificate could be issued then: ExpirationTooShort", lambda: require_issued(LINE, asked, facts(), stage())
    )


class TestOfTheRecord:
    """The record held it for this key: it is given out again, whichever request it was made for."""

    def test_it_is_given_out_again(self) -> None:
        kept = record(journal=(replace(ENTRY, csr_uid="another", csr_name="another"),))
        again = line(entry=kept.journal[0])
        require_issued(again, request(), facts(record=kept), stage())

    def test_one_that_the_record_does_not_hold(self) -> None:
        other = line(entry=replace(ENTRY, csr_uid="another"))
        refuses("of another request", lambda: require_issued(other, request(), facts(record=record()), stage()))

    @pytest.mark.parametrize(
        ("now", "ca_not_after", "left"),
        [
            (ENTRY.not_after - SECOND, ENTRY.not_after, True),
            (ENTRY.not_after, ENTRY.not_after, False),
            (ENTRY.not_after + SECOND, ENTRY.not_after + 2 * SECOND, False),
            (NOW, ENTRY.not_after - SECOND, False),
        ],
        ids=["last-second", "run-out", "long-run-out", "outlives-its-ca"],
    )
    def test_it_has_not_run_out(self, now: datetime, ca_not_after: datetime, left: bool) -> None:
        kept = record(journal=(ENTRY,))
        issuing = replace(stage(), ca_not_after=ca_not_after)

        def judge() -> None:
            require_issued(LINE, request(), facts(record=kept, now=now), issuing)

        if left:
            judge()
        else:
            refuses("had expired, or is valid for longer than its CA", judge)

    def test_it_is_of_the_ca_that_signs(self) -> None:
        other = replace(stage(), signing_ca_cert_hash="sha256:" + "00" * 32)
        kept = record(journal=(ENTRY,))
        refuses("of another CA", lambda: require_issued(LINE, request(), facts(record=kept), other))

    def test_it_is_of_this_request(self) -> None:
        other = line(node_name="other")
        kept = record(journal=(ENTRY,))
        refuses("about node other", lambda: require_issued(other, request(), facts(record=kept), stage()))


class TestDecided:
    """Another identity that had the name keeps its entries before the new one's, whatever clocks say."""

    def test_the_same_identity(self) -> None:
        kept = new_record(machine_view(), NODE, attested_identity(), journal_entry(decided=NOW - timedelta(days=1)))
        require_issued(LINE, request(), facts(record=kept), stage())

    def test_another_identity_whose_clock_was_ahead(self) -> None:
        ahead = NOW.replace(microsecond=0) + timedelta(minutes=1)
        kept = new_record(machine_view(), NODE, attested_identity("ek:2"), journal_entry(decided=ahead))
        refuses("time of decision", lambda: require_issued(LINE, request(), facts(record=kept), stage()))
        decided = kept.with_entry(ENTRY, machine=machine_view(), identity=attested_identity()).journal[-1].decided
        assert decided > ahead
        later = line(entry=replace(ENTRY, decided=decided))
        require_issued(later, request(), facts(record=kept), stage())


class TestCertificate:
    """One that somebody else made, with the entry changed to it."""

    def forged(self, *, own_key: bool = False, node: str = NODE, organization: str = "system:nodes") -> DecisionLine:
        asked = load_der_public_key(request().certificate_request.subject_public_key_info)
        assert isinstance(asked, ec.EllipticCurvePublicKey)
        key = ec.generate_private_key(ec.SECP256R1())
        subject = [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization),
            x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{node}"),
        ]
        made = (
            x509.CertificateBuilder()
            .subject_name(x509.Name(subject))
            .issuer_name(x509.Name([]))
            .public_key(key.public_key() if own_key else asked)
            .serial_number(ENTRY.serial_number)
            .not_valid_before(ENTRY.not_before)
            .not_valid_after(ENTRY.not_after)
            .sign(key, hashes.SHA256())
        )
        digest = hashlib.sha256(made.public_bytes(Encoding.DER)).hexdigest()
        entry = replace(ENTRY, certificate_digest=digest)
        return line(certificate=made.public_bytes(Encoding.PEM).decode(), entry=entry)

    def test_of_the_requests_key_and_node(self) -> None:
        require_issued(self.forged(), request(), facts(), stage())

    @pytest.mark.parametrize(
        ("changes", "words"),
        [
            ({"own_key": True}, "of another key than the request"),
            ({"node": "other"}, f"subject is not node {NODE}"),
            ({"organization": "system:masters"}, f"subject is not node {NODE}"),
        ],
        ids=["key", "node", "organization"],
    )
    def test_of_another(self, changes: dict[str, Any], words: str) -> None:
        refuses(words, lambda: require_issued(self.forged(**changes), request(), facts(), stage()))


def test_what_was_approved_before_was_for_an_attestor_that_is_allowed() -> None:
    """Its evidence is left out as the attestor says, like that of what is attested."""
    assert DecisionInputs(approver=Approver.THIS_CONTROLLER).is_for_an_allowed_attestor
    assert not DecisionInputs().is_for_an_allowed_attestor
