"""JSON files of the runtime: root wrote them, and tenants chose some of their content."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NoReturn

MAXIMUM_BYTES: Final = 4 * 1024 * 1024
_MAXIMUM_DEPTH: Final = 64


class Unreadable(ValueError):
    """A file is missing or not of its form; the message says which, and why, without its content."""


def read_bytes(path: Path, maximum: int = MAXIMUM_BYTES) -> bytes:
    """The content of a regular file.

    Raises:
        Unreadable: it is missing, too large, or something else.
    """
    try:
        opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        with open(opened, "rb") as file:
            content = file.read(maximum + 1)
    except OSError as error:
        raise Unreadable(f"{path.name}: {error.strerror}") from None
    if len(content) > maximum:
        raise Unreadable(f"{path.name}: larger than {maximum} bytes")
    return content


def parse_object(content: bytes, name: str) -> Mapping[str, Any]:
    """Parse a JSON object (RFC 8259) in which no name comes twice.

    Raises:
        Unreadable: it is anything else.
    """
    try:
        document = json.loads(content.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse)
    except (ValueError, RecursionError):
        raise Unreadable(f"{name}: not JSON") from None
    if not isinstance(document, dict) or not _is_shallow(document):
        raise Unreadable(f"{name}: not a JSON object of a depth of at most {_MAXIMUM_DEPTH}")
    return document


def read_object(path: Path) -> Mapping[str, Any]:
    """The JSON object in a file. Raises ``Unreadable``."""
    return parse_object(read_bytes(path), path.name)


def member(document: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    """The object inside at that place; an empty one where there is none.

    Raises:
        Unreadable: something else is there.
    """
    found: Any = document
    for name in names:
        found = found.get(name, {})
        if not isinstance(found, dict):
            raise Unreadable(f"{name} is not an object")
    return found  # type: ignore[no-any-return]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) != len(pairs):
        raise ValueError
    return document


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _is_shallow(document: Any) -> bool:
    level = [document]
    for _ in range(_MAXIMUM_DEPTH):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return True
    return False


def _inside(value: Any) -> list[Any]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [one for one in inner if isinstance(one, dict | list)]
