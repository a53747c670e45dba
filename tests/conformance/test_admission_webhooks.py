"""Admission webhooks: which are called, with what, and what their answers do."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from aiohttp import web

from signer.testing.api.authorities import Issuer, server_context
from tests.conformance.api import Clients, fields, grant, refused
from tests.support.local_servers import HOST, LocalServers
from tests.support.processes import wait_until
from tests.support.raw_client import MERGE_PATCH, RawClient

_CONFIGURATIONS: Final = "/apis/admissionregistration.k8s.io/v1"
_LABEL: Final = "webhook.example.com/run"
Review = dict[str, Any]


@dataclass
class Webhook:
    """A webhook that keeps what it was asked, and answers as a test says."""

    url: str
    authority: str
    asked: list[Review] = field(default_factory=list)
    answer: Callable[[Review], dict[str, Any]] = field(default=lambda request: {"allowed": True})
    wrap: Callable[[dict[str, Any]], Any] = field(
        default=lambda response: {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": response,
        }
    )

    async def handle(self, request: web.Request) -> web.Response:
        review = (await request.json())["request"]
        if "probe" in review.get("name", ""):
            return web.json_response(self.wrap({"uid": review["uid"], "allowed": False}))
        self.asked.append(review)
        return web.json_response(self.wrap({"uid": review["uid"], **self.answer(review)}))


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    issuer = Issuer.new()
    certificate, key = issuer.serving([], [HOST])
    servers = LocalServers("webhook")
    found = Webhook("", base64.b64encode(issuer.certificate_pem).decode())
    application = web.Application()
    application.router.add_post("/review", found.handle)
    found.url = (
        f"https://{HOST}:{servers.serve(application, server_context(certificate, key, issuer.certificate_pem))}/review"
    )
    yield found
    servers.close()


@pytest.fixture
def configure(admin: RawClient, namespace: str, name: str, webhook: Webhook) -> Iterator[Callable[..., None]]:
    """Registers the webhook for ConfigMaps with a label of this test; returns when the server calls it."""
    made: list[str] = []

    def register(kind: str = "Validating", **changes: Any) -> None:
        one = {
            "name": "judge.example.com",
            "clientConfig": {"url": webhook.url, "caBundle": webhook.authority},
            "rules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "resources": ["configmaps"],
                    "operations": ["CREATE", "UPDATE", "DELETE"],
                }
            ],
            "objectSelector": {"matchLabels": {_LABEL: name}},
            "sideEffects": "None",
            "admissionReviewVersions": ["v1"],
            "timeoutSeconds": 5,
            **changes,
        }
        plural = f"{kind.lower()}webhookconfigurations"
        body = {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": f"{kind}WebhookConfiguration",
            "metadata": {"name": name},
            "webhooks": [one],
        }
        admin.post(f"{_CONFIGURATIONS}/{plural}", body).expect(201)
        made.append(f"{_CONFIGURATIONS}/{plural}/{name}")
        probe = config_map(f"{name}-probe", name)
        path = f"/api/v1/namespaces/{namespace}/configmaps?dryRun=All"
        wait_until(lambda: admin.post(path, probe).status not in (200, 201), "the server calls the webhook")
        webhook.asked.clear()

    yield register
    for path in made:
        admin.delete(path).expect(200)


def config_map(name: str, label: str, **data: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "labels": {_LABEL: label}},
        "data": data,
    }


def path_of(namespace: str, name: str = "", query: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps{'/' if name else ''}{name}{query}"


def test_what_a_webhook_is_asked(
    admin: RawClient, namespace: str, name: str, webhook: Webhook, configure: Callable[..., None], clients: Clients
) -> None:
    configure()
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["*"]}
    grant(admin, name, f"group-{name}", rule)
    alice = clients.user("alice", f"group-{name}")
    alice.post(path_of(namespace), config_map(name, name, a="1")).expect(201)
    alice.patch(path_of(namespace, name), {"data": {"a": "2"}}, MERGE_PATCH).expect(200)
    alice.delete(path_of(namespace, name)).expect(200)
    created, changed, deleted = webhook.asked
    assert [one["operation"] for one in webhook.asked] == ["CREATE", "UPDATE", "DELETE"]
    for one in webhook.asked:
        assert one["kind"] == {"group": "", "version": "v1", "kind": "ConfigMap"}
        assert one["resource"] == {"group": "", "version": "v1", "resource": "configmaps"}
        assert (one["name"], one["namespace"], one["dryRun"]) == (name, namespace, False)
        assert one["userInfo"]["username"] == "alice"
        assert {f"group-{name}", "system:authenticated"} <= set(one["userInfo"]["groups"])
    assert (created["object"]["data"], created["oldObject"]) == ({"a": "1"}, None)
    assert created["object"]["metadata"]["uid"]
    assert (changed["object"]["data"], changed["oldObject"]["data"]) == ({"a": "2"}, {"a": "1"})
    assert (deleted["object"], deleted["oldObject"]["data"]) == (None, {"a": "2"})


def test_a_refusal_is_the_answer(
    admin: RawClient, namespace: str, name: str, webhook: Webhook, configure: Callable[..., None]
) -> None:
    configure()
    webhook.answer = lambda request: {
        "allowed": False,
        "status": {"code": 403, "reason": "Forbidden", "message": "the creator alone may do that"},
    }
    answer = admin.post(path_of(namespace), config_map(name, name))
    status = refused(answer, 403, "Forbidden")
    assert status["message"] == (
        'admission webhook "judge.example.com" denied the request: the creator alone may do that'
    )
    admin.get(path_of(namespace, name)).expect(404)


def test_a_refusal_without_explanation(
    admin: RawClient, namespace: str, name: str, webhook: Webhook, configure: Callable[..., None]
) -> None:
    configure()
    webhook.answer = lambda request: {"allowed": False}
    body = admin.post(path_of(namespace), config_map(name, name)).expect(400)
    assert body["message"] == 'admission webhook "judge.example.com" denied the request without explanation'


def test_a_patch_of_a_mutating_webhook(
    admin: RawClient, namespace: str, name: str, webhook: Webhook, configure: Callable[..., None]
) -> None:
    """It sees an object that is not prepared yet, and its patch is written."""
    configure("Mutating")
    patch = [{"op": "add", "path": "/data/by", "value": "webhook"}]
    webhook.answer = lambda request: {
        "allowed": True,
        "patchType": "JSONPatch",
        "patch": base64.b64encode(json.dumps(patch).encode()).decode(),
    }
    created = admin.post(path_of(namespace), config_map(name, name, a="1")).expect(201)
    assert created["data"] == {"a": "1", "by": "webhook"}
    assert "uid" not in webhook.asked[0]["object"]["metadata"]
    found = admin.get(path_of(namespace, name)).expect(200)
    assert found["data"] == {"a": "1", "by": "webhook"}


def test_a_dry_run_is_judged_and_says_so(
    admin: RawClient, namespace: str, name: str, webhook: Webhook, configure: Callable[..., None]
) -> None:
    configure()
    admin.post(path_of(namespace, query="?dryRun=All"), config_map(name, name)).expect(201)
    assert [one["dryRun"] for one in webhook.asked] == [True]
    admin.get(path_of(namespace, name)).expect(404)


def test_other_objects_are_not_judged(
    admin: RawClient, namespace: str, name: str, webhook: Webhook, configure: Callable[..., None]
) -> None:
    configure()
    admin.post(path_of(namespace), config_map(name, "another")).expect(201)
    assert webhook.asked == []


@pytest.mark.parametrize("policy", ["Fail", "Ignore"])
@pytest.mark.parametrize("how", ["no review", "another uid"])
def test_a_webhook_that_fails(
    admin: RawClient, namespace: str, name: str, webhook: Webhook, configure: Callable[..., None], policy: str, how: str
) -> None:
    configure(failurePolicy="Fail")
    kind = f"{_CONFIGURATIONS}/validatingwebhookconfigurations/{name}"
    found = admin.get(kind).expect(200)
    found["webhooks"][0]["failurePolicy"] = policy
    admin.put(kind, found).expect(200)
    if how == "no review":
        webhook.wrap = lambda response: {"kind": "Other"}
    else:
        webhook.answer = lambda request: {"allowed": True, "uid": "another"}
    if policy == "Fail":
        status = refused(admin.post(path_of(namespace), config_map(name, name)), 500, "InternalError")
        assert 'failed calling webhook "judge.example.com"' in status["message"]
    else:
        wait_until(
            lambda: admin.post(path_of(namespace), config_map(name, name)).status == 201, "the new policy counts"
        )


@pytest.mark.parametrize(
    ("change", "wanted"),
    [
        ({"name": "short"}, "webhooks[0].name"),
        ({"sideEffects": None}, "webhooks[0].sideEffects"),
        ({"admissionReviewVersions": []}, "webhooks[0].admissionReviewVersions"),
        ({"timeoutSeconds": 31}, "webhooks[0].timeoutSeconds"),
        ({"clientConfig": {}}, "webhooks[0].clientConfig"),
        ({"clientConfig": {"url": "http://127.0.0.1/"}}, "webhooks[0].clientConfig.url"),
        ({"failurePolicy": "Perhaps"}, "webhooks[0].failurePolicy"),
    ],
)
def test_a_configuration_that_is_refused(admin: RawClient, name: str, change: dict[str, Any], wanted: str) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["CREATE"]}
    one = {
        "name": "judge.example.com",
        "clientConfig": {"url": "https://127.0.0.1:9/"},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [{**one, **change}],
    }
    answer = admin.post(f"{_CONFIGURATIONS}/validatingwebhookconfigurations", body)
    assert wanted in fields(refused(answer, 422, "Invalid"))


def test_what_a_configuration_leaves_out(admin: RawClient, name: str) -> None:
    rule = {"apiGroups": ["example.com"], "apiVersions": ["v1"], "resources": ["none"], "operations": ["CREATE"]}
    one = {
        "name": "judge.example.com",
        "clientConfig": {"service": {"namespace": "default", "name": "judge"}},
        "rules": [rule],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    body = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [one],
    }
    path = f"{_CONFIGURATIONS}/mutatingwebhookconfigurations"
    (found,) = admin.post(path, body).expect(201)["webhooks"]
    admin.delete(f"{path}/{name}").expect(200)
    expected = {
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "timeoutSeconds": 10,
        "reinvocationPolicy": "Never",
    }
    assert {name: found[name] for name in expected} == expected
    assert found["rules"][0]["scope"] == "*"
    assert found["clientConfig"]["service"]["port"] == 443
