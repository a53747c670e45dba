"""What is kept of a flood, and in which lanes: an honest request is soon decided."""

from __future__ import annotations

import json
from typing import Any

import pytest

from signer.controller.requests import listed_requests
from signer.controller.requests import pending as module
from signer.controller.requests.pending import PendingRequests, Put
from signer.kube.fair_queue import LOOKS
from signer.kube.workqueue import WorkQueue
from signer.model.cluster import ClusterKey
from signer.model.flow import Lane, Screening
from tests.unit.signer.requests import csr

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
    monkeypatch.setattr(listed_requests, "SCREENED_PER_LIST", 100)
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


class Glanced(Screened):
    """With a glance at the claim, and Machines that a test names; whatever has a key is plausible."""

    def __init__(self, *machines: str) -> None:
        super().__init__()
        self.machines = {*machines}
        self.pending = PendingRequests(ClusterKey("team-a", "one"), glance=self._glance, screen=self._screen)

    def _glance(self, manifest: Any) -> Lane:
        claim = manifest["metadata"]["labels"]["claims"]
        screening = Screening.UNSCREENED if claim in self.machines else Screening.UNKNOWN_MACHINE
        return Lane(screening, manifest["spec"]["username"], claim)


def test_what_is_kept_is_what_came() -> None:
    pending = PendingRequests(ClusterKey("team-a", "one"))
    manifest = posted("node", provider_id="machine", key="\u00e4\U0001f600" * 100)
    came = json.loads(json.dumps(manifest))
    pending.put(manifest)
    assert pending.get("node") == came
    assert "node" in pending
    assert "other" not in pending


def test_a_claim_that_no_machine_has_waits_for_one() -> None:
    glanced = Glanced()
    pending = glanced.pending
    for name in ("flood", "node"):
        pending.put(posted(name, provider_id=name, key="1"))
    assert pending.waiting_for(["node"]) == ["node"]
    assert pending.lane("node").path == pending.lane("flood").path
    glanced.machines.add("node")
    pending.glance_again("node")
    assert pending.lane("node") == Lane(Screening.UNSCREENED, THIEF, "node")
    assert pending.lane("node").path != pending.lane("flood").path
    # Its Machine may be known when the CSR is seen again, before anything else says so.
    glanced.machines.add("flood")
    pending.put(posted("flood", provider_id="flood", key="1"))
    assert pending.lane("flood") == Lane(Screening.UNSCREENED, THIEF, "flood")
    glanced.machines.remove("flood")
    pending.put(posted("flood", provider_id="flood", key="1"))
    assert pending.lane("flood") == Lane(Screening.UNKNOWN_MACHINE, THIEF, "flood")
    # With a Machine, whatever was found out about it stays.
    found = pending.screen("node")
    pending.glance_again("node")
    assert pending.lane("node") == found
    pending.drop("node")
    pending.glance_again("node")
    assert "node" not in pending


def test_one_that_cannot_be_screened_stays_in_its_lane() -> None:
    def nothing_found(manifest: Any) -> Lane:
        return Lane(Screening.UNSCREENED, THIEF)

    glanced = Glanced("node")
    pending = PendingRequests(ClusterKey("team-a", "one"), glance=glanced._glance, screen=nothing_found)
    pending.put(posted("node", provider_id="node"))
    assert pending.screen("node") == pending.lane("node") == Lane(Screening.UNSCREENED, THIEF, "node")


def test_a_list_is_glanced_at_but_not_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listed_requests, "SCREENED_PER_LIST", 2)
    glanced = Glanced("0", "1", "2")
    listed = [posted(f"node-{number}", provider_id=f"{number}") for number in range(3)]
    glanced.lists(*listed)
    glanced.pending.list_ends()
    for manifest in listed:
        glanced.pending.put(manifest)
    assert [glanced.pending.lane(name).provider_id for name in sorted(glanced.pending)] == ["0", "1", ""]


FLOOD = 5_000


async def _decided_until_honest(pending: PendingRequests, posts: list[Any]) -> tuple[int, int]:
    """What workers do under load, with the queue; how many were looked at, and decided, until the honest one was."""
    queue: WorkQueue[str] = WorkQueue(lane_of=pending.lane)
    for manifest in posts:
        pending.put(manifest)
        queue.add(manifest["metadata"]["name"])
    looks = decided = 0
    name = ""
    while name != "honest":
        name = await queue.get()
        lane = pending.lane(name)
        looked_at = lane.screening is Screening.UNSCREENED and queue.is_crowded(lane.requester)
        if looked_at:
            looks += 1
            pending.screen(name)
            queue.add(name)
        else:
            decided += 1
            pending.drop(name)
        queue.done(name)
        name = "" if looked_at else name
    return looks, decided - 1


@pytest.mark.parametrize("position", [0, FLOOD // 2, FLOOD], ids=["before-it", "in-its-middle", "after-it"])
@pytest.mark.parametrize("machine", ["of-nobody", "one"])
async def test_plausible_claims_of_others_are_in_nobodys_way(machine: str, position: int) -> None:
    """However many invented provider IDs there are, they have one turn together, before and after they were seen."""
    glanced = Glanced("honest", "one")
    claims = ("one" if machine == "one" else f"nobody-{number}" for number in range(FLOOD))
    posts = [posted(f"flood-{number}", provider_id=claim, key=f"{number}") for number, claim in enumerate(claims)]
    posts.insert(position, posted("honest", provider_id="honest", key="new"))
    looks, decided = await _decided_until_honest(glanced.pending, posts)
    assert looks <= 2 * LOOKS
    assert decided <= 3


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
