"""A cluster with kubeadm's auto-approval: real kube-apiserver, real kube-controller-manager, and a token thief."""

from __future__ import annotations

import base64
import contextlib
import functools
import itertools
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ec
from keyed_mac.keys import derive_machine_key

from attestors.wire.names import NODE_USER_PREFIX
from signer.configuration import Configuration, OperatorAttestor
from signer.kube.connection import ClusterConnection
from signer.kube.resources import (
    CERTIFICATE_SIGNING_REQUESTS,
    CLUSTER_ROLE_BINDINGS,
    NODE_ATTESTATION_POLICIES,
)
from signer.model import condition as conditions
from signer.testing.nodes import SimulatedNode
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster, RunningController, Verdict, WorldCluster
from tests.support.certificates import with_client_certificate
from tests.support.cluster_api import cluster_api_crds
from tests.support.control_plane import ControlPlane
from tests.support.grants import as_service_account, restrict_in_workload_cluster
from tests.support.processes import Program, wait_until
from tests.support.raw_client import RawClient
from tests.support.signing_requests import (
    BUILTIN_CLIENT_SIGNER,
    BUILTIN_SERVING_SIGNER,
    request_pem,
    signing_request,
)

VICTIM: Final = "victim"
THIEF: Final = "thief"
ADDRESSES: Final = {VICTIM: "10.1.0.1", THIEF: "10.1.0.2"}
"""Both Machines: the victim's node runs a Pod with a Secret, the thief's has been broken into."""
CONTROL_PLANE_HOST: Final = "control-plane.example"
"""``spec.controlPlaneEndpoint`` of every Cluster of ``signer.testing.world``."""
NAMESPACE: Final = "auto-approval"
SECRET_PATH: Final = f"/api/v1/namespaces/{NAMESPACE}/secrets/victims-secret"
KUBEADM_BINDINGS: Final = ("kubeadm:node-autoapprove-bootstrap", "kubeadm:node-autoapprove-certificate-rotation")

REFUSED: Final = "mode Enforce refuses"
"""What the API server says that refuses at admission."""

# What kube-controller-manager 1.20 wants: it ignores requests without key encipherment.
BUILTIN_CLIENT_USAGES: Final = ("digital signature", "key encipherment", "client auth")
BUILTIN_SERVING_USAGES: Final = ("digital signature", "key encipherment", "server auth")


@dataclass
class AutoApprovalWorld:
    """One control plane that is management and workload cluster in one, and everybody who asks it for certificates."""

    plane: ControlPlane
    management: ManagementCluster
    cluster: WorldCluster
    builtin_signer: Program
    """kube-controller-manager, whose log says what it looked at."""
    token: str = field(repr=False)
    """The bootstrap token that the thief holds."""
    master_key: bytes = field(repr=False)
    access: ClusterConnection
    """The controller's, as its ServiceAccount."""
    not_ours: set[str] = field(default_factory=set)
    """CSRs whose certificates were had without the controller, each known to the test that made it."""
    _names: Iterator[int] = field(default_factory=itertools.count)
    _own: dict[str, ClusterConnection] = field(default_factory=dict, repr=False)

    # The controller

    @contextlib.contextmanager
    def controller(self) -> Iterator[RunningController]:
        """The controller, until the context ends."""
        settings = {"masterKey": base64.b64encode(self.master_key).decode("ascii")}
        configuration = Configuration(
            namespace=CONTROLLER_NAMESPACE, attestors={"keyed-mac": OperatorAttestor(settings=settings)}
        )
        with RunningController(self.access, configuration) as running:
            yield running

    def set_mode(self, mode: str) -> None:
        """Change the policy's mode."""
        path = NODE_ATTESTATION_POLICIES.object(self.cluster.name, NAMESPACE)
        self.management.client.patch(path, {"spec": {"mode": mode}})

    def wait_for_auto_approval_removed(self, status: str = "True", reason: str = "") -> dict[str, Any]:
        """Wait until the newest generation of the policy has that condition, for that reason if one is given."""
        return self._wait_for_condition(conditions.AUTO_APPROVAL_REMOVED, status, reason)

    def wait_until_shut(self) -> None:
        """Wait until the bindings are gone and, where the API server can, it refuses at admission."""
        self.wait_for_auto_approval_removed()
        if self.refuses_at_admission:
            self._wait_for_condition(conditions.BUILTIN_REQUESTS_REFUSED, "True", "Proven")

    @functools.cached_property
    def refuses_at_admission(self) -> bool:
        """Whether the API server serves what the controller has it refuse requests with: from 1.30 on."""
        with RawClient(self.plane.connection()) as client:
            answer = client.get("/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies")
        answer.expect(200, 404)
        return answer.status == 200

    def _wait_for_condition(self, kind: str, status: str, reason: str) -> dict[str, Any]:
        def found(policy: dict[str, Any]) -> list[dict[str, Any]]:
            generation = policy["metadata"]["generation"]
            return [
                item
                for item in (policy.get("status") or {}).get("conditions") or []
                if (item["type"], item["status"]) == (kind, status)
                and item["observedGeneration"] == generation
                and reason in ("", item["reason"])
            ]

        path = NODE_ATTESTATION_POLICIES.collection(NAMESPACE)
        return found(self.management.client.wait_for(path, self.cluster.name, lambda item: bool(found(item))))[0]

    def bindings(self) -> dict[str, Any]:
        """Every ClusterRoleBinding: what of it makes it the same one."""
        return {
            item["metadata"]["name"]: {
                "labels": item["metadata"].get("labels", {}),
                "annotations": item["metadata"].get("annotations", {}),
                "roleRef": item["roleRef"],
                "subjects": item.get("subjects", []),
            }
            for item in self.management.client.items(CLUSTER_ROLE_BINDINGS.collection())
        }

    # Nodes

    def node(self, machine: str) -> SimulatedNode:
        """The machine of that name, which holds its own key to attest with."""
        provider_id = f"test:///{machine}"
        machine_key = base64.b64encode(derive_machine_key(self.master_key, provider_id)).decode("ascii")
        settings = {"provider-id": provider_id, "machine-key": machine_key}
        return SimulatedNode(machine, provider_id, self.cluster.ca_cert_hash, "keyed-mac", settings)

    def join(self, machine: str) -> Verdict:
        """Let that machine join by attestation."""
        joining, name = self.node(machine), self.name("join")
        self.cluster.submit_with_token(joining.client_request(name), self.token)
        verdict = self.cluster.wait_until_decided(name)
        assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict
        self._own[machine] = with_client_certificate(self.plane.connection(), verdict.certificate, joining.key)
        return verdict

    def as_node(self, machine: str) -> ClusterConnection:
        """The credential that the machine got by attestation."""
        return self._own[machine]

    def as_token_holder(self) -> ClusterConnection:
        """What the thief has to begin with."""
        return self.plane.token_connection(self.token)

    # Requests

    def name(self, kind: str) -> str:
        """A name for a CSR that no other test has."""
        return f"{kind}-{next(self._names)}"

    def post(self, manifest: dict[str, Any], connection: ClusterConnection) -> str:
        """Post a CSR; returns its name."""
        return str(self.cluster.submit(manifest, connection)["metadata"]["name"])

    def post_unless_forbidden(self, manifest: dict[str, Any], connection: ClusterConnection) -> bool:
        """Post a CSR that newer API servers refuse at once (NodeRestriction, from 1.31); whether it was taken."""
        with RawClient(connection) as client:
            answer = client.post(CERTIFICATE_SIGNING_REQUESTS.collection(), manifest)
        answer.expect(201, 403)
        return answer.status == 201

    def assert_gets_no_client_certificate(
        self, manifest: dict[str, Any], connection: ClusterConnection, *, refused_as: str = REFUSED
    ) -> None:
        """The built-in client signer gives nothing for it. Where the API server refuses at admission, it must do so,
        with that message; elsewhere it takes the request, and the built-in approver refuses it.
        """
        with RawClient(connection) as client:
            answer = client.post(CERTIFICATE_SIGNING_REQUESTS.collection(), manifest)
        if self.refuses_at_admission:
            assert (answer.status, refused_as in answer.message) == (403, True), answer
        else:
            answer.expect(201)
            self.assert_waits_for_ever(manifest["metadata"]["name"])

    def assert_waits_for_ever(self, name: str) -> None:
        """The built-in approver has refused it, and serves an administrator, who needs no auto-approval. Deletes it."""
        said = f'recognized csr "{name}" as'
        # Newer versions quote what is quoted already.
        wait_until(
            lambda: said in self.builtin_signer.log.read_text(errors="replace").replace('\\"', '"'),
            f"the log says: {said}",
        )
        control = self.name("control")
        self.not_ours.add(control)
        self.cluster.client().create(
            CERTIFICATE_SIGNING_REQUESTS.collection(), builtin_client_request(control, control)
        )
        assert self.cluster.wait_until_decided(control).certificate
        verdict = self.cluster.verdict(name)
        assert (verdict.condition, verdict.certificate) == ("", b""), verdict
        # It would still be served if somebody opened the door for a moment, as later tests do.
        self.cluster.client().delete(CERTIFICATE_SIGNING_REQUESTS.object(name))

    def assert_denied(self, name: str, *reasons: str) -> Verdict:
        """The controller has denied it for one of these reasons."""
        verdict = self.cluster.wait_until_decided(name)
        assert (verdict.condition, verdict.certificate) == ("Denied", b""), verdict
        assert verdict.reason in reasons, verdict
        return verdict


def builtin_client_request(
    name: str, node_name: str, key: ec.EllipticCurvePrivateKey | None = None, **metadata: Any
) -> dict[str, Any]:
    """What a stock kubelet posts to become ``node_name``; ``metadata`` adds to the object's."""
    request = request_pem(NODE_USER_PREFIX + node_name, key=key)
    manifest = signing_request(name, request, signer=BUILTIN_CLIENT_SIGNER, usages=BUILTIN_CLIENT_USAGES)
    manifest["metadata"].update(metadata)
    return manifest


def builtin_serving_request(name: str, node_name: str, *alternative_names: str) -> dict[str, Any]:
    """What a stock kubelet with ``serverTLSBootstrap`` posts as ``node_name``."""
    request = request_pem(NODE_USER_PREFIX + node_name, alternative_names=alternative_names)
    return signing_request(name, request, signer=BUILTIN_SERVING_SIGNER, usages=BUILTIN_SERVING_USAGES)


@contextlib.contextmanager
def open_auto_approval_world(name: str) -> Iterator[AutoApprovalWorld]:
    """A control plane with kubeadm's grants and kube-controller-manager, a policy in Observe, and both Machines."""
    with ControlPlane() as plane, furnished(plane, name, secrets.token_bytes(32)) as world:
        yield world
        plane.check_running()


@contextlib.contextmanager
def furnished(
    plane: ControlPlane, name: str, master_key: bytes, access: ClusterConnection | None = None
) -> Iterator[AutoApprovalWorld]:
    """All of it on a control plane that runs; the controller is granted what it needs, unless it has ``access``."""
    plane.seed_kubeadm()
    builtin_signer = plane.start_controllers(qps=100, burst=100, verbosity=4)
    with ManagementCluster(plane, capi_crds=cluster_api_crds()) as management:
        cluster = management.add_cluster(name, plane, namespace=NAMESPACE)
        for machine, address in ADDRESSES.items():
            addresses = [("Hostname", machine), ("InternalIP", address)]
            cluster.add_machine(machine, provider_id=f"test:///{machine}", addresses=addresses)
        restrict_in_workload_cluster(cluster, plane)
        cluster.authorize("keyed-mac")
        granted = access or as_service_account(plane, NAMESPACE)
        yield AutoApprovalWorld(
            plane, management, cluster, builtin_signer, plane.bootstrap_token(), master_key, granted
        )


def run_a_pod_on(world: AutoApprovalWorld, node_name: str) -> None:
    """A Node, and a Pod on it that uses the Secret of ``SECRET_PATH``: what is to be had under that node's name."""
    client = world.management.client
    client.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node_name}})
    in_namespace = f"/api/v1/namespaces/{NAMESPACE}"
    for collection, kind, name, fields in (
        ("serviceaccounts", "ServiceAccount", "default", {"automountServiceAccountToken": False}),
        ("secrets", "Secret", "victims-secret", {"stringData": {"password": "of the victim"}}),
        (
            "pods",
            "Pod",
            "victims-pod",
            {
                "spec": {
                    "nodeName": node_name,
                    "containers": [{"name": "main", "image": "none"}],
                    "volumes": [{"name": "secret", "secret": {"secretName": "victims-secret"}}],
                }
            },
        ),
    ):
        body = {"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}, **fields}
        client.create(f"{in_namespace}/{collection}", body)


def reads_the_secret(connection: ClusterConnection) -> int:
    """The status code with which the API server answers whoever asks for the victim's Secret."""
    with RawClient(connection) as client:
        return client.get(SECRET_PATH).status
