"""The chart's part in SSH into containers: the controller's switch, and the gateway."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

from signer.controller.diagnostics.listening import listen_address
from signer.gateway.entry import make_parser
from signer.testing.world import CONTROLLER_NAMESPACE
from tests.deploy.monitoring import MONITORING
from tests.deploy.test_chart import objects, of_kind
from tests.support.helm import HelmFailed, render_chart
from tests.support.yaml_documents import safe_load

NAMESPACE: Final = "node-access-gateway"
ACCESS: Final[dict[str, Any]] = {"ssh": {"enabled": True}, "access": {"enabled": True}}
SWITCHED_ON: Final[dict[str, Any]] = {**ACCESS, "containers": {"enabled": True}}
WITH_GATEWAY: Final[dict[str, Any]] = {**ACCESS, "containers": {"enabled": True, "gateway": {"enabled": True}}}


def new(values: dict[str, Any], before: dict[str, Any], **options: Any) -> list[dict[str, Any]]:
    """The objects that come with ``values`` besides those of ``before``; the Deployment of the controller aside."""
    known = {json.dumps(one) for one in objects(before, **options)}
    found = [one for one in objects(values, **options) if json.dumps(one) not in known]
    return [one for one in found if one["metadata"]["name"] != "node-attestation-controller"]


def titles(found: list[dict[str, Any]]) -> set[str]:
    return {f"{one['kind']} {one['metadata'].get('namespace', '')}/{one['metadata']['name']}" for one in found}


def gateway(kind: str, values: dict[str, Any] = WITH_GATEWAY, **options: Any) -> dict[str, Any]:
    [found] = [one for one in of_kind(kind, values, **options) if one["metadata"]["name"] == "node-access-gateway"]
    return found


def rules(role: dict[str, Any]) -> set[tuple[str, str, str]]:
    return {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_switch_brings_a_namespace_and_a_role_in_it_alone() -> None:
    found = new(SWITCHED_ON, ACCESS)
    assert titles(found) == {
        f"Namespace /{NAMESPACE}",
        f"Role {NAMESPACE}/node-attestation-containers",
        f"RoleBinding {NAMESPACE}/node-attestation-containers",
    }
    [role] = [one for one in found if one["kind"] == "Role"]
    assert rules(role) == {("", "secrets", verb) for verb in ("create", "get", "list", "update", "delete")}
    [namespace] = [one for one in found if one["kind"] == "Namespace"]
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_a_namespace_of_the_operators() -> None:
    values = {**ACCESS, "containers": {"enabled": True, "createNamespace": False}}
    values["config"] = {"access": {"gatewayNamespace": "gateways"}}
    found = new(values, ACCESS)
    assert {one["metadata"].get("namespace") for one in found if one["kind"].startswith("Role")} == {"gateways"}
    assert "Namespace" not in {one["kind"] for one in found}


def test_the_controller_has_its_flag_with_the_switch_alone() -> None:
    def arguments(values: dict[str, Any]) -> list[str]:
        [deployment] = of_kind("Deployment", values)
        found: list[str] = deployment["spec"]["template"]["spec"]["containers"][0]["args"]
        return found

    assert "--containers" in arguments(SWITCHED_ON)
    assert "--containers" not in arguments(ACCESS)


def test_the_gateways_objects() -> None:
    found = new(WITH_GATEWAY, SWITCHED_ON)
    namespaced = (
        "ServiceAccount",
        "Role",
        "RoleBinding",
        "Deployment",
        "Service",
        "NetworkPolicy",
        "PodDisruptionBudget",
    )
    assert titles(found) == {
        *(f"{kind} {NAMESPACE}/node-access-gateway" for kind in namespaced),
        f"Service {NAMESPACE}/node-access-gateway-metrics",
        *(f"{kind} /node-access-gateway" for kind in ("ClusterRole", "ClusterRoleBinding")),
    }


def test_it_reads_its_secrets_and_grants_and_writes_nothing() -> None:
    reads = ("get", "list", "watch")
    reviews = {
        ("authentication.k8s.io", "tokenreviews", "create"),
        ("authorization.k8s.io", "subjectaccessreviews", "create"),
    }
    assert rules(gateway("Role")) == {("", "secrets", verb) for verb in reads}
    grants = {("access.cluster.x-k8s.io", "accessgrants", verb) for verb in reads}
    assert rules(gateway("ClusterRole")) == grants | reviews
    assert rules(gateway("ClusterRole", {**WITH_GATEWAY, "diagnostics": {"enabled": False}})) == grants
    for kind in ("RoleBinding", "ClusterRoleBinding"):
        subject = {"kind": "ServiceAccount", "name": "node-access-gateway", "namespace": NAMESPACE}
        assert gateway(kind)["subjects"] == [subject]
        assert [subject in one["subjects"] for one in of_kind(kind, WITH_GATEWAY)].count(True) == 1


def test_its_pods_are_restricted() -> None:
    pod = gateway("Deployment")["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["command"] == ["node-access-gateway"]
    assert container["args"] == [
        "run",
        f"--namespace={NAMESPACE}",
        "--listen=:2222",
        "--host-key=/etc/node-access-gateway/host-key/ssh-privatekey",
        "--health-addr=:8081",
        "--diagnostics-address=:8443",
    ]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "runAsNonRoot": True,
        "capabilities": {"drop": ["ALL"]},
    }
    [volume] = pod["volumes"]
    assert volume["secret"]["secretName"] == "node-access-gateway-host-key"
    assert volume["secret"]["items"] == [{"key": "ssh-privatekey", "path": "ssh-privatekey"}]
    assert {port["containerPort"] for port in container["ports"]} == {2222, 8081, 8443}


@pytest.mark.parametrize("insecure", [False, True])
def test_the_program_takes_its_arguments(insecure: bool) -> None:
    values = {**WITH_GATEWAY, "diagnostics": {"insecure": insecure}}
    [container] = gateway("Deployment", values)["spec"]["template"]["spec"]["containers"]
    options = make_parser().parse_args(container["args"])
    assert options.namespace == NAMESPACE
    assert [str(one) for one in options.host_key] == ["/etc/node-access-gateway/host-key/ssh-privatekey"]
    assert options.insecure_diagnostics is insecure
    addresses = {
        "ssh": ("--listen", options.listen),
        "health": ("--health-addr", options.health_addr),
        "metrics": ("--diagnostics-address", options.diagnostics_address),
    }
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert {name: listen_address(*address)[1] for name, address in addresses.items()} == ports
    [mount] = container["volumeMounts"]
    assert options.host_key[0].parent == Path(mount["mountPath"])


def test_its_metrics_are_scraped_where_there_are_some() -> None:
    monitor = safe_load((MONITORING / "servicemonitor.yaml").read_text(encoding="utf-8"))["spec"]
    services = of_kind("Service", WITH_GATEWAY)
    [service] = [one for one in services if one["metadata"]["name"] == "node-access-gateway-metrics"]
    assert service["metadata"]["namespace"] in monitor["namespaceSelector"]["matchNames"]
    [expression] = monitor["selector"]["matchExpressions"]
    assert service["metadata"]["labels"]["app.kubernetes.io/name"] in expression["values"]
    assert [one["port"] for one in monitor["endpoints"]] == [port["name"] for port in service["spec"]["ports"]]
    labels = gateway("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    without = of_kind("Service", {**WITH_GATEWAY, "diagnostics": {"enabled": False}})
    assert "node-access-gateway-metrics" not in {one["metadata"]["name"] for one in without}


@pytest.mark.parametrize(("kind", "local"), [("LoadBalancer", True), ("NodePort", True), ("ClusterIP", False)])
def test_its_service(kind: str, local: bool) -> None:
    settings = {"type": kind, "port": 2022, "annotations": {"a": "b"}, "loadBalancerSourceRanges": ["198.51.100.0/24"]}
    values = {**ACCESS, "containers": {"enabled": True, "gateway": {"enabled": True, "service": settings}}}
    service = gateway("Service", values)
    assert service["spec"]["type"] == kind
    assert service["spec"]["ports"] == [{"name": "ssh", "port": 2022, "targetPort": "ssh", "protocol": "TCP"}]
    assert (service["spec"].get("externalTrafficPolicy") == "Local") is local
    assert service["metadata"]["annotations"] == {"a": "b"}
    assert gateway("Service")["spec"]["ports"][0]["port"] == 22
    labels = gateway("Deployment")["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()


def test_its_network_policy() -> None:
    values = {**WITH_GATEWAY, "networkPolicy": {"ingressFrom": [{"podSelector": {}}]}}
    people, probes = gateway("NetworkPolicy", values)["spec"]["ingress"]
    assert people == {"ports": [{"port": 2222, "protocol": "TCP"}]}
    assert [port["port"] for port in probes["ports"]] == [8081, 8443]
    assert probes["from"] == [{"podSelector": {}}]
    off = {**WITH_GATEWAY, "networkPolicy": {"enabled": False}}
    assert "NetworkPolicy" not in {
        one["kind"] for one in new(off, {**SWITCHED_ON, "networkPolicy": {"enabled": False}})
    }


def test_one_replica_has_no_disruption_budget() -> None:
    values = {**ACCESS, "containers": {"enabled": True, "gateway": {"enabled": True, "replicas": 1}}}
    assert not of_kind("PodDisruptionBudget", values)
    assert gateway("PodDisruptionBudget", kube_version="1.20.2")["apiVersion"] == "policy/v1beta1"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"containers": {"enabled": True}}, "set access.enabled too"),
        ({**ACCESS, "containers": {"gateway": {"enabled": True}}}, "set containers.enabled too"),
        ({**SWITCHED_ON, "config": {"access": {"gatewayNamespace": "default"}}}, "a namespace of its own"),
        ({**SWITCHED_ON, "config": {"access": {"gatewayNamespace": CONTROLLER_NAMESPACE}}}, "a namespace of its own"),
        ({**SWITCHED_ON, "config": {"access": {"gatewayNamespace": ""}}}, "gatewayNamespace"),
        ({**ACCESS, "containers": {"enabled": True, "gateway": {"service": {"type": "ExternalName"}}}}, "type"),
    ],
)
def test_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(HelmFailed, match=message):
        render_chart(values)
