"""Source ``MachineAnnotation``: whoever may write the cluster's Machines has said it, on the Machine itself."""

from __future__ import annotations

from dataclasses import dataclass

from attestors.contract import AttestationRequest, NoClaimedMachine
from attestors.tpm.attestation_key import EndorsementKey
from attestors.tpm.endorsement_key_sources.annotation import judge_annotation
from attestors.tpm.endorsement_key_sources.answer import CertificateState, KeySourceAnswer, NotSaid, SourceName


@dataclass(frozen=True, slots=True)
class MachineAnnotation:
    """Reads what the core mirrors: nobody is asked for it."""

    name = SourceName.MACHINE_ANNOTATION

    async def ask(
        self, request: AttestationRequest, endorsement_key: EndorsementKey, certificate: CertificateState
    ) -> KeySourceAnswer:
        """What the Machine's annotation says."""
        return self.look(request, endorsement_key)

    def look(self, request: AttestationRequest, endorsement_key: EndorsementKey) -> KeySourceAnswer:
        """The same, without waiting."""
        machine = request.machine
        if isinstance(machine, NoClaimedMachine):
            return NotSaid("no Machine has this provider ID yet, so none can say which TPM is in it")
        return judge_annotation(self.name, machine.annotations, f"Machine {machine.name}", endorsement_key)
