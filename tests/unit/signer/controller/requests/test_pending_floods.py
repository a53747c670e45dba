"""Flows and eviction in a flood: an honest request is soon decided."""

from __future__ import annotations

import json
from typing import Any

import pytest

from signer.controller.requests import listed_requests
from signer.controller.requests import pending as module
from signer.controller.requests.pending import PendingRequests, Put
from signer.kube.workqueue import LOOKS, WorkQueue
from signer.model.cluster import ClusterKey
from signer.model.flow import Flow, PriorityLevel, requester_of
from tests.unit.signer.requests import csr

THIEF = "system:bootstrap:thief0"


def posted(name: str, requester: str = THIEF, provider_id: str = "", key: str = "") -> Any:
    """A CSR with valid evidence for that machine and key; without a key the evidence is forged."""
    return csr(name, f"uid-{name}", spec={"username": requester}, labels={"claims": provider_id, "key": key})


class PreFiltered:
    """Requests whose labels determine their flows; records pre-filtered and evicted ones."""

    def __init__(self) -> None:
        self.pre_filtered: list[str] = []
        self.pending = PendingRequests(ClusterKey("team-a", "one"), pre_filter=self._pre_filter)

    def _pre_filter(self, manifest: Any) -> Flow:
        self.pre_filtered.append(manifest["metadata"]["name"])
        labels = manifest["metadata"]["labels"]
        priority_level = PriorityLevel.PLAUSIBLE if labels["key"] else PriorityLevel.REFUSED
        return Flow(priority_level, manifest["spec"]["username"], labels["claims"], labels["key"])

    def lists(self, *manifests: Any) -> list[str]:
        """Apply a list with these objects; returns the names that are kept."""
        self.pending.begin_list()
        kept = [manifest for manifest in manifests if self.pending.add_listed(manifest)]
        return [manifest["metadata"]["name"] for manifest in kept if manifest]


FLOODS = {
    "random provider IDs": lambda number: posted(f"flood-{number}", provider_id=f"random-{number}"),
    "the honest provider ID": lambda number: posted(f"flood-{number}", provider_id="honest"),
    "another token": lambda number: posted(f"flood-{number}", "system:bootstrap:other0"),
    "copies": lambda number: posted(f"flood-{number}", provider_id="honest", key="old"),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_an_honest_request_is_kept_however_full_it_is(monkeypatch: pytest.MonkeyPatch, flood: str) -> None:
    monkeypatch.setattr(module, "MAXIMUM_REQUESTS", 50)
    pre_filtered = PreFiltered()
    pending = pre_filtered.pending
    for number in range(200):
        pending.put(FLOODS[flood](number))
    assert (len(pending), pending.overflow, pending.pop_evicted()) == (50, True, ())
    pending.set_awaited("flood-49", ["honest"])
    assert pending.put(posted("honest", provider_id="honest", key="new")) is Put.KEPT
    assert pending.flow("honest") == Flow(PriorityLevel.PLAUSIBLE, THIEF, "honest", "new")
    assert pending.pop_evicted() == ("flood-49",)  # the newest
    assert pending.get("flood-49") is None
    assert pending.names_waiting_for(["honest"]) == []
    assert pending.overflow
    # The flood goes on, and cannot push it out.
    for number in range(200, 300):
        pending.put(FLOODS[flood](number))
    assert pending.get("honest") is not None


@pytest.mark.parametrize("flood", FLOODS)
@pytest.mark.parametrize("position", [0, 100, 200])
def test_an_honest_request_of_a_list_is_kept(monkeypatch: pytest.MonkeyPatch, flood: str, position: int) -> None:
    monkeypatch.setattr(module, "MAXIMUM_REQUESTS", 50)
    pre_filtered = PreFiltered()
    listed = [FLOODS[flood](number) for number in range(200)]
    listed.insert(position, posted("honest", provider_id="honest", key="new"))
    kept = pre_filtered.lists(*listed)
    assert "honest" in kept
    assert len(kept) == 50
    screens = len(pre_filtered.pre_filtered)
    assert pre_filtered.pending.end_list()
    for manifest in listed:
        if manifest and manifest["metadata"]["name"] in kept:
            assert pre_filtered.pending.put(manifest) is Put.KEPT
    assert sorted(pre_filtered.pending) == sorted(kept)
    assert len(pre_filtered.pre_filtered) == screens  # what was found out while it was read is known


def test_evicted_objects_of_a_list_are_emptied_and_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAXIMUM_REQUESTS", 1)
    pre_filtered = PreFiltered()
    flood, honest = posted("flood"), posted("honest", key="new")
    assert pre_filtered.lists(flood, honest) == ["honest"]
    assert flood == {}
    assert not pre_filtered.pending.is_relevant(flood)
    assert pre_filtered.pending.pop_evicted() == ()  # it was never kept


def test_pre_filtering_an_endless_list_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAXIMUM_REQUESTS", 10)
    monkeypatch.setattr(listed_requests, "PRE_FILTERED_PER_LIST", 100)
    pre_filtered = PreFiltered()
    kept = pre_filtered.lists(*(posted(f"flood-{number}", provider_id=f"{number}") for number in range(1000)))
    assert (len(kept), len(pre_filtered.pre_filtered)) == (10, 100)


def test_a_flow_is_kept_with_its_request() -> None:
    pre_filtered = PreFiltered()
    pending = pre_filtered.pending
    pending.put(posted("node", provider_id="machine", key="1"))
    assert pending.flow("node") == Flow(PriorityLevel.UNFILTERED, THIEF)
    found = pending.pre_filter("node")
    assert found == pending.flow("node") == Flow(PriorityLevel.PLAUSIBLE, THIEF, "machine", "1")
    # A newer state of the same CSR stays in its flow, and is not pre-filtered again.
    pending.put(posted("node", provider_id="machine", key="1"))
    assert pending.pre_filter("node") == found
    assert pre_filtered.pre_filtered == ["node"]
    # One that was re-created under its name is another one.
    recreated = posted("node", provider_id="machine", key="1")
    recreated["metadata"]["uid"] = "uid-other"
    pending.put(recreated)
    assert pending.flow("node") == Flow(PriorityLevel.UNFILTERED, THIEF)
    pending.drop("node")
    assert pending.flow("node") == Flow(PriorityLevel.UNFILTERED, "")
    with pytest.raises(KeyError):
        pending.pre_filter("node")


class Peeked(PreFiltered):
    """With a peek at the claim and the Machines of the test; a request with a key is plausible."""

    def __init__(self, *machines: str) -> None:
        super().__init__()
        self.machines = {*machines}
        self.pending = PendingRequests(ClusterKey("team-a", "one"), peek=self._peek, pre_filter=self._pre_filter)

    def _peek(self, manifest: Any) -> Flow:
        claim = manifest["metadata"]["labels"]["claims"]
        priority_level = PriorityLevel.UNFILTERED if claim in self.machines else PriorityLevel.UNKNOWN_MACHINE
        return Flow(priority_level, manifest["spec"]["username"], claim)


def test_kept_requests_are_unchanged() -> None:
    pending = PendingRequests(ClusterKey("team-a", "one"))
    manifest = posted("node", provider_id="machine", key="\u00e4\U0001f600" * 100)
    came = json.loads(json.dumps(manifest))
    pending.put(manifest)
    assert pending.get("node") == came
    assert "node" in pending
    assert "other" not in pending


def test_a_request_of_an_unknown_machine_waits_for_it() -> None:
    peeked = Peeked()
    pending = peeked.pending
    for name in ("flood", "node"):
        pending.put(posted(name, provider_id=name, key="1"))
    assert pending.names_waiting_for(["node"]) == ["node"]
    assert pending.flow("node").path == pending.flow("flood").path
    peeked.machines.add("node")
    pending.refresh_flow("node")
    assert pending.flow("node") == Flow(PriorityLevel.UNFILTERED, THIEF, "node")
    assert pending.flow("node").path != pending.flow("flood").path
    # Its Machine may be known when the CSR is seen again, before anything else says so.
    peeked.machines.add("flood")
    pending.put(posted("flood", provider_id="flood", key="1"))
    assert pending.flow("flood") == Flow(PriorityLevel.UNFILTERED, THIEF, "flood")
    peeked.machines.remove("flood")
    pending.put(posted("flood", provider_id="flood", key="1"))
    assert pending.flow("flood") == Flow(PriorityLevel.UNKNOWN_MACHINE, THIEF, "flood")
    # With a Machine, whatever was found out about it stays.
    found = pending.pre_filter("node")
    pending.refresh_flow("node")
    assert pending.flow("node") == found
    pending.drop("node")
    pending.refresh_flow("node")
    assert "node" not in pending


def test_a_failed_pre_filter_keeps_the_flow() -> None:
    def nothing_found(manifest: Any) -> Flow:
        return Flow(PriorityLevel.UNFILTERED, THIEF)

    peeked = Peeked("node")
    pending = PendingRequests(ClusterKey("team-a", "one"), peek=peeked._peek, pre_filter=nothing_found)
    pending.put(posted("node", provider_id="node"))
    assert pending.pre_filter("node") == pending.flow("node") == Flow(PriorityLevel.UNFILTERED, THIEF, "node")


def test_peeking_at_an_endless_list_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listed_requests, "PRE_FILTERED_PER_LIST", 2)
    peeked = Peeked("0", "1", "2")
    listed = [posted(f"node-{number}", provider_id=f"{number}") for number in range(3)]
    peeked.lists(*listed)
    peeked.pending.end_list()
    for manifest in listed:
        peeked.pending.put(manifest)
    assert [peeked.pending.flow(name).provider_id for name in sorted(peeked.pending)] == ["0", "1", ""]


FLOOD = 5_000


async def _decided_until_honest(pending: PendingRequests, posts: list[Any]) -> tuple[int, int]:
    """Simulate workers under load; returns the numbers of pre-filtered and decided requests before the honest one."""
    queue: WorkQueue[str] = WorkQueue(flow_of=pending.flow)
    for manifest in posts:
        pending.put(manifest)
        queue.add(manifest["metadata"]["name"])
    pre_filtered_count = decided = 0
    name = ""
    while name != "honest":
        name = await queue.get()
        flow = pending.flow(name)
        must_pre_filter = flow.priority_level is PriorityLevel.UNFILTERED and queue.is_crowded(flow.requester)
        if must_pre_filter:
            pre_filtered_count += 1
            pending.pre_filter(name)
            queue.add(name)
        else:
            decided += 1
            pending.drop(name)
        queue.done(name)
        name = "" if must_pre_filter else name
    return pre_filtered_count, decided - 1


@pytest.mark.parametrize("position", [0, FLOOD // 2, FLOOD], ids=["before-it", "in-its-middle", "after-it"])
@pytest.mark.parametrize("machine", ["of-nobody", "one"])
async def test_other_plausible_claims_do_not_delay_a_request(machine: str, position: int) -> None:
    """All invented provider IDs share one flow, before and after they are pre-filtered."""
    peeked = Peeked("honest", "one")
    claims = ("one" if machine == "one" else f"nobody-{number}" for number in range(FLOOD))
    posts = [posted(f"flood-{number}", provider_id=claim, key=f"{number}") for number, claim in enumerate(claims)]
    posts.insert(position, posted("honest", provider_id="honest", key="new"))
    pre_filtered_count, decided = await _decided_until_honest(peeked.pending, posts)
    assert pre_filtered_count <= 2 * LOOKS
    assert decided <= 3


@pytest.mark.slow
@pytest.mark.parametrize("flood", FLOODS)
@pytest.mark.parametrize(
    ("position", "decisions"),
    [(0, 4), (FLOOD // 2, 4 + FLOOD // LOOKS), (FLOOD, 4)],
    ids=["before-it", "in-its-middle", "after-it"],
)
async def test_an_honest_request_in_a_flood_is_soon_decided(flood: str, position: int, decisions: int) -> None:
    """Simulates workers under load: unfiltered requests of a crowd are pre-filtered and requeued."""
    pre_filtered = PreFiltered()
    pending = pre_filtered.pending
    queue: WorkQueue[str] = WorkQueue(flow_of=pending.flow)
    posts = [FLOODS[flood](number) for number in range(FLOOD)]
    posts.insert(position, posted("honest", provider_id="honest", key="new"))
    for manifest in posts:
        pending.put(manifest)
        queue.add(manifest["metadata"]["name"])
    decided = []
    while "honest" not in decided:
        name = await queue.get()
        flow = pending.flow(name)
        if flow.priority_level is PriorityLevel.UNFILTERED and queue.is_crowded(flow.requester):
            pending.pre_filter(name)
            queue.add(name)
        else:
            decided.append(name)
            pending.drop(name)
        queue.done(name)
    assert len(decided) - 1 <= decisions
    assert len(pre_filtered.pre_filtered) <= FLOOD + 1


async def test_without_a_crowd_nothing_is_pre_filtered() -> None:
    """Thousands of nodes that renew at once are separate requesters."""
    pre_filtered = PreFiltered()
    queue: WorkQueue[str] = WorkQueue(flow_of=pre_filtered.pending.flow)
    names = [f"csr-{number}" for number in range(1000)]
    for name in names:
        pre_filtered.pending.put(posted(name, f"system:node:{name}", name, "key"))
        queue.add(name)
    assert not any(queue.is_crowded(f"system:node:{name}") for name in names)
    assert [await queue.get() for _ in names] == names
    assert pre_filtered.pre_filtered == []


def unknown(manifest: Any) -> Flow:
    """A peek that finds no Machine."""
    return Flow(PriorityLevel.UNKNOWN_MACHINE, requester_of(manifest), manifest["metadata"]["name"])


def test_a_request_with_none_beside_it_is_peeked_at_when_its_flow_is_asked_for() -> None:
    pending = PendingRequests(ClusterKey("team-a", "one"), peek=unknown)
    assert pending.put(posted("node"), alone=True) is Put.KEPT
    assert pending.known_flow("node") == Flow(PriorityLevel.UNFILTERED, THIEF)
    assert pending.names_waiting_for(["node"]) == []
    pending.set_awaited("node", ["other"])
    assert pending.flow("node") == pending.known_flow("node") == Flow(PriorityLevel.UNKNOWN_MACHINE, THIEF, "node")
    assert pending.names_waiting_for(["node"]) == pending.names_waiting_for(["other"]) == ["node"]


def test_a_newer_state_of_a_request_is_always_peeked_at() -> None:
    """Its requester can change it at will: the first state may claim nothing."""
    pending = PendingRequests(ClusterKey("team-a", "one"), peek=unknown)
    for _ in range(2):
        assert pending.put(posted("node"), alone=True) is Put.KEPT
    assert pending.known_flow("node") == Flow(PriorityLevel.UNKNOWN_MACHINE, THIEF, "node")


def test_a_late_peek_does_not_undo_the_pre_filter() -> None:
    plausible = Flow(PriorityLevel.PLAUSIBLE, THIEF, "node", "1")
    pending = PendingRequests(ClusterKey("team-a", "one"), peek=unknown, pre_filter=lambda manifest: plausible)
    pending.put(posted("node"), alone=True)
    pending._budget.move("node", plausible)  # as when another one was to be evicted
    assert pending.flow("node") == plausible


def test_every_request_is_peeked_at_once_memory_is_short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which one is evicted depends on the flows."""
    monkeypatch.setattr(module, "MAXIMUM_BYTES", 8 * 4096)
    pending = PendingRequests(ClusterKey("team-a", "one"), peek=unknown)
    found = []
    for number in range(4):
        assert pending.put(posted(f"node-{number}"), alone=True) is Put.KEPT
        found.append(pending.known_flow(f"node-{number}").priority_level)
    assert found[0] is PriorityLevel.UNFILTERED
    assert found[-1] is PriorityLevel.UNKNOWN_MACHINE
