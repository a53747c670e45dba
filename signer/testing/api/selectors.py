"""Label and field selectors (k8s.io/apimachinery ``pkg/labels`` and ``pkg/fields``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from . import metadata
from .status import bad_request

Fields = Callable[[dict[str, Any]], Mapping[str, str]]
"""The selectable fields of an object, by path."""

_SET = re.compile(r"^\s*([^\s!=,()]+)\s+(in|notin)\s*\(([^()]*)\)\s*$")
_EQUAL = re.compile(r"^\s*([^\s!=,()]+)\s*(==|=|!=)\s*([^\s!=,()]*)\s*$")
_BOUND = re.compile(r"^\s*([^\s!=,()<>]+)\s*([<>])\s*(\S*)\s*$")
_NUMBER = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)
_EXISTS = re.compile(r"^\s*(!?)\s*([^\s!=,()]+)\s*$")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term: the value must be among ``values``, or (``negated``) must not; no ``values`` ask for existence.

    With ``above`` or ``below`` it must be a whole number beyond that one.
    """

    key: str
    values: frozenset[str]
    negated: bool
    above: int | None = None
    below: int | None = None

    def matches(self, values: Mapping[str, str]) -> bool:
        value = values.get(self.key)
        if self.above is not None or self.below is not None:
            number = int(value) if value is not None and _NUMBER.fullmatch(value) else None
            if number is None:
                return False
            return (self.above is None or number > self.above) and (self.below is None or number < self.below)
        if not self.values:
            return (value is None) == self.negated
        return (value in self.values) != self.negated


@dataclass(frozen=True, slots=True)
class Selector:
    """Labels and fields that an object must have to be listed or watched. Matches everything when empty."""

    labels: tuple[Requirement, ...] = ()
    fields: tuple[Requirement, ...] = ()

    @property
    def empty(self) -> bool:
        return not self.labels and not self.fields

    def matches(self, item: dict[str, Any], fields: Fields) -> bool:
        if self.labels:
            labels = item["metadata"].get("labels") or {}
            if not all(term.matches(labels) for term in self.labels):
                return False
        if self.fields:
            values = fields(item)
            return all(term.matches(values) for term in self.fields)
        return True

    def single_name(self) -> str:
        """The object's name when the selector pins ``metadata.name`` (authorization then sees a resource name)."""
        for term in self.fields:
            if term.key == "metadata.name" and not term.negated and len(term.values) == 1:
                return next(iter(term.values))
        return ""


def _terms(text: str) -> list[str]:
    terms, depth, current = [], 0, ""
    for character in text:
        if character == "," and depth == 0:
            terms.append(current)
            current = ""
            continue
        depth += (character == "(") - (character == ")")
        current += character
    return [*terms, current] if current.strip() or terms else []


def parse_label_selector(text: str) -> tuple[Requirement, ...]:
    """Raises APIError 400 for a selector that does not parse."""
    return tuple(_requirement(term) for term in _terms(text))


def _requirement(term: str) -> Requirement:
    if match := _SET.match(term):
        found = Requirement(match[1], frozenset(value.strip() for value in match[3].split(",")), match[2] == "notin")
    elif match := _EQUAL.match(term):
        found = Requirement(match[1], frozenset({match[3]}), match[2] == "!=")
    elif (match := _BOUND.match(term)) and _NUMBER.fullmatch(match[3]):
        bound = int(match[3])
        above, below = (bound, None) if match[2] == ">" else (None, bound)
        found = Requirement(match[1], frozenset(), negated=False, above=above, below=below)
    elif match := _EXISTS.match(term):
        found = Requirement(match[2], frozenset(), match[1] == "!")
    else:
        raise bad_request(f"unable to parse requirement: {term!r}")
    if reason := metadata.qualified_name(found.key):
        raise bad_request(f"unable to parse requirement: invalid label key {found.key!r}: {reason}")
    for value in found.values:
        if reason := metadata.label_value(value):
            raise bad_request(f"unable to parse requirement: invalid label value {value!r}: {reason}")
    return found


def parse_field_selector(text: str, supported: frozenset[str]) -> tuple[Requirement, ...]:
    """Raises APIError 400 for a selector that does not parse or names a field that this resource cannot select."""
    found = []
    for term in text.split(","):
        if not term:
            continue
        match = re.match(r"^([^=!]+)(==|=|!=)(.*)$", term, re.DOTALL)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        if match[1] not in supported:
            raise bad_request(f"field label not supported: {match[1]}")
        found.append(Requirement(match[1], frozenset({match[3]}), match[2] == "!="))
    return tuple(found)
