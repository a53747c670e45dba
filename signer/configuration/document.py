"""The configuration file as YAML: read strictly, with messages that quote no value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from attestors.net.strict_yaml import position
from signer.model.command_failures import InputRefused
from signer.model.decision import printable
from signer.model.object_names import NAMESPACE, NAMESPACE_FORM

ALL_NAMESPACES: Final = "*"
MAXIMUM_DEPTH: Final = 64
"""Maximum nesting of the file; no attestor's settings come near."""
# What a message may quote: a longer key, or one with other characters, may hold a value, as in {masterKey:SECRET}.
_FIELD_NAME: Final = re.compile(r"[A-Za-z][A-Za-z-]{0,39}", re.ASCII)


class InvalidConfiguration(InputRefused, ValueError):
    """The configuration is invalid; the message names the file's field or the flag."""


class _RepeatedKey(yaml.constructor.ConstructorError):
    """A mapping has the same key twice; the mark is where the key is repeated."""


class _NoValue(yaml.constructor.ConstructorError):
    """A scalar has the form or tag of a number or a date, for example, but an invalid value; the mark is its start."""


class _NestedTooDeeply(yaml.composer.ComposerError):
    """The file exceeds the maximum nesting, beyond which the library's time grows with the square of the depth."""


class _NoRepeatedKeys(yaml.SafeLoader):
    """Loader that refuses repeated keys: in YAML a second ``tpm:`` would silently replace the first."""

    _depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Refuse nodes that are nested too deeply."""
        if self._depth == MAXIMUM_DEPTH:
            raise _NestedTooDeeply
        self._depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Report invalid scalars with their position: ``2024-99-99`` raises ValueError, and ``!!bool x`` KeyError."""
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError, ArithmeticError):
            raise _NoValue(None, None, "there is no such value", node.start_mark) from None

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Refuse repeated keys."""
        keys = set()
        for key_node, _ in node.value:
            key = str(self.construct_object(key_node, deep=True))
            if key in keys:
                raise _RepeatedKey(None, None, "a key is repeated", key_node.start_mark)
            keys.add(key)
        return super().construct_mapping(node, deep)


def read_document(path: Path) -> Any:
    """The parsed file; None if it is empty. Messages never quote it, because settings may hold secrets."""
    try:
        # A subclass of SafeLoader: it makes plain values only.
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_NoRepeatedKeys)  # noqa: S506
    except OSError as error:
        raise InvalidConfiguration(f"--config: {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InvalidConfiguration(f"--config: {path} is not UTF-8 text") from error
    except _NestedTooDeeply:
        raise InvalidConfiguration(f"--config: {path} is nested too deeply") from None
    except _RepeatedKey as error:
        raise InvalidConfiguration(f"--config: {path} repeats a key{position(error)}") from error
    except _NoValue as error:
        why = "there is no such value; quote text that looks like a number or a date"
        raise InvalidConfiguration(f"--config: {path} is not YAML{position(error)}: {why}") from error
    except yaml.YAMLError as error:
        raise InvalidConfiguration(f"--config: {path} is not YAML{position(error)}{_tab(error)}") from error
    except ValueError:  # an escape sequence for no character, or a key with more digits than Python converts
        raise InvalidConfiguration(f"--config: {path} is not YAML") from None


def _tab(error: yaml.YAMLError) -> str:
    """The remedy if the error is a tab, which YAML allows nowhere in indentation; else nothing."""
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    is_tab = mark is not None and mark.buffer is not None and mark.buffer[mark.pointer : mark.pointer + 1] == "\t"
    return ": there is a tab; indent with spaces" if is_tab else ""


def unknown_fields(fields: Mapping[Any, Any], known: frozenset[str]) -> list[str]:
    """The fields that the file cannot have, as a message may name them."""
    return [
        repr(field) if _FIELD_NAME.fullmatch(str(field)) else "a field of another form"
        for field in fields
        if field not in known
    ]


def object_of(path: str, value: Any) -> Mapping[str, Any]:
    """The object; an empty one for null.

    Raises:
        InvalidConfiguration: it is none.
    """
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidConfiguration(f"--config: {path} must be an object")
    return value


def read_namespaces(path: str, namespaces: Any) -> frozenset[str]:
    """A list of namespaces, or ``*``.

    Raises:
        InvalidConfiguration: a field is invalid.
    """
    if not isinstance(namespaces, list) or not all(isinstance(namespace, str) for namespace in namespaces):
        raise InvalidConfiguration(f"--config: {path} must be a list of names, or ['*']")
    for namespace in namespaces:
        if namespace != ALL_NAMESPACES:
            require_namespace(path, namespace, f"; '{ALL_NAMESPACES}' means all")
    return frozenset(namespaces)


def require_namespace(path: str, namespace: Any, otherwise: str) -> None:
    """Refuse an impossible namespace name, which would silently have no effect."""
    if NAMESPACE.fullmatch(str(namespace)) is None or not isinstance(namespace, str):
        raise InvalidConfiguration(
            f"--config: {path}: {printable(str(namespace))!r} is no namespace: {NAMESPACE_FORM}{otherwise}"
        )
