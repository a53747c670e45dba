"""The demo's machines with a TPM: an honest one, and one that impersonates it with a TPM of the same manufacturer."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from attestors.wire.names import ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION
from signer.configuration import OperatorAttestor
from signer.testing.nodes import SimulatedNode
from signer.testing.world import WorldCluster
from tests.demo.machines import Attempt, provider_id, stolen_evidence
from tests.demo.programs import ask_with_program
from tests.support.binaries import MissingPart
from tests.support.software_tpm import SoftwareTPM, find_tpm_library

MACHINES: Final = ("metal-1", "metal-2")
_RSA_CERTIFICATE: Final = 0x01C00002


@dataclass(frozen=True)
class Chips:
    """Two software TPMs of one manufacturer, and a folder for other files."""

    first: SoftwareTPM
    second: SoftwareTPM
    folder: Path

    def attestor(self) -> OperatorAttestor:
        """The operator's settings, which trust the TPMs' manufacturer."""
        settings = {}
        for setting, content in (
            ("endorsementRootsFolder", self.first.root_certificate),
            ("endorsementIntermediatesFolder", self.first.issuer_certificate),
        ):
            authorities = self.folder / setting
            authorities.mkdir()
            (authorities / "maker.pem").write_bytes(content)
            settings[setting] = str(authorities)
        return OperatorAttestor(settings=settings)


@contextlib.contextmanager
def chips(folder: Path) -> Iterator[Chips | MissingPart]:
    """The two TPMs, or the program that is missing."""
    with contextlib.ExitStack() as stack:
        try:
            find_tpm_library()
            first = stack.enter_context(SoftwareTPM())
            second = stack.enter_context(SoftwareTPM(same_authority_as=first))
        except MissingPart as missing:
            yield missing
        else:
            yield Chips(first, second, folder)


class CastWithChips:
    """The machines of one cluster; each Machine has an annotation with the fingerprint of its TPM."""

    def __init__(self, cluster: WorldCluster, chips: Chips) -> None:
        self._cluster = cluster
        self._chips = chips
        self._joined = ""
        for machine, chip in zip(MACHINES, (chips.first, chips.second), strict=True):
            annotations = {ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION: _fingerprint(chip)}
            cluster.patch_machine(machine, {"metadata": {"annotations": annotations}})

    def attempts(self) -> list[Attempt]:
        """The three attempts, in order."""
        return [
            Attempt(
                "metal-1",
                "metal-1",
                "Its kubelet-authenticator presents the keys of its TPM, gets a challenge, and answers with a quote "
                "that only this TPM can make, for this request only.",
                self._honest,
                "Approved",
                "Attested",
            ),
            Attempt(
                "metal-2",
                "metal-1",
                "It reads metal-1's CSR and copies the evidence with the quote into a CSR for its own key.",
                self._copy,
                "Denied",
                "BindingMismatch",
            ),
            Attempt(
                "metal-2",
                "metal-1",
                "It uses its own TPM, which is genuine and of the same manufacturer.",
                self._own_chip,
                "Denied",
                "EndorsementKeyMismatch",
            ),
        ]

    def _honest(self) -> str:
        self._joined = self._program("metal-1", self._chips.first)
        return self._joined

    def _copy(self) -> str:
        name = "join-metal-2"
        thief = self._node(self._chips.second)
        manifest = thief.client_request(name, evidence_of=stolen_evidence(self._cluster, self._joined))
        self._cluster.submit_with_token(manifest)
        return name

    def _own_chip(self) -> str:
        return self._program("metal-2", self._chips.second)

    def _node(self, chip: SoftwareTPM) -> SimulatedNode:
        """A machine with that TPM that claims to be metal-1."""
        settings = {"tcti": chip.tcti}
        return SimulatedNode("metal-1", provider_id("metal-1"), self._cluster.ca_cert_hash, "tpm", settings)

    def _program(self, machine: str, chip: SoftwareTPM) -> str:
        """Run the node's program on ``machine``, which requests metal-1; returns the name of its last request."""
        return ask_with_program(self._cluster, self._node(chip), self._chips.folder / machine)


def _fingerprint(chip: SoftwareTPM) -> str:
    """The fingerprint of a TPM's endorsement key, from its manufacturer's certificate."""
    certificate = x509.load_der_x509_certificate(chip.endorsement_certificate(_RSA_CERTIFICATE))
    info = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return f"sha256:{hashlib.sha256(info).hexdigest()}"
