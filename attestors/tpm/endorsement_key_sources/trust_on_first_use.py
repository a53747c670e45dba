"""Source ``TrustOnFirstUse``: the first genuine TPM that comes with the Machine's own bootstrap token is the Machine's.

This is the weakest source: any reader of the Machine's bootstrap data that has any TPM of a configured manufacturer can
be first. An operator must allow it. It excludes control planes and pools, whose token is shared. After the first
use, only the recorded TPM is accepted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from attestors.contract import (
    AttestationRequest,
    ClaimedMachine,
    MachineRole,
    NoClaimedMachine,
    NodeCredential,
    OtherToken,
    RecordedIdentity,
    RequesterCredential,
    TokenNotTraceableNow,
    TokenOfMachine,
)
from attestors.tpm.attestation_key import EndorsementKey
from attestors.tpm.endorsement import VerifiedEndorsementCertificate
from attestors.tpm.endorsement_key_sources.answer import (
    CertificateState,
    KeyConfirmed,
    KeyContradicted,
    KeySourceAnswer,
    NoInformation,
    SourceName,
    SourceUnavailable,
)
from attestors.tpm.endorsement_key_sources.fingerprint import identity


@dataclass(frozen=True, slots=True)
class TrustOnFirstUse:
    """Exists only if the operator allows it. The core reserves identity and Machine, so the first of two TPMs stays."""

    name = SourceName.TRUST_ON_FIRST_USE

    async def ask(
        self, request: AttestationRequest, endorsement_key: EndorsementKey, certificate: CertificateState
    ) -> KeySourceAnswer:
        """Compare with the record; without a record, check the bootstrap token.

        Raises:
            SourceUnavailable: the owner of the bootstrap token cannot be determined at the moment.
        """
        machine = request.machine
        # Without a verified certificate a program that imitates a TPM could be first.
        if not isinstance(certificate, VerifiedEndorsementCertificate):
            return NoInformation("trust on first use needs a verified endorsement certificate")
        if isinstance(machine, NoClaimedMachine):
            return NoInformation("trust on first use needs a Machine, and none has this provider ID")
        if machine.role is not MachineRole.WORKER:
            return NoInformation(
                f"trust on first use is for workers, and Machine {machine.name} is a {machine.role.value}"
            )
        if isinstance(machine.recorded, RecordedIdentity):
            if machine.recorded.identity == identity(endorsement_key):
                return KeyConfirmed(self.name)
            return KeyContradicted(f"Machine {machine.name} first came with another TPM")
        return self._first_use(machine, request.credential)

    def _first_use(self, machine: ClaimedMachine, credential: RequesterCredential) -> KeySourceAnswer:
        match credential:
            case TokenOfMachine():
                return KeyConfirmed(self.name)
            case NodeCredential():
                return NoInformation(
                    f"no TPM is recorded of Machine {machine.name}, and a first use needs its bootstrap token, not a "
                    "node's certificate"
                )
            case OtherToken(cause):
                return NoInformation(f"a first use needs the Machine's own bootstrap token: {cause}")
            case TokenNotTraceableNow(cause):
                raise SourceUnavailable(f"the owner of the bootstrap token cannot be determined now: {cause}")
            case never:
                assert_never(never)
