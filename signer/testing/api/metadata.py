"""Object metadata: what the server sets, keeps and refuses (k8s.io/apimachinery ``pkg/api/validation``)."""

from __future__ import annotations

import random
import re
import uuid
from datetime import UTC, datetime
from typing import Any

from .status import FieldError, bad_request, forbidden_field, invalid_value, required

_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
DNS_SUBDOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
DNS_LABEL = re.compile(_LABEL)
DNS_1035_LABEL = re.compile(r"[a-z](?:[-a-z0-9]*[a-z0-9])?")
_QUALIFIED_NAME = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?")
_SUFFIX_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_GENERATED_BASE = 58
"""``generateName`` is cut to this length before five random letters are added."""
_STANDARD_FINALIZERS = frozenset({"kubernetes", "orphan", "foregroundDeletion"})
ANNOTATIONS_LIMIT = 256 * 1024

_FIELDS: dict[str, type] = {
    "name": str,
    "generateName": str,
    "namespace": str,
    "uid": str,
    "resourceVersion": str,
    "generation": int,
    "creationTimestamp": str,
    "deletionTimestamp": str,
    "deletionGracePeriodSeconds": int,
    "labels": dict,
    "annotations": dict,
    "ownerReferences": list,
    "finalizers": list,
}
_DROPPED = {"managedFields", "selfLink", "clusterName", "initializers"}
"""Known fields that this server does not keep: it tracks no field managers."""
_SERVER_OWNED = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")


def now() -> str:
    """The present in metav1.Time's form: RFC 3339, whole seconds, UTC."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def subdomain(name: str) -> str:
    """Empty, or why ``name`` is no DNS-1123 subdomain."""
    if len(name) > 253:
        return "must be no more than 253 characters"
    if DNS_SUBDOMAIN.fullmatch(name) is None:
        return (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
            "and must start and end with an alphanumeric character"
        )
    return ""


def label(name: str) -> str:
    """Empty, or why ``name`` is no DNS-1123 label."""
    if len(name) > 63 or DNS_LABEL.fullmatch(name) is None:
        return (
            "a lowercase RFC 1123 label must consist of at most 63 lower case alphanumeric characters or '-', "
            "and must start and end with an alphanumeric character"
        )
    return ""


def label_1035(name: str) -> str:
    """Empty, or why ``name`` is no DNS-1035 label (Services)."""
    if len(name) > 63 or DNS_1035_LABEL.fullmatch(name) is None:
        return "a DNS-1035 label must consist of lower case alphanumeric characters or '-' and start with a letter"
    return ""


def path_segment(name: str) -> str:
    """Empty, or why ``name`` cannot stand in a path (CSRs and RBAC objects have no stricter rule)."""
    if name in {".", ".."}:
        return f"may not be '{name}'"
    for character in "/%":
        if character in name:
            return f"may not contain '{character}'"
    return ""


def qualified_name(name: str) -> str:
    """Empty, or why ``name`` is no qualified name (label and annotation keys, finalizers)."""
    prefix, slash, base = name.rpartition("/")
    if slash and (not prefix or subdomain(prefix)):
        return "prefix part must be a lowercase RFC 1123 subdomain"
    if not base or len(base) > 63 or _QUALIFIED_NAME.fullmatch(base) is None:
        return (
            "name part must consist of at most 63 alphanumeric characters, '-', '_' or '.', "
            "and must start and end with an alphanumeric character"
        )
    return ""


def label_value(value: str) -> str:
    """Empty, or why ``value`` is none that a label may have."""
    if value and (len(value) > 63 or _QUALIFIED_NAME.fullmatch(value) is None):
        return "a label must be empty or consist of at most 63 alphanumeric characters, '-', '_' or '.'"
    return ""


def generated_name(base: str) -> str:
    suffix = "".join(random.choices(_SUFFIX_LETTERS, k=5))  # noqa: S311 (names, not secrets)
    return base[:_GENERATED_BASE] + suffix


def decode(value: dict[str, Any]) -> list[str]:
    """Give ``value`` a metadata object of known fields and right types; the answer names the fields that were dropped.

    Raises APIError 400 where a Go client's type would not decode.
    """
    metadata = value.get("metadata")
    if metadata is None:
        metadata = value["metadata"] = {}
    if not isinstance(metadata, dict):
        raise bad_request("json: cannot unmarshal into Go struct field .metadata of type v1.ObjectMeta")
    unknown = []
    for name in list(metadata):
        wanted = _FIELDS.get(name)
        item = metadata[name]
        if wanted is None:
            del metadata[name]
            if name not in _DROPPED:
                unknown.append(f"metadata.{name}")
        elif item is None or item in ("", {}, []):
            del metadata[name]
        elif not isinstance(item, wanted) or isinstance(item, bool):
            raise bad_request(f"json: cannot unmarshal into Go struct field ObjectMeta.metadata.{name}")
    for name in ("labels", "annotations"):
        items = metadata.get(name)
        if items and not all(isinstance(item, str) for item in items.values()):
            raise bad_request(f"json: cannot unmarshal into Go struct field ObjectMeta.metadata.{name} of type string")
    return unknown


def prepare_create(metadata: dict[str, Any], *, generation: bool) -> None:
    """Set what only the server may set."""
    for name in _SERVER_OWNED:
        metadata.pop(name, None)
    metadata["uid"] = str(uuid.uuid4())
    metadata["creationTimestamp"] = now()
    if generation:
        metadata["generation"] = 1


def prepare_update(metadata: dict[str, Any], old: dict[str, Any]) -> None:
    """Keep what an update may not change."""
    for name in _SERVER_OWNED:
        if name in old:
            metadata[name] = old[name]
        else:
            metadata.pop(name, None)
    if "generateName" in old:
        metadata.setdefault("generateName", old["generateName"])


def _validate_keys(metadata: dict[str, Any], errors: list[FieldError]) -> None:
    for key, value in (metadata.get("labels") or {}).items():
        if reason := qualified_name(key):
            errors.append(invalid_value("metadata.labels", key, reason))
        if reason := label_value(value):
            errors.append(invalid_value("metadata.labels", value, reason))
    size = 0
    for key, value in (metadata.get("annotations") or {}).items():
        size += len(key.encode()) + len(value.encode())
        if reason := qualified_name(key.lower()):
            errors.append(invalid_value("metadata.annotations", key, reason))
    if size > ANNOTATIONS_LIMIT:
        text = f"Too long: may not be more than {ANNOTATIONS_LIMIT} bytes"
        errors.append(FieldError("FieldValueTooLong", "metadata.annotations", text))
    errors += [
        invalid_value("metadata.finalizers", finalizer, "name must be a qualified name")
        for finalizer in metadata.get("finalizers") or ()
        if not isinstance(finalizer, str) or qualified_name(finalizer)
    ]


def _validate_owners(metadata: dict[str, Any], errors: list[FieldError]) -> None:
    controllers = 0
    for index, owner in enumerate(metadata.get("ownerReferences") or ()):
        path = f"metadata.ownerReferences[{index}]"
        if not isinstance(owner, dict) or any(
            not isinstance(owner.get(name) or False, bool) for name in ("controller", "blockOwnerDeletion")
        ):
            raise bad_request("json: cannot unmarshal into Go struct field ObjectMeta.metadata.ownerReferences")
        errors += [
            invalid_value(f"{path}.{name}", owner.get(name, ""), f"{name} must not be empty")
            for name in ("apiVersion", "kind", "name", "uid")
            if not owner.get(name)
        ]
        controllers += owner.get("controller") is True
    if controllers > 1:
        text = "Only one reference can have Controller set to true"
        errors.append(invalid_value("metadata.ownerReferences", controllers, text))


def validate(metadata: dict[str, Any], name_rule: Any, *, core: bool) -> list[FieldError]:
    """Violations of name, labels, annotations, finalizers and owners. ``name_rule`` answers why a name is wrong.

    ``core``: finalizers are Kubernetes' own or have a domain.
    """
    errors: list[FieldError] = []
    name = metadata.get("name", "")
    if not name:
        errors.append(required("metadata.name", "name or generateName is required"))
    elif reason := path_segment(name) or name_rule(name):
        errors.append(invalid_value("metadata.name", name, reason))
    _validate_keys(metadata, errors)
    _validate_owners(metadata, errors)
    if core and not errors:
        errors += _validate_finalizers_of_core(metadata)
    return errors


def _validate_finalizers_of_core(metadata: dict[str, Any]) -> list[FieldError]:
    text = "name is neither a standard finalizer name nor is it fully qualified"
    return [
        invalid_value(f"metadata.finalizers[{index}]", finalizer, text)
        for index, finalizer in enumerate(metadata.get("finalizers") or ())
        if "/" not in finalizer and finalizer not in _STANDARD_FINALIZERS
    ]


def validate_update(metadata: dict[str, Any], old: dict[str, Any]) -> list[FieldError]:
    """Violations of what may not change once deletion has begun: no finalizer can be added."""
    if "deletionTimestamp" not in old:
        return []
    added = set(metadata.get("finalizers") or ()) - set(old.get("finalizers") or ())
    if not added:
        return []
    text = f"no new finalizers can be added if the object is being deleted, found new finalizers {sorted(added)}"
    return [forbidden_field("metadata.finalizers", text)]
