"""A real control plane of several kube-apiservers over one etcd, behind a TCP load balancer.

Each API server has files of its own, as on a control-plane Machine of kubeadm: the client CAs that it accepts, and its
serving certificate. Tests replace them while it runs. Kubernetes 1.20 reads them again within 60 seconds, newer
versions at once; :meth:`ApiServer.restart` makes them count immediately.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, Protocol

from cryptography.hazmat.primitives.asymmetric import rsa

from signer.kube.connection import ClusterConnection
from signer.rotation.servers.observation import ExpectedServer
from signer.testing.api.kubeconfig import kubeconfig_of
from tests.support.balancer import HOST, Balancer
from tests.support.binaries import ControlPlaneBinaries, find_control_plane
from tests.support.certificates import CertificateAuthority, private_key_pem, public_key_pem
from tests.support.closing import ClosedAtTheEnd
from tests.support.control_plane import apiserver_flags, as_arguments, controller_manager_flags
from tests.support.etcd import Etcd, start_on_free_port
from tests.support.processes import Program, Programs, free_port, wait_until
from tests.support.raw_client import RawClient

_NAMES: Final = "abcdefgh"
_SYSTEM_NAMESPACES: Final = ("default", "kube-system", "kube-node-lease", "kube-public")


class ApiServer:
    """One kube-apiserver, on the Machine of its name. It listens on the port of the load balancer."""

    def __init__(self, name: str, address: str, control_plane: ReplicatedControlPlane) -> None:
        self.name = name
        self.node_name = f"node-{name}"
        self.address = address
        self._control_plane = control_plane
        self.folder = control_plane.folder / name
        self.folder.mkdir()
        self._program: Program | None = None

    @property
    def expected(self) -> ExpectedServer:
        """As the management cluster knows it."""
        return ExpectedServer(self.name, self.node_name, (self.address,), (self.address,))

    @property
    def server(self) -> str:
        """``https://address:port``, past the load balancer."""
        return f"https://{self.address}:{self._control_plane.balancer.port}"

    def accept(self, *authorities: CertificateAuthority) -> None:
        """Replace the file of the CAs whose client certificates it accepts."""
        self.accept_pem(b"".join(one.certificate_pem for one in authorities))

    def accept_pem(self, bundle: bytes) -> None:
        """The same, by PEM."""
        replace_file(self.folder / "client-ca.crt", bundle)

    def present(self, authority: CertificateAuthority, links: bytes = b"") -> None:
        """Replace its serving certificate by a new one of that CA, with ``links`` (PEM) behind it.

        Between the two files it has a key of another certificate, and keeps the pair in memory.
        """
        names = ["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost", self.node_name]
        certificate, key = authority.issue_serving("kube-apiserver", [*names, "10.96.0.1", HOST, self.address])
        replace_file(self.folder / "serving.key", key)
        replace_file(self.folder / "serving.crt", certificate + links)

    def launch(self) -> None:
        """Start it without waiting."""
        flags = {
            **self._control_plane.flags_of(self.address),
            "tls-cert-file": self.folder / "serving.crt",
            "tls-private-key-file": self.folder / "serving.key",
            "client-ca-file": self.folder / "client-ca.crt",
        }
        self._program = self._control_plane.launch(f"kube-apiserver-{self.name}", flags)

    def wait_ready(self) -> None:
        """Wait until it serves. Its readiness needs no credential."""
        if self._program is not None:
            self._program.wait_ready(lambda: self._control_plane.answers(self.server, "/readyz"))

    def stop(self) -> None:
        """Stop it; connections are refused."""
        if self._program is not None:
            self._control_plane.stop_program(self._program)
            self._program = None

    def restart(self) -> None:
        """Start it, or start it again."""
        self.stop()
        self.launch()
        self.wait_ready()


class Authorities(Protocol):
    """What else Machines have: files of other authorities, and an etcd member each."""

    def start(self, control_plane: ReplicatedControlPlane, addresses: Sequence[str], names: Sequence[str]) -> None:
        """Write the files, and start the members."""
        ...

    def flags_of(self, address: str) -> Mapping[str, object]:
        """Flags of the API server at that address."""
        ...


class ReplicatedControlPlane(ClosedAtTheEnd):
    """A running control plane with ``number`` API servers at 127.0.0.2, 127.0.0.3 and so on; a context manager.

    At first each accepts client certificates of ``old`` and presents a certificate of ``old``. Raises ``MissingPart``
    without the binaries and ``ProgramFailed`` if a program does not start.
    """

    def __init__(
        self,
        old: CertificateAuthority,
        new: CertificateAuthority,
        *,
        number: int = 2,
        binaries: ControlPlaneBinaries | None = None,
        flags: Mapping[str, object] | None = None,
        authorities: Authorities | None = None,
    ) -> None:
        """``flags`` are added to those of each kube-apiserver. ``authorities`` have the other files of each Machine and
        its etcd member; without them, all Machines share one etcd without TLS.
        """
        self.old, self.new = old, new
        self.binaries = binaries or find_control_plane()
        self._flags = dict(flags or {})
        self._programs = Programs("node-attestation-api-servers-")
        self.folder = self._programs.folder
        addresses = [f"127.0.0.{2 + position}" for position in range(number)]
        with self._programs.closed_on_failure(), contextlib.ExitStack() as undo:
            port = free_port_of(HOST, *addresses)
            self.balancer = undo.enter_context(Balancer([(address, port) for address in addresses], port=port))
            self._write_shared_files()
            self._authorities = authorities
            if authorities is None:
                self._etcd = Etcd(self._programs, self.binaries.etcd)
            else:
                authorities.start(self, addresses, _NAMES)
            self.servers = tuple(
                ApiServer(name, address, self) for name, address in zip(_NAMES, addresses, strict=False)
            )
            for server in self.servers:
                server.accept(old)
                server.present(old)
                server.launch()
            for server in self.servers:
                server.wait_ready()
            self._wait_for_system_namespaces()
            undo.pop_all()

    # For tests

    @property
    def expected(self) -> tuple[ExpectedServer, ...]:
        """Every API server, as the management cluster knows them."""
        return tuple(server.expected for server in self.servers)

    @property
    def trust(self) -> bytes:
        """PEM of both CAs."""
        return self.old.certificate_pem + self.new.certificate_pem

    def connection(
        self,
        authority: CertificateAuthority | None = None,
        *,
        user: str = "kubernetes-admin",
        groups: Sequence[str] = ("system:masters",),
        server: str = "",
    ) -> ClusterConnection:
        """A connection through the load balancer, or to ``server``, with a fresh client certificate of ``authority``
        (default: the old CA). The API server's certificate may be of either CA.
        """
        certificate, key = (authority or self.old).issue_client(user, groups)
        return ClusterConnection(
            server or self.balancer.server, self.trust, client_certificate=certificate, client_key=key
        )

    @contextlib.contextmanager
    def stopped(self, server: ApiServer) -> Iterator[None]:
        """Without that API server for a while."""
        server.stop()
        try:
            yield
        finally:
            server.restart()

    def start_controllers(
        self,
        controllers: Sequence[str],
        flags: Mapping[str, object] | None = None,
        server: str = "",
        name: str = "controller-manager",
    ) -> ControllerManager:
        """Start kube-controller-manager with only the named ``controllers``, through the load balancer or ``server``.
        Several that run at once need names of their own. Raises ``MissingPart``.
        """
        return ControllerManager(self, controllers, dict(flags or {}), server, name)

    def check_running(self) -> None:
        """Raises ``ProgramFailed`` if a program has ended by itself."""
        self._programs.check_running()

    def close(self) -> None:
        """Stop everything and remove the folder."""
        self.balancer.close()
        self._programs.close()

    @property
    def etcd_url(self) -> str:
        """etcd's client URL, without TLS."""
        return self._etcd.url

    # For the parts

    def flags_of(self, address: str) -> dict[str, object]:
        """The flags of the API server at that address."""
        if self._authorities is None:
            return {**apiserver_flags(self.folder, self._etcd.url, address, self.balancer.port), **self._flags}
        own = self._authorities.flags_of(address)
        return {**apiserver_flags(self.folder, "", address, self.balancer.port), **own, **self._flags}

    def launch(self, name: str, flags: Mapping[str, object]) -> Program:
        """Start a kube-apiserver without waiting."""
        return self._programs.start(name, [self.binaries.kube_apiserver, *as_arguments(flags)])

    @property
    def programs(self) -> Programs:
        """All that run."""
        return self._programs

    def stop_program(self, program: Program) -> None:
        """Stop one of them."""
        self._programs.stop(program)

    def answers(self, server: str, path: str) -> bool:
        """Whether ``server`` answers a request without credentials with 200."""
        try:
            with RawClient(ClusterConnection(server, self.trust)) as client:
                return client.get(path).status == 200
        except OSError:
            return False

    def _write_shared_files(self) -> None:
        service_account_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        replace_file(self.folder / "sa.key", private_key_pem(service_account_key))
        replace_file(self.folder / "sa.pub", public_key_pem(service_account_key))

    def _wait_for_system_namespaces(self) -> None:
        with RawClient(self.connection()) as client:
            wait_until(
                lambda: all(client.get(f"/api/v1/namespaces/{name}").status == 200 for name in _SYSTEM_NAMESPACES),
                "the system namespaces exist",
            )


class ControllerManager:
    """kube-controller-manager with files of its own: the CA that signs, and the CAs that it publishes."""

    def __init__(
        self,
        control_plane: ReplicatedControlPlane,
        controllers: Sequence[str],
        flags: dict[str, object],
        server: str,
        name: str,
    ) -> None:
        self._control_plane = control_plane
        self._binary = control_plane.binaries.kube_controller_manager()
        self._name = f"kube-{name}"
        self.folder = control_plane.folder / name
        self.folder.mkdir(exist_ok=True)
        self.sign_by(control_plane.old)
        self.publish(control_plane.old)
        serving, key = control_plane.old.issue_serving("kube-controller-manager", [HOST])
        replace_file(self.folder / "serving.crt", serving)
        replace_file(self.folder / "serving.key", key)
        configuration = self.folder / "kubeconfig"
        connection = control_plane.connection(user="system:kube-controller-manager", groups=(), server=server)
        replace_file(configuration, kubeconfig_of(connection, "workload").encode())
        self._flags = {
            **controller_manager_flags(self.folder, configuration),
            **control_plane.binaries.without_insecure_port(),
            "service-account-private-key-file": control_plane.folder / "sa.key",
            "root-ca-file": self.folder / "root-ca.crt",
            "controllers": ",".join(controllers),
            **flags,
        }
        self._program = self._start()

    def sign_by(self, authority: CertificateAuthority) -> None:
        """Replace the files of the CA that signs."""
        replace_file(self.folder / "ca.key", authority.key_pem)
        replace_file(self.folder / "ca.crt", authority.certificate_pem)

    def sign_tokens_by(self, key: bytes) -> None:
        """Replace the file of the key that signs service-account tokens, which is read at the start only."""
        replace_file(self._control_plane.folder / "sa.key", key)

    def publish(self, *authorities: CertificateAuthority) -> None:
        """Replace the file of the CAs for ``kube-root-ca.crt``, which is read at the start only."""
        self.publish_pem(b"".join(one.certificate_pem for one in authorities))

    def publish_pem(self, bundle: bytes) -> None:
        """The same, by PEM."""
        replace_file(self.folder / "root-ca.crt", bundle)

    def connect_by(self, authority: CertificateAuthority, trust: bytes, server: str = "") -> None:
        """Replace its kubeconfig, which is read at the start only: a certificate of that CA, and the CAs it trusts."""
        connection = self._control_plane.connection(
            authority, user="system:kube-controller-manager", groups=(), server=server
        )
        kubeconfig = kubeconfig_of(replace(connection, certificate_authority=trust), "workload")
        replace_file(self.folder / "kubeconfig", kubeconfig.encode())

    def restart(self) -> None:
        """Stop and start it."""
        self.stop()
        self.start()

    def start(self) -> None:
        """Start it again. Raises ``ProgramFailed`` if it ends."""
        self._program = self._start()

    def stop(self) -> None:
        """Stop it."""
        self._control_plane.stop_program(self._program)

    @property
    def has_ended(self) -> bool:
        """Whether it has ended by itself: it lost its lease, or cannot use its files."""
        return self._program.process.poll() is not None

    def _start(self) -> Program:
        port = 0

        def start(free: int) -> Program:
            nonlocal port
            port = free
            arguments = as_arguments({**self._flags, "secure-port": port})
            return self._control_plane.programs.start(self._name, [self._binary, *arguments])

        def is_ready() -> bool:
            return self._control_plane.answers(f"https://{HOST}:{port}", "/healthz")

        return start_on_free_port(self._control_plane.programs, start, is_ready)


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file by rename, as careful writers do: no reader sees a part of it."""
    temporary = path.with_name(f".{path.name}")
    temporary.touch(mode=0o600)
    temporary.write_bytes(content)
    os.replace(temporary, path)


def free_port_of(*hosts: str) -> int:
    """A port that is free at each of these addresses."""
    while True:
        port = free_port()
        with contextlib.ExitStack() as stack, contextlib.suppress(OSError):
            for host in hosts:
                stack.enter_context(socket.socket()).bind((host, port))
            return port
