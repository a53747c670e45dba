"""What the object asks for counts only under the same admission; a sealed grant that is edited changes nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from signer.access.creator import Lock, NotProtected, ProtectionUnknown
from signer.access.facts import Facts, Keepalive
from signer.access.plan import Issue, Rest, WriteRecord
from signer.access.record import Cause, Closing, GrantRecord, Stage
from signer.access.right_answers import Denied, RightUnknown
from signer.model.access import InvalidAccessGrant, parse_access_grant
from tests.support.access_objects import AUTHORITY_KEY, BOB
from tests.unit.signer.access.looks import INGRESS, NOW, OTHER_LOCK, facts, manifest, reason, running, step_of

LATER: Final = NOW + timedelta(minutes=20)
WIDE: Final = [{"ipBlock": {"cidr": "203.0.113.0/24"}}]
SPEC: Final[dict[str, Any]] = {"ingress": INGRESS}


def second(spec: dict[str, Any], *, lock: Lock | None = None, heartbeat: str = "", **changes: Any) -> Facts:
    """A later look at a grant that was issued with ``SPEC``."""
    before = running(spec=SPEC)
    look = facts(spec=spec, heartbeat=heartbeat, record=before.record, now=LATER, **changes)
    return look if lock is None else replace(look, lock=lock)


def record_of(look: Facts) -> GrantRecord:
    step = step_of(look)
    assert isinstance(step.record, GrantRecord)
    return step.record


def networks(look: Facts) -> list[str]:
    return [str(one) for one in record_of(look).ingress]


def test_the_creator_changes_ingress() -> None:
    look = second({"ingress": WIDE})
    assert networks(look) == ["203.0.113.0/24"]
    assert isinstance(step_of(look).move, Issue), "certificates name the networks"
    assert networks(second({})) == [], "and may remove it"


OFF: Final = (NotProtected("off"), ProtectionUnknown("no answer"), OTHER_LOCK)


@pytest.mark.parametrize("lock", OFF, ids=["off", "unknown", "another guard"])
def test_ingress_that_anybody_may_have_changed_does_not_count(lock: Lock) -> None:
    assert networks(second({"ingress": WIDE}, lock=lock)) == ["198.51.100.7/32"]


@pytest.mark.parametrize("lock", OFF, ids=["off", "unknown", "another guard"])
def test_a_heartbeat_that_anybody_may_have_sent_does_not_count(lock: Lock) -> None:
    record = record_of(second(SPEC, heartbeat="1", lock=lock))
    assert record.heartbeat < NOW


def test_what_was_said_while_admission_was_off_has_to_be_said_again() -> None:
    """Admission was off and on again between two looks: the guard is another."""
    off = second({"ingress": WIDE}, heartbeat="1", lock=OTHER_LOCK)
    seen = record_of(off)
    assert isinstance(step_of(off).move, WriteRecord)
    same = replace(off, record=seen)
    assert isinstance(step_of(same).move, Rest)
    assert networks(same) == ["198.51.100.7/32"]
    again = facts(spec={"ingress": WIDE}, heartbeat="2", record=seen, now=LATER, lock=OTHER_LOCK)
    assert record_of(again).heartbeat == LATER
    assert networks(again) == ["198.51.100.7/32"]


def test_a_heartbeat_waits_for_the_answer_about_the_right() -> None:
    waits = second(SPEC, heartbeat="1", right=RightUnknown("no answer", 10.0))
    record = record_of(waits)
    assert record.heartbeat < NOW
    assert record_of(replace(waits, record=record, right=facts().right)).heartbeat == LATER


def test_a_heartbeat_without_the_right_prolongs_nothing() -> None:
    assert record_of(second(SPEC, heartbeat="1", right=Denied("no"))).heartbeat < NOW


@pytest.mark.parametrize("lock", [*OFF, None], ids=["off", "unknown", "another guard", "on"])
def test_suspend_always_counts(lock: Lock | None) -> None:
    record = record_of(second({**SPEC, "suspend": True}, lock=lock))
    assert isinstance(record.state, Closing)
    assert record.state.cause is Cause.SUSPENDED


@pytest.mark.parametrize(
    "change", [{"spec": {**SPEC, "bastion": "None"}}, {"spec": SPEC, "grant": InvalidAccessGrant("spec", "is odd")}]
)
def test_suspend_counts_although_the_creator_has_spoilt_the_spec(change: dict[str, Any]) -> None:
    """A former release of the policies let a missing bastion be named: the sessions still have to end."""
    look = second(**change, asks_suspension=True)
    record = record_of(look)
    assert record.is_suspended
    assert isinstance(record.state, Closing)
    assert record.state.cause is Cause.SUSPENDED


def suspended(lock: Lock | None = None) -> Facts:
    """The kill switch was set and unset."""
    record = record_of(second({**SPEC, "suspend": True}))
    assert isinstance(record.state, Closing)
    state = replace(record.state, stage=Stage.TERMINATED)
    look = facts(spec=SPEC, record=replace(record, state=state), now=LATER)
    return look if lock is None else replace(look, lock=lock)


def test_unsuspended_the_grant_goes_on_with_another_key_id() -> None:
    step = step_of(suspended())
    assert isinstance(step.move, Issue)
    assert str(step.move.requests[0].key_id).endswith("/1")


@pytest.mark.parametrize("lock", OFF, ids=["off", "unknown", "another guard"])
def test_a_switch_that_anybody_may_have_unset_stays_set(lock: Lock) -> None:
    look = suspended(lock)
    record = record_of(look)
    assert record.is_suspended
    assert isinstance(record.state, Closing)
    assert record_of(replace(look, record=record)).is_suspended, "also at the next look"


EDITS: Final[dict[str, dict[str, Any]]] = {
    "cluster": {"clusterRef": {"name": "staging"}},
    "nodes": {"target": {"nodes": ["worker-1", "worker-2"]}},
    "all nodes": {"target": {"allNodes": {}}},
    "logins": {"logins": ["admin", "root"]},
    "key": {"sshPublicKey": AUTHORITY_KEY},
    "duration": {"duration": "168h"},
    "bastion": {"bastion": "None"},
    "port forwarding": {"permissions": {"portForwarding": True}},
    "command": {"permissions": {"command": "/bin/sh"}},
    "reason": {"reason": "another"},
    "ticket": {"ticket": "OPS-2"},
    "creator": {"creator": BOB},
    "creator's groups": {"creator": {"username": "alice", "uid": "u-1", "groups": ["system:masters"]}},
    "creator removed": {"createdBy": None},
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
@pytest.mark.parametrize("heartbeat", ["", "1"])
def test_a_sealed_grant_that_is_edited_in_any_field_changes_nothing(edit: dict[str, Any], heartbeat: str) -> None:
    look = second({**SPEC, **edit}, heartbeat=heartbeat, keepalive=Keepalive.NONE)
    step = step_of(look)
    assert isinstance(step.move, Rest)
    assert step.record == running(spec=SPEC).record or step.record == look.record
    assert reason(step) == "SpecChanged"


def test_a_sealed_grant_that_becomes_invalid_changes_nothing_and_still_ends() -> None:
    look = second(SPEC, grant=InvalidAccessGrant("spec.target", "is missing"), heartbeat="1")
    assert isinstance(step_of(look).move, Rest)
    assert step_of(look).record == look.record
    ended = step_of(replace(look, now=NOW + timedelta(hours=2)))
    assert isinstance(ended.move, WriteRecord)


def test_put_back_the_grant_goes_on() -> None:
    assert record_of(second(SPEC, heartbeat="1")).heartbeat == LATER


def test_the_manifests_of_these_tests_are_valid() -> None:
    for edit in EDITS.values():
        parse_access_grant(manifest(**{**SPEC, **edit}))
