"""One replica of the controller: how it shares the work with others, if there are any."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias, assert_never

from signer.configuration import Configuration, LeaderElection, NoLeaderElection, Sharding
from signer.controller.cluster.fleet import Fleet
from signer.controller.replicas.leadership import Leadership
from signer.controller.replicas.shards import SharedShards
from signer.controller.run import ControllerOptions, run_controller
from signer.kube.client import Client, TokenSource
from signer.kube.connection import ClusterConnection
from signer.model.lease import ElectionTimes
from signer.store.caches import Caches

_LOG = logging.getLogger(__name__)

_Started: TypeAlias = Callable[[Caches, Fleet], None]
_Work: TypeAlias = Callable[[_Started], Coroutine[Any, Any, None]]


async def run_replica(
    connection: ClusterConnection,
    configuration: Configuration,
    *,
    stop: asyncio.Event,
    token_source: TokenSource | None = None,
    options: ControllerOptions | None = None,
    started: Callable[[Caches], None] = lambda caches: None,
    standing_by: Callable[[Leadership], None] = lambda leadership: None,
) -> None:
    """Run until ``stop`` is set; see :func:`~signer.controller.run.run_controller`.

    ``standing_by`` is called once, at the start of an election.

    A standby holds nothing but one connection to the management cluster: it watches nothing, and lists when it leads.
    With shards every replica watches the management cluster, and the workload clusters of its shards. A replica that
    loses its Lease ends at once, as in a crash: what is under way stands in the journal, and whoever comes next
    carries it on. What it holds in memory is gone with the process, so that nothing of it can be stale later.

    Raises:
        ApiError, ClusterAPIChanged: as with ``run_controller``.
        LeadershipLost: it led, or owned shards, and does so no more.
    """
    options = options if options is not None else ControllerOptions()

    async def work(begun: _Started) -> None:
        await run_controller(
            connection, configuration, stop=stop, token_source=token_source, options=options, started=begun
        )

    def client(times: ElectionTimes) -> Client:
        """One of its own: renewals wait for no slot behind the controller's calls, and two fit into the deadline."""
        seconds = times.renew_deadline.total_seconds() / 2
        return Client(connection, token_source=token_source, timeout_seconds=seconds)

    namespace, now, monotonic = configuration.namespace, options.now, options.monotonic
    try:
        match configuration.leader_election:
            case NoLeaderElection():
                options.metrics.leader.set(1)
                await work(lambda caches, fleet: started(caches))
            case LeaderElection() as election:
                async with client(election.times) as calls:
                    leadership = Leadership(calls, namespace, election, now=now, monotonic=monotonic)
                    options.health.standing_by(leadership)
                    standing_by(leadership)
                    await _lead(leadership, work, started, options, stop)
            case Sharding() as sharding:
                async with client(sharding.times) as calls:
                    shared = SharedShards(
                        calls, namespace, sharding, stop=stop, metrics=options.metrics, now=now, monotonic=monotonic
                    )
                    options.health.sharing(shared)
                    await _share(shared, work, started)
            case never:
                assert_never(never)
    finally:
        options.metrics.leader.set(0)
        options.metrics.shards_owned.set(0)


async def _lead(
    leadership: Leadership,
    work: _Work,
    started: Callable[[Caches], None],
    options: ControllerOptions,
    stop: asyncio.Event,
) -> None:
    """Stand by, then work for as long as the Lease is held."""
    await _first(leadership.lead(), stop.wait())
    try:
        if not stop.is_set():
            _LOG.info("leading", extra={"identity": leadership.identity})
            options.metrics.leader.set(1)
            # The Lease is renewed until all work has ended, and released then.
            await _first(work(lambda caches, fleet: started(caches)), leadership.hold())
    except Exception:
        await leadership.release()
        raise
    await leadership.release()


async def _share(shared: SharedShards, work: _Work, started: Callable[[Caches], None]) -> None:
    """Work on what this replica has of the shards; it takes none before it can serve them."""
    serving: asyncio.Future[tuple[Caches, Fleet]] = asyncio.get_running_loop().create_future()

    def begun(caches: Caches, fleet: Fleet) -> None:
        serving.set_result((caches, fleet))
        started(caches)

    async def share() -> None:
        await shared.share(*await serving)

    try:
        await _first(work(begun), share())
    except Exception:
        await shared.leave()
        raise
    await shared.leave()


async def _first(*coroutines: Coroutine[Any, Any, object]) -> None:
    """Run them until one ends, and end as that one did; the others are cancelled."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        next(task for task in tasks if task.done()).result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
