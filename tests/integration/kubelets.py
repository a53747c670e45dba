"""Attested nodes, and the built-in serving requests of their kubelets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding

from attestors.wire import pem
from attestors.wire.certificate_request import node_subject
from attestors.wire.names import CERTIFICATE_REQUEST_LABEL, BuiltinSigner
from signer.kube.connection import ClusterConnection
from signer.testing.nodes import CLIENT_USAGES, SERVING_USAGES, SimulatedNode, signing_request
from signer.testing.world import WorldCluster
from tests.integration.fixtures import node_of, provider_id


@dataclass(frozen=True)
class Kubelet:
    """A node that was attested, with its client certificate."""

    cluster: WorldCluster
    node: SimulatedNode
    certificate: bytes = field(repr=False)

    @property
    def connection(self) -> ClusterConnection:
        """Its connection to the workload API."""
        return self.node.connection(self.cluster.api.connection(), self.certificate)

    def submit(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """Post a CSR with its client certificate."""
        return self.cluster.submit(manifest, self.connection)


def attest(cluster: WorldCluster, machine: str, csr: str = "") -> Kubelet:
    """Let the node of a Machine that is there already join."""
    node = node_of(cluster, machine)
    name = csr or f"attest-{machine}"
    cluster.submit_with_token(node.client_request(name))
    verdict = cluster.wait_until_decided(name)
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict
    return Kubelet(cluster, node, verdict.certificate)


def add_machine(cluster: WorldCluster, name: str, *addresses: str, **more: Any) -> dict[str, Any]:
    """A Machine with its host name, and these addresses or further names."""
    listed = [("Hostname", name), *((_kind(address), address) for address in addresses)]
    return cluster.add_machine(name, provider_id=provider_id(name), addresses=listed, **more)


def builtin_serving_request(
    csr: str,
    node_name: str,
    names: Iterable[str],
    *,
    usages: Sequence[str] = SERVING_USAGES,
    blocks: Sequence[pem.Block] = (),
) -> dict[str, Any]:
    """A CSR manifest as a kubelet makes it; ``names`` are DNS names and addresses, ``blocks`` follow the first."""
    alternative = [_general_name(name) for name in names]
    builder = x509.CertificateSigningRequestBuilder(subject_name=node_subject(node_name))
    if alternative:
        builder = builder.add_extension(x509.SubjectAlternativeName(alternative), critical=False)
    der = builder.sign(ec.generate_private_key(ec.SECP256R1()), SHA256()).public_bytes(Encoding.DER)
    text = b"".join(pem.encode(block) for block in (pem.Block(CERTIFICATE_REQUEST_LABEL, der), *blocks))
    return signing_request(csr, text, BuiltinSigner.KUBELET_SERVING.value, usages)


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _kind(address: str) -> str:
    try:
        ip_address(address)
    except ValueError:
        return "InternalDNS"
    return "InternalIP"


def builtin_client_request(csr: str, node_name: str) -> dict[str, Any]:
    """A CSR manifest to the built-in client signer, as kubeadm's TLS bootstrap makes it: for any node name."""
    builder = x509.CertificateSigningRequestBuilder(subject_name=node_subject(node_name))
    der = builder.sign(ec.generate_private_key(ec.SECP256R1()), SHA256()).public_bytes(Encoding.DER)
    text = pem.encode(pem.Block(CERTIFICATE_REQUEST_LABEL, der))
    return signing_request(csr, text, BuiltinSigner.KUBELET_CLIENT.value, CLIENT_USAGES)
