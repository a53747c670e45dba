"""What records prove about the CAs that nodes trust and use."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from signer.model.record import (
    BUILTIN_KUBELET_SERVING,
    JOURNAL_ENTRIES,
    KUBELET_CLIENT,
    KUBELET_SERVING,
    AttestedNode,
    BuiltinApproval,
    JournalEntry,
)
from signer.rotation.facts import NodeFacts
from signer.rotation.nodes import nodes_of
from tests.unit.signer.builders import NODE, NOW, attested_identity, journal_entry, machine_view, record
from tests.unit.signer.rotation.situations import HASH, NEW, OLD

MACHINE = machine_view(node_ref=NODE)
MINUTE = timedelta(minutes=1)


def entry(
    number: int, *, evidence: Any = OLD, by: Any = OLD, kind: str = KUBELET_CLIENT, **changes: Any
) -> JournalEntry:
    fields: dict[str, Any] = {
        "kind": kind,
        "decided": NOW + number * MINUTE,
        "evidence_ca_cert_hash": HASH[evidence],
        "ca_cert_hash": HASH[by],
        "not_after": NOW + timedelta(days=7),
        "serial_number": number + 1,
        **changes,
    }
    return replace(journal_entry(), **fields)


def with_journal(*entries: JournalEntry, **changes: Any) -> AttestedNode:
    return record(MACHINE, **{"journal": entries, "first_attestation": NOW, **changes})


def facts(one: AttestedNode) -> NodeFacts:
    (found,) = nodes_of([MACHINE], [(MACHINE, one)]).attested
    return found


def test_the_newest_of_each_kind() -> None:
    found = facts(
        with_journal(
            entry(0, evidence=OLD, by=OLD),
            entry(1, evidence=OLD, by=OLD, kind=KUBELET_SERVING),
            entry(2, evidence=NEW, by=NEW),
        )
    )
    assert (found.node, found.machine) == (NODE, MACHINE.name)
    assert (found.evidence, found.client, found.serving) == (HASH[NEW], HASH[NEW], HASH[OLD])
    assert found.is_all


def test_evidence_is_that_of_any_kind_of_certificate() -> None:
    found = facts(with_journal(entry(0), entry(1, evidence=NEW, kind=KUBELET_SERVING)))
    assert (found.evidence, found.client, found.serving) == (HASH[NEW], HASH[OLD], HASH[OLD])


@pytest.mark.parametrize("later", [0, -3])
def test_the_journal_has_the_newest_last_whatever_clocks_said(later: int) -> None:
    """Replicas' clocks differ by minutes, and times in the object are whole seconds."""
    found = facts(with_journal(entry(5, evidence=NEW, by=NEW), entry(5 + later, evidence=OLD, by=OLD)))
    assert (found.evidence, found.client) == (HASH[OLD], HASH[OLD])


def test_an_expired_certificate_says_what_the_node_trusted() -> None:
    found = facts(with_journal(entry(0, evidence=NEW, by=NEW, not_after=NOW)))
    assert (found.evidence, found.client) == (HASH[NEW], HASH[NEW])


def test_a_former_identity_says_nothing() -> None:
    former = entry(0, evidence=NEW, by=NEW)
    found = facts(with_journal(former, entry(2), first_attestation=NOW + 2 * MINUTE))
    assert (found.evidence, found.client) == (HASH[OLD], HASH[OLD])
    alone = facts(with_journal(former, first_attestation=NOW + 2 * MINUTE))
    assert (alone.evidence, alone.client, alone.serving) == ("", "", "")


def test_what_left_the_journal_is_older_than_what_is_in_it() -> None:
    one = with_journal(entry(0, by=NEW))
    for number in range(JOURNAL_ENTRIES):
        one = one.with_entry(entry(number + 1), machine=MACHINE, identity=attested_identity())
    assert len(one.journal) == JOURNAL_ENTRIES
    assert facts(one).is_all
    assert facts(one).client == HASH[OLD]


def test_a_kind_that_this_version_does_not_know_is_not_known_completely() -> None:
    assert not facts(with_journal(entry(0), entry(1, kind="a-later-kind"))).is_all


def test_certificates_that_kube_controller_manager_signs_are_in_no_journal() -> None:
    approval = BuiltinApproval(BUILTIN_KUBELET_SERVING, "csr", "u", "0" * 64, "0" * 64, NOW, NOW)
    assert facts(with_journal(entry(0), builtin_approvals=(approval,))).is_all


# Machines


def test_machines_without_a_record() -> None:
    machines = [
        machine_view(name="b", node_ref="node-b"),
        machine_view(name="a", node_ref="node-a"),
        machine_view(name="deleting", node_ref="x", deleting=True),
        machine_view(name="control-plane", node_ref="x", control_plane=True),
        MACHINE,
    ]
    found = nodes_of(machines, [(MACHINE, record(MACHINE))])
    assert found.unattested == ("a", "b")
    assert found.leaving_unattested == ("deleting",)
    assert found.joining == {}


def test_machines_that_have_not_joined() -> None:
    machines = [
        machine_view(name="joining", created=NOW),
        machine_view(name="deleting", deleting=True),
        machine_view(name="control-plane", control_plane=True),
    ]
    found = nodes_of(machines, [])
    assert found.joining == {"joining": NOW}
    assert found.unattested == ()


def test_machines_that_are_being_deleted_do_not_hold_a_rotation() -> None:
    deleting = replace(MACHINE, deleting=True)
    found = nodes_of([deleting], [(deleting, record(deleting))])
    assert (found.attested, found.unattested, found.leaving_unattested) == ((), (), ())


def test_nodes_are_sorted() -> None:
    records = [(MACHINE, record(MACHINE, node_name=name)) for name in ("c", "a", "b")]
    assert [one.node for one in nodes_of([MACHINE], records).attested] == ["a", "b", "c"]
