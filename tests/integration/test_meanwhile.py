"""Changes during a decision, and limits for the requests of one node."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from attestors.wire.names import ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION
from signer.controller.run import ControllerOptions
from signer.decision import reserve_and_journal as admission
from signer.decision.attestation import Attestation
from signer.decision.clocks import ClusterClocks
from signer.kube.resources import ATTESTED_NODES
from signer.model.cluster import ClusterView
from signer.model.record import JOURNAL_ENTRIES
from signer.store.caches import Caches
from signer.store.reservations import Reservations
from signer.testing.world import Verdict
from tests.integration.fixtures import Harness, certificate_of, node_of, nodes_clocks_say, provider_id
from tests.integration.kubelets import Kubelet, add_machine, attest, builtin_serving_request
from tests.support.journal import builtin_approvals_of, journal_of

SAID: Final = {ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION: "sha256:" + "ab" * 32}


def test_a_cluster_that_is_paused_while_a_machine_is_attested_gets_no_certificate(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`clusterctl move` pauses it, and the next management cluster may be signing already."""
    cluster = harness.cluster()
    cluster.add_machine("m", provider_id=provider_id("m"))
    ask = Attestation._ask
    asked: list[bool] = []

    async def paused_meanwhile(self: Attestation, *arguments: Any) -> Any:
        outcome = await ask(self, *arguments)
        if not asked:
            asked.append(True)
            await asyncio.to_thread(cluster.patch, {"spec": {"paused": True}})
            while not seen.is_set():  # noqa: ASYNC110
                await asyncio.sleep(0.01)  # the cache has no Event to wait for
        return outcome

    seen = threading.Event()
    cached = Caches._cluster_changed

    def seen_paused(self: Caches, key: Any, before: Any, after: ClusterView | None) -> None:
        cached(self, key, before, after)
        if after is not None and after.paused:
            seen.set()

    monkeypatch.setattr(Caches, "_cluster_changed", seen_paused)
    monkeypatch.setattr(Attestation, "_ask", paused_meanwhile)
    harness.run()
    cluster.submit_with_token(node_of(cluster, "m").client_request("join"))
    assert "is paused" in harness.wait_for_event("ClusterPaused", "m")
    assert cluster.verdict("join") == Verdict("", "", "", b"", {})
    assert (harness.records(cluster), harness.reservations()) == ([], [])
    cluster.patch({"spec": {"paused": False}})
    assert cluster.wait_until_decided("join").condition == "Approved"


def test_a_cluster_that_is_paused_while_its_api_server_holds_back_its_time(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Built-in serving requests, which no attestor holds up."""
    cluster = harness.cluster(policy={"builtinServingRequests": "Approve"})
    add_machine(cluster, "m", "192.0.2.10")
    agree = ClusterClocks.require_agree
    held, paused = threading.Event(), threading.Event()
    kubelet: list[Kubelet] = []

    async def agree_late(self: ClusterClocks, now: datetime) -> None:
        await agree(self, now)
        if kubelet and not held.is_set():
            held.set()
            await asyncio.to_thread(cluster.patch, {"spec": {"paused": True}})
            while not paused.is_set():  # noqa: ASYNC110
                await asyncio.sleep(0.01)  # the cache has no Event to wait for

    changed = Caches._cluster_changed

    def see(self: Caches, key: Any, before: Any, after: ClusterView | None) -> None:
        changed(self, key, before, after)
        if after is not None and after.paused:
            paused.set()

    monkeypatch.setattr(Caches, "_cluster_changed", see)
    monkeypatch.setattr(ClusterClocks, "require_agree", agree_late)
    harness.run()
    kubelet.append(attest(cluster, "m"))
    kubelet[0].submit(builtin_serving_request("serving", "m", ["m"]))
    assert "is paused" in harness.wait_for_event("ClusterPaused", "m")
    assert cluster.verdict("serving") == Verdict("", "", "", b"", {})
    [record] = harness.records(cluster)
    assert builtin_approvals_of(record["spec"]) == []


@pytest.mark.parametrize("moment", ["attested", "reserved"])
def test_a_cluster_that_was_away_has_its_records_listed_before_a_write(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """It looks as before, and may have been moved away and back: its records may be newer than the cache's."""
    cluster = harness.cluster()
    cluster.add_machine("m", provider_id=provider_id("m"))
    whose, step = {"attested": (Attestation, "_ask"), "reserved": (Reservations, "reserve")}[moment]
    carry_out, changed = getattr(whose, step), Caches._cluster_changed
    paused, unpaused, away = threading.Event(), threading.Event(), threading.Event()

    async def away_meanwhile(*arguments: Any) -> Any:
        outcome = await carry_out(*arguments)
        if not away.is_set():
            away.set()
            for value, seen in ((True, paused), (False, unpaused)):
                await asyncio.to_thread(cluster.patch, {"spec": {"paused": value}})
                while not seen.is_set():  # noqa: ASYNC110
                    await asyncio.sleep(0.01)  # the cache has no Event to wait for
        return outcome

    def see(self: Caches, key: Any, before: Any, after: ClusterView | None) -> None:
        changed(self, key, before, after)
        if after is not None and away.is_set():
            (paused if after.paused else unpaused).set()

    monkeypatch.setattr(Caches, "_cluster_changed", see)
    monkeypatch.setattr(whose, step, away_meanwhile)
    harness.run()
    cluster.submit_with_token(node_of(cluster, "m").client_request("join"))
    assert "records are to be listed again" in harness.wait_for_event("ReservationPending", "m")
    assert cluster.wait_until_decided("join").condition == "Approved"
    listed = harness.api.requests.matching(f"GET {ATTESTED_NODES.collection(cluster.namespace)}")
    assert [entry.status for entry in listed] == [200]


def test_a_new_cluster_gets_no_decision_before_its_records_are_listed(harness: Harness) -> None:
    harness.run()
    harness.join(harness.cluster("first"))
    path = ATTESTED_NODES.collection("default")
    refused = harness.api.faults.inject(f"GET {path}", status=503, times=None)
    cluster = harness.cluster()
    cluster.add_machine("m", provider_id=provider_id("m"))
    cluster.submit_with_token(node_of(cluster, "m").client_request("join"))
    assert "injected fault" in harness.wait_for_event("ManagementClusterUnreachable", "m")
    assert cluster.verdict("join") == Verdict("", "", "", b"", {})
    refused.times = 0
    assert cluster.wait_until_decided("join").condition == "Approved"


def test_a_machine_that_changes_meanwhile_is_attested_again(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attestor may have let in the chip that was named until then."""
    cluster = harness.cluster()
    cluster.add_machine("m", provider_id=provider_id("m"))
    ask = Attestation._ask
    told: list[Mapping[str, str]] = []

    async def annotated_meanwhile(self: Attestation, attestation: Any, request: Any, snapshot: Any) -> Any:
        outcome = await ask(self, attestation, request, snapshot)
        told.append(attestation.machine.annotations)
        if len(told) == 1:
            await asyncio.to_thread(cluster.patch_machine, "m", {"metadata": {"annotations": SAID}})
            while not self._attestation_requests._caches.matching(self._key, provider_id("m"))[0].annotations:  # noqa: ASYNC110
                await asyncio.sleep(0.01)  # the cache has no Event to wait for
        return outcome

    monkeypatch.setattr(Attestation, "_ask", annotated_meanwhile)
    harness.run()
    cluster.submit_with_token(node_of(cluster, "m").client_request("join"))
    assert cluster.wait_until_decided("join").condition == "Approved"
    assert told == [{}, SAID]


def test_a_node_in_a_request_loop_cannot_push_its_requests_out_of_the_journal(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "_JOURNAL_SPAN", timedelta(hours=1))
    cluster = harness.cluster()
    harness.run()
    harness.join(cluster, "m")
    names = [f"again-{number}" for number in range(JOURNAL_ENTRIES)]
    for name in names:
        cluster.submit_as_node(node_of(cluster, "m").client_request(name), "m")
        if name != names[-1]:
            assert cluster.wait_until_decided(name).condition == "Approved"
    assert "asks too often" in harness.wait_for_event("ReservationPending", "m")
    verdicts = [cluster.verdict(name) for name in names]
    assert {verdict.condition for verdict in verdicts} == {"Approved", ""}
    [record] = harness.records(cluster)
    assert "join-workload-m" in {entry["csrName"] for entry in journal_of(record["spec"])}


def test_requests_from_a_day_with_a_fast_clock_do_not_block_a_node(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its journal is full of entries that are dated ahead, because nothing that it was given was valid yet."""
    ahead = timedelta(days=1)
    cluster = harness.cluster()
    nodes_clocks_say(lambda: datetime.now(UTC) + ahead, monkeypatch)
    harness.run(ControllerOptions(now=lambda: datetime.now(UTC) + ahead))
    harness.join(cluster, "m")
    names = [f"ahead-{number}" for number in range(JOURNAL_ENTRIES - 1)]
    for name in names:
        cluster.submit_as_node(node_of(cluster, "m").client_request(name), "m")
        assert cluster.wait_until_decided(name).condition == "Approved"
    ahead = timedelta(0)
    cluster.submit_as_node(node_of(cluster, "m").client_request("again"), "m")
    verdict = cluster.wait_until_decided("again")
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict
    assert certificate_of(verdict).not_valid_before_utc < datetime.now(UTC)
