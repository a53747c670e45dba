"""What condition NodeAttested says: True while the record of a secure attestor lives, else why not."""

from __future__ import annotations

from datetime import timedelta

import pytest

from attestors.contract import Security
from signer.model.decision import Challenge, Defer, Deny, Fail, Ignore
from signer.model.node_attested import NOT_YET, NodeAttested, node_attested_after, node_attested_by
from signer.model.record import AttestedIdentity, AttestedNode, new_record
from tests.unit.signer import builders
from tests.unit.signer.builders import NOW

DENIED = Deny("NodeNameMismatch", "the machine is another one")
INSECURE = AttestedIdentity("insecure", "i", Security.INSECURE)


def record(*, insecure: bool = False, hours: float = 24, signer_name: str = builders.CLIENT_SIGNER) -> AttestedNode:
    entry = builders.journal_entry(not_after=NOW + timedelta(hours=hours), signer_name=signer_name)
    identity = INSECURE if insecure else builders.attested_identity()
    return new_record(builders.machine_view(), builders.NODE, identity, entry)


def after_an_insecure_one(hours: float) -> AttestedNode:
    """The node was asserted for a year, and attested for so many hours a minute later."""
    entry = builders.journal_entry(2, not_after=NOW + timedelta(hours=hours), decided=NOW + timedelta(minutes=1))
    before = record(insecure=True, hours=8760)
    return before.with_entry(entry, machine=builders.machine_view(), identity=builders.attested_identity())


@pytest.mark.parametrize(
    ("records", "last", "status", "reason"),
    [
        ([], NOT_YET, "Unknown", "NotAttestedYet"),
        ([record()], NOT_YET, "True", "Attested"),
        ([record()], node_attested_after(DENIED), "True", "Attested"),
        ([record(insecure=True, hours=48), record()], NOT_YET, "True", "Attested"),
        ([record(insecure=True)], NOT_YET, "False", "AssertedInsecurely"),
        ([record(insecure=True), record(hours=-1)], NOT_YET, "False", "AssertedInsecurely"),
        ([after_an_insecure_one(24)], NOT_YET, "True", "Attested"),
        ([after_an_insecure_one(-1)], NOT_YET, "False", "AttestationExpired"),
        ([record(signer_name=builders.SERVING_SIGNER)], NOT_YET, "False", "AttestationExpired"),
        ([record(hours=0)], NOT_YET, "False", "AttestationExpired"),
        ([record(hours=-1)], node_attested_after(DENIED), "False", "NodeNameMismatch"),
        ([], node_attested_after(DENIED), "False", "NodeNameMismatch"),
        ([], node_attested_after(Fail("ApprovedByOthers", "no")), "False", "ApprovedByOthers"),
        ([], node_attested_after(Defer("MachineNotReady", "wait")), "Unknown", "MachineNotReady"),
        ([], node_attested_after(Challenge("c")), "Unknown", "NotAttestedYet"),
        ([], node_attested_after(Ignore()), "Unknown", "NotAttestedYet"),
    ],
)
def test_what_is_said(records: list[AttestedNode], last: NodeAttested, status: str, reason: str) -> None:
    content = node_attested_by(records, last, NOW)
    assert (content.status, content.reason) == (status, reason)
    assert content.message


def test_it_says_by_what() -> None:
    assert node_attested_by([record()], NOT_YET, NOW).message == f"attested by tpm as node {builders.NODE}"


@pytest.mark.parametrize("reason", ["", "no good", "a" * 500, "x\n", "ünfug"])
def test_a_reason_of_no_form_is_not_written(reason: str) -> None:
    """Cluster API's schema has a pattern for reasons: one that does not match would cost the whole write."""
    assert node_attested_after(Deny(reason, "m")).reason == "AttestorSpecific"


def test_messages_are_printable_and_never_empty() -> None:
    assert node_attested_after(Deny("No", "a\x1b[31m\n")).message == "a\\x1b[31m\\n"
    assert node_attested_after(Defer("No", "")).message
