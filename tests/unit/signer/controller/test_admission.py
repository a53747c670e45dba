"""What a decision looks at of a tenant's thousands of Machines; all else of admission is tested with an API server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from signer.controller.admission import Admission
from signer.kube.resources import CLUSTERS_V1BETA2, MACHINES_V1BETA2
from signer.model.cluster import ClusterKey
from signer.store.cluster_api import ClusterAPIVersion, NotServed
from signer.store.inventory import MOST_MATCHING, Inventory
from tests.unit.signer.builders import machine_view

KEY = ClusterKey("team-a", "prod")


def machine(name: str, *, node_ref: str = "", deleting: bool = False) -> dict[str, Any]:
    return {
        "metadata": {
            "namespace": KEY.namespace,
            "name": name,
            "uid": name,
            "resourceVersion": "1",
            **({"deletionTimestamp": "2026-03-01T12:00:00Z"} if deleting else {}),
        },
        "spec": {"clusterName": KEY.name, "providerID": "test:///one"},
        "status": {
            "addresses": [{"type": "Hostname", "address": "node"}],
            **({"nodeRef": {"name": node_ref}} if node_ref else {}),
        },
    }


def test_of_thousands_a_few_say_as_much_as_all() -> None:
    """Each would be in the line of the audit log, which is bounded, and cost all clusters time."""
    inventory = Inventory(ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2, NotServed()), own_namespace="here")
    going = [machine(f"a{number}", deleting=True) for number in range(20)]
    called_so = [machine(f"m{number}") for number in range(20)]
    for manifest in (*going, *called_so, machine("z", node_ref="node")):
        inventory.machines.applied(manifest)
    assert len(inventory.matching(KEY, "test:///one")) == MOST_MATCHING
    admission = cast("Admission", SimpleNamespace(_inventory=inventory, _key=KEY))
    others = Admission._others_called(admission, machine_view(name="m0", cluster=KEY), "node")
    assert [other.name for other in others[:2]] == ["z", "m1"], "whose node it is, and then the others"
    assert len(others) == 8
    assert not any(other.deleting for other in others)
