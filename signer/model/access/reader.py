"""Strict reading of hostile objects: each field has its path, its type and its bounds, and no field is unknown."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.key_line import parse_key_line
from signer.model.access.errors import InvalidAccessObject
from signer.model.addresses import MAXIMUM_NAME_CHARACTERS, is_subdomain
from signer.model.durations import parse_duration
from signer.model.fields import parse_time

T = TypeVar("T")
MAXIMUM_UID_CHARACTERS: Final = 128
"""Kubernetes' UIDs have 36."""
_LABEL: Final = re.compile(r"(?=.{1,63}\Z)[a-z0-9](?:[a-z0-9-]*[a-z0-9])?", re.ASCII)
_UID: Final = re.compile(r"[A-Za-z0-9._-]{1,128}")


@dataclass(frozen=True, slots=True)
class Reader:
    """One object inside the object that is read.

    Every method raises ``error`` with the path of the field that is invalid.
    """

    error: type[InvalidAccessObject]
    path: str
    """Empty for the whole object."""
    fields: Mapping[str, Any]

    def at(self, name: str) -> str:
        """The path of a field."""
        return f"{self.path}.{name}" if self.path else name

    def has(self, name: str) -> bool:
        """Whether the field is there; null is as good as missing, as for the API server."""
        return self.fields.get(name) is not None

    def invalid(self, name: str, message: str) -> InvalidAccessObject:
        """The error for a field of this object."""
        return self.error(self.at(name), message)

    def knows(self, *names: str) -> Reader:
        """This object, if it has no other field."""
        if not self.fields.keys() <= set(names):
            raise self.error(self.path, f"has a field that is none of {', '.join(names)}")
        return self

    def object(self, name: str) -> Reader:
        """The object at ``name``, which must be there."""
        value = self.fields.get(name)
        if not isinstance(value, Mapping):
            raise self.invalid(name, "must be an object")
        return Reader(self.error, self.at(name), value)

    def optional(self, name: str) -> Reader:
        """The object at ``name``; empty if it is missing."""
        return self.object(name) if self.has(name) else Reader(self.error, self.at(name), {})

    def text(self, name: str, maximum: int, pattern: re.Pattern[str], form: str) -> str:
        """A string of that form, which must be there."""
        value = self.fields.get(name)
        if not isinstance(value, str) or len(value) > maximum or pattern.fullmatch(value) is None:
            raise self.invalid(name, f"must be {form}")
        return value

    def optional_text(self, name: str, maximum: int, pattern: re.Pattern[str], form: str) -> str:
        """A string of that form; empty if it is missing or empty."""
        return self.text(name, maximum, pattern, form) if self.has(name) and self.fields[name] != "" else ""

    def subdomain(self, name: str, maximum: int = MAXIMUM_NAME_CHARACTERS) -> str:
        """The name of an object, which must be there."""
        return self.read(name, lambda value: subdomain(value, maximum))

    def label(self, name: str) -> str:
        """A DNS label (RFC 1123), as names of namespaces and containers are."""
        return self.text(name, 63, _LABEL, "a DNS label: up to 63 lower-case letters, digits and '-'")

    def uid(self, name: str) -> str:
        """A UID, which must be there."""
        return self.text(name, MAXIMUM_UID_CHARACTERS, _UID, "a UID")

    def flag(self, name: str, default: bool) -> bool:
        """A boolean."""
        value = self.fields.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.invalid(name, "must be true or false")
        return value

    def number(self, name: str, minimum: int, maximum: int) -> int:
        """A whole number, which must be there."""
        value = self.fields.get(name)
        if type(value) is not int or not minimum <= value <= maximum:
            raise self.invalid(name, f"must be a whole number from {minimum} to {maximum}")
        return value

    def duration(self, name: str, minimum: timedelta, maximum: timedelta, bounds: str) -> timedelta:
        """A duration of hours, minutes and seconds, which must be there."""
        value = self.fields.get(name)
        try:
            duration = parse_duration(value if isinstance(value, str) else "")
        except ValueError as error:
            raise self.invalid(name, f"is invalid: {error}") from error
        if not minimum <= duration <= maximum:
            raise self.invalid(name, f"must be {bounds}")
        return duration

    def time(self, name: str) -> datetime:
        """A ``metav1.Time``, which must be there."""
        value = self.fields.get(name)
        try:
            return parse_time(value if isinstance(value, str) else "")
        except ValueError as error:
            raise self.invalid(name, f"is invalid: {error}") from error

    def key_line(self, name: str) -> str:
        """A public key, exactly ``type base64``."""
        return self.read(name, key_line)

    def read(self, name: str, reader: Callable[[Any], T]) -> T:
        """The value at ``name`` by a function that raises ValueError with the end of a sentence."""
        try:
            return reader(self.fields.get(name))
        except ValueError as error:
            raise self.invalid(name, str(error)) from error

    def objects(self, name: str, minimum: int, maximum: int) -> tuple[Reader, ...]:
        """The objects of a list; empty if it is missing and ``minimum`` is 0."""
        found = []
        for index, item in enumerate(self._items(name, minimum, maximum)):
            path = f"{self.at(name)}[{index}]"
            if not isinstance(item, Mapping):
                raise self.error(path, "must be an object")
            found.append(Reader(self.error, path, item))
        return tuple(found)

    def each(self, name: str, minimum: int, maximum: int, reader: Callable[[Any], T]) -> tuple[T, ...]:
        """The values of a list, each once, by a function as for :meth:`read`."""
        found: list[T] = []
        for index, item in enumerate(self._items(name, minimum, maximum)):
            path = f"{self.at(name)}[{index}]"
            try:
                value = reader(item)
            except ValueError as error:
                raise self.error(path, str(error)) from error
            if value in found:
                raise self.error(path, "is there twice")
            found.append(value)
        return tuple(found)

    def _items(self, name: str, minimum: int, maximum: int) -> list[Any]:
        value = self.fields.get(name)
        items = [] if value is None else value
        if not isinstance(items, list) or not minimum <= len(items) <= maximum:
            raise self.invalid(name, f"must be a list of {minimum} to {maximum}")
        return items


def subdomain(value: Any, maximum: int = MAXIMUM_NAME_CHARACTERS) -> str:
    """A DNS subdomain, as names of most objects are. Raises ValueError."""
    if not isinstance(value, str) or len(value) > maximum or not is_subdomain(value):
        raise ValueError(f"must be a name in lower case of at most {maximum} characters")
    return value


def key_line(value: Any) -> str:
    """A public key, exactly ``type base64``. Raises ValueError."""
    try:
        parse_key_line(value if isinstance(value, str) else "")
    except SSHRefused as error:
        raise ValueError(f"is no public key: {error}") from error
    return str(value)
