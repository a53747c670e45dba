"""A running controller for tests and demos."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, replace
from datetime import datetime
from types import TracebackType
from typing import Any, Final, Self

from signer.configuration import Configuration, every_attestor
from signer.controller.cluster_api_change import ClusterAPIChanged
from signer.controller.replica import run_replica
from signer.controller.replicas.leadership import Leadership, LeadershipLost
from signer.controller.run import ControllerOptions, by_its_answers
from signer.kube.connection import ClusterConnection
from signer.kube.server_clock import ServerTime, ServerTimeAnswer
from signer.testing.clients import DEFAULT_WAIT_SECONDS, LoopThread

_LOG = logging.getLogger(__name__)
CONTROLLER_NAMESPACE: Final = "node-attestation-system"


class RunningController:
    """A controller in a thread, as a context manager; with leader election it may start on standby."""

    def __init__(
        self,
        connection: ClusterConnection,
        configuration: Configuration | None = None,
        options: ControllerOptions | None = None,
    ) -> None:
        """If ``options.now`` is another clock than the system's, the API servers' clocks go with it, unless
        ``options.server_clock`` says otherwise.
        """
        self._connection = connection
        """Without ``configuration``, the controller names every attestor that is installed, without settings."""
        self.options = _with_api_servers_in_time(options or ControllerOptions())
        self._configuration = configuration or Configuration(
            namespace=CONTROLLER_NAMESPACE, attestors=every_attestor(self.options.registry.providers)
        )
        self._thread = LoopThread("controller")
        self._stop: asyncio.Event | None = None
        self._leadership: Leadership | None = None

    def __enter__(self) -> Self:
        self._thread.__enter__()
        self._stop, started = asyncio.Event(), asyncio.Event()
        self._running = self._thread.start(
            run_replica(
                self._connection,
                self._configuration,
                stop=self._stop,
                options=self.options,
                started=lambda caches: started.set(),
                standing_by=lambda leadership: self._elected_by(leadership, started),
                beside_a_leader=started.set,
            )
        )
        self._running.add_done_callback(_warn_of_its_end)
        self._thread.run(_first(started, asyncio.wrap_future, self._running))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        try:
            # It was killed, or ended as intended.
            with contextlib.suppress(CancelledError, LeadershipLost, ClusterAPIChanged):
                self._running.result(timeout=DEFAULT_WAIT_SECONDS)
        finally:
            self._thread.__exit__(kind, error, trace)

    def _elected_by(self, leadership: Leadership, started: asyncio.Event) -> None:
        self._leadership = leadership
        started.set()

    @property
    def leadership(self) -> Leadership:
        """The state of its leader election; may be read from any thread.

        Raises:
            RuntimeError: the controller runs without leader election.
        """
        if self._leadership is None:
            raise RuntimeError("this controller runs without leader election")
        return self._leadership

    def stop(self) -> None:
        """Tell the controller to stop, as SIGTERM does; leaving the context waits for it."""
        if self._stop is not None:
            self._thread.call(self._stop.set)

    def call(self, function: Callable[..., object], *arguments: Any) -> None:
        """Call a plain function in the controller's thread, soon; from any thread."""
        self._thread.call(function, *arguments)

    def wait_ended(self) -> None:
        """Wait until the controller has ended; raises its error."""
        self._running.result(timeout=DEFAULT_WAIT_SECONDS)

    def kill(self) -> None:
        """End the controller like a crash, without draining or finishing its work. May be called in any thread."""
        self._running.cancel()


@dataclass(frozen=True, slots=True)
class _InTime:
    """Implements ServerTimes: an API server whose clock is the controller's."""

    moment: Callable[[], datetime]

    def now(self) -> ServerTimeAnswer:
        """See ServerTimes."""
        return ServerTime(self.moment(), 0.0)


def _with_api_servers_in_time(options: ControllerOptions) -> ControllerOptions:
    if options.now is ControllerOptions().now or options.server_clock is not by_its_answers:
        return options
    return replace(options, server_clock=lambda client: _InTime(options.now))


def _warn_of_its_end(running: Future[None]) -> None:
    """Log why the controller has ended: unlike a process in a Pod, it is not restarted, and a test may wait for it."""
    if running.cancelled():
        return
    match running.exception():
        case LeadershipLost() as lost:
            _LOG.warning("a controller has ended: leadership lost: %s", lost)
        case ClusterAPIChanged() as changed:
            _LOG.warning("a controller has ended: %s", changed)


async def _first(started: asyncio.Event, wrap: Any, running: Any) -> None:
    """Return once the controller has started; raise its error if it ended before."""
    end = wrap(running)
    end.add_done_callback(lambda future: future.cancelled() or future.exception())  # later errors are read elsewhere
    ended = asyncio.ensure_future(asyncio.shield(end))
    waiting = asyncio.ensure_future(started.wait())
    async with asyncio.timeout(DEFAULT_WAIT_SECONDS):
        await asyncio.wait({ended, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if ended.done():
        ended.result()
    else:
        ended.cancel()
