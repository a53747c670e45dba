"""Asks the sources in a cluster's order of preference: the first definite answer decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from attestors.contract import AttestationRequest, ClaimedMachine, MachineMatch
from attestors.tpm.attestation_key import EndorsementKey
from attestors.tpm.endorsement_key_sources.answer import (
    RETRY_AFTER,
    CertificateState,
    KeyConfirmed,
    KeyContradicted,
    KeySourceAnswer,
    NoInformation,
    Source,
    SourceName,
    Unclear,
)
from attestors.tpm.endorsement_key_sources.machine_annotation import MachineAnnotation
from attestors.tpm.endorsement_key_sources.recorded_calls import KEY_SOURCE_ANSWER

_RECORDED: Final = frozenset({SourceName.INVENTORY, SourceName.GCP_SHIELDED_VM})
"""Sources whose calls are recorded here. The core records the InfraMachine's annotations."""
_NAME_MACHINE_OR_HOST: Final = frozenset(
    {
        SourceName.MACHINE_ANNOTATION,
        SourceName.INFRASTRUCTURE_MACHINE_ANNOTATION,
        SourceName.HOST_ANNOTATION,
        SourceName.INVENTORY,
    }
)
"""Sources that name the TPM of the Machine or its host. The others name that of a provider ID or of the first comer,
which says nothing about a Machine that shows no provider ID."""


@dataclass(frozen=True, slots=True)
class Undetermined:
    """No source names the machine's key; ``lacking`` has a sentence of each source that was asked."""

    lacking: tuple[str, ...]
    retry_after: timedelta = RETRY_AFTER

    def within(self, characters: int) -> str:
        """All sentences within that many characters; long ones are shortened first."""
        return "; ".join(_shorten(self.lacking, characters - 2 * (len(self.lacking) - 1)))


@dataclass(frozen=True, slots=True)
class SourcesInOrder:
    """The configured sources; at least one."""

    sources: tuple[Source, ...]

    async def ask(
        self, request: AttestationRequest, endorsement_key: EndorsementKey, certificate: CertificateState
    ) -> KeyConfirmed | KeyContradicted | Undetermined:
        """Ask one source after the other. An exception of a source passes through, and no further source is asked.

        Raises:
            SourceUnavailable: a source is unavailable now; any other exception means the same.
        """
        lacking: list[str] = []
        for source in self.sources:
            answer = await _ask(source, request, endorsement_key, certificate)
            if isinstance(answer, KeyConfirmed | KeyContradicted):
                return answer
            lacking.append(answer.message)
            if isinstance(answer, Unclear):
                return Undetermined(tuple(lacking), answer.retry_after)
        return Undetermined(tuple(lacking))

    def check_locally(
        self, request: AttestationRequest, endorsement_key: EndorsementKey
    ) -> KeyConfirmed | KeyContradicted | Undetermined:
        """The answer that needs no call: undetermined unless the Machine's annotation is the first source."""
        first = self.sources[0]
        if not isinstance(first, MachineAnnotation):
            return Undetermined(())
        answer = first.check_locally(request, endorsement_key)
        return Undetermined((answer.message,)) if isinstance(answer, NoInformation | Unclear) else answer


async def _ask(
    source: Source, request: AttestationRequest, endorsement_key: EndorsementKey, certificate: CertificateState
) -> KeySourceAnswer:
    """The audit log records the source's answer, not the data behind it, such as a whole inventory."""
    machine = request.machine
    if (
        isinstance(machine, ClaimedMachine)
        and machine.match is not MachineMatch.PROVIDER_ID
        and source.name not in _NAME_MACHINE_OR_HOST
    ):
        return NoInformation(
            f"source {source.name.value} does not count for Machine {machine.name}, which shows no provider ID"
        )
    if source.name not in _RECORDED:
        return await source.ask(request, endorsement_key, certificate)
    question = f"endorsement key source {source.name.value}"
    return await request.recorded_calls.ask(
        question, lambda: source.ask(request, endorsement_key, certificate), KEY_SOURCE_ANSWER
    )


def _shorten(texts: Sequence[str], limit: int) -> list[str]:
    """The texts within ``limit`` characters; the longer ones share what the shorter ones leave."""
    share, left = 0, limit
    for already, length in enumerate(sorted(map(len, texts))):
        share = left // (len(texts) - already)
        if length > share:
            break
        left -= length
    return [text if len(text) <= share else f"{text[: max(share - 3, 0)]}..." for text in texts]
