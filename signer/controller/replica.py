"""One replica of the controller: with leader election it works while it leads, and stands by before."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from signer.controller.configuration import Configuration, LeaderElection
from signer.controller.leadership import Leadership
from signer.controller.run import ControllerOptions, run_controller
from signer.kube.client import Client, TokenSource
from signer.kube.connection import ClusterConnection
from signer.store.inventory import Inventory


async def run_replica(
    connection: ClusterConnection,
    configuration: Configuration,
    *,
    stop: asyncio.Event,
    token_source: TokenSource | None = None,
    options: ControllerOptions | None = None,
    started: Callable[[Inventory], None] = lambda inventory: None,
    standing_by: Callable[[Leadership], None] = lambda leadership: None,
) -> None:
    """Run until ``stop`` is set; see :func:`~signer.controller.run.run_controller`.

    ``standing_by`` is called once, at the start of an election.

    A standby holds nothing but one connection to the management cluster: it watches nothing, and lists when it leads.
    A leader that loses the Lease ends at once, as in a crash: what is under way stands in the journal, and the next
    leader carries it on. What it holds in memory is gone with the process, so that nothing of it can be stale later.

    Raises:
        ApiError: as with ``run_controller``.
        LeadershipLost: it led, and does so no more.
    """
    options = options if options is not None else ControllerOptions()

    async def work() -> None:
        options.metrics.leader.set(1)
        await run_controller(
            connection, configuration, stop=stop, token_source=token_source, options=options, started=started
        )

    election = configuration.leader_election
    try:
        if not isinstance(election, LeaderElection):
            await work()
            return
        # A client of its own: renewals wait for no slot behind the controller's calls, and two fit into the deadline.
        seconds = election.times.renew_deadline.total_seconds() / 2
        async with Client(connection, token_source=token_source, timeout_seconds=seconds) as client:
            leadership = Leadership(
                client, configuration.namespace, election, now=options.now, monotonic=options.monotonic
            )
            options.health.standing_by(leadership)
            standing_by(leadership)
            await _first(leadership.lead(), stop.wait())
            try:
                if not stop.is_set():
                    # The Lease is renewed until all work has ended, and released then.
                    await _first(work(), leadership.hold())
            except Exception:
                await leadership.release()
                raise
            await leadership.release()
    finally:
        options.metrics.leader.set(0)


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
