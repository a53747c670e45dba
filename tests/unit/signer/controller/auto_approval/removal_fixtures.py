"""A workload cluster with its auto-approval, saved bindings, and a hook between the calls."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Final

import pytest

from signer.controller.auto_approval import removal as removal_module
from signer.controller.auto_approval.findings import Situation
from signer.controller.auto_approval.removal import AutoApprovalRemoval
from signer.kube.backoff import Backoff
from signer.kube.client import Client, JsonObject
from signer.kube.resources import CLUSTER_ROLE_BINDINGS
from signer.model.auto_approval import ClusterIdentity
from signer.model.cluster import ClusterView
from signer.model.condition import AUTO_APPROVAL_REMOVED, PolicyCondition
from signer.model.saved_bindings import SavedBindings
from signer.testing.api import EmbeddedAPI
from tests.unit.signer.builders import CLUSTER, cluster_view, policy
from tests.unit.signer.store.removed_bindings_fixtures import ObjectStore, removed_bindings

HASH: Final = f"sha256:{'ab' * 32}"
RBAC: Final = "rbac.authorization.k8s.io"
FIRST, RENEWAL = "kubeadm:node-autoapprove-bootstrap", "kubeadm:node-autoapprove-certificate-rotation"
BUILTIN: Final = "system:certificates.k8s.io:certificatesigningrequests:"
REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
BINDINGS: Final = CLUSTER_ROLE_BINDINGS.collection()
Intercept = Callable[[str, str, JsonObject], Awaitable[JsonObject | None]]


async def nothing(method: str, path: str, body: JsonObject) -> JsonObject | None:
    """No interference."""
    return None


class Calls(Client):
    """The controller's client, with a hook before each call."""

    intercept: Intercept = staticmethod(nothing)

    async def create(self, path: str, body: JsonObject, params: Any = None) -> JsonObject:
        return await self.intercept("POST", path, body) or await super().create(path, body, params)

    async def delete(self, path: str, **preconditions: Any) -> JsonObject:
        return await self.intercept("DELETE", path, {}) or await super().delete(path, **preconditions)


class RemovalHarness:
    """One workload cluster, its saved bindings, and its auto-approval."""

    def __init__(self, api: EmbeddedAPI, client: Calls) -> None:
        self.api = api
        self.client = client
        self.management = ObjectStore()
        self.removed = removed_bindings(self.management)
        self.auto_approval = AutoApprovalRemoval(self.removed)
        self.owner = ClusterIdentity(CLUSTER, cluster_view().uid, HASH)

    async def reconcile(
        self,
        mode: str = "Enforce",
        unattested: tuple[str, ...] = (),
        tokens: frozenset[frozenset[str]] = frozenset(),
        cluster: ClusterView | None = None,
        ca_cert_hash: str = HASH,
    ) -> PolicyCondition:
        situation = Situation(policy(mode=mode), cluster or cluster_view(), ca_cert_hash, unattested, tokens)
        condition = await self.auto_approval.reconcile(self.client, situation)
        assert condition.type == AUTO_APPROVAL_REMOVED
        assert condition.message.isprintable()
        assert 0 < len(condition.message) <= 1024
        return condition

    def bindings(self) -> dict[str, Any]:
        """The relevant part of each ClusterRoleBinding."""
        return {
            item["metadata"]["name"]: {
                "labels": item["metadata"].get("labels"),
                "annotations": item["metadata"].get("annotations"),
                "roleRef": item["roleRef"],
                "subjects": item.get("subjects"),
            }
            for item in self.api.objects("clusterrolebindings")
        }

    def bind(self, name: str, role: str, *subjects: tuple[str, str], **metadata: Any) -> None:
        self.api.create(
            {
                "apiVersion": f"{RBAC}/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": name, **metadata},
                "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
                "subjects": [
                    {"kind": kind, "name": subject, "namespace": "ci"}
                    if kind == "ServiceAccount"
                    else {"apiGroup": RBAC, "kind": kind, "name": subject}
                    for kind, subject in subjects
                ],
            }
        )

    def role(self, name: str, *resources: str, verbs: tuple[str, ...] = ("create",), **fields: Any) -> None:
        rules = [{"apiGroups": ["certificates.k8s.io"], "resources": list(resources), "verbs": list(verbs)}]
        metadata = {"name": name}
        self.api.create(
            {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": metadata, "rules": rules, **fields}
        )

    def token(self, groups: str) -> None:
        data = {"token-id": "abcdef", "token-secret": "0123456789abcdef", "auth-extra-groups": groups}
        self.api.create(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": "bootstrap-token-abcdef", "namespace": "kube-system"},
                "type": "bootstrap.kubernetes.io/token",
                "stringData": data,
            }
        )

    async def kept(self) -> list[str]:
        found = await self.removed.saved(self.owner.key)
        return sorted(found.of(self.owner).bindings) if isinstance(found, SavedBindings) else []

    def writes(self) -> list[str]:
        """Writes to the workload cluster, except reviews."""
        return [f"{entry.method} {entry.path}" for entry in self.api.requests.writes() if entry.path != REVIEWS]


async def answer_yes_to(group: str, method: str, path: str, body: JsonObject) -> JsonObject | None:
    if path == REVIEWS and group in body["spec"].get("groups", []):
        auto_approval = body["spec"]["resourceAttributes"].get("subresource")
        if auto_approval == "nodeclient":
            return {"status": {"allowed": True, "reason": "by the\nwebhook"}}
    return None


@pytest.fixture
def api() -> Iterator[EmbeddedAPI]:
    with EmbeddedAPI(seed_kubeadm=True) as running:
        yield running


@pytest.fixture
async def harness(api: EmbeddedAPI, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RemovalHarness]:
    monkeypatch.setattr(
        removal_module, "_RBAC_LAG_BACKOFF", Backoff(base_seconds=0.001, maximum_seconds=0.001, jitter=0)
    )
    async with Calls(api.connection()) as client:
        yield RemovalHarness(api, client)
