"""Source ``HostAnnotation``: the annotation of the host's object, such as a Metal3 BareMetalHost.

A host outlives the Machines that run on it one after the other. Its annotation names its TPM once for all of them.
"""

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
from attestors.tpm.endorsement_key_sources.host import is_on_host, writes_its_own_object


@dataclass(frozen=True, slots=True)
class HostAnnotation:
    """Reads the host's object from the management cluster. The annotation has the same key as on a Machine."""

    name = SourceName.HOST_ANNOTATION

    async def ask(
        self, request: AttestationRequest, endorsement_key: EndorsementKey, certificate: CertificateState
    ) -> KeySourceAnswer:
        """Compare with the annotation of the host that the claimed Machine's InfraMachine names."""
        machine = request.machine
        if isinstance(machine, NoClaimedMachine):
            return NoInformation("without a Machine there is no host to read")
        host = await request.management.host()
        if isinstance(host, NotThere):
            return Unclear(host.cause)
        if not is_on_host(request.provider_id, host):
            return Unclear(f"Machine {machine.name} is on host {host.reference}, and the request claims another one")
        if writes_its_own_object(host):
            return NoInformation(f"host {host.reference} writes its own object, so that annotations of it do not count")
        return compare_annotation(self.name, host.annotations, f"host {host.reference}", endorsement_key)
