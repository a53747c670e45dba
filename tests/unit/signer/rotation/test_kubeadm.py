"""What the controller makes of the mirror Pods of a kubeadm control plane."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from signer.configuration import RotationSettings
from signer.kube.errors import NotFound
from signer.model.cluster import MachineView, machine_view
from signer.model.floors import NO_FLOORS
from signer.rotation.control_plane.readiness import required_flags
from signer.rotation.control_plane.template import Component
from signer.rotation.facts import NotObserved
from signer.rotation.kubeadm import KubeadmObserver
from signer.rotation.phases import SigningPairs
from signer.store.caches import Caches
from tests.unit.signer.rotation.fault_world import KEY, OWN_NAMESPACE, VERSION

STARTED = "2026-01-02T03:04:05Z"
NAME = "kube-controller-manager"


class Pods:
    """A workload cluster with one mirror Pod, of a kube-controller-manager with these flags."""

    def __init__(self, flags: dict[str, str]) -> None:
        self._flags = flags

    async def get(self, path: str) -> dict[str, Any]:
        if not path.endswith(f"/{NAME}-control-plane-1"):
            raise NotFound(path)
        command = [NAME, *(f"--{name}={value}" for name, value in self._flags.items())]
        return {
            "metadata": {"annotations": {"kubernetes.io/config.mirror": "0"}},
            "spec": {"nodeName": "control-plane-1", "containers": [{"name": NAME, "command": command}]},
            "status": {"containerStatuses": [{"name": NAME, "state": {"running": {"startedAt": STARTED}}}]},
        }


def machine() -> MachineView:
    return machine_view(
        {
            "metadata": {
                "name": "control-plane-1",
                "namespace": KEY.namespace,
                "uid": "u",
                "creationTimestamp": STARTED,
            },
            "spec": {"clusterName": KEY.name},
            "status": {"nodeRef": {"name": "control-plane-1"}},
        }
    )


def started(flags: dict[str, str], signing: SigningPairs) -> datetime | NotObserved:
    caches = Caches(VERSION, own_namespace=OWN_NAMESPACE, monotonic=lambda: 0.0, floors=NO_FLOORS)
    nothing = cast("Any", None)
    observer = KubeadmObserver(KEY, nothing, caches, RotationSettings(), lambda: datetime.now(UTC))
    return asyncio.run(observer.controller_manager_started(cast("Any", Pods(flags)), machine(), signing))


FLAGS = {one.name: one.value for one in required_flags(Component.CONTROLLER_MANAGER, SigningPairs.SPLIT)}
AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def test_one_pair_needs_no_flag_of_the_mirror_pod() -> None:
    assert started({}, SigningPairs.ONE_PAIR) == AT


@pytest.mark.parametrize("flag", [*FLAGS, ""])
def test_split_pairs_need_all_of_their_flags(flag: str) -> None:
    """A kube-controller-manager without them would sign with another pair as soon as it leads."""
    found = started({name: value for name, value in FLAGS.items() if name != flag}, SigningPairs.SPLIT)
    if flag:
        assert isinstance(found, NotObserved)
        assert flag in found.message
    else:
        assert found == AT
