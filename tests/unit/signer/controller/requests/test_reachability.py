"""Reachability of a cluster's API server, and when to reconnect."""

from __future__ import annotations

import pytest

from signer.kube.errors import ApiError, Cause, Forbidden, Unauthorized, Unreachable
from tests.unit.signer.controller.cluster.served_cluster import HANGS, Served


@pytest.fixture
async def served() -> Served:
    return Served()


REFUSES = Unreachable("connection refused: nothing listens there", cause=Cause.REFUSED)


@pytest.mark.parametrize(
    ("error", "seconds_between", "failures"),
    [(Unauthorized("401"), 0.0, 1), (HANGS, 30.0, 2), (REFUSES, 1.0, 5)],
    ids=["its credentials are refused", "it hangs", "it refuses connections"],
)
async def test_the_secret_is_read_again_when_a_server_stays_unreachable(
    served: Served, error: ApiError, seconds_between: float, failures: int
) -> None:
    cluster, now = served.cluster, 0.0
    cluster._reachability._monotonic = lambda: now
    cluster.synced()
    for _ in range(failures - 1):
        cluster.failed(error, 0.5)
        assert not cluster._reconnect.is_set()
        now += seconds_between
    cluster.failed(error, 0.5)
    assert cluster._reconnect.is_set()


async def test_intermittent_failures_cause_no_reconnect(served: Served) -> None:
    cluster, now = served.cluster, 0.0
    cluster._reachability._monotonic = lambda: now
    for _ in range(10):
        cluster.failed(HANGS, 0.5)
        now += 29.0
        cluster.synced()
    assert not cluster._reconnect.is_set()


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (Unauthorized("401"), "or renew Secret {}"),
        (Forbidden("403"), "grant that to the user of Secret {} (docs/operating.md, Grants)"),
    ],
    ids=["its credentials are refused", "a grant is missing"],
)
async def test_the_condition_says_what_to_do_about_the_kubeconfig(served: Served, error: ApiError, remedy: str) -> None:
    cluster = served.cluster
    cluster.failed(error, 0.5)
    (condition,) = cluster._reachability.conditions
    key = cluster._reachability._key
    assert condition.message.startswith(f"{error}: ")
    assert remedy.format(f"{key.namespace}/{key.name}-kubeconfig") in condition.message
    assert f"node-attestation-controller workload-kubeconfig {key}" in condition.message
