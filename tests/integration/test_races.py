"""Two controllers decide the same hundred requests at once; every Machine and identity ends with exactly one owner."""

from __future__ import annotations

from typing import Any, Final

import pytest

from attestors.contract import Security
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.model.reasons import Reason
from signer.testing.nodes import SimulatedNode
from signer.testing.world import WorldCluster
from tests.integration.house import House, node_of, provider_id
from tests.integration.ownership import assert_one_owner_each, verdicts, whole_pairs

pytestmark = pytest.mark.slow

TWICE: Final = [f"twice-{number}" for number in range(15)]
"""Machines whose node asks twice at once, with two keys."""
IN_TWO_CLUSTERS: Final = [f"moonlighting-{number}" for number in range(20)]
"""Machines that both clusters claim, under one provider ID: one identity."""
CONTESTED: Final = [f"contested-{number}" for number in range(15)]
"""Machines that a secure and an insecure attestor claim."""


def test_conflicting_requests_under_two_controllers(house: House) -> None:
    first = house.cluster("first", ("keyed-mac", "insecure"))
    second = house.cluster("second", namespace="other")
    _add_machines(first, [*TWICE, *IN_TWO_CLUSTERS, *CONTESTED])
    _add_machines(second, IN_TWO_CLUSTERS)
    asked_first = [
        *(node_of(first, name).client_request(f"{name}.{number}") for name in TWICE for number in (1, 2)),
        *(node_of(first, name).client_request(name) for name in IN_TWO_CLUSTERS),
        *(request for name in CONTESTED for request in _secure_and_insecure(first, name)),
    ]
    asked_second = [node_of(second, name).client_request(name) for name in IN_TWO_CLUSTERS]
    assert len(asked_first) + len(asked_second) == 100
    for _ in range(2):
        house.run(insecure_enabled=True, insecure_namespaces=frozenset({"default"}))

    for cluster, asked in ((first, asked_first), (second, asked_second)):
        with cluster.client(cluster.api.token_connection(cluster.api.bootstrap_token())) as client:
            client.create_all(CERTIFICATE_SIGNING_REQUESTS.collection(), asked)
    for cluster, asked in ((first, asked_first), (second, asked_second)):
        for request in asked:
            cluster.wait_until_decided(request["metadata"]["name"])

    assert [entry for entry in house.api.requests.matching() if entry.status == 409], "they never met"
    records = assert_one_owner_each(house, (first, second))
    assert {(record.machine, record.identity) for record in records} == {
        (pair.machine, pair.identity) for pair in whole_pairs(house)
    }
    assert sorted(record.node_name for record in records) == sorted([*TWICE, *IN_TWO_CLUSTERS, *CONTESTED])
    _assert_each_got_what_it_must(first, second)
    assert all(record.identity.security is Security.SECURE for record in records)


def _add_machines(cluster: WorldCluster, names: list[str]) -> None:
    for name in names:
        cluster.add_machine(name, provider_id=provider_id(name))


def _secure_and_insecure(cluster: WorldCluster, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    pretender = SimulatedNode(
        name, provider_id(name), cluster.ca_cert_hash, "insecure", {"provider-id": provider_id(name)}
    )
    return (
        pretender.client_request(f"{name}.insecure"),
        node_of(cluster, name).client_request(f"{name}.secure"),
    )


def _assert_each_got_what_it_must(first: WorldCluster, second: WorldCluster) -> None:
    in_first, in_second = verdicts(first), verdicts(second)
    for name in TWICE:
        assert in_first[f"{name}.1"].certificate
        assert in_first[f"{name}.2"].certificate
    for name in IN_TWO_CLUSTERS:
        both = (in_first[name], in_second[name])
        assert sorted((verdict.condition, verdict.reason) for verdict in both) == [
            ("Approved", "Attested"),
            ("Denied", "IdentityConflict"),
        ]
    for name in CONTESTED:
        assert in_first[f"{name}.secure"].certificate
        insecure = in_first[f"{name}.insecure"]
        # It came first, or too late: nothing else.
        assert (insecure.condition, insecure.reason) in (
            ("Approved", Reason.ASSERTED.value),
            ("Denied", Reason.IDENTITY_CONFLICT.value),
        )
