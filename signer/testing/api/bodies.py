"""Bodies and query options of requests: bytes become values here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import yaml

from . import protobuf
from .operations import DeleteOptions, WriteOptions
from .patches import APPLY, JSON, MERGE, STRATEGIC
from .selectors import Selector, parse_field_selector, parse_label_selector
from .status import APIError, Target, bad_request, invalid, required, unsupported_media_type
from .strategy import Strategy

MAXIMUM_BODY_BYTES = 3 * 1024 * 1024
"""The real server's limit."""
_YAML = frozenset({"application/yaml", "application/x-yaml", "text/yaml"})
_PATCHES = (JSON, MERGE, STRATEGIC, APPLY)
_PATCH_OPTIONS = Target("meta.k8s.io", "", "PatchOptions")
_ACCEPTED = ("application/json", "application/yaml")


# libyaml's parser, if PyYAML was built with it, is several times faster on large CRDs.
_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_SafeLoader):  # type: ignore[misc]
    """YAML as Kubernetes reads it: timestamps stay text."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def load_yaml(text: str | bytes) -> list[Any]:
    """All documents of a YAML text. Raises APIError 400."""
    try:
        return [document for document in yaml.load_all(text, Loader=_Loader) if document is not None]
    except yaml.YAMLError as error:
        raise bad_request("error converting YAML to JSON") from error


def _json(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise bad_request(f"json: the body does not parse: {error}") from error


def media_type(header: str | None) -> str:
    return (header or "").partition(";")[0].strip().lower()


def check_accept(header: str) -> None:
    """This server answers in JSON only. Raises APIError 406."""
    wanted = {media_type(part) for part in header.split(",")}
    if not wanted & {"", "*/*", "application/*", "application/json"}:
        raise APIError(406, "NotAcceptable", "only the following media types are accepted: application/json", {})


def read_object(body: bytes, content_type: str) -> dict[str, Any]:
    """The object in a write's body. Raises APIError 400 or 415."""
    if content_type in _YAML:
        documents = load_yaml(body)
        value = documents[0] if documents else None
    elif content_type in ("", "application/json"):
        value = _json(body) if body else None
    elif content_type == protobuf.CONTENT_TYPE and (known := protobuf.read(body)) is not None:
        value = known
    else:
        raise unsupported_media_type(_ACCEPTED)
    if not isinstance(value, dict):
        raise bad_request("the body must hold an object")
    return value


def read_patch(body: bytes, content_type: str, query: Mapping[str, str]) -> Any:
    """The patch in a body. Raises APIError 400, 415 or 422."""
    if content_type not in _PATCHES:
        raise unsupported_media_type(_PATCHES)
    if content_type == APPLY:
        if not query.get("fieldManager"):
            raise invalid(_PATCH_OPTIONS, [required("fieldManager", "is required for apply patch")])
        return read_object(body, "application/yaml")
    return _json(body)


def read_delete_options(body: bytes, content_type: str, query: Mapping[str, str]) -> DeleteOptions:
    """Options from the body, else from the query. Raises APIError 400 or 415."""
    value = read_object(body, content_type) if body else {}
    preconditions = value.get("preconditions") or {}
    policy = value.get("propagationPolicy") or query.get("propagationPolicy", "")
    if policy not in ("", "Background", "Foreground", "Orphan"):
        raise bad_request(f"propagationPolicy: Unsupported value: {policy!r}")
    dry_run = bool(value.get("dryRun")) or _dry_run(query)
    return DeleteOptions(
        uid=str(preconditions.get("uid") or ""),
        resource_version=str(preconditions.get("resourceVersion") or ""),
        orphan=policy == "Orphan" or value.get("orphanDependents") is True,
        dry_run=dry_run,
    )


def _dry_run(query: Mapping[str, str]) -> bool:
    wanted = query.get("dryRun", "")
    if wanted not in ("", "All"):
        message = f'dryRun: Unsupported value: "{wanted}": supported values: "All"'
        raise APIError(422, "Invalid", f'PatchOptions.meta.k8s.io "" is invalid: {message}', {})
    return bool(wanted)


def read_write_options(query: Mapping[str, str]) -> WriteOptions:
    """Raises APIError 422."""
    return WriteOptions(dry_run=_dry_run(query), strict=query.get("fieldValidation") == "Strict")


def read_selector(query: Mapping[str, str], strategy: Strategy) -> Selector:
    """Raises APIError 400."""
    labels, fields = query.get("labelSelector", ""), query.get("fieldSelector", "")
    return Selector(
        parse_label_selector(labels) if labels else (),
        parse_field_selector(fields, strategy.fields_supported | {"metadata.name"}) if fields else (),
    )


def read_number(query: Mapping[str, str], name: str) -> int:
    """A whole number that is not negative; 0 when it is absent. Raises APIError 400."""
    text = query.get(name, "")
    if not text:
        return 0
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise bad_request(f'{name}: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax')
    return int(text)


def is_true(query: Mapping[str, str], name: str) -> bool:
    """Go's idea of a boolean in a query: present and neither ``0`` nor ``false``."""
    return name in query and query[name].lower() not in ("0", "false")


def copy_object(value: Mapping[str, Any]) -> dict[str, Any]:
    """A deep copy, made through JSON."""
    copy: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value))
    return copy
