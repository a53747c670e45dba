"""Only an allowed request of the same identity, to the same signer, and truly newer, supersedes an older one."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from signer.model.reasons import Reason
from signer.rules.checks import MACHINE_CHECKS
from signer.rules.machine import MachineFacts
from tests.unit.signer.builders import (
    NOW,
    SERVING_SIGNER,
    attested_identity,
    journal_entry,
    machine_facts,
    machine_view,
    record,
)
from tests.unit.signer.outcomes import all_of, refused

judge = all_of(MACHINE_CHECKS)
OLD: datetime = NOW - timedelta(minutes=10)


def facts(*entries: dict[str, Any]) -> MachineFacts:
    journal = tuple(journal_entry(number, **given) for number, given in enumerate(entries, start=1))
    kept = replace(record(), journal=journal)
    return machine_facts(created=OLD, record=kept, recorded_machine=machine_view())


def test_a_newer_one_was_approved() -> None:
    older = {"created": OLD - timedelta(minutes=5)}
    deny = refused(judge, facts(older, {"created": OLD + timedelta(seconds=1)}))
    assert deny.reason == Reason.SUPERSEDED
    assert "csr-2" in deny.message
    assert refused(judge, facts({"created": NOW})).reason == Reason.SUPERSEDED


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param({"created": OLD}, id="as old"),
        pytest.param({"created": OLD - timedelta(seconds=1)}, id="older"),
        pytest.param({"created": NOW + timedelta(seconds=1)}, id="from the future: a clock was set back"),
        pytest.param({"created": OLD + timedelta(seconds=1), "signer_name": SERVING_SIGNER}, id="another signer"),
        pytest.param({"created": OLD + timedelta(seconds=1), "public_key_digest": "0" * 64}, id="a copy of it"),
    ],
)
def test_what_does_not_supersede(entry: dict[str, Any]) -> None:
    judge(facts(entry))


def test_another_identity_does_not_supersede() -> None:
    """Whoever had the name before: the reservations decide about that, not the age of its requests."""
    judge(replace(facts({"created": OLD + timedelta(seconds=1)}), identity=attested_identity("ek:other")))
