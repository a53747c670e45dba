"""What is kept of the requests of a cluster whose API server may send anything, as much as it likes."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from signer.controller import bounded_request
from signer.controller import pending as module
from signer.controller.bounded_request import bounded
from signer.controller.pending import PendingRequests, Put, is_open
from signer.controller.room import BOOKKEEPING_BYTES
from signer.kube.fair_order import LOOKS
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.kube.workqueue import WorkQueue
from signer.model.cluster import ClusterKey
from signer.model.lane import Lane, Screening
from tests.unit.signer.controller.requests import APPROVED, SIGNER, csr


def requests() -> PendingRequests:
    return PendingRequests(ClusterKey("team-a", "one"))


def filled(count: int) -> PendingRequests:
    pending = requests()
    for number in range(count):
        assert pending.put(csr(f"csr-{number}", f"uid-{number}")) is Put.KEPT
    return pending


def test_ordinary_csr_is_kept_whole_without_its_managed_fields() -> None:
    pending = requests()
    ordinary = csr(annotations={"a": "b"}, labels={"c": "d"}, status={"conditions": [APPROVED]})
    ordinary["spec"]["username"] = "system:bootstrap:abcdef"
    assert pending.put({**ordinary, "metadata": {**ordinary["metadata"], "managedFields": [{}]}}) is Put.KEPT
    assert pending.get("csr") == ordinary


@pytest.mark.parametrize(
    "unusable",
    [
        csr("back\\slash"),
        csr("line\nfeed"),
        csr("n" * 254),
        csr(".."),
        csr(""),
        csr(5),
        csr(uid=""),
        csr(uid="u" * (bounded_request.MAXIMUM_UID_CHARACTERS + 1)),
        csr(uid={"u": "1"}),
        csr(spec={"username": "u" * bounded_request.MAXIMUM_OBJECT_BYTES}),
        csr(status={"conditions": ["c" * bounded_request.MAXIMUM_OBJECT_BYTES]}),
        {"spec": {"signerName": SIGNER}},
        {"metadata": "text", "spec": {"signerName": SIGNER}},
    ],
    ids=lambda _: "",
)
def test_unusable_requests_are_ignored_and_logged_once(unusable: Any, caplog: pytest.LogCaptureFixture) -> None:
    pending = requests()
    assert is_open(unusable)
    with caplog.at_level(logging.WARNING):
        assert pending.put(unusable) is Put.UNUSABLE
        assert pending.put(unusable) is Put.UNUSABLE
        assert not pending.holds_of_list(unusable)
    assert pending.unusable == 3
    assert (len(pending), pending.left_out) == (0, False)
    (record,) = caplog.records
    assert len(record.__dict__["csr"]) <= 1024
    assert record.__dict__["csr"].isprintable()


def test_every_name_that_is_kept_has_a_path() -> None:
    pending = requests()
    for name in ("node-csr-x", "n" * 253, "a b", "system:node:x", "é"):
        assert pending.put(csr(name, name[:9])) is Put.KEPT
    for name in pending:
        assert CERTIFICATE_SIGNING_REQUESTS.object(name)


def test_stock_serving_requests_are_open_until_anything_was_said() -> None:
    stock = {"signerName": "kubernetes.io/kubelet-serving"}
    assert is_open(csr(spec=stock))
    assert is_open(csr(status={"conditions": [APPROVED]}))
    assert not is_open(csr(spec=stock, status={"conditions": [APPROVED]}))
    assert not is_open(csr(spec={"signerName": "kubernetes.io/kube-apiserver-client-kubelet"}))


@pytest.mark.parametrize("conditions", [5, True, "Denied", {"type": "Denied"}, [None, "Denied"]])
def test_senseless_conditions_close_nothing(conditions: Any) -> None:
    assert is_open(csr(status={"conditions": conditions}))


def test_number_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAXIMUM_REQUESTS", 4)
    pending = filled(4)
    assert not pending.left_out
    assert pending.put(csr("one-more", "uid-more")) is Put.LEFT_OUT
    assert pending.get("one-more") is None
    assert (len(pending), pending.left_out) == (4, True)
    # A newer state of one that is kept takes its own place.
    assert pending.put(csr("csr-0", "uid-0", labels={"newer": "yes"})) is Put.KEPT
    for name in ("csr-0", "csr-1"):
        pending.drop(name)
        assert not pending.has_room_again
    pending.drop("csr-2")
    assert pending.has_room_again


def test_bytes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    place = bounded(csr("csr-0", "uid-0"))[1] + BOOKKEEPING_BYTES
    monkeypatch.setattr(module, "MAXIMUM_BYTES", 4 * place)
    pending = filled(4)
    assert pending.put(csr("csr-4", "uid-4")) is Put.LEFT_OUT
    # A newer state that no longer fits is not kept, nor is the older one, which could not be written to.
    assert pending.put(csr("csr-0", "uid-0", labels={"a": "x" * place})) is Put.LEFT_OUT
    assert pending.get("csr-0") is None
    for name in ("csr-1", "csr-2", "csr-3", "csr-3", "never-seen"):
        pending.drop(name)
    assert (len(pending), pending.has_room_again) == (0, True)
    assert all(pending.put(csr(f"csr-{number}", f"uid-{number}")) is Put.KEPT for number in range(4))


def test_room_is_no_news_when_nothing_was_left_out() -> None:
    pending = filled(1)
    pending.drop("csr-0")
    assert not pending.has_room_again


def test_a_list_is_bounded_while_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAXIMUM_REQUESTS", 2)
    pending = requests()
    fat = csr("csr-0", "uid-0", annotations={"a": "x" * bounded_request.MAXIMUM_ANNOTATION_BYTES})
    assert pending.holds_of_list(fat)
    assert fat == csr("csr-0", "uid-0")
    assert pending.holds_of_list(csr("csr-1", "uid-1"))
    assert not pending.holds_of_list({"spec": {"signerName": "kubernetes.io/legacy-unknown"}})
    assert not pending.holds_of_list(csr("csr-2", "uid-2"))
    assert pending.list_ends()
    # The next one starts from nothing, also after one that was never complete.
    for _ in range(2):
        pending.list_begins()
        assert pending.holds_of_list(csr("csr-2", "uid-2"))
        assert pending.holds_of_list(csr("csr-3", "uid-3"))
    assert not pending.list_ends()


def test_a_complete_list_knows_what_was_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAXIMUM_REQUESTS", 1)
    pending = filled(1)
    pending.put(csr("csr-1", "uid-1"))
    assert pending.left_out
    assert not pending.list_ends()
    assert not pending.left_out


def test_who_came_first_is_woken_first() -> None:
    """Copies of a request that waits come later, and must not be decided before it."""
    pending = PendingRequests(ClusterKey("team-a", "one"))
    names = ["honest", *(f"a-copy-{number}" for number in range(50))]
    for name in names:
        pending.put(csr(name, f"uid-{name}"))
        pending.waits_for(name, ["test:///m"])
    pending.put(csr("honest", "uid-honest"))  # changed meanwhile, and still the first
    assert pending.waiting_for(["test:///m"]) == names
    pending.drop("honest")
    pending.put(csr("honest", "uid-2"))
    pending.waits_for("honest", ["test:///m"])
    assert pending.waiting_for(["test:///m"])[-1] == "honest"


def test_what_is_waited_for_wakes_and_goes_with_the_request() -> None:
    pending = filled(2)
    pending.waits_for("csr-0", ["test:///m"])
    pending.waits_for("csr-1", ["test:///m", "test:///in-its-way"])
    pending.waits_for("gone", ["test:///m"])
    assert pending.waiting_for(["test:///m", "test:///other"]) == ["csr-0", "csr-1"]
    assert pending.waiting_for(["test:///in-its-way"]) == ["csr-1"]
    pending.waits_for("csr-1", ["test:///n"])
    pending.put(csr("csr-0", "uid-0", labels={"newer": "yes"}))
    assert pending.waiting_for(["test:///m"]) == ["csr-0"]
    assert pending.waiting_for(["test:///in-its-way"]) == []
    pending.drop("csr-0")
    assert pending.waiting_for(["test:///m"]) == []
    assert pending.waiting_for(["test:///n"]) == ["csr-1"]


def test_settled_and_recreated() -> None:
    pending = filled(1)
    first = csr("csr-0", "uid-0")
    assert pending.is_still("csr-0", first)
    pending.settled(first)
    assert not pending.concerns_us(first)
    second = csr("csr-0", "uid-9")
    assert pending.concerns_us(second)
    pending.put(second)
    assert not pending.is_still("csr-0", first)
    assert not pending.is_still("never-seen", first)


THIEF = "system:bootstrap:thief0"


def posted(name: str, requester: str = THIEF, provider_id: str = "", key: str = "") -> Any:
    """A CSR whose evidence is good for that machine and key; without a key it is invented."""
    return csr(name, f"uid-{name}", spec={"username": requester}, labels={"claims": provider_id, "key": key})


class Screened:
    """Requests whose lanes are found by looking at their labels; remembers who was looked at and who made way."""

    def __init__(self) -> None:
        self.screened: list[str] = []
        self.evicted: list[str] = []
        self.pending = PendingRequests(
            ClusterKey("team-a", "one"), screen=self._screen, evicted=lambda name: self.evicted.append(name)
        )

    def _screen(self, manifest: Any) -> Lane:
        self.screened.append(manifest["metadata"]["name"])
        labels = manifest["metadata"]["labels"]
        screening = Screening.PLAUSIBLE if labels["key"] else Screening.REFUSED
        return Lane(screening, manifest["spec"]["username"], labels["claims"], labels["key"])

    def lists(self, *manifests: Any) -> list[str]:
        """A list with these objects; returns the names of what is left of it."""
        self.pending.list_begins()
        held = [manifest for manifest in manifests if self.pending.holds_of_list(manifest)]
        return [manifest["metadata"]["name"] for manifest in held if manifest]


FLOODS = {
    "random provider IDs": lambda number: posted(f"flood-{number}", provider_id=f"random-{number}"),
    "the honest provider ID": lambda number: posted(f"flood-{number}", provider_id="honest"),
    "another token": lambda number: posted(f"flood-{number}", "system:bootstrap:other0"),
    "copies": lambda number: posted(f"flood-{number}", provider_id="honest", key="old"),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_an_honest_request_is_kept_however_full_it_is(monkeypatch: pytest.MonkeyPatch, flood: str) -> None:
    monkeypatch.setattr(module, "MAXIMUM_REQUESTS", 50)
    screened = Screened()
    pending = screened.pending
    for number in range(200):
        pending.put(FLOODS[flood](number))
    assert (len(pending), pending.left_out, screened.evicted) == (50, True, [])
    pending.waits_for("flood-49", ["honest"])
    assert pending.put(posted("honest", provider_id="honest", key="new")) is Put.KEPT
    assert pending.lane("honest") == Lane(Screening.PLAUSIBLE, THIEF, "honest", "new")
    assert screened.evicted == ["flood-49"]  # the newest
    assert pending.get("flood-49") is None
    assert pending.waiting_for(["honest"]) == []
    assert pending.left_out
    # The flood goes on, and cannot push it out.
    for number in range(200, 300):
        pending.put(FLOODS[flood](number))
    assert pending.get("honest") is not None


@pytest.mark.parametrize("flood", FLOODS)
@pytest.mark.parametrize("position", [0, 100, 200])
def test_an_honest_request_of_a_list_is_kept(monkeypatch: pytest.MonkeyPatch, flood: str, position: int) -> None:
    monkeypatch.setattr(module, "MAXIMUM_REQUESTS", 50)
    screened = Screened()
    listed = [FLOODS[flood](number) for number in range(200)]
    listed.insert(position, posted("honest", provider_id="honest", key="new"))
    kept = screened.lists(*listed)
    assert "honest" in kept
    assert len(kept) == 50
    screens = len(screened.screened)
    assert screened.pending.list_ends()
    for manifest in listed:
        if manifest and manifest["metadata"]["name"] in kept:
            assert screened.pending.put(manifest) is Put.KEPT
    assert sorted(screened.pending) == sorted(kept)
    assert len(screened.screened) == screens  # what was found out while it was read is known


def test_what_makes_way_in_a_list_is_emptied_and_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAXIMUM_REQUESTS", 1)
    screened = Screened()
    flood, honest = posted("flood"), posted("honest", key="new")
    assert screened.lists(flood, honest) == ["honest"]
    assert flood == {}
    assert not screened.pending.concerns_us(flood)
    assert screened.evicted == []  # it was never kept


def test_a_list_without_end_is_not_screened_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAXIMUM_REQUESTS", 10)
    monkeypatch.setattr(module, "SCREENED_PER_LIST", 100)
    screened = Screened()
    kept = screened.lists(*(posted(f"flood-{number}", provider_id=f"{number}") for number in range(1000)))
    assert (len(kept), len(screened.screened)) == (10, 100)


def test_a_lane_stays_with_its_request() -> None:
    screened = Screened()
    pending = screened.pending
    pending.put(posted("node", provider_id="machine", key="1"))
    assert pending.lane("node") == Lane(Screening.UNSCREENED, THIEF)
    found = pending.screen("node")
    assert found == pending.lane("node") == Lane(Screening.PLAUSIBLE, THIEF, "machine", "1")
    # A newer state of the same CSR is in the same lane, and is not looked at again.
    pending.put(posted("node", provider_id="machine", key="1"))
    assert pending.screen("node") == found
    assert screened.screened == ["node"]
    # One that was re-created under its name is another one.
    recreated = posted("node", provider_id="machine", key="1")
    recreated["metadata"]["uid"] = "uid-other"
    pending.put(recreated)
    assert pending.lane("node") == Lane(Screening.UNSCREENED, THIEF)
    pending.drop("node")
    assert pending.lane("node") == Lane(Screening.UNSCREENED, "")
    with pytest.raises(KeyError):
        pending.screen("node")


FLOOD = 5_000


@pytest.mark.slow
@pytest.mark.parametrize("flood", FLOODS)
@pytest.mark.parametrize(
    ("position", "decisions"),
    [(0, 4), (FLOOD // 2, 4 + FLOOD // LOOKS), (FLOOD, 4)],
    ids=["before-it", "in-its-middle", "after-it"],
)
async def test_one_among_thousands_is_soon_decided(flood: str, position: int, decisions: int) -> None:
    """What a worker does under load, with the queue: unscreened ones of a crowd are screened and put back."""
    screened = Screened()
    pending = screened.pending
    queue: WorkQueue[str] = WorkQueue(lane_of=pending.lane)
    posts = [FLOODS[flood](number) for number in range(FLOOD)]
    posts.insert(position, posted("honest", provider_id="honest", key="new"))
    for manifest in posts:
        pending.put(manifest)
        queue.add(manifest["metadata"]["name"])
    decided = []
    while "honest" not in decided:
        name = await queue.get()
        lane = pending.lane(name)
        if lane.screening is Screening.UNSCREENED and queue.is_crowded(lane.requester):
            pending.screen(name)
            queue.add(name)
        else:
            decided.append(name)
            pending.drop(name)
        queue.done(name)
    assert len(decided) - 1 <= decisions
    assert len(screened.screened) <= FLOOD + 1


async def test_without_a_crowd_nothing_is_screened() -> None:
    """Thousands of nodes that renew at once are each a requester of their own."""
    screened = Screened()
    queue: WorkQueue[str] = WorkQueue(lane_of=screened.pending.lane)
    names = [f"csr-{number}" for number in range(1000)]
    for name in names:
        screened.pending.put(posted(name, f"system:node:{name}", name, "key"))
        queue.add(name)
    assert not any(queue.is_crowded(f"system:node:{name}") for name in names)
    assert [await queue.get() for _ in names] == names
    assert screened.screened == []
