"""The sources in a cluster's order of preference: the first that says anything decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from attestors.contract import AttestationRequest
from attestors.tpm.attestation_key import EndorsementKey
from attestors.tpm.endorsement_key_sources.answer import (
    LOOK_AGAIN,
    CertificateState,
    KeySourceAnswer,
    NotSaid,
    Owned,
    OwnedByOthers,
    Source,
    SourceName,
    Unclear,
)
from attestors.tpm.endorsement_key_sources.machine_annotation import MachineAnnotation
from attestors.tpm.endorsement_key_sources.recorded_calls import OWNERSHIP

_ASK_OTHERS: Final = frozenset({SourceName.INVENTORY, SourceName.GCP_SHIELDED_VM})
"""The InfraMachine's annotations are noted by the core."""


@dataclass(frozen=True, slots=True)
class NobodySays:
    """No source says whose key it is; ``lacking`` has a sentence of each that was asked."""

    lacking: tuple[str, ...]
    retry_after: timedelta = LOOK_AGAIN

    def within(self, characters: int) -> str:
        """All sentences in at most so many characters: a long one does not take another one's room."""
        return "; ".join(_cut(self.lacking, characters - 2 * (len(self.lacking) - 1)))


@dataclass(frozen=True, slots=True)
class SourcesInOrder:
    """At least one source."""

    sources: tuple[Source, ...]

    async def ask(
        self, request: AttestationRequest, endorsement_key: EndorsementKey, certificate: CertificateState
    ) -> Owned | OwnedByOthers | NobodySays:
        """Ask one after the other. What a source raises is not caught: the next one is not asked.

        Raises:
            CannotBeAskedNow: a source cannot be asked now; any other exception means the same.
        """
        lacking: list[str] = []
        for source in self.sources:
            said = await _ask(source, request, endorsement_key, certificate)
            if isinstance(said, Owned | OwnedByOthers):
                return said
            lacking.append(said.message)
            if isinstance(said, Unclear):
                return NobodySays(tuple(lacking), said.retry_after)
        return NobodySays(tuple(lacking))

    def look(self, request: AttestationRequest, endorsement_key: EndorsementKey) -> Owned | OwnedByOthers | NobodySays:
        """As much of the same as can be told without asking anybody: nothing unless the Machine itself is the first."""
        first = self.sources[0]
        if not isinstance(first, MachineAnnotation):
            return NobodySays(())
        said = first.look(request, endorsement_key)
        return NobodySays((said.message,)) if isinstance(said, NotSaid | Unclear) else said


async def _ask(
    source: Source, request: AttestationRequest, endorsement_key: EndorsementKey, certificate: CertificateState
) -> KeySourceAnswer:
    """For the audit log what the source makes of others' words is noted, not a whole inventory."""
    if source.name not in _ASK_OTHERS:
        return await source.ask(request, endorsement_key, certificate)
    question = f"endorsement key source {source.name.value}"
    return await request.recorded_calls.ask(
        question, lambda: source.ask(request, endorsement_key, certificate), OWNERSHIP
    )


def _cut(texts: Sequence[str], room: int) -> list[str]:
    """The texts in so many characters: the longer ones share what the shorter ones leave."""
    share, left = 0, room
    for already, length in enumerate(sorted(map(len, texts))):
        share = left // (len(texts) - already)
        if length > share:
            break
        left -= length
    return [text if len(text) <= share else f"{text[: max(share - 3, 0)]}..." for text in texts]
