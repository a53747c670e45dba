"""Source ``MachineAnnotation``: a client with write access to the cluster's Machines annotated the Machine."""

from __future__ import annotations

from dataclasses import dataclass

from attestors.contract import AttestationRequest, NoClaimedMachine
from attestors.tpm.attestation_key import EndorsementKey
from attestors.tpm.endorsement_key_sources.annotation import compare_annotation
from attestors.tpm.endorsement_key_sources.answer import CertificateState, KeySourceAnswer, NoInformation, SourceName


@dataclass(frozen=True, slots=True)
class MachineAnnotation:
    """Reads the Machine from the core's cache; makes no call."""

    name = SourceName.MACHINE_ANNOTATION

    async def ask(
        self, request: AttestationRequest, endorsement_key: EndorsementKey, certificate: CertificateState
    ) -> KeySourceAnswer:
        """Compare with the Machine's annotation."""
        return self.check_locally(request, endorsement_key)

    def check_locally(self, request: AttestationRequest, endorsement_key: EndorsementKey) -> KeySourceAnswer:
        """Same as :meth:`ask`, synchronously."""
        machine = request.machine
        if isinstance(machine, NoClaimedMachine):
            return NoInformation("no Machine has this provider ID yet, so none names its TPM")
        return compare_annotation(self.name, machine.annotations, f"Machine {machine.name}", endorsement_key)
