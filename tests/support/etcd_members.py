"""Three etcd members over mutual TLS, each with files of its own, as kubeadm's etcd on three machines."""

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


class Member:
    """One member. Its client and peer port are neighbours."""

    def __init__(self, name: str, port: int, folder: Path) -> None:
        self.name = name
        self.port = port
        self.folder = folder / name
        self.folder.mkdir()
        self._folder_of_clients = folder
        self.program: Program | None = None

    @property
    def peer(self) -> str:
        """URL for its peers."""
        return f"https://{HOST}:{self.port + 1}"

    def trust(self, *authorities: CertificateAuthority) -> None:
        """Replace the file of the CAs that it trusts, for clients and peers."""
        replace_file(self.folder / "ca.crt", b"".join(one.certificate_pem for one in authorities))

    def present(self, authority: CertificateAuthority) -> None:
        """Replace its certificate, for clients and peers, by a new one of that CA."""
        certificate, key = authority.issue_peer(f"etcd-{self.name}", [HOST, "localhost"])
        replace_file(self.folder / "leaf.key", key)
        replace_file(self.folder / "leaf.crt", certificate)

    def flags(self, cluster: str) -> list[str]:
        """As kubeadm's manifest has them."""
        leaf, key, ca = (self.folder / name for name in ("leaf.crt", "leaf.key", "ca.crt"))
        client = f"https://{HOST}:{self.port}"
        return [
            f"--name={self.name}",
            f"--data-dir={self.folder / 'data'}",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={self.peer}",
            f"--initial-advertise-peer-urls={self.peer}",
            f"--initial-cluster={cluster}",
            *(f"--cert-file={leaf}", f"--key-file={key}", f"--trusted-ca-file={ca}", "--client-cert-auth"),
            *(f"--peer-cert-file={leaf}", f"--peer-key-file={key}", f"--peer-trusted-ca-file={ca}"),
            "--peer-client-cert-auth",
        ]

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
        pair = self._folder_of_clients / "client.pem"
        pair.touch(mode=0o600)
        pair.write_bytes(certificate + key)
        context.load_cert_chain(pair)
        connection = http.client.HTTPSConnection(HOST, self.port, timeout=_CALL_SECONDS, context=context)
        try:
            yield connection
        finally:
            connection.close()


class EtcdMembers(ClosedAtTheEnd):
    """A running cluster of three members; a context manager that stops it. All trust and present ``authority``."""

    def __init__(self, binary: Path, authority: CertificateAuthority) -> None:
        self._command = NO_SYNCS.command(binary)
        self._programs = Programs("node-attestation-etcd-members-")
        with self._programs.closed_on_failure():
            first = free_ports(2 * len(_NAMES))
            self.members = tuple(
                Member(name, first + 2 * position, self._programs.folder) for position, name in enumerate(_NAMES)
            )
            for member in self.members:
                member.trust(authority)
                member.present(authority)
                self.start(member)
            self.wait_healthy(Caller(authority, (authority,)))

    def start(self, member: Member) -> None:
        """Start it without waiting."""
        cluster = ",".join(f"{one.name}={one.peer}" for one in self.members)
        member.program = self._programs.start(f"etcd-{member.name}", [*self._command, *member.flags(cluster)])

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
        return (self._programs.folder / f"etcd-{member.name}.log").read_text(errors="replace")

    def close(self) -> None:
        """Stop all and remove the folder."""
        self._programs.close()
