"""Values that the tests of the Google calls share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from attestors.clouds.calls import CloudCalls
from attestors.clouds.google import ComputeEngine, GoogleAccess
from attestors.clouds.google.credentials import GoogleCredentials
from tests.support.fake_google import FakeInstance

INSTANCE: Final = FakeInstance(addresses=("10.132.0.7", "fd20::7"), external_addresses=("203.0.113.9",))
WHERE: Final = (INSTANCE.project, INSTANCE.zone)


class Clock:
    """A monotonic clock that is moved by hand."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@contextmanager
def asking(
    access: GoogleAccess,
    *,
    calls: CloudCalls | None = None,
    credentials: GoogleCredentials | None = None,
    clock: Clock | None = None,
) -> Iterator[ComputeEngine]:
    """A ComputeEngine with threads of its own."""
    threads = calls or CloudCalls()
    engine = ComputeEngine(access, calls=threads, credentials=credentials, clock=clock or Clock())
    try:
        yield engine
    finally:
        threads.close()
        engine.close()
