"""The expiry of a cluster's node certificates: which of them count, and that changes are followed."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

from attestors.contract import Security
from signer.model.cluster import MachineView
from signer.model.record import AttestedNode, MachineKey
from signer.rules.machine import MachineGone, NoRecord
from signer.store.node_certificates import CertificateLives, NodeCertificates
from tests.unit.signer.builders import CLUSTER, NOW, SERVING_SIGNER, attested_identity, journal_entry, machine_view
from tests.unit.signer.builders import record as made_record

LIFE = timedelta(days=10)


class World:
    def __init__(self) -> None:
        self.machines: dict[MachineKey, MachineView] = {}
        self.lives = CertificateLives(lambda key: self.machines.get(key, MachineGone()))
        self.records: dict[str, AttestedNode] = {}

    def node(self, name: str, end: datetime, *, security: Security = Security.SECURE) -> AttestedNode:
        """Add a Machine, and a record whose last client certificate expires then."""
        machine = machine_view(name=name, provider_id=f"test:///{name}")
        self.machines[MachineKey.of(machine)] = machine
        identity = replace(attested_identity(name), security=security)
        entry = journal_entry(not_before=end - LIFE, not_after=end)
        later = journal_entry(2, signer_name=SERVING_SIGNER, not_after=end + LIFE)
        record = made_record(machine, journal=(entry, later))
        self.put(name, replace(record, machine=MachineKey.of(machine), identity=identity))
        return self.records[name]

    def put(self, name: str, record: AttestedNode | NoRecord) -> None:
        before = self.records.pop(name, NoRecord())
        if isinstance(record, AttestedNode):
            self.records[name] = record
        self.lives.record_changed((CLUSTER.namespace, name), before, record)

    def found(self) -> NodeCertificates:
        return self.lives.of(CLUSTER)


def budget(world: World, now: datetime = NOW) -> list[datetime]:
    ends = world.found().outage_budget(now.timestamp())
    return [datetime.fromtimestamp(end, tz=NOW.tzinfo) for end in ends]


def test_the_outage_budget_is_the_next_expiry() -> None:
    world = World()
    assert budget(world) == []
    world.node("late", NOW + timedelta(days=6))
    world.node("first", NOW + timedelta(days=2))
    world.node("dead", NOW - timedelta(days=1))
    assert budget(world) == [NOW + timedelta(days=2)], "by client certificates alone"
    assert budget(world, NOW + timedelta(days=3)) == [NOW + timedelta(days=6)]
    assert budget(world, NOW + timedelta(days=7)) == []
    assert world.found().count_expired(NOW.timestamp()) == 1


def test_deleted_and_deleting_machines_do_not_count() -> None:
    world = World()
    record = world.node("first", NOW + timedelta(days=2))
    world.node("late", NOW + timedelta(days=6))
    assert budget(world) == [NOW + timedelta(days=2)]
    machine = world.machines[record.machine]
    world.machines[record.machine] = replace(machine, deleting=True)
    world.lives.machines_changed([CLUSTER])
    assert budget(world) == [NOW + timedelta(days=6)]
    world.machines[record.machine] = machine
    world.lives.machines_changed([CLUSTER])
    assert budget(world) == [NOW + timedelta(days=2)]
    del world.machines[record.machine]
    world.lives.machines_changed([CLUSTER])
    assert budget(world) == [NOW + timedelta(days=6)]


def test_a_renewal_and_a_deleted_record_change_it() -> None:
    world = World()
    record = world.node("first", NOW + timedelta(days=2))
    assert budget(world) == [NOW + timedelta(days=2)]
    entry = journal_entry(3, not_before=NOW, not_after=NOW + LIFE)
    world.put("first", replace(record, journal=(*record.journal, entry)))
    assert budget(world) == [NOW + LIFE]
    world.put("first", NoRecord())
    assert budget(world) == []
    assert not world.lives._lives
    assert not world.lives._summed


def test_of_two_records_of_one_machine_the_one_that_expires_later_counts() -> None:
    world = World()
    record = world.node("node", NOW + timedelta(days=2))
    other = replace(record, journal=(journal_entry(not_after=NOW + timedelta(days=5)),), node_name="other")
    world.put("other", other)
    assert budget(world) == [NOW + timedelta(days=5)]
    assert len(world.found().ends) == 1


def test_overdue_counts_nodes_that_should_have_renewed_and_still_can() -> None:
    world = World()
    world.node("overdue", NOW + timedelta(days=1))
    world.node("in-time", NOW + timedelta(days=2))
    world.node("expired", NOW - timedelta(hours=1))
    world.node("insecure", NOW + timedelta(days=1), security=Security.INSECURE)
    found = world.found()
    assert (found.count_overdue(NOW.timestamp()), found.count_expired(NOW.timestamp())) == (1, 1)
    assert found.count_overdue((NOW + timedelta(days=3)).timestamp()) == 0


def test_the_summary_is_cached_while_nothing_changes() -> None:
    world = World()
    world.node("node", NOW)
    assert world.found() is world.found()


def test_records_without_a_client_certificate_are_added_and_removed() -> None:
    """Sixteen serving certificates since the last client certificate; a fault here would end the controller."""
    world = World()
    world.node("node", NOW + LIFE)
    for name in ("one", "two"):
        record = world.node(name, NOW + LIFE)
        world.put(name, replace(record, journal=record.journal[1:]))
    assert budget(world) == [NOW + LIFE]
    for name in ("node", "one", "two"):
        world.put(name, NoRecord())
    assert budget(world) == []
    assert world.found() == NodeCertificates()
