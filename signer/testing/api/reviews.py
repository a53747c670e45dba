"""Reviews: questions to the authorizer that are answered and not stored (Kubernetes ``pkg/registry/authorization``)."""

from __future__ import annotations

from typing import Any

from .authorization import Authorization
from .identity import User
from .status import APIError, FieldError, Target, bad_request, invalid, invalid_value, required
from .strategy import Attributes

AUTHORIZATION = "authorization.k8s.io"
AUTHENTICATION = "authentication.k8s.io"
KINDS: dict[tuple[str, str], tuple[str, bool]] = {
    (AUTHORIZATION, "subjectaccessreviews"): ("SubjectAccessReview", False),
    (AUTHORIZATION, "selfsubjectaccessreviews"): ("SelfSubjectAccessReview", False),
    (AUTHORIZATION, "selfsubjectrulesreviews"): ("SelfSubjectRulesReview", False),
    (AUTHORIZATION, "localsubjectaccessreviews"): ("LocalSubjectAccessReview", True),
    (AUTHENTICATION, "selfsubjectreviews"): ("SelfSubjectReview", False),
}
"""Kind and whether it is namespaced, by group and plural."""


def _invalid(error: FieldError) -> APIError:
    return invalid(Target(AUTHORIZATION, "subjectaccessreviews", "SubjectAccessReview"), [error])


def _attributes(spec: dict[str, Any]) -> Attributes:
    resource, path = spec.get("resourceAttributes") or {}, spec.get("nonResourceAttributes") or {}
    if bool(resource) == bool(path):
        text = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        raise _invalid(invalid_value("spec.resourceAttributes", "", text))
    if path:
        return Attributes(path.get("verb", ""), path=path.get("path", ""))
    return Attributes(
        resource.get("verb", ""),
        resource.get("group", ""),
        resource.get("resource", ""),
        resource.get("subresource", ""),
        resource.get("name", ""),
        resource.get("namespace", ""),
    )


def _access(authorization: Authorization, user: User, attributes: Attributes) -> dict[str, Any]:
    answer = authorization.authorize(user, attributes)
    status: dict[str, Any] = {"allowed": answer.allowed}
    if answer.reason:
        status["reason"] = answer.reason
    return status


def _subject(spec: dict[str, Any]) -> User:
    name, groups = spec.get("user", ""), spec.get("groups") or ()
    if not name and not groups:
        raise _invalid(required("spec.user", "at least one of user or group must be specified"))
    return User(name, tuple(groups), spec.get("uid", ""))


def _rules(authorization: Authorization, user: User, namespace: str) -> dict[str, Any]:
    resources, urls = [], []
    for grant in authorization.grants(user):
        if grant.namespace and grant.namespace != namespace:
            continue
        for rule in grant.rules:
            if rule.urls:
                urls.append({"verbs": sorted(rule.verbs), "nonResourceURLs": list(rule.urls)})
            else:
                item = {"apiGroups": rule.groups, "resources": rule.resources, "resourceNames": rule.names}
                found = {name: sorted(values) for name, values in item.items() if values}
                resources.append({"verbs": sorted(rule.verbs), **found})
    return {"resourceRules": resources, "nonResourceRules": urls, "incomplete": False}


def review(
    plural: str, body: dict[str, Any], namespace: str, user: User, authorization: Authorization
) -> dict[str, Any]:
    """The body with its status filled in. Raises APIError for a malformed question."""
    spec = body.get("spec") or {}
    if not isinstance(spec, dict):
        raise bad_request("spec must be an object")
    group = AUTHENTICATION if plural == "selfsubjectreviews" else AUTHORIZATION
    kind, _ = KINDS[group, plural]
    if body.get("kind", kind) != kind:
        raise bad_request(f"{body['kind']} cannot be handled as a {kind}")
    head = {"kind": kind, "apiVersion": f"{group}/v1", "metadata": {}, "spec": spec}
    match plural:
        case "selfsubjectreviews":
            extra = {name: list(values) for name, values in user.extra.items()}
            info: dict[str, Any] = {"username": user.name, "groups": list(user.groups)}
            return {**head, "status": {"userInfo": {**info, "extra": extra} if extra else info}}
        case "selfsubjectrulesreviews":
            return {**head, "status": _rules(authorization, user, spec.get("namespace", ""))}
        case "selfsubjectaccessreviews":
            return {**head, "status": _access(authorization, user, _attributes(spec))}
        case _:
            attributes = _attributes(spec)
            if namespace and attributes.namespace != namespace:
                text = f"must match metadata.namespace: {namespace}"
                raise _invalid(invalid_value("spec.resourceAttributes.namespace", attributes.namespace, text))
            return {**head, "status": _access(authorization, _subject(spec), attributes)}
