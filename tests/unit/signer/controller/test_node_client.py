"""What a policy is told that chooses a node-client authority where rotation is switched off."""

from __future__ import annotations

from typing import Any

import pytest

from signer.controller.node_client import NodeClientOff
from signer.kube.resources import CLUSTERS_V1BETA2, MACHINES_V1BETA2
from signer.model.floors import NO_FLOORS
from signer.store.caches import Caches
from signer.store.cluster_api import ClusterAPIVersion
from tests.unit.signer.rotation.model_world import KEY


@pytest.mark.parametrize(
    ("spec", "shown"),
    [
        ({}, []),
        ({"nodeClientAuthority": "Shared"}, []),
        ({"nodeClientAuthority": "Separate"}, [(False, "NotAllowed")]),
        ({"nodeClientAuthority": "?"}, []),
    ],
)
def test_the_condition_follows_the_policy(spec: dict[str, str], shown: list[Any]) -> None:
    caches = Caches(ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2), own_namespace="own", floors=NO_FLOORS)
    service = NodeClientOff(KEY, caches)
    assert list(service.conditions) == []
    metadata = {"namespace": KEY.namespace, "name": KEY.name, "uid": "u"}
    caches.policies.applied({"metadata": metadata, "spec": spec})
    assert [(one.met, one.reason) for one in service.conditions] == shown
    assert not any(one.type.counts_toward_ready(None) for one in service.conditions)
