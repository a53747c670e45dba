"""Only AttestedNodes that the controller sealed are ever used."""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from signer.model.decision import Deferred
from signer.model.record import AttestedNode, MachineKey
from signer.model.record_object import record_spec
from signer.model.reservation import Pair
from signer.model.seal import ControllerKeys, KeyUse, RecordSeals
from signer.rules.machine import NoRecord
from signer.store.authentic_records import (
    AuthenticRecords,
    InTheWay,
    KeysUnavailable,
    NothingInTheWay,
    NotKept,
    UnreadableRecord,
    UnverifiedRecord,
    stored_record,
)
from signer.store.cache import Cache
from tests.unit.signer.builders import CLUSTER, attested_identity, builtin_approval, journal_entry, machine_view, record

KEYS: Final = ControllerKeys(bytes(range(32)))
OTHER: Final = ControllerKeys(b"o" * 32)
ROTATED: Final = ControllerKeys(b"n" * 32, KEYS.current)


def manifest(
    made: AttestedNode, version: str = "1", keys: ControllerKeys = KEYS, *, namespace: str = "", name: str = ""
) -> dict[str, Any]:
    """The object in the API server; ``namespace`` and ``name`` are where it was copied to."""
    metadata = {
        "namespace": namespace or made.machine.cluster.namespace,
        "name": name or made.name,
        "uid": "u",
        "resourceVersion": version,
    }
    return {"metadata": metadata, "spec": {**record_spec(made), "seal": RecordSeals(keys).seal(made)}}


class World:
    def __init__(self) -> None:
        self.authentic = AuthenticRecords()
        self.cache = Cache("attestednodes", stored_record, self.authentic.changed)

    def found(self, made: AttestedNode | None = None) -> AttestedNode | NoRecord:
        return self.authentic.get(CLUSTER.namespace, (made or record()).name)

    def named(self, made: AttestedNode | None = None) -> list[str]:
        made = made or record()
        pair = Pair(made.machine, made.identity)
        return [found.node_name for found in self.authentic.naming(pair)]


@pytest.fixture
def world() -> World:
    world = World()
    world.authentic.use_keys(KEYS)
    return world


def test_an_authentic_record_is_found_by_name_machine_and_identity(world: World) -> None:
    world.cache.applied(manifest(record()))
    assert world.found() == replace(record(), uid="u", resource_version="1")
    assert world.named() == [record().node_name]
    assert [found.node_name for found in world.authentic.values()] == [record().node_name]
    assert world.authentic.ignored == 0
    world.cache.removed(manifest(record()))
    assert world.found() == NoRecord()
    assert world.named() == []
    assert world.authentic.in_the_way(CLUSTER.namespace, record().name) == NothingInTheWay()


def _changed(spec: dict[str, Any]) -> dict[str, Any]:
    made = manifest(record())
    return {**made, "spec": {**made["spec"], **spec}}


def _in_another_form(seal: str) -> dict[str, Any]:
    """As builds before the first release wrote it; API servers prune what their definition does not know."""
    made = manifest(record())
    lines = made["spec"].pop("certificates")
    return {**made, "spec": {**made["spec"], "journalLines": lines, "stockApprovalLines": [], "seal": seal}}


FORGERIES: Final = {
    "in another form": _in_another_form(manifest(record())["spec"]["seal"]),
    "in another form, with the seal of that time": _in_another_form("v1.0123456789abcdef." + "0" * 64),
    "with the seal of another form": _changed({"seal": "v1" + manifest(record())["spec"]["seal"][2:]}),
    "another moment when certificates left the journal": _changed({"droppedNotAfter": "2026-01-01T00:00:00Z"}),
    "another identity": _changed({"identity": "ek:impostor"}),
    "another Machine": _changed({"machineRef": {"kind": "Machine", "name": "other", "uid": "u"}}),
    "a journal entry more": _changed({"certificates": record_spec(record())["certificates"] * 2}),
    "no seal": {**manifest(record()), "spec": record_spec(record())},
    "an empty seal": _changed({"seal": ""}),
    "a truncated seal": _changed({"seal": manifest(record())["spec"]["seal"][:-2]}),
    "a seal of nothing": _changed({"seal": "v2.0123456789abcdef." + "0" * 64}),
    "the seal of another controller": manifest(record(), keys=OTHER),
    "copied from another namespace": manifest(
        record(machine_view(cluster=replace(CLUSTER, namespace="team-b"))), namespace=CLUSTER.namespace
    ),
    "copied from another name": manifest(record(node_name="other"), name=record().name),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forgery_is_no_record_and_is_reported_as_in_the_way(world: World, name: str) -> None:
    world.cache.applied(FORGERIES[name])
    world.authentic.begin_key_read()
    world.authentic.use_keys(KEYS)
    assert world.found() == NoRecord()
    assert world.authentic.values() == ()
    assert world.named() == []
    assert world.authentic.in_the_way(CLUSTER.namespace, record().name) == InTheWay("u", "1")
    assert world.authentic.ignored == 1


def test_unauthentic_objects_are_counted_for_the_cluster_they_name(world: World) -> None:
    """For an operator who asks why nodes must attest again. An unreadable object names no cluster."""
    ours, theirs = record(), replace(CLUSTER, name="other")
    world.cache.applied(manifest(ours))
    assert world.authentic.count_unauthentic() == {}
    for name, keys in (("one", OTHER), ("two", OTHER), ("three", KEYS)):
        made = record(machine_view(cluster=theirs if name == "three" else CLUSTER), node_name=name)
        world.cache.applied(manifest(made, keys=keys))
    for name in ("four", "five"):
        world.cache.applied(manifest(record(machine_view(cluster=theirs), node_name=name), keys=OTHER))
    world.cache.applied(manifest(record(node_name="six"), keys=OTHER))
    world.cache.applied({**manifest(record(node_name="seven")), "spec": {}})
    world.authentic.begin_key_read()
    world.authentic.use_keys(KEYS)
    assert world.authentic.count_unauthentic() == {CLUSTER: 3, theirs: 2}
    assert len(world.authentic.values()) == 2


def test_a_record_that_is_replaced_by_a_forgery_is_forgotten(world: World) -> None:
    world.cache.applied(manifest(record()))
    forgery = manifest(record(identity="ek:2"))
    forgery["spec"]["seal"] = manifest(record())["spec"]["seal"]
    forgery["metadata"]["resourceVersion"] = "2"
    world.cache.applied(forgery)
    assert world.found() == NoRecord()
    assert world.named() == world.named(record(identity="ek:2")) == []


def test_an_ignored_object_is_reported_once_per_version(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    for version in ("1", "1", "2", "2"):
        made = FORGERIES["no seal"]
        world.cache.applied({**made, "metadata": {**made["metadata"], "resourceVersion": version}})
        world.authentic.begin_key_read()
        world.authentic.use_keys(KEYS)
        world.authentic.use_keys(ROTATED)
    reports = [entry for entry in caplog.records if entry.name == "signer.store.authentic_records"]
    assert [entry.__dict__["resourceVersion"] for entry in reports] == ["1", "2"]
    assert world.authentic.ignored == 2


def test_an_unknown_certificate_kind_is_logged_once_per_version(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """The record is authentic all the same: it holds its name, and its other certificates count."""
    caplog.set_level(logging.WARNING)
    unknown = journal_entry(2, kind="of-a-later-version")
    made = record(journal=(journal_entry(), unknown), builtin_approvals=(builtin_approval(kind="too"),))
    for version in ("1", "1", "2"):
        world.cache.applied(manifest(made, version))
        world.authentic.use_keys(ROTATED)
        world.authentic.use_keys(KEYS)
    found = world.found()
    assert isinstance(found, AttestedNode)
    assert found.journal == made.journal
    reports = [entry for entry in caplog.records if "does not know" in entry.getMessage()]
    assert [entry.__dict__["resourceVersion"] for entry in reports] == ["1", "2"]
    assert reports[0].__dict__["detail"] == "of-a-later-version, too"
    assert world.authentic.ignored == 0


def test_an_object_without_metadata_is_unreadable() -> None:
    assert stored_record({"spec": {}}) == UnreadableRecord("", "", "not an AttestedNode of ours: KeyError")
    assert isinstance(stored_record(manifest(record())), UnverifiedRecord)


# The indices


def test_records_of_one_identity_in_all_namespaces_come_last_attested_first(world: World) -> None:
    earlier = record(machine_view(name="former", cluster=replace(CLUSTER, namespace="team-b")))
    later = record(last_attestation=earlier.last_attestation + timedelta(days=1))
    of_the_machine = record(identity="ek:2", node_name="third", last_attestation=earlier.last_attestation)
    of_others = record(machine_view(name="other"), identity="ek:3", node_name="fourth")
    for made in (earlier, later, of_the_machine, of_others):
        world.cache.applied(manifest(made))
    wanted = Pair(MachineKey.of(machine_view()), attested_identity())
    found = world.authentic.naming(wanted)
    assert found[0].machine == later.machine
    assert {(one.machine, one.identity) for one in found} == {
        (one.machine, one.identity) for one in (earlier, later, of_the_machine)
    }


def test_the_same_identity_text_of_another_attestor_is_another_identity(world: World) -> None:
    theirs = record(machine_view(name="other"), node_name="theirs")
    made = replace(theirs, identity=replace(theirs.identity, provider="another"))
    for one in (record(), made):
        world.cache.applied(manifest(one))
    assert world.named() == [record().node_name]
    assert world.named(made) == ["theirs"]


def test_deleting_one_of_several_records_keeps_the_others(world: World) -> None:
    former = record(node_name="former")
    for made in (former, record()):
        world.cache.applied(manifest(made))
    world.cache.removed(manifest(former))
    assert world.named() == [record().node_name]
    assert [found.node_name for found in world.authentic.of_machine(record().machine)] == [record().node_name]


def test_metadata_of_a_deleted_record_is_not_kept(world: World) -> None:
    made = replace(record(), resource_version="1")
    world.cache.applied(manifest(made))
    assert not isinstance(world.authentic.metadata_of(made), NotKept)
    assert world.authentic.metadata_of(replace(made, resource_version="2")) == NotKept()
    world.cache.removed(manifest(made))
    assert world.authentic.metadata_of(made) == NotKept()


def test_an_object_created_again_is_ignored_and_logged_again(world: World) -> None:
    """As after a restore of the management cluster, which numbers its versions again."""
    forgery = FORGERIES["an empty seal"]
    for _ in range(2):
        world.cache.applied(forgery)
        world.cache.removed(forgery)
    assert world.authentic.ignored == 2


def test_each_change_of_an_authentic_record_is_reported() -> None:
    told: list[tuple[str, str]] = []

    def tell(key: object, before: AttestedNode | NoRecord, after: AttestedNode | NoRecord) -> None:
        told.append((_version(before), _version(after)))

    def _version(one: AttestedNode | NoRecord) -> str:
        return "none" if isinstance(one, NoRecord) else one.resource_version

    authentic = AuthenticRecords(tell)
    authentic.use_keys(KEYS)
    cache = Cache("attestednodes", stored_record, authentic.changed)
    cache.applied(FORGERIES["an empty seal"])
    assert told == [], "of somebody else's nothing is told"
    cache.applied(manifest(record(), "2"))
    cache.applied(manifest(record(), "3"))
    cache.removed(manifest(record()))
    assert told == [("none", "2"), ("2", "none"), ("none", "3"), ("3", "none")]


def test_a_change_of_keys_is_reported() -> None:
    told: list[tuple[bytes, ...]] = []
    authentic = AuthenticRecords(keys_changed=lambda: told.append(authentic.challenge_keys("tpm")))
    for keys in (KEYS, KEYS, ROTATED, ROTATED):
        authentic.begin_key_read()
        authentic.use_keys(keys)
    former, newest = told
    assert former != newest, "told twice, when the new ones are in use"


def test_a_changed_record_is_indexed_again(world: World) -> None:
    world.cache.applied(manifest(record()))
    world.cache.applied(manifest(record(machine_view(name="other"), identity="ek:2"), "2"))
    assert world.named() == []
    assert world.named(record(machine_view(name="other"))) == world.named(record(identity="ek:2")) != []


# The keys


@pytest.mark.parametrize("read", ["get", "values", "naming", "of_machine", "require_keys"])
def test_without_the_key_everything_waits(world: World, read: str) -> None:
    calls: dict[str, Any] = {
        "get": lambda: world.found(),
        "values": lambda: world.authentic.values(),
        "naming": lambda: world.named(),
        "of_machine": lambda: world.authentic.of_machine(record().machine),
        "require_keys": lambda: world.authentic.require_keys(),
    }
    world.authentic.use_no_keys(KeysUnavailable("Secret own/key: malformed"))
    with pytest.raises(Deferred, match="Secret own/key: malformed"):
        calls[read]()
    world.authentic.use_keys(KEYS)
    calls[read]()


def test_records_that_arrived_before_the_key_are_verified_with_it() -> None:
    world = World()
    for made in (record(), record(node_name="forged")):
        world.cache.applied(manifest(made, keys=OTHER if made.node_name == "forged" else KEYS))
    assert world.authentic.ignored == 0
    world.authentic.begin_key_read()
    world.authentic.use_keys(KEYS)
    assert isinstance(world.found(), AttestedNode)
    assert world.found(record(node_name="forged")) == NoRecord()


def test_rotation(world: World) -> None:
    """A record sealed with the previous key stays authentic; one sealed with the key before it does not."""
    world.cache.applied(manifest(record()))
    world.authentic.use_keys(ROTATED)
    assert isinstance(world.found(), AttestedNode)
    world.authentic.begin_key_read()
    world.authentic.use_keys(ControllerKeys(b"2" * 32, ROTATED.current))
    assert world.found() == NoRecord()
    assert world.named() == []
    assert world.authentic.ignored == 1


def test_a_newer_key_of_another_replica_is_waited_for(world: World) -> None:
    """Treating its record as a forgery would discard its journal."""
    assert not world.authentic.key_wanted.is_set()
    world.cache.applied(manifest(record(), keys=ROTATED))
    assert world.authentic.key_wanted.is_set()
    with pytest.raises(Deferred, match="was not read yet"):
        world.found()
    with pytest.raises(Deferred, match="was not read yet"):
        world.named()
    world.authentic.begin_key_read()
    assert not world.authentic.key_wanted.is_set()
    world.authentic.use_keys(ROTATED)
    assert isinstance(world.found(), AttestedNode)


def test_a_record_that_arrives_during_a_key_read_may_have_a_newer_key(world: World) -> None:
    world.authentic.begin_key_read()
    world.cache.applied(manifest(record(), keys=ROTATED))
    world.authentic.use_keys(KEYS)  # as it was before the rotation
    with pytest.raises(Deferred, match="was not read yet"):
        world.found()
    assert world.authentic.key_wanted.is_set()
    world.authentic.begin_key_read()
    world.authentic.use_keys(KEYS)
    assert world.found() == NoRecord(), "a key that nobody has"


def test_a_waiting_record_can_be_deleted(world: World) -> None:
    world.cache.applied(manifest(record(), keys=OTHER))
    world.cache.removed(manifest(record()))
    assert world.found() == NoRecord()


class TestChallengeKeys:
    def test_of_each_attestor_are_its_own(self, world: World) -> None:
        keys = {world.authentic.challenge_keys(provider) for provider in ("tpm", "gcp", "tp", "")}
        assert len(keys) == 4
        assert all(len(secret) == 32 for found in keys for secret in found)

    def test_are_the_same_after_a_restart_and_on_another_replica(self, world: World) -> None:
        again = AuthenticRecords()
        again.use_keys(ControllerKeys(KEYS.current))
        assert again.challenge_keys("tpm") == world.authentic.challenge_keys("tpm")

    def test_are_others_under_another_controller_key(self, world: World) -> None:
        before = world.authentic.challenge_keys("tpm")
        world.authentic.use_keys(OTHER)
        assert world.authentic.challenge_keys("tpm") != before

    def test_after_a_rotation_the_newest_comes_first_and_the_one_before_stays(self, world: World) -> None:
        (before,) = world.authentic.challenge_keys("tpm")
        world.authentic.use_keys(ROTATED)
        newest, previous = world.authentic.challenge_keys("tpm")
        assert previous == before
        assert newest != before
        world.authentic.use_keys(ControllerKeys(b"m" * 32, ROTATED.current))
        assert before not in world.authentic.challenge_keys("tpm")

    def test_are_no_keys_of_another_use(self, world: World) -> None:
        others = {KEYS.current, *(subkey.secret for use in KeyUse for subkey in KEYS.subkeys(use))}
        assert others.isdisjoint(world.authentic.challenge_keys("tpm"))

    def test_before_the_controller_key_is_read_a_request_waits(self) -> None:
        with pytest.raises(Deferred) as deferred:
            AuthenticRecords().challenge_keys("tpm")
        assert deferred.value.defer.reason == "ControllerKeyUnavailable"

    def test_while_the_controller_key_is_unavailable_a_request_waits(self, world: World) -> None:
        before = world.authentic.challenge_keys("tpm")
        world.authentic.use_no_keys(KeysUnavailable("the Secret is gone"))
        with pytest.raises(Deferred, match="the Secret is gone"):
            world.authentic.challenge_keys("tpm")
        world.authentic.use_keys(KEYS)
        assert world.authentic.challenge_keys("tpm") == before


def test_requiring_all_records_of_a_machine_waits_for_an_unverified_one(world: World) -> None:
    """Otherwise a replica that has not read the new key would report that nothing is recorded for the Machine."""
    machine = MachineKey.of(machine_view())
    world.cache.applied(manifest(record(), keys=ROTATED))
    with pytest.raises(Deferred, match="not read yet"):
        world.authentic.require_all_known(machine)
    world.authentic.require_all_known(MachineKey.of(machine_view(name="another")))
    world.authentic.begin_key_read()
    world.authentic.use_keys(ROTATED)
    world.authentic.require_all_known(machine)
    assert [found.node_name for found in world.authentic.of_machine(machine)] == [record().node_name]


def test_a_deleted_or_unauthentic_record_is_not_waited_for(world: World) -> None:
    machine = MachineKey.of(machine_view())
    for name in ("prod.a", "prod.b"):
        made = record(node_name=name.partition(".")[2])
        world.cache.applied(manifest(made, keys=OTHER))
    world.cache.removed(manifest(record(node_name="a")))
    with pytest.raises(Deferred, match=r"prod\.b"):
        world.authentic.require_all_known(machine)
    world.authentic.begin_key_read()
    world.authentic.use_keys(KEYS)
    world.authentic.require_all_known(machine)
    assert world.authentic.of_machine(machine) == ()


def test_records_under_unknown_keys_keep_a_node_waiting_while_they_are_written() -> None:
    """What a writer of AttestedNodes can do, as the threat model says. It ends with the next read of the key."""
    world = World()
    world.authentic.use_keys(KEYS)
    honest = record()
    world.cache.applied(manifest(honest))
    other_name = replace(honest, node_name="other")
    for turn in range(3):
        world.cache.applied(manifest(other_name, str(turn + 2), OTHER))
        with pytest.raises(Deferred, match="sealed with a key that was not read yet"):
            world.authentic.require_all_known(honest.machine)
        world.authentic.begin_key_read()
        world.authentic.use_keys(KEYS)
        world.authentic.require_all_known(honest.machine)
        assert world.found(honest) == world.authentic.of_machine(honest.machine)[0]
