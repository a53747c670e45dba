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
from signer.model.record import (
    AttestedIdentity,
    AttestedNode,
    BuiltinApproval,
    JournalEntry,
    MachineKey,
)
from signer.model.record_object import InvalidRecord, approval_line, entry_line, parse_record, record_spec
from tests.unit.signer.builders import NODE, builtin_approval, record


def manifest(made: AttestedNode) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": made.machine.cluster.namespace,
            "name": made.name,
            "uid": made.uid or "r-1",
            "resourceVersion": made.resource_version or "7",
        },
        "spec": {**record_spec(made), "seal": made.seal or "v2.0.0"},
    }


def stored(made: AttestedNode) -> AttestedNode:
    return replace(made, uid="r-1", resource_version="7")


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
TIMES = st.datetimes(datetime(1000, 1, 1), datetime(9999, 1, 1), timezones=st.just(UTC)).map(
    lambda moment: moment.replace(microsecond=0)
)
KINDS = st.from_regex(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?", fullmatch=True)
ENTRIES = st.builds(
    JournalEntry,
    KINDS,
    *(TEXT,) * 5,
    st.integers(1, 2**159),
    *(TIMES,) * 2,
    *(TEXT,) * 4,
    *(TIMES,) * 2,
)
BUILTIN_APPROVALS_MADE = st.builds(BuiltinApproval, KINDS, *(TEXT,) * 4, *(TIMES,) * 2)
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
    dropped_not_after=TIMES,
    seal=TEXT,
    resource_version=TEXT,
    uid=TEXT,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
RECORD = record().with_builtin_approval(builtin_approval())
PATHS = [
    ("metadata",),
    ("spec",),
    *(("metadata", key) for key in ("namespace", "name", "uid", "resourceVersion")),
    *(("spec", key) for key in (*record_spec(record()), "seal")),
    *(("spec", "machineRef", key) for key in ("kind", "name", "uid")),
    ("spec", "certificates", 0),
    ("spec", "certificates", 1),
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
        assert spec["droppedNotAfter"] == "1970-01-01T00:00:00Z"
        assert spec["certificates"] == [entry_line(entry) for entry in record().journal]
        assert record_spec(RECORD)["certificates"] == [
            *spec["certificates"],
            approval_line(RECORD.builtin_approvals[0]),
        ]

    @pytest.mark.parametrize("path", PATHS, ids=lambda path: ".".join(str(key) for key in path))
    @pytest.mark.parametrize("value", [None, "", 5, True, 1.5, [], {}, ["x"] * 20, {"a": "b"}, "\ud800"])
    def test_ill_typed(self, path: tuple[Any, ...], value: Any) -> None:
        if path == ("spec", "certificates") and value == []:
            return
        with pytest.raises(InvalidRecord):
            parse_record(changed(path, lambda parent, key: parent.__setitem__(key, value)))

    @pytest.mark.parametrize("path", PATHS, ids=lambda path: ".".join(str(key) for key in path))
    def test_missing(self, path: tuple[Any, ...]) -> None:
        if path[-1] in (0, 1, "providerIDSource"):
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
        with pytest.raises(InvalidRecord, match="name does not match its content"):
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

    def test_lines_in_another_order_than_they_are_written_in(self) -> None:
        """Where each is said once, nothing can be said twice in two ways."""
        made = manifest(RECORD)
        made["spec"]["certificates"].reverse()
        with pytest.raises(InvalidRecord):
            parse_record(made)

    @pytest.mark.parametrize("number", [0, 1])
    def test_a_kind_that_this_version_does_not_know(self, number: int) -> None:
        """A newer version wrote it. It is kept and written again; what rests on it, its readers decide."""
        made = manifest(RECORD)
        line = json.loads(made["spec"]["certificates"][number])
        made["spec"]["certificates"][number] = json.dumps(line | {"kind": "of-a-later-version"}, separators=(",", ":"))
        read = parse_record(made)
        kinds = [entry.kind for entry in read.journal] + [approval.kind for approval in read.builtin_approvals]
        assert kinds[number] == "of-a-later-version"
        assert record_spec(read)["certificates"] == made["spec"]["certificates"]

    @pytest.mark.parametrize("kind", ["", "-x", "x-", "X", "a b", "a/b", "x" * 64, "\u0661", "kubelet-client\n"])
    def test_what_is_no_kind(self, kind: str) -> None:
        for number in (0, 1):
            made = manifest(RECORD)
            line = json.loads(made["spec"]["certificates"][number])
            made["spec"]["certificates"][number] = json.dumps(line | {"kind": kind})
            with pytest.raises(InvalidRecord):
                parse_record(made)


FORMER_FORMS: dict[str, Callable[[dict[str, Any]], None]] = {
    "lists of lines": lambda spec: spec.update(
        journalLines=spec["certificates"][:1], stockApprovalLines=spec["certificates"][1:]
    ),
    "lists of objects": lambda spec: spec.update(
        journal=[json.loads(line) for line in spec["certificates"][:1]],
        stockApprovals=[json.loads(line) for line in spec["certificates"][1:]],
    ),
}


@pytest.mark.parametrize("form", FORMER_FORMS)
def test_a_record_in_another_form_is_none(form: str) -> None:
    """Builds before the first release wrote such. Nothing is converted: the node attests again."""
    made = manifest(RECORD)
    FORMER_FORMS[form](made["spec"])
    del made["spec"]["certificates"]
    with pytest.raises(InvalidRecord):
        parse_record(made)
