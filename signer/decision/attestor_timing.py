"""Measures how long attestors block the event loop: while an attestor runs without awaiting, every cluster waits."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

from signer.model.cluster import ClusterKey

_LOG = logging.getLogger(__name__)

LONG_SECONDS: Final = 0.1
"""A longer step is reported, as in asyncio's debug mode; built-in attestors take a few milliseconds."""
SAY_AGAIN_SECONDS: Final = 60.0
"""Minimum time between two log lines about one attestor."""

Result = TypeVar("Result")
Held = Callable[[str, float], None]
"""Callback for each long step: the attestor, and the seconds."""


class AttestorTimings:
    """Times the steps of attestors between two awaits; one object for the whole controller."""

    def __init__(self, held: Held, monotonic: Callable[[], float]) -> None:
        self._held = held
        self._monotonic = monotonic
        self._said: dict[str, float] = {}

    def of(self, provider: str, cluster: ClusterKey) -> AttestorTiming:
        """The timing of that attestor for one request of that cluster."""
        return AttestorTiming(self, provider, cluster, self._monotonic)

    def was_long(self, timing: AttestorTiming, seconds: float) -> None:
        """Count a long step, and log it at most once in ``SAY_AGAIN_SECONDS``."""
        self._held(timing.provider, seconds)
        now = self._monotonic()
        if now - self._said.get(timing.provider, float("-inf")) < SAY_AGAIN_SECONDS:
            return
        self._said[timing.provider] = now
        _LOG.warning(
            "an attestor held up the event loop, and with it every cluster",
            extra={"provider": timing.provider, "cluster": str(timing.cluster), "seconds": round(seconds, 3)},
        )


@dataclass(slots=True)
class AttestorTiming:
    """A context manager for each step, one after the other."""

    timings: AttestorTimings
    provider: str
    cluster: ClusterKey
    _monotonic: Callable[[], float]
    _began: float = field(default=0.0, init=False)

    def __enter__(self) -> None:
        self._began = self._monotonic()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        seconds = self._monotonic() - self._began
        if seconds >= LONG_SECONDS:
            self.timings.was_long(self, seconds)


@dataclass(frozen=True, slots=True)
class TimedAwaitable(Generic[Result]):
    """Awaits ``judging``; each of its steps is timed by ``timing``."""

    judging: Awaitable[Result]
    timing: AttestorTiming

    def __await__(self) -> Generator[Any, Any, Result]:
        """What a plain ``await`` does (PEP 380), with each step timed."""
        steps = self.judging.__await__()
        thrown: BaseException | None = None
        while True:
            try:
                with self.timing:
                    awaited = next(steps) if thrown is None else _throw(steps, thrown)
            except StopIteration as end:
                result: Result = end.value
                return result
            finally:
                thrown = None  # otherwise it would keep itself alive through this frame
            try:
                yield awaited
            except BaseException as error:  # noqa: BLE001 - the task's cancellation, passed on to the attestor
                thrown = error


def _throw(steps: Generator[Any, Any, Any], error: BaseException) -> object:
    """Raise ``error`` in the awaited object. An iterator that is no generator is awaitable too, but has no ``throw``:
    then raise it here.
    """
    throw = getattr(steps, "throw", None)
    if throw is None:
        raise error
    return throw(error)
