"""Kubernetes manifests out of files: YAML or JSON, one or many documents, Lists taken apart.

The files come from other people's clusters. Their values are JSON's: what looks like a date stays text, because a
CSR's digest is over JSON; no aliases, so that a small file cannot become a large one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from signer.model.cluster import items_of

MAXIMUM_FILE_BYTES: Final = 64 * 1024 * 1024
_ENDINGS: Final = (".yaml", ".yml", ".json")
_BASE: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TIMESTAMP: Final = "tag:yaml.org,2002:timestamp"


class UnreadableManifests(ValueError):
    """A file holds no manifests; the message names it, and nothing of its content."""


class _JsonValues(_BASE):  # type: ignore[misc,valid-type]  # which of the two is known when it runs
    """YAML with JSON's values."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - the library's own form
        first: [(tag, pattern) for tag, pattern in resolvers if tag != _TIMESTAMP]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def manifests_in(path: Path) -> tuple[dict[str, Any], ...]:
    """All manifests of a file, or of the files of a folder in the order of their names.

    Raises:
        UnreadableManifests: a file cannot be read, or holds something else.
    """
    try:
        files = sorted(one for one in path.iterdir() if one.suffix in _ENDINGS) if path.is_dir() else [path]
        if not files:
            raise UnreadableManifests(f"{path} holds no file that ends in {', '.join(_ENDINGS)}")
        return tuple(manifest for file in files for manifest in manifests_of(_bounded(file), str(file)))
    except OSError as error:
        raise UnreadableManifests(f"{path}: {error.strerror or type(error).__name__}") from error


def manifests_of(data: bytes, name: str) -> tuple[dict[str, Any], ...]:
    """All manifests in ``data``; ``name`` is for messages.

    Raises:
        UnreadableManifests: it is neither JSON nor YAML, or holds something else than objects.
    """
    try:
        documents = [msgspec.json.decode(data)]
    except (msgspec.DecodeError, RecursionError):
        documents = _yaml(data, name)
    found = [manifest for document in documents for manifest in _taken_apart(document, name)]
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
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, Loader=_BASE)):
            raise UnreadableManifests(f"{name} holds YAML aliases")
        # A subclass of the safe loader: it makes plain values only.
        return list(yaml.load_all(text, Loader=_JsonValues))
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        if isinstance(error, UnreadableManifests):
            raise
        raise UnreadableManifests(f"{name} is neither JSON nor YAML") from None


def _taken_apart(document: Any, name: str) -> Iterator[dict[str, Any]]:
    if document is None:
        return
    if not isinstance(document, dict):
        raise UnreadableManifests(f"{name} holds something else than objects")
    if str(document.get("kind", "")).endswith("List") and isinstance(document.get("items"), list):
        for item in items_of(document, "items"):
            yield from _taken_apart(item, name)
    else:
        yield document
