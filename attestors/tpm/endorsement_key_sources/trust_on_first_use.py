"""Source ``TrustOnFirstUse``: the first genuine TPM that comes with the Machine's own bootstrap token is the Machine's.

It proves the least of all: whoever has read the Machine's bootstrap data and has any TPM of a configured manufacturer
can be first. So an operator has to allow it, it is never for machines of which much depends or whose token is shared,
and once a TPM is recorded it is that one or none.
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
    CannotBeAskedNow,
    CertificateState,
    KeySourceAnswer,
    NotSaid,
    Owned,
    OwnedByOthers,
    SourceName,
)
from attestors.tpm.endorsement_key_sources.fingerprint import identity


@dataclass(frozen=True, slots=True)
class TrustOnFirstUse:
    """Made only where the operator allows it. The core reserves identity and Machine, so of two the first stays."""

    name = SourceName.TRUST_ON_FIRST_USE

    async def ask(
        self, request: AttestationRequest, endorsement_key: EndorsementKey, certificate: CertificateState
    ) -> KeySourceAnswer:
        """What the record says; without one, what the bootstrap token says.

        Raises:
            CannotBeAskedNow: whose bootstrap token it is cannot be told at the moment.
        """
        machine = request.machine
        # Somebody must vouch that it is a TPM at all: without, a program could be the first.
        if not isinstance(certificate, VerifiedEndorsementCertificate):
            return NotSaid("trust on first use needs an endorsement certificate that was verified")
        if isinstance(machine, NoClaimedMachine):
            return NotSaid("trust on first use needs a Machine, and none has this provider ID")
        if machine.role is not MachineRole.WORKER:
            return NotSaid(f"trust on first use is for workers, and Machine {machine.name} is a {machine.role.value}")
        if isinstance(machine.recorded, RecordedIdentity):
            if machine.recorded.identity == identity(endorsement_key):
                return Owned(self.name)
            return OwnedByOthers(f"Machine {machine.name} first came with another TPM")
        return self._first_use(machine, request.credential)

    def _first_use(self, machine: ClaimedMachine, credential: RequesterCredential) -> KeySourceAnswer:
        match credential:
            case TokenOfMachine():
                return Owned(self.name)
            case NodeCredential():
                return NotSaid(
                    f"no TPM is recorded of Machine {machine.name}, and a first use needs its bootstrap token, not a "
                    "node's certificate"
                )
            case OtherToken(cause):
                return NotSaid(f"a first use needs the Machine's own bootstrap token: {cause}")
            case TokenNotTraceableNow(cause):
                raise CannotBeAskedNow(f"whose bootstrap token it is cannot be told now: {cause}")
            case never:
                assert_never(never)
