from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from signer.access.admission import messages
from signer.access.admission.review import InvalidReview
from signer.access.admission.webhook import CONFIGURATION_NAME, AccessWebhook, CertificateKeeper, WebhookPlace
from signer.access.admission.webhook_certificate import LIFETIME, UnusablePair, pair_manifest, service_names
from signer.kube.client import JsonObject
from signer.kube.errors import AlreadyExists, Conflict, NotFound, ServerError
from signer.kube.resources import MUTATING_WEBHOOKS, SECRETS, VALIDATING_WEBHOOKS
from tests.support.access_requests import CASES, CONTROLLERS

PLACE: Final = WebhookPlace("here", service_names("webhook", "here"))
SECRET_PATH: Final = SECRETS.object("node-access-webhook", "here")
CONFIGURATIONS: Final = tuple(one.object(CONFIGURATION_NAME) for one in (MUTATING_WEBHOOKS, VALIDATING_WEBHOOKS))
NOW: Final = datetime(2026, 11, 27, 15, tzinfo=UTC)


class ManagementCluster:
    """Keeps objects by path, and says what users may do."""

    def __init__(self) -> None:
        self.objects: dict[str, JsonObject] = {
            path: {
                "metadata": {"resourceVersion": "1"},
                "webhooks": [{"name": "one", "clientConfig": {"service": {"name": "s"}}, "rules": [1]}],
            }
            for path in CONFIGURATIONS
        }
        self.reviewed: list[JsonObject] = []
        self.writes: list[str] = []
        self.allowed = False
        self.interfering: list[JsonObject] = []
        """Secrets that another replica writes just before ours."""

    async def create(self, path: str, body: JsonObject) -> JsonObject:
        if body["kind"] == "SubjectAccessReview":
            self.reviewed.append(body["spec"])
            return {"status": {"allowed": self.allowed}}
        self.writes.append(f"create {path}")
        if self.interfering:
            self.objects[SECRET_PATH] = self.interfering.pop()
            raise AlreadyExists("there", status=409)
        self.objects[SECRET_PATH] = body
        return body

    async def get(self, path: str) -> JsonObject:
        if path not in self.objects:
            raise NotFound("none", status=404)
        return self.objects[path]

    async def replace(self, path: str, body: JsonObject) -> JsonObject:
        self.writes.append(f"replace {path}")
        if self.interfering:
            self.objects[path] = self.interfering.pop()
            raise Conflict("changed", status=409)
        self.objects[path] = body
        return body

    async def patch(self, path: str, patch: JsonObject) -> JsonObject:
        self.writes.append(f"patch {path}")
        self.objects[path] = {**self.objects[path], **patch}
        return self.objects[path]

    def bundles(self) -> set[bytes]:
        return {
            base64.b64decode(webhook["clientConfig"]["caBundle"])
            for path in CONFIGURATIONS
            for webhook in self.objects[path]["webhooks"]
        }


def review_of(name: str) -> bytes:
    (case,) = (case for case in CASES if case.name == name)
    return json.dumps(case.review).encode()


def freely() -> None:
    """Questions about rights have no bound."""


async def test_the_first_missing_right_ends_the_questions() -> None:
    cluster = ManagementCluster()
    webhook = AccessWebhook(cluster, CONTROLLERS)
    said = (await webhook.validate(review_of("create-for-eight-logins"), freely))["response"]
    assert (said["allowed"], said["status"]["message"]) == (False, messages.LOGIN_MESSAGES[0])
    assert len(cluster.reviewed) == 1
    cluster.allowed = True
    assert (await webhook.validate(review_of("create-for-eight-logins"), freely))["response"]["allowed"]
    assert [one["resourceAttributes"]["name"] for one in cluster.reviewed[1:]] == [f"user{n}" for n in range(8)]


async def test_no_question_is_asked_beyond_the_bound() -> None:
    class Enough(Exception):
        pass

    def never() -> None:
        raise Enough

    cluster = ManagementCluster()
    with pytest.raises(Enough):
        await AccessWebhook(cluster, CONTROLLERS).validate(review_of("create"), never)
    assert cluster.reviewed == []


@pytest.mark.parametrize("name", ["create-in-foreign-name", "ingress-by-other", "make-bastion-by-user"])
async def test_what_is_refused_anyhow_asks_for_no_rights(name: str) -> None:
    cluster = ManagementCluster()
    said = await AccessWebhook(cluster, CONTROLLERS).validate(review_of(name), freely)
    assert not said["response"]["allowed"]
    assert cluster.reviewed == []


async def test_a_review_without_namespace_is_none() -> None:
    """A question about rights without namespace would be about all of them."""
    review = json.loads(review_of("create"))
    review["request"]["namespace"] = ""
    with pytest.raises(InvalidReview):
        await AccessWebhook(ManagementCluster(), CONTROLLERS).validate(json.dumps(review).encode(), freely)


async def test_rights_are_those_of_the_user_of_the_request() -> None:
    cluster = ManagementCluster()
    webhook = AccessWebhook(cluster, CONTROLLERS)
    review = json.loads(review_of("create"))
    review["request"]["userInfo"] |= {"uid": "u-1", "extra": {"scopes": ["read"]}}
    review["request"]["object"]["spec"]["createdBy"]["uid"] = "u-1"
    body = json.dumps(review).encode()
    said = (await webhook.validate(body, freely))["response"]
    assert (said["allowed"], said["status"]["message"]) == (False, messages.LOGIN_MESSAGES[0])
    assert cluster.reviewed == [
        {
            "user": "alice",
            "uid": "u-1",
            "groups": ["system:authenticated", "team-a"],
            "extra": {"scopes": ["read"]},
            "resourceAttributes": {
                "group": "access.cluster.x-k8s.io",
                "resource": "logins",
                "name": "root",
                "verb": "use",
                "namespace": "default",
            },
        }
    ]
    cluster.allowed = True
    assert (await webhook.validate(body, freely))["response"] == {"uid": review["request"]["uid"], "allowed": True}
    assert len(cluster.reviewed) == 2, "each request is asked anew"


async def test_an_api_server_that_does_not_answer_allows_nothing() -> None:
    cluster = ManagementCluster()

    async def fails(path: str, body: JsonObject) -> JsonObject:
        raise ServerError("away", status=503)

    cluster.create = fails  # type: ignore[method-assign]
    with pytest.raises(ServerError):
        await AccessWebhook(cluster, CONTROLLERS).validate(review_of("create"), freely)


async def test_what_is_no_review_is_not_answered() -> None:
    webhook = AccessWebhook(ManagementCluster(), CONTROLLERS)
    with pytest.raises(InvalidReview):
        await webhook.validate(b"{}", freely)
    with pytest.raises(InvalidReview):
        webhook.mutate(b"{}")
    assert webhook.mutate(review_of("create"))["response"]["patchType"] == "JSONPatch"


def keeper(cluster: ManagementCluster, now: datetime = NOW) -> CertificateKeeper:
    return CertificateKeeper(cluster, PLACE, lambda: now)


async def test_the_first_replica_makes_the_pair_and_api_servers_trust_it() -> None:
    cluster = ManagementCluster()
    pair = await keeper(cluster).pair()
    assert cluster.bundles() == {pair.authorities}
    (webhook,) = cluster.objects[CONFIGURATIONS[0]]["webhooks"]
    assert webhook["clientConfig"]["service"] == {"name": "s"}
    assert (webhook["name"], webhook["rules"]) == ("one", [1])
    cluster.writes.clear()
    assert await keeper(cluster).pair() == pair, "another replica serves with the same"
    assert cluster.writes == []


async def test_two_replicas_at_the_same_time_serve_with_one_pair() -> None:
    other = ManagementCluster()
    pair = await keeper(other).pair()
    cluster = ManagementCluster()
    cluster.interfering = [other.objects[SECRET_PATH]]
    assert await keeper(cluster).pair() == pair
    assert cluster.bundles() == {pair.authorities}


async def test_a_renewed_pair_leaves_the_former_authority_trusted() -> None:
    cluster = ManagementCluster()
    first = await keeper(cluster).pair()
    cluster.objects[SECRET_PATH]["metadata"]["resourceVersion"] = "7"
    second = await keeper(cluster, NOW + LIFETIME).pair()
    assert second.certificate != first.certificate
    assert second.authorities.endswith(first.authorities)
    assert cluster.bundles() == {second.authorities}
    assert cluster.objects[SECRET_PATH]["metadata"]["resourceVersion"] == "7", "or the API server sees no conflict"


async def test_a_secret_that_always_changes_ends_the_attempt() -> None:
    cluster = ManagementCluster()
    broken: dict[str, Any] = {"metadata": {}, "data": {}}
    cluster.objects[SECRET_PATH] = broken
    cluster.interfering = [broken] * 10
    with pytest.raises(UnusablePair, match="changes all the time"):
        await keeper(cluster).pair()


async def test_trust_that_somebody_took_away_comes_back() -> None:
    cluster = ManagementCluster()
    pair = await keeper(cluster).pair()
    for webhook in cluster.objects[CONFIGURATIONS[1]]["webhooks"]:
        webhook["clientConfig"]["caBundle"] = base64.b64encode(b"other").decode()
    assert await keeper(cluster, NOW + timedelta(days=1)).pair() == pair
    assert cluster.bundles() == {pair.authorities}


async def test_a_missing_configuration_is_an_error() -> None:
    cluster = ManagementCluster()
    del cluster.objects[CONFIGURATIONS[0]]
    with pytest.raises(NotFound):
        await keeper(cluster).pair()
    assert pair_manifest(await keeper(ManagementCluster()).pair(), "here")["type"] == "kubernetes.io/tls"
