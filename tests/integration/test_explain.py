"""``explain`` on the embedded API: it reaches the controller's decision, writes nothing, and needs only read access."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from attestors.wire import pem
from attestors.wire.names import SSH_HOST_KEYS_OID, BuiltinSigner, Purpose
from attestors.wire.node_access import NodeAccess
from attestors.wire.ssh.signatures import public_key_of
from signer.cli import explain as cli_explain
from signer.cli import main
from signer.cli.explain import NO_SETTINGS
from signer.kube.client import JsonObject
from signer.kube.resources import (
    CERTIFICATE_SIGNING_REQUESTS,
    MACHINES_V1BETA2,
    NODE_ATTESTATION_POLICIES,
    SECRETS,
)
from signer.model.cluster import WATCH_FILTER_LABEL
from signer.rules.checks import MACHINE_CHECKS, REQUEST_CHECKS
from signer.ssh.secrets import CREATED_ANNOTATION
from signer.store.controller_key import SECRET_NAME
from signer.testing.api.kubeconfig import kubeconfig_of
from signer.testing.fixtures import MakeWorkloadCluster, embedded_api
from signer.testing.nodes import SimulatedNode
from signer.testing.world import WorldCluster
from tests.documents.markdown import ROOT
from tests.documents.test_grants import as_the_service_account
from tests.integration import test_denials as denials
from tests.integration.explaining import READER, Explain, outcomes
from tests.integration.fixtures import MASTER_KEY, Harness, node_of, provider_id
from tests.integration.host_certificates import (
    ALLOWED,
    access_in,
    claim_of,
    look_often,
    principals_in,
    request_with,
    wait_for_authorities,
)
from tests.integration.requests import approve_as_somebody_else, blocks_of, manifest_of, plant
from tests.support.openssh import private_key
from tests.support.processes import wait_until
from tests.unit.signer.builders import provider_id_extension

pytestmark = pytest.mark.slow
HOST_KEY: Final = private_key("ed25519", 42)


@pytest.fixture
def cluster(harness: Harness) -> WorldCluster:
    """A cluster that no controller serves yet."""
    return harness.cluster()


def test_an_honest_request(harness: Harness, cluster: WorldCluster, explain: Explain) -> None:
    """Every check in its order, both sides of each, what would be written; and nothing is."""
    cluster.add_machine("worker-1", provider_id=provider_id("worker-1"))
    cluster.submit_with_token(node_of(cluster, "worker-1").client_request("join"))
    for api in (harness.api, embedded_api(cluster)):
        api.requests.clear()
    code, report = explain("join")
    assert (code, report["verdict"], report["reason"]) == (0, "approve", "Attested"), report
    assert {one["outcome"] for one in report["checks"]} == {"passed"}
    numbers = [one["number"] for one in report["checks"] if one["number"]]
    assert numbers == list(range(1, 38))
    names = [one["name"] for one in report["checks"]]
    for listed in (REQUEST_CHECKS, MACHINE_CHECKS):
        wanted = [check.run.__name__ for check in listed]
        assert [name for name in names if name in wanted] == wanted
    assert all(one["found"] and one["expected"] for one in report["checks"] if one["name"] != "journal"), report
    assert [re.sub("-[0-9a-f]{64}", "", one) for one in report["wouldWrite"]] == [
        "create Secret node-attestation-system/node-attestation-controller-key",
        "create IdentityReservation node-attestation-system/machine",
        "create IdentityReservation node-attestation-system/identity",
        "create AttestedNode default/workload.worker-1",
    ]
    for api in (harness.api, embedded_api(cluster)):
        assert {entry.method for entry in api.requests.matching()} == {"GET"}
        assert not [entry for entry in api.requests.matching() if entry.status == 403]
    assert cluster.verdict("join").condition == ""


def test_another_controllers_namespace(harness: Harness, cluster: WorldCluster, explain: Explain) -> None:
    """Neither reservations nor the key are there, and what was attested looks as if it never was."""
    harness.run()
    harness.join(cluster, "worker-1")
    code, report = explain("join-workload-worker-1")
    assert (code, [note for note in report["notes"] if SECRET_NAME in note]) == (0, [])
    _, report = explain("join-workload-worker-1", "--controller-namespace", "kube-system")
    (note,) = [note for note in report["notes"] if SECRET_NAME in note]
    assert note.startswith(f"Secret kube-system/{SECRET_NAME} does not exist, so no AttestedNode counts: has the")
    assert "is --controller-namespace its namespace?" in note


def test_a_plausible_request_without_a_decision(
    cluster: WorldCluster, explain: Explain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where the controller does not run: "it would be approved" alone leads nowhere."""
    cluster.add_machine("worker-1", provider_id=provider_id("worker-1"))
    cluster.submit_with_token(node_of(cluster, "worker-1").client_request("join"))
    cluster.submit_with_token(node_of(cluster, "worker-2").client_request("waits"))
    assert [note for note in explain("join")[1]["notes"] if "without an answer" in note] == [], "it has just come"
    monkeypatch.setattr(cli_explain, "_ANSWER_EXPECTED_WITHIN", timedelta())
    code, report = explain("join")
    (note,) = [note for note in report["notes"] if "without an answer" in note]
    assert (code, report["verdict"]) == (0, "approve")
    assert note.startswith(
        f"The request has waited since {report['request']['created']} without an answer. Check that the "
    )
    assert not [note for note in explain("waits")[1]["notes"] if "without an answer" in note], "it says for what"
    at = explain("join", "--at", "2126-01-01T00:00:00Z")[1]
    assert not [note for note in at["notes"] if "without an answer" in note]


def test_decided_requests_are_explained_too(harness: Harness, cluster: WorldCluster, explain: Explain) -> None:
    """The published decision, and the result of the checks now: the Machine has another name since."""
    machine = cluster.add_machine("worker-1", provider_id=provider_id("worker-1"))
    harness.run()
    cluster.submit_with_token(node_of(cluster, "worker-1", "somebody-else").client_request("wrong"))
    assert cluster.wait_until_decided("wrong").reason == "NodeNameMismatch"
    command = "node-attestation-controller explain wrong --cluster default/workload"
    assert command in harness.wait_for_event("NodeNameMismatch", "worker-1")
    code, report = explain("wrong")
    (condition,) = report["standing"]["conditions"]
    assert (code, condition["type"], condition["reason"]) == (4, "Denied", "NodeNameMismatch")
    assert (report["verdict"], report["reason"]) == ("deny", "NodeNameMismatch")
    failed = next(one for one in report["checks"] if one["outcome"] == "stopped")
    assert (failed["name"], failed["number"], failed["found"]) == ("node_name_is_the_machines", 29, "somebody-else")
    assert failed["expected"] == "worker-1 (nodeNames: Automatic)"
    assert failed["message"] == condition["message"]
    assert outcomes(report)["node_ref_agrees"] == "not reached"
    assert "kubectl describe machine --namespace default worker-1" in report["commands"]
    cluster.set_machine_status(machine, {"addresses": [{"type": "Hostname", "address": "somebody-else"}]})
    code, report = explain("wrong")
    assert (code, report["verdict"]) == (4, "approve"), "what was decided counts"
    assert report["answered"] == {"answer": "denied", "reason": "NodeNameMismatch", "message": condition["message"]}
    lines = explain.text("wrong")[1].splitlines()
    assert lines[0] == "CSR wrong of Cluster default/workload was denied (NodeNameMismatch)"
    assert lines[1].startswith("Status   Denied (NodeNameMismatch): the request is for node somebody-else")
    assert "Now      a new request with the same content would be approved (Attested)" in lines
    explain.configured = False
    code, text = explain.text("wrong")
    assert (code, text.splitlines()[0]) == (4, lines[0]), "not what this installation lacks"
    explain.configured = True
    harness.join(cluster)  # its Machine comes later: the other name is known by then
    cluster.submit_with_token(node_of(cluster, "worker-1", "somebody-else").client_request("right"))
    assert cluster.wait_until_decided("right").reason == "Attested"
    code, report = explain("right")
    assert (code, report["verdict"], report["standing"]["certificate"]) == (0, "approve", True)
    assert report["wouldWrite"] == []  # reserved and journaled
    cluster.set_machine_status(machine, {"addresses": [{"type": "Hostname", "address": "renamed"}]})
    code, report = explain("right")
    assert (code, report["verdict"], report["answered"]["answer"]) == (0, "wait", "approved")
    code, text = explain.text("right")
    assert (code, text.splitlines()[0]) == (0, "CSR right of Cluster default/workload was approved (Attested)")
    assert "Now      a new request with the same content waits (" in text
    assert "Remedy   Nothing to do: this request was approved." in text
    assert text.count("Status   Approved (Attested)") == 1
    assert "Retry" not in text


def test_with_the_controllers_own_grants(
    harness: Harness, make_workload_cluster: MakeWorkloadCluster, explain: Explain, tmp_path: Path
) -> None:
    """As its service account, with ``deploy/rbac`` in both clusters: nothing that it reads is forbidden."""
    cluster = make_workload_cluster()
    workload = embedded_api(cluster)
    workload.apply_yaml((ROOT / "deploy/rbac/workload.yaml").read_text())
    harness.api.apply_yaml((ROOT / "deploy/rbac/management.yaml").read_text())
    cluster.put_secret("kubeconfig", {"value": workload.kubeconfig("w", "node-attestation-controller", ()).encode()})
    cluster.authorize("keyed-mac")
    machine = cluster.add_machine("worker-1", provider_id=provider_id("worker-1"))
    cluster.add_kubeadm_config("worker-1", "abcdef.0123456789abcdef", machine)
    plant(cluster, node_of(cluster, "worker-1").client_request("join"))
    explain.kubeconfig.write_text(kubeconfig_of(as_the_service_account(harness.api), "management"))
    for api in (harness.api, workload):
        api.requests.clear()
    code, report = explain("join")
    assert (code, report["verdict"]) == (0, "approve"), explain.error
    token = next(one for one in report["checks"] if one["name"] == "token")
    assert token["found"] == "made for Machine default/worker-1"
    for api in (harness.api, workload):
        assert {(entry.method, entry.status) for entry in api.requests.matching()} <= {("GET", 200), ("GET", 404)}


def test_from_a_file_and_from_standard_input(
    harness: Harness, cluster: WorldCluster, explain: Explain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.submit_with_token(node_of(cluster, "worker-1").client_request("join"))
    manifest = cluster.client().get(CERTIFICATE_SIGNING_REQUESTS.object("join"))
    file = tmp_path / "csr.yaml"
    file.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": [manifest]}))
    code, report = explain(str(file))
    assert (code, report["reason"], report["request"]["name"]) == (5, "MachineNotFound", "join")
    assert report["retryAfterSeconds"] == 300
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(manifest).encode())))
    assert explain("-")[1]["reason"] == "MachineNotFound"


def test_output_for_people(harness: Harness, cluster: WorldCluster, explain: Explain) -> None:
    cluster.submit_with_token(node_of(cluster, "worker-1").client_request("join"))
    code, text = explain.text("join")
    assert code == 5
    assert text.splitlines()[0] == "CSR join of Cluster default/workload waits (MachineNotFound)"
    assert text.splitlines()[1] == "Check    ✗ one Machine has the claimed provider ID"
    assert "✓" not in text, "only what stops the request"
    assert "✓" in explain.text("join", "--all")[1]
    assert "Wait for the infrastructure provider to set Machine.spec.providerID" in text
    assert "kubectl get machines,machinepools --namespace default" in text
    assert "\x1b" not in text  # not a terminal
    assert explain.error == ""


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("join", "--cluster", "work"), 1, "Cluster default/work does not exist: there is default/workload\n"),
        (
            ("join", "--cluster", "team-b/workload"),
            1,
            "Cluster team-b/workload does not exist: there is default/workload",
        ),
        (
            ("join", "--cluster", "default/other"),
            1,
            "Cluster default/other does not exist: there is default/workload; `",
        ),
        (("nobody",), 1, "CSR nobody of Cluster default/workload does not exist: `kubectl get csr` in the workload"),
        (("../secrets",), 2, "../secrets"),
        (("a%2fb",), 2, "must not contain"),
        (("n" * 300,), 2, "CSR: an object name has at most 253 characters"),
    ],
)
def test_requests_that_cannot_be_explained(
    cluster: WorldCluster, explain: Explain, arguments: tuple[str, ...], code: int, said: str
) -> None:
    assert explain.text(*arguments)[0] == code
    assert said in explain.error


@pytest.mark.parametrize("who", ["nobody", "nothing listens"])
def test_it_names_the_cluster_that_does_not_respond(
    harness: Harness, cluster: WorldCluster, explain: Explain, who: str
) -> None:
    """Otherwise an unreachable management cluster would look like a missing Cluster."""
    without_grants = harness.api.kubeconfig("management", "nobody", ())
    away = without_grants.replace(harness.api.server, "https://127.0.0.1:1")
    explain.kubeconfig.write_text(without_grants if who == "nobody" else away)
    assert explain.text("join")[0] == 1
    assert explain.error.startswith("node-attestation-controller: the management cluster: ")


def test_the_workload_clusters_own_kubeconfig(cluster: WorldCluster, explain: Explain) -> None:
    """A context too far: it has no Clusters at all, which is not that Cluster's Secret missing."""
    explain.kubeconfig.write_text(embedded_api(cluster).kubeconfig("workload", "admin", ("system:masters",)))
    assert explain.text("join")[0] == 1
    assert "it serves neither cluster.x-k8s.io/v1beta2 nor v1beta1: install Cluster API there, or name" in explain.error


NO_SECRETS: Final = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: no-secrets}
rules:
  - {apiGroups: [cluster.x-k8s.io], resources: ["*"], verbs: [get, list]}
  - {nonResourceURLs: ["*"], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: no-secrets}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: no-secrets}
subjects: [{kind: User, apiGroup: rbac.authorization.k8s.io, name: nobody}]
"""


def test_a_missing_grant_for_the_kubeconfig_is_named(harness: Harness, cluster: WorldCluster, explain: Explain) -> None:
    """In either cluster: the caller's in one, the kubeconfig's user's in the other."""
    harness.api.apply_yaml(NO_SECRETS)
    reader = explain.kubeconfig.read_text()
    explain.kubeconfig.write_text(harness.api.kubeconfig("management", "nobody", ()))
    assert explain.text("join")[0] == 1
    assert "cannot be read in the management cluster: 403" in explain.error
    assert "grant that to the user of --kubeconfig" in explain.error
    explain.kubeconfig.write_text(reader)
    cluster.put_secret("kubeconfig", {"value": embedded_api(cluster).kubeconfig("w", "nobody", ()).encode()})
    assert explain.text("join")[0] == 1
    assert "grant that to the user of Secret default/workload-kubeconfig" in explain.error


def test_a_request_in_a_file_of_no_such_cluster(cluster: WorldCluster, explain: Explain, tmp_path: Path) -> None:
    path = tmp_path / "csr.yaml"
    path.write_text(yaml.safe_dump(manifest_of("join", b"".join(blocks_of(node_of(cluster, "worker-1"))))))
    assert explain.text(str(path), cluster="default/workloads")[0] == 1
    assert "Cluster default/workloads does not exist: there is default/workload" in explain.error


def test_a_cluster_whose_kubeconfig_is_gone(cluster: WorldCluster, explain: Explain) -> None:
    cluster.delete_secret("kubeconfig")
    assert explain.text("join")[0] == 1
    assert "Cluster default/workload: Secret default/workload-kubeconfig does not exist" in explain.error


def test_signers_of_others(cluster: WorldCluster, explain: Explain) -> None:
    request = b"".join(blocks_of(node_of(cluster, "worker-1")))
    cluster.submit_with_token(manifest_of("other", request, "example.com/signer"))
    code, report = explain("other")
    assert (code, report["verdict"], report["checks"]) == (6, "not ours", [])
    assert "example.com/signer" in report["message"]


@pytest.mark.parametrize("mode", ["Observe", "Enforce"])
def test_the_built_in_client_signer(harness: Harness, explain: Explain, mode: str) -> None:
    """It is no unknown signer: the mode tells what becomes of its requests."""
    cluster = harness.cluster(policy={"mode": mode})
    request = b"".join(blocks_of(node_of(cluster, "worker-1")))
    plant(cluster, manifest_of("joins", request, BuiltinSigner.KUBELET_CLIENT.value))
    code, report = explain("joins")
    assert (code, report["verdict"], report["checks"]) == (6, "not ours", [])
    said = report["message"]
    assert said.startswith("kubernetes.io/kube-apiserver-client-kubelet is the built-in signer of kubelets' client")
    assert ("kube-controller-manager decides them by kubeadm's auto-approval bindings" in said) is (mode == "Observe")
    assert ("they stay Pending. The policy's condition AutoApprovalRemoved says" in said) is (mode == "Enforce")
    assert "install kubelet-authenticator on it (docs/node.md)" in report["remedy"]
    assert report["documentation"].endswith("/node/")
    assert (ROOT / "docs/node.md").is_file()
    if mode == "Observe":
        assert report["remedy"].startswith("Nothing to do under Observe.")
        harness.management.client.delete(NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace))
        assert explain("joins")[1]["remedy"].startswith("Under mode Enforce: If a node of yours sent")
        return
    for username, otherwise in (
        ("system:bootstrap:gm1siz", "deleting Secret kube-system/bootstrap-token-gm1siz in the workload cluster."),
        ("system:node:worker-1", "somebody has the client certificate of node worker-1: treat that node as"),
        ("\x1b[31m", "find out what posts requests as \\x1b[31m."),
    ):
        name = f"of-{len(username)}"
        plant(cluster, manifest_of(name, request, BuiltinSigner.KUBELET_CLIENT.value), (username, ()))
        assert otherwise in explain(name)[1]["remedy"]


def test_the_cluster_is_one_of_the_namespace(cluster: WorldCluster, explain: Explain) -> None:
    assert explain.text("join", "--namespace", "elsewhere", cluster="workload")[0] == 1
    assert "Cluster elsewhere/workload does not exist: there is default/workload" in explain.error


def test_a_missing_configuration_is_reported(cluster: WorldCluster, explain: Explain) -> None:
    """The command that an Event names has no ``--config``: its answer may be another one than the controller's."""
    cluster.submit_with_token(node_of(cluster, "worker-1").client_request("join"))
    assert NO_SETTINGS not in explain("join")[1]["notes"]
    explain.configured = False
    assert NO_SETTINGS in explain("join")[1]["notes"]


def test_a_cluster_that_the_controller_does_not_serve(cluster: WorldCluster, explain: Explain) -> None:
    cluster.add_machine("worker-1", provider_id=provider_id("worker-1"))
    cluster.submit_with_token(node_of(cluster, "worker-1").client_request("join"))
    code, report = explain("join", "--watch-filter", "blue")
    assert (code, report["verdict"], report["checks"]) == (6, "not ours", [])
    assert "label cluster.x-k8s.io/watch-filter is not blue" in report["message"]
    cluster.patch({"metadata": {"labels": {WATCH_FILTER_LABEL: "blue"}}})
    assert explain("join", "--watch-filter", "blue")[1]["verdict"] == "approve"
    code, report = explain("join", "--namespace", "elsewhere")
    assert (code, report["message"]) == (6, "Cluster default/workload is not served: --namespace is elsewhere")


def test_a_request_that_the_controller_does_not_keep(cluster: WorldCluster, explain: Explain) -> None:
    """A hostile API server's: its checks are never reached."""
    cluster.add_machine("worker-1", provider_id=provider_id("worker-1"))
    manifest = node_of(cluster, "worker-1").client_request("join")
    manifest["spec"]["extra"] = {"much": ["x" * 300_000]}
    plant(cluster, manifest)
    code, report = explain("join")
    assert (code, report["verdict"]) == (6, "not ours")
    assert "it is ignored: spec and conditions take more than" in report["message"]


def test_a_request_approved_by_another_client(harness: Harness, cluster: WorldCluster, explain: Explain) -> None:
    cluster.add_machine("worker-1", provider_id=provider_id("worker-1"))
    cluster.submit_with_token(node_of(cluster, "worker-1").client_request("join"))
    approve_as_somebody_else(cluster, "join")
    code, report = explain("join")
    assert (code, report["verdict"], report["reason"]) == (4, "fail", "ApprovedByOthers")
    assert outcomes(report)["approved_before"] == "stopped"
    harness.run()
    verdict = cluster.wait_until_decided("join")
    assert (verdict.condition, verdict.reason, verdict.message) == ("Failed", report["reason"], report["message"])
    code, text = explain.text("join")
    assert (code, text.splitlines()[0]) == (
        4,
        "CSR join of Cluster default/workload was marked as failed (ApprovedByOthers)",
    )


def test_a_request_that_was_approved_under_a_key_of_nobody(
    harness: Harness, cluster: WorldCluster, explain: Explain
) -> None:
    """The key is read after the request: nothing has to be waited for."""
    cluster.add_machine("worker-1", provider_id=provider_id("worker-1"))
    cluster.submit_with_token(node_of(cluster, "worker-1").client_request("join"))
    approve_as_somebody_else(cluster, "join", seal=f"v2.{'0' * 16}.{'0' * 64}")
    code, report = explain("join")
    assert (code, report["verdict"], report["reason"]) == (4, "fail", "ApprovedByOthers")


# The same end as the controller's

Make = Callable[[WorldCluster, SimulatedNode, str], Any]


def _forged(cluster: WorldCluster, node: SimulatedNode, csr: str) -> None:
    request = b"".join(blocks_of(node, denials._der(node, provider_id_extension(b"\x0c\x00"))))
    plant(cluster, manifest_of(csr, request))


def _replayed(cluster: WorldCluster, node: SimulatedNode, csr: str) -> None:
    honest = node_of(cluster, node.node_name)
    cluster.submit_with_token(node.client_request(csr, evidence_of=honest.evidence()))


def _deleting(cluster: WorldCluster, node: SimulatedNode, csr: str) -> None:
    cluster.patch_machine(node.node_name, {"metadata": {"finalizers": ["machine.cluster.x-k8s.io"]}})
    cluster.management.client.delete(MACHINES_V1BETA2.object(node.node_name, cluster.namespace))
    # A Machine that comes later: whoever knows of it knows of the deletion.
    cluster.add_machine("later", provider_id=provider_id("later"))
    cluster.submit_with_token(node_of(cluster, "later").client_request("join-later"))
    assert cluster.wait_until_decided("join-later").condition == "Approved"
    cluster.submit_with_token(node.client_request(csr))


def _malformed(snapshot: str) -> Make:
    return lambda cluster, node, csr: plant(cluster, manifest_of(csr, denials.MALFORMED[snapshot](node)))


def _provider_id(snapshot: str) -> Make:
    def make(cluster: WorldCluster, node: SimulatedNode, csr: str) -> JsonObject:
        return plant(cluster, manifest_of(csr, b"".join(blocks_of(node, denials.PROVIDER_IDS[snapshot](node)))))

    return make


def _requester(snapshot: str) -> Make:
    def make(cluster: WorldCluster, node: SimulatedNode, csr: str) -> JsonObject:
        username, groups = denials.REQUESTERS[snapshot]
        return plant(cluster, node.client_request(csr), (username.format(machine=node.node_name), groups))

    return make


def _evidence(data: bytes) -> Make:
    def make(cluster: WorldCluster, node: SimulatedNode, csr: str) -> JsonObject:
        request, provider, _ = blocks_of(node)
        block = pem.encode(pem.Block("KUBELET AUTHENTICATOR ATTESTATION DATA", data))
        return plant(cluster, manifest_of(csr, request + provider + block))

    return make


ATTACKS: Final[dict[str, Make]] = {
    **{
        f"malformed {snapshot}": _malformed(snapshot)
        for snapshot in denials.MALFORMED
        if snapshot != denials.NOT_BASE64
    },
    **{f"provider ID {snapshot}": _provider_id(snapshot) for snapshot in denials.PROVIDER_IDS},
    **{f"requester {snapshot}": _requester(snapshot) for snapshot in denials.REQUESTERS},
    "evidence unknown version": _evidence(b'{"version":"v99","caCertHash":"sha256:' + b"0" * 64 + b'"}'),
    "evidence twice a key": _evidence(b'{"version":"v1","version":"v1"}'),
    "forged": _forged,
    "replayed": _replayed,
    "other purpose": lambda cluster, node, csr: cluster.submit_with_token(
        node.client_request(csr, evidence_of=node.evidence(Purpose.SERVING))
    ),
    "other cluster": lambda cluster, node, csr: cluster.submit_with_token(
        node.but(ca_cert_hash="sha256:" + "0" * 64).client_request(csr)
    ),
    "other name": lambda cluster, node, csr: cluster.submit_with_token(
        node_of(cluster, node.node_name, "victim").client_request(csr)
    ),
    "insecure": lambda cluster, node, csr: cluster.submit_with_token(
        SimulatedNode(node.node_name, node.provider_id, cluster.ca_cert_hash, "insecure").client_request(csr)
    ),
    "deleting": _deleting,
    "honest": lambda cluster, node, csr: cluster.submit_with_token(node.client_request(csr)),
}
HOSTILE: Final = ("requester hostile text", "malformed text behind", "provider ID control characters", "replayed")
VERDICTS: Final = {"Approved": "approve", "Denied": "deny"}


@pytest.fixture(scope="module")
def attacked(shared_harness: Harness) -> WorldCluster:
    """One cluster for all attacks, each with a Machine of its own."""
    cluster = shared_harness.cluster()
    cluster.add_machine("victim", provider_id=provider_id("victim"))
    for number in range(len(ATTACKS)):
        cluster.add_machine(f"machine-{number}", provider_id=provider_id(f"machine-{number}"))
    shared_harness.run()
    return cluster


@pytest.mark.parametrize("snapshot", ATTACKS)
def test_it_ends_as_the_controller_decides(
    shared_harness: Harness, attacked: WorldCluster, snapshot: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = f"machine-{list(ATTACKS).index(snapshot)}"
    csr = f"attack-{machine}"
    ATTACKS[snapshot](attacked, node_of(attacked, machine), csr)
    verdict = attacked.wait_until_decided(csr)
    explain = Explain(shared_harness, tmp_path, capsys)
    code, report = explain(csr)
    said = (report["verdict"], report["reason"], report["message"])
    assert said == (VERDICTS[verdict.condition], verdict.reason, verdict.message), snapshot
    assert code == (0 if verdict.condition == "Approved" else 4)
    stopped = [one for one in report["checks"] if one["outcome"] == "stopped"]
    assert len(stopped) == (0 if verdict.condition == "Approved" else 1), report["checks"]
    if snapshot in HOSTILE:
        text = explain.text(csr, "--all")[1]
        assert text.replace("\n", "").isprintable()
        assert MASTER_KEY.hex() not in text


DEFERRED: Final[dict[str, tuple[str, Callable[[WorldCluster, str], Any]]]] = {
    "no Machine": ("MachineNotFound", lambda cluster, name: None),
    "two Machines": (
        "MachineAmbiguous",
        lambda cluster, name: [
            cluster.add_machine(one, provider_id=provider_id(name)) for one in (name, f"{name}-twin")
        ],
    ),
    "paused Machine": (
        "MachinePaused",
        lambda cluster, name: [
            cluster.add_machine(name, provider_id=provider_id(name)),
            cluster.patch_machine(name, {"metadata": {"annotations": {"cluster.x-k8s.io/paused": ""}}}),
        ],
    ),
    "no bootstrap data": (
        "MachineNotReady",
        lambda cluster, name: cluster.add_machine(name, provider_id=provider_id(name), bootstrap_ready=False),
    ),
    "nodeRef": (
        "NodeRefDisagrees",
        lambda cluster, name: cluster.set_machine_status(
            cluster.add_machine(name, provider_id=provider_id(name)), {"nodeRef": {"name": "another"}}
        ),
    ),
}


@pytest.mark.parametrize("snapshot", DEFERRED)
def test_it_waits_for_the_same_data_as_the_controller(
    shared_harness: Harness, attacked: WorldCluster, snapshot: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reason, prepare = DEFERRED[snapshot]
    machine = f"waiting-{list(DEFERRED).index(snapshot)}"
    prepare(attacked, machine)
    shared_harness.join(attacked)  # its Machine comes later: all of this is known by then
    attacked.submit_with_token(node_of(attacked, machine).client_request(machine))
    code, report = Explain(shared_harness, tmp_path, capsys)(machine)
    assert (code, report["verdict"], report["reason"]) == (5, "wait", reason)

    def said() -> bool:
        events = shared_harness.management.client.items("/api/v1/namespaces/default/events")
        return any(one["reason"] == reason and report["message"] in one["message"] for one in events)

    wait_until(said, f"the controller says {reason}, too")


def test_an_invalid_policy(harness: Harness, cluster: WorldCluster, explain: Explain) -> None:
    cluster.submit_with_token(node_of(cluster, "worker-1").client_request("join"))
    path = NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
    harness.management.client.delete(path)
    code, report = explain("join")
    assert (code, report["reason"]) == (5, "PolicyInvalid")
    assert report["message"].startswith("there is no NodeAttestationPolicy default/workload")
    assert outcomes(report)["policy"] == "stopped"


# Host keys of sshd


@pytest.fixture
def ssh(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> WorldCluster:
    """A cluster whose policy turns SSH on, and whose authorities may sign."""
    look_often(monkeypatch)
    cluster = harness.cluster(policy={"ssh": {}})
    harness.run(ssh=ALLOWED)
    wait_for_authorities(cluster)
    return cluster


def asked(cluster: WorldCluster, name: str, value: bytes | None = None) -> SimulatedNode:
    """A request with a host key was decided."""
    cluster.add_machine(name, provider_id=provider_id(name))
    node = node_of(cluster, name)
    cluster.submit_with_token(request_with(node, name, claim_of(node, HOST_KEY) if value is None else value))
    assert cluster.wait_until_decided(name).reason == "Attested"
    return node


def test_host_certificates_as_the_controller_issues_them(ssh: WorldCluster, harness: Harness, explain: Explain) -> None:
    """The names, the end and the authority; without a Secret of an authority."""
    asked(ssh, "worker-1")
    harness.api.requests.clear()
    code, report = explain("worker-1")
    assert (code, report["verdict"]) == (0, "approve")
    found = report["hostCertificates"]
    access = access_in(ssh.verdict("worker-1"))
    assert isinstance(access, NodeAccess)
    assert found["answer"] == "issued"
    assert found["principals"] == principals_in(access)
    assert found["hostKeys"] == [public_key_of(HOST_KEY).fingerprint]
    assert found["authority"] == access.trust.host_authorities[0].fingerprint
    assert "host certificates for SHA256:" in " ".join(explain.text("worker-1")[1].split())
    assert not [one for one in harness.api.requests.matching() if one.user == READER and "-ssh-" in one.path]
    assert [one for one in harness.api.requests.matching() if one.user == READER]
    asked(ssh, "worker-3", b"no DER")
    assert explain("worker-3")[1]["hostCertificates"]["reason"] == "HostKeysMalformed"
    harness.join(ssh, "worker-9")
    assert explain("join-workload-worker-9")[1]["hostCertificates"] is None


def test_host_keys_that_the_controller_refuses(
    ssh: WorldCluster, explain: Explain, harness: Harness, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The same reason and message as its Event; and again from a recording, though the key is another cluster's."""
    other = harness.cluster("other", policy={"ssh": {}})
    wait_for_authorities(other)
    asked(other, "worker-1")
    asked(ssh, "worker-2")
    message = harness.wait_for_event("HostCertificatesRefused", "worker-2", part="HostKeyInUse: ")
    recording = tmp_path / "recording.yaml"
    code, report = explain("worker-2", "--record", str(recording))
    found = report["hostCertificates"]
    assert (code, found["answer"], found["reason"]) == (0, "refused", "HostKeyInUse")
    assert found["message"] in message
    assert "no host certificates (HostKeyInUse)" in " ".join(explain.text("worker-2")[1].split())
    capsys.readouterr()
    main(["explain", "worker-2", "--objects", str(recording), "--config", str(explain.config), "--output", "json"])
    assert json.loads(capsys.readouterr().out)["hostCertificates"] == found


def test_authorities_that_the_controller_does_not_offer(
    ssh: WorldCluster, harness: Harness, explain: Explain, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(ssh, "worker-1")
    path = SECRETS.object(f"{ssh.name}-ssh-host", ssh.namespace)
    ssh.management.client.patch(path, {"metadata": {"annotations": {CREATED_ANNOTATION: "2020-01-01T00:00:00Z"}}})
    harness.wait_for_condition(ssh, "SSHAuthoritiesAvailable", "False")
    found = explain("worker-1")[1]["hostCertificates"]
    assert (found["answer"], found["reason"]) == ("refused", "AuthoritiesNotAvailable")
    assert "condition SSHAuthoritiesAvailable: EditedAuthority: " in found["message"]


def test_where_no_controller_has_looked(harness: Harness, explain: Explain) -> None:
    cluster = harness.cluster(policy={"ssh": {}})
    cluster.add_machine("worker-1", provider_id=provider_id("worker-1"))
    node = node_of(cluster, "worker-1")
    cluster.submit_with_token(request_with(node, "asks", claim_of(node, HOST_KEY)))
    found = explain("asks")[1]["hostCertificates"]
    assert found["message"] == "condition SSHAuthoritiesAvailable: the policy's status lacks it"


def test_another_oid_of_host_keys(
    harness: Harness,
    explain: Explain,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Both sides alike: the controller reads what it is configured to, and ``explain`` with the same flag."""
    look_often(monkeypatch)
    cluster = harness.cluster(policy={"ssh": {}})
    harness.run(ssh=ALLOWED, host_keys_oids=("1.2.3.4", "1.2.3.5"))
    wait_for_authorities(cluster)
    for name, oid in (("first", "1.2.3.4"), ("second", "1.2.3.5"), ("default", SSH_HOST_KEYS_OID)):
        cluster.add_machine(name, provider_id=provider_id(name))
        node = node_of(cluster, name)
        key = private_key("ed25519", len(name))
        cluster.submit_with_token(request_with(node, name, claim_of(node, key), oid=oid))
        assert isinstance(access_in(cluster.wait_until_decided(name)), NodeAccess) is (oid != SSH_HOST_KEYS_OID)
        flags = ("--ssh-host-keys-oids", "1.2.3.4,1.2.3.5")
        recording = tmp_path / f"{name}.yaml"
        found = explain(name, *flags, "--record", str(recording))[1]["hostCertificates"]
        assert (found is not None and found["answer"] == "issued") is (oid != SSH_HOST_KEYS_OID)
        assert (explain(name)[1]["hostCertificates"] is None) is (oid != SSH_HOST_KEYS_OID)
        capsys.readouterr()
        main(["explain", name, "--objects", str(recording), "--config", str(explain.config), "--output", "json"])
        assert json.loads(capsys.readouterr().out)["hostCertificates"] == found, "the recording has the OIDs"
    harness.assert_audited()
