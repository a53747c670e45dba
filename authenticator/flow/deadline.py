"""Calls to the API server that may fail for a while: until when they are tried again, and what comes of others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from authenticator.api.errors import (
    Busy,
    CallFailed,
    Forbidden,
    NotFound,
    PerhapsDone,
    Unauthorized,
    Unreachable,
    Untrusted,
)
from authenticator.flow.clock import Clock
from authenticator.model.failures import ApiUnavailable, CredentialRefused, Denied, Failure, UntrustedServer

_FIRST_BACKOFF_SECONDS: Final = 0.25
_LONGEST_BACKOFF_SECONDS: Final = 15.0

_T = TypeVar("_T")


@dataclass
class Deadline:
    """Until when to be patient, and how long to wait before the next try."""

    clock: Clock
    seconds: float
    """From now on."""

    def __post_init__(self) -> None:
        self._end = self.clock.monotonic() + self.seconds
        self._backoff = _FIRST_BACKOFF_SECONDS

    def left(self) -> float:
        """Seconds; negative behind the end."""
        return self._end - self.clock.monotonic()

    def back_off(self, *, at_least: float = 0.0) -> bool:
        """Sleep before the next try, ``at_least`` so many seconds; False, at once, where no time is left for it."""
        pause = max(self._backoff * (0.75 + self.clock.jitter() / 2), at_least)
        if pause >= self.left():
            return False
        self.clock.sleep(pause)
        self._backoff = min(self._backoff * 2, _LONGEST_BACKOFF_SECONDS)
        return True


@dataclass(frozen=True, slots=True)
class RetryUntilDeadline:
    """Tries again what fails for a while, until the deadline."""

    deadline: Deadline
    report: Callable[[str], None]
    """Says to a person what is going on."""

    def call(self, call: Callable[[], _T]) -> _T:
        """What ``call`` returns, in the end.

        Raises:
            NotFound: at once.
            Failure: trying again would not help, or there is no time left.
        """
        while True:
            try:
                return call()
            except NotFound:
                raise
            except CallFailed as error:
                self.wait_after(error)

    def wait_after(self, error: CallFailed) -> None:
        """Return when it is time to try again.

        Raises:
            Failure: it would not help, or there is no time left.
        """
        if not isinstance(error, (Unreachable, Busy, PerhapsDone)):
            raise lasting(error) from error
        retry_after = error.retry_after if isinstance(error, Busy) else 0.0
        if not self.deadline.back_off(at_least=retry_after):
            raise ApiUnavailable(str(error)) from error
        self.report(f"{error}; trying again")


def lasting(error: CallFailed) -> Failure:
    """What a call that need not be tried again means for a person."""
    if isinstance(error, Untrusted):
        return UntrustedServer(str(error))
    if isinstance(error, Unauthorized):
        return CredentialRefused(
            f"{error}. The bootstrap token has run out or was removed, or the certificate is none of this cluster: "
            "supply a new bootstrap kubeconfig"
        )
    if isinstance(error, Forbidden):
        return CredentialRefused(
            f"{error}. The credential may not create, get and watch CertificateSigningRequests: is it a bootstrap "
            "token of group system:bootstrappers, and are kubeadm's grants for it there?"
        )
    return Denied(f"the API server refused the request: {error}")
