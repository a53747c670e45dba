"""Embedded API servers of one cluster at addresses of their own, behind a load balancer, while the CA changes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from signer.authority import CertificateAuthority, load_certificate_authority
from signer.authority.canary_certificate import CanaryCertificate
from signer.authority.presented import Presented
from signer.kube.connection import ClusterConnection
from signer.kube.resource_limits import ResourceLimits
from signer.rotation.servers.observation import ExpectedServer, ServerObservation, ServersObserved
from signer.rotation.servers.observing import TwoAuthorities, observe_servers
from signer.testing.api.authorities import Issuer
from signer.testing.api.embedded import EmbeddedAPI
from signer.testing.api.thread import LoopThread
from tests.support.balancer import HOST, Balancer, Choice, round_robin
from tests.support.certificates import private_key_pem
from tests.support.processes import free_port


def _authority(name: str) -> Issuer:
    """A CA without a limit of its path, as every CA after the first rotation: it can issue link certificates."""
    limited = Issuer.new(name).certificate
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        x509.CertificateBuilder()
        .subject_name(limited.subject)
        .issuer_name(limited.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(limited.not_valid_before_utc)
        .not_valid_after(limited.not_valid_after_utc)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(limited.extensions.get_extension_for_class(x509.KeyUsage).value, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )
    certificate = builder.sign(key, hashes.SHA256()).public_bytes(Encoding.PEM)
    return Issuer.load(certificate, private_key_pem(key))


OLD: Final = _authority("kubernetes")
NEW: Final = _authority("kubernetes-new")
STRANGER: Final = _authority("kubernetes")
ENDPOINT_NAME: Final = "api.example.com"


def loaded(issuer: Issuer) -> CertificateAuthority:
    data = {"tls.crt": issuer.certificate_pem, "tls.key": issuer.key_pem}
    return load_certificate_authority(data, now=datetime.now(UTC))


AUTHORITIES: Final = TwoAuthorities(loaded(OLD), loaded(NEW))


def link(issuer: Issuer, subject: Issuer) -> bytes:
    """PEM of a certificate by ``issuer`` for the key of ``subject``, for servers alone."""
    now = datetime.now(UTC)
    identifier = subject.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    own = issuer.certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject.certificate.subject)
        .issuer_name(issuer.certificate.subject)
        .public_key(subject.certificate.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(subject.certificate.extensions.get_extension_for_class(x509.KeyUsage).value, critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(identifier, critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(own), critical=False)
        .sign(issuer.key, hashes.SHA256())
    )
    return certificate.public_bytes(Encoding.PEM)


def classify(chain: tuple[bytes, ...]) -> Presented:
    """By signatures alone; the real one also looks at what the link may be used for."""
    leaf = x509.load_der_x509_certificate(chain[0])
    # OpenSSL's servers send the CA as well.
    others = map(x509.load_der_x509_certificate, chain[1:])
    linked = any(other.issuer != other.subject for other in others)
    for issuer, plain, with_link in (
        (OLD, Presented.OLD, Presented.OLD_LINKED),
        (NEW, Presented.NEW, Presented.NEW_LINKED),
    ):
        if _issued(issuer, leaf):
            return with_link if linked else plain
    return Presented.FOREIGN


def _issued(issuer: Issuer, leaf: x509.Certificate) -> bool:
    key = issuer.key.public_key()
    if not isinstance(key, ec.EllipticCurvePublicKey):
        return False
    try:
        key.verify(leaf.signature, leaf.tbs_certificate_bytes, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def machine_at(address: str, name: str) -> ExpectedServer:
    """The API server of Machine ``name`` with node ``node-<name>``, at that address."""
    return ExpectedServer(name, f"node-{name}", (address,), (address,))


A: Final = machine_at("127.0.0.2", "a")
B: Final = machine_at("127.0.0.3", "b")


def serving(issuer: Issuer, *servers: ExpectedServer, links: bytes = b"") -> tuple[bytes, bytes]:
    """A certificate as kubeadm makes it, with the names of these Machines, and its key."""
    names = ["kubernetes", "localhost", ENDPOINT_NAME, *(server.node_name for server in servers)]
    addresses = ["10.96.0.1", HOST, *(address for server in servers for address in server.internal_names)]
    certificate, key = issuer.serving(names, addresses)
    return certificate + links, key


@dataclass(frozen=True, slots=True)
class Setting:
    """How one API server is set up."""

    server: ExpectedServer
    certificate: tuple[bytes, bytes]
    accepts: tuple[Issuer, ...]


def setting(
    server: ExpectedServer, presents: Issuer = OLD, accepts: Sequence[Issuer] = (OLD, NEW), links: bytes = b""
) -> Setting:
    return Setting(server, serving(presents, server, links=links), tuple(accepts))


@dataclass(slots=True)
class Servers:
    """Running API servers behind a load balancer; every one listens on the load balancer's port."""

    balancer: Balancer
    apis: dict[str, EmbeddedAPI]
    """By address."""
    canaries: list[tuple[str, str]] = field(default_factory=list)
    """User of each journaled canary, and the hash of its CA."""

    @property
    def endpoint(self) -> ClusterConnection:
        return ClusterConnection(self.balancer.server, b"", tls_server_name=ENDPOINT_NAME)

    async def observe(self, *expected: ExpectedServer) -> ServersObserved:
        return await observe_servers(
            self.endpoint,
            expected,
            AUTHORITIES,
            classify=classify,
            journal=self._journal,
            now=lambda: datetime.now(UTC),
            limits=ResourceLimits.unlimited(),
        )

    async def _journal(self, canary: CanaryCertificate, authority: CertificateAuthority) -> None:
        assert not self.balancer.connections, "each canary is journaled before the first connection"
        self.canaries.append((canary.user, authority.certificate.public_key_hash))


@contextlib.contextmanager
def running(
    *settings: Setting, choose: Choice = round_robin, behind: Sequence[ExpectedServer] = (), port: int = 0
) -> Iterator[Servers]:
    """API servers of these settings. ``behind`` the load balancer are all of them, unless some are named."""
    thread, port = LoopThread("api servers"), port or free_port()
    with contextlib.ExitStack() as stack:
        thread.start()
        stack.callback(thread.stop)
        apis = {}
        for one in settings:
            (address,) = one.server.internal_names
            apis[address] = stack.enter_context(
                EmbeddedAPI(
                    ca_certificate=one.accepts[0].certificate_pem,
                    ca_key=one.accepts[0].key_pem,
                    client_authorities=b"".join(other.certificate_pem for other in one.accepts[1:]),
                    address=address,
                    port=port,
                    serving=one.certificate,
                    loop_thread=thread,
                )
            )
        hidden = [server.internal_names[0] for server in behind]
        backends = [(address, port) for address in apis if not hidden or address in hidden]
        yield Servers(stack.enter_context(Balancer(backends, choose, port=port)), apis)


def by_machine(observed: ServersObserved) -> dict[str, ServerObservation]:
    return {one.server.machine: one for one in observed.observations}


def reasons(observed: ServersObserved) -> dict[str, str]:
    return {one.server.machine: one.why for one in observed.unseen}
