"""What a source may say about whose endorsement key it is, and what a source is."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol, TypeAlias

from attestors.contract import AttestationRequest
from attestors.tpm.attestation_key import EndorsementKey
from attestors.tpm.endorsement import VerifiedEndorsementCertificate

LOOK_AGAIN: Final = timedelta(seconds=10)
"""Of what may change without a sign of it."""


class SourceName(enum.Enum):
    """The sources, as a policy's ``endorsementKeySources`` names them."""

    MACHINE_ANNOTATION = "MachineAnnotation"
    INFRASTRUCTURE_MACHINE_ANNOTATION = "InfrastructureMachineAnnotation"
    INVENTORY = "Inventory"
    GCP_SHIELDED_VM = "GCPShieldedVM"
    TRUST_ON_FIRST_USE = "TrustOnFirstUse"


@dataclass(frozen=True, slots=True)
class Owned:
    """The claimed machine's own TPM, says this source."""

    source: SourceName


@dataclass(frozen=True, slots=True)
class OwnedByOthers:
    """The claimed machine has another TPM. ``message`` goes before "than sha256:…"."""

    message: str


@dataclass(frozen=True, slots=True)
class NotSaid:
    """The source has nothing about the claimed machine: the next one is asked. ``message`` says what is lacking."""

    message: str


@dataclass(frozen=True, slots=True)
class Unclear:
    """The source may have something about the claimed machine, and nobody can tell what: unreadable, or contradictory.

    The request waits. The next source is not asked: a slip in an inventory must not open the door that is behind it.
    """

    message: str
    retry_after: timedelta = LOOK_AGAIN


KeySourceAnswer: TypeAlias = Owned | OwnedByOthers | NotSaid | Unclear


@dataclass(frozen=True, slots=True)
class CertificateNotVerified:
    """No endorsement authorities are configured, so no certificate was looked at."""


CertificateState: TypeAlias = VerifiedEndorsementCertificate | CertificateNotVerified


class CannotBeAskedNow(Exception):
    """A source cannot be asked at this moment; the message names the service and says why. The request waits."""

    def __init__(self, message: str, retry_after: timedelta = LOOK_AGAIN) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Source(Protocol):
    """Whoever can say which TPM is in a machine."""

    @property
    def name(self) -> SourceName:
        """Its name in settings and annotations."""
        ...

    async def ask(
        self, request: AttestationRequest, endorsement_key: EndorsementKey, certificate: CertificateState
    ) -> KeySourceAnswer:
        """Whether the claimed machine has that TPM.

        Raises:
            CannotBeAskedNow: try again later. Every other exception has the same effect, with the core's words.
        """
        ...
