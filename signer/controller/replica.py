"""Runs one replica of the controller: alone, as a candidate for leader, or with shards."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeAlias, assert_never

from signer.configuration import Configuration, LeaderElection, NoLeaderElection, Sharding
from signer.controller.attestor_settings import AttestorSettingsCheck
from signer.controller.cluster.fleet import Fleet
from signer.controller.replicas.leadership import Leadership
from signer.controller.replicas.other_leader import OtherLeader
from signer.controller.replicas.shards import SharedShards
from signer.controller.run import ControllerOptions, run_controller
from signer.decision.operator_attestors import BrokenSettings
from signer.kube.client import Client, TokenSource
from signer.kube.connection import ClusterConnection
from signer.kube.supervision import is_cancelled, supervised
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
    beside_a_leader: Callable[[], None] = lambda: None,
) -> None:
    """Run until ``stop`` is set; see :func:`~signer.controller.run.run_controller`.

    ``standing_by`` is called once, when an election starts, and ``beside_a_leader`` when this replica, which takes part
    in none, waits for another controller that leads.

    At the start, the operator's settings of all attestors are checked: a replica with a broken one is not ready.

    A standby keeps only one connection to the management cluster: it watches nothing until it leads. With shards, every
    replica watches the management cluster and the workload clusters of its own shards. A replica that loses its Lease
    ends at once, as in a crash: the journal has its unfinished work, which the next replica continues. Its memory goes
    with the process, so nothing can be stale later.

    Raises:
        ApiError, ClusterAPIChanged: from ``run_controller``.
        LeadershipLost: the replica led or owned shards and lost its Lease.
    """
    options = options if options is not None else ControllerOptions()

    async def work(on_started: _Started) -> None:
        await run_controller(
            connection, configuration, stop=stop, token_source=token_source, options=options, started=on_started
        )

    def client(times: ElectionTimes) -> Client:
        """A separate client, so that renewals do not queue behind other calls. Two calls fit into the deadline."""
        seconds = times.renew_deadline.total_seconds() / 2
        return Client(connection, token_source=token_source, timeout_seconds=seconds)

    namespace, now, monotonic = configuration.namespace, options.now, options.monotonic
    settings = AttestorSettingsCheck(
        configuration.attestors, options.registry, now=now, found=partial(_note_broken, options)
    )
    settings.check()
    checking = asyncio.create_task(
        supervised("attestor settings", settings.run, options.metrics.task_failed), name="attestor settings"
    )
    try:
        match configuration.leader_election:
            case NoLeaderElection() as alone:
                async with client(ElectionTimes()) as calls:
                    other = OtherLeader(calls, namespace, alone, monotonic=monotonic, noticed=beside_a_leader)
                    options.health.waiting_for(other)
                    await _until_first_ends(other.until_gone(), stop.wait())
                if not stop.is_set():
                    options.metrics.leader.set(1)
                    await work(lambda caches, fleet: started(caches))
            case LeaderElection() as election:
                async with client(election.times) as calls:
                    leadership = Leadership(calls, namespace, election, now=now, monotonic=monotonic)
                    options.health.standing_by(leadership)
                    standing_by(leadership)
                    await _run_as_leader(leadership, work, started, options, stop)
            case Sharding() as sharding:
                async with client(sharding.times) as calls:
                    shared = SharedShards(
                        calls, namespace, sharding, stop=stop, metrics=options.metrics, now=now, monotonic=monotonic
                    )
                    options.health.sharing(shared)
                    await _run_sharded(shared, work, started)
            case never:
                assert_never(never)
    finally:
        checking.cancel()
        options.metrics.leader.set(0)
        options.metrics.shards_owned.set(0)


def _note_broken(options: ControllerOptions, broken: tuple[BrokenSettings, ...]) -> None:
    options.metrics.broken_attestor_settings.set(len(broken))
    options.health.attestors_broken(one.provider for one in broken)


async def _run_as_leader(
    leadership: Leadership,
    work: _Work,
    started: Callable[[Caches], None],
    options: ControllerOptions,
    stop: asyncio.Event,
) -> None:
    """Stand by until elected, then work while the Lease is held. It is released unless this task is cancelled, which is
    like a crash.
    """
    await _until_first_ends(leadership.lead(), stop.wait())
    try:
        if not stop.is_set():
            _LOG.info("leading", extra={"identity": leadership.identity})
            options.metrics.leader.set(1)
            # The Lease is renewed until all work has ended, and then released.
            await _until_first_ends(work(lambda caches, fleet: started(caches)), leadership.renew_until_lost())
    finally:
        if not is_cancelled():
            await leadership.release()


async def _run_sharded(shared: SharedShards, work: _Work, started: Callable[[Caches], None]) -> None:
    """Serve this replica's shards; it takes none before its caches are filled. They are released unless this task is
    cancelled, which is like a crash.
    """
    serving: asyncio.Future[tuple[Caches, Fleet]] = asyncio.get_running_loop().create_future()

    def on_started(caches: Caches, fleet: Fleet) -> None:
        serving.set_result((caches, fleet))
        started(caches)

    async def share() -> None:
        await shared.share(*await serving)

    try:
        await _until_first_ends(work(on_started), share())
    finally:
        if not is_cancelled():
            await shared.release()


async def _until_first_ends(*coroutines: Coroutine[Any, Any, object]) -> None:
    """Run coroutines until one ends, cancel the others, and raise the exception of the one that ended."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        next(task for task in tasks if task.done()).result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
