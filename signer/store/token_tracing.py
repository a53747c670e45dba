"""Whether bootstrap tokens are traced: on, interrupted for a while, or off, and why.

An operator may deny the controller access to KubeadmConfigs, or they may not be served. The controller does not believe
the first such error, but no request waits for minutes because of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias, assert_never

from signer.model.bootstrap_token import TracingInterrupted, TracingOff
from signer.store import caches as caches_module
from signer.store.cache import InTouch, OutOfTouch

_LOG = logging.getLogger(__name__)
INTERRUPTION_SECONDS: Final = 300.0
"""Time for which a request waits for tracing to resume; then the policy decides. Tracing is optional, and tenants write
KubeadmConfigs: no tenant may stop all nodes from joining by making them unreadable."""
REFUSED_SECONDS: Final = 10.0
"""Time for which every call must be refused before tracing that worked turns off and the policy decides instead. An API
server that has just started does not know its CustomResourceDefinitions for a moment."""
FIRST_REFUSED_SECONDS: Final = 0.5
"""The same if tracing has never worked: ten times that moment, and short for joins at a start without the grant."""
_FAR_APART_SECONDS: Final = 5.0
"""Two refusals farther apart, for example because a call hung, may belong to two starts of the API server."""


@dataclass(frozen=True, slots=True)
class TracingOn:
    """Tokens are traced."""


Tracing: TypeAlias = TracingOn | TracingOff | TracingInterrupted


class TokenTracing:
    """The tracing state, from the results of lists and watches of KubeadmConfigs."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """``monotonic`` is a clock, in seconds."""
        self.answered = asyncio.Event()
        """Set once the first list has arrived, failed or timed out. Until then requests with a token wait."""
        self._monotonic = monotonic
        self._tracing: Tracing = TracingInterrupted("KubeadmConfigs have not been listed yet")
        self._began = monotonic()
        """When the interruption began, if there is one."""
        self._was_traced = False
        self._refused_since: float | None = None
        """Start of the current series of refusals; None if the last result was no refusal."""
        self._refused_at = monotonic()
        """Time of the last refusal."""

    def now(self, touch: InTouch | OutOfTouch) -> Tracing:
        """Whether tokens are traced now, and if not, why; ``touch`` is the cache's."""
        match self._tracing:
            case TracingOff():
                return self._tracing
            case TracingInterrupted(cause):
                return _interrupted(touch, cause, self._monotonic() - self._began)
            case TracingOn():
                # The bound of every cache for decisions: an older state neither refuses nor confirms a token.
                if isinstance(touch, OutOfTouch) and touch.seconds > caches_module.OUT_OF_TOUCH_SECONDS:
                    return _interrupted(touch, "", touch.seconds)
                return self._tracing
            case never:
                assert_never(never)

    def begins(self) -> None:
        """Listing begins: an interruption counts from now."""
        self._began = self._monotonic()

    def one_list_failed(self, ended: TracingOff | TracingInterrupted) -> None:
        """The only list of a one-time command failed."""
        self._tracing = ended

    def listed(self, count: int) -> None:
        """A list of ``count`` KubeadmConfigs has arrived."""
        if not isinstance(self._tracing, TracingOn):
            _LOG.info("bootstrap tokens are traced", extra={"kubeadmConfigs": count})
        self._tracing = TracingOn()
        self._was_traced, self._refused_since = True, None
        self.answered.set()

    def failed(self) -> None:
        """List or watch failed, with an error other than a refusal."""
        self._refused_since = None
        self.answered.set()

    @property
    def refused_seconds(self) -> float:
        """Time for which calls must be refused before tracing turns off."""
        return REFUSED_SECONDS if self._was_traced else FIRST_REFUSED_SECONDS

    def is_lasting(self, refused: TracingOff) -> bool:
        """Record a refusal; returns whether refusals have lasted for ``refused_seconds``."""
        now = self._monotonic()
        if isinstance(self._tracing, TracingOn):
            self._began = now
        if not isinstance(self._tracing, TracingOff):
            self._tracing = TracingInterrupted(refused.cause)
            if now - self._refused_at > _FAR_APART_SECONDS:
                self._refused_since = None
        if self._refused_since is None:
            self._refused_since = now
        self._refused_at = now
        return now - self._refused_since >= self.refused_seconds

    def turned_off(self, tracing: TracingOff) -> None:
        """Tracing turns off, because refusals have lasted."""
        if tracing != self._tracing:
            _LOG.warning("bootstrap tokens are not traced", extra={"detail": tracing.cause})
        self._tracing = tracing
        self.answered.set()

    def discovery_failed(self, tracing: TracingInterrupted) -> None:
        """API discovery failed. Tracing that is off stays off, so no request waits for it."""
        self._refused_since = None
        if isinstance(self._tracing, TracingInterrupted):
            self._tracing = tracing
        self.answered.set()


def _interrupted(touch: InTouch | OutOfTouch, cause: str, seconds: float) -> TracingOff | TracingInterrupted:
    if isinstance(touch, OutOfTouch):
        cause = f"kubeadmconfigs of the management cluster cannot be watched: {touch.error}"
    if seconds > INTERRUPTION_SECONDS:
        return TracingOff(f"for more than {INTERRUPTION_SECONDS / 60:.0f} minutes, {cause}")
    return TracingInterrupted(cause)
