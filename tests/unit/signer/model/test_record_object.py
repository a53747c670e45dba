from __future__ import annotations

import copy
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attestors.contract import Security
from signer.model.cluster import ClusterKey
from signer.model.journal_lines import approval_line, entry_line
from signer.model.record import (
    AttestedIdentity,
    AttestedNode,
    BuiltinApproval,
    JournalEntry,
    MachineKey,
)
from signer.model.record_object import InvalidRecord, parse_record, record_spec
from tests.unit.signer.builders import NODE, NOW, record


def manifest(made: AttestedNode) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": made.machine.cluster.namespace,
            "name": made.name,
            "uid": made.uid or "r-1",
            "resourceVersion": made.resource_version or "7",
        },
        "spec": {**record_spec(made), "seal": made.seal or "v1.0.0"},
    }


def stored(made: AttestedNode) -> AttestedNode:
    return replace(made, uid="r-1", resource_version="7")


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
TIMES = st.datetimes(datetime(1000, 1, 1), datetime(9999, 1, 1), timezones=st.just(UTC)).map(
    lambda moment: moment.replace(microsecond=0)
)
ENTRIES = st.builds(
    JournalEntry, TEXT, TEXT, TEXT, TEXT, TEXT, st.integers(1, 2**159), TIMES, TIMES, TEXT, TEXT, TEXT, TIMES, TIMES
)
BUILTIN_APPROVALS_MADE = st.builds(BuiltinApproval, TEXT, TEXT, TEXT, TIMES)
MACHINE_KEYS = st.builds(MachineKey, st.builds(ClusterKey, TEXT, TEXT), TEXT, TEXT, TEXT)
IDENTITIES = st.builds(AttestedIdentity, TEXT, TEXT, st.sampled_from(Security))
RECORDS = st.builds(
    AttestedNode,
    machine=MACHINE_KEYS,
    machine_uid=TEXT,
    node_name=TEXT | st.just("n" * 253),
    identity=IDENTITIES,
    first_attestation=TIMES,
    last_attestation=TIMES,
    last_not_after=TIMES,
    journal=st.lists(ENTRIES, max_size=3).map(tuple),
    builtin_approvals=st.lists(BUILTIN_APPROVALS_MADE, max_size=3).map(tuple),
    seal=TEXT,
    resource_version=TEXT,
    uid=TEXT,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
RECORD = record().with_builtin_approval(BuiltinApproval("csr-s", "uid-s", "cd" * 32, NOW))
PATHS = [
    ("metadata",),
    ("spec",),
    *(("metadata", key) for key in ("namespace", "name", "uid", "resourceVersion")),
    *(("spec", key) for key in (*record_spec(record()), "seal")),
    *(("spec", "machineRef", key) for key in ("kind", "name", "uid")),
    ("spec", "stockApprovalLines", 0),
    ("spec", "journalLines", 0),
]


def changed(path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> dict[str, Any]:
    made = copy.deepcopy(manifest(RECORD))
    parent: Any = made
    for key in path[:-1]:
        parent = parent[key]
    change(parent, path[-1])
    return made


class TestParse:
    @settings(max_examples=100, deadline=None)
    @given(RECORDS)
    def test_round_trip(self, made: AttestedNode) -> None:
        assert parse_record(manifest(made)) == made

    def test_form(self) -> None:
        spec = record_spec(record())
        assert spec["machineRef"] == {"kind": "Machine", "name": "prod-md-0-x7k2p", "uid": "m-1"}
        assert (spec["security"], spec["attestor"], spec["identity"]) == ("secure", "tpm", "ek:1")
        assert spec["lastNotAfter"] == "2026-03-08T12:00:00Z"
        assert spec["journalLines"] == [entry_line(entry) for entry in record().journal]
        assert record_spec(RECORD)["stockApprovalLines"] == [approval_line(RECORD.builtin_approvals[0])]

    @pytest.mark.parametrize("path", PATHS, ids=lambda path: ".".join(str(key) for key in path))
    @pytest.mark.parametrize("value", [None, "", 5, True, 1.5, [], {}, ["x"] * 20, {"a": "b"}, "\ud800"])
    def test_ill_typed(self, path: tuple[Any, ...], value: Any) -> None:
        if path in (("spec", "journalLines"), ("spec", "stockApprovalLines")) and value == []:
            return
        with pytest.raises(InvalidRecord):
            parse_record(changed(path, lambda parent, key: parent.__setitem__(key, value)))

    @pytest.mark.parametrize("path", PATHS, ids=lambda path: ".".join(str(key) for key in path))
    def test_missing(self, path: tuple[Any, ...]) -> None:
        if path[-1] == 0:
            return
        with pytest.raises(InvalidRecord):
            parse_record(changed(path, lambda parent, key: parent.__delitem__(key)))

    @pytest.mark.parametrize(
        ("path", "value"),
        [
            (("metadata", "name"), "prod.other"),
            (("metadata", "name"), f"other.{NODE}"),
            (("spec", "nodeName"), "other"),
            (("spec", "clusterName"), "other"),
        ],
    )
    def test_name_that_the_content_does_not_give(self, path: tuple[Any, ...], value: str) -> None:
        with pytest.raises(InvalidRecord, match="name is not the one its content gives"):
            parse_record(changed(path, lambda parent, key: parent.__setitem__(key, value)))

    @pytest.mark.parametrize("security", ["Secure", "none", "SECURE"])
    def test_security(self, security: str) -> None:
        with pytest.raises(InvalidRecord):
            parse_record(changed(("spec", "security"), lambda parent, key: parent.__setitem__(key, security)))

    @given(st.dictionaries(st.sampled_from(["metadata", "spec"]), JSON))
    def test_any_object(self, made: dict[str, Any]) -> None:
        with pytest.raises(InvalidRecord):
            parse_record(made)

    @given(st.sampled_from(PATHS), JSON)
    def test_any_value_is_a_record_or_invalid(self, path: tuple[Any, ...], value: Any) -> None:
        made = changed(path, lambda parent, key: parent.__setitem__(key, value))
        with suppress(InvalidRecord):
            assert manifest(parse_record(made)) == made


def as_objects(made: AttestedNode) -> dict[str, Any]:
    """As 0.1.0 wrote it."""
    written = manifest(made)
    spec = written["spec"]
    for lines, objects in (("journalLines", "journal"), ("stockApprovalLines", "stockApprovals")):
        spec[objects] = [json.loads(line) for line in spec.pop(lines)]
    return written


class TestObjects:
    """Instead of lines, as 0.1.0 wrote them."""

    @settings(max_examples=50, deadline=None)
    @given(RECORDS)
    def test_are_read(self, made: AttestedNode) -> None:
        assert parse_record(as_objects(made)) == made

    @pytest.mark.parametrize("field", ["journal", "stockApprovals"])
    @pytest.mark.parametrize("value", [None, "", 5, {}, ["x"], [[]], [{}], [None]], ids=repr)
    def test_of_another_form(self, field: str, value: Any) -> None:
        made = as_objects(RECORD)
        made["spec"][field] = value
        with pytest.raises(InvalidRecord):
            parse_record(made)

    @pytest.mark.parametrize("field", ["journal", "stockApprovals"])
    def test_a_field_that_is_missing(self, field: str) -> None:
        made = as_objects(RECORD)
        for key in made["spec"][field][0]:
            lacking = copy.deepcopy(made)
            del lacking["spec"][field][0][key]
            with pytest.raises(InvalidRecord):
                parse_record(lacking)

    @pytest.mark.parametrize("field", ["journal", "stockApprovals", "journalLines", "stockApprovalLines"])
    def test_never_with_lines(self, field: str) -> None:
        lines, objects = manifest(RECORD), as_objects(RECORD)
        made, other = (lines, objects) if field in objects["spec"] else (objects, lines)
        made["spec"][field] = other["spec"][field]
        with pytest.raises(InvalidRecord):
            parse_record(made)
