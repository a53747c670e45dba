"""AttestedNodes in namespaces that tenants can write to: a record counts only as the controller wrote it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any, Final

import pytest

from signer.kube.resources import ATTESTED_NODES, SECRETS
from signer.model.record import JOURNAL_ENTRIES
from signer.model.record_object import parse_record, record_spec
from signer.model.seal import ControllerKeys, RecordSeals
from signer.store import controller_key
from signer.store.controller_key import SECRET_NAME, controller_key_secret
from signer.testing.world import CONTROLLER_NAMESPACE, Verdict, WorldCluster
from tests.integration.fixtures import Harness, assert_one_certificate, keys_of, node_of, pending, provider_id
from tests.integration.requests import approve_as_somebody_else
from tests.support.journal import journal_of

pytestmark = pytest.mark.slow

THEIR_KEYS: Final = ControllerKeys(b"t" * 32)


@pytest.fixture
def read_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller looks at its key ten times a second."""
    monkeypatch.setattr(controller_key, "MINIMUM_READ_INTERVAL_SECONDS", 0.05)
    monkeypatch.setattr(controller_key, "READ_INTERVAL_SECONDS", 0.05)


@pytest.fixture
def joined(harness: Harness) -> WorldCluster:
    """A cluster whose node ``m`` has joined; the controller runs."""
    cluster = harness.cluster()
    harness.run()
    harness.join(cluster, "m")
    return cluster


def record_of(harness: Harness, cluster: WorldCluster, machine: str = "m") -> dict[str, Any]:
    [found] = [one for one in harness.records(cluster) if one["spec"]["machineRef"]["name"] == machine]
    return found


def set_keys(harness: Harness, data: dict[str, str]) -> None:
    path = SECRETS.object(SECRET_NAME, CONTROLLER_NAMESPACE)
    harness.management.client.patch(path, {"data": {"previous": None, **data}})


def renew(cluster: WorldCluster, name: str, machine: str = "m") -> Verdict:
    cluster.submit_as_node(node_of(cluster, machine).client_request(name), machine)
    return cluster.wait_until_decided(name)


def tamper(harness: Harness, cluster: WorldCluster, **spec: Any) -> None:
    path = ATTESTED_NODES.object(record_of(harness, cluster)["metadata"]["name"], cluster.namespace)
    harness.management.client.patch(path, {"spec": spec})


def journaled(harness: Harness, cluster: WorldCluster) -> list[str]:
    return [entry["csrName"] for entry in journal_of(record_of(harness, cluster)["spec"])]


def is_ours(harness: Harness, cluster: WorldCluster) -> bool:
    record = parse_record(record_of(harness, cluster))
    return RecordSeals(keys_of(harness)).unseal(record) is record


def test_records_are_sealed_with_the_controller_key(harness: Harness, joined: WorldCluster) -> None:
    assert is_ours(harness, joined)
    assert isinstance(keys_of(harness).current, bytes)
    secrets = harness.management.client.items(SECRETS.collection(CONTROLLER_NAMESPACE))
    assert [secret["metadata"]["name"] for secret in secrets] == [SECRET_NAME]


# Forgeries


SEALS: Final[dict[str, Callable[[str, str], str]]] = {
    "of another controller": lambda theirs, stolen: theirs,
    "stolen from another record": lambda theirs, stolen: stolen,
    "truncated": lambda theirs, stolen: stolen[:-1],
    "with our key's name": lambda theirs, stolen: f"{stolen.rpartition('.')[0]}.{theirs.rpartition('.')[2]}",
}


@pytest.mark.slow
@pytest.mark.parametrize("seal", SEALS)
def test_a_forged_record_approves_nothing(harness: Harness, read_often: None, joined: WorldCluster, seal: str) -> None:
    """A hostile workload cluster approves a request; a tenant writes the journal entry that would permit it."""
    real = record_of(harness, joined)
    joined.add_machine("victim", provider_id=provider_id("victim"))
    joined.patch_machine("victim", {"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}})
    harness.join(joined)  # the pause has been seen
    created = joined.submit_with_token(node_of(joined, "victim").client_request("theirs"))
    harness.wait_for_event("MachinePaused", "victim")

    forged = copy.deepcopy(real)
    forged["metadata"] = {
        "name": "workload.victim",
        "namespace": joined.namespace,
        "labels": {"cluster.x-k8s.io/cluster-name": joined.name},
    }
    spec = forged["spec"]
    spec["machineRef"]["name"], spec["providerID"], spec["nodeName"] = "victim", provider_id("victim"), "victim"
    (entry,) = journal_of(spec)
    spec["certificates"] = [json.dumps(entry | {"csrName": "theirs", "csrUID": created["metadata"]["uid"]})]
    claimed = parse_record({**forged, "metadata": {**forged["metadata"], "uid": "u", "resourceVersion": "1"}})
    spec["seal"] = SEALS[seal](RecordSeals(THEIR_KEYS).seal(claimed), real["spec"]["seal"])
    harness.management.client.create(ATTESTED_NODES.collection(joined.namespace), forged)
    approve_as_somebody_else(joined, "theirs")
    verdict = joined.wait_until_decided("theirs")
    assert (verdict.condition, verdict.reason, verdict.certificate) == ("Failed", "ApprovedByOthers", b"")

    joined.patch_machine("victim", {"metadata": {"annotations": {"cluster.x-k8s.io/paused": None}}})
    joined.submit_with_token(node_of(joined, "victim").client_request("honest"))
    verdict = joined.wait_until_decided("honest")
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict
    assert_one_certificate(harness, joined, "victim", "honest")


@pytest.mark.parametrize(
    "spec",
    [
        {"identity": "keyed-mac:forged"},
        {"seal": "v2.x.y"},
        {"lastNotAfter": "2099-01-01T00:00:00Z"},
        {"certificates": []},
        {"droppedNotAfter": "2020-01-01T00:00:00Z"},
    ],
    ids=lambda spec: next(iter(spec)),
)
def test_a_tampered_record_costs_a_fresh_attestation(
    harness: Harness, joined: WorldCluster, spec: dict[str, Any]
) -> None:
    before = record_of(harness, joined)
    tamper(harness, joined, **spec)
    verdict = renew(joined, "renewal")
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict
    after = record_of(harness, joined)
    assert is_ours(harness, joined)
    assert after["metadata"]["uid"] == before["metadata"]["uid"], "replaced in place"
    assert after["spec"]["identity"] == before["spec"]["identity"]
    assert journaled(harness, joined) == ["renewal"]


def test_a_deleted_record_costs_a_fresh_attestation(harness: Harness, joined: WorldCluster) -> None:
    before = record_of(harness, joined)
    harness.management.client.delete(ATTESTED_NODES.object(before["metadata"]["name"], joined.namespace))
    moonlighting = harness.cluster("second", namespace="team-b")
    moonlighting.add_machine("m", provider_id=provider_id("m"))
    moonlighting.submit_with_token(node_of(moonlighting, "m").client_request("elsewhere"))
    verdict = moonlighting.wait_until_decided("elsewhere")
    assert (verdict.condition, verdict.reason) == ("Denied", "IdentityConflict"), "the reservations are still there"
    assert renew(joined, "renewal").condition == "Approved"
    assert journaled(harness, joined) == ["renewal"]
    assert record_of(harness, joined)["spec"]["identity"] == before["spec"]["identity"]


def test_an_older_copy_put_back(harness: Harness, joined: WorldCluster) -> None:
    older = record_of(harness, joined)["spec"]
    assert renew(joined, "second").condition == "Approved"
    tamper(harness, joined, **older)
    assert renew(joined, "third").condition == "Approved"
    assert journaled(harness, joined) == ["join-workload-m", "third"]
    assert is_ours(harness, joined)


def test_a_copy_in_another_namespace(harness: Harness, read_often: None, joined: WorldCluster) -> None:
    """There it neither takes the node's name nor permits anything."""
    copied = copy.deepcopy(record_of(harness, joined))
    second = harness.cluster(joined.name, namespace="team-b")
    copied["metadata"] = {"name": copied["metadata"]["name"], "namespace": "team-b"}
    harness.management.client.create(ATTESTED_NODES.collection("team-b"), copied)
    other = second.add_machine("other", provider_id=provider_id("other"))
    second.set_machine_status(
        other,
        {"addresses": [{"type": "Hostname", "address": "m"}], "initialization": {"bootstrapDataSecretCreated": True}},
    )
    harness.join(second)  # its Machine comes later: all of this is known by then
    second.submit_with_token(node_of(second, "other", "m").client_request("csr"))
    verdict = second.wait_until_decided("csr")
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict
    records = {one["metadata"]["name"]: one["spec"] for one in harness.records(second)}
    assert records[copied["metadata"]["name"]]["machineRef"]["name"] == "other"


# The key


@pytest.mark.slow
def test_after_a_rotation_records_stay_and_are_sealed_again(harness: Harness, read_often: None) -> None:
    cluster = harness.cluster()
    harness.run()
    for machine in ("m", "n"):
        harness.join(cluster, machine)
    before, former = record_of(harness, cluster), keys_of(harness)
    rotated = ControllerKeys(b"r" * 32, former.current)
    set_keys(harness, controller_key_secret(CONTROLLER_NAMESPACE, rotated)["data"])
    harness.management.client.wait_for(
        ATTESTED_NODES.collection(cluster.namespace),
        before["metadata"]["name"],
        lambda record: _renewed_under(record, cluster, rotated),
    )
    assert journaled(harness, cluster)[0] == "join-workload-m"
    assert renew(cluster, "last", "n").condition == "Approved"
    [other] = [one for one in harness.records(cluster) if one["spec"]["nodeName"] == "n"]
    assert [entry["csrName"] for entry in journal_of(other["spec"])] == ["join-workload-n", "last"]


def _renewed_under(record: dict[str, Any], cluster: WorldCluster, keys: ControllerKeys) -> bool:
    """Renew until the controller has read the new key."""
    parsed = parse_record(record)
    if parsed.seal == RecordSeals(keys).seal(parsed):
        return True
    csr = f"renewal-{len(parsed.journal)}"
    if all(entry.csr_name != csr for entry in parsed.journal):
        renew(cluster, csr)
    return False


@pytest.mark.slow
@pytest.mark.parametrize("data", [{"current": "AAAA"}, {"current": None}], ids=["short", "missing"])
def test_with_a_malformed_key_nothing_is_decided(harness: Harness, read_often: None, data: dict[str, Any]) -> None:
    cluster = harness.cluster()
    cluster.add_machine("m", provider_id=provider_id("m"))
    secret = controller_key_secret(CONTROLLER_NAMESPACE, THEIR_KEYS)
    harness.management.client.create(SECRETS.collection(CONTROLLER_NAMESPACE), {**secret, "data": {}})
    set_keys(harness, data)
    harness.run()
    cluster.submit_with_token(node_of(cluster, "m").client_request("csr"))
    message = harness.wait_for_event("ControllerKeyUnavailable", "m")
    assert f"Secret {CONTROLLER_NAMESPACE}/{SECRET_NAME}" in message
    pending(cluster, "csr")
    assert harness.reservations() == []
    ready = harness.wait_for_condition(cluster, "Ready", "False")
    assert ready["reason"] == "ControllerKeyUnavailable"
    assert f"Secret {CONTROLLER_NAMESPACE}/{SECRET_NAME}" in ready["message"]
    set_keys(harness, secret["data"])
    assert cluster.wait_until_decided("csr").condition == "Approved"
    assert keys_of(harness) == THEIR_KEYS, "never overwritten"


def test_another_controllers_records_are_attested_again(
    harness: Harness, read_often: None, joined: WorldCluster
) -> None:
    """As after a move to a controller with another key; reservations stay."""
    set_keys(harness, controller_key_secret(CONTROLLER_NAMESPACE, THEIR_KEYS)["data"])
    harness.run()
    record = parse_record(record_of(harness, joined))
    assert record_spec(record)["nodeName"] == "m"
    attempts = 0
    while parse_record(record_of(harness, joined)).seal.split(".")[1] == record.seal.split(".")[1]:
        attempts += 1
        assert renew(joined, f"renewal-{attempts}").condition == "Approved"
    assert is_ours(harness, joined)
    assert journaled(harness, joined)[-1] == f"renewal-{attempts}"


@pytest.mark.slow
def test_a_node_of_some_months_renews(harness: Harness, joined: WorldCluster) -> None:
    """Also once its journal is long enough to be kept packed; the audit log holds each decision."""
    for number in range(1, JOURNAL_ENTRIES):
        verdict = renew(joined, f"renewal-{number}")
        assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), number
    assert len(journaled(harness, joined)) == JOURNAL_ENTRIES
    harness.assert_audited()
