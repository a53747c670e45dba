"""Optional list of identities that the operator denies: a recorded attestation then approves nothing any more."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, runtime_checkable

from attestors.contract.outcome import Denied, NotProvableYet
from attestors.contract.recorded_calls import UNRECORDED, RecordedCalls


@dataclass(frozen=True, slots=True)
class AttestedBefore:
    """The identity that a record names, as the same attestor proved it then."""

    identity: str
    """:attr:`VerifiedIdentity.identity <attestors.contract.VerifiedIdentity.identity>`."""
    hardware: str = ""
    """:attr:`VerifiedIdentity.hardware <attestors.contract.VerifiedIdentity.hardware>` that is reserved for the same
    Machine; empty if none is."""
    recorded_calls: RecordedCalls = field(default=UNRECORDED, repr=False, compare=False)
    """Wraps what depends on settings or files that may change, as for a request."""


@dataclass(frozen=True, slots=True)
class StillAllowed:
    """The operator does not deny the identity."""


Standing: TypeAlias = StillAllowed | Denied | NotProvableYet
"""``Denied``: the operator denies the identity. ``NotProvableYet``: the operator's list cannot be used now."""


@runtime_checkable
class DeniesIdentities(Protocol):
    """Optional interface of a :class:`~attestors.contract.ServerPlugin` that denies identities by the operator's
    settings.

    The core approves some requests without evidence, on the record of an attestation. Without this interface, it
    approves them whatever the operator has denied since.
    """

    def standing_of(self, attested: AttestedBefore) -> Standing:
        """Whether the operator still allows an identity that this attestor proved before.

        The core asks once every other check has passed, and again each time that the request is decided. The method
        decides by the operator's settings and files alone: it calls no other service. It is synchronous and takes about
        a millisecond. Every exception is a counted Defer.
        """
        ...
