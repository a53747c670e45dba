"""Roles and bindings (Kubernetes ``pkg/apis/rbac/validation``)."""

from __future__ import annotations

from typing import Any, Final

from . import metadata
from .escalation import admit_binding, admit_role
from .status import FieldError, invalid_value, required, unsupported
from .strategy import Context, Strategy

_GROUP: Final = "rbac.authorization.k8s.io"
_SUBJECT_KINDS: Final = ("ServiceAccount", "User", "Group")


class Bindings(Strategy):
    """RoleBindings and ClusterRoleBindings: the role is fixed, kinds are checked."""

    name_rule = staticmethod(metadata.path_segment)
    create_on_update = True

    def prepare_create(self, value: dict[str, Any], context: Context) -> None:
        reference = value.get("roleRef") or {}
        value["roleRef"] = {**reference, "apiGroup": reference.get("apiGroup") or _GROUP}
        subjects = []
        for subject in value.get("subjects") or []:
            kind = subject.get("kind", "")
            group = "" if kind == "ServiceAccount" else _GROUP
            subjects.append({**subject, "apiGroup": subject.get("apiGroup") or group})
            if not subjects[-1]["apiGroup"]:
                del subjects[-1]["apiGroup"]
        if subjects:
            value["subjects"] = subjects

    def prepare_update(self, value: dict[str, Any], old: dict[str, Any], subresource: str, context: Context) -> None:
        self.prepare_create(value, context)

    def validate_create(self, value: dict[str, Any], context: Context) -> list[FieldError]:
        errors = []
        reference = value["roleRef"]
        kinds = ("ClusterRole",) if value["kind"] == "ClusterRoleBinding" else ("Role", "ClusterRole")
        if reference["apiGroup"] != _GROUP:
            errors.append(unsupported("roleRef.apiGroup", reference["apiGroup"], (_GROUP,)))
        if reference.get("kind") not in kinds:
            errors.append(unsupported("roleRef.kind", reference.get("kind", ""), kinds))
        if not reference.get("name"):
            errors.append(required("roleRef.name"))
        for index, subject in enumerate(value.get("subjects") or []):
            errors += _check_subject(subject, f"subjects[{index}]", namespaced=value["kind"] == "RoleBinding")
        return errors

    def validate_update(
        self, value: dict[str, Any], old: dict[str, Any], subresource: str, context: Context
    ) -> list[FieldError]:
        errors = self.validate_create(value, context)
        if value["roleRef"] != old["roleRef"]:
            errors.append(invalid_value("roleRef", value["roleRef"], "cannot change roleRef"))
        return errors

    def admit_create(self, value: dict[str, Any], context: Context) -> None:
        admit_binding(value, context)

    def admit_update(self, value: dict[str, Any], old: dict[str, Any], subresource: str, context: Context) -> None:
        if value.get("subjects") != old.get("subjects"):
            admit_binding(value, context)


def _check_subject(subject: dict[str, Any], path: str, *, namespaced: bool) -> list[FieldError]:
    """``namespaced``: a service account without a namespace is one of the binding's."""
    errors = []
    kind, group = subject.get("kind", ""), subject.get("apiGroup", "")
    if kind not in _SUBJECT_KINDS:
        errors.append(unsupported(f"{path}.kind", kind, _SUBJECT_KINDS))
    elif kind == "ServiceAccount":
        if reason := subject.get("name") and metadata.subdomain(subject["name"]):
            errors.append(invalid_value(f"{path}.name", subject["name"], reason))
        if not namespaced and not subject.get("namespace"):
            errors.append(required(f"{path}.namespace"))
        if group:
            errors.append(unsupported(f"{path}.apiGroup", group, ("",)))
    elif group != _GROUP:
        errors.append(unsupported(f"{path}.apiGroup", group, (_GROUP,)))
    if not subject.get("name"):
        errors.append(required(f"{path}.name"))
    return errors


def _check_rule(rule: dict[str, Any], path: str, *, namespaced: bool) -> list[FieldError]:
    errors = []
    if not rule.get("verbs"):
        errors.append(required(f"{path}.verbs", "verbs must contain at least one value"))
    if urls := rule.get("nonResourceURLs"):
        if namespaced:
            text = "namespaced rules cannot apply to non-resource URLs"
            errors.append(invalid_value(f"{path}.nonResourceURLs", urls, text))
        if any(rule.get(name) for name in ("apiGroups", "resources", "resourceNames")):
            text = "rules cannot apply to both regular resources and non-resource URLs"
            errors.append(invalid_value(f"{path}.nonResourceURLs", urls, text))
        return errors
    if not rule.get("apiGroups"):
        errors.append(required(f"{path}.apiGroups", "resource rules must supply at least one api group"))
    if not rule.get("resources"):
        errors.append(required(f"{path}.resources", "resource rules must supply at least one resource"))
    return errors


class Roles(Strategy):
    name_rule = staticmethod(metadata.path_segment)
    create_on_update = True

    def validate_create(self, value: dict[str, Any], context: Context) -> list[FieldError]:
        namespaced = value["kind"] == "Role"
        rules = enumerate(value.get("rules") or [])
        return [error for index, rule in rules for error in _check_rule(rule, f"rules[{index}]", namespaced=namespaced)]

    def validate_update(
        self, value: dict[str, Any], old: dict[str, Any], subresource: str, context: Context
    ) -> list[FieldError]:
        return self.validate_create(value, context)

    def admit_create(self, value: dict[str, Any], context: Context) -> None:
        admit_role(value, context)

    def admit_update(self, value: dict[str, Any], old: dict[str, Any], subresource: str, context: Context) -> None:
        if value.get("rules") != old.get("rules"):
            admit_role(value, context)
