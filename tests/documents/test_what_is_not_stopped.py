"""What ``docs/threat-model.md`` lists as not stopped is not: a change that stops it changes the document too."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from keyed_mac.keys import derive_machine_key

from signer.configuration import Configuration, OperatorAttestor
from signer.controller.auto_approval import reconciler as reconciler
from signer.controller.run import ControllerOptions
from signer.kube.resources import (
    ATTESTED_NODES,
    CLUSTER_ROLE_BINDINGS,
    NODE_ATTESTATION_POLICIES,
    SUBJECT_ACCESS_REVIEWS,
)
from signer.testing.fixtures import MakeMachine, MakeNode, MakeWorkloadCluster, StartController, embedded_api
from signer.testing.nodes import SimulatedNode
from signer.testing.world import CONTROLLER_NAMESPACE, RunningController, WorldCluster
from tests.documents.markdown import ROOT
from tests.integration.kubelets import builtin_serving_request
from tests.support.journal import journal_of
from tests.support.processes import wait_until

pytestmark = pytest.mark.slow

MASTER_KEY: Final = bytes(range(32))
ATTESTORS: Final = {"keyed-mac": OperatorAttestor(settings={"masterKey": base64.b64encode(MASTER_KEY).decode("ascii")})}
PROVIDER_ID: Final = "test:///worker-1"
FIRST_CERTIFICATES: Final = "kubeadm:node-autoapprove-bootstrap"
TOKENS: Final = ("system:bootstrap:abcdef", "system:bootstrappers:kubeadm:default-node-token")
NODES: Final = ("system:node:anybody", "system:nodes")

Start = Callable[..., RunningController]


@pytest.fixture
def start(attestation_controller: StartController) -> Start:
    """Starts a controller, until the test ends."""

    def start(options: ControllerOptions | None = None) -> RunningController:
        return attestation_controller(options=options, attestors=ATTESTORS)

    return start


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconciler, "MINIMUM_PAUSE_SECONDS", 0.05)


@pytest.fixture
def node(make_machine: MakeMachine, make_node: MakeNode) -> SimulatedNode:
    """The honest node of the workload cluster."""
    make_machine("worker-1", PROVIDER_ID)
    return make_node("worker-1", PROVIDER_ID, "keyed-mac", settings_of(PROVIDER_ID))


def settings_of(provider_id: str) -> dict[str, str]:
    machine_key = base64.b64encode(derive_machine_key(MASTER_KEY, provider_id)).decode("ascii")
    return {"provider-id": provider_id, "machine-key": machine_key}


def says(words: str, page: str = "threat-model.md") -> bool:
    return words in " ".join((ROOT / "docs" / page).read_text(encoding="utf-8").split())


def wait_for_condition(cluster: WorldCluster, kind: str, status: str, reason: str) -> None:
    """Wait until the policy's status has that condition."""

    def has_it(policy: dict[str, Any]) -> bool:
        conditions = (policy.get("status") or {}).get("conditions") or []
        return (kind, status, reason) in [(item["type"], item["status"], item["reason"]) for item in conditions]

    path = NODE_ATTESTATION_POLICIES.collection(cluster.namespace)
    cluster.management.client.wait_for(path, cluster.name, has_it)


def may(cluster: WorldCluster, who: tuple[str, str], subresource: str) -> bool:
    """What kube-controller-manager is told when it asks whether to approve."""
    user, group = who
    attributes = {
        "verb": "create",
        "group": "certificates.k8s.io",
        "version": "*",
        "resource": "certificatesigningrequests",
        "subresource": subresource,
    }
    review = {
        "apiVersion": SUBJECT_ACCESS_REVIEWS.api_version,
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": [group, "system:authenticated"], "resourceAttributes": attributes},
    }
    answer = cluster.client().create(SUBJECT_ACCESS_REVIEWS.collection(), review)
    return bool(answer["status"]["allowed"])


def test_observe_leaves_auto_approval(workload_cluster: WorldCluster, start: Start) -> None:
    assert says("**Observe.** It is the default")
    workload_cluster.authorize("keyed-mac")
    start()
    wait_for_condition(workload_cluster, "AutoApprovalRemoved", "False", "Observing")
    assert may(workload_cluster, TOKENS, "nodeclient")
    assert may(workload_cluster, NODES, "selfnodeclient")


def test_one_machine_that_is_not_attested_keeps_renewal_open_for_all(
    workload_cluster: WorldCluster, node: SimulatedNode, make_machine: MakeMachine, start: Start
) -> None:
    assert says("**One Machine that is not attested keeps renewal open for all.**")
    workload_cluster.authorize("keyed-mac", mode="Enforce")
    make_machine("older")
    start()
    workload_cluster.submit_with_token(node.client_request("join"))
    assert workload_cluster.wait_until_decided("join").reason == "Attested"
    wait_for_condition(workload_cluster, "AutoApprovalRemoved", "False", "WaitingForAttestation")
    assert not may(workload_cluster, TOKENS, "nodeclient")
    assert may(workload_cluster, NODES, "selfnodeclient")


def test_the_same_key_may_present_fresh_evidence_again(
    workload_cluster: WorldCluster, node: SimulatedNode, start: Start
) -> None:
    assert says("**Freshness is the attestor's.**")
    workload_cluster.authorize("keyed-mac")
    first = start()
    evidence = node.evidence()

    def ask(name: str) -> int:
        workload_cluster.submit_with_token(node.client_request(name, evidence_of=evidence))
        verdict = workload_cluster.wait_until_decided(name)
        return x509.load_pem_x509_certificate(verdict.certificate).serial_number

    issued = ask("first")
    assert ask("copy") == issued, "while more than half of its life is left, the same certificate"
    first.kill()
    start(ControllerOptions(now=lambda: datetime.now(UTC) + timedelta(days=4)))
    workload_cluster.submit_with_token(node.client_request("later", evidence_of=evidence))
    verdict = workload_cluster.wait_until_decided("later")
    assert (verdict.condition, verdict.reason) == ("Denied", "EvidenceExpired")


@pytest.mark.parametrize("put_back", [True, False], ids=["an older copy", "as it is"])
def test_an_older_copy_of_a_record_makes_a_second_certificate_of_what_was_approved_and_not_signed(
    put_back: bool, workload_cluster: WorldCluster, node: SimulatedNode, start: Start
) -> None:
    assert says("**An older copy of a record.**")
    workload_cluster.authorize("keyed-mac")
    client, faults = workload_cluster.management.client, embedded_api(workload_cluster).faults
    path = ATTESTED_NODES.object(f"{workload_cluster.name}.worker-1", workload_cluster.namespace)
    configuration = Configuration(namespace=CONTROLLER_NAMESPACE, attestors=ATTESTORS)
    with RunningController(workload_cluster.management.api.connection(), configuration):
        workload_cluster.submit_with_token(node.client_request("join"))
        workload_cluster.wait_until_decided("join")
        older = client.get(path)["spec"]
        faults.inject("PUT */certificatesigningrequests/second/status", status=503, times=None)
        another_key = ec.generate_private_key(ec.SECP256R1())
        workload_cluster.submit_with_token(node.but(key=another_key).client_request("second"))
        wait_until(lambda: workload_cluster.verdict("second").condition == "Approved", "the approval stands")
        journaled = {entry["serialNumber"] for entry in journal_of(client.get(path)["spec"])}
    if put_back:
        client.patch(path, {"spec": older})
    faults.clear()
    start()
    verdict = workload_cluster.wait_until_decided("second")
    assert verdict.condition == "Approved"
    serial = f"{x509.load_pem_x509_certificate(verdict.certificate).serial_number:x}"
    assert (serial in journaled) is not put_back


def test_tokens_that_live_long_are_cut_back_before_a_deleted_policy_opens_the_door(
    workload_cluster: WorldCluster, start: Start
) -> None:
    assert says(
        "by Observe or by deletion of the policy, or the condition turns False for another reason, "
        "all tokens are cut back before the bindings return",
        "operating.md",
    )
    token = extended_token(workload_cluster, start)[0]
    delete_policy(workload_cluster)
    wait_until(lambda: FIRST_CERTIFICATES in bindings(workload_cluster), "the bindings are back")
    assert time_left(workload_cluster, token) <= timedelta(minutes=15)


def test_a_policy_deleted_while_no_controller_runs_leaves_tokens_where_nothing_is_kept(
    workload_cluster: WorldCluster, make_workload_cluster: MakeWorkloadCluster, start: Start
) -> None:
    assert says(
        "a policy that is deleted while no controller runs, of a cluster without saved bindings, "
        "leaves them as they are",
        "operating.md",
    )
    without_kept = make_workload_cluster("nothing-kept", seed_kubeadm=False)
    token, controller = extended_token(without_kept, start)
    other_token = extended_token(workload_cluster, lambda: controller)[0]
    controller.kill()
    for cluster in (without_kept, workload_cluster):
        delete_policy(cluster)
    start()
    wait_until(lambda: FIRST_CERTIFICATES in bindings(workload_cluster), "the other cluster's bindings are back")
    assert time_left(workload_cluster, other_token) <= timedelta(minutes=15)
    assert time_left(without_kept, token) > timedelta(hours=12)


def extended_token(cluster: WorldCluster, start: Start) -> tuple[str, RunningController]:
    """A MachinePool's token that the controller lets live long."""
    pool = cluster.add_machine_pool(f"pool-{cluster.name}")
    token = cluster.api.bootstrap_token()
    cluster.add_kubeadm_config(f"pool-{cluster.name}", token, pool)
    cluster.authorize("keyed-mac", mode="Enforce", bootstrapTokens={"machinePools": "Extend"})
    controller = start()
    wait_for_condition(cluster, "MachinePoolTokensExtended", "True", "Extended")
    return token, controller


def delete_policy(cluster: WorldCluster) -> None:
    cluster.management.client.delete(NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace))


def time_left(cluster: WorldCluster, token: str) -> timedelta:
    secret = embedded_api(cluster).get("secrets", f"bootstrap-token-{token[:6]}", "kube-system")
    expiration = datetime.fromisoformat(base64.b64decode(secret["data"]["expiration"]).decode("ascii"))
    return expiration - datetime.now(UTC)


def bindings(cluster: WorldCluster) -> set[str]:
    return {item["metadata"]["name"] for item in cluster.client().items(CLUSTER_ROLE_BINDINGS.collection())}


@pytest.mark.parametrize("version", ["1.20", "1.36"])
def test_before_1_32_any_certificate_of_the_nodes_name_is_good_enough_for_serving(
    version: str, make_workload_cluster: MakeWorkloadCluster, make_node: MakeNode, start: Start
) -> None:
    assert says("**API servers before 1.32** do not say which client certificate a node used.")
    cluster = make_workload_cluster(server_version=version)
    cluster.authorize("keyed-mac", builtinServingRequests="Approve")
    cluster.add_machine("worker-1", provider_id=PROVIDER_ID)
    start()
    node = make_node("worker-1", PROVIDER_ID, "keyed-mac", settings_of(PROVIDER_ID), cluster=cluster)
    cluster.submit_with_token(node.client_request("join"))
    assert cluster.wait_until_decided("join").reason == "Attested"
    # With a certificate that the built-in signer may have issued to whoever held a token.
    cluster.submit_as_node(builtin_serving_request("serving", "worker-1", ["worker-1"]), "worker-1")
    wait_until(lambda: cluster.verdict("serving").condition != "", "it is decided")
    verdict = cluster.verdict("serving")
    assert (verdict.condition, verdict.reason) == {
        "1.20": ("Approved", "Attested"),
        "1.36": ("Denied", "ForeignCredential"),
    }[version]
