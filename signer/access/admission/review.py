"""AdmissionReviews (``admission.k8s.io/v1``) about objects of access, as typed values."""

from __future__ import annotations

import base64
import enum
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from signer.admission.policy import Operation, RefusalReason
from signer.kube.client import JsonObject
from signer.kube.resources import ACCESS_APPROVALS, ACCESS_GRANTS, BASTIONS
from signer.model.fields import items_of, mapping_of, text_of

MAXIMUM_REVIEW_BYTES: Final = 8 * 1024 * 1024
"""An API server sends two versions of an object of at most 1.5 MiB (etcd), and escapes some characters."""
_API_VERSION: Final = "admission.k8s.io/v1"
_CODES: Final = {RefusalReason.FORBIDDEN: 403, RefusalReason.INVALID: 422}


class InvalidReview(ValueError):
    """No AdmissionReview that an API server sends us by the configuration of our webhooks."""


class Kind(enum.Enum):
    """The plural of what the request is about."""

    GRANT = ACCESS_GRANTS.plural
    APPROVAL = ACCESS_APPROVALS.plural
    BASTION = BASTIONS.plural


@dataclass(frozen=True, slots=True)
class User:
    """Whom the API server has authenticated."""

    username: str
    uid: str
    groups: frozenset[str]
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False, compare=False)
    """What an authenticator adds, such as the scopes of a token. Rights may depend on it."""


@dataclass(frozen=True, slots=True)
class NoObject:
    """There was none before: the request creates it."""


@dataclass(frozen=True, slots=True)
class AccessRequest:
    """One request to the API server."""

    operation: Operation
    kind: Kind
    is_on_status: bool
    namespace: str
    name: str
    """Empty where the API server makes the name up."""
    user: User
    new: Mapping[str, Any]
    old: Mapping[str, Any] | NoObject


@dataclass(frozen=True, slots=True)
class Review:
    """A request, and the UID under which the API server expects the answer."""

    uid: str
    request: AccessRequest


@dataclass(frozen=True, slots=True)
class Allowed:
    """Nothing of ours speaks against the request."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The request must not be carried out."""

    message: str
    reason: RefusalReason


Judgement: TypeAlias = Allowed | Refused


def parse_review(body: bytes) -> Review:
    """Read an AdmissionReview.

    Raises:
        InvalidReview: it is none, or not about objects of access.
    """
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        raise InvalidReview("the body is no JSON") from None
    if not isinstance(document, Mapping) or document.get("apiVersion") != _API_VERSION:
        raise InvalidReview(f"the body is no AdmissionReview of {_API_VERSION}")
    request = mapping_of(document, "request")
    resource, user = mapping_of(request, "resource"), mapping_of(request, "userInfo")
    try:
        operation, kind = Operation(request.get("operation")), Kind(resource.get("resource"))
    except ValueError:
        raise InvalidReview("the request is about something else") from None
    uid, new, old = text_of(request, "uid"), request.get("object"), request.get("oldObject")
    is_complete = (
        bool(uid and text_of(user, "username") and text_of(request, "namespace"))
        and resource.get("group") == ACCESS_GRANTS.group
    )
    if not is_complete or not isinstance(new, Mapping) or (old is None) is not (operation is Operation.CREATE):
        raise InvalidReview("the request is incomplete")
    return Review(
        uid,
        AccessRequest(
            operation,
            kind,
            text_of(request, "subResource") == "status",
            text_of(request, "namespace"),
            text_of(request, "name"),
            User(
                text_of(user, "username"),
                text_of(user, "uid"),
                frozenset(one for one in items_of(user, "groups") if isinstance(one, str)),
                mapping_of(user, "extra"),
            ),
            new,
            old if isinstance(old, Mapping) else NoObject(),
        ),
    )


def answer(uid: str, judgement: Judgement) -> JsonObject:
    """The AdmissionReview that answers."""
    response: JsonObject = {"uid": uid, "allowed": isinstance(judgement, Allowed)}
    if isinstance(judgement, Refused):
        code = _CODES[judgement.reason]
        response["status"] = {"message": judgement.message, "reason": judgement.reason.value, "code": code}
    return _answered(response)


def patching_answer(uid: str, patch: Sequence[JsonObject]) -> JsonObject:
    """The answer that allows the request and changes its object by a JSON Patch (RFC 6902)."""
    text = base64.b64encode(json.dumps(list(patch)).encode("utf-8", "surrogatepass")).decode("ascii")
    return _answered({"uid": uid, "allowed": True, "patchType": "JSONPatch", "patch": text})


def _answered(response: JsonObject) -> JsonObject:
    return {"apiVersion": _API_VERSION, "kind": "AdmissionReview", "response": response}
