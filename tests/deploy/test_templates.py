"""The templates of ``deploy/node`` contain the image's files, and change only one setting of kubeadm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.embedded import image_files, render, templates
from tests.deploy.manifests import (
    CLOUD_CONFIG,
    CLUSTER_CLASS,
    CONTROL_PLANE,
    IGNITION,
    WORKER,
    objects,
    of_class,
    spec_of,
    worker,
)
from tests.deploy.patches import Inapplicable, apply_class
from tests.deploy.patches import render as render_patch

CONFIGURATION = "/etc/kubernetes/kubelet-authenticator.json"
SERVING = "/etc/systemd/system/kubelet.service.d/30-serving-certificate.conf"
COMBINED = "/var/lib/kubelet/pki/kubelet-authenticator-serving.pem"
ATTESTATION = {"provider": "keyed-mac"}


def contents(spec: dict[str, Any]) -> dict[str, str]:
    return {file["path"]: file["content"] for file in spec["files"]}


def flags(spec: dict[str, Any], configuration: str) -> dict[str, str]:
    registration = spec.get(configuration, {}).get("nodeRegistration", {})
    return {argument["name"]: argument["value"] for argument in registration.get("kubeletExtraArgs", ())}


@pytest.mark.parametrize("path", templates(), ids=lambda path: path.name)
def test_embedded_files_are_up_to_date(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert render(text) == text, "run make generate"


def test_an_outdated_file_is_written_anew() -> None:
    marker = "    content: |  # files/etc/kubernetes/kubelet-authenticator.json, hmac for keyed-mac\n"
    written = render(f"a:\n{marker}      old\n\n      older\n  b: c\n")
    assert written.startswith(f"a:\n{marker}      {{\n")
    assert '"provider": "hmac"' in written
    assert written.endswith("      }\n  b: c\n")


@pytest.mark.parametrize("name", [CLOUD_CONFIG, IGNITION])
def test_workers_get_the_very_files_of_the_image(name: str) -> None:
    found = contents(worker(name))
    expected = image_files()
    if name == IGNITION:
        expected = {path: text.replace("/usr/local/bin", "/opt/bin") for path, text in expected.items()}
    assert set(found) == set(expected) - {SERVING}
    for path in set(found) - {CONFIGURATION}:
        assert found[path] == expected[path]


@pytest.mark.parametrize("kind", [WORKER, CONTROL_PLANE])
def test_machines_of_the_class_get_the_very_files_of_the_image(kind: str) -> None:
    found = contents(of_class(kind, {**ATTESTATION, "servingCertificates": "Agent"}))
    expected = set(image_files()) - ({SERVING} if kind == CONTROL_PLANE else set())
    assert set(found) == {*expected, "/etc/sysctl.d/90-kubernetes.conf"}
    for path in expected - {CONFIGURATION}:
        assert found[path] == image_files()[path]


@pytest.mark.parametrize("name", [CLOUD_CONFIG, IGNITION])
def test_a_worker_is_told_not_to_rotate(name: str) -> None:
    assert flags(worker(name), "joinConfiguration") == {"rotate-certificates": "false"}


@pytest.mark.parametrize("serving", ["SelfSigned", "Kubelet", "Agent"])
def test_a_machine_of_kubeadm_init_is_left_alone(serving: str) -> None:
    [_, builtin, _] = objects(CLUSTER_CLASS)
    attested = of_class(CONTROL_PLANE, {**ATTESTATION, "servingCertificates": serving})
    for configuration in ("initConfiguration", "clusterConfiguration"):
        assert attested.get(configuration) == spec_of(builtin).get(configuration)
    for name in (CLOUD_CONFIG, IGNITION):
        assert set(worker(name)) & {"initConfiguration", "clusterConfiguration"} == set()


@pytest.mark.parametrize("kind", [WORKER, CONTROL_PLANE])
@pytest.mark.parametrize(
    ("serving", "expected"),
    [
        (None, {}),
        ("SelfSigned", {}),
        ("Kubelet", {"rotate-server-certificates": "true"}),
        ("Agent", {"tls-cert-file": COMBINED, "tls-private-key-file": COMBINED}),
    ],
)
def test_ways_to_a_serving_certificate_exclude_each_other(
    kind: str, serving: str | None, expected: dict[str, str]
) -> None:
    spec = of_class(kind, ATTESTATION if serving is None else {**ATTESTATION, "servingCertificates": serving})
    by_agent = serving == "Agent" and kind == WORKER
    if serving == "Agent" and not by_agent:
        expected = {}
    builtin = {"cloud-provider": "external"}
    assert flags(spec, "joinConfiguration") == {**builtin, "rotate-certificates": "false", **expected}
    assert (SERVING in contents(spec)) is by_agent
    assert ("serving" in json.loads(contents(spec)[CONFIGURATION])) is by_agent


@pytest.mark.parametrize("kind", [WORKER, CONTROL_PLANE])
def test_the_configuration_says_what_the_variable_says(kind: str) -> None:
    attestation = {"provider": "tpm", "nodeName": "{{ ds.meta_data.local_hostname }}", "settings": {"a": 'x"y\n  z'}}
    assert json.loads(contents(of_class(kind, attestation))[CONFIGURATION]) == {
        "apiVersion": "attestation.cluster.x-k8s.io/v1alpha1",
        "kind": "KubeletAuthenticatorConfiguration",
        **attestation,
    }


@pytest.mark.parametrize("index", [0, 1], ids=["worker", "control-plane"])
def test_a_cluster_without_the_variable_is_a_builtin_cluster(index: int) -> None:
    template = objects(CLUSTER_CLASS)[index]
    assert of_class(template["kind"], None) == spec_of(template)


def test_a_template_without_lists_is_not_overwritten() -> None:
    """A patch that replaced ``files`` would remove the template's own files."""
    template, _, cluster_class = objects(CLUSTER_CLASS)
    del template["spec"]["template"]["spec"]["files"]
    with pytest.raises(Inapplicable, match="there is no files"):
        apply_class(cluster_class, template, {"nodeAttestation": ATTESTATION})


def test_the_stand_in_for_go_templates_refuses_what_it_does_not_know() -> None:
    for template in ("{{ .a | quote }}", "{{ range .a }}{{ end }}", "{{ if .a }}"):
        with pytest.raises(Inapplicable):
            render_patch(template, {"a": 1})
