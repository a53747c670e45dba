"""Which identity of a Machine counts as its last one."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from signer.store import newest_attestations
from signer.store.newest_attestations import NewestAttestations
from tests.unit.signer.builders import NOW, record

FORMER, OTHER = record(identity="ek:1"), record(identity="ek:2")


@pytest.mark.parametrize("seconds", [0, 1], ids=["the same second", "later"])
def test_an_identity_that_another_one_replaced(seconds: int) -> None:
    newest, present = NewestAttestations(), replace(OTHER, last_attestation=NOW + timedelta(seconds=seconds))
    former = replace(FORMER, last_attestation=NOW)
    for one in (former, present, former, former):
        newest.see(one)
    assert newest.is_of_former_identity(former)
    assert not newest.is_of_former_identity(present)


def test_an_identity_that_was_attested_again_is_the_last_one() -> None:
    newest, again = NewestAttestations(), replace(FORMER, last_attestation=NOW + timedelta(seconds=1))
    for one in (replace(FORMER, last_attestation=NOW), replace(OTHER, last_attestation=NOW), again):
        newest.see(one)
    assert not newest.is_of_former_identity(again)
    assert newest.is_of_former_identity(replace(OTHER, last_attestation=NOW))


def test_an_older_record_of_the_last_identity_changes_nothing() -> None:
    newest, present = NewestAttestations(), replace(OTHER, last_attestation=NOW)
    newest.see(present)
    newest.see(replace(OTHER, last_attestation=NOW - timedelta(days=1)))
    assert not newest.is_of_former_identity(present)
    assert newest.is_of_former_identity(replace(FORMER, last_attestation=NOW - timedelta(hours=1)))


def test_the_machines_seen_longest_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newest_attestations, "MOST_REMEMBERED", 1)
    newest = NewestAttestations()
    newest.see(replace(OTHER, last_attestation=NOW))
    newest.see(replace(OTHER, machine=replace(OTHER.machine, name="another")))
    assert not newest.is_of_former_identity(replace(FORMER, last_attestation=NOW - timedelta(days=1)))
