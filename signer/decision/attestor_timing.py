"""How long attestors hold up the event loop: while one of them runs without waiting, nothing goes on, of no cluster."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

from signer.model.cluster import ClusterKey

_LOG = logging.getLogger(__name__)

LONG_SECONDS: Final = 0.1
"""A turn that takes so long is told of, as asyncio's debug mode does; built-in attestors take some milliseconds."""
SAY_AGAIN_SECONDS: Final = 60.0
"""Each attestor has a line in the log this often at most."""

Result = TypeVar("Result")
Held = Callable[[str, float], None]
"""Told of each long turn: of which attestor, and how many seconds."""


class AttestorTimings:
    """Times what attestors do between one wait and the next; one for the whole controller."""

    def __init__(self, held: Held, monotonic: Callable[[], float]) -> None:
        self._held = held
        self._monotonic = monotonic
        self._said: dict[str, float] = {}

    def of(self, provider: str, cluster: ClusterKey) -> AttestorTiming:
        """The turns of that attestor over one request of that cluster."""
        return AttestorTiming(self, provider, cluster, self._monotonic)

    def was_long(self, timing: AttestorTiming, seconds: float) -> None:
        """Count it, and say so once in a while."""
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
    """A context manager around each turn, one after the other."""

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
    """To be awaited in place of ``judging``; each of its turns is within ``timing``."""

    judging: Awaitable[Result]
    timing: AttestorTiming

    def __await__(self) -> Generator[Any, Any, Result]:
        """What a plain ``await`` does (PEP 380), with a look at the clock before and after."""
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
                thrown = None  # else it would keep itself alive, through this frame
            try:
                yield awaited
            except BaseException as error:  # noqa: BLE001 - of its task, which is cancelled: it is the attestor's
                thrown = error


def _throw(steps: Generator[Any, Any, Any], error: BaseException) -> object:
    """Into what is awaited; an iterator that is no generator, which is awaitable too, has no way to hear of it."""
    throw = getattr(steps, "throw", None)
    if throw is None:
        raise error
    return throw(error)
