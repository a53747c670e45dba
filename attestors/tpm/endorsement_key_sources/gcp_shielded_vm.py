"""Source ``GCPShieldedVM``: Google, which created the instance's virtual TPM, reports its keys."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import assert_never

from attestors.clouds.errors import CloudError
from attestors.clouds.google import GoogleAccess, compute_engine
from attestors.contract import AttestationRequest, NoClaimedMachine
from attestors.tpm.attestation_key import EndorsementKey
from attestors.tpm.endorsement_key_sources.answer import (
    CertificateState,
    KeyConfirmed,
    KeyContradicted,
    KeySourceAnswer,
    NoInformation,
    SourceName,
    SourceUnavailable,
    Unclear,
)
from attestors.tpm.shielded_vm import (
    KeyDiffersFromInstance,
    KeyMatchesInstance,
    NotAnsweredYet,
    NotApplicable,
    ShieldedVirtualMachines,
)


@dataclass(frozen=True, slots=True)
class GCPShieldedVM:
    """Calls Compute Engine. An instance of a MachinePool needs no Machine: the provider ID names it.

    Provider IDs that the Cluster does not have cause no call: the quota is the project's, and names are easily
    invented.
    """

    machines: ShieldedVirtualMachines = field(repr=False)

    name = SourceName.GCP_SHIELDED_VM

    async def ask(
        self, request: AttestationRequest, endorsement_key: EndorsementKey, certificate: CertificateState
    ) -> KeySourceAnswer:
        """Google's answer for the instance with the claimed provider ID.

        Raises:
            SourceUnavailable: Google is unreachable, or rejects the controller.
        """
        if isinstance(request.machine, NoClaimedMachine) and not request.machine.pool:
            return NoInformation("no Machine or MachinePool has this provider ID yet, so Google is not asked")
        try:
            answer = await self.machines.ask(request.provider_id, endorsement_key.key)
        except CloudError as error:
            raise SourceUnavailable(str(error), error.retry_after) from error
        match answer:
            case KeyMatchesInstance():
                return KeyConfirmed(self.name)
            case KeyDiffersFromInstance(instance):
                return KeyContradicted(f"instance {instance} has another TPM")
            case NotApplicable(message):
                return NoInformation(message)
            case NotAnsweredYet(message, retry_after):
                return Unclear(message, retry_after)
            case never:
                assert_never(never)


@functools.cache  # each namespace may have its own settings: as many as the operator wrote
def shielded_vms(access: GoogleAccess, projects: frozenset[str]) -> GCPShieldedVM:
    """The source for these settings; all clusters of the process share it and its cached answers.

    Raises:
        ImportError: google-auth or requests is not installed (extra ``gcp``).
    """
    return GCPShieldedVM(ShieldedVirtualMachines(compute_engine(access), projects))
