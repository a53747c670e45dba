"""What the refusal at admission installs, when, and what it says; tests/e2e/test_builtin_requests_refused.py has a real
API server.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from signer.admission.manifests import AdmissionVersion, binding_manifest, policy_manifest
from signer.controller.auto_approval.findings import Situation
from signer.controller.auto_approval.refusal import BuiltinRequestRefusal, StillRefused
from signer.controller.auto_approval.refusal_policies import NODES, PROOF_GROUP_ANNOTATION, PROOF_PATH, TOKENS
from signer.kube.client import JsonObject, Parameters
from signer.kube.errors import ApiError, Conflict, Forbidden, NotFound, ServerError
from signer.model.condition import BUILTIN_REQUESTS_REFUSED, PolicyCondition
from signer.store.removed_bindings import NothingSaved
from tests.unit.signer.builders import CLUSTER, cluster_view, policy
from tests.unit.signer.store.removed_bindings_fixtures import ObjectStore, removed_bindings

PATHS: Final = {
    one.policy.name: [render(one.policy, AdmissionVersion.V1).path for render in (policy_manifest, binding_manifest)]
    for one in (TOKENS, NODES)
}
EVERY_PATH: Final = {path for paths in PATHS.values() for path in paths}
BOTH: Final = ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
NO: Final = Forbidden("User cannot do that", status=403)
HASH: Final = f"sha256:{'ab' * 32}"


@dataclass
class API:
    """Stores admission policies and applies ours, as far as they are ``in_force``."""

    plurals: tuple[str, ...] = BOTH
    in_force: bool = True
    failures: dict[str, ApiError] = field(default_factory=dict)
    """By method."""
    stored: dict[str, JsonObject] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)

    def _called(self, method: str, path: str) -> None:
        self.calls.append(f"{method} {path}")
        if method in self.failures:
            raise self.failures[method]

    async def get(self, path: str) -> JsonObject:
        if path.endswith(("/v1", "/v1beta1")):
            return {"resources": [{"name": one, "namespaced": False} for one in self.plurals]}
        self._called("GET", path)
        if path not in self.stored:
            raise NotFound("no", status=404)
        return self.stored[path]

    async def create(self, path: str, body: JsonObject, params: Parameters | None = None) -> JsonObject:
        if path == PROOF_PATH:
            assert params == {"dryRun": "All"}
            group = body["metadata"].get("annotations", {}).get(PROOF_GROUP_ANNOTATION)
            for one in (TOKENS, NODES):
                if self.in_force and group == one.group and set(PATHS[one.policy.name]) <= set(self.stored):
                    name, (message,) = one.policy.name, one.policy.messages
                    said = f"ValidatingAdmissionPolicy '{name}' with binding '{name}' denied request: {message}"
                    raise Forbidden(said, status=403)
            return body
        self._called("POST", path)
        self.stored[f"{path}/{body['metadata']['name']}"] = body
        return body

    async def replace(self, path: str, body: JsonObject) -> JsonObject:
        self._called("PUT", path)
        self.stored[path] = body
        return body

    async def patch(self, path: str, patch: JsonObject, content_type: str = "", params: Any = None) -> JsonObject:
        raise AssertionError("nothing is patched")

    async def delete(self, path: str, *, uid: str | None = None, resource_version: str | None = None) -> JsonObject:
        self._called("DELETE", path)
        return self.stored.pop(path)


class Harness:
    """One workload cluster, the saved bindings, and a clock."""

    def __init__(self) -> None:
        self.api = API()
        self.removed = removed_bindings(ObjectStore())
        self.now = datetime(2026, 3, 1, 12, tzinfo=UTC)
        self.refusal = self.started()

    def started(self) -> BuiltinRequestRefusal:
        return BuiltinRequestRefusal(self.removed, lambda: self.now)

    async def refuse(self, *unattested: str, **cluster: Any) -> PolicyCondition:
        situation = Situation(policy(mode="Enforce"), cluster_view(**cluster), HASH, unattested, frozenset())
        found = await self.refusal.refuse(self.api, situation)
        assert found.type == BUILTIN_REQUESTS_REFUSED
        assert not found.type.counts_toward_ready(policy(mode="Enforce"))
        return found


@pytest.fixture
def harness() -> Harness:
    return Harness()


async def test_tokens_first_and_nodes_once_nothing_waits(harness: Harness) -> None:
    found = await harness.refuse("Machine old")
    assert (found.met, found.reason) == (False, "WaitingForAttestation")
    assert "Machine old" in found.message
    assert set(harness.api.stored) == set(PATHS[TOKENS.policy.name])
    found = await harness.refuse()
    assert (found.met, found.reason) == (True, "Proven")
    assert "since 2026-03-01 12:00 UTC" in found.message
    assert set(harness.api.stored) == EVERY_PATH
    harness.now += timedelta(hours=1)
    assert await harness.refuse() == found


async def test_nodes_stay_refused(harness: Harness) -> None:
    await harness.refuse()
    assert (await harness.refuse("Machine late")).reason == "Proven"
    harness.refusal = harness.started()
    assert (await harness.refuse("Machine late")).reason == "Proven"


async def test_an_old_api_server(harness: Harness) -> None:
    harness.api.plurals = ()
    found = await harness.refuse()
    assert (found.met, found.reason) == (False, "NotServed")
    assert isinstance(await harness.removed.saved(CLUSTER), NothingSaved)
    await harness.refusal.withdraw(harness.api)


async def test_what_is_stored_and_not_applied_is_not_proven(harness: Harness) -> None:
    await harness.refuse()
    harness.api.in_force = False
    found = await harness.refuse()
    assert (found.met, found.reason) == (False, "NotProven")
    assert "did not refuse" in found.message
    harness.api.in_force = True
    harness.now += timedelta(hours=1)
    assert "since 2026-03-01 13:00 UTC" in (await harness.refuse()).message


async def test_what_was_just_installed_is_asked_again_soon(harness: Harness) -> None:
    harness.api.in_force = False
    found = await harness.refuse()
    assert (found.met, found.reason) == (False, "NotProven")
    assert f"{TOKENS.policy.name}: just installed: an API server applies it within seconds" in found.message
    assert "just installed" not in (await harness.refuse()).message, "by now it should apply"


@pytest.mark.parametrize("path", sorted(EVERY_PATH))
async def test_who_deletes_it_is_reported(harness: Harness, path: str) -> None:
    assert "somebody" not in (await harness.refuse()).message
    del harness.api.stored[path]
    found = await harness.refuse()
    assert found.met is True
    assert f"changed or deleted {path.rpartition('/')[2]}, restored at 2026-03-01 12:00 UTC" in found.message
    assert set(harness.api.stored) == EVERY_PATH


@pytest.mark.parametrize("path", sorted(EVERY_PATH))
async def test_who_changes_it_is_reported(harness: Harness, path: str) -> None:
    await harness.refuse()
    wanted = harness.api.stored[path]
    harness.api.stored[path] = {**wanted, "spec": {"failurePolicy": "Ignore"}}
    found = await harness.refuse()
    assert f"changed or deleted {path.rpartition('/')[2]}" in found.message
    assert harness.api.stored[path]["spec"] == wanted["spec"]


async def test_without_the_right_and_without_the_policy(harness: Harness) -> None:
    harness.api.failures["POST"] = NO
    found = await harness.refuse()
    assert (found.met, found.reason) == (False, "Forbidden")
    assert "grant role node-attestation-admission-policies" in found.message


async def test_an_administrator_may_have_installed_it(harness: Harness) -> None:
    await harness.refuse()
    harness.api.failures["GET"] = NO
    assert (await harness.refuse()).reason == "Proven"


async def test_another_writer(harness: Harness) -> None:
    harness.api.failures["POST"] = Conflict("no", status=409)
    found = await harness.refuse()
    assert (found.met, found.reason) == (False, "NotProven")


async def test_a_foreign_policy_of_that_name_stays(harness: Harness) -> None:
    path = PATHS[TOKENS.policy.name][0]
    harness.api.stored[path] = {"metadata": {"name": "theirs"}}
    found = await harness.refuse()
    assert (found.met, found.reason) == (False, "NotProven")
    assert "belongs to somebody else" in found.message
    await harness.refusal.withdraw(harness.api)
    assert set(harness.api.stored) == {path}


async def test_an_api_server_that_fails(harness: Harness) -> None:
    await harness.refuse()
    harness.api.failures["GET"] = ServerError("no", status=500)
    found = await harness.refuse("Machine old")
    assert (found.met, found.reason) == (None, "ServerError")


@pytest.mark.parametrize("state", [{"paused": True}, {"deleting": True}])
async def test_a_cluster_that_may_move_is_left_as_it_is(harness: Harness, state: dict[str, bool]) -> None:
    found = await harness.refuse(**state)
    assert (found.met, found.reason, harness.api.stored) == (False, "Paused", {})
    assert isinstance(await harness.removed.saved(CLUSTER), NothingSaved)
    await harness.refuse()
    before = len(harness.api.calls)
    assert (await harness.refuse(**state)).reason == "Proven"
    assert not [call for call in harness.api.calls[before:] if not call.startswith("GET")]


async def test_nothing_is_installed_that_would_be_left_behind(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A policy that is deleted while no controller runs is known by its ConfigMap alone."""
    store = ObjectStore()
    harness.removed = removed_bindings(store)
    harness.refusal = harness.started()

    async def fails(*_: Any) -> JsonObject:
        raise ServerError("no", status=500)

    monkeypatch.setattr(store, "create", fails)
    found = await harness.refuse()
    assert (found.met, found.reason, harness.api.stored) == (False, "RemovedGrantsNotKept", {})
    monkeypatch.undo()
    await harness.refuse()
    assert CLUSTER in await harness.removed.owners()


async def test_leaving_takes_both_away_once(harness: Harness) -> None:
    await harness.refuse()
    await harness.refusal.withdraw(harness.api)
    assert harness.api.stored == {}
    before = len(harness.api.calls)
    await harness.refusal.withdraw(harness.api)
    assert len(harness.api.calls) == before
    await harness.refuse()
    await harness.refusal.withdraw(harness.api)
    assert harness.api.stored == {}


async def test_leaving_is_tried_again(harness: Harness) -> None:
    await harness.refuse()
    harness.api.failures["DELETE"] = ServerError("no", status=500)
    with pytest.raises(StillRefused, match="cannot be removed: 500"):
        await harness.refusal.withdraw(harness.api)
    del harness.api.failures["DELETE"]
    await harness.refusal.withdraw(harness.api)
    assert harness.api.stored == {}


async def test_a_user_without_the_right_has_nothing_to_take_away(harness: Harness) -> None:
    harness.api.failures["GET"] = NO
    await harness.refusal.withdraw(harness.api)
