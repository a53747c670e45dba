"""Who a request comes from: client certificates, bootstrap tokens, impersonation."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from tests.conformance.api import ACCESS_REVIEWS, Api, Clients, grant, refused
from tests.support.kubeadm import NODE_TOKEN_GROUP, BootstrapToken
from tests.support.processes import wait_until
from tests.support.raw_client import RawClient
from tests.support.signing_requests import COLLECTION, signing_request

_SELF_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_SECRETS = "/api/v1/namespaces/kube-system/secrets"


def _who(client: RawClient, name: str) -> tuple[str, set[str]]:
    """The user and the groups that the server takes a client for: it writes them into a request's spec."""
    spec = client.post(COLLECTION, signing_request(name)).expect(201)["spec"]
    return spec["username"], set(spec["groups"])


@pytest.mark.parametrize("token", ["unknown", "abcdef.0123456789abcdef", "a.b.c"])
def test_unknown_token_is_unauthorized(clients: Clients, token: str) -> None:
    client = clients.bearer(token)
    refused(client.get(COLLECTION), 401, "Unauthorized")


def test_certificate_names_user_and_groups(clients: Clients, name: str) -> None:
    user, groups = _who(clients.user("somebody", "system:masters", "a group"), name)
    assert (user, groups) == ("somebody", {"system:masters", "a group", "system:authenticated"})


def test_certificate_without_groups_is_an_authenticated_user(clients: Clients) -> None:
    status = refused(clients.user("somebody").get(COLLECTION), 403, "Forbidden")
    assert 'User "somebody" cannot list resource "certificatesigningrequests"' in status["message"]


def _token_secret(**changes: str | None) -> tuple[str, dict[str, Any]]:
    token = BootstrapToken.random()
    secret = token.as_secret(datetime.timedelta(minutes=15))
    for key, value in changes.items():
        data = secret["stringData"]
        field = key.replace("_", "-")
        if value is None:
            del data[field]
        else:
            data[field] = value
    return token.token, secret


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"expiration": "2020-01-01T00:00:00Z"}, id="expired"),
        pytest.param({"expiration": "soon"}, id="expiration-unreadable"),
        pytest.param({"usage_bootstrap_authentication": "false"}, id="not-for-authentication"),
        pytest.param({"usage_bootstrap_authentication": None}, id="usage-missing"),
        pytest.param({"token_id": "abcdef"}, id="another-id"),
        pytest.param({"token_secret": "0123456789abcdef"}, id="another-secret"),
        pytest.param({"token_secret": None}, id="secret-missing"),
    ],
)
def test_bootstrap_token_is_not_accepted(
    admin: RawClient, api: Api, clients: Clients, changes: dict[str, str | None]
) -> None:
    token, secret = _token_secret(**changes)
    admin.post(_SECRETS, secret).expect(201)
    # The server learns of Secrets by a watch: when it accepts a later token, it has seen this one.
    api.bootstrap_token()
    refused(clients.bearer(token).get(COLLECTION), 401, "Unauthorized")


def test_bootstrap_token_of_another_secret_type_is_not_accepted(admin: RawClient, api: Api, clients: Clients) -> None:
    token, secret = _token_secret()
    admin.post(_SECRETS, {**secret, "type": "Opaque"}).expect(201)
    api.bootstrap_token()
    refused(clients.bearer(token).get(COLLECTION), 401, "Unauthorized")


def test_bootstrap_token_without_expiration_and_groups_is_accepted(admin: RawClient, clients: Clients) -> None:
    token, secret = _token_secret(expiration=None, auth_extra_groups=None)
    admin.post(_SECRETS, secret).expect(201)
    client = clients.bearer(token)
    wait_until(lambda: client.get("/version").status == 200, "the token is accepted")
    assert NODE_TOKEN_GROUP not in client.get(COLLECTION).expect(403)["message"]


def test_deleted_bootstrap_token_is_not_accepted(admin: RawClient, api: Api, clients: Clients) -> None:
    # Never used before: a token that was accepted is remembered for ten seconds.
    token, secret = _token_secret()
    admin.post(_SECRETS, secret).expect(201)
    admin.delete(f"{_SECRETS}/{secret['metadata']['name']}").expect(200)
    api.bootstrap_token()
    refused(clients.bearer(token).get(COLLECTION), 401, "Unauthorized")


def test_administrator_may_impersonate(admin: RawClient, clients: Clients, name: str) -> None:
    client = clients.with_headers(admin, Impersonate_User="system:node:n1", Impersonate_Group="system:nodes")
    assert _who(client, name) == ("system:node:n1", {"system:nodes", "system:authenticated"})


def test_impersonated_user_has_no_rights_of_the_impersonator(admin: RawClient, clients: Clients) -> None:
    client = clients.with_headers(admin, Impersonate_User="somebody")
    refused(client.get(COLLECTION), 403, "Forbidden")


def test_impersonation_needs_the_verb(clients: Clients) -> None:
    client = clients.with_headers(clients.user("somebody"), Impersonate_User="system:admin")
    refused(client.get(COLLECTION), 403, "Forbidden")


def test_impersonation_of_a_group_needs_the_verb_on_the_group(admin: RawClient, clients: Clients, name: str) -> None:
    grant(
        admin,
        name,
        name,
        {"apiGroups": [""], "resources": ["users"], "resourceNames": ["alice"], "verbs": ["impersonate"]},
    )
    somebody = clients.user("somebody", name)
    alice = clients.with_headers(somebody, Impersonate_User="alice")
    review = {"spec": {"resourceAttributes": {"verb": "list", "resource": "secrets"}}}
    assert alice.post(_SELF_REVIEWS, review).expect(201)["status"]["allowed"] is False
    for headers in (
        {"Impersonate_User": "bob"},
        {"Impersonate_User": "alice", "Impersonate_Group": "system:masters"},
    ):
        refused(clients.with_headers(somebody, **headers).get(COLLECTION), 403, "Forbidden")


def test_groups_without_a_user_cannot_be_impersonated(admin: RawClient, clients: Clients) -> None:
    answer = clients.with_headers(admin, Impersonate_Group="system:masters").get(COLLECTION)
    assert answer.status in {400, 500}


def test_self_review_is_about_the_asker(clients: Clients, token: str) -> None:
    review = {
        "spec": {
            "resourceAttributes": {
                "group": "certificates.k8s.io",
                "resource": "certificatesigningrequests",
                "verb": "create",
            }
        }
    }
    answer = clients.bearer(token).post(_SELF_REVIEWS, review).expect(201)
    assert answer["status"]["allowed"] is True
    review["spec"]["resourceAttributes"]["verb"] = "delete"
    assert clients.bearer(token).post(_SELF_REVIEWS, review).expect(201)["status"]["allowed"] is False


def test_review_of_others_is_for_administrators(clients: Clients) -> None:
    review = {"spec": {"user": "a", "resourceAttributes": {"verb": "get", "resource": "pods"}}}
    refused(clients.user("somebody").post(ACCESS_REVIEWS, review), 403, "Forbidden")


def test_token_request(admin: RawClient, clients: Clients, name: str) -> None:
    """A token is its ServiceAccount's, for as long as that one lives."""
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}
    admin.post(accounts, account).expect(201)
    request: dict[str, Any] = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    answer = admin.post(f"{accounts}/{name}/token", {**request, "spec": {"expirationSeconds": 3600}}).expect(201)
    assert set(answer["status"]) == {"token", "expirationTimestamp"}
    client = clients.bearer(answer["status"]["token"])
    status = refused(client.get(_SECRETS), 403, "Forbidden")
    assert f'User "system:serviceaccount:default:{name}" cannot list' in status["message"]
    refused(admin.post(f"{accounts}/{name}/token", {**request, "spec": {"expirationSeconds": 599}}), 422, "Invalid")
    refused(admin.post(f"{accounts}/nobody-{name}/token", {**request, "spec": {}}), 404, "NotFound")
    admin.delete(f"{accounts}/{name}").expect(200)
    admin.post(accounts, account).expect(201)
    wait_until(lambda: client.get(_SECRETS).status == 401, "the token is refused, although the name is there again")
