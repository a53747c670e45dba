"""A real control plane for tests: etcd, kube-apiserver and optionally kube-controller-manager.

Everything listens on the loopback interface and uses one temporary folder. Settings that matter for nodes and
certificates are those of kubeadm. Each ``ControlPlane`` is one cluster with its own CA and etcd; a test may use one as
several clusters.

The interface is that of the embedded API of ``signer.testing``, so that fixtures can use either.
"""

from __future__ import annotations

import datetime
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import rsa

from signer.kube.connection import ClusterConnection
from signer.testing.api.kubeconfig import kubeconfig_of
from tests.support import kubeadm
from tests.support.binaries import ControlPlaneBinaries, find_control_plane
from tests.support.certificates import CertificateAuthority, private_key_pem, public_key_pem
from tests.support.closing import ClosedAtTheEnd
from tests.support.etcd import NO_SYNCS, Disk, Etcd, start_on_free_port
from tests.support.processes import Program, Programs, wait_until
from tests.support.raw_client import RawClient
from tests.support.yaml_documents import safe_load_all

_ADMINISTRATOR: Final = "kubernetes-admin"
_ADMINISTRATORS: Final = ("system:masters",)
_SYSTEM_NAMESPACES: Final = ("default", "kube-system", "kube-node-lease")
_CRDS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


class ControlPlane(ClosedAtTheEnd):
    """A running control plane; a context manager that stops it.

    ``ca`` is the cluster CA (default: a new one like Cluster API's). ``apiserver_flags`` are added to kube-apiserver's
    flags; ``disk`` is etcd's. kube-apiserver listens at ``address``; with ``::1`` the cluster uses IPv6. Raises
    ``MissingPart`` without the binaries and ``ProgramFailed`` if a program does not start.
    """

    def __init__(
        self,
        *,
        ca: CertificateAuthority | None = None,
        binaries: ControlPlaneBinaries | None = None,
        apiserver_flags: Sequence[str] = (),
        disk: Disk = NO_SYNCS,
        address: str = "127.0.0.1",
    ) -> None:
        self.binaries = binaries or find_control_plane()
        self.ca = ca or CertificateAuthority.like_cluster_api()
        self._apiserver_flags = tuple(apiserver_flags)
        self._address = address
        self._programs = Programs("node-attestation-control-plane-")
        self._folder = self._programs.folder
        self._apiserver: Program | None = None
        self._controllers: Program | None = None
        self._port = 0
        self._admin_lock = threading.Lock()
        with self._programs.closed_on_failure():
            self._write_files()
            self._etcd = Etcd(self._programs, self.binaries.etcd, disk)
            self._apiserver = self._start_apiserver_on_free_port()
            self._admin = RawClient(self.connection())
            self._wait_for_system_namespaces()

    # For tests

    @property
    def server(self) -> str:
        """``https://127.0.0.1:port``; the port survives ``restart``."""
        host = f"[{self._address}]" if self._is_of_ipv6 else self._address
        return f"https://{host}:{self._port}"

    @property
    def _is_of_ipv6(self) -> bool:
        return ":" in self._address

    @property
    def ca_certificate_pem(self) -> bytes:
        return self.ca.certificate_pem

    @property
    def ca_key_pem(self) -> bytes:
        return self.ca.key_pem

    @property
    def service_account_key_pem(self) -> bytes:
        """The key with which kube-controller-manager signs service account tokens."""
        return (self._folder / "sa.key").read_bytes()

    @property
    def etcd_url(self) -> str:
        """etcd's client URL, without TLS."""
        return self._etcd.url

    def versions(self) -> dict[str, str]:
        """The version output of each program, by name."""
        return self.binaries.versions()

    def connection(self, user: str = _ADMINISTRATOR, groups: Sequence[str] = _ADMINISTRATORS) -> ClusterConnection:
        """A connection with a fresh client certificate of the cluster CA: CN is ``user``, O are ``groups``."""
        certificate, key = self.ca.issue_client(user, groups)
        return self.certificate_connection(certificate, key)

    def certificate_connection(self, certificate: bytes, key: bytes) -> ClusterConnection:
        """A connection with the caller's client certificate and key (PEM)."""
        return ClusterConnection(self.server, self.ca.certificate_pem, client_certificate=certificate, client_key=key)

    def token_connection(self, token: str) -> ClusterConnection:
        """A connection with a bearer token."""
        return ClusterConnection(self.server, self.ca.certificate_pem, bearer_token=token)

    def kubeconfig(
        self,
        cluster: str = "workload",
        user: str = _ADMINISTRATOR,
        groups: Sequence[str] = _ADMINISTRATORS,
        connection: ClusterConnection | None = None,
    ) -> str:
        """A kubeconfig as Cluster API writes it, with inline data only.

        ``connection`` replaces ``user`` and ``groups``.
        """
        return kubeconfig_of(connection or self.connection(user, groups), cluster)

    def bootstrap_token(self, lifetime: datetime.timedelta = datetime.timedelta(minutes=15)) -> str:
        """Create a bootstrap token of kubeadm's default group; returns when the API server accepts it."""
        token = kubeadm.BootstrapToken.random()
        with self._admin_lock:  # nodes of a test join in threads
            self._admin.post("/api/v1/namespaces/kube-system/secrets", token.as_secret(lifetime)).expect(201)
        with RawClient(self.token_connection(token.token)) as client:
            wait_until(lambda: client.get("/version").status == 200, "the API server accepts the bootstrap token")
        return token.token

    def seed_kubeadm(self) -> None:
        """Create kubeadm's grants for nodes, unless they exist; returns when the API server applies them."""
        for path, grant in kubeadm.grants():
            self._admin.post(path, grant).expect(201, 409)
        wait_until(self._nodeclient_is_granted, "kubeadm's grants are in force")

    def install_crds(self, paths: Iterable[Path]) -> None:
        """Create or replace the CustomResourceDefinitions of YAML files; returns when their resources are served."""
        for path in paths:
            for document in safe_load_all(path.read_text()):
                if document is not None:
                    self.install_crd(document)

    def install_crd(self, definition: dict[str, Any]) -> None:
        """Create or replace one CustomResourceDefinition; returns when its resources are served."""
        name = definition["metadata"]["name"]
        answer = self._admin.post(_CRDS, definition)
        if answer.status == 409:
            present = self._admin.get(f"{_CRDS}/{name}").expect(200)
            metadata = {**definition["metadata"], "resourceVersion": present["metadata"]["resourceVersion"]}
            answer = self._admin.put(f"{_CRDS}/{name}", {**definition, "metadata": metadata})
        answer.expect(200, 201)
        wait_until(lambda: self._is_served(definition), f"{name} is served")

    def process_ids(self) -> dict[str, int]:
        """Process IDs by program name, to measure their cost."""
        return self._programs.process_ids()

    def revision(self) -> int:
        """etcd's revision; the difference of two revisions is the number of writes between them."""
        return self._etcd.revision()

    def compact(self) -> None:
        """Compact etcd to the newest revision, as the API server does every five minutes."""
        self._etcd.compact()

    def restart(self, *flags: str) -> None:
        """Restart kube-apiserver on the same port, with more flags; etcd keeps running."""
        self.stop_apiserver()
        self._apiserver_flags = (*self._apiserver_flags, *flags)
        self.start_apiserver()

    def stop_apiserver(self) -> None:
        """Stop kube-apiserver; connections are refused until ``start_apiserver``."""
        if self._apiserver is not None:
            self._admin.close()
            self._programs.stop(self._apiserver)
            self._apiserver = None

    def start_apiserver(self) -> None:
        """Start a stopped kube-apiserver on its port."""
        if self._apiserver is None:
            self._apiserver = self._launch_apiserver()
            self._apiserver.wait_ready(self._apiserver_is_ready)

    def upgrade(self, binaries: ControlPlaneBinaries) -> None:
        """Replace kube-apiserver by that of another version, on the same port; etcd keeps running.

        kube-controller-manager, if it was started, stays as it is.
        """
        self.stop_apiserver()
        self.binaries = binaries
        self.start_apiserver()

    def start_controllers(
        self,
        *,
        controllers: Sequence[str] = ("csrapproving", "csrsigning"),
        qps: float = 20,
        burst: int = 30,
        verbosity: int = 0,
    ) -> Program:
        """Start kube-controller-manager with only the named ``controllers``; it signs with the cluster CA.

        ``qps`` and ``burst`` are its client limits; the defaults are its own. With a ``verbosity`` of 4 or more its log
        names every request that it may not approve for lack of a grant. Raises ``MissingPart``.
        """
        binary = self.binaries.kube_controller_manager()
        configuration = self._folder / "controllers.kubeconfig"
        configuration.write_text(self.kubeconfig(user="system:kube-controller-manager", groups=()))
        flags = {
            **controller_manager_flags(self._folder, configuration),
            "controllers": ",".join(controllers),
            "kube-api-qps": qps,
            "kube-api-burst": burst,
            "v": verbosity,
        }
        port = 0

        def start(free: int) -> Program:
            nonlocal port
            port = free
            arguments = as_arguments({**flags, **self.binaries.without_insecure_port(), "secure-port": port})
            return self._programs.start("kube-controller-manager", [binary, *arguments])

        def is_ready() -> bool:
            with RawClient(ClusterConnection(f"https://127.0.0.1:{port}", self.ca.certificate_pem)) as client:
                return _answers(client, "/healthz")

        self._controllers = start_on_free_port(self._programs, start, is_ready)
        return self._controllers

    def stop_controllers(self) -> None:
        """Stop kube-controller-manager."""
        if self._controllers is not None:
            self._programs.stop(self._controllers)
            self._controllers = None

    def check_running(self) -> None:
        """Raises ``ProgramFailed`` with the end of the log if a program has ended by itself."""
        self._programs.check_running()

    def close(self) -> None:
        """Stop everything and remove the folder."""
        self._admin.close()
        self._programs.close()

    # Start

    def _write_files(self) -> None:
        service_account_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        names = (
            "kubernetes",
            "kubernetes.default",
            "kubernetes.default.svc",
            "localhost",
            "127.0.0.1",
            "::1",
            "10.96.0.1",
            self._address,
        )
        serving, serving_key = self.ca.issue_serving("kube-apiserver", list(dict.fromkeys(names)))
        for name, content in (
            ("ca.crt", self.ca.certificate_pem),
            ("ca.key", self.ca.key_pem),
            ("serving.crt", serving),
            ("serving.key", serving_key),
            ("sa.key", private_key_pem(service_account_key)),
            ("sa.pub", public_key_pem(service_account_key)),
        ):
            path = self._folder / name
            path.touch(mode=0o600)
            path.write_bytes(content)

    def _start_apiserver_on_free_port(self) -> Program:
        def start(port: int) -> Program:
            self._port = port
            return self._launch_apiserver()

        return start_on_free_port(self._programs, start, self._apiserver_is_ready)

    def _launch_apiserver(self) -> Program:
        flags = apiserver_flags(self._folder, self._etcd.url, self._address, self._port)
        return self._programs.start(
            "kube-apiserver", [self.binaries.kube_apiserver, *as_arguments(flags), *self._apiserver_flags]
        )

    def _apiserver_is_ready(self) -> bool:
        with RawClient(self.connection()) as client:
            return _answers(client, "/readyz")

    def _wait_for_system_namespaces(self) -> None:
        def present() -> bool:
            return all(self._admin.get(f"/api/v1/namespaces/{name}").status == 200 for name in _SYSTEM_NAMESPACES)

        wait_until(present, "the system namespaces exist")

    def _nodeclient_is_granted(self) -> bool:
        attributes = {
            "group": "certificates.k8s.io",
            "resource": "certificatesigningrequests",
            "subresource": "nodeclient",
            "verb": "create",
        }
        review = kubeadm.subject_access_review("system:bootstrap:any", [kubeadm.NODE_TOKEN_GROUP], attributes)
        answer = self._admin.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review).expect(201)
        return bool(answer["status"]["allowed"])

    def _is_served(self, definition: dict[str, Any]) -> bool:
        group, plural = definition["spec"]["group"], definition["spec"]["names"]["plural"]
        versions = [version["name"] for version in definition["spec"]["versions"] if version["served"]]
        return all(self._admin.get(f"/apis/{group}/{version}/{plural}").status == 200 for version in versions)


def apiserver_flags(folder: Path, etcd_url: str, address: str, port: int) -> dict[str, object]:
    """kubeadm's flags of kube-apiserver, as far as they matter here. Certificates and keys are files in ``folder``."""
    is_of_ipv6 = ":" in address
    return {
        "etcd-servers": etcd_url,
        "bind-address": address,
        # From the IPv6 documentation range, because ::1 is refused.
        "advertise-address": "2001:db8::1" if is_of_ipv6 else address,
        "secure-port": port,
        "tls-cert-file": folder / "serving.crt",
        "tls-private-key-file": folder / "serving.key",
        "client-ca-file": folder / "ca.crt",
        "authorization-mode": "Node,RBAC",
        "enable-admission-plugins": "NodeRestriction",
        "enable-bootstrap-token-auth": "true",
        "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
        "service-account-key-file": folder / "sa.pub",
        "service-account-signing-key-file": folder / "sa.key",
        "service-cluster-ip-range": "fd00:10:96::/112" if is_of_ipv6 else "10.96.0.0/12",
        "allow-privileged": "true",
        # The endpoint controller refuses a loopback address; nothing in these clusters uses that endpoint.
        "endpoint-reconciler-type": "none",
    }


def controller_manager_flags(folder: Path, configuration: Path) -> dict[str, object]:
    """kubeadm's flags of kube-controller-manager, likewise. ``configuration`` is its kubeconfig."""
    return {
        "kubeconfig": configuration,
        "authentication-kubeconfig": configuration,
        "authorization-kubeconfig": configuration,
        "use-service-account-credentials": "true",
        "service-account-private-key-file": folder / "sa.key",
        "root-ca-file": folder / "ca.crt",
        "cluster-signing-cert-file": folder / "ca.crt",
        "cluster-signing-key-file": folder / "ca.key",
        "leader-elect": "false",
        "bind-address": "127.0.0.1",
        "tls-cert-file": folder / "serving.crt",
        "tls-private-key-file": folder / "serving.key",
    }


def as_arguments(flags: Mapping[str, object]) -> list[str]:
    """``--name=value`` for each."""
    return [f"--{name}={value}" for name, value in flags.items()]


def _answers(client: RawClient, path: str) -> bool:
    try:
        return client.get(path).status == 200
    except OSError:
        return False
