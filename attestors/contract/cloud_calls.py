"""Counts calls to clouds: an attestor reports each call, and an observer such as the metrics collector counts it.

An attestor knows no metrics library, and one process may run several controllers. The observer is therefore a context
variable (:mod:`contextvars`): tasks inherit it, threads of an executor do not.
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
    """The cloud answered, which includes "no such object"."""
    REFUSED = "refused"
    """The cloud rejected the controller's credentials, or they lack a permission."""
    THROTTLED = "throttled"
    """The cloud asked for fewer calls, or the controller's own limit of concurrent calls stopped the call."""
    TIMEOUT = "timeout"
    ERROR = "error"
    """The cloud was not reached, or its answer is unusable."""


@dataclass(frozen=True, slots=True)
class CloudCall:
    """One completed call."""

    service: str
    """The called service, such as ``AWS EC2``: a name from code or from the operator, never from a node."""
    operation: str
    """The operation, such as ``DescribeInstances``; from code."""
    outcome: CloudCallOutcome
    seconds: float


CloudCallObserver: TypeAlias = Callable[[CloudCall], None]
"""Receives each call in the event loop's thread; must neither block nor raise."""


def _ignore(call: CloudCall) -> None:
    """The default observer: counts nothing."""


_OBSERVER: Final[ContextVar[CloudCallObserver]] = ContextVar("cloud_call_observer", default=_ignore)


def cloud_called(call: CloudCall) -> None:
    """Report a completed call to the observer of this context."""
    _OBSERVER.get()(call)


@contextlib.contextmanager
def observing_cloud_calls(observer: CloudCallObserver) -> Iterator[None]:
    """``observer`` receives the calls of the block and of tasks created in it."""
    token = _OBSERVER.set(observer)
    try:
        yield
    finally:
        _OBSERVER.reset(token)
