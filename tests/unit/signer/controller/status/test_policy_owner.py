"""A policy gets its Cluster as owner: once, at the resourceVersion that was read, and never during a move."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from signer.controller.status.policy_owner import PolicyOwner
from signer.kube.errors import ApiError, Conflict, Forbidden, NotFound
from signer.kube.resources import CLUSTERS_V1BETA2
from tests.unit.signer.builders import cluster_view, policy

OWN = {"apiVersion": "cluster.x-k8s.io/v1beta2", "kind": "Cluster", "name": "prod", "uid": "c-1"}
OTHER = {"apiVersion": "v1", "kind": "ConfigMap", "name": "prod", "uid": "x-1"}


class API:
    """One policy; writes are recorded and fail with ``failure``."""

    def __init__(self, *owners: dict[str, Any], failure: ApiError | None = None) -> None:
        self.metadata = {"uid": "p-1", "resourceVersion": "5", "ownerReferences": list(owners)}
        self.failure = failure
        self.patches: list[dict[str, Any]] = []
        self.reads = 0

    async def get(self, path: str) -> dict[str, Any]:
        assert path.endswith("/namespaces/team-a/nodeattestationpolicies/prod")
        self.reads += 1
        return {"metadata": self.metadata}

    async def patch(self, path: str, patch: dict[str, Any]) -> dict[str, Any]:
        self.patches.append(patch["metadata"])
        if self.failure is not None:
            raise self.failure
        self.metadata = {**self.metadata, **patch["metadata"]}
        return {"metadata": self.metadata}


def owner(api: API) -> PolicyOwner:
    return PolicyOwner(api, CLUSTERS_V1BETA2)


async def test_the_cluster_becomes_the_owner_once() -> None:
    api = API(OTHER)
    made = owner(api)
    await made.ensure(cluster_view(), policy())
    assert api.patches == [{"uid": "p-1", "resourceVersion": "5", "ownerReferences": [OTHER, OWN]}]
    await made.ensure(cluster_view(), policy())
    assert (len(api.patches), api.reads) == (1, 1)


async def test_an_owned_policy_is_not_written() -> None:
    api = API(OWN)
    await owner(api).ensure(cluster_view(), policy())
    assert api.patches == []


@pytest.mark.parametrize("api_version", ["provisioning.cattle.io/v1", "v1", "x.cluster.x-k8s.io/v1beta2", ""])
async def test_an_owner_of_another_kind_stays(api_version: str) -> None:
    theirs = {**OWN, "apiVersion": api_version, "uid": "theirs"}
    api = API(theirs)
    await owner(api).ensure(cluster_view(), policy())
    assert api.patches[0]["ownerReferences"] == [theirs, OWN]


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
async def test_a_reference_to_a_former_cluster_is_replaced(version: str) -> None:
    api = API({**OWN, "uid": "c-0", "apiVersion": f"cluster.x-k8s.io/{version}"})
    await owner(api).ensure(cluster_view(), policy())
    assert api.patches[0]["ownerReferences"] == [OWN]


async def test_a_recreated_cluster_is_another_owner() -> None:
    api = API()
    made = owner(api)
    await made.ensure(cluster_view(), policy())
    await made.ensure(cluster_view(uid="c-2"), policy())
    assert [entry["uid"] for entry in api.patches[1]["ownerReferences"]] == ["c-2"]


@pytest.mark.parametrize("change", [{"paused": True}, {"deleting": True}])
async def test_nothing_is_written_during_a_move(change: dict[str, bool]) -> None:
    api = API()
    await owner(api).ensure(cluster_view(**change), policy())
    assert (api.patches, api.reads) == ([], 0)


@pytest.mark.parametrize(
    "failure", [Conflict("changed", status=409), Forbidden("no", status=403), NotFound("gone", status=404)]
)
async def test_failures_are_retried(failure: ApiError) -> None:
    api = API(failure=failure)
    made = owner(api)
    await made.ensure(cluster_view(), policy())
    api.failure = None
    await made.ensure(cluster_view(), policy())
    assert api.metadata["ownerReferences"] == [OWN]


async def test_a_missing_grant_is_logged_once_per_policy(caplog: pytest.LogCaptureFixture) -> None:
    """Not at each reconciliation. The API server's message does not always name the verb."""
    api = API(failure=Forbidden("cannot set an ownerRef on a resource you can't delete: , <nil>", status=403))
    made = owner(api)
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            await made.ensure(cluster_view(), policy())
        (record,) = caplog.records
        await made.ensure(cluster_view(uid="c-2"), policy())
    assert len(api.patches) == 4
    assert len(caplog.records) == 2
    fields = vars(record)
    assert (record.levelno, fields["cluster"]) == (logging.WARNING, "team-a/prod")
    assert "delete where admission plugin OwnerReferencesPermissionEnforcement is on" in fields["detail"]
    assert "403 Forbidden: cannot set an ownerRef" in fields["error"]


@pytest.mark.parametrize("failure", [Conflict("changed", status=409), NotFound("gone", status=404)])
async def test_transient_failures_are_no_warning(failure: ApiError, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        await owner(API(failure=failure)).ensure(cluster_view(), policy())
    assert caplog.records == []
