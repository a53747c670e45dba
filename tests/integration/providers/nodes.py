"""Nodes of the providers' worlds: with the keyed-mac attestor, or with a TPM where the Machine shows no provider ID."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, replace
from ipaddress import ip_address
from types import MappingProxyType
from typing import Any, Final, Protocol, Self

from cryptography.hazmat.primitives.asymmetric import ec
from keyed_mac.keys import derive_machine_key

from attestors.wire import binding as binding_format
from attestors.wire.binding import CACertHash
from attestors.wire.evidence import Evidence
from attestors.wire.names import CHALLENGE_ANNOTATION, EVIDENCE_VERSION, Purpose, SignerName
from signer.kube.connection import ClusterConnection
from signer.testing.nodes import SimulatedNode
from signer.testing.world import Verdict, WorldCluster
from tests.integration.fixtures import MASTER_KEY
from tests.unit.attestors.tpm.fake_tpm import FakeTPM

NO_NAMES: Final[tuple[str, ...]] = ()


class Node(Protocol):
    """A machine that requests certificates: client certificates, or with ``names`` serving certificates."""

    @property
    def simulated(self) -> SimulatedNode:
        """Its key, the name that it asks for and the provider ID that it claims."""
        ...

    def but(self, **changes: Any) -> Self:
        """The same machine with another node name, provider ID or key."""
        ...

    def with_token(self, token: str) -> Self:
        """The same machine with another bootstrap token."""
        ...

    def joined(self, verdict: Verdict) -> Self:
        """The same machine with the certificate that it was given, and a new key."""
        ...

    def post(self, csr: str, names: Sequence[str] = NO_NAMES) -> str:
        """Post the first request; returns its name."""
        ...

    def post_proof(self, csr: str, names: Sequence[str] = NO_NAMES) -> str:
        """Post all up to the request that carries the proof, whose name it returns."""
        ...

    def ask(self, csr: str, names: Sequence[str] = NO_NAMES) -> Verdict:
        """Post what is needed, and wait for the verdict."""
        ...


@dataclass(frozen=True)
class _Posting:
    """The part that does not depend on the attestor."""

    cluster: WorldCluster
    simulated: SimulatedNode
    token: str = ""
    """A new one for each request, if it is empty."""
    credential: ClusterConnection | None = None

    def but(self, **changes: Any) -> Self:
        return replace(self, simulated=self.simulated.but(**changes))

    def with_token(self, token: str) -> Self:
        return replace(self, token=token, credential=None)

    def joined(self, verdict: Verdict) -> Self:
        credential = self.simulated.connection(self.cluster.api.connection(), verdict.certificate)
        return replace(self.but(key=ec.generate_private_key(ec.SECP256R1())), credential=credential)

    def send(self, csr: str, names: Sequence[str], evidence: Evidence | None = None) -> str:
        """Post one request."""
        addresses = [one for one in names if _is_address(one)]
        if names:
            manifest = self.simulated.serving_request(
                csr,
                dns_names=[one for one in names if one not in addresses],
                ip_addresses=list(map(ip_address, addresses)),
                evidence_of=evidence,
            )
        else:
            manifest = self.simulated.client_request(csr, evidence_of=evidence)
        if self.credential is None:
            self.cluster.submit_with_token(manifest, self.token or None)
        else:
            self.cluster.submit(manifest, self.credential)
        return csr


@dataclass(frozen=True)
class KeyedMACNode(_Posting):
    """Its one request carries the proof."""

    @classmethod
    def of(cls, cluster: WorldCluster, node_name: str, provider_id: str) -> KeyedMACNode:
        """The machine that holds the key for that provider ID."""
        key = base64.b64encode(derive_machine_key(MASTER_KEY, provider_id)).decode("ascii")
        settings = {"provider-id": provider_id, "machine-key": key}
        return cls(cluster, SimulatedNode(node_name, provider_id, cluster.ca_cert_hash, "keyed-mac", settings))

    def post(self, csr: str, names: Sequence[str] = NO_NAMES) -> str:
        return self.send(csr, names)

    def post_proof(self, csr: str, names: Sequence[str] = NO_NAMES) -> str:
        return self.send(csr, names)

    def ask(self, csr: str, names: Sequence[str] = NO_NAMES) -> Verdict:
        return self.cluster.wait_until_decided(self.send(csr, names))


@dataclass(frozen=True, kw_only=True)
class ChipNode(_Posting):
    """Its first request is answered with a challenge, and its second carries the proof."""

    chip: FakeTPM

    @classmethod
    def of(cls, cluster: WorldCluster, node_name: str, provider_id: str, chip: FakeTPM, token: str) -> ChipNode:
        """The machine with that chip."""
        simulated = SimulatedNode(node_name, provider_id, cluster.ca_cert_hash, "tpm", {})
        return cls(cluster, simulated, token, chip=chip)

    def post(self, csr: str, names: Sequence[str] = NO_NAMES) -> str:
        return self.send(csr, names, self._evidence(self.chip.first()))

    def post_proof(self, csr: str, names: Sequence[str] = NO_NAMES) -> str:
        first = self.cluster.wait_until_decided(self.post(f"{csr}-first", names))
        assert first.reason == "ChallengeIssued", first
        return self._answer(csr, first, names)

    def ask(self, csr: str, names: Sequence[str] = NO_NAMES) -> Verdict:
        first = self.cluster.wait_until_decided(self.post(f"{csr}-first", names))
        if first.reason != "ChallengeIssued":
            return first
        return self.cluster.wait_until_decided(self._answer(csr, first, names))

    def _answer(self, csr: str, first: Verdict, names: Sequence[str]) -> str:
        binding = binding_format.compute(
            evidence_version=EVIDENCE_VERSION,
            cluster=CACertHash(self.simulated.ca_cert_hash),
            signer_name=SignerName(Purpose.SERVING if names else Purpose.CLIENT, "tpm"),
            subject_public_key_info=self.simulated.subject_public_key_info,
        )
        fields = self.chip.answer(first.annotations[CHALLENGE_ANNOTATION], binding)
        return self.send(csr, names, self._evidence(fields))

    def _evidence(self, fields: dict[str, str]) -> Evidence:
        return Evidence(EVIDENCE_VERSION, CACertHash(self.simulated.ca_cert_hash), MappingProxyType(dict(fields)))


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
