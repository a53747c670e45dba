"""Conditions of a rotation: what is shown when, and that none of them makes a policy unready."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from signer.authority.presented import Presented
from signer.model.condition import PolicyCondition
from signer.rotation import conditions
from signer.rotation.authorities import AuthorityKind
from signer.rotation.condition_types import (
    AUTHORITY_EXPIRY,
    AUTHORITY_TRUSTED,
    NODES_TRUST_NEW_AUTHORITY,
    OLD_AUTHORITY_REFUSED,
    RECORD_OUTDATED,
    ROLLBACK_AVAILABLE,
    ROTATION_PROGRESSING,
    ROTATION_STALLED,
    SERVERS_PRESENT_NEW_AUTHORITY,
    SERVICE_ACCOUNT_KEY_PUBLISHED,
)
from signer.rotation.conditions import STALLED_AFTER_MACHINES, expiry_condition, rotation_conditions
from signer.rotation.facts import Facts, NotObserved, Publication, ServerFacts, ServersFacts
from signer.rotation.operations import NeverRotated
from signer.rotation.phases import BACK, Phase, Step
from signer.rotation.plan import FOREIGN_AUTHORITY, Advance, Finished, Move, Wait
from signer.rotation.proofs import NotKnown, NotProven
from signer.rotation.record import RotationRecord
from signer.rotation.rotations import Unverified, Verified
from tests.unit.signer.rotation.model_world import START
from tests.unit.signer.rotation.situations import NOW, facts_at, node, record_at, server

PROOFS = (AUTHORITY_TRUSTED, NODES_TRUST_NEW_AUTHORITY, SERVERS_PRESENT_NEW_AUTHORITY, OLD_AUTHORITY_REFUSED)
WAITS = Wait("NodesTrust", NotProven("worker-1 lags", ("worker-1",)))


def shown(record: RotationRecord, facts: Facts | None = None, move: Move | None = None) -> dict[str, PolicyCondition]:
    found = rotation_conditions(Verified(record, "u", "1"), facts, move)
    assert len({one.type for one in found}) == len(found)
    return {str(one.type): one for one in found}


def test_none_without_a_rotation() -> None:
    assert rotation_conditions(NeverRotated(), None, None) == ()


def test_a_record_that_does_not_count() -> None:
    (one,) = rotation_conditions(Unverified("edited"), None, None)
    assert (one.type, one.met, one.reason) == (ROTATION_PROGRESSING, False, "Unverified")
    assert one.message.startswith("edited: ")


def test_none_makes_a_policy_unready() -> None:
    kinds = [value for value in vars(conditions).values() if isinstance(value, type(ROTATION_STALLED))]
    assert len(kinds) > 8
    assert not any(kind.counts_toward_ready(None) for kind in kinds)


@pytest.mark.parametrize(
    ("step", "phase", "reason"),
    [(Step.FORGET, Phase.COMPLETED, "Completed"), (Step.DISCARD_NEW, Phase.ROLLED_BACK, "RolledBack")],
)
def test_a_rotation_that_is_over(step: Step, phase: Phase, reason: str) -> None:
    found = shown(record_at(step, phase=phase), facts_at(step), Finished())
    assert (found[ROTATION_PROGRESSING].met, found[ROTATION_PROGRESSING].reason) == (True, reason)
    assert not found.keys() & {*PROOFS, ROTATION_STALLED}
    assert (found[ROLLBACK_AVAILABLE].met, found[ROLLBACK_AVAILABLE].reason) == (False, "None")
    assert found[ROLLBACK_AVAILABLE].message == "nothing can be taken back"


@pytest.mark.parametrize(
    ("step", "seen", "told"),
    [
        (Step.NODES_TRUST, server(Presented.NEW), "present the new CA's certificate"),
        (Step.ACCEPT, server(Presented.NEW_LINKED), "present the new CA's certificate"),
        (Step.SERVERS_PRESENT, server(Presented.NEW, old=False), "refuse the old CA's client certificates"),
        (Step.NODES_TRUST, server(Presented.OLD_LINKED, old=False), "refuse the old CA's client certificates"),
        (Step.NODES_TRUST, server(Presented.OLD, old=False, new=False), ""),
        (Step.SWITCH, server(Presented.NEW), ""),
        (Step.DROP_OLD, server(Presented.NEW, old=False), ""),
    ],
)
def test_servers_that_are_further_than_the_record(step: Step, seen: ServerFacts, told: str) -> None:
    facts = replace(facts_at(step), servers=ServersFacts((server(Presented.OLD_LINKED, name="other"), seen), {}, NOW))
    found = shown(record_at(step), facts)
    if not told:
        assert RECORD_OUTDATED not in found
        return
    assert (found[RECORD_OUTDATED].met, found[RECORD_OUTDATED].reason) == (True, "ServersAreFurther")
    assert told in found[RECORD_OUTDATED].message
    assert "control-plane-1. " in found[RECORD_OUTDATED].message
    assert RECORD_OUTDATED not in shown(record_at(step), replace(facts, servers=NotObserved("timeout")))


@pytest.mark.parametrize("step", list(Step))
def test_no_step_as_it_should_be_is_outdated(step: Step) -> None:
    assert RECORD_OUTDATED not in shown(record_at(step), facts_at(step))


@pytest.mark.parametrize(
    ("step", "found", "met", "reason", "says"),
    [
        (Step.ACCEPT, Publication.MISSING, False, "NotReached", "ServersTrust"),
        (Step.SERVERS_TRUST, Publication.MISSING, False, "NotProven", "control-plane-1"),
        (Step.SERVERS_TRUST, NotObserved("timeout"), None, "NotKnown", "control-plane-1: timeout"),
        (Step.SERVERS_TRUST, Publication.PUBLISHED, True, "Proven", "(kid) is ERERERE"),
        (Step.PREPARED, Publication.PUBLISHED, True, "Proven", "(kid) is ERERERE"),
        (Step.PREPARED, Publication.NOT_SERVED, True, "Proven", "no API server publishes"),
        (Step.DROP_OLD, NotObserved("it signs"), True, "Proven", "(kid) is ERERERE"),
    ],
)
def test_the_service_account_key_is_published(
    step: Step, found: Publication | NotObserved, met: bool | None, reason: str, says: str
) -> None:
    facts = replace(facts_at(step), published_keys={"control-plane-1": found})
    one = shown(record_at(step), facts)[SERVICE_ACCOUNT_KEY_PUBLISHED]
    assert (one.met, one.reason) == (met, reason)
    assert says in one.message
    alone = record_at(step, kinds=(AuthorityKind.CLUSTER,))
    assert SERVICE_ACCOUNT_KEY_PUBLISHED not in shown(alone, facts)


def test_a_rotation_that_progresses_or_waits() -> None:
    record, facts = record_at(Step.NODES_TRUST), facts_at(Step.NODES_TRUST)
    going = shown(record, facts, Advance(record))
    assert (going[ROTATION_PROGRESSING].met, going[ROTATION_PROGRESSING].reason) == (True, "NodesTrust")
    assert ROTATION_STALLED not in going
    waiting = shown(record, facts, WAITS)[ROTATION_PROGRESSING]
    assert (waiting.met, waiting.reason, waiting.message) == (False, "NodesTrust", "worker-1 lags")
    unknown = shown(record, facts, Wait("NodesTrust", NotKnown("timeout")))[ROTATION_PROGRESSING]
    assert (unknown.met, unknown.message) == (None, "timeout")
    assert (going[ROLLBACK_AVAILABLE].met, going[ROLLBACK_AVAILABLE].reason) == (True, "Full")
    assert "order rollback-ca-rotation" in going[ROLLBACK_AVAILABLE].message
    assert ROTATION_STALLED not in shown(record, None, WAITS)


def test_proofs_of_steps_before_now_and_later() -> None:
    record = record_at(Step.NODES_TRUST)
    facts = replace(facts_at(Step.NODES_TRUST), nodes=(node(),))
    found = shown(record, facts)
    assert [(found[kind].met, found[kind].reason) for kind in PROOFS] == [
        (True, "Proven"),
        (False, "NotProven"),
        (False, "NotReached"),
        (False, "NotReached"),
    ]
    assert "worker-1" in found[NODES_TRUST_NEW_AUTHORITY].message
    proven = shown(record, facts_at(Step.NODES_TRUST))[NODES_TRUST_NEW_AUTHORITY]
    assert (proven.met, proven.reason) == (True, "Proven")
    blind = replace(facts_at(Step.SERVERS_TRUST), servers=NotObserved("timeout"))
    unknown = shown(record_at(Step.SERVERS_TRUST), blind)[AUTHORITY_TRUSTED]
    assert (unknown.met, unknown.reason) == (None, "NotKnown")


def test_a_proof_of_a_former_step_is_not_computed_again() -> None:
    """Machines come and go, and what they have then is another step's."""
    facts = replace(facts_at(Step.SERVERS_PRESENT), root_ca=NotObserved("timeout"))
    assert shown(record_at(Step.SERVERS_PRESENT), facts)[AUTHORITY_TRUSTED].met


@pytest.mark.parametrize("step", Step)
def test_proofs_are_shown_on_the_way_forward_and_once_facts_are_known(step: Step) -> None:
    assert not shown(record_at(step)).keys() & set(PROOFS)
    found = shown(record_at(step), facts_at(step)).keys() & set(PROOFS)
    assert found == (set() if step in BACK else set(PROOFS))


def test_a_step_that_waits_for_long_stalls() -> None:
    record = record_at(Step.NODES_TRUST)
    facts = replace(facts_at(Step.NODES_TRUST), now=START + STALLED_AFTER_MACHINES)
    early = replace(facts, now=facts.now - timedelta(seconds=1))
    assert not shown(record, early, WAITS)[ROTATION_STALLED].met
    found = shown(record, facts, WAITS)[ROTATION_STALLED]
    assert found.met
    assert found.reason == "NodesTrust"
    assert found.message == "step NodesTrust since 2026-01-01 00:00 UTC: worker-1 lags"


def test_a_person_may_take_any_time() -> None:
    waiting = Wait("WaitingForCompletion", NotProven("order it"))
    found = shown(record_at(Step.PREPARED), facts_at(Step.PREPARED), waiting)[ROTATION_STALLED]
    assert not found.met


@pytest.mark.parametrize("step", [Step.PREPARED, Step.NODES_TRUST])
def test_a_foreign_authority_stalls_at_once(step: Step) -> None:
    foreign = Wait(FOREIGN_AUTHORITY, NotProven("another CA"))
    found = shown(record_at(step), replace(facts_at(step), now=START), foreign)[ROTATION_STALLED]
    assert (found.met, found.reason) == (True, FOREIGN_AUTHORITY)


def test_a_record_without_the_time_of_its_step_does_not_stall() -> None:
    record = replace(record_at(Step.NODES_TRUST), times={})
    assert not shown(record, facts_at(Step.NODES_TRUST), WAITS)[ROTATION_STALLED].met


@pytest.mark.parametrize(
    ("days", "met", "reason"),
    [
        (366, True, "FarAway"),
        (365, True, "FarAway"),
        (364, False, "ExpiresWithinAYear"),
        (90, False, "ExpiresWithinAYear"),
        (89, False, "ExpiresWithin90Days"),
        (30, False, "ExpiresWithin90Days"),
        (29, False, "ExpiresWithin30Days"),
        (-1, False, "ExpiresWithin30Days"),
    ],
)
def test_a_ca_that_is_about_to_end(days: int, met: bool, reason: str) -> None:
    found = expiry_condition(NOW + timedelta(days=days), NOW, under_way=False)
    assert (found.type, found.met, found.reason) == (AUTHORITY_EXPIRY, met, reason)
    if not met:
        assert f"in {max(days, 0)} days: order start-ca-rotation" in found.message
