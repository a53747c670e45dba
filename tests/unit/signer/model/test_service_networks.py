from __future__ import annotations

from ipaddress import ip_network
from typing import Any

import pytest

from signer.model.service_networks import (
    NOT_REPORTED,
    ReportedServices,
    reported_by_kubernetes_service,
    reported_by_service_cidrs,
)


def cidrs(*texts: Any) -> dict[str, Any]:
    return {"metadata": {"name": "kubernetes"}, "spec": {"cidrs": list(texts)}}


def networks(*texts: str) -> tuple[Any, ...]:
    return tuple(map(ip_network, texts))


def test_service_cidrs_say_everything() -> None:
    found = reported_by_service_cidrs(
        [cidrs("10.43.0.0/16", "fd00::/112"), cidrs("10.44.0.0/24"), cidrs("10.43.0.0/16")]
    )
    assert found == ReportedServices(networks("10.43.0.0/16", "fd00::/112", "10.44.0.0/24"), frozenset({4, 6}))


@pytest.mark.parametrize(
    "manifests",
    [
        [],
        [{}],
        [cidrs()],
        [{"spec": {"cidrs": "10.0.0.0/8"}}],
        [cidrs("x")],
        [cidrs("10.43.0.1/16")],
        [cidrs("10.43.0.0/16", "")],
        [cidrs("fd00::%any text/64")],
    ],
)
def test_unreadable_service_cidrs_say_nothing(manifests: list[dict[str, Any]]) -> None:
    assert reported_by_service_cidrs(manifests) == NOT_REPORTED


@pytest.mark.parametrize(
    "manifests",
    [[cidrs("10.43.0.0/16", 5)], [cidrs(f"10.{number}.0.0/16") for number in range(65)]],
    ids=["not a text", "too many"],
)
def test_a_part_protects_and_is_not_all(manifests: list[dict[str, Any]]) -> None:
    found = reported_by_service_cidrs(manifests)
    assert found.networks[0].version == 4
    assert found.known_versions == frozenset()


def test_so_many_and_no_more() -> None:
    found = reported_by_service_cidrs([cidrs(f"10.{number}.0.0/16") for number in range(64)])
    assert (len(found.networks), found.known_versions) == (64, frozenset({4, 6}))


@pytest.mark.parametrize(
    ("spec", "around", "versions"),
    [
        ({"clusterIP": "10.43.0.1"}, ["10.32.0.0/12"], {4}),
        ({"clusterIP": "10.43.0.1", "clusterIPs": ["10.43.0.1"]}, ["10.32.0.0/12"], {4}),
        ({"clusterIPs": ["10.43.0.1", "fd00:1::1"]}, ["10.32.0.0/12", "fd00:1::/64"], {4, 6}),
        ({"clusterIP": "fd00:1::1"}, ["fd00:1::/64"], {6}),
        ({"clusterIP": "None", "clusterIPs": ["None"]}, [], set()),
        ({"clusterIP": ""}, [], set()),
        ({"clusterIP": "fd00::%any text"}, [], set()),
        ({"clusterIPs": ["10.43.0.1", "fd00:1::1", "10.8.0.1"]}, ["10.32.0.0/12", "fd00:1::/64"], {4, 6}),
        ({"clusterIPs": [5, None]}, [], set()),
        ({}, [], set()),
    ],
)
def test_the_service_shows_the_largest_network_that_there_can_be(
    spec: dict[str, Any], around: list[str], versions: set[int]
) -> None:
    found = reported_by_kubernetes_service({"spec": spec})
    assert found == ReportedServices(networks(*around), frozenset(versions))
