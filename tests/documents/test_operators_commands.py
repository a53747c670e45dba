"""The commands of the operating guide that change objects by hand, run unchanged by the real kubectl."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import Final

import pytest

from signer.controller.auto_approval import reconciler as reconciler
from signer.kube.resources import (
    ATTESTED_NODES,
    CLUSTER_ROLE_BINDINGS,
    CLUSTERS_V1BETA2,
    CONFIG_MAPS,
    IDENTITY_RESERVATIONS,
    NODE_ATTESTATION_POLICIES,
    SECRETS,
)
from signer.model.auto_approval import ClusterIdentity
from signer.model.cluster import DELETE_FOR_MOVE_ANNOTATION, ClusterKey
from signer.model.record_object import parse_record
from signer.model.saved_bindings import OtherLineages, lineage_field, parse_saved, saved_name
from signer.model.seal import KEY_BYTES, Fault, RecordSeals, Unauthentic
from signer.store.controller_key import SECRET_NAME, parse_controller_keys
from signer.testing.api import EmbeddedAPI
from signer.testing.fixtures import MakeMachine, MakeNode, StartController, embedded_api, open_management_cluster
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster, WorldCluster
from tests.documents.markdown import OPERATING_GUIDE
from tests.documents.test_blocks import commands
from tests.documents.test_what_is_not_stopped import (
    ATTESTORS,
    FIRST_CERTIFICATES,
    PROVIDER_ID,
    settings_of,
    wait_for_condition,
)
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.kubectl import find_kubectl, run_kubectl
from tests.support.processes import wait_until

NEW_KEY: Final = "bmV3IHJhbmRvbSBieXRlcyBuZXcgcmFuZG9tIGJ5dGU="
RENEWALS: Final = "kubeadm:node-autoapprove-certificate-rotation"
KEY: Final = SECRETS.object(SECRET_NAME, CONTROLLER_NAMESPACE)


def documented(*words: str) -> list[list[str]]:
    """Commands of the guide that begin with these words, in document order; without ``kubectl`` and its kubeconfig."""
    found = []
    for block, command in commands():
        if block.document in OPERATING_GUIDE and command[1 : len(words) + 1] == list(words):
            arguments = command[1:]
            if "--kubeconfig" in arguments:
                place = arguments.index("--kubeconfig")
                del arguments[place : place + 2]
            found.append(arguments)
    assert found, words
    return found


def kubectl(api: EmbeddedAPI, arguments: list[str], standard_input: str = "") -> str:
    try:
        find_kubectl()
    except MissingPart as missing:
        skip_or_fail(missing)
    result = run_kubectl(api.kubeconfig(), arguments, standard_input=standard_input)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "MINIMUM_PAUSE_SECONDS", 0.05)


@pytest.fixture
def cluster(
    workload_cluster: WorldCluster,
    make_machine: MakeMachine,
    make_node: MakeNode,
    attestation_controller: StartController,
) -> WorldCluster:
    """A cluster under Enforce, with one attested node; the controller runs."""
    make_machine("worker-1", PROVIDER_ID)
    workload_cluster.authorize("keyed-mac", mode="Enforce")
    attestation_controller(attestors=ATTESTORS)
    node = make_node("worker-1", PROVIDER_ID, "keyed-mac", settings_of(PROVIDER_ID))
    workload_cluster.submit_with_token(node.client_request("join"))
    assert workload_cluster.wait_until_decided("join").reason == "Attested"
    wait_for_condition(workload_cluster, "AutoApprovalRemoved", "True", "Removed")
    return workload_cluster


@pytest.fixture
def target() -> Iterator[ManagementCluster]:
    """Another management cluster."""
    with open_management_cluster() as management:
        yield management


@pytest.mark.slow
def test_the_controller_key_is_rotated(management_cluster: ManagementCluster, cluster: WorldCluster) -> None:
    before = parse_controller_keys(management_cluster.client.get(KEY))
    rotation, _ = documented("patch", "secret")
    assert rotation[-1].count("BASE64-OF-32-RANDOM-BYTES") == 1
    assert [step["op"] for step in json.loads(rotation[-1])] == ["copy", "replace"]
    rotation[-1] = rotation[-1].replace("BASE64-OF-32-RANDOM-BYTES", NEW_KEY)
    kubectl(embedded_api(management_cluster), rotation)
    after = parse_controller_keys(management_cluster.client.get(KEY))
    assert (after.previous, len(after.current)) == (before.current, KEY_BYTES)
    assert after.current != before.current
    record = parse_record(management_cluster.client.items(ATTESTED_NODES.collection(cluster.namespace))[0])
    assert RecordSeals(after).unseal(record) == record


@pytest.mark.slow
def test_a_copy_of_the_key_becomes_the_previous_one(
    management_cluster: ManagementCluster, cluster: WorldCluster
) -> None:
    """A controller that started without it has made another one meanwhile."""
    copied: str = management_cluster.client.get(KEY)["data"]["current"]
    record = parse_record(management_cluster.client.items(ATTESTED_NODES.collection(cluster.namespace))[0])
    lost = management_cluster.client.patch(KEY, {"data": {"current": NEW_KEY}})
    assert RecordSeals(parse_controller_keys(lost)).unseal(record) == Unauthentic(Fault.UNKNOWN_KEY)
    _, command = documented("patch", "secret")
    assert command[-1].count("CURRENT-OF-THE-COPY") == 1
    command[-1] = command[-1].replace("CURRENT-OF-THE-COPY", copied)
    kubectl(embedded_api(management_cluster), command)
    found = management_cluster.client.get(KEY)
    assert found["data"] == {"current": NEW_KEY, "previous": copied}
    assert RecordSeals(parse_controller_keys(found)).unseal(record) == record


def identity_of(management_cluster: ManagementCluster, cluster: WorldCluster) -> ClusterIdentity:
    path = CLUSTERS_V1BETA2.object(cluster.name, cluster.namespace)
    uid = management_cluster.client.get(path)["metadata"]["uid"]
    return ClusterIdentity(ClusterKey(cluster.namespace, cluster.name), uid, cluster.ca_cert_hash)


@pytest.mark.slow
def test_key_and_removed_grants_are_copied_before_a_move(
    management_cluster: ManagementCluster, cluster: WorldCluster, target: ManagementCluster
) -> None:
    *_, secret = documented("get", "secret")
    *_, config_maps = documented("get", "configmaps")
    *_, apply = documented("apply", "-f", "-")
    for source in (secret, config_maps):
        manifest = kubectl(embedded_api(management_cluster), source)
        # The embedded API publishes no OpenAPI to validate by.
        kubectl(embedded_api(target), [*apply, "--validate=false"], manifest)
    assert parse_controller_keys(target.client.get(KEY)) == parse_controller_keys(management_cluster.client.get(KEY))
    owner = identity_of(management_cluster, cluster)
    path = CONFIG_MAPS.object(saved_name(owner.key), CONTROLLER_NAMESPACE)
    copied, original = (parse_saved(side.client.get(path)) for side in (target, management_cluster))
    assert copied.lineages == original.lineages
    assert len(copied.of(owner).bindings) == 2


@pytest.mark.slow
def test_what_was_removed_under_a_former_ca_is_given_back(
    management_cluster: ManagementCluster, cluster: WorldCluster
) -> None:
    (read,) = documented("get", "configmap")
    (create,) = documented("create")
    owner = identity_of(management_cluster, cluster)
    others = OtherLineages(CONTROLLER_NAMESPACE, saved_name(owner.key), (lineage_field(owner),))
    placeholders = {"NAME": others.config_map, "jsonpath={.data.FIELD}": f"jsonpath={{.data.{others.fields[0]}}}"}
    read = [placeholders.get(word, word) for word in read]
    assert f"{shlex.join(['kubectl', *read])} | kubectl create" in str(others), "the message has the same command"
    manifest = kubectl(embedded_api(management_cluster), read)
    path = NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
    management_cluster.client.patch(path, {"metadata": {"annotations": {DELETE_FOR_MOVE_ANNOTATION: ""}}})
    management_cluster.client.delete(path)  # nobody else gives anything back
    kubectl(embedded_api(cluster), [*create, "--validate=false"], manifest)
    items = cluster.client().items(CLUSTER_ROLE_BINDINGS.collection())
    assert {item["metadata"]["name"] for item in items} >= {FIRST_CERTIFICATES, RENEWALS}


@pytest.mark.slow
def test_record_and_reservations_are_deleted(management_cluster: ManagementCluster, cluster: WorldCluster) -> None:
    api = embedded_api(management_cluster)
    (record,) = documented("delete", "attestednode")
    (reservations,) = documented("delete", "identityreservation")
    stored = management_cluster.client.items(ATTESTED_NODES.collection(cluster.namespace))
    kubectl(api, [word.replace("production.worker-1", stored[0]["metadata"]["name"]) for word in record])
    path = IDENTITY_RESERVATIONS.collection(CONTROLLER_NAMESPACE)
    names = [item["metadata"]["name"] for item in management_cluster.client.items(path)]
    assert len(names) == 2
    placeholders = dict(zip(("NAME-OF-ONE", "NAME-OF-THE-OTHER"), names, strict=True))
    kubectl(api, [placeholders.get(word, word) for word in reservations])
    wait_until(lambda: not management_cluster.client.items(path), "the reservations are gone")
