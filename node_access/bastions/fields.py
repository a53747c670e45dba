"""Strict reading of a provider's settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.options import parse_network
from node_access.bastions.contract import InvalidSettings, Network

_NETWORK: Final = re.compile(r"[0-9A-Fa-f:./]{3,49}", re.ASCII)


def require_known(document: Mapping[str, Any], known: frozenset[str], what: str) -> None:
    """Refuse a setting that does not exist.

    Raises:
        InvalidSettings: there is one.
    """
    unknown = sorted(str(one)[:64] for one in set(document) - known)
    if unknown:
        raise InvalidSettings(
            f"{what}: there is no setting {unknown[0]!a}; there are {', '.join(sorted(known)) or 'none'}"
        )


def text(document: Mapping[str, Any], name: str, form: re.Pattern[str], default: str | None = None) -> str:
    """A text of that form. Raises InvalidSettings."""
    value = document.get(name, default)
    if not isinstance(value, str) or form.fullmatch(value) is None:
        raise InvalidSettings(f"{name} must be a text of the form {form.pattern}")
    return value


def texts(
    document: Mapping[str, Any], name: str, form: re.Pattern[str], *, least: int = 0, most: int = 64
) -> tuple[str, ...]:
    """A list of different texts of that form. Raises InvalidSettings."""
    values = document.get(name, [])
    if not isinstance(values, list) or not least <= len(values) <= most:
        raise InvalidSettings(f"{name} must be a list of {least} to {most} texts")
    if not all(isinstance(one, str) and form.fullmatch(one) for one in values) or len(set(values)) != len(values):
        raise InvalidSettings(f"{name} must be a list of different texts of the form {form.pattern}")
    return tuple(values)


def networks(document: Mapping[str, Any], name: str) -> tuple[Network, ...]:
    """A list of different networks in canonical form. Raises InvalidSettings."""
    try:
        return tuple(map(parse_network, texts(document, name, _NETWORK)))
    except SSHRefused as error:
        raise InvalidSettings(f"{name}: {error.message}") from error


def switch(document: Mapping[str, Any], name: str, *, default: bool) -> bool:
    """``true`` or ``false``. Raises InvalidSettings."""
    value = document.get(name, default)
    if not isinstance(value, bool):
        raise InvalidSettings(f"{name} must be true or false")
    return value


def number(document: Mapping[str, Any], name: str, default: int, least: int, most: int) -> int:
    """A whole number. Raises InvalidSettings."""
    value = document.get(name, default)
    if type(value) is not int or not least <= value <= most:
        raise InvalidSettings(f"{name} must be a whole number from {least} to {most}")
    return value


def mapping(document: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """An object, empty if the setting is absent. Raises InvalidSettings."""
    value = document.get(name, {})
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise InvalidSettings(f"{name} must be an object")
    return value
