"""What both API servers offer to the conformance tests, and how the tests read an answer."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from signer.kube.connection import ClusterConnection
from tests.support import kubeadm
from tests.support.processes import wait_until
from tests.support.raw_client import Answer, RawClient

ACCESS_REVIEWS: Final = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class Api(Protocol):
    """The part of ``ControlPlane`` and of ``EmbeddedAPI`` that the tests use."""

    def connection(self, user: str = ..., groups: Sequence[str] = ...) -> ClusterConnection: ...

    def token_connection(self, token: str) -> ClusterConnection: ...

    def bootstrap_token(self) -> str: ...

    def compact(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Clients:
    """Makes clients that are closed with the test."""

    api: Api
    stack: contextlib.ExitStack

    def user(self, user: str, *groups: str) -> RawClient:
        """A client with a client certificate of this user and these groups."""
        return self.stack.enter_context(RawClient(self.api.connection(user, groups)))

    def node(self, name: str) -> RawClient:
        """A client with a kubelet's certificate."""
        return self.user(f"system:node:{name}", "system:nodes")

    def bearer(self, token: str) -> RawClient:
        """A client with a bearer token."""
        return self.stack.enter_context(RawClient(self.api.token_connection(token)))

    def with_headers(self, client: RawClient, **headers: str) -> RawClient:
        """The same user with more headers; an underscore in a name stands for a dash."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.stack.enter_context(client.with_headers(named))


@contextlib.contextmanager
def open_embedded_api() -> Iterator[Api]:
    """The embedded API, seeded like a kubeadm cluster."""
    from signer.testing.api import EmbeddedAPI

    with EmbeddedAPI(seed_kubeadm=True, bookmark_seconds=0.5) as embedded:
        yield embedded


def version_of(client: RawClient) -> tuple[int, int]:
    """The server's version; vendors write minor versions such as ``31+``."""
    answer = client.get("/version").expect(200)
    digits = re.match(r"\d+", answer["minor"])
    if digits is None:
        raise ValueError(f"not a version: {answer['minor']!r}")
    return int(answer["major"]), int(digits.group())


def refused(answer: Answer, code: int, reason: str) -> dict[str, Any]:
    """Check that an answer is a well-formed ``Status`` of a failure, and return it."""
    body: dict[str, Any] = answer.expect(code)
    assert body["kind"] == "Status"
    assert body["apiVersion"] == "v1"
    assert body["status"] == "Failure"
    assert (body["code"], body.get("reason")) == (code, reason), body.get("message")
    return body


def fields(status: dict[str, Any]) -> set[str]:
    """The fields that a ``Status`` of reason Invalid names as causes."""
    return {cause.get("field", "") for cause in status["details"]["causes"]}


def allowed(admin: RawClient, user: str, groups: Sequence[str], **attributes: str) -> bool:
    """Ask the API server whether somebody may do something."""
    review = kubeadm.subject_access_review(user, list(groups), attributes)
    return bool(admin.post(ACCESS_REVIEWS, review).expect(201)["status"]["allowed"])


def grant(admin: RawClient, name: str, group: str, *rules: dict[str, list[str]]) -> None:
    """Give ``group`` a ClusterRole of these rules; returns when the API server acts on the first of them."""
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": list(rules),
    }
    admin.post(f"{kubeadm.RBAC}/clusterroles", role).expect(201)
    binding = kubeadm.cluster_role_binding(name, name, group)
    admin.post(f"{kubeadm.RBAC}/clusterrolebindings", binding).expect(201)
    first = rules[0]
    resource, _, subresource = first["resources"][0].partition("/")
    attributes = {
        "group": first["apiGroups"][0],
        "resource": resource,
        "subresource": subresource,
        "verb": first["verbs"][0],
        "name": first.get("resourceNames", [""])[0],
    }
    wait_until(lambda: allowed(admin, "anybody", [group], **attributes), f"the grant {name} is in force")
