"""Source ``InfrastructureMachineAnnotation``: the platform's controller annotates the Machine's InfraMachine."""

from __future__ import annotations

from dataclasses import dataclass

from attestors.contract import AttestationRequest, NoClaimedMachine, NotThere
from attestors.tpm.attestation_key import EndorsementKey
from attestors.tpm.endorsement_key_sources.annotation import compare_annotation
from attestors.tpm.endorsement_key_sources.answer import (
    CertificateState,
    KeySourceAnswer,
    NoInformation,
    SourceName,
    Unclear,
)


@dataclass(frozen=True, slots=True)
class InfrastructureMachineAnnotation:
    """Reads the InfraMachine from the management cluster. The annotation has the same key as on a Machine."""

    name = SourceName.INFRASTRUCTURE_MACHINE_ANNOTATION

    async def ask(
        self, request: AttestationRequest, endorsement_key: EndorsementKey, certificate: CertificateState
    ) -> KeySourceAnswer:
        """Compare with the annotation of the claimed Machine's InfraMachine."""
        machine = request.machine
        if isinstance(machine, NoClaimedMachine):
            return NoInformation("without a Machine there is no InfraMachine to read")
        annotations = await request.management.infrastructure_annotations()
        if isinstance(annotations, NotThere):
            return Unclear(annotations.cause)
        owner = f"the InfraMachine of Machine {machine.name}"
        return compare_annotation(self.name, annotations, owner, endorsement_key)
