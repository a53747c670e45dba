"""The published head of the audit log: when it is published, and when a chain is not continued."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from signer.audit.chain import ChainedLine, Link, read_lines
from signer.audit.line_mac import LineMac
from signer.audit.lines import FileLines
from signer.audit.log import AuditLogUnavailable, GroupedAuditLog, NoAuditLog
from signer.audit.stream_lines import StreamLines
from signer.controller.audit_heads import AuditHeadPublisher, HeadResult, NoAuditHeads, audit_heads
from signer.kube.client import JsonObject
from signer.kube.errors import Forbidden, ServerError
from signer.kube.resources import CONFIG_MAPS
from signer.model.audit_head import HEADS_NAME, MAXIMUM_HEADS, AuthenticHead, Head, read_heads
from signer.model.decision import Deferred
from signer.model.reasons import Reason
from signer.model.seal import ControllerKeys, Generation, KeyUse, Seals
from signer.store.audit_heads import AuditHeads, HeadNotPublished
from signer.store.authentic_records import AuthenticRecords
from tests.unit.signer.audit.found import start_lines
from tests.unit.signer.store.removed_bindings_fixtures import KEYS, NAMESPACE, ObjectStore

PATH = CONFIG_MAPS.object(HEADS_NAME, NAMESPACE)
ROTATED = ControllerKeys(b"r" * 32, KEYS.current)
NOW = datetime(2026, 11, 28, 1, 2, 3, 4, tzinfo=UTC)


class Store(ObjectStore):
    """Can lose the answer of a write, and let another replica write before one."""

    lose_answer = False
    before_patch: Callable[[], object] = staticmethod(lambda: None)

    def __init__(self) -> None:
        super().__init__()
        self.written = asyncio.Event()

    async def create(self, path: str, body: JsonObject) -> JsonObject:
        answer = await super().create(path, body)
        self.written.set()
        return answer

    async def patch(self, path: str, patch: JsonObject) -> JsonObject:
        before, self.before_patch = self.before_patch, lambda: None
        before()
        answer = await super().patch(path, patch)
        self.written.set()
        if self.lose_answer:
            raise ServerError("the answer was lost", status=500)
        return answer


class Process:
    """One controller process with its log."""

    def __init__(self, store: ObjectStore, log: GroupedAuditLog, keys: ControllerKeys = KEYS) -> None:
        self.log, self.records = log, AuthenticRecords()
        self.read(keys)
        self.results: list[HeadResult] = []
        made = audit_heads(
            log, store, NAMESPACE, self.records.keys, self.records.require_looked_for, lambda: NOW, self.results.append
        )
        assert isinstance(made, AuditHeadPublisher)
        self.publisher = made

    def read(self, keys: ControllerKeys) -> None:
        """It reads these keys."""
        self.records.begin_key_read()
        self.records.use_keys(keys)

    @property
    def end(self) -> Link:
        return self.log.end


@pytest.fixture
def store() -> Store:
    return Store()


class Started:
    """Starts processes on one file, one at a time."""

    def __init__(self, store: Store, path: Path) -> None:
        self.store, self.path = store, path

    @contextlib.contextmanager
    def __call__(self, maximum_bytes: int = 0, keys: ControllerKeys = KEYS) -> Iterator[Process]:
        lines = FileLines(self.path, maximum_bytes, 0)
        yield Process(self.store, GroupedAuditLog(lines), keys)
        lines.close()

    def chains(self) -> list[str]:
        """Of the lines, each once."""
        found = [line.chain for line in read_lines(self.path) if isinstance(line, ChainedLine)]
        return list(dict.fromkeys(found))


@pytest.fixture
def start(store: Store, tmp_path: Path) -> Started:
    return Started(store, tmp_path / "audit.log")


def looked_for(identifier: str, what: str) -> None:
    """The controller key was read since."""


def heads(store: ObjectStore, keys: ControllerKeys = KEYS) -> dict[str, Head]:
    found = read_heads(store.objects.get(PATH, {}), Seals(keys, KeyUse.AUDIT_HEAD))
    return {chain: one.head for chain, one in found.items() if isinstance(one, AuthenticHead)}


async def test_the_head_is_published_once_for_each_change(start: Started, store: Store) -> None:
    with start() as process:
        await process.log.append(b'{"number":0}')
        await process.publisher.publish()
        end = process.end
        assert heads(store) == {end.chain: Head(end.chain, 1, end.digest, NOW.replace(microsecond=0))}
        calls = len(store.calls)
        await process.publisher.publish()
        assert len(store.calls) == calls
        await process.log.append(b'{"number":1}')
        await process.publisher.publish()
        assert heads(store)[end.chain].sequence == 2


async def test_every_line_has_a_mac(start: Started) -> None:
    with start() as process:
        await process.log.append(b'{"number":0}')
    line = [one for one in read_lines(start.path) if isinstance(one, ChainedLine)][-1]
    assert isinstance(line.mac, LineMac)
    assert line.content == {"number": 0}


async def test_no_line_is_written_without_a_key(start: Started) -> None:
    """Else a line of another program could not be told from one of a controller that had no key yet."""

    def no_keys() -> ControllerKeys:
        raise Deferred(Reason.CONTROLLER_KEY_UNAVAILABLE, "there is no key", timedelta(seconds=1))

    with start() as process:
        process.log.use_keys(no_keys)
        with pytest.raises(AuditLogUnavailable, match="lines have MACs, and there is no key"):
            await process.log.append(b'{"number":0}')
        keys: list[Callable[[], ControllerKeys]] = [lambda: KEYS]
        process.log.use_keys(lambda: keys[0]())
        await process.log.append(b'{"number":0}')
        keys[0] = no_keys
        await process.log.append(b'{"number":1}')
    assert [isinstance(one, ChainedLine) and isinstance(one.mac, LineMac) for one in read_lines(start.path)][1:] == [
        True,
        True,
    ]


async def test_the_next_process_continues_the_chain(start: Started, store: Store) -> None:
    with start() as first:
        await first.log.append(b'{"number":0}')
        await first.publisher.publish()
        await first.log.append(b'{"number":1}')  # and is killed before the next minute
    with start() as second:
        await second.publisher.publish()
        await second.log.append(b'{"number":2}')
        await second.publisher.publish()
        assert second.results == [HeadResult.CURRENT] * 2
        assert heads(store)[second.end.chain].sequence == second.end.sequence == 4
    assert len(start.chains()) == 1


async def test_a_torn_line_behind_the_published_one_ends_no_chain(start: Started) -> None:
    with start() as first:
        await first.log.append(b'{"number":0}')
        await first.publisher.publish()
        await first.log.append(b'{"number":1}')
    with start.path.open("ab") as file:
        file.write(b'{"version":')
    with start() as second:
        await second.publisher.publish()
        assert second.results == [HeadResult.CURRENT]
        await second.log.append(b'{"number":2}')
    assert len(start.chains()) == 1


async def test_the_published_line_may_be_in_a_full_file(start: Started) -> None:
    with start(maximum_bytes=1000) as first:
        await first.log.append(b'{"number":0}')
        await first.publisher.publish()
        for _ in range(3):
            await first.log.append(b'{"text":"%b"}' % (b"x" * 400))
        chain = first.end.chain
    with start(maximum_bytes=1000) as second:
        await second.publisher.publish()
        await second.log.append(b'{"number":2}')
        assert second.end.chain == chain


@pytest.mark.parametrize("kept", [1, 2])
async def test_a_log_that_was_cut_is_not_continued(start: Started, store: Store, kept: int) -> None:
    """Else the next lines would have the numbers of those that were removed."""
    with start() as first:
        for number in range(3):
            await first.log.append(b'{"number":%d}' % number)
        await first.publisher.publish()
        before = heads(store)
    start.path.write_bytes(b"".join(start.path.read_bytes().splitlines(keepends=True)[:kept]))
    with start() as second:
        await second.publisher.publish()
        await second.log.append(b'{"number":9}')
        await second.publisher.publish()
        assert second.results == [HeadResult.DIFFERS, HeadResult.CURRENT]
        assert second.end.chain not in before
        assert heads(store) == {**before, second.end.chain: heads(store)[second.end.chain]}
    assert len(start.chains()) == 2


async def test_other_lines_under_the_same_numbers_are_not_continued(start: Started, store: Store) -> None:
    with start() as first:
        await first.log.append(b'{"number":0}')
        await first.publisher.publish()
    first_line, second_line = start.path.read_bytes().splitlines(keepends=True)
    start.path.write_bytes(first_line + second_line.replace(b'"number":0', b'"number":9'))
    with start() as second:
        await second.publisher.publish()
        await second.log.append(b'{"number":1}')
        assert second.end.chain != first.end.chain


@pytest.mark.parametrize("longer", [0, 1])
async def test_the_published_line_in_another_file_vouches_for_no_made_up_ones(
    start: Started, store: Store, longer: int
) -> None:
    """The attack: the log becomes a full file, made-up lines of its chain take its place, and it is deleted later."""
    with start() as first:
        await first.log.append(b'{"number":0}')
        await first.publisher.publish()
    genuine = start.path.read_bytes().splitlines()[0]
    start.path.rename(start.path.with_name("audit-2026-11-28T00-00-00.000000.log"))
    start.path.write_bytes(start_lines(genuine, first.end.sequence + longer))
    with start() as second:
        await second.publisher.publish()
        await second.log.append(b'{"number":1}')
        assert second.results == [HeadResult.DIFFERS]
        assert second.end.chain != first.end.chain


async def test_two_controllers_never_share_a_chain(start: Started, store: Store) -> None:
    """A copy of the file on another machine, under the same key."""
    with start() as process:
        await process.log.append(b'{"number":0}')
        await process.publisher.publish()
        chain = process.end.chain
        theirs = Head(chain, 9, "sha256:" + "0" * 64, NOW.replace(microsecond=0))
        store.objects[PATH]["data"][chain] = theirs.encode(Seals(KEYS, KeyUse.AUDIT_HEAD))
        for number in (1, 2):
            await process.log.append(b'{"number":%d}' % number)
            await process.publisher.publish()
        assert process.results == [HeadResult.CURRENT, HeadResult.DIFFERS, HeadResult.CURRENT]
        assert heads(store).keys() == {chain, process.end.chain}
        assert heads(store)[chain] == theirs
        assert process.end.chain != chain


async def test_lines_without_a_published_head_are_not_continued(start: Started, store: Store) -> None:
    """They are older than MACs, or another program's."""
    lines = FileLines(start.path, 0, 0)
    lines.write([b'{"forged":1}'])
    lines.close()
    with start() as process:
        await process.publisher.publish()
        await process.log.append(b'{"number":0}')
        await process.publisher.publish()
        assert list(heads(store)) == [process.end.chain]
    assert len(start.chains()) == 2


async def test_a_changed_head_stays_and_its_chain_ends(
    start: Started, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    with start() as process:
        await process.log.append(b'{"number":0}')
        await process.publisher.publish()
        chain = process.end.chain
        manifest = store.objects[PATH]
        changed = json.dumps({**json.loads(manifest["data"][chain]), "sequence": 0})
        store.put(PATH, {**manifest, "data": {chain: changed}})
        await process.log.append(b'{"number":1}')
        await process.publisher.publish()
        assert "lines were removed or written anew" in caplog.text
        await process.log.append(b'{"number":2}')
        await process.publisher.publish()
        assert list(heads(store)) == [process.end.chain] != [chain]
        assert store.objects[PATH]["data"][chain] == changed


async def test_a_changed_head_of_an_earlier_process(start: Started, store: Store) -> None:
    with start() as first:
        await first.log.append(b'{"number":0}')
        await first.publisher.publish()
    store.objects[PATH]["data"] = {first.end.chain: "{}"}
    with start() as second:
        await second.publisher.publish()
        await second.log.append(b'{"number":1}')
        assert second.end.chain != first.end.chain


async def test_a_lost_answer_ends_no_chain(start: Started, store: Store, caplog: pytest.LogCaptureFixture) -> None:
    with start() as process:
        await process.publisher.publish()
        store.lose_answer = True
        for number in range(3):
            await process.log.append(b'{"number":%d}' % number)
            await process.publisher.publish()
        assert caplog.text.count("cannot be published") == 1
        store.lose_answer = False
        await process.log.append(b'{"number":3}')
        await process.publisher.publish()
        assert heads(store)[process.end.chain].sequence == 4
    assert len(start.chains()) == 1


async def test_replicas_keep_each_others_heads(start: Started, store: Store) -> None:
    """Also one that is published between read and write, while the other seals all heads anew."""
    other = Head("f" * 32, 7, "sha256:" + "0" * 64, NOW.replace(microsecond=0))
    theirs = AuditHeads(store, NAMESPACE, lambda: KEYS, looked_for)
    await theirs.publish(other)
    later = Head(other.chain, 8, other.digest, other.published)

    def publish_later() -> None:
        value = later.encode(Seals(KEYS, KeyUse.AUDIT_HEAD))
        manifest = store.objects[PATH]
        store.put(PATH, {**manifest, "data": {**manifest["data"], other.chain: value}})

    with start(keys=ROTATED) as process:
        await process.log.append(b'{"number":0}')
        store.before_patch = publish_later
        await process.publisher.publish()
        assert heads(store, ROTATED).keys() == {other.chain, process.end.chain}
        assert heads(store, ROTATED)[other.chain] == later


async def test_heads_are_sealed_anew_with_the_next_key(start: Started, store: Store) -> None:
    """Also without a new line, and those of processes that ended."""
    other = Head("f" * 32, 7, "sha256:" + "0" * 64, NOW.replace(microsecond=0))
    await AuditHeads(store, NAMESPACE, lambda: KEYS, looked_for).publish(other)
    with start() as process:
        await process.log.append(b'{"number":0}')
        await process.publisher.publish()
        process.read(ROTATED)
        await process.publisher.publish()
        found = read_heads(store.objects[PATH], Seals(ROTATED, KeyUse.AUDIT_HEAD))
        assert [one.generation for one in found.values() if isinstance(one, AuthenticHead)] == [Generation.CURRENT] * 2


async def test_a_head_that_another_replica_sealed_with_a_newer_key_ends_no_chain(store: Store, tmp_path: Path) -> None:
    """Until the controller key is read here, too, it is not known whose it is. The whole log stays one chain."""
    first, second = (Process(store, GroupedAuditLog(FileLines(tmp_path / name, 0, 0))) for name in ("1", "2"))
    for process in (first, second):
        await process.log.append(b'{"number":0}')
        await process.publisher.publish()
    for rotated in (ROTATED, ControllerKeys(b"s" * 32, ROTATED.current)):
        second.results.clear()
        first.read(rotated)
        await first.publisher.publish()
        await second.log.append(b'{"number":1}')
        for _ in range(2):
            await second.publisher.publish()
        assert second.records.key_wanted.is_set()
        second.read(rotated)
        await second.publisher.publish()
        assert second.results == [*[HeadResult.FAILED] * 2, HeadResult.CURRENT]
        assert heads(store, rotated)[second.end.chain].sequence == second.end.sequence
    assert second.end.sequence == 3


async def test_an_earlier_process_s_head_under_a_newer_key_ends_no_chain(start: Started, store: Store) -> None:
    with start() as first:
        await first.log.append(b'{"number":0}')
        await first.publisher.publish()
        first.read(ROTATED)
        await first.publisher.publish()
    with start() as second:
        await second.publisher.publish()
        second.read(ROTATED)
        await second.publisher.publish()
        await second.log.append(b'{"number":1}')
        assert second.results == [HeadResult.FAILED, HeadResult.CURRENT]
    assert len(start.chains()) == 1


@pytest.mark.parametrize("reads", [True, False], ids=["one key", "another key each time"])
async def test_a_head_under_a_key_of_nobody_is_told(start: Started, store: Store, reads: bool) -> None:
    """One read of the controller key is waited for, and no second one."""
    with start() as process:
        await process.log.append(b'{"number":0}')
        await process.publisher.publish()
        theirs = Head(process.end.chain, 0, "sha256:" + "0" * 64, NOW.replace(microsecond=0))
        for number in range(2):
            made_up = Seals(ControllerKeys(b"%d" % (0 if reads else number) * 32), KeyUse.AUDIT_HEAD)
            manifest = store.objects[PATH]
            store.put(PATH, {**manifest, "data": {process.end.chain: theirs.encode(made_up)}})
            await process.log.append(b'{"number":1}')
            await process.publisher.publish()
            if reads:
                process.read(KEYS)
        assert process.results == [HeadResult.CURRENT, HeadResult.FAILED, HeadResult.DIFFERS]


async def test_the_number_of_heads_is_bounded(start: Started, store: Store) -> None:
    """Those that do not count go first, then the oldest."""
    made = Seals(KEYS, KeyUse.AUDIT_HEAD)
    old = [
        Head(f"{number:032x}", 1, "sha256:" + "0" * 64, NOW.replace(microsecond=0) - timedelta(hours=number))
        for number in range(MAXIMUM_HEADS)
    ]
    data = {head.chain: head.encode(made) for head in old} | {"f" * 32: "{}"}
    store.put(PATH, {"metadata": {"name": HEADS_NAME, "namespace": NAMESPACE}, "data": data})
    with start() as process:
        await process.log.append(b'{"number":0}')
        await process.publisher.publish()
        found = store.objects[PATH]["data"]
        assert found.keys() == {*(head.chain for head in old[:-1]), process.end.chain}
        assert len(json.dumps(found)) < 512 * 1024


async def test_a_full_file_is_published_at_once(start: Started, store: Store) -> None:
    with start(maximum_bytes=1000) as process:
        await process.log.append(b'{"number":0}')
        running = asyncio.create_task(process.publisher.run())
        async with asyncio.timeout(20):
            await store.written.wait()
            store.written.clear()
            for _ in range(2):
                await process.log.append(b'{"text":"%b"}' % (b"x" * 500))
            await store.written.wait()
        assert heads(store)[process.end.chain].sequence > 1
        running.cancel()


async def test_what_cannot_be_published_is_told_once_and_tried_again(
    start: Started, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    store.failures[f"GET {PATH}"] = Forbidden("no", status=403)
    with start() as process:
        for _ in range(2):
            await process.publisher.publish()
        assert caplog.text.count("the head of the audit log cannot be published") == 1
        assert process.results == [HeadResult.FAILED] * 2
        store.failures.clear()
        for _ in range(2):  # the second time, there is nothing new
            await process.publisher.publish()
        assert heads(store)
        assert process.results[2:] == [HeadResult.CURRENT] * 2


async def test_without_keys_nothing_is_published(store: Store) -> None:
    def no_keys() -> ControllerKeys:
        raise Deferred(Reason.CONTROLLER_KEY_UNAVAILABLE, "there is no key", timedelta(seconds=1))

    with pytest.raises(HeadNotPublished, match="there is no key"):
        await AuditHeads(store, NAMESPACE, no_keys, looked_for).publish(Head("f" * 32, 1, "sha256:" + "0" * 64, NOW))


async def test_each_process_has_a_chain_of_its_own_on_a_stream(store: Store, tmp_path: Path) -> None:
    with (tmp_path / "stream").open("wb") as stream:
        for _ in range(2):
            process = Process(store, GroupedAuditLog(StreamLines(stream.fileno())))
            await process.publisher.publish()
            await process.log.append(b'{"number":0}')
            await process.publisher.publish()
    assert [head.sequence for head in heads(store).values()] == [1, 1]


async def test_without_an_audit_log_there_is_no_head(store: Store) -> None:
    results: list[HeadResult] = []
    made = audit_heads(NoAuditLog(), store, NAMESPACE, lambda: KEYS, looked_for, lambda: NOW, results.append)
    assert isinstance(made, NoAuditHeads)
    await made.publish()
    assert (store.objects, results) == ({}, [])
