"""``docs/first-login.md``: with exactly what the page has operator and tenant write, the person gets in."""

from __future__ import annotations

import base64
import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from attestors.wire.ssh.certificate import parse_certificate_line
from signer.configuration import ConfigurationFile, CreatorVerification, read_configuration_file
from signer.crds import access_definitions
from signer.kube.resources import ACCESS_GRANTS
from tests.documents.markdown import ROOT, Block, blocks
from tests.integration.access.test_wing import condition, found, grant
from tests.integration.fixtures import Harness, node_of, provider_id
from tests.integration.host_certificates import claim_of, look_often, request_with, wait_for_authorities
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.helm import render_chart
from tests.support.openssh import private_key
from tests.support.yaml_documents import safe_load, safe_load_all

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_waits")]

PAGE: Final = ROOT / "docs/first-login.md"
NODE: Final = "worker-1"


def block(first_line: str) -> Block:
    [one] = [one for one in blocks(PAGE) if one.text.startswith(f"{first_line}\n")]
    return one


def rendered() -> list[dict[str, Any]]:
    """The chart's objects, by the page's values."""
    try:
        return list(safe_load_all(render_chart(safe_load(block("# access-values.yaml").text))))
    except MissingPart as missing:
        skip_or_fail(missing)


def configuration_of(objects: list[dict[str, Any]], folder: Path) -> ConfigurationFile:
    """As the controller's Pod reads it."""
    [content] = [one["data"]["attestors.yaml"] for one in objects if "attestors.yaml" in (one or {}).get("data", {})]
    file = folder / "attestors.yaml"
    file.write_bytes(base64.b64decode(content))
    return read_configuration_file(file)


def patched_spec() -> dict[str, Any]:
    """What the page's ``kubectl patch`` adds to the policy."""
    [line] = [line for one in blocks(PAGE) for line in one.text.splitlines() if line.startswith("kubectl patch")]
    words = shlex.split(line)
    spec: dict[str, Any] = json.loads(words[words.index("--patch") + 1])["spec"]
    return spec


def waited_for() -> list[str]:
    """The conditions of the page's ``kubectl wait``."""
    words = [word for one in blocks(PAGE) for word in one.text.split()]
    return [word.removeprefix("condition=") for word in words if word.startswith("condition=")]


def may(harness: Harness, verb: str, resource: str, name: str = "") -> bool:
    attributes = {"namespace": "default", "verb": verb, "group": ACCESS_GRANTS.group, "resource": resource}
    review = harness.management.client.create(
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": "alice", "resourceAttributes": {**attributes, "name": name}},
        },
    )
    return bool(review["status"]["allowed"])


def test_from_the_operators_values_to_alices_certificate(
    harness: Harness, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    look_often(monkeypatch)
    objects = rendered()
    configuration = configuration_of(objects, tmp_path)
    [deployment] = [one for one in objects if (one or {}).get("kind") == "Deployment"]
    [container] = deployment["spec"]["template"]["spec"]["containers"]
    assert {"--ssh", "--access"} <= set(container["args"])
    assert configuration.access.creator_verification is CreatorVerification.REQUIRED
    assert {one["metadata"]["name"] for one in objects if (one or {}).get("kind") == "ValidatingAdmissionPolicy"} >= {
        "node-access-grants"
    }

    for text in access_definitions():
        harness.api.install_crd(safe_load(text))
    for one in objects:
        if (one or {}).get("kind") == "ClusterRole" and one["metadata"]["name"] == "node-access-user":
            harness.api.apply(one)
    for one in safe_load_all(block("# alice.yaml").text):
        harness.api.apply(one)
    assert may(harness, "create", "accessgrants")
    assert may(harness, "use", "logins", "root")
    assert not may(harness, "use", "logins", "admin")

    cluster = harness.cluster("production", policy=patched_spec())
    # The embedded API evaluates no admission policies; tests/e2e/test_access_admission.py runs them.
    trial = replace(configuration.access, creator_verification=CreatorVerification.UNVERIFIED)
    harness.run(ssh=configuration.ssh, access=trial)
    wait_for_authorities(cluster)
    cluster.add_machine(NODE, provider_id=provider_id(NODE))
    node = node_of(cluster, NODE)
    cluster.submit_with_token(request_with(node, "join", claim_of(node, private_key("ed25519"))))
    assert cluster.wait_until_decided("join").condition == "Approved"
    for kind in waited_for():
        harness.wait_for_condition(cluster, kind, "True")

    grant(harness, cluster, NODE)
    harness.wait_for_event("CertificatesIssued", "repair", "AccessGrant")
    assert condition(harness) == "CertificatesIssued"
    status = found(harness)["status"]
    certificate = parse_certificate_line(status["certificates"][0]["certificate"]).certificate
    assert list(map(str, certificate.principals)) == [f"root@{NODE}"]
    assert {one["port"] for one in status["targets"]} == {2222}
