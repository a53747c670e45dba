"""A simulated node, which makes keys, evidence and CertificateSigningRequest manifests, valid or not.

For tests of the controller and of attestors. It uses the attestor's real agent plugin, found through the entry points
as in ``kubelet-authenticator``.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv6Address
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from attestors.contract import GatherRequest
from attestors.registry import Registry
from attestors.wire import binding, certificate_request, evidence, request
from attestors.wire.binding import CACertHash
from attestors.wire.evidence import Evidence
from attestors.wire.names import EVIDENCE_VERSION, PROVIDER_ID_OID, Purpose, SignerName
from attestors.wire.request import RequestBlocks
from signer.kube.connection import ClusterConnection

CLIENT_USAGES = ("digital signature", "client auth")
SERVING_USAGES = ("digital signature", "server auth")


@dataclass(frozen=True)
class SimulatedNode:
    """A machine that requests certificates as a node. :meth:`but` makes variants."""

    node_name: str
    provider_id: str
    ca_cert_hash: str
    """Hash of the workload cluster's CA in the node's kubeconfig: ``sha256:`` and hexadecimal digits."""
    provider: str
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of the attestor's agent plugin."""
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey = field(
        default_factory=lambda: ec.generate_private_key(ec.SECP256R1())
    )
    registry: Registry = field(default_factory=Registry)
    provider_id_oid: str = PROVIDER_ID_OID
    """OID of the extension that holds the provider ID in requests."""

    def but(self, **changes: Any) -> SimulatedNode:
        """A copy with other values, such as another ``node_name`` or ``key``."""
        return replace(self, **changes)

    @property
    def subject_public_key_info(self) -> bytes:
        """The key's SubjectPublicKeyInfo in DER."""
        return self.key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)

    def evidence(self, purpose: Purpose = Purpose.CLIENT, challenge: str = "") -> Evidence:
        """Evidence for this node's key, from the attestor's agent plugin."""
        cluster = CACertHash(self.ca_cert_hash)
        expected = binding.compute(
            evidence_version=EVIDENCE_VERSION,
            cluster=cluster,
            signer_name=SignerName(purpose, self.provider),
            subject_public_key_info=self.subject_public_key_info,
        )
        agent_plugin = self.registry.load(self.provider).agent_plugin(self.settings)
        return agent_plugin.gather(GatherRequest(expected, cluster.text, EVIDENCE_VERSION, purpose, challenge))

    def certificate_request(
        self, dns_names: Sequence[str] = (), ip_addresses: Sequence[IPv4Address | IPv6Address] = ()
    ) -> bytes:
        """PKCS#10 DER, signed with this node's key."""
        return certificate_request.build(
            self.key,
            node_name=self.node_name,
            provider_id=self.provider_id,
            dns_names=dns_names,
            ip_addresses=ip_addresses,
            provider_id_oid=self.provider_id_oid,
        )

    def connection(self, api: ClusterConnection, certificate: bytes) -> ClusterConnection:
        """The node's connection to the API server of ``api``, with its issued ``certificate`` (PEM)."""
        key = self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return replace(api, client_certificate=certificate, client_key=key, bearer_token=None)

    def client_request(self, name: str, *, evidence_of: Evidence | None = None) -> dict[str, Any]:
        """A CertificateSigningRequest manifest for a client certificate; ``evidence_of`` replaces its evidence."""
        blocks = RequestBlocks(
            self.certificate_request(), self.provider, evidence.encode(evidence_of or self.evidence(Purpose.CLIENT))
        )
        return signing_request(
            name, request.encode(blocks), str(SignerName(Purpose.CLIENT, self.provider)), CLIENT_USAGES
        )

    def serving_request(
        self,
        name: str,
        *,
        dns_names: Sequence[str] = (),
        ip_addresses: Sequence[IPv4Address | IPv6Address] = (),
        evidence_of: Evidence | None = None,
    ) -> dict[str, Any]:
        """A CertificateSigningRequest manifest for a serving certificate."""
        blocks = RequestBlocks(
            self.certificate_request(dns_names, ip_addresses),
            self.provider,
            evidence.encode(evidence_of or self.evidence(Purpose.SERVING)),
        )
        return signing_request(
            name, request.encode(blocks), str(SignerName(Purpose.SERVING, self.provider)), SERVING_USAGES
        )


def signing_request(
    name: str,
    request_bytes: bytes,
    signer_name: str,
    usages: Sequence[str] = CLIENT_USAGES,
    expiration_seconds: int | None = None,
) -> dict[str, Any]:
    """A CertificateSigningRequest manifest with any bytes as ``spec.request``."""
    spec: dict[str, Any] = {
        "request": base64.b64encode(request_bytes).decode("ascii"),
        "signerName": signer_name,
        "usages": list(usages),
    }
    if expiration_seconds is not None:
        spec["expirationSeconds"] = expiration_seconds
    return {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": spec,
    }
