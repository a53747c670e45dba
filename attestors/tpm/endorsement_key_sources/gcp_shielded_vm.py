"""Source ``GCPShieldedVM``: Google made the virtual TPM of the instance, and says which key it has."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import assert_never

from attestors.clouds.errors import CloudError
from attestors.clouds.google import GoogleAccess, compute_engine
from attestors.contract import AttestationRequest, NoClaimedMachine
from attestors.tpm.attestation_key import EndorsementKey
from attestors.tpm.endorsement_key_sources.answer import (
    CannotBeAskedNow,
    CertificateState,
    KeySourceAnswer,
    NotSaid,
    Owned,
    OwnedByOthers,
    SourceName,
    Unclear,
)
from attestors.tpm.shielded_vm import AnotherKey, InstancesKey, NotAsked, NotSaidYet, ShieldedVirtualMachines


@dataclass(frozen=True, slots=True)
class GCPShieldedVM:
    """Asks Compute Engine. An instance of a MachinePool needs no Machine: the provider ID names it.

    Of what the Cluster has not, Google is not asked: its quota is the project's, and names are easily invented.
    """

    machines: ShieldedVirtualMachines = field(repr=False)

    name = SourceName.GCP_SHIELDED_VM

    async def ask(
        self, request: AttestationRequest, endorsement_key: EndorsementKey, certificate: CertificateState
    ) -> KeySourceAnswer:
        """What Google says of the instance with the claimed provider ID.

        Raises:
            CannotBeAskedNow: Google cannot be asked, or does not let us.
        """
        if isinstance(request.machine, NoClaimedMachine) and not request.machine.pool:
            return NotSaid("no Machine or MachinePool has this provider ID yet, so Google is not asked")
        try:
            said = await self.machines.ask(request.provider_id, endorsement_key.key)
        except CloudError as error:
            raise CannotBeAskedNow(str(error), error.retry_after) from error
        match said:
            case InstancesKey():
                return Owned(self.name)
            case AnotherKey(instance):
                return OwnedByOthers(f"instance {instance} has another TPM")
            case NotAsked(message):
                return NotSaid(message)
            case NotSaidYet(message, retry_after):
                return Unclear(message, retry_after)
            case never:
                assert_never(never)


@functools.cache  # an operator may give each namespace its own: as many as were written down
def shielded_vms(access: GoogleAccess, projects: frozenset[str]) -> GCPShieldedVM:
    """The one for these settings in this process: all clusters share its answers.

    Raises:
        ImportError: google-auth or requests is not installed (extra ``gcp``).
    """
    return GCPShieldedVM(ShieldedVirtualMachines(compute_engine(access), projects))
