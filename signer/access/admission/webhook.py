"""The webhook for API servers before 1.30: answers their reviews, and keeps its certificate and their trust in it.

If anything fails here, the API server refuses the request (``failurePolicy: Fail``).
"""

from __future__ import annotations

import base64
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Protocol

from signer.access.admission.judge import NeedsRights, Right, creator_patch, judge
from signer.access.admission.policies import Controllers
from signer.access.admission.review import (
    AccessRequest,
    Allowed,
    Judgement,
    Refused,
    answer,
    parse_review,
    patching_answer,
)
from signer.access.admission.webhook_certificate import (
    SECRET_NAME,
    UnusablePair,
    WebhookPair,
    former_authorities,
    make_pair,
    pair_manifest,
    parse_pair,
)
from signer.admission.policy import RefusalReason
from signer.kube.calls import Create, Get, Patch, Replace
from signer.kube.client import JsonObject
from signer.kube.errors import AlreadyExists, Conflict, NotFound
from signer.kube.resources import (
    ACCESS_GRANTS,
    MUTATING_WEBHOOKS,
    SECRETS,
    SUBJECT_ACCESS_REVIEWS,
    VALIDATING_WEBHOOKS,
)
from signer.model.fields import items_of, mapping_of, text_of

CONFIGURATION_NAME: Final = "node-access"
"""Of both webhook configurations."""
MUTATE_PATH: Final = "/mutate"
VALIDATE_PATH: Final = "/validate"
PATHS: Final = (MUTATE_PATH, VALIDATE_PATH)
_ATTEMPTS: Final = 5
"""To make a Secret that several replicas may make at the same time."""
_LOG = logging.getLogger(__name__)


class WebhookCalls(Create, Get, Replace, Patch, Protocol):
    """Asks for rights, keeps the Secret, and writes ``caBundle``."""


@dataclass(frozen=True, slots=True)
class WebhookPlace:
    """Where API servers find the webhook."""

    namespace: str
    """The controller's own, which holds the Secret."""
    names: tuple[str, ...]
    """DNS names in the certificate: see :func:`~signer.access.admission.webhook_certificate.service_names`."""


class AccessWebhook:
    """Answers reviews. Rights come from the API server, at each request."""

    def __init__(self, client: Create, controllers: Controllers) -> None:
        self._client = client
        self._controllers = controllers

    def mutate(self, body: bytes) -> JsonObject:
        """Fills in the creator.

        Raises:
            InvalidReview: the body is no review of ours.
        """
        review = parse_review(body)
        return patching_answer(review.uid, creator_patch(review.request))

    async def validate(self, body: bytes, before_question: Callable[[], None]) -> JsonObject:
        """Judges a request. ``before_question`` is called before each question about rights, and may raise.

        Raises:
            InvalidReview: the body is no review of ours.
            ApiError: the API server does not say what the user may do.
        """
        review = parse_review(body)
        judgement = judge(review.request, self._controllers)
        if isinstance(judgement, NeedsRights):
            judgement = await self._by_rights(review.request, judgement, before_question)
        return answer(review.uid, judgement)

    async def _by_rights(
        self, request: AccessRequest, needs: NeedsRights, before_question: Callable[[], None]
    ) -> Judgement:
        """The first right that the user lacks ends the questions."""
        for need in needs.needs:
            before_question()
            if not await self._has(request, need.right):
                return Refused(need.message, RefusalReason.FORBIDDEN)
        return Allowed()

    async def _has(self, request: AccessRequest, right: Right) -> bool:
        user = request.user
        asked: JsonObject = {
            "user": user.username,
            "groups": sorted(user.groups),
            "extra": dict(user.extra),
            "resourceAttributes": {
                "group": ACCESS_GRANTS.group,
                "resource": right.plural,
                "name": right.name,
                "verb": right.verb,
                "namespace": request.namespace,
            },
        }
        if user.uid:
            asked["uid"] = user.uid
        review = {"apiVersion": SUBJECT_ACCESS_REVIEWS.api_version, "kind": "SubjectAccessReview", "spec": asked}
        said = await self._client.create(SUBJECT_ACCESS_REVIEWS.collection(), review)
        return mapping_of(said, "status").get("allowed") is True


class CertificateKeeper:
    """Keeps the Secret with the pair, and the API servers' trust in it. Every replica has one; any may renew."""

    def __init__(self, client: WebhookCalls, place: WebhookPlace, now: Callable[[], datetime]) -> None:
        self._client = client
        self._place = place
        self._now = now
        self._names = place.names

    async def pair(self) -> WebhookPair:
        """The pair to serve with, made or renewed if need be, after API servers were told to trust it.

        Raises:
            ApiError: the API server refuses a call, or cannot be reached.
            UnusablePair: others write the Secret all the time.
        """
        pair = await self._stored_pair()
        for resource in (VALIDATING_WEBHOOKS, MUTATING_WEBHOOKS):
            await self._trusted(resource.object(CONFIGURATION_NAME), pair.authorities)
        return pair

    async def _stored_pair(self) -> WebhookPair:
        path = SECRETS.object(SECRET_NAME, self._place.namespace)
        for _ in range(_ATTEMPTS):
            try:
                secret = await self._client.get(path)
            except NotFound:
                with contextlib.suppress(AlreadyExists):  # by another replica
                    made = make_pair(self._names, self._now())
                    collection = SECRETS.collection(self._place.namespace)
                    await self._client.create(collection, pair_manifest(made, self._place.namespace))
                continue
            try:
                return parse_pair(secret, self._names, self._now())
            except UnusablePair as error:
                _LOG.info("the webhook gets a new certificate", extra={"detail": str(error)})
            with contextlib.suppress(Conflict):  # by another replica
                await self._client.replace(path, self._renewed(secret))
        raise UnusablePair(f"Secret {SECRET_NAME} changes all the time")

    def _renewed(self, secret: Mapping[str, Any]) -> JsonObject:
        made = pair_manifest(make_pair(self._names, self._now(), former_authorities(secret)), self._place.namespace)
        return {**made, "metadata": mapping_of(secret, "metadata"), "type": secret.get("type", made["type"])}

    async def _trusted(self, path: str, authorities: bytes) -> None:
        bundle = base64.b64encode(authorities).decode("ascii")
        configuration = await self._client.get(path)
        webhooks = [one for one in items_of(configuration, "webhooks") if isinstance(one, Mapping)]
        if all(text_of(mapping_of(one, "clientConfig"), "caBundle") == bundle for one in webhooks):
            return
        trusting = [
            {**one, "clientConfig": {**mapping_of(one, "clientConfig"), "caBundle": bundle}} for one in webhooks
        ]
        version = mapping_of(configuration, "metadata").get("resourceVersion")
        await self._client.patch(path, {"metadata": {"resourceVersion": version}, "webhooks": trusting})


__all__ = [
    "CONFIGURATION_NAME",
    "MUTATE_PATH",
    "PATHS",
    "VALIDATE_PATH",
    "AccessWebhook",
    "CertificateKeeper",
    "WebhookCalls",
    "WebhookPlace",
]
