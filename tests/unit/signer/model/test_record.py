from __future__ import annotations

import hashlib
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestors.contract import Security
from signer.model.certificates_in_use import EVER, certificates_in_use
from signer.model.cluster import LONG_AGO, ClusterKey
from signer.model.record import (
    BUILTIN_APPROVALS,
    JOURNAL_ENTRIES,
    KUBELET_CLIENT,
    AttestedIdentity,
    AttestedNode,
    JournalEntry,
    MachineKey,
    Unjournaled,
    new_record,
    record_name,
    was_just_decided,
)
from signer.rules.serving import valid_clients
from tests.unit.signer.builders import (
    CLUSTER,
    NODE,
    NOW,
    SERVING_SIGNER,
    attested_identity,
    builtin_approval,
    journal_entry,
    machine_view,
    record,
)

_LABELS = st.sampled_from(["a", "b", "c", "0" * 64, "f" * 64, "n" * 120])
_DOTTED = st.lists(_LABELS, min_size=1, max_size=3).map(".".join).filter(lambda name: len(name) <= 253)
_CLUSTERS_AND_NODES = st.tuples(_DOTTED, _DOTTED)


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

    @pytest.mark.parametrize(
        ("cluster", "node", "prefix"),
        [("a.b", "c", "b."), ("a.b", "c.d", "b."), ("a", "n" * 252, "")],
        ids=["cluster with a dot", "two dots", "too long"],
    )
    def test_no_node_is_named_like_the_record_of_another(self, cluster: str, node: str, prefix: str) -> None:
        """The attacker's cluster is ``a``; its node is called as the rest of the victim's record."""
        victim = record_name(ClusterKey("team-a", cluster), node)
        attacker = victim.removeprefix("a.")
        assert attacker.startswith(prefix)
        assert record_name(ClusterKey("team-a", "a"), attacker) != victim

    @given(st.lists(_CLUSTERS_AND_NODES, min_size=2, max_size=2, unique=True))
    def test_names_do_not_collide(self, keys: list[tuple[str, str]]) -> None:
        """Also where one node is named by what another's record ends with."""
        names = {record_name(ClusterKey("n", cluster), node): (cluster, node) for cluster, node in keys}
        assert len(names) == len(keys)
        for cluster, node in keys:
            taken = record_name(ClusterKey("n", cluster), node)
            for end in (taken.partition(".")[2], taken.rpartition(".")[2]):
                for other in ("a", "b", "a.b", cluster):
                    if (other, end) != (cluster, node):
                        assert record_name(ClusterKey("n", other), end) != taken

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

    def test_serving_certificates_never_crowd_out_the_client_certificate_by_which_they_are_asked_for(self) -> None:
        """A node whose addresses change asks for one after the other, and renews its client certificate days later."""
        made = record(journal=(journal_entry(1, not_after=NOW + timedelta(days=3)), journal_entry(2)))
        for number in range(3, 40):
            entry = journal_entry(number, signer_name=SERVING_SIGNER)
            made = made.with_entry(entry, machine=machine_view(), identity=attested_identity())
        assert [entry.serial_number for entry in made.journal] == [2, *range(25, 40)]
        assert certificates_in_use((made,), EVER, KUBELET_CLIENT).last == journal_entry(2)
        going = made.next_dropped
        assert isinstance(going, JournalEntry)
        assert going.serial_number == 25
        renewed = made.with_entry(
            journal_entry(40, not_after=NOW + timedelta(days=9)), machine=machine_view(), identity=attested_identity()
        )
        assert renewed.next_dropped == journal_entry(2), "it is not the last any more"

    def test_a_former_identitys_client_certificate_makes_way(self) -> None:
        full = record(journal=tuple(journal_entry(number) for number in range(1, JOURNAL_ENTRIES + 1)))
        full = replace(full, journal=(replace(full.journal[0], not_after=NOW + timedelta(days=99)), *full.journal[1:]))
        made = full.with_entry(journal_entry(50), machine=machine_view(), identity=attested_identity("ek:2"))
        assert [entry.serial_number for entry in made.journal] == [*range(2, JOURNAL_ENTRIES + 1), 50]

    def test_nothing_makes_way_while_there_is_room(self) -> None:
        assert record(journal=(journal_entry(1),)).next_dropped == Unjournaled()

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
        assert [found.csr_name for found in valid_clients(made, NOW).own] == ["csr-2"]

    def test_what_had_to_go_is_remembered_by_its_end(self) -> None:
        made = record(journal=(journal_entry(1, not_after=NOW + timedelta(days=3)),))
        for number in range(2, JOURNAL_ENTRIES + 1):
            made = made.with_entry(journal_entry(number), machine=machine_view(), identity=attested_identity())
        assert made.dropped_not_after == LONG_AGO
        made = made.with_entry(journal_entry(50), machine=machine_view(), identity=attested_identity())
        assert made.dropped_not_after == NOW + timedelta(days=3)
        taken_over = made.with_entry(journal_entry(51), machine=machine_view(), identity=attested_identity("ek:2"))
        assert taken_over.dropped_not_after == journal_entry(2).not_after
        shorter = replace(taken_over, journal=(journal_entry(1, not_after=NOW), *taken_over.journal[1:]))
        after = shorter.with_entry(journal_entry(52), machine=machine_view(), identity=attested_identity("ek:3"))
        assert after.dropped_not_after == journal_entry(2).not_after, "it never goes back"

    def test_what_had_to_go_of_a_journal_that_was_too_long(self) -> None:
        ends = [NOW + timedelta(days=number) for number in range(40)]
        long = record(journal=tuple(journal_entry(number, not_after=end) for number, end in enumerate(ends, start=1)))
        made = long.with_entry(journal_entry(50), machine=machine_view(), identity=attested_identity())
        kept = {entry.not_after for entry in made.journal[:-1]}
        assert made.dropped_not_after == max(set(ends) - kept)

    def test_a_certificate_that_came_with_the_one_that_was_asked_for(self) -> None:
        """It is no answer to the request by itself, and its key is another one."""
        asked, came = journal_entry(1), journal_entry(1, kind="of-a-later-version", serial_number=9)
        made = record(journal=(asked, came))
        assert made.entry_for("uid-1", "cd" * 32) == asked
        assert made.entries_for_key(asked.public_key_digest, asked.signer_name) == (asked,)
        assert record(journal=(came,)).entry_for("uid-1", "cd" * 32) == Unjournaled()

    def test_until_when_the_name_is_held(self) -> None:
        assert record().held_until == record().last_not_after + timedelta(minutes=10)

    def test_entry_for(self) -> None:
        made = record(journal=(journal_entry(1), journal_entry(2), journal_entry(2, spec_digest="other")))
        assert made.entry_for("uid-2", "cd" * 32) == journal_entry(2)
        assert made.entry_for("uid-2", "other") == journal_entry(2, spec_digest="other")
        again = record(journal=(journal_entry(1), journal_entry(1, serial_number=9, ca_cert_hash="sha256:" + "e" * 64)))
        newest = again.entry_for("uid-1", "cd" * 32)
        assert newest == again.journal[1], "planned anew after the CA changed"
        for csr_uid, digest in (("uid-1", "other"), ("uid-3", "cd" * 32), ("", ""), ("csr-1", "cd" * 32)):
            assert made.entry_for(csr_uid, digest) == Unjournaled()


@pytest.mark.parametrize(
    ("seconds_ago", "just"), [(60, False), (59, True), (0, True), (-300, True), (-301, False), (-86400, False)]
)
def test_what_was_decided_while_a_clock_was_ahead_is_not_what_was_just_decided(seconds_ago: int, just: bool) -> None:
    """A few minutes ahead is another replica's clock."""
    assert was_just_decided(NOW - timedelta(seconds=seconds_ago), timedelta(minutes=1), NOW) is just


class TestBuiltinApprovals:
    APPROVAL = builtin_approval()

    def test_found_by_uid_and_content(self) -> None:
        made = record().with_builtin_approval(self.APPROVAL)
        assert made.has_builtin_approval("uid-s", "cd" * 32)
        assert not made.has_builtin_approval("uid-s", "00" * 32)
        assert not made.has_builtin_approval("uid-t", "cd" * 32)
        assert not record().has_builtin_approval("uid-s", "cd" * 32)
        other_kind = record().with_builtin_approval(builtin_approval(kind="of-a-later-version"))
        assert not other_kind.has_builtin_approval("uid-s", "cd" * 32)

    def test_the_oldest_go(self) -> None:
        made = record()
        for number in range(BUILTIN_APPROVALS + 1):
            made = made.with_builtin_approval(replace(self.APPROVAL, csr_uid=f"uid-{number}"))
        assert [one.csr_uid for one in made.builtin_approvals] == [f"uid-{n}" for n in range(1, BUILTIN_APPROVALS + 1)]

    @pytest.mark.parametrize(("identity", "kept"), [("ek:1", 1), ("ek:2", 0)])
    def test_another_identity_starts_its_own(self, identity: str, kept: int) -> None:
        made = record().with_builtin_approval(self.APPROVAL)
        after = made.with_entry(journal_entry(2), machine=machine_view(), identity=attested_identity(identity))
        assert len(after.builtin_approvals) == kept
