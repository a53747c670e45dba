"""``preflight`` before and after a cluster is enforced, on the program's own command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from signer.cli import main
from signer.kube.resources import CLUSTER_ROLE_BINDINGS, CLUSTER_ROLES, NODE_ATTESTATION_POLICIES, SECRETS
from signer.model.auto_approval import ApprovalSubresource
from signer.store.controller_key import SECRET_NAME
from signer.testing.api.kubeconfig import kubeconfig_of
from signer.testing.certificates import EncryptionAlgorithm, new_cluster_certificate_authority
from signer.testing.fixtures import embedded_api
from signer.testing.world import CONTROLLER_NAMESPACE, WorldCluster
from tests.integration.fixtures import Harness, provider_id

pytestmark = pytest.mark.slow

WORKLOAD_USER = "node-attestation-controller"
WORKLOAD_RIGHTS = Path(__file__).parents[2] / "deploy/rbac/workload.yaml"
RBAC = "rbac.authorization.k8s.io"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(harness: Harness, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the command; returns its exit code and what it wrote to either stream."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(harness.api.kubeconfig())

    def preflight(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["preflight", *arguments, "--kubeconfig", str(kubeconfig)])
        written = capsys.readouterr()
        return code, written.out, written.err

    return preflight


@pytest.fixture
def cluster(harness: Harness) -> WorldCluster:
    """A cluster with kubeadm's grants, under Observe; one Machine is attested."""
    cluster = harness.cluster(api={"seed_kubeadm": True})
    harness.run()
    harness.join(cluster, "attested")
    return cluster


def found(run: Run, *arguments: str) -> tuple[int, dict[str, Any]]:
    code, output, _ = run(*arguments, "--output", "json")
    return code, json.loads(output)


def bind(cluster: WorldCluster, name: str, subject: dict[str, str], *subresources: str) -> None:
    """A ClusterRole that may do more than approve, and its binding."""
    rules = [
        {"apiGroups": ["certificates.k8s.io"], "resources": list(subresources), "verbs": ["create"]},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]},
    ]
    role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules}
    cluster.client().create(CLUSTER_ROLES.collection(), role)
    binding = {
        "apiVersion": f"{RBAC}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": RBAC, **subject}],
    }
    cluster.client().create(CLUSTER_ROLE_BINDINGS.collection(), binding)


def kubeconfig_to_nobody(cluster: WorldCluster) -> bytes:
    """The cluster's kubeconfig, with a port on which nothing listens."""
    return cluster.api.kubeconfig().replace(embedded_api(cluster).server, "https://127.0.0.1:1").encode()


def test_a_cluster_that_is_ready(harness: Harness, cluster: WorldCluster, run: Run) -> None:
    code, report = found(run, "workload")
    assert (code, report["ready"], report["mode"]) == (0, True, "Observe")
    assert [(one["name"], one["attested"], one["node"]) for one in report["machines"]] == [
        ("attested", True, "attested")
    ]
    removable = {one["clusterRoleBinding"] for one in report["grants"] if one["enforceRemovesIt"]}
    assert removable == {"kubeadm:node-autoapprove-bootstrap", "kubeadm:node-autoapprove-certificate-rotation"}
    assert {one["subresource"] for one in report["openings"]} == {"nodeclient", "selfnodeclient"}
    assert report["steps"] == ["Set spec.mode to Enforce."]
    code, text, _ = run("default/workload")
    assert code == 0
    assert "Ready for Enforce" in text
    assert "ClusterRoleBinding kubeadm:node-autoapprove-certificate-rotation" in text
    path = NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
    harness.management.client.patch(path, {"spec": {"mode": "Enforce"}})
    harness.wait_for_condition(cluster, "AutoApprovalRemoved", "True")
    code, report = found(run, "workload")
    assert (code, report["mode"], report["openings"], report["steps"]) == (0, "Enforce", [], [])
    assert "Enforced, with no problems" in run("workload")[1]


def test_nodes_that_would_lose_renewal(cluster: WorldCluster, run: Run) -> None:
    cluster.add_machine("older", provider_id=provider_id("older"))
    cluster.add_machine("starting")
    cluster.add_machine_pool("pool", "test:///instance-1")
    cluster.client().create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "stray"}})
    code, report = found(run, "workload")
    assert (code, report["ready"], report["unknownNodes"]) == (3, False, ["stray"])
    assert {(one["name"], one["providerID"]): one["why"] for one in report["machines"] if not one["attested"]} == {
        ("older", "test:///older"): "has no AttestedNode that counts",
        ("starting", ""): "",
        ("pool", "test:///instance-1"): "has no AttestedNode that counts",
    }
    code, text, _ = run("workload")
    assert code == 3
    assert "has no AttestedNode that counts" in text
    assert "1. Attest the nodes of the Machines that are not attested (2)" in text
    assert max(map(len, text.splitlines())) > 80, "it is no terminal, and nothing is folded to one's width"
    assert "2. Check the Nodes that match no Machine (1)" in text


def test_nodes_attested_by_an_attestor_that_would_be_denied_now(
    harness: Harness, cluster: WorldCluster, run: Run, tmp_path: Path
) -> None:
    config = tmp_path / "attestors.yaml"
    config.write_text("attestors: {keyed-mac: {namespaces: [team-b]}}")
    code, report = found(run, "workload", "--config", str(config))
    assert code == 3
    assert [note for note in report["notes"] if "administrator's kubeconfig" not in note] == []
    assert [one["why"] for one in report["machines"]] == [
        "was attested by keyed-mac, which this controller no longer allows here"
    ]
    config.write_text("attestors: {keyed-mac: {namespaces: [default]}}")
    assert found(run, "workload", "--config", str(config))[0] == 0
    code, report = found(run, "workload")
    assert code == 0
    assert "Without --config, this command allows every installed attestor" in report["notes"][0]
    path = NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
    harness.management.client.patch(path, {"spec": {"authorizedAttestors": [{"name": "tpm"}]}})
    code, report = found(run, "workload")
    assert code == 3
    assert [one["why"] for one in report["machines"]] == [
        "was attested by keyed-mac, which the policy no longer authorizes"
    ]
    assert any("with an attestor that the policy authorizes" in step for step in report["steps"])


def test_groups_of_bootstrap_tokens_that_cannot_be_read(cluster: WorldCluster, run: Run) -> None:
    embedded_api(cluster).faults.inject("GET */namespaces/kube-system/secrets", status=403, times=None)
    notes = found(run, "workload")[1]["notes"]
    (note,) = (note for note in notes if note.startswith("Groups of bootstrap tokens were not checked: "))
    assert "a kubeconfig of workload-kubeconfig --bootstrap-tokens" in note


def test_an_attestor_for_which_the_controller_may_not_sign(cluster: WorldCluster, run: Run) -> None:
    """It was authorized after the restricted kubeconfig had been made. Nothing else is to be done first."""
    api, rights = embedded_api(cluster), WORKLOAD_RIGHTS.read_text(encoding="utf-8")
    api.apply_yaml(rights.replace("keyed-mac", "tpm"))
    cluster.put_secret("kubeconfig", {"value": api.kubeconfig(cluster.name, WORKLOAD_USER, ()).encode()})
    code, report = found(run, "workload")
    assert (code, report["ready"]) == (3, False)
    assert report["missingSignerRights"] == [{"attestor": "keyed-mac", "verbs": ["approve", "sign"]}]
    code, text, _ = run("workload")
    assert code == 3
    assert "1. The controller may not approve and sign for the signers of attestor keyed-mac in the workload cl" in text
    assert f"repeat node-attestation-controller workload-kubeconfig {cluster.key} with" in text
    api.apply_yaml(rights)
    code, report = found(run, "workload")
    assert (code, report["ready"], report["missingSignerRights"]) == (0, True, [])


def test_where_the_policy_is_below_the_operators_floors(
    harness: Harness, cluster: WorldCluster, run: Run, tmp_path: Path
) -> None:
    config = tmp_path / "attestors.yaml"
    floor = "{namespaces: [default], mode: Enforce, maximumDurations: {client: 24h}}"
    config.write_text(f"attestors: {{keyed-mac: {{}}, tpm: {{}}}}\nfloors: [{floor}]")
    code, report = found(run, "workload", "--config", str(config))
    assert (code, report["mode"], report["steps"]) == (0, "Enforce", [])
    assert report["belowFloors"] == [
        {"field": "spec.mode", "stated": "Observe", "inForce": "Enforce"},
        {"field": "spec.certificates.clientDuration", "stated": "168h", "inForce": "24h"},
    ]
    text = " ".join(run("workload", "--config", str(config))[1].split())
    assert "Below the operator's floors: spec.mode is Observe, in force is Enforce" in text
    floor = "{namespaces: [default], requiredAttestors: {controlPlane: {anyOf: [tpm]}}}"
    config.write_text(f"attestors: {{keyed-mac: {{}}, tpm: {{}}}}\nfloors: [{floor}]")
    code, report = found(run, "workload", "--config", str(config))
    assert (code, report["ready"]) == (3, False)
    assert [one["attested"] for one in report["machines"]] == [True]
    assert report["steps"] == ["Authorize tpm for control planes in the policy: the operator's floor accepts no other."]
    assert found(run, "workload")[1]["belowFloors"] == []


def test_auto_approval_that_enforce_would_leave(cluster: WorldCluster, run: Run) -> None:
    group = {"kind": "Group", "name": "system:bootstrappers"}
    bind(cluster, "wide", group, "certificatesigningrequests/nodeclient")
    code, report = found(run, "workload")
    assert (code, report["ready"]) == (3, False)
    (step,) = report["steps"]
    assert "certificatesigningrequests/nodeclient from" in step
    assert "ClusterRoleBinding wide, which Enforce does not remove" in step
    (grant,) = [one for one in report["grants"] if one["clusterRoleBinding"] == "wide"]
    assert (grant["enforceRemovesIt"], grant["why"]) == (False, "its ClusterRole grants more than that")
    assert "Enforce keeps it: its ClusterRole grants more than that" in " ".join(run("workload")[1].split())


@pytest.mark.parametrize("loses", [True, False], ids=["somebody would lose renewal", "nobody would"])
def test_a_binding_of_both_roles_is_split_if_renewal_remains(cluster: WorldCluster, run: Run, loses: bool) -> None:
    resources = [f"certificatesigningrequests/{auto_approval.value}" for auto_approval in ApprovalSubresource]
    bind(cluster, "both", {"kind": "Group", "name": "system:bootstrappers"}, *resources)
    rules = [{"apiGroups": ["certificates.k8s.io"], "resources": resources, "verbs": ["create"]}]
    cluster.client().patch(CLUSTER_ROLES.object("both"), {"rules": rules})
    if loses:
        cluster.add_machine("older", provider_id=provider_id("older"))
    code, report = found(run, "workload")
    said = [step for step in report["steps"] if "delete ClusterRoleBinding both, which grants both" in step]
    assert (code, len(said)) == ((3, 1) if loses else (0, 0))


def test_markup_in_names_is_text(cluster: WorldCluster, run: Run) -> None:
    """A writer in the workload cluster must not control the operator's terminal."""
    user = {"kind": "User", "name": "[bold red]mallory[/bold red]\x1b[2J"}
    bind(cluster, "wide", user, "certificatesigningrequests/nodeclient")
    _, text, _ = run("workload")
    assert "\x1b" not in text
    assert "[boldred]mallory[/boldred]" in "".join(text.split())


def test_without_a_policy(harness: Harness, cluster: WorldCluster, run: Run) -> None:
    harness.management.client.delete(NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace))
    code, report = found(run, "workload")
    assert (code, report["mode"]) == (3, "")
    assert "NodeAttestationPolicy" in report["steps"][0]


def test_a_ca_with_which_the_controller_cannot_sign(harness: Harness, run: Run) -> None:
    """Enforce would remove auto-approval, and no node would get a certificate any more."""
    cluster = harness.cluster(api={"seed_kubeadm": True})
    cluster.put_secret("ca", {"tls.crt": cluster.api.ca_certificate_pem})
    harness.run()
    harness.wait_for_condition(cluster, "CertificateAuthorityAvailable", "False")
    code, report = found(run, "workload")
    assert (code, report["ready"]) == (3, False)
    (step,) = report["steps"]
    assert step.startswith("Correct what condition CertificateAuthorityAvailable of the policy reports: ")
    assert "Secret default/workload-ca: CertificateAuthorityKeyMissing: tls.key is missing or empty" in step


def test_a_ca_that_another_cluster_has_too(harness: Harness, run: Run) -> None:
    """Every request waits, renewals included: under Enforce the nodes would run out."""
    authority = new_cluster_certificate_authority(EncryptionAlgorithm.ECDSA_P256)
    cluster = harness.cluster(api={"seed_kubeadm": True, "authority": authority})
    other = harness.cluster("neighbour", namespace="team-b", api={"authority": authority})
    harness.run()
    harness.wait_for_condition(cluster, "CertificateAuthorityNotShared", "False")
    code, report = found(run, "workload")
    assert (code, report["ready"]) == (3, False)
    (step,) = report["steps"]
    assert step.startswith("Correct what condition CertificateAuthorityNotShared of the policy reports: ")
    assert cluster.ca_cert_hash in step
    assert other.name not in step
    assert "team-b" not in step


def test_attestors_that_cannot_be_used(harness: Harness, cluster: WorldCluster, run: Run) -> None:
    path = NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
    attestors = [{"name": "keyed-mac"}, {"name": "misspelt"}]
    harness.management.client.patch(path, {"spec": {"authorizedAttestors": attestors}})
    harness.wait_for_condition(cluster, "AttestorsConfigured", "False")
    code, report = found(run, "workload")
    assert code == 3
    (step,) = report["steps"]
    assert "condition AttestorsConfigured of the policy" in step
    assert "attestor 'misspelt' is not installed" in step


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (
            lambda harness, cluster: cluster.put_secret("kubeconfig", {"config": b"x"}),
            "Secret default/workload-kubeconfig: it has no key 'value', which must hold the kubeconfig",
        ),
        (
            lambda harness, cluster: cluster.put_secret(
                "kubeconfig", {"value": kubeconfig_of(cluster.api.token_connection("unknown"), "workload").encode()}
            ),
            "Unauthorized: the credential is unknown or expired; renew it with node-attestation-controller "
            "workload-kubeconfig default/workload",
        ),
        (
            lambda harness, cluster: cluster.delete_secret("kubeconfig"),
            "Secret default/workload-kubeconfig does not exist",
        ),
        (
            lambda harness, cluster: cluster.put_secret("kubeconfig", {"value": b"users: [{user: {exec: {}}}]"}),
            "Secret default/workload-kubeconfig",
        ),
        (
            lambda harness, cluster: harness.management.client.delete(
                SECRETS.object(SECRET_NAME, CONTROLLER_NAMESPACE)
            ),
            "has the controller run",
        ),
        (
            lambda harness, cluster: harness.management.client.patch(
                SECRETS.object(SECRET_NAME, CONTROLLER_NAMESPACE), {"data": {"current": "c2hvcnQ="}}
            ),
            SECRET_NAME,
        ),
        (
            lambda harness, cluster: cluster.put_secret("kubeconfig", {"value": kubeconfig_to_nobody(cluster)}),
            "the API server of Cluster default/workload: Unreachable: connection refused: nothing listens there "
            "(127.0.0.1:1)",
        ),
    ],
    ids=[
        "another key",
        "an unknown token",
        "no kubeconfig",
        "a kubeconfig with a program",
        "no key",
        "a malformed key",
        "a cluster that does not answer",
    ],
)
def test_findings_that_cannot_be_determined(
    harness: Harness, cluster: WorldCluster, run: Run, break_it: Any, said: str
) -> None:
    break_it(harness, cluster)
    code, output, error = run("workload")
    assert (code, output) == (1, "")
    assert said in error


def test_no_such_cluster(cluster: WorldCluster, run: Run) -> None:
    code, _, error = run("other/nowhere")
    assert code == 1
    assert error.startswith(
        "node-attestation-controller: Cluster other/nowhere does not exist: there is default/workload; `"
    )
    assert "Cluster default/workloads does not exist: there is default/workload\n" in run("workloads")[2]


def test_a_management_cluster_without_our_definitions(harness: Harness, cluster: WorldCluster, run: Run) -> None:
    harness.management.client.delete(
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/attestednodes.attestation.cluster.x-k8s.io"
    )
    code, _, error = run("workload")
    assert code == 1
    assert "attestednodes is not served there: apply what `node-attestation-controller crds` prints" in error


def test_a_forged_record_counts_for_nothing(harness: Harness, cluster: WorldCluster, run: Run) -> None:
    """A writer of AttestedNodes cannot make a cluster look ready."""
    (record,) = harness.records(cluster)
    harness.management.client.patch(
        f"/apis/attestation.cluster.x-k8s.io/v1alpha1/namespaces/default/attestednodes/{record['metadata']['name']}",
        {"spec": {"lastNotAfter": "2099-01-01T00:00:00Z"}},
    )
    code, report = found(run, "workload")
    assert code == 3
    assert [one["why"] for one in report["machines"]] == ["has no AttestedNode that counts"]
