"""What the switch adds to the controller, and what a policy is told where SSH is switched off."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from random import Random
from typing import Any, cast
from unittest.mock import Mock

import pytest

from attestors.wire.ssh.krl import AnyAuthority, CertificateRevocations
from attestors.wire.statement import NodeAccessTrust
from signer.access.revocation_list import RevocationList
from signer.configuration import Configuration, SSHPermission, SSHSwitchedOff
from signer.controller.cluster.service import OptionalPartContext
from signer.controller.ssh_authorities import (
    SSHAuthoritiesService,
    SSHSwitchedOffConditions,
    WatchService,
)
from signer.controller.ssh_bundle import SSHBundleService
from signer.controller.ssh_wing import (
    NO_REVOCATION_LIST,
    SSHParts,
    _steady_clock,
    revocations_of,
    ssh_of_cluster,
    ssh_wing,
)
from signer.controller.telemetry.recorder import Recorder
from signer.kube.clocks import ClocksAgree
from signer.model.cluster import ClusterKey
from signer.ssh.available import NotAvailable
from signer.ssh.bundle.content import revocation_list
from signer.ssh.revocations import NothingOfOurs, PublishedRevocations, RevocationsUnknown
from tests.support.node_access import trust
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


def test_ended_access_grants_are_among_what_is_revoked() -> None:
    """And what was published before, also where access grants are switched off."""

    async def scenario() -> None:
        world = World(ssh={"revoked": {"keyIDs": ["ssh-sign/alice"]}})
        process = await Process.started(world)
        wing = ssh_wing(Configuration("own", ssh=SSHPermission(frozenset({KEY.namespace}))), Mock(spec=Recorder))
        assert isinstance(wing, SSHParts)
        management = cast("Any", process.client)
        ended = RevocationList(
            management=management,
            caches=process.caches,
            published=wing.published,
            now=lambda: world.now,
            clock=ClocksAgree,
        )
        without, with_list = (revocations_of(wing, process.caches, one) for one in (NO_REVOCATION_LIST, ended))
        for known in (without, with_list):
            with pytest.raises(RevocationsUnknown, match="what is published"):
                known(KEY)
        wing.published.found(KEY, NothingOfOurs())
        from_policy = CertificateRevocations(AnyAuthority(), key_ids=("ssh-sign/alice",))
        assert without(KEY) == (from_policy,)
        with pytest.raises(RevocationsUnknown, match="blue-ssh-access-revocations has not been read"):
            with_list(KEY)
        await ended.add(KEY, "grant/a/b/u/alice", world.now + timedelta(hours=1))
        of_grant = CertificateRevocations(AnyAuthority(), key_ids=("grant/a/b/u/alice",))
        assert set(with_list(KEY)) == {from_policy, of_grant}

        context = OptionalPartContext(
            KEY, management, process.caches, cast("Any", None), asyncio.Event(), lambda: world.now
        )
        parts = ssh_of_cluster(wing, context, Random(0), ended).parts
        assert "SSH access revocations" in [part.service.name for part in parts]

    run(scenario())


def test_what_was_published_is_kept_by_a_clock_that_nobody_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = 0.0
    monkeypatch.setattr("signer.controller.ssh_wing.time.monotonic", lambda: seconds)
    clock = _steady_clock()
    began = clock()
    seconds = 90.0
    assert clock() - began == timedelta(seconds=90)


def test_who_waits_for_a_publication_is_told_of_each() -> None:
    told: list[ClusterKey] = []
    published = PublishedRevocations(_steady_clock())
    published.on_publication(told.append)
    payload = NodeAccessTrust(trust(), revocation_list((), 1), 0, 10)
    for one in (payload, payload, replace(payload)):
        published.published(KEY, one)
    assert told == [KEY, KEY]
