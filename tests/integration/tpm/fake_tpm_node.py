"""A machine with a fake TPM, and what it posts: honest requests, and any other."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec

from attestors.wire import binding as binding_format
from attestors.wire.binding import Binding, CACertHash
from attestors.wire.evidence import Evidence
from attestors.wire.names import (
    CHALLENGE_ANNOTATION,
    ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION,
    EVIDENCE_VERSION,
    Purpose,
    SignerName,
)
from signer.kube.connection import ClusterConnection
from signer.testing.nodes import SimulatedNode
from signer.testing.world import Verdict, WorldCluster
from tests.integration.fixtures import provider_id
from tests.unit.attestors.tpm.fake_tpm import FakeTPM


@dataclass(frozen=True)
class FakeTPMNode:
    """One machine with one chip, and the key of its next certificate. Use :meth:`but` for attacks."""

    cluster: WorldCluster
    machine: str
    chip: FakeTPM
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    known_cluster: str = ""
    """The cluster's hash as the node knows it, where that is another."""
    credential: ClusterConnection | None = None
    """What it posts with; a bootstrap token without."""
    token: str = ""
    """The bootstrap token; a new one for each request without."""
    claimed: str = ""
    """The provider ID that it claims, if it is another than that of these tests' Machines."""

    def but(self, **changes: Any) -> FakeTPMNode:
        return replace(self, **changes)

    def with_new_key(self) -> FakeTPMNode:
        return self.but(key=ec.generate_private_key(ec.SECP256R1()))

    def joined(self, verdict: Verdict) -> FakeTPMNode:
        """With the certificate that it was given, and a new key for the next one."""
        assert verdict.certificate, verdict
        credential = self.node.connection(self.cluster.api.connection(), verdict.certificate)
        return self.but(credential=credential).with_new_key()

    @property
    def node(self) -> SimulatedNode:
        cluster = self.known_cluster or self.cluster.ca_cert_hash
        return SimulatedNode(self.machine, self.claimed or provider_id(self.machine), cluster, "tpm", {}, self.key)

    def binding(self, purpose: Purpose = Purpose.CLIENT) -> Binding:
        return binding_format.compute(
            evidence_version=EVIDENCE_VERSION,
            cluster=CACertHash(self.node.ca_cert_hash),
            signer_name=SignerName(purpose, "tpm"),
            subject_public_key_info=self.node.subject_public_key_info,
        )

    def manifest(self, name: str, fields: Mapping[str, str], purpose: Purpose = Purpose.CLIENT) -> dict[str, Any]:
        """A request with these fields as evidence."""
        evidence = Evidence(EVIDENCE_VERSION, CACertHash(self.node.ca_cert_hash), MappingProxyType(dict(fields)))
        if purpose is Purpose.CLIENT:
            return self.node.client_request(name, evidence_of=evidence)
        return self.node.serving_request(name, dns_names=[self.machine], evidence_of=evidence)

    def post(self, name: str, fields: Mapping[str, str], purpose: Purpose = Purpose.CLIENT) -> None:
        """Post it."""
        manifest = self.manifest(name, fields, purpose)
        if self.credential is None:
            self.cluster.submit_with_token(manifest, self.token or None)
        else:
            self.cluster.submit(manifest, self.credential)

    def ask(self, name: str, fields: Mapping[str, str], purpose: Purpose = Purpose.CLIENT) -> Verdict:
        """Post it and wait for the verdict."""
        self.post(name, fields, purpose)
        return self.cluster.wait_until_decided(name)

    def challenge(self, name: str, purpose: Purpose = Purpose.CLIENT) -> str:
        """The first request; returns the challenge."""
        verdict = self.ask(name, self.chip.first(), purpose)
        assert (verdict.condition, verdict.reason) == ("Denied", "ChallengeIssued"), verdict
        return verdict.annotations[CHALLENGE_ANNOTATION]

    def attest(self, name: str, purpose: Purpose = Purpose.CLIENT) -> Verdict:
        """Both requests, ``<name>-first`` and ``<name>``, as an honest node makes them."""
        challenge = self.challenge(f"{name}-first", purpose)
        return self.ask(name, self.chip.answer(challenge, self.binding(purpose)), purpose)


def add_machine(cluster: WorldCluster, machine: str, said: str = "") -> None:
    """A Machine; ``said`` is which TPM is in it, as the hardware's inventory has it."""
    cluster.add_machine(machine, provider_id=provider_id(machine), addresses=[("Hostname", machine)])
    if said:
        say(cluster, machine, said)


def say(cluster: WorldCluster, machine: str, said: str | None) -> None:
    """Write, change or remove (None) the annotation."""
    cluster.patch_machine(machine, {"metadata": {"annotations": {ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION: said}}})
