"""Cluster API is upgraded, or its API server starts again, while a controller runs."""

from __future__ import annotations

import pytest

from signer.controller import cluster_api_change
from signer.controller.cluster_api_change import ClusterAPIChanged
from signer.controller.run import ControllerOptions
from signer.kube.resources import CUSTOM_RESOURCE_DEFINITIONS, MACHINES_V1BETA1, MACHINES_V1BETA2
from tests.integration.house import House, node_of, provider_id

_KINDS = ("clusters", "machines", "machinepools")


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_api_change, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(cluster_api_change, "LOOK_AGAIN_SECONDS", 0.01)


def serve_v1beta2(house: House, *, served: bool) -> None:
    """Of all that Cluster API has: as before and after its upgrade to v1.11."""
    for plural in _KINDS:
        path = CUSTOM_RESOURCE_DEFINITIONS.object(f"{plural}.cluster.x-k8s.io")
        versions = house.management.client.get(path)["spec"]["versions"]
        changed = [{**one, "served": served or one["name"] != "v1beta2"} for one in versions]
        house.management.client.patch(path, {"spec": {"versions": changed}})


def test_a_controller_that_read_v1beta1_ends_and_reads_v1beta2(house: House) -> None:
    cluster = house.cluster()
    cluster.add_machine("m", provider_id=provider_id("m"))
    serve_v1beta2(house, served=False)
    before = house.run()
    assert any(entry.path == MACHINES_V1BETA1.collection() for entry in house.api.requests.matching("GET *"))
    serve_v1beta2(house, served=True)
    with pytest.raises(ClusterAPIChanged, match=r"serves cluster\.x-k8s\.io/v1beta2 by now, and not .*/v1beta1$"):
        before.wait_ended()
    house.run(ControllerOptions())
    assert any(entry.path == MACHINES_V1BETA2.collection() for entry in house.api.requests.matching("GET *"))
    cluster.submit_with_token(node_of(cluster, "m").client_request("csr"))
    assert cluster.wait_until_decided("csr").reason == "Attested"
