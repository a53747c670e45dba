"""An event loop in a daemon thread, and calls into it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

Answer = TypeVar("Answer")
_TIMEOUT_SECONDS = 30.0
_TURNS_TO_CLOSE: Final = 8
"""Iterations of the event loop from the accept of a late connection to the close of its socket."""


async def end_connections() -> None:
    """Abort all connections of this event loop; to be called before the loop is closed.

    A closed TLS connection waits for its peer's close_notify, and one that arrives while a server closes is still in
    its handshake; no other code has a reference to these.
    """
    for _ in range(_TURNS_TO_CLOSE):
        for transport in list(getattr(asyncio.get_running_loop(), "_transports", {}).values()):
            transport.abort()
        await asyncio.sleep(0)


async def stop_accepting(listening: int) -> None:
    """Stop accepting on the socket with this file descriptor; to be called before its server is closed.

    asyncio makes the transport of an accepted connection in the next iteration. If the server is closed in between, an
    assertion fails and the socket is leaked (CPython gh-109564, fixed in 3.12).
    """
    asyncio.get_running_loop().remove_reader(listening)
    for _ in range(_TURNS_TO_CLOSE):
        await asyncio.sleep(0)


class LoopThread:
    """Runs an event loop from ``start`` to ``stop``. Calls made while it does not run are carried out at once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        return self._loop is not None

    def start(self) -> None:
        started: concurrent.futures.Future[None] = concurrent.futures.Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name=self._name, daemon=True)
        self._thread.start()
        started.result(_TIMEOUT_SECONDS)

    def _run(self, started: concurrent.futures.Future[None]) -> None:
        loop = asyncio.new_event_loop()
        self._loop = loop
        loop.call_soon(started.set_result, None)
        try:
            loop.run_forever()
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(end_connections())
            loop.close()

    def stop(self) -> None:
        if self._loop is None or self._thread is None:
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_TIMEOUT_SECONDS)
        self._loop = self._thread = None

    def wait(self, coroutine: Coroutine[Any, Any, Answer]) -> Answer:
        """Run a coroutine in the loop and wait for it. Raises RuntimeError while the thread does not run."""
        if self._loop is None:
            coroutine.close()
            raise RuntimeError("the embedded API is not running: use it as a context manager")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_TIMEOUT_SECONDS)

    def call(self, function: Callable[[], Answer]) -> Answer:
        """Run a function in the loop's thread, where everything that it touches lives."""
        if self._loop is None or threading.current_thread() is self._thread:
            return function()

        async def run() -> Answer:
            return function()

        return self.wait(run())
