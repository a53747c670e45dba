"""The auto-approval when others write, the API servers fail or lie, and with the grants that the controller needs."""

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
from signer.store.removed_bindings import RemovedBindings
from tests.unit.signer.builders import cluster_view, policy
from tests.unit.signer.controller.auto_approval.removal_fixtures import (
    BINDINGS,
    BUILTIN,
    FIRST,
    RBAC,
    RENEWAL,
    REVIEWS,
    Calls,
    House,
    answer_yes_to,
    api,
    house,
    nothing,
)
from tests.unit.signer.store.removed_bindings_fixtures import NAMESPACE

__all__ = ["api", "house"]


# Order, races and faults


async def test_nothing_is_deleted_before_it_is_kept(house: House) -> None:
    kept_at_delete: list[list[str]] = []

    async def look(method: str, path: str, body: JsonObject) -> JsonObject | None:
        if method == "DELETE":
            kept_at_delete.append(await house.kept())
        return None

    house.client.intercept = look
    await house.reconcile()
    assert kept_at_delete == [[FIRST, RENEWAL]] * 2


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_what_cannot_be_kept_is_not_deleted(house: House, method: str) -> None:
    path = CONFIG_MAPS.collection(NAMESPACE)
    if method == "GET":
        path = f"{path}/{await name_of_config_map(house)}"
    house.management.failures[f"{method} {path}"] = Forbidden("no configmaps", status=403)
    condition = await house.reconcile()
    assert (condition.met, condition.reason) == (False, "RemovedGrantsNotKept")
    assert "no configmaps" in condition.message
    assert house.writes() == []
    house.management.failures.clear()
    assert (await house.reconcile()).met is True


async def name_of_config_map(house: House) -> str:
    await RemovedBindings(house.management, NAMESPACE).keep(house.owner, [])
    return str(house.management.config_maps()[0]["metadata"]["name"])


async def test_a_binding_that_changes_meanwhile_is_looked_at_again(house: House) -> None:
    """It may grant something else by now; and what is kept is what was there at the end."""
    once = [{"metadata": {"labels": {"changed": "meanwhile"}}}]

    async def change(method: str, path: str, body: JsonObject) -> JsonObject | None:
        if method == "DELETE" and path.endswith(FIRST) and once:
            await asyncio.to_thread(house.api.patch, "clusterrolebindings", FIRST, once.pop())
        return None

    house.client.intercept = change
    condition = await house.reconcile(unattested=("machine-1",))
    assert condition.reason == "WaitingForAttestation"  # the conflict is over, and not told
    assert FIRST not in house.bindings()
    await house.reconcile("Observe")
    assert house.bindings()[FIRST]["labels"] == {"changed": "meanwhile"}


async def test_a_binding_that_never_stays_the_same(house: House) -> None:
    numbers = iter(range(100))

    async def change(method: str, path: str, body: JsonObject) -> JsonObject | None:
        if method == "DELETE" and path.endswith(FIRST):
            patch = {"metadata": {"labels": {"changed": str(next(numbers))}}}
            await asyncio.to_thread(house.api.patch, "clusterrolebindings", FIRST, patch)
        return None

    house.client.intercept = change
    condition = await house.reconcile()
    assert (condition.met, condition.reason) == (False, "RemovalPending")
    assert next(numbers) == 3


async def test_one_that_is_gone_meanwhile(house: House) -> None:
    async def take(method: str, path: str, body: JsonObject) -> JsonObject | None:
        if method == "DELETE":
            await asyncio.to_thread(house.api.delete, "clusterrolebindings", path.rpartition("/")[2])
        return None

    house.client.intercept = take
    assert (await house.reconcile()).met is True


async def test_a_crash_between_keeping_and_deleting_loses_nothing(house: House) -> None:
    before = house.bindings()

    async def crash(method: str, path: str, body: JsonObject) -> JsonObject | None:
        if method == "DELETE":
            raise asyncio.CancelledError
        return None

    house.client.intercept = crash
    with pytest.raises(asyncio.CancelledError):
        await house.reconcile()
    house.client.intercept = nothing
    assert await house.kept() == [FIRST, RENEWAL]
    assert house.bindings() == before
    await house.reconcile("Observe")
    assert house.bindings() == before
    assert await house.kept() == []


async def test_a_deletion_that_fails_is_told_and_tried_again(house: House) -> None:
    house.api.faults.inject(f"DELETE {BINDINGS}/{FIRST}", status=503)
    condition = await house.reconcile()
    assert (condition.met, condition.reason) == (False, "RemovalPending")
    assert FIRST in condition.message
    assert (await house.reconcile()).met is True


async def test_the_authorizers_cache_is_given_a_moment(house: House) -> None:
    """Real API servers answer from a cache: the first answers after a removal may be old."""
    stale = [True] * 3

    async def old_answer(method: str, path: str, body: JsonObject) -> JsonObject | None:
        if path == REVIEWS and "system:nodes" in body["spec"].get("groups", []) and stale:
            stale.pop()
            return {"status": {"allowed": True}}
        return None

    house.client.intercept = old_answer
    assert (await house.reconcile()).met is True
    assert not stale


async def test_a_removal_that_never_takes_effect(house: House) -> None:
    house.client.intercept = lambda *call: answer_yes_to("system:bootstrappers:kubeadm:default-node-token", *call)
    condition = await house.reconcile()
    assert (condition.met, condition.reason) == (False, "RemovalPending")
    assert FIRST in condition.message


@pytest.mark.parametrize("failing", [f"GET {BINDINGS}", "GET */clusterroles", f"POST {REVIEWS}"])
async def test_what_may_not_be_read_is_unknown(house: House, failing: str) -> None:
    house.api.faults.inject(failing, status=403)
    condition = await house.reconcile()
    assert (condition.met, condition.reason) == (None, "Forbidden")
    assert "the controller may not" in condition.message


async def test_a_missing_grant_to_delete_is_named(house: House) -> None:
    house.api.faults.inject(f"DELETE {BINDINGS}/*", status=403, times=2)
    condition = await house.reconcile()
    assert (condition.met, condition.reason) == (False, "Forbidden")
    assert "may not delete clusterrolebindings" in condition.message


async def test_token_secrets_that_may_not_be_listed_are_no_error(house: House) -> None:
    house.api.faults.inject("GET /api/v1/namespaces/kube-system/secrets", status=403)
    condition = await house.reconcile()
    assert condition.met is True
    assert "may not list secrets" in condition.message


@pytest.mark.parametrize(
    "failing", [f"GET {BINDINGS}", f"POST {REVIEWS}", "GET /api/v1/namespaces/kube-system/secrets"]
)
async def test_an_api_server_that_fails_proves_nothing(house: House, failing: str) -> None:
    house.api.faults.inject(failing, status=503)
    assert (await house.reconcile()).met is None


@pytest.mark.parametrize("status", [{}, {"allowed": "no"}, {"allowed": None}, None])
async def test_an_answer_that_is_no_answer_proves_nothing(house: House, status: Any) -> None:
    async def garbage(method: str, path: str, body: JsonObject) -> JsonObject | None:
        return {"status": status} if path == REVIEWS else None

    house.client.intercept = garbage
    assert ((await house.reconcile()).met, (await house.reconcile()).reason) == (None, "UnexpectedAnswer")


def failing_authorizer(status: JsonObject, *subresources: str, only_for: str = "") -> Callable[..., Any]:
    """What is asked of these doors is answered so: beside RBAC there is an authorizer that cannot be reached."""

    async def answer(method: str, path: str, body: JsonObject) -> JsonObject | None:
        if path != REVIEWS or body["spec"]["resourceAttributes"].get("subresource") not in subresources:
            return None
        return {"status": status} if only_for in ("", *body["spec"].get("groups", [])) else None

    return answer


WEBHOOK_DOWN: Final = "Post https://authorizer/: dial tcp: connection refused"


@pytest.mark.parametrize("denied", [False, True])
@pytest.mark.parametrize("auto_approval", ["nodeclient", "selfnodeclient"])
async def test_a_no_of_all_authorizers_but_one_proves_nothing(house: House, auto_approval: str, denied: bool) -> None:
    """kube-controller-manager is told yes as soon as the webhook is back."""
    status = {"allowed": False, "denied": denied, "evaluationError": f"{WEBHOOK_DOWN}\nBearer abcdef"}
    house.client.intercept = failing_authorizer(status, auto_approval)
    condition = await house.reconcile()
    assert (condition.met, condition.reason) == (None, "AuthorizerFailed")
    assert WEBHOOK_DOWN in condition.message
    assert "Bearer" not in condition.message
    assert not {FIRST, RENEWAL} & house.bindings().keys(), "what was due is removed all the same"
    house.client.intercept = nothing
    assert (await house.reconcile()).met is True


@pytest.mark.parametrize(
    "status",
    [
        {"allowed": False, "reason": 'RBAC: clusterrole.rbac.authorization.k8s.io "gone" not found'},
        {"allowed": False, "evaluationError": ""},
    ],
)
async def test_a_no_with_a_reason_is_a_no(house: House, status: JsonObject) -> None:
    """RBAC says so, every time, where a role that a binding names is missing."""
    house.client.intercept = failing_authorizer(status, "nodeclient", "selfnodeclient")
    assert (await house.reconcile()).met is True


async def test_a_yes_is_one_whatever_failed(house: House) -> None:
    status = {"allowed": True, "evaluationError": WEBHOOK_DOWN}
    house.client.intercept = failing_authorizer(status, "nodeclient", only_for="system:nodes")
    assert ((await house.reconcile()).met, (await house.reconcile()).reason) == (False, "GrantedByAuthorizer")


@pytest.mark.parametrize(
    ("role", "met", "reason"),
    [("nodeclient", False, "GrantedByOtherBinding"), ("selfnodeclient", None, "AuthorizerFailed")],
)
async def test_a_door_that_is_known_to_be_open_is_not_hidden_by_an_authorizer_that_fails(
    house: House, role: str, met: bool | None, reason: str
) -> None:
    """Tokens are left to live long where nothing is known. Renewal that is open says nothing of first certificates."""
    house.role("wide", f"certificatesigningrequests/{role}", "certificatesigningrequests")
    house.bind("wide", "wide", ("Group", "system:bootstrappers"))
    status = {"allowed": False, "evaluationError": WEBHOOK_DOWN}
    house.client.intercept = failing_authorizer(status, "nodeclient", "selfnodeclient", only_for="system:nodes")
    condition = await house.reconcile()
    assert (condition.met, condition.reason) == (met, reason)
    assert WEBHOOK_DOWN in condition.message


async def test_a_door_that_is_shut_in_the_end_says_nothing_of_those_who_were_not_asked(house: House) -> None:
    """The cache still says yes to tokens, the authorizer fails once and is back: the others were not asked then."""
    house.role("wide", "certificatesigningrequests/nodeclient", "certificatesigningrequests")
    house.bind("wide", "wide", ("User", "system:node:one"))
    once: JsonObject = {
        "system:bootstrappers": {"allowed": True},
        "system:nodes": {"allowed": False, "evaluationError": "down"},
    }

    async def answer(method: str, path: str, body: JsonObject) -> JsonObject | None:
        if path != REVIEWS or body["spec"]["resourceAttributes"].get("subresource") != "nodeclient":
            return None
        status = next((once.pop(group) for group in body["spec"].get("groups", []) if group in once), None)
        return {"status": status} if status else None

    house.client.intercept = answer
    condition = await house.reconcile()
    assert not once
    assert (condition.met, condition.reason) == (None, "AuthorizerFailed")
    assert (await house.reconcile()).reason == "GrantedByOtherBinding"


@pytest.mark.parametrize("bound", ["MAXIMUM_ROLES", "MAXIMUM_BINDINGS", "MAXIMUM_TOKENS"])
async def test_more_than_is_read_proves_nothing(house: House, bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    house.token("system:bootstrappers:edge")
    monkeypatch.setattr(workload_grants, bound, 0)
    assert ((await house.reconcile()).met, (await house.reconcile()).reason) == (None, "TooManyGrants")


async def test_more_subjects_than_are_asked_about_prove_nothing(house: House) -> None:
    house.role("wide", "*")
    house.bind("many", "wide", *(("User", f"user-{number}") for number in range(256)))
    condition = await house.reconcile()
    assert (condition.met, condition.reason) == (None, "TooManyGrants")
    assert FIRST not in house.bindings()


async def test_a_token_with_more_groups_than_are_read(house: House) -> None:
    house.token(",".join(f"system:bootstrappers:g{number}" for number in range(17)))
    assert (await house.reconcile()).reason == "TooManyGroups"


@pytest.mark.parametrize("groups", ["", "none-of-ours", "\u00e9", "x" * 100])
async def test_a_token_with_groups_that_do_not_count(house: House, groups: str) -> None:
    house.token(groups)
    assert (await house.reconcile()).met is True


async def test_a_binding_that_cannot_be_read_proves_nothing(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    async def pages(path: str, params: Any = None, limit: int = 0) -> AsyncIterator[JsonObject]:
        yield {"items": [{"metadata": {"name": "odd"}, "roleRef": "everything"}] if "bindings" in path else []}

    monkeypatch.setattr(house.client, "list_pages", pages)
    condition = await house.reconcile()
    assert (condition.met, condition.reason) == (None, "UnreadableGrant")
    assert "ClusterRoleBinding odd" in condition.message


@pytest.mark.parametrize("page", [{"items": {}}, {"items": [1]}, {"items": "all"}])
async def test_a_list_that_is_none(house: House, page: JsonObject, monkeypatch: pytest.MonkeyPatch) -> None:
    async def pages(path: str, params: Any = None, limit: int = 0) -> AsyncIterator[JsonObject]:
        yield {**page, "items": page["items"] or {"a": 1}}

    monkeypatch.setattr(house.client, "list_pages", pages)
    assert ((await house.reconcile()).met, (await house.reconcile()).reason) == (None, "UnexpectedAnswer")


async def test_an_api_server_that_hangs(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    async def hang(method: str, path: str, body: JsonObject) -> JsonObject | None:
        await asyncio.Event().wait()
        return None

    monkeypatch.setattr(removal_module, "RECONCILE_TIMEOUT_SECONDS", 0.5)
    house.client.intercept = hang
    assert (await house.reconcile()).reason == "TimedOut"


# Restoration under Observe


async def test_restoration_that_is_incomplete_is_told(house: House) -> None:
    house.role("mine", "certificatesigningrequests/nodeclient")
    house.bind("mine", "mine", ("Group", "a"))
    await house.reconcile()
    house.api.delete("clusterroles", "mine")
    condition = await house.reconcile("Observe")
    assert (condition.met, condition.reason) == (False, "RestorationIncomplete")
    assert "ClusterRoleBinding mine: ClusterRole mine is gone" in condition.message
    assert {FIRST, RENEWAL} < house.bindings().keys()
    assert await house.kept() == ["mine"]


LATER: Final = f"sha256:{'cd' * 32}"
"""The CA that the cluster, or another one of its name, has now."""
ANOTHER: Final = cluster_view(uid="c-2")


async def test_a_rotated_ca_orphans_nothing(house: House) -> None:
    """What was removed before comes back when Enforce is left, and so does what was removed since."""
    before = house.bindings()
    await house.reconcile()
    house.bind("later", f"{BUILTIN}nodeclient", ("Group", "a"))
    await house.reconcile(ca_cert_hash=LATER)
    assert len(house.management.config_maps()) == 1
    assert (await house.reconcile("Observe", ca_cert_hash=LATER)).reason == "Observing"
    assert house.bindings().keys() == {*before, "later"}
    assert house.management.config_maps() == []


async def test_a_cluster_that_is_moved_after_its_ca_was_rotated(house: House) -> None:
    """Nothing was removed under both the new CA and the old UID."""
    before = house.bindings()
    await house.reconcile()
    await house.reconcile(ca_cert_hash=LATER)
    assert (await house.reconcile("Observe", cluster=ANOTHER, ca_cert_hash=LATER)).reason == "Observing"
    assert house.bindings() == before


async def test_what_is_saved_follows_the_cluster_once(house: House) -> None:
    await house.reconcile()
    house.management.calls.clear()
    await house.reconcile()
    assert house.management.calls == []
    await house.reconcile(ca_cert_hash=LATER, cluster=cluster_view(paused=True))
    assert house.management.calls == [], "a paused Cluster may be about to move, with what is saved as it is"
    for _ in range(2):
        await house.reconcile(ca_cert_hash=LATER)
        assert [call.split()[0] for call in house.management.calls] == ["GET", "PATCH"]


async def test_what_is_saved_cannot_be_read_for_a_while(house: House, caplog: pytest.LogCaptureFixture) -> None:
    """It changes nothing of what Enforce does, and is tried again at the next look."""
    await house.reconcile()
    (name,) = (one["metadata"]["name"] for one in house.management.config_maps())
    fault = f"GET {CONFIG_MAPS.object(name, NAMESPACE)}"
    house.management.failures[fault] = ServerError("etcd", status=500)
    assert (await house.reconcile(ca_cert_hash=LATER)).reason == "Removed"
    assert "saved bindings cannot be read" in caplog.text
    house.management.failures.clear()
    await house.reconcile(ca_cert_hash=LATER)
    assert (await house.reconcile("Observe", cluster=ANOTHER, ca_cert_hash=LATER)).reason == "Observing"


async def test_what_was_removed_from_another_cluster_is_left_to_a_person(house: House) -> None:
    """It may be another one under the same name, or this one, which was moved and whose CA was replaced meanwhile."""
    await house.reconcile()
    house.bind("later", f"{BUILTIN}nodeclient", ("Group", "a"))
    await house.reconcile(cluster=ANOTHER, ca_cert_hash=LATER)
    (config_map,) = house.management.config_maps()
    condition = await house.reconcile("Observe", cluster=ANOTHER, ca_cert_hash=LATER)
    assert (condition.met, condition.reason) == (False, "RestorationIncomplete")
    name = config_map["metadata"]["name"]
    assert f"kubectl get configmap {name} --namespace {NAMESPACE} --output" in condition.message
    assert condition.message.endswith("delete the ConfigMap")
    assert "later" in house.bindings()
    assert not {FIRST, RENEWAL} & house.bindings().keys()
    # The person finds that it is another cluster.
    del house.management.objects[f"{CONFIG_MAPS.collection(NAMESPACE)}/{name}"]
    assert (await house.reconcile("Observe", cluster=ANOTHER, ca_cert_hash=LATER)).reason == "Observing"


async def test_a_cluster_that_was_replaced_and_put_back(house: House) -> None:
    before = house.bindings()
    await house.reconcile()
    other = await house.reconcile("Observe", cluster=ANOTHER, ca_cert_hash=LATER)
    assert other.reason == "RestorationIncomplete"
    assert (await house.reconcile("Observe")).reason == "Observing"
    assert house.bindings() == before


async def test_a_binding_that_its_finalizers_hold_is_not_back(house: House) -> None:
    house.api.patch("clusterrolebindings", FIRST, {"metadata": {"finalizers": ["example.com/held"]}})
    before = house.bindings()
    await house.reconcile()
    assert FIRST in house.bindings()
    condition = await house.reconcile("Observe")
    assert (condition.met, condition.reason) == (False, "RestorationIncomplete")
    assert f"ClusterRoleBinding {FIRST}: one of its name is being deleted" in condition.message
    house.api.patch("clusterrolebindings", FIRST, {"metadata": {"finalizers": None}})
    assert FIRST not in house.bindings()
    assert (await house.reconcile("Observe")).reason == "Observing"
    assert house.bindings() == before


async def test_restoration_that_fails_is_told(house: House) -> None:
    await house.reconcile()
    house.api.faults.inject(f"POST {BINDINGS}", status=503)
    assert (await house.reconcile("Observe")).reason == "RestorationIncomplete"
    path = f"{CONFIG_MAPS.collection(NAMESPACE)}/{house.management.config_maps()[0]['metadata']['name']}"
    house.management.failures[f"GET {path}"] = ServerError("etcd", status=500)
    assert (await house.reconcile("Observe")).reason == "RestorationIncomplete"
    house.management.failures.clear()
    assert (await house.reconcile("Observe")).reason == "Observing"
    assert {FIRST, RENEWAL} < house.bindings().keys()


def test_a_cluster_without_a_ca_hash_is_no_situation() -> None:
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


async def test_these_grants_suffice(house: House) -> None:
    role = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": "c"}, "rules": RULES}
    house.api.create(role)
    house.bind("c", "c", ("User", "controller"))
    before = house.bindings()
    async with Calls(house.api.connection("controller", [])) as client:
        house.client = client
        condition = await house.reconcile()
        assert (condition.met, condition.message) == (True, "the API server approves nothing without attestation")
        assert (await house.reconcile("Observe")).reason == "Observing"
    assert house.bindings() == before


@pytest.mark.parametrize("rule", range(len(RULES)))
async def test_each_of_these_grants_is_needed(house: House, rule: int) -> None:
    rules = [one for number, one in enumerate(RULES) if number != rule]
    house.api.create({"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": "c"}, "rules": rules})
    house.bind("c", "c", ("User", "controller"))
    async with Calls(house.api.connection("controller", [])) as client:
        house.client = client
        conditions = [await house.reconcile(), await house.reconcile("Observe")]
    assert any("may not" in condition.message for condition in conditions)
