"""What the guard of orders installs, how often, and what it says about it."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import pytest

from signer.admission.manifests import AdmissionVersion, binding_manifest, policy_manifest
from signer.configuration import RotationSettings
from signer.kube.client import JsonObject, Parameters
from signer.kube.errors import ApiError, Cause, Conflict, Forbidden, Invalid, NotFound, Unreachable
from signer.kube.resources import CLUSTERS_V1BETA2, MACHINES_V1BETA2
from signer.model.cluster import ClusterKey
from signer.model.floors import NO_FLOORS
from signer.model.shard import SomeShards
from signer.rotation.admission_policy import OPERATIONS_POLICY, UNKNOWN_OPERATION
from signer.rotation.operations import OPERATION_ANNOTATION
from signer.rotation.operations_guard import GUARDED_SECONDS, NOT_GUARDED, OPERATIONS_GUARDED, OperationsGuard
from signer.store.caches import Caches
from signer.store.cluster_api import ClusterAPIVersion

MANIFESTS: Final = tuple(
    render(OPERATIONS_POLICY, AdmissionVersion.V1) for render in (policy_manifest, binding_manifest)
)
BOTH: Final = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
NO: Final = Forbidden("User cannot create", status=403)
NAME: Final = OPERATIONS_POLICY.name
REFUSAL: Final = f"ValidatingAdmissionPolicy '{NAME}' with binding '{NAME}' denied request: {UNKNOWN_OPERATION}"


def policy(namespace: str, name: str) -> dict[str, Any]:
    return {
        "metadata": {"namespace": namespace, "name": name, "uid": name, "resourceVersion": "1", "generation": 1},
        "spec": {"authorizedAttestors": [{"name": "tpm"}]},
    }


@dataclass
class API:
    """Stores admission policies, and applies ours while it is ``in_force``."""

    plurals: tuple[str, ...] = BOTH
    in_force: bool = True
    creation: ApiError | None = None
    stored: dict[str, JsonObject] = field(default_factory=dict)
    tried: list[str] = field(default_factory=list)

    async def get(self, path: str) -> JsonObject:
        if path.endswith(("/v1", "/v1beta1")):
            return {"resources": [{"name": one, "namespaced": False} for one in self.plurals]}
        if path not in self.stored:
            raise NotFound("no", status=404)
        return self.stored[path]

    async def create(self, path: str, body: JsonObject, params: Parameters | None = None) -> JsonObject:
        if self.creation is not None:
            raise self.creation
        self.stored[f"{path}/{body['metadata']['name']}"] = body
        return body

    async def replace(self, path: str, body: JsonObject) -> JsonObject:
        self.stored[path] = body
        return body

    async def patch(
        self,
        path: str,
        patch: JsonObject,
        content_type: str = "application/merge-patch+json",
        params: Parameters | None = None,
    ) -> JsonObject:
        assert params == {"dryRun": "All"}
        self.tried.append(path.partition("/namespaces/")[2])
        if self.in_force and patch["metadata"]["annotations"][OPERATION_ANNOTATION] is not None:
            raise Invalid(REFUSAL, status=422)
        return patch


def caches(*policies: dict[str, Any]) -> Caches:
    made = Caches(
        ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2), own_namespace="node-attestation-system", floors=NO_FLOORS
    )
    for one in policies:
        made.policies.written(one)
    return made


def guard(api: API, known: Caches | None = None, settings: RotationSettings | None = None) -> OperationsGuard:
    known = caches(policy("team-a", "blue")) if known is None else known
    return OperationsGuard(api, known, settings or RotationSettings(), Random(0))


async def test_installed_and_proven() -> None:
    api = API()
    made = guard(api)
    assert (made.condition.met, made.condition.reason) == (None, "NotTried")
    assert await made.look() == GUARDED_SECONDS
    assert (made.condition.type, made.condition.met, made.condition.reason) == (OPERATIONS_GUARDED, True, "Proven")
    assert set(api.stored) == {one.path for one in MANIFESTS}
    assert not OPERATIONS_GUARDED.counts_toward_ready(None)


async def test_somebody_who_deletes_it_is_noticed_and_it_comes_back() -> None:
    api = API()
    made = guard(api)
    await made.look()
    api.stored.clear()
    await made.look()
    assert set(api.stored) == {one.path for one in MANIFESTS}


async def test_what_is_stored_and_not_applied_is_not_proven_and_is_tried_again_soon() -> None:
    api = API(in_force=False)
    made = guard(api)
    waits = [await made.look() for _ in range(12)]
    assert (made.condition.met, made.condition.reason) == (False, "NotProven")
    assert "did not refuse" in made.condition.message
    assert "may order a rotation" in made.condition.message
    assert waits[0] < 7
    assert 60 < waits[-1] <= NOT_GUARDED.maximum_seconds * 1.2
    api.in_force = True
    assert await made.look() == GUARDED_SECONDS
    api.in_force = False
    assert await made.look() < 7


async def test_without_the_right_the_condition_says_what_to_do() -> None:
    api = API(in_force=False, creation=NO)
    made = guard(api)
    await made.look()
    assert (made.condition.met, made.condition.reason) == (False, "Forbidden")
    assert "rotation.admissionPolicy" in made.condition.message


async def test_without_the_right_a_policy_that_is_in_force_counts() -> None:
    """An administrator installed it, or took the right away afterwards."""
    made = guard(API(creation=NO))
    await made.look()
    assert (made.condition.met, made.condition.reason) == (True, "Proven")
    assert "may not change it" in made.condition.message


async def test_an_api_server_that_does_not_serve_them() -> None:
    api = API(plurals=())
    made = guard(api)
    assert await made.look() == GUARDED_SECONDS
    assert (made.condition.met, made.condition.reason) == (False, "NotServed")
    assert api.tried == []


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (Conflict("changed", status=409), "at the same time"),
        (Unreachable("no", cause=Cause.REFUSED), "cannot be installed"),
    ],
)
async def test_a_failure_is_a_condition_and_no_error(error: ApiError, says: str) -> None:
    made = guard(API(creation=error))
    await made.look()
    assert (made.condition.met, made.condition.reason) == (False, "NotProven")
    assert says in made.condition.message


async def test_a_policy_of_somebody_else_stays() -> None:
    theirs = {"metadata": {"name": NAME}, "spec": {}}
    api = API(stored={MANIFESTS[0].path: theirs})
    made = guard(api)
    await made.look()
    assert api.stored == {MANIFESTS[0].path: theirs}
    assert (made.condition.met, made.condition.reason) == (False, "NotProven")
    assert "belongs to somebody else" in made.condition.message


async def test_it_tries_only_where_it_may_patch() -> None:
    """Its rights end at its namespaces, and at its shards."""
    known = caches(policy("team-a", "blue"), policy("team-b", "green"), policy("team-c", "red"))
    api = API()
    await guard(api, known, RotationSettings(frozenset({"team-b"}))).look()
    assert set(api.tried) == {"team-b/nodeattestationpolicies/green"}
    known.shards = SomeShards(64)  # none is owned yet
    made = guard(api, known)
    await made.look()
    assert len(api.tried) == 2
    assert "knows no NodeAttestationPolicy" in made.condition.message


async def test_it_does_not_try_on_a_policy_that_the_schema_refuses() -> None:
    """An API server refuses every patch of such an object, whatever else it applies."""
    unreadable = {**policy("team-a", "a"), "spec": {"mode": "Unheard"}}
    api = API()
    await guard(api, caches(unreadable, policy("team-a", "blue"))).look()
    assert set(api.tried) == {"team-a/nodeattestationpolicies/blue"}


async def test_watchers_are_told_about_changes_alone_and_only_while_they_watch() -> None:
    told: list[str] = []
    api = API()
    made = guard(api)
    with made.telling(lambda: told.append("a")):
        await made.look()
        await made.look()
        assert told == ["a"]
        api.in_force = False
        await made.look()
        assert told == ["a", "a"]
    api.in_force = True
    await made.look()
    assert told == ["a", "a"]


def test_the_key_of_a_policy_is_its_cluster() -> None:
    (one,) = caches(policy("team-a", "blue")).policies.values()
    assert one.cluster == ClusterKey("team-a", "blue")
