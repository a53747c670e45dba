"""The auto-approval with concurrent writers, failing or lying API servers, and the controller's grants."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import pytest

from signer.controller.auto_approval import removal as removal_module
from signer.controller.auto_approval import workload_grants
from signer.controller.auto_approval.findings import Situation
from signer.kube.client import JsonObject
from signer.kube.errors import Forbidden, ServerError
from signer.kube.resources import CONFIG_MAPS
from tests.unit.signer.builders import cluster_view, policy
from tests.unit.signer.controller.auto_approval.removal_fixtures import (
    BINDINGS,
    BUILTIN,
    FIRST,
    RBAC,
    RENEWAL,
    REVIEWS,
    Calls,
    RemovalHarness,
    answer_yes_to,
    api,
    harness,
    nothing,
)
from tests.unit.signer.store.removed_bindings_fixtures import NAMESPACE, removed_bindings

__all__ = ["api", "harness"]


# Order, races and faults


async def test_bindings_are_saved_before_they_are_deleted(harness: RemovalHarness) -> None:
    kept_at_delete: list[list[str]] = []

    async def intercept(method: str, path: str, body: JsonObject) -> JsonObject | None:
        if method == "DELETE":
            kept_at_delete.append(await harness.kept())
        return None

    harness.client.intercept = intercept
    await harness.reconcile()
    assert kept_at_delete == [[FIRST, RENEWAL]] * 2


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_binding_that_cannot_be_saved_is_not_deleted(harness: RemovalHarness, method: str) -> None:
    path = CONFIG_MAPS.collection(NAMESPACE)
    if method == "GET":
        path = f"{path}/{await name_of_config_map(harness)}"
    harness.management.failures[f"{method} {path}"] = Forbidden("no configmaps", status=403)
    condition = await harness.reconcile()
    assert (condition.met, condition.reason) == (False, "RemovedGrantsNotKept")
    assert "no configmaps" in condition.message
    assert harness.writes() == []
    harness.management.failures.clear()
    assert (await harness.reconcile()).met is True


async def name_of_config_map(harness: RemovalHarness) -> str:
    await removed_bindings(harness.management).save(harness.owner, [])
    return str(harness.management.config_maps()[0]["metadata"]["name"])


async def test_a_binding_that_changes_concurrently_is_read_again(harness: RemovalHarness) -> None:
    """It may grant something else now; the saved binding is the final version."""
    once = [{"metadata": {"labels": {"changed": "meanwhile"}}}]

    async def change(method: str, path: str, body: JsonObject) -> JsonObject | None:
        if method == "DELETE" and path.endswith(FIRST) and once:
            await asyncio.to_thread(harness.api.patch, "clusterrolebindings", FIRST, once.pop())
        return None

    harness.client.intercept = change
    condition = await harness.reconcile(unattested=("machine-1",))
    assert condition.reason == "WaitingForAttestation"  # the conflict is over, and not reported
    assert FIRST not in harness.bindings()
    await harness.reconcile("Observe")
    assert harness.bindings()[FIRST]["labels"] == {"changed": "meanwhile"}


async def test_a_binding_that_keeps_changing(harness: RemovalHarness) -> None:
    numbers = iter(range(100))

    async def change(method: str, path: str, body: JsonObject) -> JsonObject | None:
        if method == "DELETE" and path.endswith(FIRST):
            patch = {"metadata": {"labels": {"changed": str(next(numbers))}}}
            await asyncio.to_thread(harness.api.patch, "clusterrolebindings", FIRST, patch)
        return None

    harness.client.intercept = change
    condition = await harness.reconcile()
    assert (condition.met, condition.reason) == (False, "RemovalPending")
    assert next(numbers) == 3


async def test_a_binding_that_is_deleted_concurrently(harness: RemovalHarness) -> None:
    async def fail(method: str, path: str, body: JsonObject) -> JsonObject | None:
        if method == "DELETE":
            await asyncio.to_thread(harness.api.delete, "clusterrolebindings", path.rpartition("/")[2])
        return None

    harness.client.intercept = fail
    assert (await harness.reconcile()).met is True


async def test_a_crash_between_save_and_delete_loses_nothing(harness: RemovalHarness) -> None:
    before = harness.bindings()

    async def crash(method: str, path: str, body: JsonObject) -> JsonObject | None:
        if method == "DELETE":
            raise asyncio.CancelledError
        return None

    harness.client.intercept = crash
    with pytest.raises(asyncio.CancelledError):
        await harness.reconcile()
    harness.client.intercept = nothing
    assert await harness.kept() == [FIRST, RENEWAL]
    assert harness.bindings() == before
    await harness.reconcile("Observe")
    assert harness.bindings() == before
    assert await harness.kept() == []


async def test_a_failed_deletion_is_reported_and_retried(harness: RemovalHarness) -> None:
    harness.api.faults.inject(f"DELETE {BINDINGS}/{FIRST}", status=503)
    condition = await harness.reconcile()
    assert (condition.met, condition.reason) == (False, "RemovalPending")
    assert FIRST in condition.message
    assert (await harness.reconcile()).met is True


async def test_reviews_are_repeated_until_the_rbac_cache_catches_up(harness: RemovalHarness) -> None:
    """Real API servers answer from a cache: the first reviews after a removal may be stale."""
    stale = [True] * 3

    async def old_answer(method: str, path: str, body: JsonObject) -> JsonObject | None:
        if path == REVIEWS and "system:nodes" in body["spec"].get("groups", []) and stale:
            stale.pop()
            return {"status": {"allowed": True}}
        return None

    harness.client.intercept = old_answer
    assert (await harness.reconcile()).met is True
    assert not stale


async def test_a_removal_that_never_takes_effect(harness: RemovalHarness) -> None:
    harness.client.intercept = lambda *call: answer_yes_to("system:bootstrappers:kubeadm:default-node-token", *call)
    condition = await harness.reconcile()
    assert (condition.met, condition.reason) == (False, "RemovalPending")
    assert FIRST in condition.message


@pytest.mark.parametrize("failing", [f"GET {BINDINGS}", "GET */clusterroles", f"POST {REVIEWS}"])
async def test_forbidden_reads_give_unknown(harness: RemovalHarness, failing: str) -> None:
    harness.api.faults.inject(failing, status=403)
    condition = await harness.reconcile()
    assert (condition.met, condition.reason) == (None, "Forbidden")
    assert "the controller may not" in condition.message


async def test_a_missing_grant_to_delete_is_named(harness: RemovalHarness) -> None:
    harness.api.faults.inject(f"DELETE {BINDINGS}/*", status=403, times=2)
    condition = await harness.reconcile()
    assert (condition.met, condition.reason) == (False, "Forbidden")
    assert "may not delete clusterrolebindings" in condition.message


async def test_forbidden_token_secrets_are_only_a_note(harness: RemovalHarness) -> None:
    harness.api.faults.inject("GET /api/v1/namespaces/kube-system/secrets", status=403)
    condition = await harness.reconcile()
    assert condition.met is True
    assert "may not list secrets" in condition.message


@pytest.mark.parametrize(
    "failing", [f"GET {BINDINGS}", f"POST {REVIEWS}", "GET /api/v1/namespaces/kube-system/secrets"]
)
async def test_an_api_server_that_fails_proves_nothing(harness: RemovalHarness, failing: str) -> None:
    harness.api.faults.inject(failing, status=503)
    assert (await harness.reconcile()).met is None


@pytest.mark.parametrize("status", [{}, {"allowed": "no"}, {"allowed": None}, None])
async def test_a_malformed_review_proves_nothing(harness: RemovalHarness, status: Any) -> None:
    async def garbage(method: str, path: str, body: JsonObject) -> JsonObject | None:
        return {"status": status} if path == REVIEWS else None

    harness.client.intercept = garbage
    assert ((await harness.reconcile()).met, (await harness.reconcile()).reason) == (None, "UnexpectedAnswer")


def failing_authorizer(status: JsonObject, *subresources: str, only_for: str = "") -> Callable[..., Any]:
    """Reviews of these subresources get this answer, as with an unreachable authorizer besides RBAC."""

    async def answer(method: str, path: str, body: JsonObject) -> JsonObject | None:
        if path != REVIEWS or body["spec"]["resourceAttributes"].get("subresource") not in subresources:
            return None
        return {"status": status} if only_for in ("", *body["spec"].get("groups", [])) else None

    return answer


WEBHOOK_DOWN: Final = "Post https://authorizer/: dial tcp: connection refused"


@pytest.mark.parametrize("denied", [False, True])
@pytest.mark.parametrize("auto_approval", ["nodeclient", "selfnodeclient"])
async def test_a_no_with_a_failed_authorizer_proves_nothing(
    harness: RemovalHarness, auto_approval: str, denied: bool
) -> None:
    """kube-controller-manager gets a yes as soon as the webhook is back."""
    status = {"allowed": False, "denied": denied, "evaluationError": f"{WEBHOOK_DOWN}\nBearer abcdef"}
    harness.client.intercept = failing_authorizer(status, auto_approval)
    condition = await harness.reconcile()
    assert (condition.met, condition.reason) == (None, "AuthorizerFailed")
    assert WEBHOOK_DOWN in condition.message
    assert "Bearer" not in condition.message
    assert not {FIRST, RENEWAL} & harness.bindings().keys(), "what was due is removed all the same"
    harness.client.intercept = nothing
    assert (await harness.reconcile()).met is True


@pytest.mark.parametrize(
    "status",
    [
        {"allowed": False, "reason": 'RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found'},
        {"allowed": False, "evaluationError": ""},
    ],
)
async def test_a_no_with_a_reason_is_a_no(harness: RemovalHarness, status: JsonObject) -> None:
    """RBAC gives this reason whenever a binding names a missing role."""
    harness.client.intercept = failing_authorizer(status, "nodeclient", "selfnodeclient")
    assert (await harness.reconcile()).met is True


async def test_a_yes_counts_despite_a_failed_authorizer(harness: RemovalHarness) -> None:
    status = {"allowed": True, "evaluationError": WEBHOOK_DOWN}
    harness.client.intercept = failing_authorizer(status, "nodeclient", only_for="system:nodes")
    assert ((await harness.reconcile()).met, (await harness.reconcile()).reason) == (False, "GrantedByAuthorizer")


@pytest.mark.parametrize(
    ("role", "met", "reason"),
    [("nodeclient", False, "GrantedByOtherBinding"), ("selfnodeclient", None, "AuthorizerFailed")],
)
async def test_a_failed_authorizer_does_not_hide_a_known_opening(
    harness: RemovalHarness, role: str, met: bool | None, reason: str
) -> None:
    """Tokens stay extended while the result is unknown. Renewal says nothing about first certificates."""
    harness.role("wide", f"certificatesigningrequests/{role}", "certificatesigningrequests")
    harness.bind("wide", "wide", ("Group", "system:bootstrappers"))
    status = {"allowed": False, "evaluationError": WEBHOOK_DOWN}
    harness.client.intercept = failing_authorizer(status, "nodeclient", "selfnodeclient", only_for="system:nodes")
    condition = await harness.reconcile()
    assert (condition.met, condition.reason) == (met, reason)
    assert WEBHOOK_DOWN in condition.message


async def test_a_closed_opening_proves_nothing_about_identities_not_reviewed(harness: RemovalHarness) -> None:
    """The cache still answers yes for tokens, and the authorizer fails once: the rest was not reviewed."""
    harness.role("wide", "certificatesigningrequests/nodeclient", "certificatesigningrequests")
    harness.bind("wide", "wide", ("User", "system:node:one"))
    once: JsonObject = {
        "system:bootstrappers": {"allowed": True},
        "system:nodes": {"allowed": False, "evaluationError": "down"},
    }

    async def answer(method: str, path: str, body: JsonObject) -> JsonObject | None:
        if path != REVIEWS or body["spec"]["resourceAttributes"].get("subresource") != "nodeclient":
            return None
        status = next((once.pop(group) for group in body["spec"].get("groups", []) if group in once), None)
        return {"status": status} if status else None

    harness.client.intercept = answer
    condition = await harness.reconcile()
    assert not once
    assert (condition.met, condition.reason) == (None, "AuthorizerFailed")
    assert (await harness.reconcile()).reason == "GrantedByOtherBinding"


@pytest.mark.parametrize("bound", ["MAXIMUM_ROLES", "MAXIMUM_BINDINGS", "MAXIMUM_TOKENS"])
async def test_too_many_grants_prove_nothing(
    harness: RemovalHarness, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.token("system:bootstrappers:edge")
    monkeypatch.setattr(workload_grants, bound, 0)
    assert ((await harness.reconcile()).met, (await harness.reconcile()).reason) == (None, "TooManyGrants")


async def test_too_many_subjects_prove_nothing(harness: RemovalHarness) -> None:
    harness.role("wide", "*")
    harness.bind("many", "wide", *(("User", f"user-{number}") for number in range(256)))
    condition = await harness.reconcile()
    assert (condition.met, condition.reason) == (None, "TooManyGrants")
    assert FIRST not in harness.bindings()


async def test_a_token_with_too_many_groups(harness: RemovalHarness) -> None:
    harness.token(",".join(f"system:bootstrappers:g{number}" for number in range(17)))
    assert (await harness.reconcile()).reason == "TooManyGroups"


@pytest.mark.parametrize("groups", ["", "none-of-ours", "\u00e9", "x" * 100])
async def test_invalid_groups_of_a_token_are_ignored(harness: RemovalHarness, groups: str) -> None:
    harness.token(groups)
    assert (await harness.reconcile()).met is True


async def test_a_binding_that_cannot_be_read_proves_nothing(
    harness: RemovalHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def pages(path: str, params: Any = None, limit: int = 0) -> AsyncIterator[JsonObject]:
        yield {"items": [{"metadata": {"name": "odd"}, "roleRef": "everything"}] if "bindings" in path else []}

    monkeypatch.setattr(harness.client, "list_pages", pages)
    condition = await harness.reconcile()
    assert (condition.met, condition.reason) == (None, "UnreadableGrant")
    assert "ClusterRoleBinding odd" in condition.message


@pytest.mark.parametrize("page", [{"items": {}}, {"items": [1]}, {"items": "all"}])
async def test_a_malformed_list(harness: RemovalHarness, page: JsonObject, monkeypatch: pytest.MonkeyPatch) -> None:
    async def pages(path: str, params: Any = None, limit: int = 0) -> AsyncIterator[JsonObject]:
        yield {**page, "items": page["items"] or {"a": 1}}

    monkeypatch.setattr(harness.client, "list_pages", pages)
    assert ((await harness.reconcile()).met, (await harness.reconcile()).reason) == (None, "UnexpectedAnswer")


async def test_an_api_server_that_hangs(harness: RemovalHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(method: str, path: str, body: JsonObject) -> JsonObject | None:
        await asyncio.Event().wait()
        return None

    monkeypatch.setattr(removal_module, "RECONCILE_TIMEOUT_SECONDS", 0.5)
    harness.client.intercept = hang
    assert (await harness.reconcile()).reason == "TimedOut"


# Restoration under Observe


async def test_an_incomplete_restoration_is_reported(harness: RemovalHarness) -> None:
    harness.role("mine", "certificatesigningrequests/nodeclient")
    harness.bind("mine", "mine", ("Group", "system:bootstrappers:a"))
    await harness.reconcile()
    harness.api.delete("clusterroles", "mine")
    condition = await harness.reconcile("Observe")
    assert (condition.met, condition.reason) == (False, "RestorationIncomplete")
    assert "ClusterRoleBinding mine: ClusterRole mine is gone" in condition.message
    assert {FIRST, RENEWAL} < harness.bindings().keys()
    assert await harness.kept() == ["mine"]


LATER: Final = f"sha256:{'cd' * 32}"
"""The CA that the cluster, or another one of its name, has now."""
ANOTHER: Final = cluster_view(uid="c-2")


async def test_a_rotated_ca_orphans_nothing(harness: RemovalHarness) -> None:
    """What was removed before comes back when Enforce is left, and so does what was removed since."""
    before = harness.bindings()
    await harness.reconcile()
    harness.bind("later", f"{BUILTIN}nodeclient", ("Group", "system:bootstrappers:a"))
    await harness.reconcile(ca_cert_hash=LATER)
    assert len(harness.management.config_maps()) == 1
    assert (await harness.reconcile("Observe", ca_cert_hash=LATER)).reason == "Observing"
    assert harness.bindings().keys() == {*before, "later"}
    assert harness.management.config_maps() == []


async def test_a_cluster_that_is_moved_after_its_ca_was_rotated(harness: RemovalHarness) -> None:
    """Nothing was removed under both the new CA and the old UID."""
    before = harness.bindings()
    await harness.reconcile()
    await harness.reconcile(ca_cert_hash=LATER)
    assert (await harness.reconcile("Observe", cluster=ANOTHER, ca_cert_hash=LATER)).reason == "Observing"
    assert harness.bindings() == before


async def test_what_is_saved_follows_the_cluster_once(harness: RemovalHarness) -> None:
    await harness.reconcile()
    harness.management.calls.clear()
    await harness.reconcile()
    assert harness.management.calls == []
    await harness.reconcile(ca_cert_hash=LATER, cluster=cluster_view(paused=True))
    assert harness.management.calls == [], "a paused Cluster may be about to move, with what is saved as it is"
    for _ in range(2):
        await harness.reconcile(ca_cert_hash=LATER)
        assert [call.split()[0] for call in harness.management.calls] == ["GET", "PATCH"]


async def test_what_is_saved_cannot_be_read_for_a_while(
    harness: RemovalHarness, caplog: pytest.LogCaptureFixture
) -> None:
    """It changes nothing of what Enforce does, and is tried again at the next look."""
    await harness.reconcile()
    (name,) = (one["metadata"]["name"] for one in harness.management.config_maps())
    fault = f"GET {CONFIG_MAPS.object(name, NAMESPACE)}"
    harness.management.failures[fault] = ServerError("etcd", status=500)
    assert (await harness.reconcile(ca_cert_hash=LATER)).reason == "Removed"
    assert "saved bindings cannot be read" in caplog.text
    harness.management.failures.clear()
    await harness.reconcile(ca_cert_hash=LATER)
    assert (await harness.reconcile("Observe", cluster=ANOTHER, ca_cert_hash=LATER)).reason == "Observing"


async def test_what_was_removed_from_another_cluster_is_left_to_a_person(harness: RemovalHarness) -> None:
    """It may be another one under the same name, or this one, which was moved and whose CA was replaced meanwhile."""
    await harness.reconcile()
    harness.bind("later", f"{BUILTIN}nodeclient", ("Group", "system:bootstrappers:a"))
    await harness.reconcile(cluster=ANOTHER, ca_cert_hash=LATER)
    (config_map,) = harness.management.config_maps()
    condition = await harness.reconcile("Observe", cluster=ANOTHER, ca_cert_hash=LATER)
    assert (condition.met, condition.reason) == (False, "RestorationIncomplete")
    name = config_map["metadata"]["name"]
    assert f"kubectl get configmap {name} --namespace {NAMESPACE} --output" in condition.message
    assert condition.message.endswith("delete the ConfigMap")
    assert "later" in harness.bindings()
    assert not {FIRST, RENEWAL} & harness.bindings().keys()
    # The person finds that it is another cluster.
    del harness.management.objects[f"{CONFIG_MAPS.collection(NAMESPACE)}/{name}"]
    assert (await harness.reconcile("Observe", cluster=ANOTHER, ca_cert_hash=LATER)).reason == "Observing"


async def test_a_cluster_that_was_replaced_and_put_back(harness: RemovalHarness) -> None:
    before = harness.bindings()
    await harness.reconcile()
    other = await harness.reconcile("Observe", cluster=ANOTHER, ca_cert_hash=LATER)
    assert other.reason == "RestorationIncomplete"
    assert (await harness.reconcile("Observe")).reason == "Observing"
    assert harness.bindings() == before


async def test_a_binding_held_by_finalizers_is_not_restored(harness: RemovalHarness) -> None:
    harness.api.patch("clusterrolebindings", FIRST, {"metadata": {"finalizers": ["example.com/held"]}})
    before = harness.bindings()
    await harness.reconcile()
    assert FIRST in harness.bindings()
    condition = await harness.reconcile("Observe")
    assert (condition.met, condition.reason) == (False, "RestorationIncomplete")
    assert f"ClusterRoleBinding {FIRST}: a binding of that name is being deleted" in condition.message
    harness.api.patch("clusterrolebindings", FIRST, {"metadata": {"finalizers": None}})
    assert FIRST not in harness.bindings()
    assert (await harness.reconcile("Observe")).reason == "Observing"
    assert harness.bindings() == before


async def test_a_failed_restoration_is_reported(harness: RemovalHarness) -> None:
    await harness.reconcile()
    harness.api.faults.inject(f"POST {BINDINGS}", status=503)
    assert (await harness.reconcile("Observe")).reason == "RestorationIncomplete"
    path = f"{CONFIG_MAPS.collection(NAMESPACE)}/{harness.management.config_maps()[0]['metadata']['name']}"
    harness.management.failures[f"GET {path}"] = ServerError("etcd", status=500)
    assert (await harness.reconcile("Observe")).reason == "RestorationIncomplete"
    harness.management.failures.clear()
    assert (await harness.reconcile("Observe")).reason == "Observing"
    assert {FIRST, RENEWAL} < harness.bindings().keys()


def test_a_situation_needs_a_ca_hash() -> None:
    with pytest.raises(ValueError, match="identified"):
        Situation(policy(), cluster_view(), "", (), frozenset())


# The grants that the controller needs

RULES: Final = [
    {"apiGroups": [RBAC], "resources": ["clusterroles"], "verbs": ["get", "list"]},
    {
        "apiGroups": [RBAC],
        "resources": ["clusterrolebindings"],
        "verbs": ["get", "list", "create", "patch", "delete"],
    },
    {
        "apiGroups": [RBAC],
        "resources": ["clusterroles"],
        "verbs": ["bind"],
        "resourceNames": [f"{BUILTIN}nodeclient", f"{BUILTIN}selfnodeclient"],
    },
    {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
    {"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]},
]


async def test_these_grants_suffice(harness: RemovalHarness) -> None:
    role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": "c"}, "rules": RULES}
    harness.api.create(role)
    harness.bind("c", "c", ("User", "controller"))
    before = harness.bindings()
    async with Calls(harness.api.connection("controller", [])) as client:
        harness.client = client
        condition = await harness.reconcile()
        assert (condition.met, condition.message) == (True, "the API server approves nothing without attestation")
        assert (await harness.reconcile("Observe")).reason == "Observing"
    assert harness.bindings() == before


@pytest.mark.parametrize("rule", range(len(RULES)))
async def test_each_of_these_grants_is_needed(harness: RemovalHarness, rule: int) -> None:
    rules = [one for number, one in enumerate(RULES) if number != rule]
    harness.api.create({"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": "c"}, "rules": rules})
    harness.bind("c", "c", ("User", "controller"))
    async with Calls(harness.api.connection("controller", [])) as client:
        harness.client = client
        conditions = [await harness.reconcile(), await harness.reconcile("Observe")]
    assert any("may not" in condition.message for condition in conditions)
