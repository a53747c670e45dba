"""Two controllers decide the same hundred requests at once; every Machine and identity ends with exactly one owner.

So it is without leader election, and so it is with it when both believe that they lead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from attestors.contract import Security
from attestors.wire.names import NODE_USER_PREFIX
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.model.lease import DEFAULT_LEASE_NAME
from signer.model.reasons import Reason
from signer.model.shard import shard_lease
from signer.rules.leadership import Leading
from signer.testing.nodes import SimulatedNode
from signer.testing.world import Verdict, WorldCluster
from tests.integration.endorsement_key_sources import (
    BUILTIN_SERVING_SIGNER,
    assert_one_owner_each,
    verdicts,
    whole_pairs,
)
from tests.integration.fixtures import Harness, node_of, provider_id
from tests.integration.replicas import (
    TIMES,
    StallingClock,
    holding,
    shards_owned,
    start_replica,
    wait_until_it_leads,
    watched,
)
from tests.support.certificates import with_client_certificate
from tests.support.processes import wait_until
from tests.support.signing_requests import request_pem, signing_request

pytestmark = pytest.mark.slow

TWICE: Final = [f"twice-{number}" for number in range(15)]
"""Machines whose node asks twice at once, with two keys."""
IN_TWO_CLUSTERS: Final = [f"moonlighting-{number}" for number in range(20)]
"""Machines that both clusters claim, under one provider ID: one identity."""
CONTESTED: Final = [f"contested-{number}" for number in range(15)]
"""Machines that a secure and an insecure attestor claim."""


def without_leader_election(harness: Harness) -> Callable[[], bool]:
    """Every replica works."""
    for _ in range(2):
        harness.run(insecure_enabled=True, insecure_namespaces=frozenset({"default"}))
    return lambda: True


def both_believe_to_lead(harness: Harness) -> Callable[[], bool]:
    """The first one's clock stands still, and its renewals fail: it does not notice that the second has taken over."""
    clock = StallingClock()
    stalled = start_replica(harness, "stalled", clock=clock, times=TIMES)
    wait_until_it_leads(stalled)
    clock.stop()
    harness.api.faults.inject(
        lambda request: request.user.name == "stalled" and "/leases" in request.path, status=503, times=None
    )
    successor = start_replica(harness, "successor")
    wait_until_it_leads(successor)

    def still_do() -> bool:
        both = [replica.leadership.standing() for replica in (stalled, successor)]
        is_the_successors = holding(harness.management).holder == successor.leadership.identity
        return is_the_successors and all(isinstance(standing, Leading) for standing in both)

    assert still_do()
    return still_do


def both_believe_to_own_every_shard(harness: Harness) -> Callable[[], bool]:
    """As above; the second has taken the shards in the API server, and the first does not see it."""
    shards = 2
    clock = StallingClock()
    stalled = start_replica(harness, "stalled", clock=clock, shards=shards, times=TIMES)
    wait_until(lambda: shards_owned(stalled) == shards, "the first owns every shard")
    clock.stop()
    harness.api.faults.inject(
        lambda request: request.user.name == "stalled" and "/leases" in request.path, status=503, times=None
    )
    successor = start_replica(harness, "successor", shards=shards)
    wait_until(lambda: shards_owned(successor) == shards, "the second owns every shard")

    def still_do() -> bool:
        names = [shard_lease(DEFAULT_LEASE_NAME, number) for number in range(shards)]
        holders = {holding(harness.management, name).holder for name in names}
        own = {shards_owned(replica) for replica in (stalled, successor)}
        both_serve = watched(stalled) == watched(successor) == {"default/first", "other/second"}
        return len(holders) == 1 and own == {shards} and both_serve

    wait_until(still_do, "both serve both clusters")
    return still_do


@pytest.mark.parametrize("start_two", [without_leader_election, both_believe_to_lead, both_believe_to_own_every_shard])
def test_conflicting_requests_under_two_controllers(
    harness: Harness, start_two: Callable[[Harness], Callable[[], bool]]
) -> None:
    first = harness.cluster("first", ("keyed-mac", "insecure"), policy={"builtinServingRequests": "Approve"})
    second = harness.cluster("second", namespace="other")
    _add_machines(first, [*TWICE, *IN_TWO_CLUSTERS, *CONTESTED])
    _add_machines(second, IN_TWO_CLUSTERS)
    twice = {f"{name}.{number}": node_of(first, name) for name in TWICE for number in (1, 2)}
    asked_first = [
        *(node.client_request(csr) for csr, node in twice.items()),
        *(node_of(first, name).client_request(name) for name in IN_TWO_CLUSTERS),
        *(request for name in CONTESTED for request in _secure_and_insecure(first, name)),
    ]
    asked_second = [node_of(second, name).client_request(name) for name in IN_TWO_CLUSTERS]
    assert len(asked_first) + len(asked_second) == 100
    both_work = start_two(harness)

    for cluster, asked in ((first, asked_first), (second, asked_second)):
        with cluster.client(cluster.api.token_connection(cluster.api.bootstrap_token())) as client:
            client.create_all(CERTIFICATE_SIGNING_REQUESTS.collection(), asked)
    for cluster, asked in ((first, asked_first), (second, asked_second)):
        for request in asked:
            cluster.wait_until_decided(request["metadata"]["name"])
    _let_them_serve(first, twice)

    assert both_work()
    conflicts = [entry.path for entry in harness.api.requests.matching() if entry.status == 409]
    assert [path for path in conflicts if "/leases" not in path], "they never met"
    records = assert_one_owner_each(harness, (first, second))
    assert {(record.machine, record.identity) for record in records} == {
        (pair.machine, pair.identity) for pair in whole_pairs(harness)
    }
    assert sorted(record.node_name for record in records) == sorted([*TWICE, *IN_TWO_CLUSTERS, *CONTESTED])
    _assert_each_got_what_it_must(first, second)
    assert all(record.identity.security is Security.SECURE for record in records)


def _add_machines(cluster: WorldCluster, names: list[str]) -> None:
    for name in names:
        cluster.add_machine(name, provider_id=provider_id(name))


def _let_them_serve(cluster: WorldCluster, nodes: dict[str, SimulatedNode]) -> None:
    """Each that has a client certificate asks our serving signer and the built-in signer with it, while both decide."""
    path = CERTIFICATE_SIGNING_REQUESTS.collection()
    joined = {csr: verdict.certificate for csr, verdict in verdicts(cluster).items() if csr in nodes}
    for csr, certificate in joined.items():
        if certificate:
            node = nodes[csr]
            connection = with_client_certificate(cluster.api.connection(), certificate, node.key)
            cluster.submit(node.serving_request(f"{csr}.serving", dns_names=[node.node_name]), connection)
            request = request_pem(NODE_USER_PREFIX + node.node_name, alternative_names=[node.node_name])
            usages = ("digital signature", "server auth")
            builtin = signing_request(f"{csr}.stock", request, signer=BUILTIN_SERVING_SIGNER, usages=usages)
            cluster.submit(builtin, connection)
    for csr, certificate in joined.items():
        if certificate:
            assert cluster.wait_until_decided(f"{csr}.serving").condition in ("Approved", "Denied")
            cluster.client().wait_for(path, f"{csr}.stock", lambda item: bool(Verdict.of(item).condition))
            verdict = cluster.verdict(f"{csr}.stock")
            assert verdict.condition == "Approved", verdict


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
        clients, serving = ([in_first.get(f"{name}.{n}{kind}") for n in (1, 2)] for kind in ("", ".serving"))
        for verdict in (*clients, *serving):
            # The older of the two may come too late.
            assert verdict is None or verdict.certificate or verdict.reason == Reason.SUPERSEDED, verdict
        assert [verdict for verdict in clients if verdict and verdict.certificate]
        assert [verdict for verdict in serving if verdict and verdict.certificate]
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
