"""Whether bootstrap tokens are traced at all: on, interrupted for a while, or off, and why.

KubeadmConfigs may be kept from the controller, or not be served. Neither is believed at the first answer that says so,
nor does anybody wait for minutes because of it.
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
"""For as long as this a request waits for tracing to come back. It is optional, and KubeadmConfigs are what tenants
write: nobody may keep everybody's nodes from joining by making them unreadable. After that the policy decides."""
REFUSED_SECONDS: Final = 10.0
"""For as long as this what was traced must be refused, by every answer, before tracing is off and the policy decides
instead: an API server that has just started does not know its CustomResourceDefinitions for a moment."""
FIRST_REFUSED_SECONDS: Final = 0.5
"""The same for what was never traced: ten times that moment, and no join waits long at a start without the grant."""
_FAR_APART_SECONDS: Final = 5.0
"""Two refusals with more between them, such as a call that hung, may be of two starts."""


@dataclass(frozen=True, slots=True)
class TracingOn:
    """Tokens are traced."""


Tracing: TypeAlias = TracingOn | TracingOff | TracingInterrupted


class TokenTracing:
    """What came of the lists and watches of KubeadmConfigs, and what that means."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        """``monotonic`` is a clock, in seconds."""
        self.answered = asyncio.Event()
        """Set once the first list has arrived or failed, or takes too long: till then requests with a token wait."""
        self._monotonic = monotonic
        self._tracing: Tracing = TracingInterrupted("KubeadmConfigs have not been listed yet")
        self._began = monotonic()
        """Of the interruption, if there is one."""
        self._was_traced = False
        self._refused_since: float | None = None
        """Since when every answer has been a refusal, where the last one was."""
        self._refused_at = monotonic()
        """When the last refusal was."""

    def now(self, touch: InTouch | OutOfTouch) -> Tracing:
        """Whether tokens are traced now, and if not, why; ``touch`` is the cache's."""
        match self._tracing:
            case TracingOff():
                return self._tracing
            case TracingInterrupted(cause):
                return _interrupted(touch, cause, self._monotonic() - self._began)
            case TracingOn():
                # The bound of all that decisions rest on: what was seen longer ago may deny nobody, and clear nobody.
                if isinstance(touch, OutOfTouch) and touch.seconds > caches_module.OUT_OF_TOUCH_SECONDS:
                    return _interrupted(touch, "", touch.seconds)
                return self._tracing
            case never:
                assert_never(never)

    def begins(self) -> None:
        """From now on they are listed: an interruption counts from here."""
        self._began = self._monotonic()

    def looked_once(self, ended: TracingOff | TracingInterrupted) -> None:
        """The only list that there is to be has failed."""
        self._tracing = ended

    def listed(self, count: int) -> None:
        """A list has arrived, with so many KubeadmConfigs."""
        if not isinstance(self._tracing, TracingOn):
            _LOG.info("bootstrap tokens are traced", extra={"kubeadmConfigs": count})
        self._tracing = TracingOn()
        self._was_traced, self._refused_since = True, None
        self.answered.set()

    def failed(self) -> None:
        """List or watch failed, and was not refused."""
        self._refused_since = None
        self.answered.set()

    @property
    def refused_seconds(self) -> float:
        """For how long they must be refused before that is believed."""
        return REFUSED_SECONDS if self._was_traced else FIRST_REFUSED_SECONDS

    def is_lasting(self, refused: TracingOff) -> bool:
        """Whether it is refused for good, as far as anybody can tell."""
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
        """They are refused for good."""
        if tracing != self._tracing:
            _LOG.warning("bootstrap tokens are not traced", extra={"detail": tracing.cause})
        self._tracing = tracing
        self.answered.set()

    def not_asked(self, tracing: TracingInterrupted) -> None:
        """What was off stays off until an answer says otherwise: no request waits for that."""
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
