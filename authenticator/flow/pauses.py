"""The pauses after refusals: the failure while one is in force, and ending them once the cause is fixed."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from attestors.wire.names import Purpose
from authenticator.model.attempt import Pause, times
from authenticator.model.failures import ApiUnavailable, CredentialRefused, Denied, Failure, NoEvidence, StillPending
from authenticator.model.unix_time import time_text
from authenticator.store.store import Store

_FAILURES: Final[dict[int, type[Failure]]] = {
    kind.exit_code: kind for kind in (Denied, CredentialRefused, NoEvidence, ApiUnavailable, StillPending)
}


def paused(pause: Pause) -> Failure:
    """The failure to raise while ``pause`` is in force: the recorded failure, once more."""
    kind = _FAILURES.get(pause.exit_code, Denied)
    return kind(f"{pause.message} (failed {times(pause.failures)}; no retry before {time_text(pause.until)})")


def end_pauses(store: Store, *, timeout: float) -> None:
    """Let the next request of each purpose start at once; a pending request stays.

    ``timeout`` is how many seconds to wait for another process that is requesting.

    Raises:
        LockHeld: another process is still requesting.
        StoreUnusable: the store cannot be read or written.
    """
    store.open()
    for purpose in Purpose:
        with store.lock(purpose, timeout=timeout):
            store.save_attempt(purpose, replace(store.attempt(purpose), pause=None))
