from __future__ import annotations

import copy
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from signer.model.certificates_in_use import certificates_in_use
from signer.model.record import JournalEntry
from signer.model.record_object import (
    PACKED_FROM,
    InvalidRecord,
    PackedJournal,
    entry_line,
    kept_journal,
    parse_record,
    record_spec,
)
from signer.model.seal import ControllerKeys, RecordSeals
from tests.unit.signer.builders import NOW, journal_entry, record
from tests.unit.signer.model.test_record_object import ENTRIES, manifest

KEYS = ControllerKeys(bytes(range(32)))
MANY = tuple(journal_entry(number) for number in range(1, 17))
MANY_LINES = [entry_line(entry) for entry in MANY]


@settings(max_examples=50, deadline=None)
@given(st.lists(ENTRIES, min_size=1, max_size=16).map(tuple))
def test_it_holds_what_was_packed(entries: tuple[JournalEntry, ...]) -> None:
    packed = PackedJournal([entry_line(entry) for entry in entries])
    assert tuple(packed) == entries
    assert tuple(reversed(packed)) == entries[::-1]
    assert len(packed) == len(entries)
    assert (packed[0], packed[-1], packed[1:3]) == (entries[0], entries[-1], entries[1:3])
    assert entries[-1] in packed


def test_it_is_equal_to_the_same_entries_however_they_are_kept() -> None:
    packed = PackedJournal(MANY_LINES)
    spaced = PackedJournal([line.replace(":", ": ", 1) for line in MANY_LINES])
    for same in (PackedJournal(MANY_LINES), spaced, MANY):
        assert packed == same
        assert same == packed
        assert hash(packed) == hash(same)
    for other in (PackedJournal(MANY_LINES[1:]), MANY[1:], list(MANY), None):
        assert packed != other
    assert repr(packed) == repr(MANY)


def test_few_are_not_packed() -> None:
    few = MANY[: PACKED_FROM - 1]
    assert kept_journal(MANY_LINES[: PACKED_FROM - 1], few) is few
    packed = kept_journal(MANY_LINES[:PACKED_FROM], MANY[:PACKED_FROM])
    assert isinstance(packed, PackedJournal)
    assert packed == MANY[:PACKED_FROM]


@pytest.mark.parametrize("bad", ["", "{}", MANY_LINES[0][:-1], MANY_LINES[0].replace(",", ",\n", 1)])
def test_each_line_is_read_at_once(bad: str) -> None:
    """Nothing is found wrong later, in the middle of a judgement."""
    made = manifest(record(journal=MANY))
    for place in (0, 7, 16):
        made["spec"]["certificates"] = [*MANY_LINES[:place], bad, *MANY_LINES[place:]]
        with pytest.raises(InvalidRecord):
            parse_record(made)


def test_a_record_with_many_entries_is_sealed_read_and_goes_on_alike() -> None:
    """Wherever a journal is looked at, it does not matter how it is kept."""
    loose = record(journal=MANY)
    read = parse_record(manifest(replace(loose, seal=RecordSeals(KEYS).seal(loose))))
    kept = copy.copy(read)
    assert isinstance(read.journal, PackedJournal)
    assert RecordSeals(KEYS).unseal(read) is read
    assert record_spec(read) == record_spec(loose)
    assert read.next_dropped == loose.next_dropped
    assert certificates_in_use((read,), NOW) == certificates_in_use((loose,), NOW)
    assert read.entry_for(MANY[3].csr_uid, MANY[3].spec_digest) == MANY[3]
    assert read.entries_for_key(MANY[3].public_key_digest, MANY[3].signer_name) == loose.entries_for_key(
        MANY[3].public_key_digest, MANY[3].signer_name
    )
    assert kept == read
