"""The wing's switch: what runs, and who is woken."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from signer.configuration import Configuration, RotationOff, RotationSettings
from signer.controller.cluster.service import OptionalPartContext
from signer.controller.node_client import NodeClientOff
from signer.controller.rotation_wing import (
    RotationOfCluster,
    RotationWing,
    knows_rotation,
    rotation_of_cluster,
    rotation_tasks,
    rotation_wing,
    wake_on_changes,
)
from signer.kube.resources import CLUSTERS_V1BETA2, MACHINES_V1BETA2
from signer.model.authority_suffixes import NotRotated
from signer.model.cluster import ClusterKey
from signer.model.floors import NO_FLOORS
from signer.rotation.operations import OPERATION_ANNOTATION
from signer.store.caches import ALL_PROVIDER_IDS, Caches
from signer.store.cluster_api import ClusterAPIVersion
from tests.unit.signer.rotation.model_world import KEY

ANY: Any = None


class World:
    """A controller with the wing or without it, and what was woken."""

    def __init__(self, settings: RotationSettings | RotationOff) -> None:
        self.caches = Caches(
            ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2), own_namespace="own", floors=NO_FLOORS
        )
        self.without_wing = tuple(self.caches.watched())
        configuration = Configuration(namespace="own", rotation=settings)
        self.wing: RotationWing = rotation_wing(configuration, ANY, self.caches, ANY, ANY, ANY)
        self.woken: list[ClusterKey] = []
        wake_on_changes(self.wing, self._wake)

    def _wake(self, key: ClusterKey, provider_ids: Any) -> None:
        assert provider_ids == ALL_PROVIDER_IDS, "requests may wait for a record"
        self.woken.append(key)

    def context(self) -> OptionalPartContext:
        return OptionalPartContext(KEY, ANY, self.caches, ANY, ANY, ANY)

    def annotate(self, annotations: dict[str, str]) -> None:
        metadata = {"namespace": KEY.namespace, "name": KEY.name, "uid": "u", "annotations": annotations}
        self.caches.policies.applied({"metadata": metadata, "spec": {}})


def test_an_order_wakes_its_cluster() -> None:
    world = World(RotationSettings())
    world.annotate({"another": "annotation"})
    assert world.woken == []
    world.annotate({OPERATION_ANNOTATION: "start-ca-rotation"})
    assert world.woken == [KEY]


@pytest.mark.parametrize("spec", [{}, {"cluster": 5}], ids=["no seal", "unreadable"])
def test_a_record_wakes_its_cluster_whatever_it_is_worth(spec: dict[str, Any]) -> None:
    """One that no longer authenticates is a condition, and no pass would make it."""
    world = World(RotationSettings())
    (records,) = set(world.caches.watched()) - set(world.without_wing)
    manifest = {"metadata": {"namespace": KEY.namespace, "name": KEY.name, "uid": "u", "resourceVersion": "1"}}
    cast("Any", records).applied({**manifest, "spec": spec})
    cast("Any", records).removed({**manifest, "spec": spec})
    assert world.woken == [KEY, KEY]


def test_switched_off() -> None:
    """Nothing is watched, nothing runs, and no rotation has a CA sign."""
    world = World(RotationOff())
    world.annotate({OPERATION_ANNOTATION: "start-ca-rotation"})
    assert world.woken == []
    assert tuple(world.caches.watched()) == world.without_wing
    assert rotation_tasks(world.wing) == ()
    nothing = rotation_of_cluster(world.wing, world.context(), ANY, ANY)
    assert replace(nothing, sources=()) == RotationOfCluster()
    assert [type(one) for one in nothing.sources] == [NodeClientOff]
    assert RotationOfCluster().credentials() == {}
    assert knows_rotation(world.wing)(KEY) == NotRotated()
