"""Optional proof that a former instance is gone for good: its node name is then free before its certificates expire."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol, TypeAlias, runtime_checkable

from attestors.contract.outcome import check_message
from attestors.contract.recorded_calls import UNRECORDED, RecordedCalls


@dataclass(frozen=True, slots=True)
class FormerInstance:
    """The instance that a record names, as the same attestor proved it then."""

    identity: str
    """:attr:`VerifiedIdentity.identity <attestors.contract.VerifiedIdentity.identity>`."""
    provider_id: str
    recorded_calls: RecordedCalls = field(default=UNRECORDED, repr=False, compare=False)
    """Wraps calls to other parties, as for a request."""


@dataclass(frozen=True, slots=True)
class InstanceGone:
    """The platform says that the instance ended for good. One that it does not know may still run."""


@dataclass(frozen=True, slots=True)
class InstanceExists:
    """The platform says that the instance exists, in whichever state; ``message`` names the state."""

    message: str

    def __post_init__(self) -> None:
        check_message(self.message)


@dataclass(frozen=True, slots=True)
class TerminationNotProvable:
    """Neither is known: the platform does not answer, or no longer knows the instance; ``message`` says why."""

    message: str

    def __post_init__(self) -> None:
        check_message(self.message)


Termination: TypeAlias = InstanceGone | InstanceExists | TerminationNotProvable


@runtime_checkable
class InstanceTerminationProver(Protocol):
    """Optional interface of a :class:`~attestors.contract.ServerPlugin`, for policies with ``nodeNameReuse:
    WhenFormerInstanceIsGone``.
    """

    async def termination_of(self, former: FormerInstance) -> Termination:
        """Whether an instance that this attestor attested before is gone.

        The core asks once every other check of the new instance's request has passed, and again each time that the
        request is decided. A wrong :class:`InstanceGone` lets two machines be one node.
        """
        ...
