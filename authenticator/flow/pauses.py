"""The pauses after refusals, ended by a person who has mended what was refused."""

from __future__ import annotations

from dataclasses import replace

from attestors.wire.names import Purpose
from authenticator.store.store import Store


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
