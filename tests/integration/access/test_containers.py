"""The gateway's way into workload clusters, by a running controller with two API servers."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import pytest

from attestors.wire.ssh.key_line import key_line
from signer.access.containers import connections, creators, reconciler
from signer.configuration import (
    AccessPermission,
    ContainersSwitchedOff,
    ContainersSwitchedOn,
    CreatorVerification,
    SSHPermission,
)
from signer.controller.cluster import workload_cluster
from signer.controller.run import ControllerOptions
from signer.kube.kubeconfig import parse_kubeconfig
from signer.kube.resources import ACCESS_GRANTS, NODE_ATTESTATION_POLICIES
from signer.model.gateway_connection import GatewayConnection, connection_name, parse_gateway_connection
from signer.model.tools_image import ToolsImage
from signer.rotation.operations import OPERATION_ANNOTATION
from signer.testing.api import EmbeddedAPI
from signer.testing.fixtures import embedded_api
from signer.testing.world import WorldCluster
from tests.documents.grants import granted, requests_of, used
from tests.documents.markdown import ROOT
from tests.documents.test_grants import SERVICE_ACCOUNT, as_the_service_account
from tests.integration.access.test_wing import condition as grant_condition
from tests.integration.access.test_wing import install
from tests.integration.fixtures import CONTROLLER_USER, Harness, keyed_mac
from tests.integration.host_certificates import look_often
from tests.support.access_objects import ALICE, USER_KEY
from tests.support.processes import wait_until
from tests.support.raw_client import RawClient

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_waits")]
SSH: Final = SSHPermission(frozenset({"default"}))
GATEWAYS: Final = "node-access-gateway"
GATEWAY: Final = "node-access-gateway"
POLICY: Final[dict[str, Any]] = {"ssh": {"access": {}}}
RBAC: Final = ROOT / "deploy/rbac"
PODS: Final = "/api/v1/namespaces/default/pods"


def access(*, switched_on: bool = True) -> AccessPermission:
    containers = ContainersSwitchedOn() if switched_on else ContainersSwitchedOff()
    tools = ToolsImage("tools:1")
    return AccessPermission(frozenset({"default"}), CreatorVerification.UNVERIFIED, containers=containers, tools=tools)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    look_often(monkeypatch)
    monkeypatch.setattr(connections, "SWEEP_SECONDS", 0.5)
    monkeypatch.setattr(reconciler, "VERIFIED_SECONDS", 0.5)
    monkeypatch.setattr(creators, "GRACE", timedelta(seconds=1))
    monkeypatch.setattr(workload_cluster, "RECONCILE_REFILL_SECONDS", 0.2)


@pytest.fixture
def cluster(harness: Harness) -> WorldCluster:
    install(harness)
    harness.management.ensure_namespace(GATEWAYS)
    return harness.cluster(policy=POLICY)


def secrets(harness: Harness) -> list[dict[str, Any]]:
    return [one for one in harness.api.objects("secrets") if one["metadata"]["namespace"] == GATEWAYS]


def connection_of(harness: Harness, cluster: WorldCluster) -> GatewayConnection:
    """The connection, once it is there."""
    name = connection_name(cluster.key)
    wait_until(lambda: name in {one["metadata"]["name"] for one in secrets(harness)}, "the Secret is there", 30)
    return parse_gateway_connection(harness.api.get("secrets", name, GATEWAYS))


def condition(harness: Harness, cluster: WorldCluster) -> tuple[str, str]:
    path = NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.key.namespace)
    status = harness.management.client.get(path).get("status") or {}
    found = [one for one in status.get("conditions") or () if one["type"] == "ContainerAccessReady"]
    return (found[0]["status"], found[0]["reason"]) if found else ("", "")


def names(api: EmbeddedAPI) -> set[str]:
    """What of the gateway is in the workload cluster."""
    plurals = ("clusterroles", "clusterrolebindings", "serviceaccounts")
    found = {f"{plural}/{one['metadata']['name']}" for plural in plurals for one in api.objects(plural)}
    return {one for one in found if "/node-access-" in one}


def make_grant(harness: Harness, cluster: WorldCluster) -> None:
    """By Alice, for a container."""
    harness.api.create(
        {
            "apiVersion": ACCESS_GRANTS.api_version,
            "kind": "AccessGrant",
            "metadata": {"name": "repair", "namespace": "default"},
            "spec": {
                "clusterRef": {"name": cluster.name},
                "target": {"container": {"namespace": "web", "pod": "web-1", "container": "app"}},
                "sshPublicKey": USER_KEY,
                "createdBy": dict(ALICE),
            },
        }
    )


def as_alice(api: EmbeddedAPI, kubeconfig: bytes, **headers: str) -> int:
    """The status of a list of Pods by the gateway's credential, in somebody's name."""
    token = parse_kubeconfig(kubeconfig).bearer_token
    assert token is not None
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    with RawClient(api.token_connection(token)) as gateway, gateway.with_headers(named) as client:
        return client.get(PODS).status


def test_the_gateway_lists_pods_in_a_persons_name_and_does_nothing_in_its_own(
    harness: Harness, cluster: WorldCluster
) -> None:
    controller = harness.run(ssh=SSH, access=access())
    kubeconfig, api = connection_of(harness, cluster).kubeconfig, embedded_api(cluster)
    alice = {"Impersonate_User": "node-access:alice"}
    person = {**alice, "Impersonate_Group": "node-access:containers"}
    assert as_alice(api, kubeconfig, **person) == 403, "nobody has a grant"
    make_grant(harness, cluster)
    wait_until(lambda: grant_condition(harness) == "CertificatesIssued", "certificates are issued", 60)
    assert as_alice(api, kubeconfig, **person) == 200, "the role came before the certificate"
    assert as_alice(api, kubeconfig, **{**person, "Impersonate_User": "node-access:bob"}) == 403
    assert as_alice(api, kubeconfig) == 403
    assert as_alice(api, kubeconfig, **alice) == 403
    assert as_alice(api, kubeconfig, **alice, Impersonate_Group="system:masters") == 403
    wait_until(lambda: condition(harness, cluster) == ("True", "Connected"), "the condition is there", 30)
    sample = controller.options.metrics.registry.get_sample_value
    labels = {"cluster": f"default/{cluster.name}"}
    assert sample("node_attestation_container_access_ready", labels) == 1
    harness.api.delete("accessgrants", "repair", "default")
    wait_until(lambda: as_alice(api, kubeconfig, **person) == 403, "the right ends with the grant", 30)
    read = parse_kubeconfig(kubeconfig)
    own = parse_kubeconfig(api.kubeconfig(cluster.name).encode())
    assert (read.server, read.certificate_authority) == (own.server, own.certificate_authority)


def test_what_somebody_changes_is_put_back(harness: Harness, cluster: WorldCluster) -> None:
    harness.run(ssh=SSH, access=access())
    before, api = connection_of(harness, cluster), embedded_api(cluster)
    rules = api.get("clusterroles", GATEWAY)["rules"]
    api.patch("clusterroles", GATEWAY, {"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]})
    wait_until(lambda: api.get("clusterroles", GATEWAY)["rules"] == rules, "the role is put back", 30)
    name = connection_name(cluster.key)
    harness.api.patch("secrets", name, {"data": {"user-authorities": "c3NoLWVkMjU1MTkgQUFBQQo="}}, GATEWAYS)
    wait_until(lambda: _parsed_or_nothing(harness, name) == before, "the Secret is put back", 30)


def _parsed_or_nothing(harness: Harness, name: str) -> object:
    try:
        return parse_gateway_connection(harness.api.get("secrets", name, GATEWAYS))
    except ValueError:
        return None


@pytest.mark.parametrize("leftover", ["policy", "cluster"])
def test_access_that_ends_takes_everything_away(harness: Harness, cluster: WorldCluster, leftover: str) -> None:
    harness.run(ssh=SSH, access=access())
    kubeconfig, api = connection_of(harness, cluster).kubeconfig, embedded_api(cluster)
    assert names(api)
    if leftover == "policy":
        _without_access(harness, cluster)
        wait_until(lambda: not names(api), "nothing of the gateway is in the workload cluster", 30)
        assert as_alice(api, kubeconfig) == 401, "the token went with its ServiceAccount"
        wait_until(lambda: condition(harness, cluster) == ("", ""), "the condition is gone", 30)
    else:
        harness.api.delete("clusters", cluster.name, cluster.key.namespace)
    wait_until(lambda: not secrets(harness), "the Secret is gone", 30)


def test_a_cluster_out_of_reach_loses_its_secret_all_the_same(harness: Harness, cluster: WorldCluster) -> None:
    harness.run(ssh=SSH, access=access())
    connection_of(harness, cluster)
    cluster.put_secret("kubeconfig", {"value": b"{}"})
    cluster.close()
    _without_access(harness, cluster)
    wait_until(lambda: not secrets(harness), "the Secret is gone", 30)


def test_a_revoked_authority_is_replaced(harness: Harness, cluster: WorldCluster) -> None:
    harness.run(ssh=SSH, access=access())
    (before,) = connection_of(harness, cluster).user_authorities
    annotations = {OPERATION_ANNOTATION: "revoke-ssh-user-ca"}
    harness.api.patch(
        "nodeattestationpolicies", cluster.name, {"metadata": {"annotations": annotations}}, cluster.key.namespace
    )
    wait_until(
        lambda: before not in connection_of(harness, cluster).user_authorities, "the leaked authority is gone", 30
    )
    (after,) = connection_of(harness, cluster).user_authorities
    path = NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.key.namespace)
    shown = harness.management.client.get(path)["status"]["ssh"]["userAuthorities"]
    assert [one["publicKey"] for one in shown] == [key_line(after)]


def test_a_fault_of_one_cluster_holds_no_other(harness: Harness, cluster: WorldCluster) -> None:
    other = harness.cluster("other", policy=POLICY)
    foreign = {"name": GATEWAY, "labels": {"app.kubernetes.io/managed-by": "somebody"}}
    rbac = "rbac.authorization.k8s.io/v1"
    embedded_api(other).create({"apiVersion": rbac, "kind": "ClusterRole", "metadata": foreign, "rules": []})
    harness.run(ssh=SSH, access=access())
    connection_of(harness, cluster)
    wait_until(lambda: condition(harness, other) == ("False", "ForeignObject"), "the condition names it", 30)
    assert embedded_api(other).get("clusterroles", GATEWAY)["rules"] == []


@pytest.mark.parametrize("granted_there", [True, False])
def test_with_the_grants_of_the_files_and_no_others(
    harness: Harness, cluster: WorldCluster, granted_there: bool
) -> None:
    """In both clusters the controller has what the files say; each grant in the gateway's namespace is used."""
    api, management = embedded_api(cluster), harness.api
    containers = ("workload-containers.yaml", "workload-containers-tools.yaml") if granted_there else ()
    for file in ("workload.yaml", "workload-ssh.yaml", *containers):
        api.apply_yaml((RBAC / file).read_text(encoding="utf-8"))
    kubeconfig = api.kubeconfig(cluster.name, "node-attestation-controller", ())
    cluster.put_secret("kubeconfig", {"value": kubeconfig.encode()})
    for file in ("management.yaml", "ssh.yaml", "access.yaml", "containers.yaml"):
        management.apply_yaml((RBAC / file).read_text(encoding="utf-8"))
    connection = as_the_service_account(management)
    harness.start(options=ControllerOptions(), connection=connection, attestors=keyed_mac(), ssh=SSH, access=access())
    if not granted_there:
        wait_until(lambda: condition(harness, cluster) == ("False", "Forbidden"), "the condition says so", 30)
        return
    before = connection_of(harness, cluster)
    name = connection_name(cluster.key)
    management.patch("secrets", name, {"data": {"kubeconfig": "YQ=="}}, GATEWAYS)
    wait_until(lambda: _parsed_or_nothing(harness, name) == before, "the Secret is put back", 30)
    for plural, namespace in (("clusterroles", ""), ("serviceaccounts", "node-access")):
        api.patch(plural, GATEWAY, {"metadata": {"labels": {"more": "labels"}}}, namespace)
        wait_until(
            lambda plural=plural, namespace=namespace: (  # type: ignore[misc]
                "more" not in api.get(plural, GATEWAY, namespace)["metadata"]["labels"]
            ),
            "the label is gone",
            30,
        )
    _without_access(harness, cluster)
    wait_until(lambda: not names(api) and not secrets(harness), "everything is taken away", 30)
    asked = [one for one in requests_of(management, SERVICE_ACCOUNT) if f"/namespaces/{GATEWAYS}/" in one.path]
    assert used(asked) == granted(RBAC / "containers.yaml")


def _without_access(harness: Harness, cluster: WorldCluster) -> None:
    patch = {"spec": {"ssh": {"access": None}}}
    harness.api.patch("nodeattestationpolicies", cluster.name, patch, cluster.key.namespace)


def test_without_the_switch_nothing_of_it_is_asked_for(harness: Harness, cluster: WorldCluster) -> None:
    harness.run(ssh=SSH, access=access(switched_on=False))
    harness.join(cluster, "worker-1")
    assert not secrets(harness)
    assert not names(embedded_api(cluster))
    for api in (harness.api, embedded_api(cluster)):
        asked = [one.path for one in api.requests.matching("* *") if one.user == CONTROLLER_USER]
        assert not [one for one in asked if GATEWAYS in one or "/node-access/" in one or "clusterroles/node" in one]
