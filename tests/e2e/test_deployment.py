"""The chart, installed by helm on a real kube-apiserver; the controller runs as its Deployment says.

It has the Deployment's arguments, its Secret, and a token of its ServiceAccount, so it may do what the chart grants and
nothing else. The tests are one story: each finds what the one before it left.
"""

from __future__ import annotations

import json
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest

from signer.cli import main
from signer.kube.resources import ATTESTED_NODES, CLUSTER_ROLE_BINDINGS, CUSTOM_RESOURCE_DEFINITIONS
from signer.testing.api.kubeconfig import kubeconfig_of
from signer.testing.world import CONTROLLER_NAMESPACE
from tests.e2e.auto_approval_fixtures import (
    KUBEADM_BINDINGS,
    NAMESPACE,
    THIEF,
    VICTIM,
    builtin_client_request,
    builtin_serving_request,
)
from tests.e2e.installation import DEPLOYMENT, RELEASE, Installation, installation
from tests.support.grants import service_account_token
from tests.support.processes import wait_until
from tests.support.yaml_documents import safe_load_all

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    with installation("deployed", tmp_path_factory.mktemp("deployed")) as installed:
        yield installed


def test_helm_says_what_comes_next(installed: Installation) -> None:
    assert "STATUS: deployed" in installed.notes
    assert f"Secrets of Clusters in: {NAMESPACE}." in installed.notes
    assert "No attestor is configured" not in installed.notes


def version(installed: Installation, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    kubeconfig = installed.folder / "version.kubeconfig"
    kubeconfig.write_text(kubeconfig_of(installed.world.plane.connection(), "management"))
    code = main(["version", "--kubeconfig", str(kubeconfig), *arguments])
    return code, capsys.readouterr().out


def test_version_finds_the_deployment(installed: Installation, capsys: pytest.CaptureFixture[str]) -> None:
    code, output = version(installed, capsys, "-o", "json")
    [controller] = json.loads(output)["controllers"]
    assert (code, controller["deployment"]) == (0, f"{CONTROLLER_NAMESPACE}/{DEPLOYMENT}")
    assert controller["version"] == json.loads(output)["clientVersion"]
    code, output = version(installed, capsys, "--controller-namespace", "default")
    assert (code, "not known: no Deployment of namespace default has the label" in output) == (1, True)


def reader(installed: Installation, name: str, *, bound: bool) -> str:
    """The token of a ServiceAccount, which may read metrics if it is ``bound`` to the chart's role."""
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": NAMESPACE}}
    binding = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": f"{name}-reads-metrics"},
        "roleRef": {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": "ClusterRole",
            "name": "node-attestation-metrics-reader",
        },
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
    }
    client = installed.world.management.client
    client.create(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts", account)
    if bound:
        client.create(CLUSTER_ROLE_BINDINGS.collection(), binding)
    return service_account_token(installed.world.plane, NAMESPACE, name)


def metrics(installed: Installation, token: str) -> tuple[int, bool]:
    """The answer's status, and whether it has metrics of ours."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # it signs its certificate itself
    url = f"https://127.0.0.1:{installed.values['diagnostics']['port']}/metrics"
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    try:
        with urllib.request.urlopen(request, context=context) as answer:  # noqa: S310
            return answer.status, b"\nnode_attestation_" in answer.read()
    except urllib.error.HTTPError as error:
        return error.code, False


def helm_test(installed: Installation, seconds: int) -> subprocess.CompletedProcess[str]:
    """Run the command of the Pod of ``helm test``, with this machine's address in place of the Service's name."""
    [container] = [
        container
        for one in safe_load_all(installed.helm("get", "hooks", RELEASE))
        if one["kind"] == "Pod"
        for container in one["spec"]["containers"]
    ]
    script, url, deployment, _ = container["args"]
    assert container["command"] == ["python", "-I", "-c"]
    host = f"{DEPLOYMENT}-test.{CONTROLLER_NAMESPACE}.svc"
    assert host in url
    arguments = [script, url.replace(host, "127.0.0.1"), deployment, str(seconds)]
    command = [sys.executable, "-I", "-c", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_nodes_join_and_metrics_are_served(installed: Installation) -> None:
    world = installed.world
    nobody = helm_test(installed, 0)
    assert nobody.returncode == 1
    assert f"No replica is ready: http://127.0.0.1:{installed.values['health']['port']}/readyz" in nobody.stderr
    with installed.running() as controller:
        ready = helm_test(installed, 30)
        assert (ready.returncode, "readyz check passed" in ready.stdout) == (0, True), ready.stderr
        for machine in (VICTIM, THIEF):
            world.join(machine)
        assert metrics(installed, "") == (401, False)
        assert metrics(installed, reader(installed, "anybody", bound=False)) == (403, False)
        assert metrics(installed, reader(installed, "prometheus", bound=True)) == (200, True)
    assert "ERROR" not in controller.log.read_text()
    assert (
        installed.values["config"]["attestors"]["keyed-mac"]["settings"]["masterKey"] not in controller.log.read_text()
    )


def test_with_roles_in_one_namespace_only_auto_approval_is_removed_and_restored(installed: Installation) -> None:
    """``watch.namespace``: the ClusterRoles are gone; nodes renew, Enforce is entered and left."""
    world = installed.world
    before = world.bindings()
    cluster_role = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{DEPLOYMENT}"
    assert installed.exists(cluster_role)
    installed.upgrade(watch={"namespace": NAMESPACE})
    assert not installed.exists(cluster_role)
    with installed.running() as controller:
        assert f"--namespace={NAMESPACE}" in controller.arguments
        renewal = world.node(VICTIM).client_request(world.name("renewal"))
        assert world.cluster.wait_until_decided(world.post(renewal, world.as_node(VICTIM))).reason == "Attested"

        world.set_mode("Enforce")
        world.wait_until_shut()
        assert not set(KUBEADM_BINDINGS) & set(world.bindings())
        request = builtin_client_request(world.name("stock-client"), VICTIM)
        world.assert_gets_no_client_certificate(request, world.as_token_holder())
        serving = builtin_serving_request(world.name("stock-serving"), VICTIM, VICTIM)
        assert world.cluster.wait_until_decided(world.post(serving, world.as_node(VICTIM))).reason == "Attested"

        world.set_mode("Observe")
        world.wait_for_auto_approval_removed("False", "Observing")
        of_kubeadm = {name: world.bindings().get(name) for name in KUBEADM_BINDINGS}
        assert of_kubeadm == {name: before[name] for name in KUBEADM_BINDINGS}


def test_the_strategy_is_changed_there_and_back(installed: Installation) -> None:
    path = f"/apis/apps/v1/namespaces/{CONTROLLER_NAMESPACE}/deployments/{DEPLOYMENT}"
    for strategy in ({"type": "Recreate"}, {}):
        installed.upgrade(strategy=strategy)
        found = installed.world.management.client.get(path)["spec"]["strategy"]["type"]
        assert found == strategy.get("type", "RollingUpdate")


def test_records_stay_when_the_release_goes(installed: Installation) -> None:
    group = "policy/v1beta1" if installed.world.plane.binaries.kubernetes() < (1, 21) else "policy/v1"
    budget = f"/apis/{group}/namespaces/{CONTROLLER_NAMESPACE}/poddisruptionbudgets/{DEPLOYMENT}"
    deployment = f"/apis/apps/v1/namespaces/{CONTROLLER_NAMESPACE}/deployments/{DEPLOYMENT}"
    assert not installed.exists(budget)
    installed.upgrade(replicas=2)
    assert installed.exists(budget)
    said = installed.helm("uninstall", RELEASE)
    assert "attestednodes.attestation.cluster.x-k8s.io" in said
    wait_until(lambda: not installed.exists(deployment), "the Deployment is gone")
    client = installed.world.management.client
    kept = {item["metadata"]["name"] for item in client.items(CUSTOM_RESOURCE_DEFINITIONS.collection())}
    assert {name for name in kept if name.endswith(".attestation.cluster.x-k8s.io")} == {
        "attestednodes.attestation.cluster.x-k8s.io",
        "certificateauthorityrotations.attestation.cluster.x-k8s.io",
        "identityreservations.attestation.cluster.x-k8s.io",
        "nodeattestationpolicies.attestation.cluster.x-k8s.io",
    }
    records = client.items(ATTESTED_NODES.collection(NAMESPACE))
    assert {record["spec"]["nodeName"] for record in records} == {VICTIM, THIEF}
