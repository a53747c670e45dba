"""Source ``InfrastructureMachineAnnotation``: the platform's controller has said it, on the Machine's InfraMachine."""

from __future__ import annotations

from dataclasses import dataclass

from attestors.contract import AttestationRequest, NoClaimedMachine, NotThere
from attestors.tpm.attestation_key import EndorsementKey
from attestors.tpm.endorsement_key_sources.annotation import judge_annotation
from attestors.tpm.endorsement_key_sources.answer import CertificateState, KeySourceAnswer, NotSaid, SourceName, Unclear


@dataclass(frozen=True, slots=True)
class InfrastructureMachineAnnotation:
    """Asks the management cluster. The annotation has the key that it has on a Machine."""

    name = SourceName.INFRASTRUCTURE_MACHINE_ANNOTATION

    async def ask(
        self, request: AttestationRequest, endorsement_key: EndorsementKey, certificate: CertificateState
    ) -> KeySourceAnswer:
        """What the annotation of the claimed Machine's InfraMachine says."""
        machine = request.machine
        if isinstance(machine, NoClaimedMachine):
            return NotSaid("without a Machine there is no InfraMachine to look at")
        annotations = await request.management.infrastructure_annotations()
        if isinstance(annotations, NotThere):
            return Unclear(annotations.cause)
        return judge_annotation(self.name, annotations, f"the InfraMachine of Machine {machine.name}", endorsement_key)
