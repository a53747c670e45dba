"""Changes inside a JSON document: few changes of its bytes leave one."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from typing import Any, Final

ChangeBytes = Callable[[bytes, int], bytes]
"""Atheris' own: the content and the largest size, to new content."""
_VALUES: Final[tuple[Any, ...]] = (
    None, True, False, 0, -1, 2**31, 2**63, 10**4000, 1.5, 1e308, "", " ", "\0", "\ud800", "a" * 300, "é", "٣",
    [], {}, [[]], [None], {"": None}, "9999-12-31T23:59:59Z", "0000-00-00T00:00:00Z", "-0", "1h", "AAAA", "=",
)  # fmt: skip


def change_document(content: bytes, maximum: int, seed: int, change_bytes: ChangeBytes) -> bytes:
    """Another document; bytes are changed where there is none, and one time in four."""
    chance = random.Random(seed)
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return change_bytes(content, maximum)
    if chance.random() < 0.25:
        return change_bytes(content, maximum)
    for _ in range(chance.randint(1, 3)):
        document = _changed(document, chance, change_bytes)
    try:
        written = json.dumps(document).encode()
    except (ValueError, RecursionError):
        return change_bytes(content, maximum)
    return written if len(written) <= maximum else change_bytes(content, maximum)


def _changed(value: Any, chance: random.Random, change_bytes: ChangeBytes) -> Any:
    if isinstance(value, dict) and value and chance.random() < 0.9:
        key = chance.choice(sorted(value))
        action = chance.random()
        if action < 0.1:
            return {name: item for name, item in value.items() if name != key}
        if action < 0.15:
            return {**value, key + chance.choice(("x", "", "\0")): chance.choice(_VALUES)}
        return {**value, key: _changed(value[key], chance, change_bytes)}
    if isinstance(value, list) and value and chance.random() < 0.9:
        index = chance.randrange(len(value))
        action = chance.random()
        if action < 0.1:
            return value[:index] + value[index + 1 :]
        if action < 0.2:
            return [*value, value[index]] * chance.choice((1, 1, 20))
        return [*value[:index], _changed(value[index], chance, change_bytes), *value[index + 1 :]]
    if isinstance(value, str) and value and chance.random() < 0.7:
        return _changed_text(value, chance, change_bytes)
    return chance.choice(_VALUES)


def _changed_text(text: str, chance: random.Random, change_bytes: ChangeBytes) -> str:
    try:
        inside = base64.b64decode(text, validate=True)
    except ValueError:
        inside = b""
    if len(inside) > 8:  # a request, evidence, a key: what it holds is changed
        return base64.b64encode(change_bytes(inside, 2 * len(inside))).decode("ascii")
    if text.startswith("{") and chance.random() < 0.8:  # a document within the document
        changed = change_document(
            text.encode("utf-8", "surrogatepass"), 2 * len(text) + 8, chance.getrandbits(32), change_bytes
        )
        return changed.decode("utf-8", "surrogateescape")
    changed = change_bytes(text.encode("utf-8", "surrogatepass"), 2 * len(text) + 8)
    return changed.decode("utf-8", "surrogateescape")
