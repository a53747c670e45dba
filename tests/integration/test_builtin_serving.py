"""Kubelets' own serving requests: approved on the basis of a valid record, never signed by the controller."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from attestors.wire import pem
from attestors.wire.names import ATTESTATION_PROVIDER_LABEL, CERTIFICATE_REQUEST_LABEL, CREDENTIAL_ID_KEY
from signer.controller.run import ControllerOptions
from signer.kube.resources import ATTESTED_NODES, CERTIFICATE_SIGNING_REQUESTS, MACHINES_V1BETA2
from signer.model.fields import parse_time
from signer.testing.api import User
from signer.testing.fixtures import embedded_api
from signer.testing.world import Verdict, WorldCluster
from tests.integration.fixtures import (
    CONTROLLER_USER,
    Harness,
    assert_readable,
    node_of,
    nodes_clocks_say,
    pending,
    provider_id,
    writes,
)
from tests.integration.kubelets import Kubelet, add_machine, attest, builtin_serving_request
from tests.integration.requests import approve_as_somebody_else, plant
from tests.support.journal import builtin_approvals_of

pytestmark = pytest.mark.slow

APPROVE: Final = {"builtinServingRequests": "Approve"}
AS_M: Final = ("system:node:m", ("system:nodes", "system:authenticated"))
CSRS: Final = CERTIFICATE_SIGNING_REQUESTS.collection()


def _wait_until_said(cluster: WorldCluster, csr: str) -> Verdict:
    """Wait for the approval: nothing signs here."""
    found = cluster.client().wait_for(CSRS, csr, lambda item: bool((item.get("status") or {}).get("conditions")))
    return Verdict.of(found)


def _approved(cluster: WorldCluster, csr: str) -> Verdict:
    verdict = _wait_until_said(cluster, csr)
    assert (verdict.condition, verdict.reason, verdict.certificate) == ("Approved", "Attested", b""), verdict
    assert_readable(verdict.message)
    return verdict


def _denied(cluster: WorldCluster, csr: str, reason: str) -> Verdict:
    verdict = _wait_until_said(cluster, csr)
    assert (verdict.condition, verdict.reason, verdict.certificate) == ("Denied", reason, b""), verdict
    assert_readable(verdict.message)
    return verdict


def _journaled(harness: Harness, cluster: WorldCluster, node: str = "m") -> list[str]:
    record = next(record for record in harness.records(cluster) if record["spec"]["nodeName"] == node)
    return [approval["csrName"] for approval in builtin_approvals_of(record["spec"])]


@pytest.fixture
def cluster(harness: Harness) -> WorldCluster:
    """A cluster with Machine ``m``, whose built-in serving requests are approved, under a running controller."""
    cluster = harness.cluster(policy=APPROVE)
    add_machine(cluster, "m", "192.0.2.10")
    harness.run()
    return cluster


# What is approved


def test_a_kubelets_own_request(harness: Harness, cluster: WorldCluster) -> None:
    kubelet = attest(cluster, "m")
    before, before_here = len(writes(harness.api)), len(writes(embedded_api(cluster)))
    kubelet.submit(builtin_serving_request("serving", "m", ["m", "192.0.2.10"]))
    verdict = _approved(cluster, "serving")
    assert "Machine default/m is node m" in verdict.message
    assert _journaled(harness, cluster) == ["serving"]
    record = ATTESTED_NODES.object(harness.records(cluster)[0]["metadata"]["name"], "default")
    assert [f"{entry.method} {entry.path}" for entry in writes(harness.api)[before:]] == [f"PUT {record}"]
    approval = CERTIFICATE_SIGNING_REQUESTS.object("serving", subresource="approval")
    here = writes(embedded_api(cluster))[before_here:]
    assert [f"{entry.method} {entry.path}" for entry in here] == [f"PUT {approval}"]


def test_own_names_in_upper_case(cluster: WorldCluster) -> None:
    """As written in the Node's addresses, by any client."""
    attest(cluster, "m").submit(builtin_serving_request("serving", "m", ["M", "192.0.2.10"]))
    _approved(cluster, "serving")


def test_on_an_old_api_server_that_names_no_credential(harness: Harness) -> None:
    cluster = harness.cluster(policy=APPROVE, api={"server_version": "1.20"})
    add_machine(cluster, "m")
    harness.run()
    attest(cluster, "m").submit(builtin_serving_request("serving", "m", ["m"], usages=("key encipherment", *_USAGES)))
    _approved(cluster, "serving")


_USAGES: Final = ("digital signature", "server auth")


def test_after_a_failed_approval_there_is_one_entry(harness: Harness, cluster: WorldCluster) -> None:
    kubelet = attest(cluster, "m")
    failing = embedded_api(cluster).faults.inject("PUT */serving/approval", status=503, times=2)
    lost = embedded_api(cluster).faults.inject("PUT */serving/approval", drop="after")
    kubelet.submit(builtin_serving_request("serving", "m", ["m"]))
    _approved(cluster, "serving")
    assert (failing.hits, lost.hits) == (2, 1)
    assert _journaled(harness, cluster) == ["serving"]


# What is none of ours


@pytest.mark.parametrize("policy", [{}, {"mode": "Enforce", "builtinServingRequests": "Ignore"}])
def test_left_alone_by_the_policy(harness: Harness, policy: dict[str, str]) -> None:
    cluster = harness.cluster(policy=policy)
    add_machine(cluster, "m")
    harness.run()
    kubelet = attest(cluster, "m")
    kubelet.submit(builtin_serving_request("good", "m", ["m"]))
    kubelet.submit(builtin_serving_request("smuggling", "m", ["kubernetes"]))
    plant(cluster, {**builtin_serving_request("broken", "m", ["m"]), "spec": _spec(request="LS0t")}, AS_M)
    harness.join(cluster)
    for csr in ("good", "smuggling", "broken"):
        pending(cluster, csr)
    assert _journaled(harness, cluster) == []


def _spec(**changes: Any) -> dict[str, Any]:
    return {**builtin_serving_request("x", "m", ["m"])["spec"], **changes}


@pytest.mark.parametrize("kind", ["Approved", "Denied"])
def test_decided_by_another_client(harness: Harness, kind: str) -> None:
    cluster = harness.cluster(policy=APPROVE)
    add_machine(cluster, "m")
    cluster.submit_as_node(builtin_serving_request("theirs", "m", ["kubernetes"]), "m")
    approve_as_somebody_else(cluster, "theirs", kind)
    harness.run()
    harness.join(cluster)
    verdict = cluster.verdict("theirs")
    assert (verdict.condition, verdict.reason) == (kind, "ByHand")
    assert not [entry for entry in writes(embedded_api(cluster)) if "theirs" in entry.path]


# What is not attested waits


def test_after_its_machine_is_gone(harness: Harness, cluster: WorldCluster) -> None:
    kubelet = attest(cluster, "m")
    harness.management.client.delete(MACHINES_V1BETA2.object("m", "default"))
    harness.join(cluster)  # what was deleted before is seen by now
    kubelet.submit(builtin_serving_request("serving", "m", ["m"]))
    assert "no longer exists" in harness.wait_for_event("NodeNotAttested", "workload", "Cluster")
    pending(cluster, "serving")
    assert _journaled(harness, cluster) == []


def test_when_its_machine_is_created_again(harness: Harness, cluster: WorldCluster) -> None:
    """The former node's certificate is still valid; no attestation shows that the new Machine is the same hardware."""
    former = attest(cluster, "m")
    harness.management.client.delete(MACHINES_V1BETA2.object("m", "default"))
    harness.join(cluster)  # what was deleted before is seen by now
    former.submit(builtin_serving_request("lying-in-wait", "m", ["m"]))
    harness.wait_for_event("NodeNotAttested", "workload", "Cluster")
    add_machine(cluster, "m", "192.0.2.20")
    assert "recreated" in harness.wait_for_event("NodeNotAttested", "m")
    former.submit(builtin_serving_request("of-its-address", "m", ["192.0.2.20"]))
    harness.join(cluster)
    for csr in ("lying-in-wait", "of-its-address"):
        pending(cluster, csr)
    attest(cluster, "m", "joins").submit(builtin_serving_request("serving", "m", ["192.0.2.20"]))
    _approved(cluster, "serving")


def test_while_its_machine_is_deleted(harness: Harness, cluster: WorldCluster) -> None:
    cluster.patch_machine("m", {"metadata": {"finalizers": ["test.example/hold"]}})
    kubelet = attest(cluster, "m")
    harness.management.client.delete(MACHINES_V1BETA2.object("m", "default"))
    harness.join(cluster)
    kubelet.submit(builtin_serving_request("draining", "m", ["m"]))
    _approved(cluster, "draining")
    cluster.patch_machine("m", {"metadata": {"finalizers": None}})
    harness.join(cluster)
    kubelet.submit(builtin_serving_request("serving", "m", ["m"]))
    assert "which no longer exists" in harness.wait_for_event("NodeNotAttested", "workload", "Cluster")


def test_an_insecure_record(harness: Harness) -> None:
    cluster = harness.cluster(attestors=["insecure"], policy=APPROVE)
    add_machine(cluster, "m")
    harness.run(insecure_enabled=True, insecure_namespaces=frozenset({"default"}))
    insecure = node_of(cluster, "m").but(provider="insecure", settings={"provider-id": provider_id("m")})
    cluster.submit_with_token(insecure.client_request("join"))
    certificate = cluster.wait_until_decided("join").certificate
    Kubelet(cluster, insecure, certificate).submit(builtin_serving_request("serving", "m", ["m"]))
    assert "proves nothing" in harness.wait_for_event("NodeNotAttested", "m")
    pending(cluster, "serving")


def test_a_request_older_than_the_attestation_of_its_node(harness: Harness) -> None:
    """On an old API server, where a former node of the name may have posted it; the next one is the node's own."""
    cluster = harness.cluster(policy=APPROVE, api={"server_version": "1.20"})
    add_machine(cluster, "m")
    early = cluster.submit_as_node(builtin_serving_request("early", "m", ["m"]), "m")
    harness.run()
    assert "node m has not been attested" in harness.wait_for_event("NodeNotAttested", "workload", "Cluster")
    _wait_for_another_second(early)
    kubelet = attest(cluster, "m")
    assert "before node m was attested" in harness.wait_for_event("NodeNotAttested", "m", part="before node")
    kubelet.submit(builtin_serving_request("next", "m", ["m"]))
    _approved(cluster, "next")
    pending(cluster, "early")
    assert _journaled(harness, cluster) == ["next"]


@pytest.mark.parametrize("reuse", ["AfterExpiry", "Immediate"])
def test_a_request_left_by_a_former_node_of_the_name(
    harness: Harness, reuse: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was posted with a certificate that was valid then; nothing of it is the successor's."""
    ahead = timedelta(0)
    policy = {**APPROVE, "nodeNameReuse": reuse}
    cluster = harness.cluster(policy=policy, api={"server_version": "1.20"})
    cluster.add_machine("former", provider_id=provider_id("former"), addresses=[("Hostname", "n")])
    nodes_clocks_say(lambda: datetime.now(UTC) + ahead, monkeypatch)
    harness.run(ControllerOptions(now=lambda: datetime.now(UTC) + ahead))
    former = _joined(cluster, "former")
    harness.management.client.delete(MACHINES_V1BETA2.object("former", "default"))
    harness.join(cluster)  # what was deleted before is seen by now
    lying = former.submit(builtin_serving_request("lying-in-wait", "n", ["n"]))
    assert "no longer exists" in harness.wait_for_event("NodeNotAttested", "workload", "Cluster", part="node n")
    _wait_for_another_second(lying)
    if reuse == "AfterExpiry":
        ahead = timedelta(hours=168, minutes=11)  # its certificate has run out, and the name is held no longer
    cluster.add_machine("successor", provider_id=provider_id("successor"), addresses=[("Hostname", "n")])
    _joined(cluster, "successor")
    assert "former node n" in harness.wait_for_event("NodeNotAttested", "successor", part="former node")
    pending(cluster, "lying-in-wait")
    assert _journaled(harness, cluster, "n") == []


def _joined(cluster: WorldCluster, machine: str) -> Kubelet:
    """The node ``n`` of that Machine."""
    node = node_of(cluster, machine, "n")
    cluster.submit_with_token(node.client_request(f"{machine}-joins"))
    verdict = cluster.wait_until_decided(f"{machine}-joins")
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict
    return Kubelet(cluster, node, verdict.certificate)


def _wait_for_another_second(posted: dict[str, Any]) -> None:
    """API servers date in whole seconds: requests posted from now on are newer."""
    while datetime.now(UTC) < parse_time(posted["metadata"]["creationTimestamp"]) + timedelta(seconds=1):
        time.sleep(0.02)


def test_a_paused_cluster(harness: Harness, cluster: WorldCluster) -> None:
    kubelet = attest(cluster, "m")
    cluster.patch({"spec": {"paused": True}})
    harness.join(harness.cluster("other"))
    kubelet.submit(builtin_serving_request("serving", "m", ["m"]))
    harness.wait_for_event("ClusterPaused", "m")
    pending(cluster, "serving")
    cluster.patch({"spec": {"paused": False}})
    _approved(cluster, "serving")


# Attacks


@pytest.fixture(scope="module")
def neighbourhood(shared_harness: Harness) -> Iterator[Kubelet]:
    """The attested node ``m``, in a cluster with a neighbour, under a running controller."""
    cluster = shared_harness.cluster("neighbourhood", policy=APPROVE)
    add_machine(cluster, "m", "192.0.2.10")
    add_machine(cluster, "neighbour", "192.0.2.11")
    cluster.patch({"spec": {"clusterNetwork": {"services": {"cidrBlocks": ["10.200.0.0/16"]}}}})
    shared_harness.run()
    attest(cluster, "neighbour")
    kubelet = attest(cluster, "m")
    yield kubelet
    # None of them got anything, and whoever is honest still does.
    kubelet.submit(builtin_serving_request("honest", "m", ["m", "192.0.2.10"]))
    _approved(cluster, "honest")
    assert _journaled(shared_harness, cluster) == ["honest"]


@pytest.mark.parametrize(
    "smuggled",
    [
        *("kubernetes", "kubernetes.default.svc.cluster.local", "api.default.svc", "localhost", "127.0.0.1", "::1"),
        *("control-plane.example", "10.200.0.1", "neighbour", "192.0.2.11", "::ffff:192.0.2.10", "169.254.169.254"),
        *("*.example", "*", "KUBERNETES", "M.", "unknown.example", "198.51.100.1"),
    ],
)
def test_smuggled_names(neighbourhood: Kubelet, smuggled: str) -> None:
    csr = f"smuggled-{uuid.uuid4()}"
    neighbourhood.submit(builtin_serving_request(csr, "m", ["m", "192.0.2.10", smuggled]))
    _denied(neighbourhood.cluster, csr, "InvalidSubjectAlternativeNames")


def test_no_names(neighbourhood: Kubelet) -> None:
    neighbourhood.submit(builtin_serving_request("no-names", "m", []))
    _denied(neighbourhood.cluster, "no-names", "InvalidSubjectAlternativeNames")


@pytest.mark.parametrize(
    ("node_name", "requester"),
    [
        ("neighbour", AS_M),
        ("m", ("system:node:neighbour", AS_M[1])),
        ("m", ("system:node:m", ("system:authenticated",))),
    ],
)
def test_another_nodes_name(neighbourhood: Kubelet, node_name: str, requester: tuple[str, Sequence[str]]) -> None:
    """As an API server without NodeRestriction would hold it."""
    csr = f"another-{uuid.uuid4()}"
    plant(neighbourhood.cluster, builtin_serving_request(csr, node_name, [node_name]), requester)
    _denied(neighbourhood.cluster, csr, "RequesterNotAllowed")


@pytest.mark.parametrize(
    "requester",
    [
        ("system:bootstrap:abcdef", ("system:bootstrappers", "system:nodes")),
        ("kubernetes-admin", ("system:masters", "system:nodes")),
    ],
    ids=["token", "administrator"],
)
def test_a_requester_that_is_no_node_is_ignored(neighbourhood: Kubelet, requester: tuple[str, Sequence[str]]) -> None:
    """No controller approves it automatically, and an administrator may have reasons to."""
    name, after = f"others-{uuid.uuid4()}", f"after-{uuid.uuid4()}"
    plant(neighbourhood.cluster, builtin_serving_request(name, "m", ["m"]), requester)
    neighbourhood.submit(builtin_serving_request(after, "m", ["kubernetes"]))
    _denied(neighbourhood.cluster, after, "InvalidSubjectAlternativeNames")
    pending(neighbourhood.cluster, name)


def test_a_node_without_a_record(neighbourhood: Kubelet, shared_harness: Harness) -> None:
    cluster = neighbourhood.cluster
    add_machine(cluster, "unattested", "192.0.2.12")
    cluster.submit_as_node(builtin_serving_request("unattested", "unattested", ["unattested"]), "unattested")
    message = shared_harness.wait_for_event("NodeNotAttested", "neighbourhood", "Cluster")
    assert "node unattested has not been attested" in message
    pending(cluster, "unattested")


def test_a_foreign_credential(neighbourhood: Kubelet) -> None:
    """The built-in signer once issued this certificate to the holder of the bootstrap token."""
    neighbourhood.cluster.submit_as_node(builtin_serving_request("foreign", "m", ["m"]), "m")
    _denied(neighbourhood.cluster, "foreign", "ForeignCredential")


@pytest.mark.parametrize("values", [[], ["JTI=x"], ["X509SHA256=00"], ["{own}", "{own}"], ["{own}", "JTI=x"]])
def test_another_form_of_credential(neighbourhood: Kubelet, values: list[str]) -> None:
    cluster, csr = neighbourhood.cluster, f"credential-{uuid.uuid4()}"
    probe = neighbourhood.submit(builtin_serving_request(f"probe-{csr}", "m", ["*"]))
    (own,) = probe["spec"]["extra"][CREDENTIAL_ID_KEY]
    extra = {CREDENTIAL_ID_KEY: [value.format(own=own) for value in values]}
    manifest = builtin_serving_request(csr, "m", ["m"])
    plant(cluster, {**manifest, "spec": {**manifest["spec"], "extra": extra}}, AS_M)
    _denied(cluster, csr, "ForeignCredential")


@pytest.mark.parametrize(
    "usages",
    [("digital signature", "client auth"), (*_USAGES, "client auth"), (*_USAGES, "cert sign"), (*_USAGES, "any")],
)
def test_other_usages(neighbourhood: Kubelet, usages: Sequence[str]) -> None:
    csr = f"usages-{uuid.uuid4()}"
    neighbourhood.submit(builtin_serving_request(csr, "m", ["m"], usages=usages))
    _denied(neighbourhood.cluster, csr, "InvalidUsages")


@pytest.mark.parametrize("label", [CERTIFICATE_REQUEST_LABEL, "CERTIFICATE", ATTESTATION_PROVIDER_LABEL])
def test_appended_blocks(neighbourhood: Kubelet, label: str) -> None:
    csr = f"blocks-{uuid.uuid4()}"
    neighbourhood.submit(builtin_serving_request(csr, "m", ["m"], blocks=[pem.Block(label, b"keyed-mac")]))
    _denied(neighbourhood.cluster, csr, "MalformedRequest")


# Between judgement and write


def _before_approval(cluster: WorldCluster, act: Callable[[], object]) -> None:
    """Do ``act`` once, when the controller's write of ``serving/approval`` has arrived and is not yet carried out."""
    api = embedded_api(cluster)

    def hook(method: str, path: str, user: User) -> None:
        if user.name == CONTROLLER_USER and method == "PUT" and path.endswith("/serving/approval"):
            api.on_request(None)
            act()

    api.on_request(hook)


def test_a_request_created_again_under_its_name(harness: Harness, cluster: WorldCluster) -> None:
    kubelet = attest(cluster, "m")
    api = embedded_api(cluster)
    smuggling = builtin_serving_request("serving", "m", ["m", "kubernetes"])
    user = User(AS_M[0], AS_M[1])

    def re_create() -> None:
        api.delete("certificatesigningrequests", "serving")
        api.create(smuggling, user)

    _before_approval(cluster, re_create)
    kubelet.submit(builtin_serving_request("serving", "m", ["m"]))
    _denied(cluster, "serving", "InvalidSubjectAlternativeNames")


def test_an_identical_request_created_again_is_journaled_separately(harness: Harness, cluster: WorldCluster) -> None:
    kubelet = attest(cluster, "m")
    api = embedded_api(cluster)
    manifest = builtin_serving_request("serving", "m", ["m"])
    user = User(AS_M[0], AS_M[1])

    def re_create() -> None:
        api.delete("certificatesigningrequests", "serving")
        api.create(manifest, user)

    _before_approval(cluster, re_create)
    kubelet.submit(manifest)
    _approved(cluster, "serving")
    assert _journaled(harness, cluster) == ["serving", "serving"]
    uid = cluster.client().get(CERTIFICATE_SIGNING_REQUESTS.object("serving"))["metadata"]["uid"]
    assert builtin_approvals_of(harness.records(cluster)[0]["spec"])[-1]["csrUID"] == uid
