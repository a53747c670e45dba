"""The grants in ``deploy/rbac`` are what the controller needs, and no more: it is run with nothing else.

The embedded API authorizes by RBAC as kube-apiserver does, the verbs ``approve`` and ``sign`` on signers and ``bind``
on ClusterRoles included. These three stand in no request, so each has a test that takes it away.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest
from keyed_mac.keys import derive_machine_key

from attestors.wire.names import Purpose, SignerName
from signer.configuration import Configuration, LeaderElection, OperatorAttestor, every_attestor
from signer.controller.auto_approval import reconciler as reconciler
from signer.controller.auto_approval.preflight import preflight
from signer.controller.auto_approval.refusal_policies import NODES, TOKENS
from signer.controller.cluster import signers_granted
from signer.controller.run import ControllerOptions
from signer.controller.status import machine_condition
from signer.kube.client import Client
from signer.kube.connection import ClusterConnection
from signer.kube.resources import (
    ATTESTED_NODES,
    CERTIFICATE_SIGNING_REQUESTS,
    CLUSTER_ROLE_BINDINGS,
    CONFIG_MAPS,
    EVENTS,
    IDENTITY_RESERVATIONS,
    KUBEADM_CONTROL_PLANES_V1BETA2,
    MACHINE_POOLS_V1BETA2,
    MACHINES_V1BETA2,
    NODE_ATTESTATION_POLICIES,
    SECRETS,
)
from signer.model.bootstrap_token import EXTENDED_UNTIL_ANNOTATION
from signer.model.cluster import ClusterKey
from signer.model.lease import ElectionTimes
from signer.model.seal import KEY_BYTES, ControllerKeys
from signer.store.controller_key import controller_key_secret
from signer.testing.api import EmbeddedAPI, User
from signer.testing.clients import LoopThread
from signer.testing.fixtures import MakeWorkloadCluster, StartController, embedded_api
from signer.testing.nodes import SimulatedNode
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster, RunningController, WorldCluster
from tests.documents.grant_calls import PREFIX, granted_rules
from tests.documents.grants import granted, requests_of, used
from tests.documents.markdown import ROOT
from tests.integration.kubelets import builtin_serving_request
from tests.support import reporting_attestor
from tests.support.admission_definitions import serve_admission_policies
from tests.support.infra_cluster import INFRASTRUCTURE, SIGNER_FIELD, add_infra_cluster, add_infra_machine
from tests.support.processes import wait_until
from tests.support.reporting_attestor import LOOK_UP_SETTING, REPORT_SETTING, Report

KUBEADM: Final = {"apiGroup": KUBEADM_CONTROL_PLANES_V1BETA2.group, "kind": "KubeadmControlPlane"}
"""The controller asks for it by name, and there is none."""
FOLDER: Final = ROOT / "deploy/rbac"
SERVICE_ACCOUNT: Final = "system:serviceaccount:node-attestation-system:node-attestation-controller"
WORKLOAD_USER: Final = "node-attestation-controller"
MASTER_KEY: Final = bytes(range(32))
OF_DIAGNOSTICS: Final = frozenset(
    {
        ("authentication.k8s.io", "create", "tokenreviews"),
        ("authorization.k8s.io", "create", "subjectaccessreviews"),
    }
)
"""Used by the command line's server of metrics: ``tests/e2e/test_deployment.py`` has them asked for by a scraper."""
OF_HOSTS: Final = frozenset(
    {("metal3.io", "get", "baremetalhosts"), ("infrastructure.cluster.x-k8s.io", "list", "byohosts")}
)
"""Used where Machines run on hosts of Metal3 or BYOH: ``tests/integration/providers`` has them read."""
OF_EVERY_USER: Final = frozenset({("authorization.k8s.io", "create", "selfsubjectaccessreviews")})
"""Kubernetes' ClusterRole system:basic-user grants it to every user."""
SHORT_TIMES: Final = ElectionTimes(timedelta(seconds=3), timedelta(seconds=2.5), timedelta(milliseconds=200))
WORKER: Final = "worker-1"
POOL: Final = "pool"
INSTANCE: Final = "pool-instance-1"
LOOKED_UP: Final = "worker-2"
"""Its attestor looks up whatever can be."""
EVERYTHING: Final = {
    "mode": "Enforce",
    "nodeNames": {"sources": ["ProviderID"]},
    "bootstrapTokens": {"untraceable": "Refuse", "machinePools": "Extend"},
}
"""A policy that uses every grant."""
BASE_ROLES: Final = ("controller", "secrets")
KUBEADM_BINDINGS: Final = {"kubeadm:node-autoapprove-bootstrap", "kubeadm:node-autoapprove-certificate-rotation"}


def as_the_service_account(api: EmbeddedAPI) -> ClusterConnection:
    api.add_token(
        "service-account-token", User(SERVICE_ACCOUNT, groups=("system:serviceaccounts", "system:authenticated"))
    )
    return api.token_connection("service-account-token")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_condition, "SETTLE_SECONDS", 0.02)
    monkeypatch.setattr(reconciler, "MINIMUM_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(reconciler, "RECHECK_SECONDS", 0.5)
    monkeypatch.setattr(signers_granted, "MISSING_SECONDS", 0.5)


@pytest.fixture
def cluster(management_cluster: ManagementCluster, make_workload_cluster: MakeWorkloadCluster) -> WorldCluster:
    """A Cluster whose kubeconfig is of the restricted user; it has no policy yet."""
    cluster = make_workload_cluster()
    api = embedded_api(cluster)
    serve_admission_policies(api)
    api.apply_yaml((FOLDER / "workload.yaml").read_text(encoding="utf-8"))
    cluster.put_secret("kubeconfig", {"value": api.kubeconfig(cluster.name, WORKLOAD_USER, ()).encode()})
    embedded_api(management_cluster).apply_yaml((FOLDER / "management.yaml").read_text(encoding="utf-8"))
    return cluster


@pytest.fixture
def start(management_cluster: ManagementCluster, attestation_controller: StartController) -> Callable[..., Any]:
    """Starts the controller as its service account."""
    settings = {"masterKey": base64.b64encode(MASTER_KEY).decode("ascii")}
    reports: list[Report] = []

    def start(options: ControllerOptions | None = None) -> RunningController:
        return attestation_controller(
            options=options,
            connection=as_the_service_account(embedded_api(management_cluster)),
            leader_election=LeaderElection(SHORT_TIMES),
            attestors={
                "keyed-mac": OperatorAttestor(settings=settings),
                reporting_attestor.PROVIDER: OperatorAttestor(settings={REPORT_SETTING: reports.append}),
            },
        )

    return start


def node(cluster: WorldCluster, name: str) -> SimulatedNode:
    """The node whose provider ID ends in its name."""
    provider_id = f"test:///{name}"
    machine_key = base64.b64encode(derive_machine_key(MASTER_KEY, provider_id)).decode("ascii")
    settings = {"provider-id": provider_id, "machine-key": machine_key}
    return SimulatedNode(name, provider_id, cluster.ca_cert_hash, "keyed-mac", settings)


def looking_node(cluster: WorldCluster) -> SimulatedNode:
    """The node whose attestor looks things up."""
    settings = {"provider-id": f"test:///{LOOKED_UP}", LOOK_UP_SETTING: "infrastructure ConfigMap/inventory"}
    return SimulatedNode(
        LOOKED_UP,
        f"test:///{LOOKED_UP}",
        cluster.ca_cert_hash,
        reporting_attestor.PROVIDER,
        settings,
        registry=reporting_attestor.registry(),
    )


def let_sign_for_the_looking_node(cluster: WorldCluster) -> None:
    """The signers in the file are named after the attestors of this project; this test's own is one more."""
    workload = embedded_api(cluster)
    role = workload.get("clusterroles", "node-attestation-workload")
    for rule in role["rules"]:
        if rule["resources"] == ["signers"]:
            rule["resourceNames"] += [str(SignerName(one, reporting_attestor.PROVIDER)) for one in Purpose]
    workload.update(role)


def wait_for_condition(cluster: WorldCluster, kind: str, status: str, reason: str = "") -> dict[str, Any]:
    """Wait until the policy shows that condition for its newest generation."""

    def found(policy: dict[str, Any]) -> list[dict[str, Any]]:
        return [
            item
            for item in (policy.get("status") or {}).get("conditions") or []
            if (item["type"], item["status"]) == (kind, status)
            and item["observedGeneration"] == policy["metadata"]["generation"]
            and reason in ("", item["reason"])
        ]

    client = cluster.management.client
    path = NODE_ATTESTATION_POLICIES.collection(cluster.namespace)
    return found(client.wait_for(path, cluster.name, lambda item: bool(found(item))))[0]


def set_mode(cluster: WorldCluster, mode: str) -> None:
    path = NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
    cluster.management.client.patch(path, {"spec": {"mode": mode}})


def bindings(cluster: WorldCluster) -> set[str]:
    """Those of kubeadm's automatic approval that are there."""
    items = cluster.client().items(CLUSTER_ROLE_BINDINGS.collection())
    return {item["metadata"]["name"] for item in items} & KUBEADM_BINDINGS


def kept(cluster: WorldCluster) -> list[dict[str, Any]]:
    """The ConfigMaps with removed grants."""
    return cluster.management.client.items(CONFIG_MAPS.collection(CONTROLLER_NAMESPACE))


def add_machine(cluster: WorldCluster) -> str:
    """A Machine that waits for condition NodeAttested; returns its bootstrap token."""
    cluster.add_machine(WORKER, provider_id=f"test:///{WORKER}")
    machine = cluster.patch_machine(WORKER, {"spec": {"readinessGates": [{"conditionType": "NodeAttested"}]}})
    token = cluster.api.bootstrap_token()
    cluster.add_kubeadm_config(WORKER, token, machine)
    return token


def add_looked_up(cluster: WorldCluster) -> str:
    """A Machine with an InfraMachine, and an inventory; returns the Machine's bootstrap token."""
    machine = cluster.add_machine(LOOKED_UP, provider_id=f"test:///{LOOKED_UP}")
    add_infra_machine(cluster, machine)
    caches = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "inventory"}, "data": {"a": "b"}}
    cluster.management.client.create(CONFIG_MAPS.collection(cluster.namespace), caches)
    token = cluster.api.bootstrap_token()
    cluster.add_kubeadm_config(LOOKED_UP, token, machine)
    return token


def add_machine_pool(cluster: WorldCluster) -> str:
    """A MachinePool with one instance; returns its bootstrap token."""
    pool = cluster.add_machine_pool(POOL, f"test:///{INSTANCE}")
    token = cluster.api.bootstrap_token()
    cluster.add_kubeadm_config(POOL, token, pool)
    return token


@pytest.mark.slow
def test_the_controller_needs_exactly_these_grants(
    management_cluster: ManagementCluster, cluster: WorldCluster, start: Callable[..., RunningController]
) -> None:
    management, workload = embedded_api(management_cluster), embedded_api(cluster)
    add_infra_cluster(cluster, SIGNER_FIELD)
    cluster.patch({"spec": {"controlPlaneRef": {**KUBEADM, "name": "production-cp"}}})
    let_sign_for_the_looking_node(cluster)
    tokens = {WORKER: add_machine(cluster), INSTANCE: add_machine_pool(cluster), LOOKED_UP: add_looked_up(cluster)}
    cluster.authorize("keyed-mac", reporting_attestor.PROVIDER, **EVERYTHING)
    workload.faults.inject("POST */selfsubjectreviews", status=401)
    first = start(ControllerOptions(registry=reporting_attestor.registry()))
    wait_for_condition(cluster, "CertificateAuthorityTrusted", "False")
    set_mode(cluster, "Observe")  # a change of the policy has the canary tried again
    set_mode(cluster, "Enforce")
    wait_for_condition(cluster, "AutoApprovalRemoved", "False", "WaitingForAttestation")
    join_and_be_attested(cluster, tokens)
    wait_for_condition(cluster, "AutoApprovalRemoved", "True", "Removed")
    assert bindings(cluster) == set()
    somebody_changes_an_admission_policy(cluster)
    wait_for_what_is_published(cluster, tokens[INSTANCE])
    look_before_enforcing(management_cluster, cluster)
    leave_enforce(cluster)
    first.kill()
    everything_goes(cluster)
    later = ControllerOptions(registry=reporting_attestor.registry(), now=lambda: datetime.now(UTC) + timedelta(days=8))
    start(later)
    wait_until(lambda: nothing_is_kept(cluster), "records and reservations are gone")

    calls = [*requests_of(management, SERVICE_ACCOUNT), *requests_of(workload, WORKLOAD_USER)]
    assert [call for call in calls if call.status == 403] == []
    assert (
        used(requests_of(management, SERVICE_ACCOUNT))
        == granted(FOLDER / "management.yaml") - OF_DIAGNOSTICS - OF_HOSTS
    )
    assert used(requests_of(workload, WORKLOAD_USER)) == granted(FOLDER / "workload.yaml") | OF_EVERY_USER


def join_and_be_attested(cluster: WorldCluster, tokens: dict[str, str]) -> None:
    """Both nodes join with their tokens; one renews, and gets serving certificates of both kinds."""
    management, workload = embedded_api(cluster.management), embedded_api(cluster)
    worker = node(cluster, WORKER)
    cluster.submit_with_token(worker.client_request("join"), tokens[WORKER])
    joined = cluster.wait_until_decided("join")
    assert joined.reason == "Attested", joined
    # A conflict on each write makes the controller read again what it wrote to.
    workload.faults.inject("PUT */certificatesigningrequests/*/approval", status=409)
    management.faults.inject("PUT */attestednodes/*", status=409)
    kubelet = worker.connection(cluster.api.connection(), joined.certificate)
    cluster.submit(worker.client_request("renew"), kubelet)
    assert cluster.wait_until_decided("renew").reason == "Attested"
    cluster.submit(worker.serving_request("serve", dns_names=[WORKER]), kubelet)
    assert cluster.wait_until_decided("serve").reason == "Attested"
    cluster.submit(builtin_serving_request("built-in", WORKER, [WORKER]), kubelet)
    wait_until(lambda: cluster.verdict("built-in").reason == "Attested", "the built-in serving request is approved")
    cluster.submit_with_token(worker.but(node_name="another").client_request("impostor"), tokens[WORKER])
    assert cluster.wait_until_decided("impostor").reason == "NodeNameMismatch"
    cluster.submit_with_token(node(cluster, INSTANCE).client_request("join-instance"), tokens[INSTANCE])
    assert cluster.wait_until_decided("join-instance").reason == "Attested"
    cluster.submit_with_token(looking_node(cluster).client_request("join-looked-up"), tokens[LOOKED_UP])
    assert cluster.wait_until_decided("join-looked-up").reason == "Attested"


def somebody_changes_an_admission_policy(cluster: WorldCluster) -> None:
    """The controller writes it again. The embedded API applies none, so none is proven."""
    wait_for_condition(cluster, "BuiltinRequestsRefused", "False", "NotProven")
    workload = embedded_api(cluster)
    for one in (TOKENS, NODES):
        name = one.policy.name
        found = workload.get("validatingadmissionpolicies", name)
        workload.update({**found, "spec": {**found["spec"], "failurePolicy": "Ignore"}})
        found = workload.get("validatingadmissionpolicybindings", name)
        workload.update({**found, "spec": {**found["spec"], "validationActions": ["Audit"]}})
    wait_until(lambda: not _is_ignored(workload), "both policies are as they were")


def _is_ignored(workload: EmbeddedAPI) -> bool:
    policies = workload.objects("validatingadmissionpolicies")
    bindings = workload.objects("validatingadmissionpolicybindings")
    return any(one["spec"]["failurePolicy"] == "Ignore" for one in policies) or any(
        one["spec"]["validationActions"] == ["Audit"] for one in bindings
    )


def wait_for_what_is_published(cluster: WorldCluster, pool_token: str) -> None:
    """Events, conditions and the owner are written beside the decisions."""
    client, namespace = cluster.management.client, cluster.namespace
    wait_for_condition(cluster, "Ready", "True")
    wait_for_condition(cluster, "BootstrapTokensTraceable", "True")
    wait_for_condition(cluster, "MachinePoolTokensExtended", "True")
    secret = embedded_api(cluster).get("secrets", f"bootstrap-token-{pool_token[:6]}", "kube-system")
    assert EXTENDED_UNTIL_ANNOTATION in secret["metadata"]["annotations"]
    client.wait_for_any(EVENTS.collection(namespace), lambda event: event["reason"] == "Attested")
    client.wait_for(MACHINES_V1BETA2.collection(namespace), WORKER, _is_said_to_be_attested)
    owned = NODE_ATTESTATION_POLICIES.collection(namespace)
    client.wait_for(owned, cluster.name, lambda policy: bool(policy["metadata"].get("ownerReferences")))
    client.wait_for(
        INFRASTRUCTURE.collection(namespace), cluster.name, lambda item: SIGNER_FIELD in (item.get("status") or {})
    )


def _is_said_to_be_attested(machine: dict[str, Any]) -> bool:
    conditions = machine["status"].get("conditions") or []
    return any((item["type"], item["status"]) == ("NodeAttested", "True") for item in conditions)


def look_before_enforcing(management_cluster: ManagementCluster, cluster: WorldCluster) -> None:
    """``preflight``, with the same grants."""

    async def look() -> bool:
        async with Client(as_the_service_account(embedded_api(management_cluster))) as client:
            found = await preflight(
                client,
                ClusterKey(cluster.namespace, cluster.name),
                Configuration(CONTROLLER_NAMESPACE, attestors=every_attestor(reporting_attestor.registry().providers)),
                registry=reporting_attestor.registry(),
                now=lambda: datetime.now(UTC),
            )
        assert found.notes == ()
        return found.is_ready

    with LoopThread("preflight") as thread:
        assert thread.run(look())


def leave_enforce(cluster: WorldCluster) -> None:
    """What was removed comes back; also where a crash came between keeping a binding and deleting it."""
    set_mode(cluster, "Observe")
    wait_for_condition(cluster, "AutoApprovalRemoved", "False", "Observing")
    assert (bindings(cluster), kept(cluster)) == (KUBEADM_BINDINGS, [])
    workload = embedded_api(cluster)
    assert workload.objects("validatingadmissionpolicies") == []
    workload.faults.inject("DELETE */clusterrolebindings/*", status=500, times=None)
    set_mode(cluster, "Enforce")
    wait_for_condition(cluster, "AutoApprovalRemoved", "False", "RemovalPending")
    assert (bindings(cluster), len(kept(cluster))) == (KUBEADM_BINDINGS, 1)
    set_mode(cluster, "Observe")
    wait_for_condition(cluster, "AutoApprovalRemoved", "False", "Observing")
    workload.faults.clear()
    assert (bindings(cluster), kept(cluster)) == (KUBEADM_BINDINGS, [])


def everything_goes(cluster: WorldCluster) -> None:
    """Machines and MachinePool are deleted; only the Cluster stays."""
    client = cluster.management.client
    client.delete(MACHINES_V1BETA2.object(LOOKED_UP, cluster.namespace))
    client.delete(MACHINES_V1BETA2.object(WORKER, cluster.namespace))
    client.delete(MACHINE_POOLS_V1BETA2.object(POOL, cluster.namespace))


def nothing_is_kept(cluster: WorldCluster) -> bool:
    """Of what was attested."""
    kinds = (ATTESTED_NODES.collection(cluster.namespace), IDENTITY_RESERVATIONS.collection(CONTROLLER_NAMESPACE))
    return not any(cluster.management.client.items(path) for path in kinds)


# What stands in no request


def take_away(cluster: WorldCluster, role: str, verb: str) -> None:
    """Remove the rules with that verb from a ClusterRole of the workload cluster."""
    workload = embedded_api(cluster)
    changed = workload.get("clusterroles", role)
    changed["rules"] = [rule for rule in changed["rules"] if verb not in rule["verbs"]]
    workload.update(changed)


def test_without_the_verb_on_its_signer_nothing_is_approved(
    management_cluster: ManagementCluster, cluster: WorldCluster, start: Callable[..., Any]
) -> None:
    take_away(cluster, "node-attestation-workload", "sign")
    cluster.authorize("keyed-mac")
    cluster.add_machine(WORKER, provider_id=f"test:///{WORKER}")
    start()
    missing = wait_for_condition(cluster, "SignersGranted", "False", "WorkloadGrantMissing")
    assert "may not approve and sign for the signers of attestor keyed-mac" in missing["message"]
    wait_for_condition(cluster, "Ready", "False", "WorkloadGrantMissing")
    cluster.submit_with_token(node(cluster, WORKER).client_request("join"))
    event = management_cluster.client.wait_for_any(
        EVENTS.collection(cluster.namespace), lambda event: event["reason"] == "WorkloadGrantMissing"
    )
    assert "403 Forbidden" in event["message"]
    assert f"repeat node-attestation-controller workload-kubeconfig {cluster.key} with" in event["message"]
    assert "grant ClusterRole node-attestation-workload of deploy/rbac/workload.yaml" in event["message"]
    assert cluster.verdict("join").condition == ""
    assert cluster.client().get(CERTIFICATE_SIGNING_REQUESTS.object("join"))["status"] == {}
    embedded_api(cluster).apply_yaml((FOLDER / "workload.yaml").read_text(encoding="utf-8"))
    wait_for_condition(cluster, "Ready", "True")
    assert cluster.wait_until_decided("join").reason == "Attested"


def test_without_the_verb_on_the_builtin_signer_its_requests_wait(
    management_cluster: ManagementCluster, cluster: WorldCluster, start: Callable[..., Any]
) -> None:
    take_away(cluster, "node-attestation-builtin-serving", "approve")
    cluster.authorize("keyed-mac", builtinServingRequests="Approve")
    cluster.add_machine(WORKER, provider_id=f"test:///{WORKER}")
    start()
    worker = node(cluster, WORKER)
    cluster.submit_with_token(worker.client_request("join"))
    kubelet = worker.connection(cluster.api.connection(), cluster.wait_until_decided("join").certificate)
    cluster.submit(builtin_serving_request("built-in", WORKER, [WORKER]), kubelet)
    event = management_cluster.client.wait_for_any(
        EVENTS.collection(cluster.namespace), lambda event: event["reason"] == "WorkloadGrantMissing"
    )
    assert "403 Forbidden" in event["message"]
    assert "grant ClusterRole node-attestation-builtin-serving of deploy/rbac/workload.yaml" in event["message"]
    assert cluster.verdict("built-in").condition == ""


def test_without_bind_nothing_is_given_back(cluster: WorldCluster, start: Callable[..., Any]) -> None:
    """And what is not given back stays kept."""
    take_away(cluster, "node-attestation-auto-approval", "bind")
    cluster.authorize("keyed-mac", mode="Enforce")
    start()
    wait_for_condition(cluster, "AutoApprovalRemoved", "True", "Removed")
    set_mode(cluster, "Observe")
    condition = wait_for_condition(cluster, "AutoApprovalRemoved", "False", "RestorationIncomplete")
    assert "the controller may not restore it" in condition["message"]
    assert (bindings(cluster), len(kept(cluster))) == (set(), 1)


# What the comments say of optional roles


def test_the_base_role_suffices_for_a_cluster_that_only_attests(
    management_cluster: ManagementCluster, cluster: WorldCluster, start: Callable[..., RunningController]
) -> None:
    """Nothing but the roles `controller` and `secrets` is bound, and the controller key was made before."""
    management = embedded_api(management_cluster)
    bindings = [
        *management.objects("clusterrolebindings"),
        *management.objects("rolebindings", CONTROLLER_NAMESPACE),
        *management.objects("rolebindings", cluster.namespace),
    ]
    for binding in bindings:
        name = binding["metadata"]["name"]
        if name.startswith(PREFIX) and name.removeprefix(PREFIX) not in BASE_ROLES:
            management.update({**binding, "subjects": []})
    key = controller_key_secret(CONTROLLER_NAMESPACE, ControllerKeys(bytes(KEY_BYTES)))
    management_cluster.client.create(SECRETS.collection(CONTROLLER_NAMESPACE), key)
    cluster.authorize("keyed-mac")
    cluster.add_machine(WORKER, provider_id=f"test:///{WORKER}")
    start()
    worker = node(cluster, WORKER)
    cluster.submit_with_token(worker.client_request("join"))
    joined = cluster.wait_until_decided("join")
    assert joined.reason == "Attested", joined
    kubelet = worker.connection(cluster.api.connection(), joined.certificate)
    cluster.submit(worker.client_request("renew"), kubelet)
    assert cluster.wait_until_decided("renew").reason == "Attested"
    cluster.submit(worker.serving_request("serve", dns_names=[WORKER]), kubelet)
    assert cluster.wait_until_decided("serve").reason == "Attested"
    wait_for_condition(cluster, "Ready", "True")
    allowed = {
        (rule.group, verb, rule.resource)
        for rule, verbs in granted_rules().items()
        for verb in verbs
        if rule.role in BASE_ROLES
    }
    answered = [call for call in requests_of(management, SERVICE_ACCOUNT) if call.status != 403]
    assert used(answered) <= allowed
    refused = used(call for call in requests_of(management, SERVICE_ACCOUNT) if call.status == 403)
    assert refused <= {
        ("apiextensions.k8s.io", "get", "customresourcedefinitions"),
        ("attestation.cluster.x-k8s.io", "patch", "nodeattestationpolicies"),
        ("bootstrap.cluster.x-k8s.io", "list", "kubeadmconfigs"),
    }


@pytest.mark.parametrize(
    ("kind", "binding", "condition", "status", "reason"),
    [
        ("workload", "node-attestation-auto-approval", "AutoApprovalRemoved", "Unknown", "Forbidden"),
        ("workload", "node-attestation-admission-policies", "BuiltinRequestsRefused", "False", "Forbidden"),
        ("workload", "node-attestation-bootstrap-tokens", "MachinePoolTokensExtended", "False", "Forbidden"),
        ("management", "node-attestation-bootstrap-tokens", "BootstrapTokensTraceable", "False", "TracingOff"),
    ],
)
def test_without_an_optional_role_a_condition_says_what_is_off(
    kind: str,
    binding: str,
    condition: str,
    status: str,
    reason: str,
    management_cluster: ManagementCluster,
    cluster: WorldCluster,
    start: Callable[..., Any],
) -> None:
    api = embedded_api(management_cluster if kind == "management" else cluster)
    optional_role_is_unbound(api, binding)
    cluster.authorize("keyed-mac", **EVERYTHING)
    start()
    wait_for_condition(cluster, condition, status, reason)


def optional_role_is_unbound(api: EmbeddedAPI, name: str) -> None:
    """Take the subjects off the binding of that name, wherever it is."""
    found = [*api.objects("clusterrolebindings"), *api.objects("rolebindings", "kube-system")]
    (binding,) = [item for item in found if item["metadata"]["name"] == name]
    api.update({**binding, "subjects": []})
