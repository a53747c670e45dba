"""When a cluster's CA is about to end: what the policy shows, and which Events there are."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from signer.controller.rotation_expiry import EVENT_REASON, ExpiryService
from signer.decision.authority_secrets import AuthorityUnavailable
from signer.kube.resources import CLUSTERS_V1BETA2, MACHINES_V1BETA2
from signer.model.cluster import ClusterKey
from signer.model.decision import Deferred
from signer.model.floors import NO_FLOORS
from signer.model.reasons import Reason
from signer.rotation.condition_types import AUTHORITY_EXPIRY
from signer.rotation.operations import NeverRotated
from signer.rotation.phases import Phase, Step
from signer.rotation.rotations import Known, Unverified, Verified
from signer.store.caches import Caches
from signer.store.cluster_api import ClusterAPIVersion
from tests.unit.signer.rotation.model_world import first_record

KEY = ClusterKey("team-a", "blue")
END = datetime(2030, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)


class World:
    """A policy, a CA, a clock, and the Events on the policy."""

    def __init__(self, shown: str = "") -> None:
        self.caches = Caches(
            ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2), own_namespace="own", floors=NO_FLOORS
        )
        self.caches.policy_statuses.follow(AUTHORITY_EXPIRY)
        self.show(shown)
        self.ends: tuple[datetime, ...] = (END,)
        self.known: Known | Exception = NeverRotated()
        self.left = timedelta(days=1000)
        self.events: list[tuple[str, str, str]] = []

    def show(self, reason: str) -> None:
        """The watch delivers the policy with that reason in its status."""
        metadata = {"namespace": "team-a", "name": "blue", "uid": "u", "resourceVersion": "1", "generation": 1}
        condition = {"type": AUTHORITY_EXPIRY, "reason": reason}
        spec = {"authorizedAttestors": [{"name": "tpm"}]}
        status = {"conditions": [condition]}
        self.caches.policies.written({"metadata": metadata, "spec": spec, "status": status})

    def expiry(self) -> tuple[datetime, ...]:
        return self.ends

    async def authority(self) -> object:
        raise AuthorityUnavailable("CertificateAuthorityMissing", "no Secret")

    def rotation(self, key: ClusterKey) -> Known:
        assert key == KEY
        if isinstance(self.known, Exception):
            raise self.known
        return self.known

    def tell(self, kind: str, reason: str, message: str) -> None:
        self.events.append((kind, reason, message))

    def service(self) -> ExpiryService:
        return ExpiryService(
            KEY, source=self, rotation=self.rotation, caches=self.caches, tell=self.tell, now=lambda: END - self.left
        )


@pytest.mark.parametrize(
    ("left", "met", "reason"),
    [
        (366 * DAY, True, "FarAway"),
        (365 * DAY, True, "FarAway"),
        (365 * DAY - timedelta(seconds=1), False, "ExpiresWithinAYear"),
        (90 * DAY, False, "ExpiresWithinAYear"),
        (89 * DAY, False, "ExpiresWithin90Days"),
        (29 * DAY, False, "ExpiresWithin30Days"),
        (-DAY, False, "ExpiresWithin30Days"),
    ],
)
def test_the_condition(left: timedelta, met: bool, reason: str) -> None:
    world = World()
    world.left = left
    (condition,) = world.service().conditions
    assert (condition.type, condition.met, condition.reason) == (AUTHORITY_EXPIRY, met, reason)
    assert "2030-01-01" in condition.message
    assert not AUTHORITY_EXPIRY.counts_toward_ready(None)
    assert ("start-ca-rotation" in condition.message) is not met


def test_without_a_readable_authority_there_is_no_condition() -> None:
    world = World()
    world.ends = ()
    service = world.service()
    service.look()
    assert (service.conditions, world.events) == ((), [])


def verified(phase: Phase) -> Verified:
    return Verified(replace(first_record(), phase=phase, step=Step.ACCEPT), "u", "1")


@pytest.mark.parametrize(
    ("known", "order"),
    [
        (NeverRotated(), True),
        (Unverified("no seal"), True),
        (verified(Phase.COMPLETED), True),
        (verified(Phase.PREPARED), False),
        (Deferred(Reason.CONTROLLER_KEY_UNAVAILABLE, "no key"), True),
    ],
)
def test_a_rotation_that_is_under_way_is_not_to_be_started(known: Any, order: bool) -> None:
    world = World()
    world.known, world.left = known, 20 * DAY
    (condition,) = world.service().conditions
    assert ("start-ca-rotation" in condition.message) is order
    assert ("under way" in condition.message) is not order


def test_one_event_at_each_threshold() -> None:
    world = World()
    service = world.service()
    for days in (400, 364, 200, 91, 89, 50, 31, 29, 5, -3):
        world.left = days * DAY
        service.look()
        service.look()
    kinds = [
        (kind, reason, message.partition(", in ")[2].partition(" days")[0]) for kind, reason, message in world.events
    ]
    assert kinds == [("Warning", EVENT_REASON, days) for days in ("364", "89", "29")]


@pytest.mark.parametrize(
    ("shown", "told"), [("ExpiresWithin90Days", 0), ("ExpiresWithinAYear", 1), ("FarAway", 1), ("", 1)]
)
def test_a_restart_repeats_no_event(shown: str, told: int) -> None:
    """What the former controller showed it has told; a threshold that passed in between is told now."""
    world = World(shown)
    world.left = 60 * DAY
    service = world.service()
    world.show("ExpiresWithin90Days")  # this controller's own status comes back by the watch before the first look
    service.look()
    assert len(world.events) == told


def test_another_authority_starts_anew() -> None:
    world = World("ExpiresWithin30Days")
    service = world.service()
    for ends, told in (((END + 3000 * DAY,), 0), ((END,), 1)):
        world.ends, world.left = ends, 20 * DAY
        service.look()
        assert len(world.events) == told


def test_without_a_policy_nothing_counts_as_told() -> None:
    world = World()
    world.left = 20 * DAY
    service = world.service()
    policies, world.caches.policies = (
        world.caches.policies,
        type(world.caches)(world.caches.version, own_namespace="own", floors=NO_FLOORS).policies,
    )
    service.look()
    assert world.events == []
    world.caches.policies = policies
    service.look()
    assert len(world.events) == 1
