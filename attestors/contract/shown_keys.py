"""The keys by which an attestor recognizes a machine, for the person who registers the machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable


@dataclass(frozen=True, slots=True)
class ShownKey:
    """One key of this machine."""

    fingerprint: str
    """As in the Machine's annotation and in inventories, such as ``sha256:`` and 64 hexadecimal digits."""
    template: str
    """The kind of key, by its name in the attestor's settings."""
    has_certificate: bool
    """Whether the machine stores a certificate of this key."""
    chip: str
    """The chip that the certificate names, as in deny lists; empty if it names none."""


@runtime_checkable
class ShowsKeys(Protocol):
    """Optional interface of an :class:`~attestors.contract.AgentPlugin`."""

    def shown_keys(self, *, every: bool) -> Sequence[ShownKey]:
        """The key that evidence would show; with ``every``, all keys for which the machine stores a certificate.

        Raises:
            EvidenceUnavailable: the message tells a person the cause.
        """
        ...
