"""A small subset of YAML, for untrusted documents.

The document is built from the parser's events, so only these types can occur: mappings with string keys, lists, and
scalars that are a string, true, false or null. Refused: anchors, aliases (and so alias bombs), explicit tags, repeated
keys, merge keys, a second document with content, deep nesting. A plain scalar that looks like a number or a date stays
a string.
"""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from typing import Any

import yaml

MAXIMUM_DEPTH = 16
_MERGE = "<<"
"""Other parsers take the fields of its value for fields of the mapping (YAML 1.1, type ``merge``)."""
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_PLAIN: dict[str, bool | None] = {"": None, "~": None, "null": None, "true": True, "false": False}


class YamlRefused(ValueError):
    """A document is outside the subset; the message never contains its content."""


def load_strict_yaml(data: bytes) -> Any:
    """The one document in ``data``, within the subset above: UTF-8, or UTF-16 with a byte order mark, as YAML says.

    The caller bounds the size. Raises YamlRefused, and no other error, whatever the bytes.
    """
    try:
        text = data.decode("utf-16" if data.startswith(_UTF_16) else "utf-8")
    except UnicodeDecodeError:
        raise YamlRefused("it is not UTF-8") from None
    try:
        events = yaml.parse(text, Loader=_LOADER)
        return _document(events)
    except YamlRefused:
        raise
    except yaml.MarkedYAMLError as error:
        raise YamlRefused(f"syntax error{position(error)}") from None
    except (yaml.YAMLError, ValueError, OverflowError):  # the last two: escapes, where PyYAML has no libyaml
        raise YamlRefused("it holds characters that YAML does not allow") from None


def position(error: yaml.YAMLError) -> str:
    """The place of an error, to be appended to a message; empty if the library gives none. Quotes nothing."""
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    return "" if mark is None else f" at line {mark.line + 1}, column {mark.column + 1}"


def _document(events: Iterator[yaml.Event]) -> Any:
    value: Any = None
    documents = 0
    for event in events:
        if isinstance(event, (yaml.StreamStartEvent, yaml.StreamEndEvent, yaml.DocumentEndEvent)):
            continue
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if event.tags:
                raise YamlRefused("tag directives are not accepted")
            continue
        found = _node(event, events, 0)
        if documents == 1:
            value = found
        elif found is not None:
            raise YamlRefused("it holds more than one document")
    if documents == 0:
        raise YamlRefused("it is empty")
    return value


def _node(event: yaml.Event, events: Iterator[yaml.Event], depth: int) -> Any:
    if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None) is not None:
        raise YamlRefused("anchors and aliases are not accepted")
    if getattr(event, "tag", None) is not None:
        raise YamlRefused("explicit tags are not accepted")
    if depth > MAXIMUM_DEPTH:
        raise YamlRefused(f"it is nested deeper than {MAXIMUM_DEPTH} levels")
    if isinstance(event, yaml.ScalarEvent):
        return _PLAIN.get(event.value, event.value) if event.implicit[0] else event.value
    if isinstance(event, yaml.SequenceStartEvent):
        items: list[Any] = []
        while not isinstance(item := next(events), yaml.SequenceEndEvent):
            items.append(_node(item, events, depth + 1))
        return items
    mapping: dict[str, Any] = {}
    while not isinstance(key_event := next(events), yaml.MappingEndEvent):
        key = _node(key_event, events, depth + 1)
        if not isinstance(key, str):
            raise YamlRefused("a mapping key is not a string")
        if key == _MERGE:
            raise YamlRefused("merge keys are not accepted")
        if key in mapping:
            raise YamlRefused("a mapping key appears twice")
        mapping[key] = _node(next(events), events, depth + 1)
    return mapping
