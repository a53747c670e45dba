"""Reads Kubernetes manifests from YAML or JSON files with any number of documents, and flattens Lists.

The files are untrusted. Values are those of JSON: dates stay text, because a CSR's digest is over JSON. Aliases are
refused, because they let a small file become a large one. Deep nesting is refused, because it costs parsers quadratic
time or ends the process.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from signer.kube.answers import MAXIMUM_DEPTH, limit_depth
from signer.model.fields import items_of

MAXIMUM_FILE_BYTES: Final = 64 * 1024 * 1024
_ENDINGS: Final = (".yaml", ".yml", ".json")
_BASE: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_ABOVE_NUMBERS: Final = 2**64
_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"


class UnreadableManifests(ValueError):
    """A file holds no usable manifests; the message names the file and quotes none of its content."""


class _JsonValues(_BASE):  # type: ignore[misc,valid-type]  # which of the two is known when it runs
    """A YAML loader whose values are those of JSON."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - the library's own form
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def manifests_in(path: Path) -> tuple[dict[str, Any], ...]:
    """All manifests of a file, or of the files of a folder in order of their names.

    Raises:
        UnreadableManifests: a file cannot be read, or holds no manifests.
    """
    try:
        files = sorted(one for one in path.iterdir() if one.suffix in _ENDINGS) if path.is_dir() else [path]
        if not files:
            raise UnreadableManifests(f"{path} holds no {', '.join(_ENDINGS)} file")
        return tuple(manifest for file in files for manifest in manifests_of(_bounded(file), str(file)))
    except OSError as error:
        raise UnreadableManifests(f"{path}: {error.strerror or type(error).__name__}") from error


def manifests_of(data: bytes, name: str) -> tuple[dict[str, Any], ...]:
    """All manifests in ``data``; ``name`` is used in messages.

    Raises:
        UnreadableManifests: ``data`` is neither JSON nor YAML, or holds anything other than objects.
    """
    try:
        documents = [msgspec.json.decode(data)]
    except (msgspec.DecodeError, RecursionError):
        documents = _yaml(data, name)
    else:
        if limit_depth(data) != data:
            raise UnreadableManifests(f"{name} is nested deeper than {MAXIMUM_DEPTH} levels")
    found = [manifest for document in documents for manifest in _flattened(document, name)]
    if not found:
        raise UnreadableManifests(f"{name} holds no object")
    return tuple(found)


def _bounded(file: Path) -> bytes:
    with file.open("rb") as stream:
        data = stream.read(MAXIMUM_FILE_BYTES + 1)
    if len(data) > MAXIMUM_FILE_BYTES:
        raise UnreadableManifests(f"{file} is larger than {MAXIMUM_FILE_BYTES} bytes")
    return data


def _yaml(data: bytes, name: str) -> list[Any]:
    try:
        text = data.decode("utf-8")
        _require_plain(text, name)
        # A subclass of the safe loader, which makes plain values only.
        return [_json_value(one) for one in yaml.load_all(text, Loader=_JsonValues)]
    except (yaml.YAMLError, ValueError, TypeError, ArithmeticError, RecursionError) as error:
        if isinstance(error, UnreadableManifests):
            raise
        raise UnreadableManifests(f"{name} is neither JSON nor YAML") from None


def _json_value(value: Any) -> Any:
    """Convert to JSON values: keys become text; sets, bytes and infinite numbers are refused.

    Raises:
        ValueError: JSON has no such value.
    """
    if isinstance(value, dict):
        return {key if isinstance(key, str) else json.dumps(key): _json_value(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_json_value(one) for one in value]
    if isinstance(value, int | float) and (not math.isfinite(value) or abs(value) >= _ABOVE_NUMBERS):
        raise ValueError("a number out of the range of an API server")
    if value is None or isinstance(value, str | bool | int | float):
        return value
    raise ValueError("not a JSON value")


def _require_plain(text: str, name: str) -> None:
    depth = 0
    for event in yaml.parse(text, Loader=_BASE):
        if isinstance(event, yaml.AliasEvent):
            raise UnreadableManifests(f"{name} holds YAML aliases")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > MAXIMUM_DEPTH:
            raise UnreadableManifests(f"{name} is nested deeper than {MAXIMUM_DEPTH} levels")


def _flattened(document: Any, name: str) -> Iterator[dict[str, Any]]:
    if document is None:
        return
    if not isinstance(document, dict):
        raise UnreadableManifests(f"{name} holds something other than objects")
    if str(document.get("kind", "")).endswith("List") and isinstance(document.get("items"), list):
        for item in items_of(document, "items"):
            yield from _flattened(item, name)
    else:
        yield document
