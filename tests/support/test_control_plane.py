"""The real control plane that other tests use."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from tests.support.binaries import ControlPlaneBinaries, MissingPart, find_control_plane, skip_or_fail
from tests.support.certificates import CertificateAuthority
from tests.support.control_plane import ControlPlane
from tests.support.kubectl import find_kubectl, run_kubectl
from tests.support.processes import ProgramFailed, wait_until
from tests.support.raw_client import RawClient
from tests.support.signing_requests import (
    BUILTIN_CLIENT_SIGNER,
    CLIENT_USAGES,
    COLLECTION,
    request_pem,
    signing_request,
)

_CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "things.support.example.com"},
    "spec": {
        "group": "support.example.com",
        "scope": "Namespaced",
        "names": {"plural": "things", "singular": "thing", "kind": "Thing"},
        "versions": [
            {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}
        ],
    },
}


@pytest.fixture(scope="module")
def control_plane() -> Iterator[ControlPlane]:
    """A separate control plane, which these tests stop and restart."""
    try:
        running = ControlPlane()
    except MissingPart as missing:
        skip_or_fail(missing)
    with running:
        running.seed_kubeadm()
        yield running


@pytest.mark.real
@pytest.mark.slow
class TestControlPlane:
    def test_cluster_ca_is_that_of_cluster_api(self, control_plane: ControlPlane) -> None:
        with pytest.warns(UserWarning, match="serial number"):
            certificate = x509.load_pem_x509_certificate(control_plane.ca_certificate_pem)
        assert certificate.subject.rfc4514_string() == "CN=kubernetes"
        certificate.verify_directly_issued_by(certificate)

    def test_versions_are_reported(self, control_plane: ControlPlane) -> None:
        versions = control_plane.versions()
        assert versions["kube-apiserver"].startswith("Kubernetes v1.")
        assert "etcd" in versions["etcd"]

    def test_definitions_can_be_installed_from_files_repeatedly(
        self, control_plane: ControlPlane, tmp_path: Path
    ) -> None:
        path = tmp_path / "crds.yaml"
        path.write_text(yaml.safe_dump_all([_CRD, None]))
        control_plane.install_crds([path])
        control_plane.install_crds([path])
        with RawClient(control_plane.connection()) as client:
            client.get("/apis/support.example.com/v1/things").expect(200)

    def test_restart_keeps_objects_and_address(self, control_plane: ControlPlane) -> None:
        connection = control_plane.connection()
        with RawClient(connection) as client:
            client.post(COLLECTION, signing_request("before")).expect(201)
            control_plane.stop_apiserver()
            with pytest.raises(OSError, match="refused"):
                client.get(COLLECTION)
            control_plane.start_apiserver()
            client.get(f"{COLLECTION}/before").expect(200)

    def test_controller_manager_signs_with_the_cluster_ca(self, control_plane: ControlPlane) -> None:
        try:
            control_plane.start_controllers(qps=100, burst=100)
        except MissingPart as missing:
            skip_or_fail(missing)
        usages = ("key encipherment", *CLIENT_USAGES)
        request = signing_request("stock", request_pem(), signer=BUILTIN_CLIENT_SIGNER, usages=usages)
        path = f"{COLLECTION}/stock"
        with RawClient(control_plane.token_connection(control_plane.bootstrap_token())) as client:
            client.post(COLLECTION, request).expect(201)
            wait_until(lambda: "certificate" in client.get(path).expect(200)["status"], "the certificate is there")
            issued = client.get(path).expect(200)["status"]["certificate"]
        control_plane.stop_controllers()
        certificate = x509.load_pem_x509_certificate(base64.b64decode(issued))
        assert certificate.subject.rfc4514_string() == "CN=system:node:n1,O=system:nodes"
        assert certificate.issuer == control_plane.ca.name

    def test_kubeconfig_serves_kubectl(self, control_plane: ControlPlane) -> None:
        try:
            find_kubectl()
        except MissingPart as missing:
            skip_or_fail(missing)
        result = run_kubectl(control_plane.kubeconfig("wl"), ["auth", "can-i", "*", "*"])
        assert (result.returncode, result.stdout.strip()) == (0, "yes"), result.stderr

    def test_an_unknown_flag_fails_with_the_log(self, control_plane: ControlPlane) -> None:
        with pytest.raises(ProgramFailed, match="no-such-flag"):
            ControlPlane(binaries=control_plane.binaries, apiserver_flags=["--no-such-flag"])


def test_an_existing_authority_issues() -> None:
    made = CertificateAuthority.like_cluster_api()
    authority = CertificateAuthority.from_pem(made.certificate_pem, made.key_pem)
    assert (authority.name, authority.key_identifier) == (made.name, made.key_identifier)
    certificate, _ = authority.issue_client("user", ["group"])
    assert x509.load_pem_x509_certificate(certificate).issuer == made.name
    with pytest.raises(ValueError, match="the key is not the certificate's"):
        CertificateAuthority.from_pem(made.certificate_pem, CertificateAuthority.like_cluster_api().key_pem)


def test_missing_binaries_are_reported_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    with pytest.raises(MissingPart, match=r"^kube-apiserver is not in .*provision.sh.*$"):
        find_control_plane()
    binaries = ControlPlaneBinaries(Path("/bin/true"), Path("/bin/true"), tmp_path)
    with pytest.raises(MissingPart, match=r"^kube-controller-manager is not in "):
        binaries.kube_controller_manager()


@pytest.mark.parametrize(("value", "outcome"), [("1", pytest.fail.Exception), ("", pytest.skip.Exception)])
def test_missing_part_skips_or_fails(monkeypatch: pytest.MonkeyPatch, value: str, outcome: type[BaseException]) -> None:
    monkeypatch.setenv("NODE_ATTESTATION_REQUIRE_REAL", value)
    with pytest.raises(outcome, match="etcd is not installed"):
        skip_or_fail(MissingPart("etcd is not installed"))
