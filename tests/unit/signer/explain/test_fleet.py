"""What needs attention in a fleet: by the share of a certificate's lifetime, as in the metric, and not by days."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from rich.console import Console

from attestors.contract import Security
from signer.cli.status_output import open_door, show, show_cluster
from signer.explain.fleet import (
    OBSERVE_PROTECTS_NOTHING,
    Attestations,
    AuthorityLife,
    ClusterStatus,
    Lives,
    Readiness,
    RecordsUnverified,
)
from signer.explain.machines import MachineState, MachineStatus
from signer.explain.workload_requests import RequestCounts
from signer.model.cluster import ClusterKey, MachineView
from signer.model.record import MachineKey
from signer.rules.machine import NoRecord
from signer.store.node_certificates import CertificateLives
from tests.unit.signer.builders import CLUSTER, NOW, attested_identity, journal_entry, machine_view
from tests.unit.signer.builders import record as made_record

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)


def lives(*certificates: tuple[timedelta, timedelta], security: Security = Security.SECURE) -> Lives:
    """Attestations of nodes whose client certificates have this lifetime, and these parts of it left."""
    machines: dict[MachineKey, MachineView] = {}
    followed = CertificateLives(machines.__getitem__)
    for number, (lifetime, left) in enumerate(certificates):
        name = f"worker-{number}"
        machine = machine_view(name=name, provider_id=f"test:///{name}")
        machines[MachineKey.of(machine)] = machine
        entry = journal_entry(not_before=NOW + left - lifetime, not_after=NOW + left)
        identity = replace(attested_identity(name), security=security)
        record = replace(made_record(machine, journal=(entry,)), identity=identity)
        followed.record_changed((CLUSTER.namespace, name), NoRecord(), record)
    return Lives.of(followed.of(CLUSTER), NOW)


def status(found: Lives | RecordsUnverified) -> ClusterStatus:
    return ClusterStatus(
        CLUSTER,
        "Enforce",
        "tpm",
        Readiness("True", "Ready", "requests are decided"),
        found if isinstance(found, RecordsUnverified) else Attestations(1, 1, found),
        RequestCounts(0, {}, 0, counted_all=True),
        AuthorityLife(NOW + 3000 * DAY),
    )


@pytest.mark.parametrize("lifetime", [HOUR, 8 * HOUR, DAY, 5 * DAY, 7 * DAY, 365 * DAY], ids=str)
def test_nodes_that_renew_in_time_need_no_attention(lifetime: timedelta) -> None:
    """Also if certificates never have a day left: kubelets renew at a fifth of the lifetime, which takes a while."""
    for share in (1.0, 0.3, 0.2, 0.151):
        found = lives((lifetime, lifetime * share))
        assert (found.expired, found.overdue, found.needs(), status(found).needs(NOW)) == (0, 0, (), ())


@pytest.mark.parametrize("lifetime", [HOUR, 8 * HOUR, DAY, 5 * DAY, 7 * DAY, 365 * DAY], ids=str)
def test_nodes_that_do_not_renew(lifetime: timedelta) -> None:
    """Also if many days are left."""
    found = lives((lifetime, lifetime * 0.149), (lifetime, timedelta()), (lifetime, -HOUR), (lifetime, lifetime))
    assert (found.expired, found.overdue) == (2, 1)
    assert status(found).needs(NOW) == (
        "nodes do not renew: client certificates expired: 2, overdue (less than 15 % of the lifetime left): 1",
    )


def test_expired_or_overdue_is_enough() -> None:
    assert "expired: 0, overdue (less than 15 % of the lifetime left): 1" in lives((HOUR, HOUR / 10)).needs()[0]
    assert "expired: 1, overdue (less than 15 % of the lifetime left): 0" in lives((HOUR, -HOUR)).needs()[0]


def test_a_certificate_without_renewal_is_never_overdue() -> None:
    """The insecure attestor does not renew: its nodes are reported once expired."""
    assert lives((7 * DAY, HOUR), security=Security.INSECURE).needs() == ()
    assert lives((7 * DAY, -HOUR), security=Security.INSECURE).expired == 1


def test_classes_by_days() -> None:
    almost = timedelta(seconds=1)
    left = [-HOUR, almost, DAY - almost, DAY, 3 * DAY - almost, 3 * DAY, 7 * DAY - almost, 7 * DAY, 300 * DAY]
    found = lives(*((365 * DAY, one) for one in left))
    assert (found.expired, dict(found.below), found.more) == (1, {1: 2, 3: 2, 7: 2}, 2)
    assert found.overdue == 7, "of those in the classes"


@pytest.mark.parametrize(
    ("mode", "notes", "first"),
    [
        ("Enforce", (), ""),
        ("Observe", (OBSERVE_PROTECTS_NOTHING,), f"Open door: {CLUSTER}: {OBSERVE_PROTECTS_NOTHING}"),
        ("Enforced", (OBSERVE_PROTECTS_NOTHING,), f"Open door: {CLUSTER}: {OBSERVE_PROTECTS_NOTHING}"),
    ],
    ids=["Enforce", "Observe", "no mode"],
)
def test_only_enforce_protects(mode: str, notes: tuple[str, ...], first: str) -> None:
    """The open door is the first line, and nothing beside it is green, neither of a fleet nor of one Cluster."""
    machine = MachineStatus(machine_view(), MachineState.ATTESTED, "")
    found = replace(status(lives((DAY, DAY))), mode=mode, machines=(machine,))
    assert (found.needs(NOW), found.notes()) == ((), notes)
    for shown in (lambda console: show([found], NOW, console), lambda console: show_cluster(found, NOW, console)):
        plain, colored = (printed(shown, color) for color in (None, "standard"))
        assert plain.splitlines()[0].strip() == first
        assert ("Nothing needs attention." in plain) is not bool(notes)
        assert (GREEN in colored) is not bool(notes)
        assert colored.startswith(RED) is bool(notes)


GREEN, RED = "\x1b[32m", "\x1b[1;31m"


def printed(shown: Callable[[Console], None], color: Any) -> str:
    console = Console(width=300, file=io.StringIO(), force_terminal=color is not None, color_system=color)
    with console.capture() as captured:
        shown(console)
    return captured.get()


def test_many_open_doors_are_counted() -> None:
    found = [replace(status(lives()), cluster=ClusterKey("team", f"c{number}"), mode="Observe") for number in range(7)]
    assert open_door(found).startswith(
        "Open door: team/c0, team/c1, team/c2, team/c3, team/c4 and 2 more: mode Observe"
    )


def test_unverified_records() -> None:
    assert status(RecordsUnverified("no key")).needs(NOW) == ("no key",)
