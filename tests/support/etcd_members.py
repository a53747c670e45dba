"""etcd members over mutual TLS, each with files of its own, as kubeadm's etcd on its machines."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import ssl
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cryptography import x509

from tests.support.api_servers import replace_file
from tests.support.certificates import CertificateAuthority
from tests.support.closing import ClosedAtTheEnd
from tests.support.control_plane import as_arguments
from tests.support.etcd import NO_SYNCS
from tests.support.processes import Program, Programs, free_ports

HOST: Final = "127.0.0.1"
_NAMES: Final = ("a", "b", "c")
_CALL_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Caller:
    """A client: the CA of its certificate, and the CAs that it trusts."""

    authority: CertificateAuthority
    trusts: tuple[CertificateAuthority, ...]


@dataclass(frozen=True, slots=True)
class Ports:
    """Where a member listens, at its address."""

    client: int
    peer: int
    metrics: int
    """Without TLS."""


class Member:
    """One member, with files of its own: what it trusts, and its certificate, each for clients and peers."""

    def __init__(self, name: str, address: str, ports: Ports, folder: Path) -> None:
        self.name = name
        self.address = address
        self.folder = folder
        self.program: Program | None = None
        self._ports = ports

    @property
    def url(self) -> str:
        """For clients, with TLS."""
        return f"https://{self.address}:{self._ports.client}"

    @property
    def peer_url(self) -> str:
        """For the other members."""
        return f"https://{self.address}:{self._ports.peer}"

    @property
    def trusted(self) -> Path:
        """The file of the CAs that it trusts."""
        return self.folder / "etcd-ca.crt"

    def trust(self, *authorities: CertificateAuthority) -> None:
        """Replace the file of the CAs that it trusts."""
        self.trust_pem(b"".join(one.certificate_pem for one in authorities))

    def trust_pem(self, bundle: bytes) -> None:
        """The same, by PEM."""
        replace_file(self.trusted, bundle)

    def present(self, authority: CertificateAuthority) -> None:
        """Replace its certificate by a new one of that CA."""
        certificate, key = authority.issue_peer(self.name, ["localhost", self.name, self.address])
        replace_file(self.folder / "etcd.key", key)
        replace_file(self.folder / "etcd.crt", certificate)

    def start(self, programs: Programs, binary: Path, members: Sequence[Member]) -> Program:
        """Start it without waiting, as one of these."""
        command = [*NO_SYNCS.command(binary), *as_arguments(self._flags(members))]
        self.program = programs.start(self.name, command)
        return self.program

    def _flags(self, members: Sequence[Member]) -> dict[str, object]:
        """As kubeadm's manifest has them."""
        files = {
            "cert-file": self.folder / "etcd.crt",
            "key-file": self.folder / "etcd.key",
            "trusted-ca-file": self.trusted,
        }
        return {
            "name": self.name,
            "data-dir": self.folder / "data",
            "listen-client-urls": self.url,
            "advertise-client-urls": self.url,
            "listen-peer-urls": self.peer_url,
            "initial-advertise-peer-urls": self.peer_url,
            "initial-cluster": ",".join(f"{one.name}={one.peer_url}" for one in members),
            "listen-metrics-urls": f"http://{self.address}:{self._ports.metrics}",
            "client-cert-auth": "true",
            "peer-client-cert-auth": "true",
            **files,
            **{f"peer-{name}": file for name, file in files.items()},
        }

    def has_leader(self) -> bool:
        """Whether it has one, by its own word. It says so without TLS."""
        connection = http.client.HTTPConnection(self.address, self._ports.metrics, timeout=_CALL_SECONDS)
        try:
            connection.request("GET", "/health")
            return bool(json.loads(connection.getresponse().read())["health"] == "true")
        except (OSError, http.client.HTTPException, ValueError, KeyError):
            return False
        finally:
            connection.close()

    def is_healthy(self, caller: Caller) -> bool:
        """Whether it answers that client, and reads through the quorum."""
        try:
            return bool(self.request(caller, "GET", "/health")["health"] == "true")
        except (OSError, http.client.HTTPException, ValueError):
            return False

    def put(self, caller: Caller, key: str) -> None:
        """Write through this member.

        Raises:
            OSError: it cannot be reached, or one of both refuses the other's certificate.
            ValueError: it does not answer with 200, because there is no quorum, for one.
        """
        encoded = base64.b64encode(key.encode()).decode()
        self.request(caller, "POST", "/v3/kv/put", {"key": encoded, "value": encoded})

    def revision(self, caller: Caller) -> int:
        """The number of writes so far, read through the quorum."""
        return int(self.request(caller, "POST", "/v3/kv/range", {"key": "AA=="})["header"]["revision"])

    def issuer(self, caller: Caller) -> x509.Name:
        """The CA of the certificate that a new connection sees."""
        with self._connected(caller) as connection:
            connection.connect()
            assert isinstance(connection.sock, ssl.SSLSocket)
            der = connection.sock.getpeercert(binary_form=True)
        assert der is not None
        return x509.load_der_x509_certificate(der).issuer

    def request(self, caller: Caller, method: str, path: str, body: dict[str, str] | None = None) -> Any:
        """One request on a new connection; see :meth:`put` for what it raises."""
        with self._connected(caller) as connection:
            connection.request(method, path, body=None if body is None else json.dumps(body))
            response = connection.getresponse()
            text = response.read()
        if response.status != http.client.OK:
            raise ValueError(f"member {self.name} answered {response.status}: {text[:200]!r}")
        return json.loads(text)

    @contextlib.contextmanager
    def _connected(self, caller: Caller) -> Iterator[http.client.HTTPSConnection]:
        trusted = b"".join(one.certificate_pem for one in caller.trusts).decode("ascii")
        context = ssl.create_default_context(cadata=trusted)
        certificate, key = caller.authority.issue_client("kube-apiserver-etcd-client", [])
        pair = self.folder / "client.pem"
        pair.touch(mode=0o600)
        pair.write_bytes(certificate + key)
        context.load_cert_chain(pair)
        connection = http.client.HTTPSConnection(
            self.address, self._ports.client, timeout=_CALL_SECONDS, context=context
        )
        try:
            yield connection
        finally:
            connection.close()


class EtcdMembers(ClosedAtTheEnd):
    """A running cluster of three members; a context manager that stops it. All trust and present ``authority``."""

    def __init__(self, binary: Path, authority: CertificateAuthority) -> None:
        self._binary = binary
        self._programs = Programs("node-attestation-etcd-members-")
        with self._programs.closed_on_failure():
            self.members = tuple(self._member(name, free_ports(3)) for name in _NAMES)
            for member in self.members:
                member.trust(authority)
                member.present(authority)
                self.start(member)
            self.wait_healthy(Caller(authority, (authority,)))

    def _member(self, name: str, first: int) -> Member:
        folder = self._programs.folder / name
        folder.mkdir()
        return Member(f"etcd-{name}", HOST, Ports(first, first + 1, first + 2), folder)

    def start(self, member: Member) -> None:
        """Start it without waiting."""
        member.start(self._programs, self._binary, self.members)

    def stop(self, member: Member) -> None:
        """Stop it."""
        if member.program is not None:
            self._programs.stop(member.program)
            member.program = None

    def wait_healthy(self, caller: Caller, members: Sequence[Member] = ()) -> None:
        """Wait until each of them, or all, is healthy."""
        for member in members or self.members:
            assert member.program is not None
            member.program.wait_ready(lambda one=member: one.is_healthy(caller))  # type: ignore[misc]

    def log(self, member: Member) -> str:
        """What it has written."""
        return (self._programs.folder / f"{member.name}.log").read_text(errors="replace")

    def close(self) -> None:
        """Stop all and remove the folder."""
        self._programs.close()
