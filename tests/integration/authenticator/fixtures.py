"""A node in this process, time that a test moves, and an administrator who decides requests by hand.

For what the controller cannot be brought to: it neither forgets a request nor signs another key.
"""

from __future__ import annotations

import base64
import contextlib
import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID

from attestors.contract import IPAddress
from attestors.wire import request as request_format
from attestors.wire.certificate_request import node_subject
from attestors.wire.names import PROVIDER_ID_OID, Purpose
from authenticator.configuration import Configuration, Serving
from authenticator.flow.certificates import NodeCertificates
from authenticator.flow.clock import Clock
from authenticator.flow.evidence import Attestation
from authenticator.model.certificate import load_key, new_key
from authenticator.model.cluster import BearerToken, Bootstrap, Cluster
from authenticator.model.pair import Pair, parse_pair
from authenticator.store.store import KnownCluster, Store
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.testing.api import EmbeddedAPI, LoggedRequest
from signer.testing.api.authorities import Issuer
from signer.testing.api.kubeconfig import kubeconfig_of
from signer.testing.clients import BlockingClient
from signer.testing.nodes import SimulatedNode
from tests.integration.fixtures import CONTROLLER_USER, provider_id
from tests.support.node_program import NodeProgram

Manifest = dict[str, Any]
Attesting = Callable[[Configuration], Attestation]

DAY: Final = 86400
LONG_AGO: Final = 3600
"""Seconds: how old what is issued here is at least, so that it is valid by every clock."""
_KINDS: Final = {Purpose.CLIENT: ExtendedKeyUsageOID.CLIENT_AUTH, Purpose.SERVING: ExtendedKeyUsageOID.SERVER_AUTH}
_NUMBERS: Final = itertools.count(1)
_THE_END: Final = "the-end"
"""A request of that name ends :meth:`ClusterAdmin.deciding`."""
_ADMINISTRATOR: Final = "kubernetes-admin"


class Timepiece:
    """Time that passes when a test says so, and while somebody sleeps."""

    def __init__(self) -> None:
        self.wall = float(int(time.time()))
        self.elapsed = 0.0
        self.sleeps: list[float] = []

    def pass_by(self, seconds: float) -> None:
        """Let time pass."""
        self.wall += seconds
        self.elapsed += seconds

    def sleep(self, seconds: float) -> None:
        """As ``time.sleep``, at once."""
        self.sleeps.append(seconds)
        self.pass_by(seconds)

    @property
    def now(self) -> int:
        """Unix time."""
        return int(self.wall)

    def clock(self) -> Clock:
        """A clock that shows it."""
        return Clock(lambda: self.wall, lambda: self.elapsed, self.sleep, lambda: 0.0)


@dataclass
class Authority:
    """The cluster's CA, which signs what a test says."""

    certificate: bytes
    key: bytes = field(repr=False)

    def issue(
        self,
        public_key: Any,
        node_name: str,
        *,
        not_before: int,
        not_after: int,
        usages: Sequence[Purpose] = (Purpose.CLIENT,),
        names: Sequence[x509.GeneralName] = (),
    ) -> bytes:
        """A certificate, PEM."""
        issuer = Issuer.load(self.certificate, self.key)
        builder = (
            x509.CertificateBuilder()
            .subject_name(node_subject(node_name))
            .issuer_name(issuer.certificate.subject)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(datetime.fromtimestamp(not_before, UTC))
            .not_valid_after(datetime.fromtimestamp(not_after, UTC))
            .add_extension(x509.ExtendedKeyUsage([_KINDS[usage] for usage in usages]), critical=False)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(issuer.key, hashes.SHA256()).public_bytes(Encoding.PEM)


@dataclass
class ClusterAdmin:
    """An administrator of one workload cluster."""

    api: EmbeddedAPI
    client: BlockingClient
    _seen: set[str] = field(default_factory=set)

    @property
    def authority(self) -> Authority:
        """The cluster's CA."""
        return Authority(self.api.ca_certificate_pem, self.api.ca_key_pem)

    @property
    def names(self) -> list[str]:
        """The names of all requests that are there."""
        return [item["metadata"]["name"] for item in self.api.objects("certificatesigningrequests")]

    def next(self) -> Manifest:
        """The next request that nobody looked at; waits for it."""

        def new(item: Manifest) -> bool:
            return item["metadata"]["uid"] not in self._seen

        found: Manifest = self.client.wait_for_any(CERTIFICATE_SIGNING_REQUESTS.collection(), new)
        self._seen.add(found["metadata"]["uid"])
        return found

    def decide(
        self, found: Manifest, kind: str, reason: str, message: str = "m", annotations: Mapping[str, str] | None = None
    ) -> None:
        """Write a condition, and annotations in the same write."""
        condition = {"type": kind, "status": "True", "reason": reason, "message": message}
        subresource = "status" if kind == "Failed" else "approval"
        name = found["metadata"]["name"]
        current = self.client.get(CERTIFICATE_SIGNING_REQUESTS.object(name))
        conditions = [*(current["status"].get("conditions") or []), condition]
        metadata = current["metadata"] | {"annotations": dict(annotations or {})}
        changed = {**current, "metadata": metadata, "status": {**current["status"], "conditions": conditions}}
        self.client.replace(CERTIFICATE_SIGNING_REQUESTS.object(name, subresource=subresource), changed)

    def approve(self, found: Manifest) -> None:
        """Write Approved, without a certificate."""
        self.decide(found, "Approved", "Attested")

    def issue(self, found: Manifest, certificate: bytes) -> None:
        """Write Approved and that certificate."""
        self.approve(found)
        encoded = base64.b64encode(certificate).decode("ascii")
        path = CERTIFICATE_SIGNING_REQUESTS.object(found["metadata"]["name"], subresource="status")
        self.client.patch(path, {"status": {"certificate": encoded}})

    def sign(self, found: Manifest, **changes: Any) -> bytes:
        """What the controller would issue; ``changes`` make it something else. Returns PEM."""
        csr = certificate_request(found)
        (common_name,) = csr.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        serving = "server auth" in found["spec"]["usages"]
        now = int(time.time())
        values: dict[str, Any] = {
            "public_key": csr.public_key(),
            "node_name": str(common_name.value).removeprefix("system:node:"),
            "not_before": now - LONG_AGO,
            "not_after": now + DAY,
            "usages": (Purpose.SERVING if serving else Purpose.CLIENT,),
            "names": alternative_names(csr),
            **changes,
        }
        return self.authority.issue(**values)

    def grant(self, found: Manifest, **changes: Any) -> bytes:
        """Approve it and issue what :meth:`sign` makes."""
        certificate = self.sign(found, **changes)
        self.issue(found, certificate)
        return certificate

    def delete(self, found: Manifest) -> None:
        """Delete it."""
        self.client.delete(CERTIFICATE_SIGNING_REQUESTS.object(found["metadata"]["name"]))

    def plant(self, value: Manifest) -> None:
        """Store an object without any check: a hostile API server can hold anything."""
        collection = self.api.store.collection("certificates.k8s.io", "certificatesigningrequests")
        self.api._loop_thread.call(lambda: self.api.store.write(collection, value))

    def granting(self) -> contextlib.AbstractContextManager[list[Manifest]]:
        """Grant every request, in a thread, until the end of the block; yields those that were granted."""
        return self.deciding(lambda found: self.grant(found))

    @contextlib.contextmanager
    def deciding(self, decide: Callable[[Manifest], object]) -> Iterator[list[Manifest]]:
        """Decide every request so, in a thread, until the end of the block; yields those that were decided."""
        decided: list[Manifest] = []

        def work() -> None:
            while (found := self.next())["metadata"]["name"] != _THE_END:
                decided.append(found)
                decide(found)

        with ThreadPoolExecutor(1) as pool:
            working = pool.submit(work)
            try:
                yield decided
            finally:
                spec = {"request": _any_request(), "signerName": "example.com/end", "usages": ["client auth"]}
                last = {"kind": "CertificateSigningRequest", "metadata": {"name": _THE_END}, "spec": spec}
                self.api.create({"apiVersion": "certificates.k8s.io/v1", **last})
                working.result()
                self.api.delete("certificatesigningrequests", _THE_END)


def _any_request() -> str:
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([]))
    csr = builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256())
    return base64.b64encode(csr.public_bytes(Encoding.PEM)).decode("ascii")


def certificate_request(found: Manifest) -> x509.CertificateSigningRequest:
    """The PKCS#10 in a request's first block."""
    blocks = request_format.decode(base64.b64decode(found["spec"]["request"]))
    return x509.load_der_x509_csr(blocks.certificate_request)


def evidence_of(found: Manifest) -> bytes:
    """A request's evidence."""
    return request_format.decode(base64.b64decode(found["spec"]["request"])).evidence


def alternative_names(csr: x509.CertificateSigningRequest) -> list[x509.GeneralName]:
    """The subject alternative names that are asked for."""
    try:
        return list(csr.extensions.get_extension_for_class(x509.SubjectAlternativeName).value)
    except x509.ExtensionNotFound:
        return []


def key_of(found: Manifest) -> Any:
    """The public numbers of the key that a request is for."""
    public = certificate_request(found).public_key()
    assert isinstance(public, ec.EllipticCurvePublicKey)
    return public.public_numbers()


@dataclass
class Node:
    """A node whose program runs in this process."""

    folder: Path
    api: EmbeddedAPI
    name: str
    time: Timepiece = field(default_factory=Timepiece)
    reports: list[str] = field(default_factory=list)
    timeout: float = 20.0
    load_attestation: Attesting = Attestation.of
    changes: dict[str, Any] = field(default_factory=dict)
    """Of the configuration."""

    @classmethod
    def new(cls, folder: Path, api: EmbeddedAPI, **options: Any) -> Node:
        """A node of a name of its own."""
        return cls(folder / "node", api, f"node-{next(_NUMBERS)}", **options)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    @property
    def configuration(self) -> Configuration:
        """As it would be read from its file."""
        identifier = provider_id(self.name)
        values: dict[str, Any] = {
            "provider": "keyed-mac",
            "settings": {"provider-id": identifier, "machine-key": base64.b64encode(bytes(32)).decode("ascii")},
            "node_name": self.name,
            "provider_id": identifier,
            "provider_id_oid": PROVIDER_ID_OID,
            "bootstrap_kubeconfig": self.folder / "bootstrap-kubelet.conf",
            "kubeconfig": self.folder / "kubelet.conf",
            "store": self.folder / "pki",
            "timeout": self.timeout,
            "serving": None,
            "file": None,
            **self.changes,
        }
        return Configuration(**values)

    @property
    def store(self) -> Store:
        """Its store."""
        return Store(self.configuration.store)

    @property
    def cluster(self) -> Cluster:
        """The cluster as its kubeconfig names it."""
        return Cluster(self.api.server, self.api.ca_certificate_pem.decode("ascii"))

    def certificates(self, **options: Any) -> NodeCertificates:
        """What one run of its program works with."""
        return NodeCertificates(
            self.configuration,
            self.store,
            **{
                "clock": self.time.clock(),
                "report": self.reports.append,
                "load_attestation": self.load_attestation,
                **options,
            },
        )

    def serve(self, *names: str, addresses: Sequence[str] = ("192.0.2.10",)) -> None:
        """Let it want a serving certificate for these, by default for its own name."""
        found: tuple[IPAddress, ...] = tuple(ip_address(address) for address in addresses)
        self.changes["serving"] = Serving(names or (self.name,), found)

    def supply_bootstrap(self, token: str | None = None, api: EmbeddedAPI | None = None) -> str:
        """Write the bootstrap kubeconfig as kubeadm does; returns the token."""
        target = api or self.api
        given = token or target.bootstrap_token()
        path = self.configuration.bootstrap_kubeconfig
        path.write_text(kubeconfig_of(target.token_connection(given), "workload"))
        path.chmod(0o600)
        return given

    def put_pair(
        self, *, age: int, left: int, purpose: Purpose = Purpose.CLIENT, used: str = "", **options: Any
    ) -> Pair:
        """Store a certificate that began ``age`` seconds ago and ends in ``left``, as a join would have left it."""
        key = new_key()
        authority = Authority(self.api.ca_certificate_pem, self.api.ca_key_pem)
        certificate = authority.issue(
            load_key(key).public_key(),
            self.name,
            not_before=self.time.now - age,
            not_after=self.time.now + left,
            usages=(purpose,),
            **options,
        )
        pair = parse_pair(certificate.decode("ascii") + key)
        self.store.open()
        self.store.save_pair(purpose, pair)
        self.store.save_known_cluster(KnownCluster(self.cluster, used))
        return pair

    def digest(self, token: str) -> str:
        """Of the bootstrap credential with that token."""
        return Bootstrap(self.cluster, BearerToken(token)).digest

    def program(self, **options: Any) -> NodeProgram:
        """The program with the same files and configuration, in a process."""
        settings = self.configuration.settings
        simulated = SimulatedNode(self.name, provider_id(self.name), "", "keyed-mac", settings)
        return NodeProgram(self.folder, simulated, timeout=self.timeout, extra=options)


@contextlib.contextmanager
def asking(call: Callable[[], Any]) -> Iterator[Future[Any]]:
    """Run a call in a thread, while the test decides; its result is the test's to look at."""
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(call)


def asked(api: EmbeddedAPI, pattern: str = "*") -> list[LoggedRequest]:
    """The requests that anybody but the administrator and the controller made."""
    return [entry for entry in api.requests.matching(pattern) if entry.user not in (_ADMINISTRATOR, CONTROLLER_USER)]


def created(api: EmbeddedAPI) -> list[LoggedRequest]:
    """The attempts at creating a request."""
    return asked(api, "POST */certificatesigningrequests")
