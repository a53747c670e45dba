from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attestors.contract import Security
from signer.model.cluster import ClusterKey
from signer.model.kubernetes_time import format_time, parse_time
from signer.model.record import (
    JOURNAL_ENTRIES,
    STOCK_APPROVALS,
    AttestedIdentity,
    AttestedNode,
    InvalidRecord,
    JournalEntry,
    MachineKey,
    StockApproval,
    Unjournaled,
    new_record,
    parse_record,
    record_name,
    record_spec,
)
from signer.rules.serving import valid_client_entries
from tests.unit.signer.builders import CLUSTER, NODE, NOW, attested_identity, journal_entry, machine_view, record


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


class TestDigestsAndNames:
    def test_identity(self) -> None:
        def part(text: str) -> bytes:
            return len(text).to_bytes(8, "big") + text.encode()

        expected = hashlib.sha256(part("identity") + part("tpm") + part("ek:1")).hexdigest()
        assert attested_identity().digest == expected
        assert AttestedIdentity("tpm", "ek:1", Security.INSECURE).digest == expected

    def test_machine(self) -> None:
        key = MachineKey.of(machine_view())
        parts = ("machine", "team-a", "prod", "Machine", key.name, key.provider_id)
        packed = b"".join(len(text).to_bytes(8, "big") + text.encode() for text in parts)
        assert key.digest == hashlib.sha256(packed).hexdigest()
        assert str(key) == "Machine team-a/prod-md-0-x7k2p"

    @pytest.mark.parametrize("change", [{"provider": "aws"}, {"identity": "ek:2"}])
    def test_another_identity(self, change: dict[str, str]) -> None:
        assert replace(attested_identity(), **change).digest != attested_identity().digest  # type: ignore[arg-type]

    def test_parts_do_not_run_together(self) -> None:
        one, other = (AttestedIdentity(*parts, Security.SECURE) for parts in (("ab", "c"), ("a", "bc")))
        assert one.digest != other.digest

    def test_another_machine(self) -> None:
        key = MachineKey.of(machine_view())
        others = (
            replace(key, cluster=ClusterKey("team-a", "x")),
            replace(key, cluster=ClusterKey("x", "prod")),
            replace(key, kind="x"),
            replace(key, name="x"),
            replace(key, provider_id="x"),
        )
        assert len({key.digest, *(other.digest for other in others)}) == 6

    def test_machine_key_outlives_a_move(self) -> None:
        assert MachineKey.of(machine_view(uid="new")) == MachineKey.of(machine_view())

    def test_name(self) -> None:
        assert record().name == f"prod.{NODE}"
        assert record_name(CLUSTER, "n" * 248) == "prod." + "n" * 248

    def test_a_dotted_cluster_name_is_not_ambiguous(self) -> None:
        assert record_name(ClusterKey("n", "a"), "b.c") == "a.b.c"
        dotted = record_name(ClusterKey("n", "a.b"), "c")
        assert dotted.startswith("a.b.")
        assert dotted != "a.b.c"

    @pytest.mark.parametrize("cluster", ["prod", "c" * 63, "c" * 253])
    def test_long_name(self, cluster: str) -> None:
        key = ClusterKey("team-a", cluster)
        names = {record_name(key, "n" * length) for length in (249, 250, 253)}
        assert len(names) == 3
        assert all(len(name) <= 253 for name in names)
        assert all(name.startswith(f"{cluster[:180]}.") for name in names)
        packed = b"".join(len(t).to_bytes(8, "big") + t.encode() for t in ("node", cluster, "n" * 253))
        assert record_name(key, "n" * 253) == f"{cluster[:180]}.{hashlib.sha256(packed).hexdigest()}"


class TestJournal:
    def test_new_record(self) -> None:
        entry = journal_entry(decided=NOW, not_after=NOW + timedelta(days=7))
        made = new_record(machine_view(), NODE, attested_identity(), entry)
        assert made == AttestedNode(
            machine=MachineKey.of(machine_view()),
            machine_uid="m-1",
            node_name=NODE,
            identity=attested_identity(),
            first_attestation=NOW,
            last_attestation=NOW,
            last_not_after=NOW + timedelta(days=7),
            journal=(entry,),
        )
        assert (made.uid, made.resource_version) == ("", "")

    def test_another_entry_of_the_same_identity(self) -> None:
        later = NOW + timedelta(days=5)
        entry = journal_entry(2, decided=later, not_after=later + timedelta(days=7))
        machine = machine_view(uid="m-2", name="moved")
        made = record().with_entry(entry, machine=machine, identity=attested_identity())
        assert made.journal == (journal_entry(1), entry)
        assert (made.first_attestation, made.last_attestation) == (NOW, later)
        assert made.last_not_after == later + timedelta(days=7)
        assert (made.machine, made.machine_uid) == (MachineKey.of(machine), "m-2")

    def test_another_identity_starts_its_own_history(self) -> None:
        later = NOW + timedelta(days=5)
        made = record().with_entry(
            journal_entry(2, decided=later), machine=machine_view(), identity=attested_identity("ek:2")
        )
        assert made.identity == attested_identity("ek:2")
        assert made.first_attestation == later

    def test_expiry_never_goes_back(self) -> None:
        entry = journal_entry(2, not_after=NOW + timedelta(hours=1))
        made = record().with_entry(entry, machine=machine_view(), identity=attested_identity())
        assert made.last_not_after == NOW + timedelta(days=7)

    def test_bound(self) -> None:
        made = record()
        for number in range(2, 30):
            made = made.with_entry(journal_entry(number), machine=machine_view(), identity=attested_identity())
            assert len(made.journal) == min(number, JOURNAL_ENTRIES)
        assert [entry.serial_number for entry in made.journal] == list(range(14, 30))

    def test_whose_an_entry_is_does_not_hang_on_the_clocks_of_replicas(self) -> None:
        """The one that was first to write may have been the later one to look at its clock."""
        behind = journal_entry(2, decided=NOW - timedelta(seconds=3))
        made = record().with_entry(behind, machine=machine_view(), identity=attested_identity())
        assert made.journal[-1].decided == made.first_attestation == made.last_attestation == NOW

    @pytest.mark.parametrize("later", [-3, 0, 1])
    def test_a_former_identitys_entries_are_never_the_new_ones(self, later: int) -> None:
        entry = journal_entry(2, decided=NOW + timedelta(seconds=later))
        made = record().with_entry(entry, machine=machine_view(), identity=attested_identity("ek:2"))
        former, own = made.journal
        assert former.decided < made.first_attestation == own.decided == NOW + timedelta(seconds=1)
        assert made.last_attestation == own.decided
        assert [found.csr_name for found in valid_client_entries(made, NOW)] == ["csr-2"]

    def test_entry_for(self) -> None:
        made = record(journal=(journal_entry(1), journal_entry(2), journal_entry(2, spec_digest="other")))
        assert made.entry_for("uid-2", "cd" * 32) == journal_entry(2)
        assert made.entry_for("uid-2", "other") == journal_entry(2, spec_digest="other")
        again = record(journal=(journal_entry(1), journal_entry(1, serial_number=9, ca_cert_hash="sha256:" + "e" * 64)))
        newest = again.entry_for("uid-1", "cd" * 32)
        assert newest == again.journal[1], "planned anew after the CA changed"
        for csr_uid, digest in (("uid-1", "other"), ("uid-3", "cd" * 32), ("", ""), ("csr-1", "cd" * 32)):
            assert made.entry_for(csr_uid, digest) == Unjournaled()


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
TIMES = st.datetimes(datetime(1000, 1, 1), datetime(9999, 1, 1), timezones=st.just(UTC)).map(
    lambda moment: moment.replace(microsecond=0)
)
ENTRIES = st.builds(
    JournalEntry, TEXT, TEXT, TEXT, TEXT, TEXT, st.integers(1, 2**159), TIMES, TIMES, TEXT, TEXT, TEXT, TIMES, TIMES
)
STOCK_APPROVALS_MADE = st.builds(StockApproval, TEXT, TEXT, TEXT, TIMES)
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
    stock_approvals=st.lists(STOCK_APPROVALS_MADE, max_size=3).map(tuple),
    seal=TEXT,
    resource_version=TEXT,
    uid=TEXT,
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)
PATHS = [
    ("metadata",),
    ("spec",),
    *(("metadata", key) for key in ("namespace", "name", "uid", "resourceVersion")),
    *(("spec", key) for key in (*record_spec(record()), "seal")),
    *(("spec", "machineRef", key) for key in ("kind", "name", "uid")),
    *(("spec", "journal", 0, key) for key in record_spec(record())["journal"][0]),
    *(("spec", "stockApprovals", 0, key) for key in ("csrName", "csrUID", "specDigest", "decidedTime")),
    ("spec", "stockApprovals", 0),
    ("spec", "journal", 0),
]


def changed(path: tuple[Any, ...], change: Callable[[Any, Any], None]) -> dict[str, Any]:
    made = copy.deepcopy(manifest(record().with_stock_approval(StockApproval("csr-s", "uid-s", "cd" * 32, NOW))))
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
        assert spec["journal"][0]["serialNumber"] == "1"
        assert record_spec(record(journal=(journal_entry(0xABC),)))["journal"][0]["serialNumber"] == "abc"

    @pytest.mark.parametrize("path", PATHS, ids=lambda path: ".".join(str(key) for key in path))
    @pytest.mark.parametrize("value", [None, "", 5, True, 1.5, [], {}, ["x"] * 20, {"a": "b"}, "\ud800"])
    def test_ill_typed(self, path: tuple[Any, ...], value: Any) -> None:
        if path in (("spec", "journal"), ("spec", "stockApprovals")) and value == []:
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

    @pytest.mark.parametrize("serial", ["0", "00", "01", "-1", "+1", "0x1", "A", "g", " 1", "1\n", "1_0", "f" * 41])
    def test_serial_number(self, serial: str) -> None:
        path = ("spec", "journal", 0, "serialNumber")
        with pytest.raises(InvalidRecord):
            parse_record(changed(path, lambda parent, key: parent.__setitem__(key, serial)))

    def test_longest_serial_number(self) -> None:
        made = record(journal=(journal_entry(2**160 - 1),))
        assert parse_record(manifest(made)) == stored(made)

    @given(st.dictionaries(st.sampled_from(["metadata", "spec"]), JSON))
    def test_any_object(self, made: dict[str, Any]) -> None:
        with pytest.raises(InvalidRecord):
            parse_record(made)

    @given(st.sampled_from(PATHS), JSON)
    def test_any_value_is_a_record_or_invalid(self, path: tuple[Any, ...], value: Any) -> None:
        made = changed(path, lambda parent, key: parent.__setitem__(key, value))
        with suppress(InvalidRecord):
            assert manifest(parse_record(made)) == made


class TestStockApprovals:
    APPROVAL = StockApproval("csr-s", "uid-s", "cd" * 32, NOW)

    def test_found_by_uid_and_content(self) -> None:
        made = record().with_stock_approval(self.APPROVAL)
        assert made.has_stock_approval("uid-s", "cd" * 32)
        assert not made.has_stock_approval("uid-s", "00" * 32)
        assert not made.has_stock_approval("uid-t", "cd" * 32)
        assert not record().has_stock_approval("uid-s", "cd" * 32)

    def test_the_oldest_go(self) -> None:
        made = record()
        for number in range(STOCK_APPROVALS + 1):
            made = made.with_stock_approval(replace(self.APPROVAL, csr_uid=f"uid-{number}"))
        assert [one.csr_uid for one in made.stock_approvals] == [f"uid-{n}" for n in range(1, STOCK_APPROVALS + 1)]

    @pytest.mark.parametrize(("identity", "kept"), [("ek:1", 1), ("ek:2", 0)])
    def test_another_identity_starts_its_own(self, identity: str, kept: int) -> None:
        made = record().with_stock_approval(self.APPROVAL)
        after = made.with_entry(journal_entry(2), machine=machine_view(), identity=attested_identity(identity))
        assert len(after.stock_approvals) == kept


class TestTime:
    def test_round_trip(self) -> None:
        assert format_time(NOW) == "2026-03-01T12:00:00Z"
        assert parse_time("2026-03-01T12:00:00Z") == NOW
        assert format_time(NOW.replace(microsecond=999_999)) == "2026-03-01T12:00:00Z"
        assert format_time(NOW.astimezone(timezone(timedelta(hours=9)))) == "2026-03-01T12:00:00Z"

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "Z",
            "2026-03-01T12:00:00",
            "2026-03-01T12:00:00z",
            "2026-03-01 12:00:00Z",
            "2026-03-01T12:00:00.0Z",
            "2026-03-01T12:00:00+00:00",
            "20260301T120000.000Z",
            "2026-W09-7T12:00:00Z",
            "2026-02-30T12:00:00Z",
            "2026-03-01T24:00:01Z",
            "0000-03-01T12:00:00Z",
            "\u0662026-03-01T12:00:00Z",
            "2026-03-01T12:00:00Z\n",
        ],
    )
    def test_of_another_form(self, text: str) -> None:
        with pytest.raises(ValueError, match=r"."):
            parse_time(text)
