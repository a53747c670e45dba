"""What the switch adds to the controller, and what a policy is told where SSH is switched off."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, cast
from unittest.mock import Mock

import pytest

from signer.configuration import Configuration, SSHPermission, SSHSwitchedOff
from signer.controller.cluster.service import OptionalPartContext
from signer.controller.ssh_authorities import (
    SSHAuthoritiesService,
    SSHSwitchedOffConditions,
    WatchService,
)
from signer.controller.ssh_bundle import SSHBundleService
from signer.controller.ssh_wing import SSHParts, ssh_of_cluster, ssh_wing
from signer.controller.telemetry.recorder import Recorder
from signer.ssh.available import NotAvailable
from tests.unit.signer.ssh.world import KEY, Process, World, run


@pytest.mark.parametrize(
    ("ssh", "shown"),
    [
        (None, []),
        ({}, [(False, "NotAllowed", "this controller runs without --ssh")]),
        ({"rotationPeriod": "1s"}, []),
    ],
)
def test_where_it_is_switched_off(ssh: Any, shown: list[Any]) -> None:
    async def scenario() -> None:
        process = await Process.started(World(ssh=ssh))
        found = SSHSwitchedOffConditions(KEY, process.caches).conditions
        assert [(one.met, one.reason, one.message) for one in found] == shown
        assert not any(one.type.counts_toward_ready(None) for one in found)

    run(scenario())


def test_the_switch() -> None:
    async def scenario() -> None:
        world = World(ssh={})
        process = await Process.started(world)
        context = OptionalPartContext(
            KEY,
            management=cast("Any", process.client),
            caches=process.caches,
            authority_source=cast("Any", None),
            status_changed=asyncio.Event(),
            now=lambda: world.now,
        )
        recorder = Mock(spec=Recorder)
        off = ssh_of_cluster(ssh_wing(Configuration("own"), recorder), context, Random(0))
        assert (off.parts, off.status(), len(off.sources)) == ((), {}, 1)
        assert ssh_wing(Configuration("own"), recorder) == SSHSwitchedOff()

        wing = ssh_wing(Configuration("own", ssh=SSHPermission(frozenset({KEY.namespace}))), recorder)
        assert isinstance(wing, SSHParts)
        on = ssh_of_cluster(wing, context, Random(0))
        service, coverage, bundle, ways = (part.service for part in on.parts)
        assert isinstance(coverage, WatchService)
        assert (coverage.name, coverage.gauges(), coverage.conditions) == ("SSH host certificates", (), ())
        assert isinstance(ways, WatchService)
        assert (ways.name, ways.gauges(), ways.conditions) == ("other ways in", (), ())
        assert isinstance(bundle, SSHBundleService)
        assert (bundle.name, bundle.gauges(), bundle.conditions) == ("SSH trust bundle", (), ())
        assert isinstance(service, SSHAuthoritiesService)
        assert (service.name, on.sources, service.gauges(), on.status()) == ("SSH authorities", (), (), {})
        running = asyncio.create_task(service.run(cast("Any", None)))
        await context.status_changed.wait()
        assert not isinstance(wing.authorities_of(KEY), NotAvailable)
        assert [one.value for one in service.gauges()] == [1.0]
        assert set(on.status()) == {"trustVersion", "userAuthorities", "hostAuthorities"}
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert isinstance(wing.authorities_of(KEY), NotAvailable)

    run(scenario())
