"""The verbs approve and sign, which writers of approvals and of certificates need besides update."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.api import Clients, grant, refused
from tests.support.processes import wait_until
from tests.support.raw_client import RawClient
from tests.support.signing_requests import COLLECTION, condition, signing_request, with_conditions

_GROUP = "certificates.k8s.io"
_OURS = "cluster.x-k8s.io/kube-apiserver-client-kubelet-tpm"


@pytest.fixture
def created(admin: RawClient, name: str) -> dict[str, Any]:
    request: dict[str, Any] = admin.post(COLLECTION, signing_request(name, signer=_OURS)).expect(201)
    return request


def _rules(subresource: str, verb: str, *signers: str) -> list[dict[str, list[str]]]:
    update = {
        "apiGroups": [_GROUP],
        "resources": [f"certificatesigningrequests/{subresource}"],
        "verbs": ["update", "patch"],
    }
    if not signers:
        return [update]
    return [{"apiGroups": [_GROUP], "resources": ["signers"], "resourceNames": [*signers], "verbs": [verb]}, update]


@pytest.mark.parametrize(
    ("subresource", "verb", "kind"), [("approval", "approve", "Approved"), ("status", "sign", "Failed")]
)
@pytest.mark.parametrize("signer", [_OURS, "cluster.x-k8s.io/*"])
def test_update_and_verb_on_the_signer_suffice(
    admin: RawClient,
    clients: Clients,
    created: dict[str, Any],
    name: str,
    subresource: str,
    verb: str,
    kind: str,
    signer: str,
) -> None:
    grant(admin, name, name, *_rules(subresource, verb, signer))
    client = clients.user("controller", name)
    body = with_conditions(created, condition(kind))
    # The rule that was waited for is not the one that the update needs; both arrive with one role.
    wait_until(lambda: client.put(f"{COLLECTION}/{name}/{subresource}", body).status == 200, "the write is allowed", 10)


@pytest.mark.parametrize(
    ("subresource", "verb", "kind"), [("approval", "approve", "Approved"), ("status", "sign", "Failed")]
)
@pytest.mark.parametrize("case", ["none", "another", "domain", "verb"])
def test_update_without_the_verb_on_this_signer_is_forbidden(
    admin: RawClient,
    clients: Clients,
    created: dict[str, Any],
    name: str,
    subresource: str,
    verb: str,
    kind: str,
    case: str,
) -> None:
    rules = {
        "none": _rules(subresource, verb),
        "another": _rules(subresource, verb, "cluster.x-k8s.io/kube-apiserver-client-kubelet-aws"),
        "domain": _rules(subresource, verb, "x-k8s.io/*"),
        "verb": _rules(subresource, "sign" if verb == "approve" else "approve", _OURS),
    }[case]
    grant(admin, name, name, *reversed(rules))
    client = clients.user("controller", name)
    body = with_conditions(created, condition(kind))
    refused(client.put(f"{COLLECTION}/{name}/{subresource}", body), 403, "Forbidden")
    patch = {"status": {"conditions": [condition(kind)]}}
    refused(client.patch(f"{COLLECTION}/{name}/{subresource}", patch), 403, "Forbidden")
    assert admin.get(f"{COLLECTION}/{name}").expect(200) == created


def test_verb_without_update_of_the_subresource_is_forbidden(
    admin: RawClient, clients: Clients, created: dict[str, Any], name: str
) -> None:
    grant(admin, name, name, *_rules("status", "approve", _OURS))
    body = with_conditions(created, condition("Approved"))
    refused(clients.user("controller", name).put(f"{COLLECTION}/{name}/approval", body), 403, "Forbidden")


def test_update_of_the_main_resource_needs_no_signer(
    admin: RawClient, clients: Clients, created: dict[str, Any], name: str
) -> None:
    rule = {"apiGroups": [_GROUP], "resources": ["certificatesigningrequests"], "verbs": ["update"]}
    grant(admin, name, name, rule)
    metadata = {**created["metadata"], "annotations": {"a": "b"}}
    client = clients.user("controller", name)
    client.put(f"{COLLECTION}/{name}", {**created, "metadata": metadata}).expect(200)
    refused(client.patch(f"{COLLECTION}/{name}", {"metadata": {"labels": {"a": "b"}}}), 403, "Forbidden")
    refused(client.get(f"{COLLECTION}/{name}"), 403, "Forbidden")
