"""The grants in ``deploy/rbac`` are what the controller needs, and no more: it is run with nothing else."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
import yaml
from keyed_mac.keys import derive_machine_key

from signer.controller.configuration import OperatorAttestor
from signer.kube.connection import ClusterConnection
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS, EVENTS, MACHINES_V1BETA2, NODE_ATTESTATION_POLICIES
from signer.testing.api import EmbeddedAPI, LoggedRequest, User
from signer.testing.fixtures import MakeMachine, MakeNode, MakeWorkloadCluster, StartController, embedded_api
from signer.testing.nodes import SimulatedNode
from signer.testing.world import ManagementCluster, WorldCluster
from tests.documents.markdown import ROOT

FOLDER: Final = ROOT / "deploy/rbac"
SERVICE_ACCOUNT: Final = "system:serviceaccount:node-attestation-system:node-attestation-controller"
WORKLOAD_USER: Final = "node-attestation-controller"
MASTER_KEY: Final = bytes(range(32))
PROVIDER_ID: Final = "test:///1"
_METHODS: Final = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}

Grant: TypeAlias = tuple[str, str]
"""Verb and resource, with its subresource."""


def granted(file: Path) -> set[Grant]:
    """What the roles in a file allow; signers aside, whose verbs stand in no request."""
    rules = [
        rule
        for document in yaml.safe_load_all(file.read_text(encoding="utf-8"))
        for rule in document.get("rules", ())
        if rule["resources"] != ["signers"]
    ]
    return {(verb, resource) for rule in rules for resource in rule["resources"] for verb in rule["verbs"]}


def used(requests: Iterable[LoggedRequest]) -> set[Grant]:
    """What those requests needed; discovery aside, which everybody may."""
    return {grant for request in requests for grant in grants_of(request)}


def grants_of(request: LoggedRequest) -> set[Grant]:
    parts = request.path.strip("/").split("/")
    rest = parts[3:] if parts[0] == "apis" else parts[2:]
    if rest[:1] == ["namespaces"] and len(rest) > 2:
        rest = rest[2:]
    if not rest:
        return set()
    resource, name, subresource = (*rest, "", "")[:3]
    if request.method == "GET":
        verb = "get" if name else "watch" if "watch=true" in request.query else "list"
    else:
        verb = _METHODS[request.method]
    return {(verb, f"{resource}/{subresource}" if subresource else resource)}


def requests_of(api: EmbeddedAPI, user: str) -> list[LoggedRequest]:
    return [request for request in api.requests.matching() if request.user == user]


def as_the_service_account(api: EmbeddedAPI) -> ClusterConnection:
    api.add_token(
        "service-account-token", User(SERVICE_ACCOUNT, groups=("system:serviceaccounts", "system:authenticated"))
    )
    return api.token_connection("service-account-token")


@pytest.fixture
def cluster(
    management_cluster: ManagementCluster, make_workload_cluster: MakeWorkloadCluster, make_machine: MakeMachine
) -> WorldCluster:
    """A Cluster whose kubeconfig is of the restricted user, with one Machine."""
    cluster = make_workload_cluster()
    api = embedded_api(cluster)
    api.apply_yaml((FOLDER / "workload.yaml").read_text(encoding="utf-8"))
    cluster.put_secret("kubeconfig", {"value": api.kubeconfig(cluster.name, WORKLOAD_USER, ()).encode()})
    cluster.authorize("keyed-mac")
    make_machine("worker-1", PROVIDER_ID, cluster=cluster)
    embedded_api(management_cluster).apply_yaml((FOLDER / "management.yaml").read_text(encoding="utf-8"))
    return cluster


def node(make_node: MakeNode, cluster: WorldCluster, name: str) -> SimulatedNode:
    machine_key = base64.b64encode(derive_machine_key(MASTER_KEY, PROVIDER_ID)).decode("ascii")
    return make_node(
        name, PROVIDER_ID, "keyed-mac", {"provider-id": PROVIDER_ID, "machine-key": machine_key}, cluster=cluster
    )


def test_the_controller_needs_exactly_these_grants(
    management_cluster: ManagementCluster,
    cluster: WorldCluster,
    make_machine: MakeMachine,
    make_node: MakeNode,
    attestation_controller: StartController,
) -> None:
    management, workload = embedded_api(management_cluster), embedded_api(cluster)
    settings = {"masterKey": base64.b64encode(MASTER_KEY).decode("ascii")}
    attestation_controller(
        connection=as_the_service_account(management),
        attestors={"keyed-mac": OperatorAttestor(settings=settings)},
    )
    first = node(make_node, cluster, "worker-1")

    cluster.submit_with_token(first.client_request("join"))
    assert cluster.wait_until_decided("join").reason == "Attested"
    # A conflict on each write makes the controller read again what it wrote to.
    workload.faults.inject("PUT */certificatesigningrequests/*/approval", status=409)
    management.faults.inject("PATCH */attestednodes/*", status=409)
    cluster.submit_as_node(first.client_request("renew"), "worker-1")
    assert cluster.wait_until_decided("renew").reason == "Attested"
    cluster.submit_as_node(first.serving_request("serve", dns_names=["worker-1"]), "worker-1")
    assert cluster.wait_until_decided("serve").reason == "Attested"
    cluster.submit_with_token(first.but(node_name="another").client_request("impostor"))
    assert cluster.wait_until_decided("impostor").reason == "NodeNameMismatch"
    release_identity(cluster, make_machine)
    cluster.submit_with_token(node(make_node, cluster, "worker-2").client_request("join-2"))
    assert cluster.wait_until_decided("join-2").reason == "Attested"
    wait_for_side_writes(management_cluster, cluster)

    calls = [*requests_of(management, SERVICE_ACCOUNT), *requests_of(workload, WORKLOAD_USER)]
    assert [call for call in calls if call.status == 403] == []
    assert used(requests_of(management, SERVICE_ACCOUNT)) == granted(FOLDER / "management.yaml")
    assert used(requests_of(workload, WORKLOAD_USER)) == granted(FOLDER / "workload.yaml")


def release_identity(cluster: WorldCluster, make_machine: MakeMachine) -> None:
    """The hardware goes to a new Machine, whose node has another name."""
    client = cluster.management.client
    client.delete(MACHINES_V1BETA2.object("worker-1", cluster.namespace))
    make_machine("worker-2", PROVIDER_ID, cluster=cluster)


def wait_for_side_writes(management_cluster: ManagementCluster, cluster: WorldCluster) -> None:
    """Event and condition are written beside the decision."""
    client = management_cluster.client

    def is_ready(policy: dict[str, Any]) -> bool:
        conditions = (policy.get("status") or {}).get("conditions") or []
        return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)

    client.wait_for(NODE_ATTESTATION_POLICIES.collection(cluster.namespace), cluster.name, is_ready)
    client.wait_for_any(EVENTS.collection(cluster.namespace), lambda event: event["reason"] == "Attested")


def test_without_the_verb_on_its_signer_nothing_is_approved(
    management_cluster: ManagementCluster,
    cluster: WorldCluster,
    make_node: MakeNode,
    attestation_controller: StartController,
) -> None:
    """The rule on signers is needed too, though no request names it."""
    workload = embedded_api(cluster)
    role = workload.get("clusterroles", "node-attestation-controller")
    role["rules"] = [rule for rule in role["rules"] if rule["resources"] != ["signers"]]
    workload.update(role)
    settings = {"masterKey": base64.b64encode(MASTER_KEY).decode("ascii")}
    attestation_controller(
        connection=as_the_service_account(embedded_api(management_cluster)),
        attestors={"keyed-mac": OperatorAttestor(settings=settings)},
    )
    cluster.submit_with_token(node(make_node, cluster, "worker-1").client_request("join"))
    event = management_cluster.client.wait_for_any(
        EVENTS.collection(cluster.namespace), lambda event: event["reason"] == "WorkloadClusterUnreachable"
    )
    assert "403 Forbidden" in event["message"]
    assert cluster.verdict("join").condition == ""
    assert cluster.client().get(CERTIFICATE_SIGNING_REQUESTS.object("join"))["status"] == {}
