"""The sealed record: what is read is what was written, for this grant alone, and nothing else is read."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from signer.access.plan import AddFinalizer, Issue, Rest, Revoke, WriteRecord
from signer.access.record import (
    MAXIMUM_ENTRIES,
    MAXIMUM_EPOCH,
    MAXIMUM_RECORD_BYTES,
    BrokenRecord,
    Cause,
    Closing,
    GrantRecord,
    GrantSeals,
    InvalidRecord,
    Live,
    NoRecord,
    Stage,
    parse_record,
    record_object,
    with_entries,
)
from signer.access.right_answers import Allowed
from signer.access.store import stored_grant
from signer.model.access import CreatorNotStated, InvalidAccessGrant, ObjectMetadata
from signer.model.seal import ControllerKeys
from tests.support.access_objects import BOB
from tests.unit.signer.access.looks import (
    KEYS,
    NOW,
    READY_BASTION,
    approval,
    facts,
    issued,
    manifest,
    reason,
    running,
    step_of,
)

SEALS: Final = GrantSeals(KEYS)
METADATA: Final = facts().metadata


def rich() -> GrantRecord:
    """A record with something in every field."""
    look = facts(spec={"bastion": "aws", "ingress": [{"ipBlock": {"cidr": "198.51.100.7/32"}}]}, bastion=READY_BASTION)
    approvals = (approval(look, "yes", dict(BOB), "a-1"),)
    record = issued(replace(look, approvals=approvals, approvers={"a-1": Allowed()}))
    state = Closing(Cause.SUSPENDED, NOW, Stage.REVOKED)
    return replace(record, state=state, epoch=3, every_epoch=True, is_suspended=True)


def test_a_record_reads_back() -> None:
    for record in (issued(facts()), rich()):
        assert SEALS.read(METADATA, json.loads(json.dumps(SEALS.sealed_object(METADATA, record)))) == record


def test_there_may_be_none() -> None:
    assert SEALS.read(METADATA, None) == NoRecord()


@pytest.mark.parametrize(
    "other",
    [replace(METADATA, namespace="other"), replace(METADATA, name="other"), replace(METADATA, uid="other")],
    ids=["namespace", "name", "uid"],
)
def test_a_record_of_another_grant_does_not_count(other: ObjectMetadata) -> None:
    assert isinstance(SEALS.read(other, SEALS.sealed_object(METADATA, rich())), BrokenRecord)


def test_a_record_under_another_key_does_not_count() -> None:
    record = rich()
    sealed = GrantSeals(ControllerKeys(b"x" * 32)).sealed_object(METADATA, record)
    found = SEALS.read(METADATA, sealed)
    assert isinstance(found, BrokenRecord)
    assert found.is_key_unknown
    assert GrantSeals(ControllerKeys(b"k" * 32, b"x" * 32)).read(METADATA, sealed) == record, "the previous key"


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, below in items:
        yield from places(below, (*path, key))


def value_at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def edited(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """The object with another value there; the new value itself for an empty path."""
    if not path:
        return new
    found = copy.deepcopy(value)
    value_at(found, path[:-1])[path[-1]] = new
    return found


def other(value: Any) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return value + 1
        case str():
            return value[:-1] + ("0" if value[-1:] != "0" else "1")
        case list():
            return value[1:] if value else ["198.51.100.8/32"]
        case _:
            return {}


def test_no_field_can_be_edited() -> None:
    sealed = SEALS.sealed_object(METADATA, rich())
    every = [path for path in places(sealed) if path]
    assert len(every) > 40
    for path in every:
        values = [other(value_at(sealed, path)), None, [], {"x": 1}, "x", -1]
        for value in values:
            attempt = edited(sealed, path, value)
            if attempt != sealed:
                assert isinstance(SEALS.read(METADATA, attempt), BrokenRecord), path


def test_no_field_can_be_added_or_left_out() -> None:
    sealed = SEALS.sealed_object(METADATA, rich())
    for path in places(sealed):
        place = value_at(sealed, path)
        if isinstance(place, dict):
            assert isinstance(SEALS.read(METADATA, edited(sealed, path, {**place, "more": 1})), BrokenRecord), path
            for name in place:
                less = {key: below for key, below in place.items() if key != name}
                assert isinstance(SEALS.read(METADATA, edited(sealed, path, less)), BrokenRecord), (path, name)


@pytest.mark.parametrize("value", [[], "x", 3, {"sequence": 1}, {"a": "x" * 200_000}])
def test_anything_else_is_no_record(value: Any) -> None:
    with pytest.raises(InvalidRecord):
        parse_record(value)


def test_the_journal_is_bounded_and_remembers_the_last_end() -> None:
    record = issued(facts())
    entry = record.journal[0]
    for n in range(60):
        record = with_entries(record, [replace(entry, serial=n + 1, ends=entry.ends + timedelta(seconds=n))], NOW)
    assert len(record.journal) == MAXIMUM_ENTRIES
    assert record.last_end == entry.ends + timedelta(seconds=59)
    over = with_entries(record, [replace(entry, ends=NOW + timedelta(days=1))], NOW + timedelta(hours=2))
    assert len(over.journal) == 1
    assert len(json.dumps(record_object(record, "s"))) < 12_000


# Through the plan


def broken() -> Any:
    return replace(running(), record=BrokenRecord("its content or place is not what was sealed"))


def test_a_record_that_is_not_authentic_revokes_every_key_id_of_the_grant() -> None:
    step = step_of(broken())
    assert isinstance(step.move, Revoke)
    assert len(step.move.key_ids) == MAXIMUM_EPOCH + 1
    assert step.move.key_ids[0] == issued(facts()).journal[0].key_id
    assert step.move.until == NOW + timedelta(hours=1)
    assert isinstance(step.record, GrantRecord)
    assert isinstance(step.record.state, Closing)
    assert step.record.state.cause is Cause.RECORD_NOT_AUTHENTIC


def test_a_record_of_an_unknown_key_waits_for_a_newer_controller_key() -> None:
    unknown = BrokenRecord("unknown key", is_key_unknown=True)
    step = step_of(replace(running(), record=unknown))
    assert isinstance(step.move, Rest)
    assert reason(step) == "RecordNotAuthentic"
    assert isinstance(step_of(replace(running(), record=unknown, is_key_wait_over=True)).move, Revoke)


def test_a_taken_finalizer_is_put_back() -> None:
    look = running()
    assert isinstance(step_of(replace(look, metadata=replace(look.metadata, finalizers=()))).move, AddFinalizer)


def test_nothing_is_issued_twice_for_nothing() -> None:
    assert isinstance(step_of(running()).move, Rest)
    assert isinstance(running().record, GrantRecord)
    assert isinstance(running().record.state, Live)  # type: ignore[union-attr]


def test_another_authority_issues_anew() -> None:
    assert isinstance(step_of(replace(running(), authority="SHA256:other")).move, Issue)


def test_a_first_record_is_written_although_nothing_can_be_issued() -> None:
    step = step_of(facts(authority=""))
    assert isinstance(step.move, WriteRecord)
    assert reason(step) == "AuthorityNotAvailable"


def test_a_record_that_is_too_large_is_not_kept() -> None:
    found = {**manifest(), "status": {"record": {"sequence": "x" * MAXIMUM_RECORD_BYTES}}}
    stored = stored_grant(found)
    assert len(stored.record) < 100
    assert isinstance(stored.unsealed(SEALS), BrokenRecord)
    assert stored.record_fields() == frozenset()


def test_a_lost_record_of_an_invalid_grant_still_names_what_is_revoked() -> None:
    spoilt = manifest()
    spoilt["spec"]["target"] = {}
    stored = stored_grant(spoilt)
    assert isinstance(stored.grant, InvalidAccessGrant)
    look = facts(grant=stored.grant, record=BrokenRecord("edited"), stated_creator=stored.creator)
    step = step_of(look)
    assert isinstance(step.move, Revoke)
    assert step.move.cluster == "production"
    assert issued(facts()).key_id(METADATA, 0) in step.move.key_ids


def test_a_lost_record_reads_back_although_the_object_says_nothing() -> None:
    """Otherwise it would be lost again at each look."""
    look = facts(grant=InvalidAccessGrant("spec", "is empty"), record=BrokenRecord("edited"))
    step = step_of(replace(look, stated_cluster="", stated_creator=CreatorNotStated()))
    assert isinstance(step.record, GrantRecord)
    assert SEALS.read(METADATA, SEALS.sealed_object(METADATA, step.record)) == step.record
