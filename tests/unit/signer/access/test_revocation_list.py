"""The list of ended grants' key ids: nothing that is needed is lost, whatever somebody does to the ConfigMap."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestors.wire.ssh.krl import AnyAuthority, CertificateRevocations
from attestors.wire.statement import NodeAccessTrust
from signer.access.revocation_list import RevocationList, RevocationListFull, RevocationListWatch
from signer.access.revocations import (
    KEPT_AFTER_END,
    MAXIMUM_ENTRIES,
    AuthenticList,
    ForeignList,
    NoList,
    is_needed,
    list_path,
    manifest_of,
    needed,
    read_list,
    united,
)
from signer.kube.clocks import ClockAnswer, ClocksAgree, ClocksDiffer, ClockUnknown
from signer.kube.errors import ApiError, Cause, Conflict, Invalid, Unreachable
from signer.model.cluster import ClusterKey
from signer.model.seal import ControllerKeys, KeyUse, Seals
from signer.ssh.bundle.content import revocation_list
from signer.ssh.revocations import LONGEST, NothingOfOurs, PublishedRevocations, RevocationsUnknown
from tests.support.node_access import trust
from tests.unit.signer.builders import cluster_view
from tests.unit.signer.rotation.memory_api import Call, Moment
from tests.unit.signer.ssh.world import CLUSTER, KEY, KEYS, START, Process, World, run

ONE: Final = "grant/tenant/repair/u-1/alice"
OTHER: Final = "grant/tenant/look/u-2/bob/3"
PATH: Final = list_path(KEY)
HOUR: Final = timedelta(hours=1)
OTHER_KEYS: Final = ControllerKeys(bytes(reversed(range(32))))


class Faults:
    """Interferes with calls."""

    def __init__(self) -> None:
        self.errors: list[ApiError] = []
        self.seen: list[str] = []
        self.refused: tuple[str, ...] = ()

    async def __call__(self, call: Call, moment: Moment) -> None:
        if call.path.startswith(PATH.rpartition("/")[0]):
            await asyncio.sleep(0)
            if moment is Moment.BEFORE:
                self.seen.append(call.method)
                if call.method in self.refused:
                    raise Invalid("field is immutable", status=422)
                if self.errors:
                    raise self.errors.pop(0)


class Revoking:
    """A controller with the list."""

    def __init__(self, process: Process, faults: Faults) -> None:
        self.process, self.world, self.faults = process, process.world, faults
        self.published = PublishedRevocations(lambda: self.world.now)
        self.published.found(KEY, NothingOfOurs())
        self.wakes = 0
        self.clocks: ClockAnswer = ClocksAgree()
        self.list = RevocationList(
            management=cast("Any", process.client),
            caches=process.caches,
            published=self.published,
            now=lambda: self.world.now,
            clock=lambda: self.clocks,
        )
        self.list.begin(KEY, self._wake)

    def _wake(self) -> None:
        self.wakes += 1

    @classmethod
    async def started(cls, world: World | None = None) -> Revoking:
        faults = Faults()
        return cls(await Process.started(world or World(), cast("Any", faults)), faults)

    def key_ids(self) -> tuple[str, ...]:
        found = self.list.of(KEY)
        assert all(isinstance(one, CertificateRevocations) for one in found)
        return tuple(key_id for one in found for key_id in one.key_ids)  # type: ignore[union-attr]

    def stored(self) -> dict[str, Any]:
        found: dict[str, Any] = self.world.found(PATH)
        return found

    def listed(self) -> list[str]:
        return [one["keyID"] for one in json.loads(self.stored()["data"]["revocations"])]

    def end(self, **after: float) -> datetime:
        return self.world.now + timedelta(**after)


async def revoked() -> Revoking:
    """With one entry that lasts for an hour."""
    revoking = await Revoking.started()
    await revoking.list.add(KEY, ONE, revoking.end(hours=1))
    assert revoking.key_ids() == (ONE,)
    return revoking


def edit(revoking: Revoking, **data: Any) -> None:
    revoking.world.api.edit(PATH, {"data": data})


# What is there


def test_what_is_added_is_written_and_published() -> None:
    async def scenario() -> None:
        revoking = await Revoking.started()
        with pytest.raises(RevocationsUnknown, match="has not been read"):
            revoking.list.of(KEY)
        assert await revoking.list.look(KEY) > 60
        assert (revoking.list.of(KEY), revoking.stored()) == ((), {}), "nothing to keep"
        await revoking.list.add(KEY, ONE, revoking.end(hours=1))
        assert revoking.wakes >= 2
        metadata = revoking.stored()["metadata"]
        assert metadata["labels"] == {"cluster.x-k8s.io/cluster-name": "blue"}
        [owner] = metadata["ownerReferences"]
        assert (owner["kind"], owner["name"]) == ("Cluster", "blue")
        assert owner["uid"] == revoking.world.found(CLUSTER)["metadata"]["uid"]
        writes, wakes = len(revoking.faults.seen), revoking.wakes
        await revoking.list.add(KEY, ONE, revoking.end(hours=1))
        assert (len(revoking.faults.seen), revoking.wakes) == (writes, wakes), "the same again costs nothing"
        await revoking.list.add(KEY, ONE, revoking.end(hours=2))
        await revoking.list.add(KEY, OTHER, revoking.end(minutes=1))
        again = await Revoking.started(revoking.world)
        await again.list.look(KEY)
        assert sorted(again.key_ids()) == [OTHER, ONE]

    run(scenario())


def test_another_process_reads_it() -> None:
    async def scenario() -> None:
        revoking = await revoked()
        again = await Revoking.started(revoking.world)
        await again.list.look(KEY)
        assert again.key_ids() == (ONE,)
        assert again.faults.seen == ["GET"]

    run(scenario())


@pytest.mark.parametrize("how", ["deleted", "edited", "emptied", "older", "of another Cluster", "garbage", "twice"])
def test_it_is_restored_from_memory(how: str) -> None:
    async def scenario() -> None:
        revoking = await revoked()
        older = copy.deepcopy(revoking.stored()["data"])
        await revoking.list.add(KEY, OTHER, revoking.end(hours=1))
        match how:
            case "deleted":
                revoking.world.api.remove(PATH)
            case "edited":
                edit(revoking, revocations=revoking.stored()["data"]["revocations"].replace(ONE, f"{ONE}x"))
            case "emptied":
                edit(revoking, revocations="[]")
            case "older":
                edit(revoking, **older)
            case "of another Cluster":
                key = ClusterKey(KEY.namespace, "red")
                edit(revoking, **manifest_of({}, cluster_view(key=key), "v1", KEYS, {})["data"])
            case "garbage":
                edit(revoking, revocations="[" * 100_000)
            case _:
                listed = json.loads(revoking.stored()["data"]["revocations"])
                edit(revoking, revocations=json.dumps(listed + listed))
        await revoking.list.look(KEY)
        assert revoking.listed() == sorted((ONE, OTHER))
        read = read_list(revoking.stored(), KEY, KEYS)
        assert isinstance(read, AuthenticList)
        assert sorted(revoking.key_ids()) == [OTHER, ONE]

    run(scenario())


def test_what_another_replica_wrote_is_kept() -> None:
    async def scenario() -> None:
        one = await revoked()
        other = await Revoking.started(one.world)
        await asyncio.gather(
            one.list.add(KEY, f"{ONE}/1", one.end(hours=1)), other.list.add(KEY, OTHER, one.end(hours=1))
        )
        await one.list.look(KEY)
        await other.list.look(KEY)
        assert one.listed() == sorted((ONE, f"{ONE}/1", OTHER))
        assert sorted(one.key_ids()) == sorted(other.key_ids()) == sorted((ONE, f"{ONE}/1", OTHER))

    run(scenario())


def test_many_ends_at_once_are_few_writes() -> None:
    async def scenario() -> None:
        revoking = await revoked()
        revoking.faults.seen.clear()
        await asyncio.gather(*(revoking.list.add(KEY, f"{ONE}/{n}", revoking.end(hours=1)) for n in range(1, 200)))
        assert len(revoking.listed()) == 200
        assert revoking.faults.seen.count("PUT") <= 3

    run(scenario())


def test_a_failed_write_revokes_all_the_same() -> None:
    async def scenario() -> None:
        revoking = await revoked()
        revoking.faults.errors = [Unreachable("no answer", cause=Cause.NETWORK)]
        with pytest.raises(Unreachable):
            await revoking.list.add(KEY, OTHER, revoking.end(hours=1))
        assert sorted(revoking.key_ids()) == [OTHER, ONE]
        assert revoking.listed() == [ONE]
        revoking.faults.errors = [Unreachable("no answer", cause=Cause.NETWORK)]
        assert await revoking.list.look(KEY) < 60
        await revoking.list.add(KEY, OTHER, revoking.end(hours=1))
        assert len(revoking.listed()) == 2, "the same call again writes it"

    run(scenario())


def test_an_object_that_nobody_can_write_keeps_nothing_from_nodes() -> None:
    """Somebody made it immutable, or the right to write is missing."""

    async def scenario() -> None:
        before = await revoked()
        edit(before, revocations="[]")
        again = await Revoking.started(before.world)
        again.published.found(KEY, published_list(ONE))
        again.faults.refused = ("PUT", "POST", "PATCH")
        assert await again.list.look(KEY) < 60
        with pytest.raises(Invalid):
            await again.list.add(KEY, OTHER, again.end(hours=1))
        assert again.key_ids() == (OTHER,)
        assert again.wakes >= 2
        again.list.reserve(KEY, f"{ONE}/1", again.end(hours=1))

    run(scenario())


def test_conflicts_are_tried_again_but_not_for_ever() -> None:
    async def scenario() -> None:
        revoking = await revoked()
        revoking.faults.errors = [Conflict("changed", status=409)]
        await revoking.list.add(KEY, OTHER, revoking.end(hours=1))
        assert len(revoking.listed()) == 2
        revoking.faults.errors = [Conflict("changed", status=409)] * 5
        with pytest.raises(Conflict):
            await revoking.list.add(KEY, f"{ONE}/9", revoking.end(hours=1))

    run(scenario())


# Ends


def test_an_entry_is_dropped_only_after_its_end() -> None:
    async def scenario() -> None:
        revoking = await revoked()
        revoking.world.now += HOUR + KEPT_AFTER_END - timedelta(seconds=1)
        await revoking.list.add(KEY, OTHER, revoking.end(hours=1))
        assert sorted(revoking.listed()) == [OTHER, ONE], "a slow clock still accepts it"
        revoking.world.now += timedelta(seconds=1)
        wakes = revoking.wakes
        await revoking.list.look(KEY)
        assert sorted(revoking.key_ids()) == [OTHER, ONE], "each change is read by every node: it waits for another"
        assert revoking.wakes == wakes
        await revoking.list.add(KEY, f"{ONE}/1", revoking.end(hours=1))
        assert sorted(revoking.key_ids()) == sorted((OTHER, f"{ONE}/1"))
        revoking.world.now += 3 * HOUR
        await revoking.list.look(KEY)
        assert (revoking.key_ids(), revoking.listed()) == ((), []), "or for an hour"

    run(scenario())


@pytest.mark.parametrize(
    "clocks", [ClocksDiffer("an hour", START), ClockUnknown("no answer")], ids=["differ", "unknown"]
)
def test_a_wrong_clock_drops_no_entry_and_takes_new_ones(clocks: ClockAnswer) -> None:
    async def scenario() -> None:
        revoking = await revoked()
        before = revoking.key_ids()
        revoking.clocks = clocks
        revoking.world.now += timedelta(hours=3)
        await revoking.list.add(KEY, OTHER, revoking.end(hours=-1))
        assert set(revoking.key_ids()) == {*before, OTHER}
        revoking.clocks = ClocksAgree()
        await revoking.list.look(KEY)
        assert revoking.key_ids() == ()

    run(scenario())


def test_certificates_that_have_ended_need_no_entry() -> None:
    async def scenario() -> None:
        revoking = await Revoking.started()
        await revoking.list.add(KEY, ONE, revoking.world.now - KEPT_AFTER_END)
        assert (revoking.stored(), revoking.faults.seen, revoking.wakes) == ({}, [], 0)

    run(scenario())


def test_without_a_cluster_nothing_is_written() -> None:
    async def scenario() -> None:
        revoking = await Revoking.started()
        revoking.world.api.remove(CLUSTER)
        await revoking.list.add(KEY, ONE, revoking.end(hours=1))
        assert revoking.stored() == {}
        assert revoking.key_ids() == (ONE,)

    run(scenario())


# Bounds


def test_room_is_kept_for_each_grant_that_has_certificates() -> None:
    async def scenario() -> None:
        revoking = await Revoking.started()
        with pytest.raises(RevocationsUnknown):
            revoking.list.reserve(KEY, ONE, revoking.end(hours=1))
        await revoking.list.look(KEY)
        for number in range(MAXIMUM_ENTRIES):
            revoking.list.reserve(KEY, f"{ONE}/{number}", revoking.end(hours=1))
        revoking.list.reserve(KEY, f"{ONE}/7", revoking.end(hours=1))
        with pytest.raises(RevocationListFull):
            revoking.list.reserve(KEY, OTHER, revoking.end(hours=1))
        await revoking.list.add(KEY, f"{ONE}/7", revoking.end(hours=1))
        with pytest.raises(RevocationListFull):
            revoking.list.reserve(KEY, OTHER, revoking.end(hours=1))
        await revoking.list.add(KEY, f"{ONE}/never-reserved", revoking.end(hours=1))
        assert len(revoking.listed()) == 2, "what must be revoked always has room"
        revoking.list.reserve(KEY, f"{ONE}/8", revoking.end(hours=2))
        with pytest.raises(RevocationListFull):
            revoking.list.reserve(KEY, OTHER, revoking.end(hours=1))
        revoking.world.now += HOUR + KEPT_AFTER_END
        revoking.list.reserve(KEY, OTHER, revoking.end(hours=1))

    run(scenario())


def test_long_key_ids_take_more_room() -> None:
    async def scenario() -> None:
        revoking = await Revoking.started()
        await revoking.list.look(KEY)
        for number in range(404):
            revoking.list.reserve(KEY, f"grant/{'x' * 1000}/{number:05}", revoking.end(hours=1))
        with pytest.raises(RevocationListFull):
            revoking.list.reserve(KEY, f"grant/{'x' * 5000}"[:1024], revoking.end(hours=1))

    run(scenario())


def test_a_full_list_fits_into_object_and_bundle() -> None:
    """With a policy that revokes as many key ids as one may, of usual length."""
    entries = {f"grant/{'x' * 85}/{number:08}": START for number in range(4096)}
    assert sum(map(len, entries)) <= 410_000
    text = json.dumps(manifest_of(entries, cluster_view(key=KEY), "v1", KEYS, {}))
    assert len(text) < 900_000
    assert isinstance(read_list(json.loads(text), KEY, KEYS), AuthenticList)
    policy = tuple(f"ssh-sign/{'y' * 60}/{number:06}" for number in range(1000))
    from_list = CertificateRevocations(AnyAuthority(), key_ids=(*entries, *policy))
    assert len(revocation_list((from_list,), 1)) < 700 * 1024


@pytest.mark.parametrize("key_id", ["", "grant/", "ssh-sign/alice", "grant/a b", "grant/é", f"grant/{'x' * 1019}"])
def test_other_key_ids_are_no_grants(key_id: str) -> None:
    async def scenario() -> None:
        revoking = await Revoking.started()
        with pytest.raises(ValueError, match="no key id"):
            await revoking.list.add(KEY, key_id, revoking.end(hours=1))

    run(scenario())


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if holds():
            return
        await asyncio.sleep(0)
    raise AssertionError("it does not come")


# A restart, when somebody used the time without a controller


def published_list(*key_ids: str) -> NodeAccessTrust:
    found = CertificateRevocations(AnyAuthority(), key_ids=(*key_ids, "ssh-sign/alice"))
    return NodeAccessTrust(trust(), revocation_list((found,), 1), 0, 10)


def test_what_was_published_is_kept_for_an_hour() -> None:
    """The object may be missing, edited, or an older version. What the policy revokes is its own."""
    world = World()
    published = PublishedRevocations(lambda: world.now)
    with pytest.raises(RevocationsUnknown):
        published.of(KEY)
    published.found(KEY, published_list(ONE, OTHER))
    [found] = published.of(KEY)
    assert isinstance(found, CertificateRevocations)
    assert found.key_ids == tuple(sorted((ONE, OTHER)))
    assert not published.has(KEY, ONE), "nodes have it, and this process has not published it yet"
    published.published(KEY, published_list(ONE))
    assert published.has(KEY, ONE)
    assert not published.has(KEY, OTHER)
    world.now += LONGEST - timedelta(seconds=1)
    assert published.of(KEY)
    world.now += timedelta(seconds=1)
    assert published.of(KEY) == ()
    published.begin(KEY)
    with pytest.raises(RevocationsUnknown):
        published.of(KEY)


def test_an_edited_list_counts_as_missing_where_a_bundle_says_what_was_revoked() -> None:
    async def scenario() -> None:
        before = await revoked()
        edit(before, revocations="[]")
        again = await Revoking.started(before.world)
        await again.list.look(KEY)
        with pytest.raises(RevocationsUnknown, match="somebody changed"):
            again.list.of(KEY)
        with pytest.raises(RevocationsUnknown):
            again.list.reserve(KEY, OTHER, again.end(hours=1))
        again.published.found(KEY, published_list(ONE))
        assert again.key_ids() == ()

        alone = await Revoking.started(before.world)
        edit(alone, revocations="[7]")
        await alone.list.look(KEY)
        alone.world.now += LONGEST
        alone.clocks = ClockUnknown("no answer")
        with pytest.raises(RevocationsUnknown, match="somebody changed"):
            alone.list.of(KEY)
        alone.clocks = ClocksAgree()
        assert alone.key_ids() == (), "every certificate of before has ended"

    run(scenario())


def test_the_watch_reads_anew_when_it_begins() -> None:
    async def scenario() -> None:
        revoking = await revoked()
        woken: list[int] = []
        watch = RevocationListWatch(KEY, revoking.list, lambda: woken.append(1))
        assert list(watch.conditions) == []
        edit_by_another = manifest_of({OTHER: revoking.end(hours=1)}, cluster_view(key=KEY), "v1", KEYS, {})["data"]
        edit(revoking, **edit_by_another)
        task = asyncio.create_task(watch.run())
        await asyncio.sleep(0)
        with pytest.raises(RevocationsUnknown):
            revoking.list.of(KEY)
        await until(lambda: sorted(revoking.listed()) == [OTHER, ONE])
        revoking.world.api.remove(PATH)
        watch.wake()
        await until(lambda: revoking.stored() != {})
        assert woken
        revoking.world.now += 2 * HOUR
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        with pytest.raises(RevocationsUnknown):
            revoking.list.of(KEY)
        again = asyncio.create_task(watch.run())
        woken.clear()
        await until(lambda: bool(woken))
        await revoking.list.add(KEY, ONE, revoking.end(hours=1))
        assert len(woken) >= 2, "the service is started again after a failure"
        again.cancel()
        await asyncio.gather(again, return_exceptions=True)

    run(scenario())


# The object


TIMES: Final = st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1)).map(
    lambda one: one.replace(microsecond=0, tzinfo=START.tzinfo)
)
ENTRIES: Final = st.dictionaries(
    st.text("aé/ %", min_size=1, max_size=8).map(lambda t: f"grant/{t!a}".replace(" ", "_")), TIMES
)


@given(entries=ENTRIES)
def test_the_object_says_what_was_written(entries: dict[str, datetime]) -> None:
    made = manifest_of(entries, cluster_view(key=KEY), "v1", KEYS, {"metadata": {"annotations": {"a": "b"}}})
    assert made["metadata"]["annotations"] == {"a": "b"}
    found = json.loads(json.dumps(made))
    assert read_list(found, KEY, KEYS) == AuthenticList(entries, is_current=True)
    assert isinstance(read_list(found, KEY, OTHER_KEYS), ForeignList)
    rotated = ControllerKeys(OTHER_KEYS.current, KEYS.current)
    assert read_list(found, KEY, rotated) == AuthenticList(entries, is_current=False)
    assert isinstance(read_list(found, ClusterKey("tenant", "red"), KEYS), ForeignList)
    for place in ("data", "metadata"):
        assert isinstance(read_list({**found, place: {}}, KEY, KEYS), ForeignList) is (place == "data")
    assert read_list({}, KEY, KEYS) == NoList()


@given(one=ENTRIES, other=ENTRIES, now=TIMES)
def test_a_union_loses_nothing_that_is_needed(one: Any, other: Any, now: datetime) -> None:
    both = united(one, other)
    kept = needed(both, now)
    for key_id, until in [*one.items(), *other.items()]:
        assert both[key_id] >= until
        assert not is_needed(until, now) or key_id in kept


def test_seals_of_other_uses_do_not_count() -> None:
    made = manifest_of({ONE: START}, cluster_view(key=KEY), "v1", KEYS, {})
    for use in KeyUse:
        if use is not KeyUse.ACCESS_REVOCATIONS:
            made["data"]["seal"] = Seals(KEYS, use).seal("")
            assert isinstance(read_list(made, KEY, KEYS), ForeignList)


def test_a_list_sealed_with_the_previous_key_is_sealed_anew() -> None:
    async def scenario() -> None:
        revoking = await revoked()
        before = revoking.stored()["data"]["seal"]
        revoking.world.set_keys(ControllerKeys(OTHER_KEYS.current, KEYS.current))
        await revoking.process.read_key()
        await revoking.list.look(KEY)
        assert revoking.stored()["data"]["seal"] != before
        assert isinstance(read_list(revoking.stored(), KEY, OTHER_KEYS), AuthenticList)

    run(scenario())


def test_a_cluster_that_is_connected_during_a_write_is_read() -> None:
    """Found by SIGKILL: the list stayed unread for five minutes, and no bundle was published."""

    async def scenario() -> None:
        revoking = await Revoking.started()
        writes, may_go_on = asyncio.Event(), asyncio.Event()
        create = revoking.process.client.create

        async def slow(*given: Any) -> Any:
            writes.set()
            await may_go_on.wait()
            return await create(*given)

        cast("Any", revoking.process.client).create = slow
        adds = asyncio.create_task(revoking.list.add(KEY, ONE, revoking.end(hours=1)))
        await writes.wait()
        revoking.list.begin(KEY, revoking._wake)
        looks = asyncio.create_task(revoking.list.look(KEY))
        await asyncio.sleep(0)
        may_go_on.set()
        await asyncio.gather(adds, looks)
        assert revoking.key_ids() == (ONE,)

    run(scenario())
