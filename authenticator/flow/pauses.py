"""The pauses after refusals: what is said while one holds, and how a person ends them who has mended the cause."""

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
    """What is to be raised while ``pause`` holds: what was refused, once more."""
    kind = _FAILURES.get(pause.exit_code, Denied)
    return kind(f"{pause.message} (asked {times(pause.failures)}; not again before {time_text(pause.until)})")


def end_pauses(store: Store, *, timeout: float) -> None:
    """Let the next request of each purpose be asked at once; a request that is under way stays.

    ``timeout`` is how many seconds to wait for whoever is asking.

    Raises:
        LockHeld: somebody is still asking.
        StoreUnusable: the store cannot be read or written.
    """
    store.open()
    for purpose in Purpose:
        with store.lock(purpose, timeout=timeout):
            store.save_attempt(purpose, replace(store.attempt(purpose), pause=None))
