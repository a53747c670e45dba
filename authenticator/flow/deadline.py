"""Retries of calls to the API server until a deadline, and the failures of calls that are not retried."""

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
    """A deadline, with the backoff between attempts."""

    clock: Clock
    seconds: float
    """From now on."""

    def __post_init__(self) -> None:
        self._end = self.clock.monotonic() + self.seconds
        self._backoff = _FIRST_BACKOFF_SECONDS

    def left(self) -> float:
        """Remaining seconds; negative after the deadline."""
        return self._end - self.clock.monotonic()

    def back_off(self, *, at_least: float = 0.0) -> bool:
        """Sleep before the next attempt, at least ``at_least`` seconds; False, at once, if no time is left for it."""
        pause = max(self._backoff * (0.75 + self.clock.jitter() / 2), at_least)
        if pause >= self.left():
            return False
        self.clock.sleep(pause)
        self._backoff = min(self._backoff * 2, _LONGEST_BACKOFF_SECONDS)
        return True


@dataclass(frozen=True, slots=True)
class RetryUntilDeadline:
    """Retries temporary failures until the deadline."""

    deadline: Deadline
    report: Callable[[str], None]
    """Prints progress for a person."""

    def call(self, call: Callable[[], _T]) -> _T:
        """The result of ``call``, retried as needed.

        Raises:
            NotFound: at once.
            Failure: a retry would not help, or no time is left.
        """
        while True:
            try:
                return call()
            except NotFound:
                raise
            except CallFailed as error:
                self.wait_after(error)

    def wait_after(self, error: CallFailed) -> None:
        """Return when the next attempt is due.

        Raises:
            Failure: a retry would not help, or no time is left.
        """
        if not isinstance(error, (Unreachable, Busy, PerhapsDone)):
            raise permanent_failure(error) from error
        retry_after = error.retry_after if isinstance(error, Busy) else 0.0
        if not self.deadline.back_off(at_least=retry_after):
            raise ApiUnavailable(str(error)) from error
        self.report(f"{error}; retrying")


def permanent_failure(error: CallFailed) -> Failure:
    """The failure, for a person, of a call that is not retried."""
    if isinstance(error, Untrusted):
        return UntrustedServer(str(error))
    if isinstance(error, Unauthorized):
        return CredentialRefused(
            f"{error}. The bootstrap token has expired or was removed, or the certificate is not of this cluster: "
            "supply a new bootstrap kubeconfig"
        )
    if isinstance(error, Forbidden):
        return CredentialRefused(
            f"{error}. The credential may not create, get and watch CertificateSigningRequests: is it a bootstrap "
            "token of group system:bootstrappers, and do kubeadm's grants for it exist?"
        )
    return Denied(f"the API server refused the request: {error}")
