"""The demo's machines with a TPM: one that proves its chip, and one of the same maker that wants to be the first."""

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
    """Two software TPMs of one maker, and a folder for what is needed beside them."""

    first: SoftwareTPM
    second: SoftwareTPM
    folder: Path

    def attestor(self) -> OperatorAttestor:
        """The operator's settings: whose TPMs count."""
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
    """The two TPMs, or what is not installed to have them."""
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
    """The machines of one cluster; whoever racked them wrote into each Machine which chip is in it."""

    def __init__(self, cluster: WorldCluster, chips: Chips) -> None:
        self._cluster = cluster
        self._chips = chips
        self._joined = ""
        for machine, chip in zip(MACHINES, (chips.first, chips.second), strict=True):
            annotations = {ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION: _fingerprint(chip)}
            cluster.patch_machine(machine, {"metadata": {"annotations": annotations}})

    def attempts(self) -> list[Attempt]:
        """The three attempts, in the order in which they are made."""
        return [
            Attempt(
                "metal-1",
                "metal-1",
                "Its kubelet-authenticator shows its chip's keys, is challenged, and answers with a quote that only "
                "this chip can make, for this request alone.",
                self._honest,
                "Approved",
                "Attested",
            ),
            Attempt(
                "metal-2",
                "metal-1",
                "It reads metal-1's CSR and copies the whole answer, quote and all, beside a key of its own.",
                self._copy,
                "Denied",
                "BindingMismatch",
            ),
            Attempt(
                "metal-2",
                "metal-1",
                "It asks with its own chip, which is genuine and of the same maker.",
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
        """Whoever has that chip, as metal-1."""
        settings = {"tcti": chip.tcti}
        return SimulatedNode("metal-1", provider_id("metal-1"), self._cluster.ca_cert_hash, "tpm", settings)

    def _program(self, machine: str, chip: SoftwareTPM) -> str:
        """Run the node's program on ``machine``, which asks to be metal-1; the name of its last request."""
        return ask_with_program(self._cluster, self._node(chip), self._chips.folder / machine)


def _fingerprint(chip: SoftwareTPM) -> str:
    """What an inventory has of a TPM: here, from the certificate that its maker gave it."""
    certificate = x509.load_der_x509_certificate(chip.endorsement_certificate(_RSA_CERTIFICATE))
    info = certificate.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return f"sha256:{hashlib.sha256(info).hexdigest()}"
