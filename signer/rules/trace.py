"""What a check is, what stands between the checks, and who may be told of each as it runs."""

from __future__ import annotations

import enum
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from signer.model.decision import Deferred, Refused
from signer.rules.comparison import NOTHING_COMPARED, Comparison

Facts = TypeVar("Facts")
FactsOf = TypeVar("FactsOf", contravariant=True)


@dataclass(frozen=True, slots=True)
class Check(Generic[FactsOf]):
    """One check: it raises ``Refused`` or ``Deferred``, or the next one follows. The rest is for ``explain``."""

    run: Callable[[FactsOf], None]
    says: str
    compares: Callable[[FactsOf], Comparison] = lambda facts: NOTHING_COMPARED
    """Both sides of the check, whether it passes or not."""


class Step(enum.Enum):
    """What is looked at between the checks, and may end it as they do. The value says what must hold."""

    READ = "the request is to a signer of ours, and can be read"
    POLICY = "the Cluster has a policy that can be followed, and is watched"
    ATTESTOR = "the policy names the attestor, and it is installed"
    APPROVED_BEFORE = "what has its approval already has it from this controller"
    AUTHORITY = "the cluster has a CA that can sign"
    CLAIM = "one Machine has the claimed provider ID"
    ATTEST = "the attestor believes the evidence"
    MATCH = "one Machine has the proven provider ID, and is as the attestor was told"
    TOKEN = "the bootstrap token was made for that Machine, where that can be told"  # noqa: S105 - no secret
    RESERVE = "identity and Machine are, or can be, reserved for each other"
    JOURNAL = "a certificate can be planned, and written into the journal"
    RECORD = "the node was attested, and its Machine is there"
    BUILTIN_JOURNAL = "there is room for the approval in the record"


Compares: TypeAlias = Callable[[], Comparison]


class Trace(Protocol):
    """Is told of each check and step as it is run, in the order of running. It changes nothing, and must not raise."""

    def passed(self, check: Check[Facts], facts: Facts) -> None:
        """The check has nothing against it."""
        ...

    def stopped(self, check: Check[Facts], facts: Facts, error: Refused | Deferred) -> None:
        """The check ended it."""
        ...

    def step(self, step: Step) -> AbstractContextManager[Callable[[Compares], None]]:
        """Around a step, which an exception ends; what it gives takes what was compared, made only if wanted."""
        ...


class _Silence:
    """Nobody listens: what the controller runs with."""

    def passed(self, check: Check[Facts], facts: Facts) -> None:
        """See Trace."""

    def stopped(self, check: Check[Facts], facts: Facts, error: Refused | Deferred) -> None:
        """See Trace."""

    def step(self, step: Step) -> AbstractContextManager[Callable[[Compares], None]]:
        """See Trace."""
        return _NOT_NOTED


def _not_noted(compares: Compares) -> None:
    del compares


_NOT_NOTED: Final = nullcontext(_not_noted)
SILENCE: Final[Trace] = _Silence()
