"""Calls to clouds, counted: what an attestor says of each, to whoever runs it.

An attestor knows no metrics library, and several controllers may run in one process. So the observer goes with the
context (:mod:`contextvars`) in which an attestor is asked; tasks inherit it, and threads of an executor do not.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final, TypeAlias


class CloudCallOutcome(enum.Enum):
    """How a call to a cloud ended."""

    OK = "ok"
    """Answered; also that there is no such object."""
    REFUSED = "refused"
    """The cloud does not accept our credentials, or they lack a permission."""
    THROTTLED = "throttled"
    """It asks for fewer calls; or too many of ours were under way, and it was not asked."""
    TIMEOUT = "timeout"
    ERROR = "error"
    """Not reached, or an answer that cannot be used."""


@dataclass(frozen=True, slots=True)
class CloudCall:
    """One call that has ended."""

    service: str
    """Who was called, such as ``AWS EC2``: a name from code or from the operator, and nothing that a node chooses."""
    operation: str
    """What was asked, such as ``DescribeInstances``; from code."""
    outcome: CloudCallOutcome
    seconds: float


CloudCallObserver: TypeAlias = Callable[[CloudCall], None]
"""Told of each call in the event loop's thread; must neither wait nor raise."""


def _nobody(call: CloudCall) -> None:
    """Nobody counts."""


_OBSERVER: Final[ContextVar[CloudCallObserver]] = ContextVar("cloud_call_observer", default=_nobody)


def cloud_called(call: CloudCall) -> None:
    """Tell whoever observes in this context of a call that has ended."""
    _OBSERVER.get()(call)


@contextlib.contextmanager
def observing_cloud_calls(observer: CloudCallObserver) -> Iterator[None]:
    """Within the block, and in the tasks that are made in it, ``observer`` is told of calls."""
    token = _OBSERVER.set(observer)
    try:
        yield
    finally:
        _OBSERVER.reset(token)
