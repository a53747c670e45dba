"""``explain --record`` and ``--objects``: the same explanation without the cluster and without its secrets."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from attestors.wire import pem
from attestors.wire.names import ATTESTATION_DATA_LABEL, ATTESTATION_PROVIDER_LABEL
from signer.cli import main
from signer.kube.resources import ATTESTED_NODES, SECRETS, SERVICES
from signer.store.controller_key import SECRET_NAME
from signer.testing.world import CONTROLLER_NAMESPACE
from tests.documents.markdown import ROOT
from tests.integration.explaining import Explain, outcomes
from tests.integration.fixtures import MASTER_KEY, SECRETS_IN_PLAY, Harness, node_of, provider_id
from tests.integration.kubelets import attest, builtin_serving_request
from tests.integration.requests import blocks_of, manifest_of, plant
from tests.support.yaml_documents import safe_load_all

pytestmark = pytest.mark.slow

RECORDED: Final = ROOT / "fixtures/requests/v1/client.json"
Run = Callable[..., tuple[int, dict[str, Any], str]]


def _configured(master_key: str) -> str:
    return yaml.safe_dump(
        {"attestors": {"keyed-mac": {"settings": {"masterKey": master_key, "acceptUndatedEvidence": True}}}}
    )


@pytest.fixture
def offline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command without a management cluster."""
    config = tmp_path / "operator.yaml"
    config.write_text(_configured(base64.b64encode(MASTER_KEY).decode()))

    def run(*arguments: str, configured: bool = True) -> tuple[int, dict[str, Any], str]:
        capsys.readouterr()
        given = ["--config", str(config)] if configured else []
        code = main(["explain", *arguments, *given, "--output", "json"])
        written = capsys.readouterr()
        return code, json.loads(written.out) if written.out else {}, written.err

    return run


def without(report: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in report.items() if name not in names}


def test_a_recording_explains_the_same(harness: Harness, explain: Explain, offline: Run, tmp_path: Path) -> None:
    cluster = harness.cluster()
    controller = harness.run()
    harness.join(cluster, "worker-1")
    controller.kill()  # nobody else connects anywhere while the network is refused
    machine = cluster.add_machine("worker-2", provider_id=provider_id("worker-2"), addresses=[("Hostname", "worker-1")])
    cluster.add_kubeadm_config("worker-2", "abcdef.0123456789abcdef", machine)
    plant(cluster, node_of(cluster, "worker-2", "worker-1").client_request("taken"))
    other = harness.cluster("other", namespace="team-b")
    other.add_machine("elsewhere", provider_id=provider_id("elsewhere"))
    recording = tmp_path / "recording.yaml"
    code, live = explain("taken", "--record", str(recording))
    assert (code, live["reason"]) == (4, "IdentityConflict")
    assert outcomes(live)["node_name_is_free"] == "stopped"

    text = recording.read_text()
    key = harness.management.client.get(SECRETS.object(SECRET_NAME, CONTROLLER_NAMESPACE))["data"]["current"]
    authority = cluster.management.client.get(SECRETS.object("workload-ca", "default"))["data"]["tls.key"]
    record = cluster.management.client.get(ATTESTED_NODES.object("workload.worker-1", "default"))
    for secret in (*SECRETS_IN_PLAY, key, authority, "PRIVATE KEY", "0123456789abcdef", record["spec"]["seal"]):
        assert secret not in text
    kinds = [document["kind"] for document in safe_load_all(text)]
    assert "Secret" not in kinds
    assert "elsewhere" not in text  # another Cluster's

    code, report, _ = offline("taken", "--objects", str(recording))
    notes = report["notes"]
    assert without(report, "notes") == without(live, "notes")
    assert code == 4
    assert notes == ["Decided offline: AttestedNodes are trusted as recorded, and no service was called."]

    code, report, _ = offline("taken", "--objects", str(recording), configured=False)
    assert (code, report["reason"]) == (5, "AttestorUnavailable")
    assert any("keyed-mac, which are not recorded: give --config" in note for note in report["notes"])
    code, report, _ = offline("taken", "--objects", str(recording), "--at", "2040-01-01T00:00:00Z")
    assert (code, report["reason"], report["decidedAt"]) == (
        5,
        "CertificateAuthorityUnavailable",
        "2040-01-01T00:00:00Z",
    )


def test_settings_of_another_namespace_do_not_apply(
    harness: Harness, explain: Explain, offline: Run, tmp_path: Path
) -> None:
    cluster = harness.cluster()
    cluster.add_machine("worker-1", provider_id=provider_id("worker-1"))
    plant(cluster, node_of(cluster, "worker-1").client_request("asks"))
    given = {"masterKey": base64.b64encode(MASTER_KEY).decode()}
    for namespace in ("default", "team-b"):
        config = {"attestors": {"keyed-mac": {"settingsByNamespace": {namespace: given}}}}
        (tmp_path / f"{namespace}.yaml").write_text(yaml.safe_dump(config))
    here, elsewhere = (["--config", str(tmp_path / f"{namespace}.yaml")] for namespace in ("default", "team-b"))
    recording, without_settings = tmp_path / "recording.yaml", tmp_path / "without.yaml"

    code, live = explain("asks", *here, "--record", str(recording))
    assert explain("asks", *elsewhere, "--record", str(without_settings))[1]["reason"] == "AttestorUnavailable"
    headers = [next(safe_load_all(one.read_text())) for one in (recording, without_settings)]
    assert [header["attestorsWithSettings"] for header in headers] == [["keyed-mac"], []]
    assert given["masterKey"] not in recording.read_text()

    judged = offline("asks", "--objects", str(recording), *here, configured=False)
    assert (judged[0], judged[1]["reason"]) == (code, live["reason"])
    for chosen, missing in ((here, False), (elsewhere, True)):
        _, report, _ = offline("asks", "--objects", str(recording), *chosen, configured=False)
        assert any("keyed-mac, which are not recorded" in note for note in report["notes"]) is missing


def test_credentials_are_not_recorded(harness: Harness, explain: Explain, offline: Run, tmp_path: Path) -> None:
    """A recording is given to others, while a cloud still takes the token in the evidence for the node's."""
    cluster = harness.cluster()
    certificate_request, *_ = blocks_of(node_of(cluster, "worker-1"))
    for name, version in (("token", "v1"), ("unreadable", "v2")):
        evidence = {
            "version": version,
            "caCertHash": cluster.ca_cert_hash,
            "identityToken": "eyJhbGci.eyJzdWIi.c2lnbmVk",
        }
        content = [
            certificate_request,
            pem.encode(pem.Block(ATTESTATION_PROVIDER_LABEL, b"gcp")),
            pem.encode(pem.Block(ATTESTATION_DATA_LABEL, json.dumps(evidence).encode())),
        ]
        plant(cluster, manifest_of(name, b"".join(content), "cluster.x-k8s.io/kube-apiserver-client-kubelet-gcp"))
        recording = tmp_path / f"{name}.yaml"
        code, live = explain(name, "--record", str(recording))
        assert (code, live["reason"]) == (4, "AttestorNotAuthorized")
        header, recorded, *_ = safe_load_all(recording.read_text())
        assert header["redacted"] == (["identityToken"] if version == "v1" else ["request"])
        request = recorded["spec"]["request"]
        if version == "v1":
            _, _, kept = pem.split(base64.b64decode(request), maximum_bytes=100_000, maximum_blocks=3)
            assert b"eyJzdWIi" in kept.content, "what was claimed is still there"
            assert b"c2lnbmVk" not in kept.content
        else:
            assert request.startswith("sha256:")
        code, report, _ = offline(name, "--objects", str(recording))
        assert (code, report["reason"]) == (4, "AttestorNotAuthorized")
        assert any("Redacted from the evidence" in note for note in report["notes"])


def by_hand(folder: Path, *, policy: bool = True) -> Path:
    """A recorded request of a released format, with a few handwritten manifests."""
    recorded = json.loads(RECORDED.read_text())
    request = recorded["certificateSigningRequest"]
    folder.mkdir()
    (folder / "csr.json").write_text(json.dumps({**request, "kind": "CertificateSigningRequest"}))
    machine = {
        "apiVersion": "cluster.x-k8s.io/v1beta1",
        "kind": "Machine",
        "metadata": {"name": "worker-1"},
        "spec": {"clusterName": "workload", "providerID": recorded["providerID"]},
        "status": {
            "bootstrapReady": True,
            "addresses": [{"type": "Hostname", "address": recorded["nodeName"]}],
        },
    }
    documents = [
        {"apiVersion": "cluster.x-k8s.io/v1beta1", "kind": "Cluster", "metadata": {"name": "workload"}, "spec": {}},
        machine,
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "workload-ca"},
            "data": {"tls.crt": recorded["clusterCACertificate"]},
        },
    ]
    if policy:
        documents.append(
            {
                "apiVersion": "attestation.cluster.x-k8s.io/v1alpha1",
                "kind": "NodeAttestationPolicy",
                "metadata": {"name": "workload", "namespace": "default"},
                "spec": {"authorizedAttestors": [{"name": "keyed-mac"}]},
            }
        )
    (folder / "objects.yaml").write_text(yaml.safe_dump_all(documents))
    return folder


def test_handwritten_manifests(offline: Run, tmp_path: Path) -> None:
    folder = by_hand(tmp_path / "objects")
    file = str(folder / "csr.json")
    (tmp_path / "operator.yaml").write_text(_configured(json.loads(RECORDED.read_text())["masterKey"]))
    code, report, error = offline(file, "--objects", str(folder), "--at", "2026-11-21T14:00:00Z")
    assert (code, report.get("cluster")) == (0, "default/workload"), (report, error)
    assert report["verdict"] == "approve"
    assert len(report["wouldWrite"]) == 3
    code, report, _ = offline(file, "--objects", str(by_hand(tmp_path / "without", policy=False)))
    assert (code, report["reason"]) == (5, "PolicyInvalid")


def test_an_ascii_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with PYTHONIOENCODING=ascii, or in an old container: its marks are written as escapes."""
    folder = by_hand(tmp_path / "objects")
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, "ascii"))
    at = ["--at", "2026-11-21T14:00:00Z", "--all"]
    assert main(["explain", str(folder / "csr.json"), "--objects", str(folder), *at]) == 5
    assert rb"\u2713" in written.getvalue()
    assert b"AttestorUnavailable" in written.getvalue()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("- 1\n- 2\n", "something other than objects"),
        ("a: &a [x]\nb: *a\n", "aliases"),
        ("{", "neither JSON nor YAML"),
        ("", "no object"),
        ("kind: Cluster\napiVersion: cluster.x-k8s.io/v1beta2\nmetadata: {name: ../x}\n", "kind Cluster"),
        ("kind: Recording\nrecordedTime: yesterday\n", "recordedTime"),
        ("kind: Recording\n---\nkind: Recording\n", "more than one recording"),
        ("kind: ConfigMap\napiVersion: v1\nmetadata: {name: x}\n", "no CertificateSigningRequest join"),
    ],
)
def test_files_that_are_no_recording(offline: Run, tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "recording.yaml"
    file.write_text(content)
    code, report, error = offline("join", "--objects", str(file))
    assert (code, report) == (2, {})
    assert said in error


def test_an_empty_request(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    objects, request = tmp_path / "objects.yaml", tmp_path / "request.yaml"
    objects.write_text(yaml.safe_dump({"kind": "Cluster", "metadata": {"name": "production", "namespace": "team-a"}}))
    request.write_text("kind: CertificateSigningRequest\n")
    assert main(["explain", str(request), "--objects", str(objects), "--cluster", "team-a/production"]) == 6
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "CSR without a name of Cluster team-a/production is not for this controller"
    assert "Signer   no signer" in said
    assert "From     an unknown user, undated" in said


def test_a_recording_has_what_the_workload_cluster_reports(
    harness: Harness, explain: Explain, offline: Run, tmp_path: Path
) -> None:
    """The networks of Services that the Cluster does not state, and an address that cannot be read."""
    cluster = harness.cluster(policy={"builtinServingRequests": "Approve"})
    cluster.patch({"spec": {"clusterNetwork": None}})
    service = {"metadata": {"name": "kubernetes"}, "spec": {"clusterIP": "10.43.0.1"}}
    cluster.client().create(SERVICES.collection("default"), {"apiVersion": "v1", "kind": "Service", **service})
    addresses = [("Hostname", "w1"), ("InternalIP", "10.106.1.21/16"), ("InternalIP", "10.0.0.010")]
    cluster.add_machine("w1", provider_id=provider_id("w1"), addresses=addresses)
    controller = harness.run()
    kubelet = attest(cluster, "w1")
    controller.kill()
    kubelet.submit(builtin_serving_request("serves", "w1", ["w1", "10.106.1.21"]))
    recording = tmp_path / "recording.yaml"
    code, live = explain("serves", "--record", str(recording))
    (check,) = (one for one in live["checks"] if one["name"] == "alternative_names_are_the_machines")
    assert (code, check["outcome"]) == (0, "passed")
    assert "not in reported service networks 10.32.0.0/12" in check["expected"]
    assert "Addresses that cannot be read: InternalIP '10.0.0.010' has leading zeros" in check["expected"]
    judged = offline("serves", "--objects", str(recording))[:2]
    assert (judged[0], without(judged[1], "notes")) == (code, without(live, "notes"))
    header, *others = safe_load_all(recording.read_text())
    unreported = {name: value for name, value in header.items() if not name.startswith("reported")}
    recording.write_text(yaml.safe_dump_all([unreported, *others]))
    assert offline("serves", "--objects", str(recording))[1]["reason"] == "ServiceNetworksUnknown"
    recording.write_text(yaml.safe_dump_all([{**header, "reportedServiceNetworks": ["x"]}, *others]))
    assert "reportedServiceNetworks: 'x' does not appear" in offline("serves", "--objects", str(recording))[2]
