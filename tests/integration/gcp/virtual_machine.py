"""An instance of the fake Google that is to become a node, and what it posts: honest requests, and any other."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address, IPv6Address
from types import MappingProxyType
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric import ec

from attestors.gcp import wire
from attestors.wire import binding as binding_format
from attestors.wire.binding import CACertHash
from attestors.wire.evidence import Evidence
from attestors.wire.names import EVIDENCE_VERSION, Purpose, SignerName
from signer.kube.connection import ClusterConnection
from signer.testing.nodes import SimulatedNode
from signer.testing.world import Verdict, WorldCluster
from tests.support.fake_google import FakeGoogle, FakeInstance

PROJECT: Final = "capi-workloads"
PROJECT_NUMBER: Final = 730000000001
OTHER_PROJECT: Final = "capi-other-workloads"
"""The operator allows it, too."""
OTHER_PROJECT_NUMBER: Final = 730000000002
_NUMBERS: Final = itertools.count(1)


def csr(what: str = "csr") -> str:
    """A name for a request."""
    return f"{what}-{next(_NUMBERS)}"


def new_instance(google: FakeGoogle, **changes: Any) -> FakeInstance:
    """An instance that runs, with a name, number and address of its own."""
    number = next(_NUMBERS)
    instance = FakeInstance(
        name=f"worker-{number}",
        instance_id=str(5_000_000_000_000_000_000 + number),
        created=datetime.now(UTC) - timedelta(hours=3),
        addresses=(f"10.132.{number // 250}.{number % 250 + 1}",),
    )
    return google.add(replace(instance, **changes))


@dataclass(frozen=True)
class VirtualMachine:
    """One instance with its own metadata server, and the key of its next certificate. Use :meth:`but` for attacks."""

    google: FakeGoogle
    cluster: WorldCluster
    instance: FakeInstance
    metadata: str
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    credential: ClusterConnection | None = None
    """What it posts with; a new bootstrap token without."""

    @classmethod
    def start(
        cls, google: FakeGoogle, cluster: WorldCluster, *, addresses: Sequence[tuple[str, str]] = (), **changes: Any
    ) -> VirtualMachine:
        """An instance, and its Machine with these addresses."""
        instance = new_instance(google, **changes)
        cluster.add_machine(instance.name, provider_id=instance.provider_id, addresses=addresses)
        return cls(google, cluster, instance, google.metadata_of(instance))

    def but(self, **changes: Any) -> VirtualMachine:
        return replace(self, **changes)

    def with_new_key(self) -> VirtualMachine:
        return self.but(key=ec.generate_private_key(ec.SECP256R1()))

    @property
    def node(self) -> SimulatedNode:
        settings = {"metadata-endpoint": self.metadata}
        node = SimulatedNode(
            self.instance.name, self.instance.provider_id, self.cluster.ca_cert_hash, "gcp", settings, self.key
        )
        assert node.registry.load("gcp").agent_plugin(settings).provider_id() == self.instance.provider_id
        return node

    def audience(self, purpose: Purpose = Purpose.CLIENT) -> str:
        """What its token must be for."""
        binding = binding_format.compute(
            evidence_version=EVIDENCE_VERSION,
            cluster=CACertHash(self.cluster.ca_cert_hash),
            signer_name=SignerName(purpose, "gcp"),
            subject_public_key_info=self.node.subject_public_key_info,
        )
        return wire.audience(binding.value)

    def evidence(self, token: str) -> Evidence:
        """Evidence with this token."""
        fields = MappingProxyType({wire.IDENTITY_TOKEN_FIELD: token})
        return Evidence(EVIDENCE_VERSION, CACertHash(self.cluster.ca_cert_hash), fields)

    def post(self, name: str, manifest: dict[str, Any]) -> None:
        if self.credential is None:
            self.cluster.submit_with_token(manifest)
        else:
            self.cluster.submit(manifest, self.credential)

    def ask(self, name: str, token: str = "") -> Verdict:
        """Ask for a client certificate with this token, or with an honest one."""
        self.post(name, self.node.client_request(name, evidence_of=self.evidence(token) if token else None))
        return self.cluster.wait_until_decided(name)

    def ask_to_serve(
        self, name: str, dns_names: Sequence[str] = (), ip_addresses: Sequence[IPv4Address | IPv6Address] = ()
    ) -> Verdict:
        """Ask for a serving certificate."""
        self.post(name, self.node.serving_request(name, dns_names=dns_names, ip_addresses=ip_addresses))
        return self.cluster.wait_until_decided(name)

    def joined(self) -> VirtualMachine:
        """Join; as it renews."""
        verdict = self.ask(csr("join"))
        assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict
        credential = self.node.connection(self.cluster.api.connection(), verdict.certificate)
        return self.but(credential=credential).with_new_key()
