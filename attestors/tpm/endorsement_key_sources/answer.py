"""The protocol of an endorsement key source, and its possible answers."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol, TypeAlias

from attestors.contract import AttestationRequest
from attestors.tpm.attestation_key import EndorsementKey
from attestors.tpm.endorsement import VerifiedEndorsementCertificate

RETRY_AFTER: Final = timedelta(seconds=10)
"""Delay before a source is asked again whose changes trigger no event."""


class SourceName(enum.Enum):
    """The sources, as a policy's ``endorsementKeySources`` names them."""

    MACHINE_ANNOTATION = "MachineAnnotation"
    INFRASTRUCTURE_MACHINE_ANNOTATION = "InfrastructureMachineAnnotation"
    HOST_ANNOTATION = "HostAnnotation"
    INVENTORY = "Inventory"
    GCP_SHIELDED_VM = "GCPShieldedVM"
    TRUST_ON_FIRST_USE = "TrustOnFirstUse"


@dataclass(frozen=True, slots=True)
class KeyConfirmed:
    """The source assigns the key to the claimed machine."""

    source: SourceName


@dataclass(frozen=True, slots=True)
class KeyContradicted:
    """The source assigns another TPM to the claimed machine. ``message`` is continued by "than sha256:…"."""

    message: str


@dataclass(frozen=True, slots=True)
class NoInformation:
    """The source has no entry for the claimed machine: the next source is asked. ``message`` says what is missing."""

    message: str


@dataclass(frozen=True, slots=True)
class Unclear:
    """The source's entry for the claimed machine is unreadable or contradictory.

    The request waits, and no further source is asked: an error in an inventory must not enable a weaker source after
    it.
    """

    message: str
    retry_after: timedelta = RETRY_AFTER


KeySourceAnswer: TypeAlias = KeyConfirmed | KeyContradicted | NoInformation | Unclear


@dataclass(frozen=True, slots=True)
class CertificateNotVerified:
    """No endorsement authorities are configured, so no certificate was verified."""


CertificateState: TypeAlias = VerifiedEndorsementCertificate | CertificateNotVerified


class SourceUnavailable(Exception):
    """A source is unavailable now; the message names the service and the cause. The request waits."""

    def __init__(self, message: str, retry_after: timedelta = RETRY_AFTER) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class Source(Protocol):
    """Assigns TPMs to machines."""

    @property
    def name(self) -> SourceName:
        """Its name in settings and annotations."""
        ...

    async def ask(
        self, request: AttestationRequest, endorsement_key: EndorsementKey, certificate: CertificateState
    ) -> KeySourceAnswer:
        """Whether the claimed machine has the TPM with this endorsement key.

        Raises:
            SourceUnavailable: retry later. Any other exception has the same effect, with the core's message.
        """
        ...
