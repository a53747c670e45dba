"""A thief with a bootstrap token posts thousands of requests; the node that shares the token joins all the same.

What is counted are the requests that were decided before the honest one, never time.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import pytest

from signer.controller.requests import pending as pending_module
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS, NODE_ATTESTATION_POLICIES
from signer.kube.workqueue import LOOKS, TURNS_OF_OTHERS
from signer.model.flow import PriorityLevel
from signer.testing.fixtures import embedded_api
from signer.testing.nodes import SimulatedNode
from signer.testing.world import WorldCluster
from tests.integration.fixtures import CONTROLLER_USER, Harness, node_of, provider_id
from tests.integration.requests import BOOTSTRAP, plant

pytestmark = [pytest.mark.slow, pytest.mark.prompt]

FLOOD: Final = 1_000
WORKERS: Final = 8
"""Fewer than by default: what is tested is the order, which more workers at once would blur."""
HONEST: Final = "honest"
FEW: Final = TURNS_OF_OTHERS[PriorityLevel.REFUSED] + WORKERS
"""Decided first where nobody is in the way: those that the workers have in hand, and no more than one round."""
STEPS_OF_A_JOIN: Final = 6
"""Two reservations, their confirmation, the record, approval and certificate."""
MEANWHILE: Final = STEPS_OF_A_JOIN * WORKERS
"""In each step of a join that begins when all have been looked at, every worker may end one request."""
Flood: TypeAlias = Callable[[WorldCluster, int], tuple[dict[str, Any], tuple[str, Sequence[str]]]]


def _invented(cluster: WorldCluster, machine: str, number: int) -> dict[str, Any]:
    """A request for that machine by a client without its key."""
    identifier = provider_id(machine)
    settings = {"provider-id": identifier, "machine-key": base64.b64encode(bytes(32)).decode("ascii")}
    return SimulatedNode(machine, identifier, cluster.ca_cert_hash, "keyed-mac", settings).client_request(
        f"flood-{number:04}"
    )


def _random_machines(cluster: WorldCluster, number: int) -> tuple[dict[str, Any], tuple[str, Sequence[str]]]:
    return _invented(cluster, f"random-{number}", number), BOOTSTRAP


def _honest_machine(cluster: WorldCluster, number: int) -> tuple[dict[str, Any], tuple[str, Sequence[str]]]:
    return _invented(cluster, HONEST, number), BOOTSTRAP


def _other_tokens(cluster: WorldCluster, number: int) -> tuple[dict[str, Any], tuple[str, Sequence[str]]]:
    return _invented(cluster, HONEST, number), (f"system:bootstrap:thief{number % 5}", BOOTSTRAP[1])


def _no_machines(cluster: WorldCluster, number: int) -> tuple[dict[str, Any], tuple[str, Sequence[str]]]:
    """Good evidence, of machines that the management cluster does not know."""
    return node_of(cluster, f"nobody-{number}").client_request(f"flood-{number:04}"), BOOTSTRAP


def _copies() -> Flood:
    """Copies of a request of the honest machine, which every token can read: the evidence in them is good."""
    copied: dict[str, Any] = {}

    def copy(cluster: WorldCluster, number: int) -> tuple[dict[str, Any], tuple[str, Sequence[str]]]:
        if not copied:
            copied.update(node_of(cluster, HONEST).client_request("older"))
        return {**copied, "metadata": {"name": f"flood-{number:04}"}}, BOOTSTRAP

    return copy


FLOODS: Final = {
    "random-provider-ids": _random_machines,
    "the-honest-provider-id": _honest_machine,
    "other-tokens": _other_tokens,
    "no-machines": _no_machines,
    "copies": _copies(),
}


def _decided_before(cluster: WorldCluster, name: str) -> int:
    """How many requests the controller had decided when it decided that one."""
    prefix = f"{CERTIFICATE_SIGNING_REQUESTS.collection()}/"
    decided: list[str] = []
    for entry in embedded_api(cluster).requests.writes():
        if entry.user == CONTROLLER_USER and entry.path.startswith(prefix):
            other = entry.path.removeprefix(prefix).partition("/")[0]
            if other == name:
                return len(set(decided))
            decided.append(other)
    raise AssertionError(f"{name} was not decided")


def _says_that_requests_overflowed(policy: dict[str, Any]) -> bool:
    conditions = (policy.get("status") or {}).get("conditions") or []
    return any(condition["reason"] == "RequestsOverflowed" for condition in conditions)


def _join(cluster: WorldCluster, name: str) -> None:
    plant(cluster, node_of(cluster, HONEST).client_request(name))


TOLD_BY_CLAIM: Final = {"random-provider-ids", "no-machines"}
"""Nobody's Machine has what they claim: a glance is enough to serve others first."""
_BEFORE: Final = ("a-first", FEW)
_AMONG: Final = (f"flood-{FLOOD // 2:04}-honest", FEW + FLOOD // LOOKS + MEANWHILE)
_AFTER: Final = ("z-last", FEW)


@pytest.mark.parametrize(
    ("flood", "name", "most"),
    [
        *((flood, *_BEFORE) for flood in FLOODS),
        *((flood, _AMONG[0], FEW if flood in TOLD_BY_CLAIM else _AMONG[1]) for flood in FLOODS),
        *((flood, *_AFTER) for flood in FLOODS),
    ],
)
def test_a_node_joins_through_a_flood(harness: Harness, flood: str, name: str, most: int) -> None:
    """The controller finds all of them at once; lists are in the order of names."""
    cluster = harness.cluster()
    cluster.add_machine(HONEST, provider_id=provider_id(HONEST))
    for number in range(FLOOD):
        plant(cluster, *FLOODS[flood](cluster, number))
    _join(cluster, name)
    harness.run(workers_per_cluster=WORKERS)
    verdict = cluster.wait_until_decided(name, 60)
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested")
    assert _decided_before(cluster, name) <= most


@pytest.mark.parametrize("flood", FLOODS)
def test_a_node_joins_when_a_flood_fills_the_request_budget(
    harness: Harness, short_waits: None, monkeypatch: pytest.MonkeyPatch, flood: str
) -> None:
    """While the Cluster is paused nothing is decided; the flood is there first, and is more than is kept."""
    kept = 200
    monkeypatch.setattr(pending_module, "MAXIMUM_REQUESTS", kept)
    cluster = harness.cluster()
    cluster.add_machine(HONEST, provider_id=provider_id(HONEST))
    cluster.patch({"spec": {"paused": True}})
    for number in range(2 * kept):
        plant(cluster, *FLOODS[flood](cluster, number))
    harness.run(workers_per_cluster=WORKERS)
    harness.management.client.wait_for(
        NODE_ATTESTATION_POLICIES.collection(cluster.namespace), cluster.name, _says_that_requests_overflowed
    )
    _join(cluster, "z-last")
    cluster.patch({"spec": {"paused": False}})
    verdict = cluster.wait_until_decided("z-last", 60)
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested")
    assert _decided_before(cluster, "z-last") <= FEW + kept // LOOKS


def test_a_node_whose_machine_is_known_later_than_the_flood_joins(
    harness: Harness, short_waits: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It makes one request, before its Machine has a provider ID: the newest of those for unknown machines."""
    kept = 20
    monkeypatch.setattr(pending_module, "MAXIMUM_REQUESTS", kept)
    cluster = harness.cluster()
    for number in range(2 * kept):
        plant(cluster, *_no_machines(cluster, number))
    _join(cluster, "z-last")
    harness.run(workers_per_cluster=WORKERS)
    harness.management.client.wait_for(
        NODE_ATTESTATION_POLICIES.collection(cluster.namespace), cluster.name, _says_that_requests_overflowed
    )
    cluster.add_machine(HONEST, provider_id=provider_id(HONEST))
    verdict = cluster.wait_until_decided("z-last", 60)
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested")
