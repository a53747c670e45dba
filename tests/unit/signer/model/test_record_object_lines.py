from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signer.controller.requests.bounded_request import MAXIMUM_UID_CHARACTERS
from signer.crds import custom_resource_definitions
from signer.model.fields import MAXIMUM_NAME_CHARACTERS
from signer.model.record import BUILTIN_APPROVALS, JOURNAL_ENTRIES
from signer.model.record_object import approval_line, entry_line, parse_line
from tests.support.yaml_documents import safe_load
from tests.unit.signer.builders import builtin_approval, journal_entry
from tests.unit.signer.model.test_record_object import BUILTIN_APPROVALS_MADE, ENTRIES, JSON

ENTRY = entry_line(journal_entry(0xABC))
APPROVAL = approval_line(builtin_approval())
REFUSED = (KeyError, TypeError, ValueError)
ILL_TYPED: Final[tuple[Any, ...]] = (None, "", 5, True, 1.5, [], {}, ["x"], "\ud800")
each_form = pytest.mark.parametrize("line", [ENTRY, APPROVAL], ids=["entry", "approval"])


@given(ENTRIES, ENTRIES)
def test_entries_that_differ_have_two_lines(one: Any, other: Any) -> None:
    """Seals are made over lines."""
    assert (entry_line(one) == entry_line(other)) == (one == other)


def with_fields(line: str, **fields: Any) -> str:
    return json.dumps({**json.loads(line), **fields})


@given(ENTRIES)
def test_an_entry_is_read_as_it_was_written(entry: Any) -> None:
    assert parse_line(entry_line(entry)) == entry


@given(BUILTIN_APPROVALS_MADE)
def test_an_approval_is_read_as_it_was_written(approval: Any) -> None:
    assert parse_line(approval_line(approval)) == approval


def test_an_entry_is_one_object_in_one_line() -> None:
    line = entry_line(replace(journal_entry(0xABC), requester="a\n\u2028 'quoted' \"twice\" \\ é"))
    assert len(line.split("\n")) == 1
    written = json.loads(line)
    assert (written["kind"], written["serialNumber"]) == ("kubelet-client", "abc")
    assert (written["csrName"], written["decidedTime"]) == ("csr-2748", "2026-03-01T12:00:00Z")
    assert written["requester"] == "a\n\u2028 'quoted' \"twice\" \\ é"


@each_form
def test_each_field_must_be_there_and_be_text(line: str) -> None:
    fields: Mapping[str, Any] = json.loads(line)
    for key in fields:
        with pytest.raises(REFUSED):
            parse_line(json.dumps({name: value for name, value in fields.items() if name != key}))
        for value in ILL_TYPED:
            with pytest.raises(REFUSED):
                parse_line(with_fields(line, **{key: value}))


@each_form
def test_nothing_else_may_be_there(line: str) -> None:
    with pytest.raises(REFUSED):
        parse_line(with_fields(line, another="x"))


@each_form
@pytest.mark.parametrize("bad", ["", "{", "[]", "null", "5", "{}", "text", "[" * 100_000], ids=lambda bad: bad[:9])
def test_no_object(line: str, bad: str) -> None:
    with pytest.raises(REFUSED):
        parse_line(bad)
    with pytest.raises(REFUSED):
        parse_line(line + bad + "x")


@each_form
def test_a_line_is_one(line: str) -> None:
    """Journals are packed line by line."""
    with pytest.raises(REFUSED):
        parse_line(line.replace(",", ",\n", 1))


@pytest.mark.parametrize("serial", ["0", "00", "01", "-1", "+1", "0x1", "A", "g", " 1", "1\n", "1_0", "f" * 41])
def test_a_serial_number_is_written_in_one_way(serial: str) -> None:
    with pytest.raises(REFUSED):
        parse_line(with_fields(ENTRY, serialNumber=serial))


def test_the_longest_serial_number() -> None:
    entry = journal_entry(2**160 - 1)
    assert parse_line(entry_line(entry)) == entry


@pytest.mark.parametrize("character", ['"', "\U0001f512"])
def test_the_longest_lines_have_room_in_the_object(character: str) -> None:
    """A workload API server may lie about all but names, which no call could hold: a control character takes six."""
    [definition] = [
        one for one in map(safe_load, custom_resource_definitions()) if one["spec"]["names"]["kind"] == "AttestedNode"
    ]
    lines = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    name, uid = character * MAXIMUM_NAME_CHARACTERS, "\x01" * MAXIMUM_UID_CHARACTERS
    entry = replace(
        journal_entry(2**160 - 1),
        kind="k" * 63,
        csr_name=name,
        csr_uid=uid,
        requester="\x01" * 512,
        signer_name="s" * 571,
    )
    assert len(entry_line(entry)) <= lines["certificates"]["items"]["maxLength"]
    approval = builtin_approval(kind="k" * 63, csr_name=name, csr_uid=uid)
    assert len(approval_line(approval)) <= lines["certificates"]["items"]["maxLength"]
    assert lines["certificates"]["maxItems"] >= JOURNAL_ENTRIES + BUILTIN_APPROVALS


@given(JSON)
def test_any_json_is_an_entry_or_refused(value: Any) -> None:
    with suppress(*REFUSED):
        parse_line(json.dumps(value))
        pytest.fail("nothing of this is an entry")


@given(st.text())
def test_any_text_is_refused(text: str) -> None:
    with pytest.raises(REFUSED):
        parse_line(text)


def test_what_entries_have_in_common_is_kept_once() -> None:
    first, second = (parse_line(entry_line(journal_entry(number))) for number in (1, 2))
    assert first is not second
    for field in ("kind", "signer_name", "requester", "ca_cert_hash", "evidence_ca_cert_hash"):
        assert getattr(first, field) is getattr(second, field)
