"""The real kubectl works against both: its discovery, its patches, and its waiting."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace

import pytest

from attestors.wire.ssh.signatures import public_key_of
from signer.kube.connection import ClusterConnection
from signer.testing.api.kubeconfig import kubeconfig_of
from tests.conformance.api import Api
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.kubeadm import NODE_TOKEN_GROUP
from tests.support.kubectl import find_kubectl, run_kubectl
from tests.support.node_access import certificate, text_of
from tests.support.openssh import private_key
from tests.support.raw_client import RawClient
from tests.support.signing_requests import COLLECTION, signing_request

pytestmark = pytest.mark.slow


class Kubectl:
    """kubectl with one kubeconfig."""

    def __init__(self, connection: ClusterConnection) -> None:
        self._kubeconfig = kubeconfig_of(connection, "conformance")

    def try_run(self, *arguments: str, standard_input: str = "") -> subprocess.CompletedProcess[str]:
        return run_kubectl(self._kubeconfig, arguments, standard_input=standard_input)

    def run(self, *arguments: str, standard_input: str = "") -> str:
        result = self.try_run(*arguments, standard_input=standard_input)
        assert result.returncode == 0, result.stderr
        return result.stdout


@pytest.fixture(scope="module")
def kubectl(api: Api) -> Kubectl:
    try:
        find_kubectl()
    except MissingPart as missing:
        skip_or_fail(missing)
    return Kubectl(api.connection("system:admin", ("system:masters",)))


def test_approve_and_deny(admin: RawClient, kubectl: Kubectl, name: str) -> None:
    for verb, kind in (("approve", "Approved"), ("deny", "Denied")):
        own = f"{name}-{verb}"
        admin.post(COLLECTION, signing_request(own)).expect(201)
        assert f"certificatesigningrequest.certificates.k8s.io/{own}" in kubectl.run("certificate", verb, own)
        (condition,) = admin.get(f"{COLLECTION}/{own}").expect(200)["status"]["conditions"]
        assert condition["type"] == kind
        listed = kubectl.run("get", "csr", own)
        assert "SIGNERNAME" in listed.splitlines()[0]
        assert kind in listed


def test_text_behind_a_client_certificate_is_passed_over(api: Api) -> None:
    """kubectl and client-go read ``status.certificate`` as it is stored, with what the controller wrote behind it."""
    connection = api.connection("system:admin", ("system:masters",))
    assert connection.client_certificate is not None
    text = text_of(certificate(public_key_of(private_key("ed25519"))))
    with_text = replace(connection, client_certificate=connection.client_certificate + text)
    assert Kubectl(with_text).run("auth", "can-i", "*", "*").strip() == "yes"


def test_apply_twice_and_delete(kubectl: Kubectl, namespace: str, name: str) -> None:
    manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}}
    kubectl.run("apply", "-f", "-", standard_input=json.dumps({**manifest, "data": {"a": "b"}}))
    kubectl.run("apply", "-f", "-", standard_input=json.dumps({**manifest, "data": {"c": "d"}}))
    found = json.loads(kubectl.run("get", "configmap", "-n", namespace, name, "-o", "json"))
    assert found["data"] == {"c": "d"}
    kubectl.run("label", "configmap", "-n", namespace, name, "x=y")
    assert name in kubectl.run("get", "cm", "-n", namespace, "-l", "x=y", "-o", "name")
    assert name in kubectl.run("describe", "configmap", "-n", namespace, name)
    kubectl.run("delete", "configmap", "-n", namespace, name)
    assert "NotFound" in kubectl.try_run("get", "configmap", "-n", namespace, name).stderr


def test_custom_resource(kubectl: Kubectl, namespace: str, name: str) -> None:
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "gadgets.kubectl.example.com"},
        "spec": {
            "group": "kubectl.example.com",
            "scope": "Namespaced",
            "names": {"plural": "gadgets", "singular": "gadget", "kind": "Gadget"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {
                        "openAPIV3Schema": {
                            "type": "object",
                            "properties": {"spec": {"type": "object", "properties": {"color": {"type": "string"}}}},
                        }
                    },
                    "additionalPrinterColumns": [
                        {"name": "Color", "type": "string", "jsonPath": ".spec.color"},
                        {"name": "Kind", "type": "string", "jsonPath": ".kind", "priority": 1},
                    ],
                }
            ],
        },
    }
    kubectl.run("apply", "-f", "-", standard_input=json.dumps(definition))
    kubectl.run("wait", "--for=condition=Established", "crd/gadgets.kubectl.example.com", "--timeout=30s")
    gadget = {
        "apiVersion": "kubectl.example.com/v1",
        "kind": "Gadget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"color": "red"},
    }
    kubectl.run("create", "-f", "-", standard_input=json.dumps(gadget))
    kubectl.run("patch", "gadget", "-n", namespace, name, "--type=merge", "-p", '{"spec":{"color":"blue"}}')
    heading, line = kubectl.run("get", "gadgets", "-n", namespace, name).splitlines()
    assert heading.split() == ["NAME", "COLOR"]
    assert line.split() == [name, "blue"]
    heading, line = kubectl.run("get", "gadgets", "-n", namespace, name, "-o", "wide").splitlines()
    assert heading.split() == ["NAME", "COLOR", "KIND"]
    assert line.split() == [name, "blue", "Gadget"]


def test_can_i(kubectl: Kubectl) -> None:
    question = (
        "auth",
        "can-i",
        "create",
        "certificatesigningrequests.certificates.k8s.io",
        "--as",
        "system:bootstrap:x",
    )
    asked = kubectl.try_run(*question, "--subresource", "nodeclient", "--as-group", NODE_TOKEN_GROUP)
    assert asked.stdout.strip() == "yes", asked.stderr
    asked = kubectl.try_run(*question, "--subresource", "nodeclient")
    assert (asked.returncode, asked.stdout.strip()) == (1, "no"), asked.stderr


@pytest.mark.usefixtures("kubectl")
def test_token_gets_its_request_but_no_secret(api: Api, token: str, admin: RawClient, name: str) -> None:
    admin.post(COLLECTION, signing_request(name)).expect(201)
    bootstrapper = Kubectl(api.token_connection(token))
    assert bootstrapper.run("get", "csr", name, "-o", "name").strip().endswith(name)
    refused = bootstrapper.try_run("get", "secrets", "-n", "kube-system")
    assert refused.returncode == 1
    assert "Forbidden" in refused.stderr
