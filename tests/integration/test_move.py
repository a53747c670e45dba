"""``clusterctl move`` between two management clusters, both controllers running throughout.

What a node has is written down in the AttestedNodes that move along, and in nothing else: owner references are
rewritten, UIDs are new, every status is lost, and reservations stay behind.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from keyed_mac.keys import derive_machine_key

from signer.configuration import OperatorAttestor
from signer.kube.resources import ATTESTED_NODES, CERTIFICATE_SIGNING_REQUESTS
from signer.model.fields import format_time
from signer.store import controller_key
from signer.testing.fixtures import (
    embedded_api,
)
from signer.testing.nodes import SimulatedNode
from signer.testing.world import WorldCluster
from tests.integration.endorsement_key_sources import assert_one_owner_each
from tests.integration.fixtures import (
    Harness,
    assert_readable,
    certificate_of,
    keyed_mac,
    node_of,
    pending,
    provider_id,
    writes,
)
from tests.integration.move import Move, copy_controller_key
from tests.support.journal import journal_of
from tests.support.processes import wait_until

# At the target a Cluster is there before its Secrets are: what could not be read is looked at again soon.
pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_waits")]
OTHER_MASTER_KEY: Final = bytes(range(32, 64))
FOREIGN_KEY: Final = base64.b64encode(OTHER_MASTER_KEY).decode("ascii")


@pytest.fixture(autouse=True)
def keys_are_read_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """A record under an unknown key has the controller read its own again, a few seconds later."""
    monkeypatch.setattr(controller_key, "MINIMUM_READ_INTERVAL_SECONDS", 0.05)


@pytest.fixture(params=[True, False], ids=["same controller key", "another controller key"])
def same_key(request: pytest.FixtureRequest) -> bool:
    """Whether the operator gave both controllers the same key."""
    return bool(request.param)


class Moving:
    """A Cluster that is being moved, and both controllers."""

    def __init__(self, source: Harness, target: Harness, *, same_key: bool = True, **policy: Any) -> None:
        self.source_harness, self.target_harness = source, target
        source.run()
        self.cluster = source.cluster(policy=policy)
        for machine in ("m1", "m2"):
            source.join(self.cluster, machine)
        if same_key:
            copy_controller_key(source.management, target.management)
        self.move = Move(self.cluster, target.management)

    def run_target(self, **configuration: Any) -> None:
        self.target_harness.run(**configuration)

    @property
    def at_target(self) -> WorldCluster:
        return self.move.target

    def pause(self) -> None:
        """Pause, and wait until the controller at the source has seen it."""
        self.move.pause()
        self.source_harness.join(self.source_harness.cluster("marker"))

    def go(self) -> None:
        """Everything between the pause and the first reconciliation at the target."""
        attested = [one["spec"]["lastAttestationTime"] for one in self.source_harness.records(self.cluster)]
        # Objects carry their creation in seconds; one that is created in the second of a record is not younger than it.
        wait_until(lambda: format_time(datetime.now(UTC)) > max(attested), "the second of the last record is over")
        before = writes(embedded_api(self.cluster))
        self.move.create()
        self.move.delete()
        assert writes(embedded_api(self.cluster)) == before, "somebody acted on a paused Cluster"
        self.move.unpause()

    def submit_renewal(self, node: SimulatedNode, csr: str) -> None:
        self.cluster.submit_as_node(node.client_request(csr), node.node_name)

    def is_attested(self, csr: str) -> None:
        verdict = self.cluster.wait_until_decided(csr)
        assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict

    def is_denied(self, csr: str, reason: str) -> None:
        verdict = self.cluster.wait_until_decided(csr)
        assert (verdict.condition, verdict.reason, verdict.certificate) == ("Denied", reason, b""), verdict
        assert_readable(verdict.message)

    def records(self) -> dict[str, dict[str, Any]]:
        """The specs of the records at the target, by node name."""
        return {one["spec"]["nodeName"]: one["spec"] for one in self.target_harness.records(self.at_target)}


def impostor_of(cluster: WorldCluster) -> SimulatedNode:
    """Whom the target's attestor lets be Machine ``m1``: with another identity than the source's has."""
    machine_key = base64.b64encode(derive_machine_key(OTHER_MASTER_KEY, provider_id("m1"))).decode("ascii")
    settings = {"provider-id": provider_id("m1"), "machine-key": machine_key}
    return SimulatedNode("m1", provider_id("m1"), cluster.ca_cert_hash, "keyed-mac", settings)


def test_attested_nodes_renew_at_the_target(harness: Harness, target: Harness, same_key: bool) -> None:
    moving = Moving(harness, target, same_key=same_key)
    moving.run_target()
    before = {one["spec"]["nodeName"]: one["spec"] for one in harness.records(moving.cluster)}
    moving.pause()
    moving.go()
    moving.submit_renewal(node_of(moving.cluster, "m1"), "renewal")
    if not same_key:  # the record proves no renewal, and the Machine's status is lost
        assert_readable(target.wait_for_event("MachineNotReady", "m1"))
        pending(moving.cluster, "renewal")
        moving.move.reconcile()
    moving.is_attested("renewal")
    record = moving.records()["m1"]
    assert record["machineRef"]["name"] == "m1"
    assert record["machineRef"]["uid"] != before["m1"]["machineRef"]["uid"]
    assert record["identity"] == before["m1"]["identity"]
    if same_key:
        assert [entry["csrName"] for entry in journal_of(record)] == ["join-workload-m1", "renewal"]
        assert record["firstAttestationTime"] == before["m1"]["firstAttestationTime"]
    assert moving.records()["m2"] == before["m2"]
    assert not harness.records(moving.cluster)
    if same_key:
        moving.submit_renewal(node_of(moving.cluster, "m2"), "renewal-of-m2")
        moving.is_attested("renewal-of-m2")
        assert_one_owner_each(target, [moving.at_target])


def test_a_request_that_waits_during_the_move_gets_one_certificate(
    harness: Harness, target: Harness, same_key: bool
) -> None:
    moving = Moving(harness, target, same_key=same_key)
    moving.run_target()
    moving.cluster.add_machine("late", provider_id=provider_id("late"))
    moving.pause()
    moving.cluster.submit_with_token(node_of(moving.cluster, "late").client_request("late"))
    harness.wait_for_event("ClusterPaused", "late")
    pending(moving.cluster, "late")
    moving.go()
    moving.move.reconcile()
    moving.is_attested("late")
    published = embedded_api(moving.cluster).requests.writes(
        f"PUT {CERTIFICATE_SIGNING_REQUESTS.object('late')}/status"
    )
    assert len(published) == 1
    [entry] = journal_of(moving.records()["late"])
    assert f"{certificate_of(moving.cluster.verdict('late')).serial_number:x}" == entry["serialNumber"]


def test_what_the_source_approved_the_target_completes(harness: Harness, target: Harness) -> None:
    """Between approval and certificate: the journal moved along, and it is that very certificate."""
    moving = Moving(harness, target)
    moving.run_target()
    workload = embedded_api(moving.cluster)
    moving.cluster.add_machine("late", provider_id=provider_id("late"))
    workload.faults.inject("PUT */certificatesigningrequests/late/status", status=503, times=None)
    moving.cluster.submit_with_token(node_of(moving.cluster, "late").client_request("late"))
    path = CERTIFICATE_SIGNING_REQUESTS.collection()
    moving.cluster.client().wait_for(path, "late", lambda item: bool((item.get("status") or {}).get("conditions")))
    [recorded] = [one["spec"] for one in harness.records(moving.cluster) if one["spec"]["nodeName"] == "late"]
    moving.pause()
    workload.faults.clear()
    moving.go()
    moving.move.reconcile()
    moving.is_attested("late")
    certificate = certificate_of(moving.cluster.verdict("late"))
    assert [f"{certificate.serial_number:x}"] == [entry["serialNumber"] for entry in journal_of(recorded)]
    assert moving.records()["late"]["certificates"] == recorded["certificates"]


def test_another_key_does_not_complete_what_the_source_approved(harness: Harness, target: Harness) -> None:
    """That record does not count for this controller; the node makes another request and is attested again."""
    moving = Moving(harness, target, same_key=False)
    moving.run_target()
    workload = embedded_api(moving.cluster)
    moving.cluster.add_machine("late", provider_id=provider_id("late"))
    workload.faults.inject("PUT */certificatesigningrequests/late/status", status=503, times=None)
    moving.cluster.submit_with_token(node_of(moving.cluster, "late").client_request("late"))
    path = CERTIFICATE_SIGNING_REQUESTS.collection()
    moving.cluster.client().wait_for(path, "late", lambda item: bool((item.get("status") or {}).get("conditions")))
    moving.pause()
    workload.faults.clear()
    moving.go()
    moving.move.reconcile()
    verdict = moving.cluster.wait_until_decided("late")
    assert (verdict.condition, verdict.reason, verdict.certificate) == ("Failed", "ApprovedByOthers", b"")
    moving.cluster.submit_with_token(node_of(moving.cluster, "late").client_request("late-again"))
    moving.is_attested("late-again")


def test_an_impostor_meets_the_record_at_the_target(harness: Harness, target: Harness) -> None:
    """Another Machine whose addresses were forged to contain the victim's name."""
    moving = Moving(harness, target)
    moving.run_target()
    moving.pause()
    moving.go()
    moving.move.reconcile()
    impostor = moving.at_target.add_machine("m3", provider_id=provider_id("m3"))
    addresses = [{"type": "Hostname", "address": "m3"}, {"type": "Hostname", "address": "m1"}]
    moving.at_target.set_machine_status(impostor, {"addresses": addresses})
    target.join(moving.at_target)  # all of it has been seen
    moving.cluster.submit_with_token(node_of(moving.cluster, "m3", "m1").client_request("impostor"))
    moving.is_denied("impostor", "IdentityConflict")
    moving.submit_renewal(node_of(moving.cluster, "m1"), "renewal")
    moving.is_attested("renewal")


def test_another_identity_cannot_have_the_machine_at_the_target(harness: Harness, target: Harness) -> None:
    """It comes first, before the owner, and the reservations were left behind: the record brings them back."""
    moving = Moving(harness, target)
    moving.run_target(attestors={"keyed-mac": OperatorAttestor(settings={"masterKey": FOREIGN_KEY})})
    moving.pause()
    moving.go()
    moving.move.reconcile()
    assert not target.reservations()
    moving.cluster.submit_with_token(impostor_of(moving.cluster).client_request("impostor"))
    moving.is_denied("impostor", "IdentityConflict")
    assert journal_of(moving.records()["m1"])[0]["csrName"] == "join-workload-m1"


def test_records_that_are_not_cached_yet_stop_an_impostor(harness: Harness, target: Harness) -> None:
    """The watch of records hangs while the Cluster's goes on. Its owner is let in all the same."""
    moving = Moving(harness, target)
    moving.run_target(attestors={"keyed-mac": OperatorAttestor(settings={"masterKey": FOREIGN_KEY})})
    watched = f"GET {ATTESTED_NODES.collection()}"
    wait_until(lambda: len(target.api.requests.matching(watched)) > 1, "records are listed, and watched")
    hangs = target.api.faults.inject(watched, status=503, times=None)
    target.api.close_watches()
    wait_until(lambda: hangs.hits > 0, "records are not watched any more")
    moving.pause()
    moving.go()
    moving.move.reconcile()
    moving.cluster.submit_with_token(impostor_of(moving.cluster).client_request("impostor"))
    moving.is_denied("impostor", "IdentityConflict")
    assert journal_of(moving.records()["m1"])[0]["csrName"] == "join-workload-m1"


def test_a_claim_without_proof_displaces_no_pair_at_the_target(harness: Harness, target: Harness) -> None:
    moving = Moving(harness, target, authorizedAttestors=[{"name": "keyed-mac"}, {"name": "insecure"}])
    moving.run_target(attestors=keyed_mac(), insecure_enabled=True, insecure_namespaces=frozenset({"default"}))
    moving.pause()
    moving.go()
    moving.move.reconcile()
    claim = SimulatedNode(
        "m1", provider_id("m1"), moving.cluster.ca_cert_hash, "insecure", {"provider-id": provider_id("m1")}
    )
    moving.cluster.submit_with_token(claim.client_request("claim"))
    moving.is_denied("claim", "IdentityConflict")


def test_instances_of_machine_pools_move(harness: Harness, target: Harness) -> None:
    moving = Moving(harness, target, nodeNames={"sources": ["ProviderID"]})
    moving.run_target()
    pool = moving.cluster.add_machine_pool("pool", provider_id("i1"), provider_id("i2"))
    moving.cluster.add_machine("i2-machine", provider_id=provider_id("i2"), owner=pool)
    for instance in ("i1", "i2"):
        moving.cluster.submit_with_token(node_of(moving.cluster, instance).client_request(f"join-{instance}"))
        moving.is_attested(f"join-{instance}")
    moving.pause()
    moving.go()
    moving.move.reconcile()
    for instance in ("i1", "i2"):
        moving.submit_renewal(node_of(moving.cluster, instance), f"renewal-of-{instance}")
        moving.is_attested(f"renewal-of-{instance}")
    moving.submit_renewal(node_of(moving.cluster, "m1"), "renewal-of-m1")
    moving.is_attested("renewal-of-m1")
    moving.submit_renewal(node_of(moving.cluster, "m2"), "renewal-of-m2")
    moving.is_attested("renewal-of-m2")
    assert_one_owner_each(target, [moving.at_target])


def test_the_source_signs_nothing_once_paused(harness: Harness, target: Harness) -> None:
    """Not for a Machine that is complete, not for a renewal, and not while its objects go one by one."""
    moving = Moving(harness, target)
    moving.cluster.add_machine("late", provider_id=provider_id("late"))
    moving.pause()
    moving.cluster.submit_with_token(node_of(moving.cluster, "late").client_request("late"))
    moving.submit_renewal(node_of(moving.cluster, "m1"), "renewal")
    for reason, name in (("ClusterPaused", "late"), ("ClusterPaused", "m1")):
        harness.wait_for_event(reason, name)
    moving.go()  # which compares what was written
    harness.join(harness.cluster("afterwards"))
    for csr in ("late", "renewal"):
        pending(moving.cluster, csr)
