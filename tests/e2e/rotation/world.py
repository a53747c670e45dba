"""A cluster whose CAs are rotated: two real kube-apiservers behind a balancer, kube-controller-manager, and nodes.

The KubeadmControlPlane's controller cannot run here. :class:`ControlPlaneProvider` does what it does to files: it makes
a Machine from what the Secrets hold at that moment, as kubeadm would at its join, and removes the Machine that it
replaces. The API server of the new Machine is a new process at the address of the former one.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Final, Self

import yaml
from cryptography import x509

from signer.configuration import RotationSettings
from signer.kube.client import JsonObject
from signer.kube.connection import ClusterConnection
from signer.kube.errors import NotFound
from signer.kube.kubeconfig import parse_kubeconfig
from signer.kube.resources import (
    CERTIFICATE_AUTHORITY_ROTATIONS,
    CLUSTERS_V1BETA2,
    CONFIG_MAPS,
    KUBEADM_CONTROL_PLANES_V1BETA2,
    MACHINES_V1BETA2,
    NODE_ATTESTATION_POLICIES,
    PODS,
    SECRETS,
)
from signer.model.cluster import CONTROL_PLANE_LABEL
from signer.model.fields import format_time, parse_time
from signer.model.rotation_waits import Waits
from signer.rotation.bundles import read_bundle
from signer.rotation.control_plane.readiness import Missing, readiness
from signer.rotation.control_plane.template import control_plane_template
from signer.rotation.control_plane.template_patch import template_patch
from signer.rotation.operations import OPERATION_ANNOTATION, SKIP_GATES_ANNOTATION
from signer.rotation.phases import FORWARD, SigningPairs
from signer.rotation.signing_secret import CLIENT, SERVING
from signer.testing.api.kubeconfig import kubeconfig_of
from signer.testing.clients import BlockingClient
from signer.testing.world import ManagementCluster, WorldCluster
from tests.e2e.rotation.controller_managers import (
    ControllerManagerOfEachMachine,
    ControllerManagers,
    SharedControllerManager,
    Template,
)
from tests.integration.fixtures import provider_id
from tests.integration.providers.nodes import KeyedMACNode
from tests.support import kubeadm
from tests.support.api_servers import ApiServer, ReplicatedControlPlane, replace_file
from tests.support.certificates import CertificateAuthority
from tests.support.machine_authorities import KINDS, SERVICE_ACCOUNT, MachineAuthorities
from tests.support.processes import wait_until
from tests.support.raw_client import RawClient
from tests.unit.signer.rotation.control_plane.recorded import recorded

CLUSTER: Final = "blue"
NAMESPACE: Final = "default"
WAITS: Final = Waits(trust_age=timedelta(seconds=2), overlap=timedelta(seconds=2), open_watches=timedelta(hours=1))
"""What the named setting shortens: waits for caches and for people."""
SETTINGS: Final = RotationSettings(waits=WAITS)


@dataclass
class WorkloadAPI:
    """The cluster as :class:`~signer.testing.world.WorldCluster` sees it: the API behind the balancer."""

    control_plane: ReplicatedControlPlane
    authority: CertificateAuthority

    @property
    def ca_certificate_pem(self) -> bytes:
        """The CA at the beginning."""
        return self.authority.certificate_pem

    @property
    def ca_key_pem(self) -> bytes:
        """Its key."""
        return self.authority.key_pem

    def connection(
        self, user: str = "kubernetes-admin", groups: Sequence[str] = ("system:masters",)
    ) -> ClusterConnection:
        """Through the balancer, by the CA that the test knows as the present one."""
        return self.control_plane.connection(self.authority, user=user, groups=groups)

    def token_connection(self, token: str) -> ClusterConnection:
        """With a bearer token."""
        return ClusterConnection(self.control_plane.balancer.server, self.control_plane.trust, bearer_token=token)

    def kubeconfig(self) -> str:
        """As KCP makes it: one CA."""
        connection = replace(self.connection(), certificate_authority=self.authority.certificate_pem)
        return kubeconfig_of(connection, CLUSTER)

    def bootstrap_token(self) -> str:
        """A new bootstrap token."""
        token = kubeadm.BootstrapToken.random()
        with RawClient(self.connection()) as client:
            client.post("/api/v1/namespaces/kube-system/secrets", token.as_secret(timedelta(hours=2))).expect(201)
        for server in self.control_plane.servers:  # each learns of it by its own watch
            connection = replace(self.token_connection(token.token), server=server.server)
            with RawClient(connection) as client:
                wait_until(lambda: client.get("/version").status == 200, f"{server.name} accepts the bootstrap token")
        return token.token


class RotationWorld:
    """The management cluster is ``management``; a context manager."""

    def __init__(
        self,
        management: ManagementCluster,
        *,
        servers: int = 2,
        authorities: MachineAuthorities | None = None,
        signing_pairs: SigningPairs = SigningPairs.ONE_PAIR,
    ) -> None:
        """With ``authorities``, the rotation replaces etcd's CA, the front proxy's and the service-account key, too.
        With ``SPLIT``, the template has the flags and files of split signing pairs, and each Machine has a
        kube-controller-manager of its own.
        """
        self.management = management
        self.authorities = authorities
        self.signing_pairs = signing_pairs
        self.old = CertificateAuthority.like_cluster_api()
        self._number = servers
        self._stack = contextlib.ExitStack()
        self.nodes: dict[str, RotatedNode] = {}

    def __enter__(self) -> Self:
        with contextlib.ExitStack() as stack:
            self.control_plane = stack.enter_context(
                ReplicatedControlPlane(self.old, self.old, number=self._number, authorities=self.authorities)
            )
            self.api = WorkloadAPI(self.control_plane, self.old)
            self.cluster: WorldCluster = self.management.add_cluster(CLUSTER, self.api, namespace=NAMESPACE)
            stack.callback(self.cluster.remove)
            stack.callback(self.cluster.close)
            for suffix, pair in (self.authorities.pairs if self.authorities else {}).items():
                self.cluster.put_secret(suffix, pair)
            self._create_control_plane()
            self.controllers = self._start_controllers()
            self._seed_workload()
            self.provider = ControlPlaneProvider(self)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    # Objects

    @property
    def client(self) -> BlockingClient:
        """Of the management cluster."""
        return self.management.client

    def _start_controllers(self) -> ControllerManagers:
        if self.signing_pairs is SigningPairs.ONE_PAIR:
            return SharedControllerManager(self.control_plane)
        old = {"crt": self.old.certificate_pem, "key": self.old.key_pem}
        self.cluster.put_secret("signing", {f"{one}.{end}": old[end] for one in (CLIENT, SERVING) for end in old})
        trust = {"client-ca.crt": self.old.certificate_pem, "server-ca.crt": self.old.certificate_pem, "link.crt": b""}
        self.cluster.put_secret("trust", trust)
        managers = ControllerManagerOfEachMachine(self.control_plane, self.template)
        for server in self.control_plane.servers:
            managers.start(server, self.old, self.secret)
        return managers

    def template(self) -> Template:
        """What the control plane's template says of kube-controller-manager, as it is now."""
        path = KUBEADM_CONTROL_PLANES_V1BETA2.object(f"{CLUSTER}-control-plane", NAMESPACE)
        return Template(self.client.get(path), CLUSTER, self.signing_pairs)

    def _create_control_plane(self) -> None:
        manifest = recorded("kubeadm-control-plane-v1beta2")
        name = f"{CLUSTER}-control-plane"
        manifest["metadata"] = {"name": name, "namespace": NAMESPACE}
        manifest["spec"]["replicas"] = self._number
        manifest.pop("status")
        found = readiness(control_plane_template(manifest), CLUSTER, self.signing_pairs)
        assert isinstance(found, Missing)
        path = KUBEADM_CONTROL_PLANES_V1BETA2
        self.client.create(path.collection(NAMESPACE), manifest)
        created = self.client.get(path.object(name, NAMESPACE))
        self.client.patch(path.object(name, NAMESPACE), template_patch(created, found), "application/json-patch+json")
        reference = {"apiGroup": "controlplane.cluster.x-k8s.io", "kind": "KubeadmControlPlane", "name": name}
        self.cluster.patch({"spec": {"controlPlaneRef": reference}})
        self.settle()

    def settle(self) -> None:
        """The provider's status: complete, and up to date with its spec."""
        path = KUBEADM_CONTROL_PLANES_V1BETA2.object(f"{CLUSTER}-control-plane", NAMESPACE)
        generation = self.client.get(path)["metadata"]["generation"]
        count = {"replicas": self._number, "readyReplicas": self._number, "upToDateReplicas": self._number}
        rolling = {"type": "RollingOut", "status": "False", "reason": "NotRollingOut"}
        times = {"lastTransitionTime": format_time(datetime.now(UTC))}
        status = {**count, "observedGeneration": generation, "conditions": [{**rolling, **times}]}
        self.client.patch(f"{path}/status", {"status": status})

    def _seed_workload(self) -> None:
        with RawClient(self.api.connection()) as client:
            for path, grant in kubeadm.grants():
                client.post(path, grant).expect(201, 409)
            info = kubeconfig_without_user(self.control_plane.balancer.server, self.old.certificate_pem)
            body = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "cluster-info", "namespace": "kube-public"},
                "data": {"kubeconfig": info},
            }
            client.post(CONFIG_MAPS.collection("kube-public"), body).expect(201)
            path = "/api/v1/namespaces/kube-system/serviceaccounts/default"
            wait_until(lambda: client.get(path).status == 200, "kube-system has its service account")

    def secret(self, suffix: str) -> dict[str, bytes]:
        """The decoded data of a Secret of the Cluster."""
        found = self.client.get(SECRETS.object(f"{CLUSTER}-{suffix}", NAMESPACE))
        return {name: base64.b64decode(value) for name, value in found["data"].items()}

    def authority(self) -> CertificateAuthority:
        """The CA that Secret ``<cluster>-ca`` holds now."""
        data = self.secret("ca")
        return CertificateAuthority.from_pem(data["tls.crt"], data["tls.key"])

    def admin_connection(self) -> ClusterConnection:
        """By Secret ``<cluster>-kubeconfig``, as it is now."""
        return parse_kubeconfig(self.secret("kubeconfig")["value"])

    # The rotation

    @property
    def policy(self) -> JsonObject:
        """The NodeAttestationPolicy."""
        return self.client.get(NODE_ATTESTATION_POLICIES.object(CLUSTER, NAMESPACE))

    def order(self, operation: str, *gates: str) -> None:
        """Write the annotation, as a person does."""
        annotations = {OPERATION_ANNOTATION: operation}
        if gates:
            annotations[SKIP_GATES_ANNOTATION] = ",".join(gates)
        path = NODE_ATTESTATION_POLICIES.object(CLUSTER, NAMESPACE)
        self.client.patch(path, {"metadata": {"annotations": annotations}})

    @property
    def record(self) -> dict[str, Any]:
        """``spec`` of the CertificateAuthorityRotation; empty without one."""
        try:
            found = self.client.get(CERTIFICATE_AUTHORITY_ROTATIONS.object(CLUSTER, NAMESPACE))
        except NotFound:
            return {}
        spec: dict[str, Any] = found["spec"]
        return spec

    def condition(self, kind: str) -> dict[str, Any]:
        """A condition of the policy; empty without it."""
        for one in (self.policy.get("status") or {}).get("conditions") or []:
            if one["type"] == kind:
                found: dict[str, Any] = one
                return found
        return {}

    def explained(self) -> str:
        """Why the rotation is where it is."""
        record = self.record
        progressing = self.condition("CertificateAuthorityRotationProgressing")
        rejected = self.condition("OperationRejected")
        shown = {key: record.get(key) for key in ("phase", "step")}
        return f"{shown} {progressing.get('reason')}: {progressing.get('message')} {rejected.get('message', '')}"

    def know_new_authority(self) -> None:
        """Let the test's own clients trust the new CA, too, and use a certificate of the present one."""
        rotation_id = self.record.get("rotationID")
        if rotation_id and self.control_plane.new is self.old:
            with contextlib.suppress(NotFound):
                data = self.secret(f"ca-{rotation_id}")
                self.control_plane.new = CertificateAuthority.from_pem(data["tls.crt"], data["tls.key"])
                self.cluster.close()
        if self.api.authority is self.old and self.authority().certificate_pem != self.old.certificate_pem:
            self.api.authority = self.control_plane.new
            self.cluster.close()

    def until_phase(self, phase: str, *, work: Callable[[], object] = lambda: None, seconds: float = 240) -> None:
        """Let the provider and the nodes follow until the rotation is in that phase."""

        def reached() -> bool:
            work()
            return bool(self.record.get("phase") == phase)

        self.until(reached, f"the rotation is {phase}", seconds)

    def until_step(self, step: str, *, seconds: float = 120) -> None:
        """The same, by step."""
        self.until(lambda: bool(self.record.get("step") == step), f"the rotation works on {step}", seconds)

    def until(self, reached: Callable[[], bool], what: str, seconds: float) -> None:
        """Let the provider and the nodes follow until something else is so."""

        def followed() -> bool:
            self.know_new_authority()
            self.controllers.follow()
            self.provider.follow()
            self.follow_nodes()
            return reached()

        try:
            wait_until(followed, what, seconds)
        except TimeoutError as late:
            raise TimeoutError(f"{late}; {self.explained()}") from None

    # Nodes

    def add_node(self, name: str) -> RotatedNode:
        """A worker that joins."""
        machine = self.cluster.add_machine(name, provider_id=provider_id(name))
        node = RotatedNode(self, name)
        node.join()
        self.cluster.set_machine_status(machine, {"nodeRef": {"name": name}})
        self.nodes[name] = node
        return node

    def follow_nodes(self) -> None:
        """Every node's agent takes the published trust, and renews if the published trust is another one."""
        for node in self.nodes.values():
            node.follow()


class RotatedNode:
    """A node with an agent: it takes the trust that the controller publishes, and renews both certificates."""

    def __init__(self, world: RotationWorld, name: str) -> None:
        self._world = world
        self.name = name
        self.trust = world.old.certificate_pem
        """PEM of the CAs that its kubelet trusts, in order."""
        self._requests = itertools.count(1)
        self._lock = threading.Lock()
        self._renewed_for: object = None
        self.node = KeyedMACNode.of(world.cluster, name, provider_id(name))

    @property
    def connection(self) -> ClusterConnection:
        """What its kubelet connects with."""
        with self._lock:
            credential = self.node.credential
            assert credential is not None
            return replace(credential, certificate_authority=self.trust, tls=None)

    def get_connection(self) -> ClusterConnection:
        """See :attr:`connection`."""
        return self.connection

    def join(self) -> None:
        """The first certificate, by a bootstrap token."""
        node = self.node.with_token(self._world.api.bootstrap_token())
        self._take(node)

    def renew(self) -> None:
        """A client certificate and a serving certificate, with evidence that names the first CA of its trust."""
        self._take(replace(self.node, credential=self.connection))
        verdict = self.node.ask(self._csr("serving"), (self.name,))
        assert verdict.condition == "Approved", verdict

    def _csr(self, kind: str) -> str:
        return f"{self.name}-{kind}-{next(self._requests)}"

    def _take(self, node: KeyedMACNode) -> None:
        first = read_bundle(self.trust)
        assert isinstance(first, tuple)
        named = node.but(ca_cert_hash=hash_of(first[0]))
        verdict = named.ask(self._csr("client"))
        assert verdict.condition == "Approved", verdict
        with self._lock:
            joined = named.joined(verdict)
            assert joined.credential is not None
            self.node = joined

    @property
    def issuer(self) -> x509.Name:
        """The CA of its client certificate."""
        certificate = self.connection.client_certificate
        assert certificate is not None
        return x509.load_pem_x509_certificate(certificate).issuer

    def follow(self) -> None:
        """Take what is published; renew whenever that or the step that signs has changed."""
        try:
            published = self._world.secret("trust")["server-ca.crt"]
        except NotFound:
            return
        wanted = (published, who_signs(self._world.record))
        if wanted == self._renewed_for:
            return
        with self._lock:
            self.trust = published
        self.renew()
        self._renewed_for = wanted


def who_signs(record: dict[str, Any]) -> tuple[str, bool]:
    """What a node renews for: an agent renews when its trust changed, or other CAs sign than before."""
    step = record.get("step", "")
    back = record.get("phase") in ("RollingBack", "RolledBack")
    forward = [one.value for one in FORWARD]
    signing = [step in forward[forward.index(one) :] for one in ("SignClients", "SignServing")]
    return str(signing), back


def hash_of(der: bytes) -> str:
    """The discovery hash of a certificate."""
    from signer.authority.lenient_certificate import parse_ca_certificate

    return parse_ca_certificate(der).public_key_hash


@dataclass
class ControlPlaneMachine:
    """A Machine of the control plane, and the API server that runs on it."""

    name: str
    server: ApiServer


@dataclass
class ControlPlaneProvider:
    """Does what the KubeadmControlPlane's controller and kubeadm do to files, one Machine at a time."""

    world: RotationWorld
    machines: list[ControlPlaneMachine] = field(default_factory=list)
    rollouts: int = 0
    drained: Callable[[ApiServer], AbstractContextManager[None]] = field(
        default=lambda server: contextlib.nullcontext()
    )
    """Around the replacement of an API server."""
    former_keys: dict[str, bytes] = field(default_factory=dict)
    """What Machines get in place of Secret ``<cluster>-sa``, as from a stale cache; empty for the Secret itself."""
    _left_out: ControlPlaneMachine | None = None
    _made: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        for server in self.world.control_plane.servers:
            self.machines.append(self._make(server, restart=False))

    def follow(self) -> None:
        """Replace one Machine that is older than ``rollout.after``, if there is one."""
        after = self._after()
        if after is None or datetime.now(UTC) < after:
            return
        for machine in self.machines:
            if machine is not self._left_out and self._created(machine) < after:
                self.replace(machine)
                return
        self.world.settle()

    def leave_out(self, machine: ControlPlaneMachine | None) -> None:
        """Do not replace that Machine: a rollout that is stuck."""
        self._left_out = machine

    def _after(self) -> datetime | None:
        path = KUBEADM_CONTROL_PLANES_V1BETA2.object(f"{CLUSTER}-control-plane", NAMESPACE)
        after = (self.world.client.get(path)["spec"].get("rollout") or {}).get("after")
        return None if after is None else parse_time(after)

    def _created(self, machine: ControlPlaneMachine) -> datetime:
        found = self.world.client.get(MACHINES_V1BETA2.object(machine.name, NAMESPACE))
        return parse_time(found["metadata"]["creationTimestamp"])

    def replace(self, machine: ControlPlaneMachine) -> None:
        """Make a Machine from what the Secrets hold now, and remove the former one."""
        self.rollouts += 1
        self.world.client.delete(MACHINES_V1BETA2.object(machine.name, NAMESPACE))
        self.machines.remove(machine)
        self.machines.append(self._make(machine.server, restart=True))

    def _make(self, server: ApiServer, *, restart: bool) -> ControlPlaneMachine:
        name = f"{CLUSTER}-control-plane-{next(self._made)}"
        # The object comes before the files: these are at least as new as it is.
        made = self.world.cluster.add_machine(
            name, provider_id=provider_id(name), addresses=[("InternalIP", server.address)]
        )
        self.world.cluster.patch_machine(name, {"metadata": {"labels": {CONTROL_PLANE_LABEL: ""}}})
        if restart:
            with self.drained(server):
                self._replace_files(server)
        self.world.cluster.set_machine_status(made, {"nodeRef": {"name": server.node_name}})
        self._mirror_pod(server)
        return ControlPlaneMachine(name, server)

    def _replace_files(self, server: ApiServer) -> None:
        """What cloud-init writes from the Secrets of the template, and kubeadm makes by those of Cluster API."""
        world, authority, trust = self.world, self.world.authority(), self.world.secret("trust")
        world.controllers.stop(server)
        server.accept_pem(trust["client-ca.crt"])
        server.present(authority, trust["link.crt"])
        if world.authorities is not None:
            server.stop()
            pairs = {suffix: world.secret(suffix) for suffix in KINDS}
            world.authorities.make(server, {**pairs, SERVICE_ACCOUNT: self.former_keys or pairs[SERVICE_ACCOUNT]})
            replace_file(world.control_plane.folder / "sa.key", world.secret("sa")["tls.key"])
        server.restart()
        world.controllers.start(server, authority, world.secret)

    def _mirror_pod(self, server: ApiServer) -> None:
        """As the kubelet shows kube-controller-manager."""
        name = f"kube-controller-manager-{server.node_name}"
        program = "kube-controller-manager"
        container = {"name": program, "image": program, "command": self.world.template().command}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": "kube-system",
                "annotations": {"kubernetes.io/config.mirror": "0"},
            },
            "spec": {"nodeName": server.node_name, "containers": [container]},
        }
        started = {"running": {"startedAt": format_time(datetime.now(UTC))}}
        state = {"name": "kube-controller-manager", "state": started, "ready": True, "image": "", "imageID": ""}
        status = {"containerStatuses": [{**state, "restartCount": 0}]}
        with RawClient(self.world.admin_connection()) as client:
            client.delete(f"{PODS.object(name, 'kube-system')}?gracePeriodSeconds=0")
            client.post(PODS.collection("kube-system"), pod).expect(201)
            client.patch(f"{PODS.object(name, 'kube-system')}/status", {"status": status}).expect(200)


def kubeconfig_without_user(server: str, authority: bytes) -> str:
    """As kubeadm writes it into ``cluster-info``."""
    data = base64.b64encode(authority).decode("ascii")
    cluster = {"name": "", "cluster": {"server": server, "certificate-authority-data": data}}
    return yaml.safe_dump(
        {"apiVersion": "v1", "kind": "Config", "clusters": [cluster], "contexts": [], "users": [], "preferences": {}}
    )


__all__ = ["CLUSTERS_V1BETA2", "SETTINGS", "RotationWorld", "hash_of"]
