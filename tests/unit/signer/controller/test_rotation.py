"""The rotation as a service of a workload cluster: what it adds to the reconciler."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, cast

import pytest

from signer.configuration import RotationSettings
from signer.controller.rotation import RotationService
from signer.kube.client import Client
from signer.kube.resources import CLUSTERS_V1BETA2, MACHINES_V1BETA2
from signer.model.decision import Deferred
from signer.model.floors import NO_FLOORS
from signer.model.reasons import Reason
from signer.rotation.operations import NeverRotated
from signer.rotation.operations_guard import OPERATIONS_GUARDED, OperationsGuard
from signer.rotation.reconciler import RotationReconciler
from signer.rotation.rotations import Known, Rotations, Unverified, Verified
from signer.store.caches import Caches
from signer.store.cluster_api import ClusterAPIVersion
from tests.unit.signer.rotation.model_world import KEY, first_record
from tests.unit.signer.rotation.test_operations_guard import API


class Parts:
    """The reconciler and the records, as far as the service asks them."""

    def __init__(self, known: Known | Exception) -> None:
        self.known = known
        self.conditions = ()
        self.last = None

    async def run(self, client: Client) -> None:
        await asyncio.Event().wait()

    def of(self, key: Any) -> Known:
        if isinstance(self.known, Exception):
            raise self.known
        return self.known


class World:
    """A service, its guard, and how often it was said that conditions have changed."""

    def __init__(self, known: Known | Exception) -> None:
        caches = Caches(ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2), own_namespace="own", floors=NO_FLOORS)
        self.guard = OperationsGuard(API(plurals=()), caches, RotationSettings(), Random(0))
        self.changes = 0
        parts = Parts(known)
        self.service = RotationService(
            KEY, cast("RotationReconciler", parts), cast("Rotations", parts), self.guard, self._changed
        )

    def _changed(self) -> None:
        self.changes += 1


NO_KEY = Deferred(Reason.CONTROLLER_KEY_UNAVAILABLE, "no key")


@pytest.mark.parametrize(
    ("known", "shown"),
    [
        (NeverRotated(), False),
        (NO_KEY, False),
        (Unverified("no seal"), True),
        (Verified(first_record(), "u", "1"), True),
    ],
)
async def test_who_may_give_orders_is_shown_from_the_first_rotation_on(known: Any, shown: bool) -> None:
    world = World(known)
    await world.guard.look()
    assert [one.type for one in world.service.conditions] == [OPERATIONS_GUARDED] * shown
    assert bool(world.service.gauges()) is isinstance(known, Verified)


async def test_the_status_follows_the_guard_while_the_service_runs() -> None:
    world = World(Verified(first_record(), "u", "1"))
    running = asyncio.create_task(world.service.run(cast("Client", None)))
    await asyncio.sleep(0)
    await world.guard.look()
    assert world.changes == 1
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    with world.guard.telling(lambda: None):
        pass
    assert world.guard._watchers == [], "a service that ended is told nothing"
