"""Writes values of the model as JSON and reads them back. Reading is strict, because a log may be forged.

msgspec writes, because every decision waits for it. Reading follows the types: an object has exactly the fields of its
dataclass, and the fields select the member of a union.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from types import MappingProxyType
from typing import Any, Final, TypeVar

import msgspec

from signer.model.record_object import PackedJournal

T = TypeVar("T")

_IP_TYPES: Final = (IPv4Address, IPv6Address, IPv4Network, IPv6Network)


class InvalidValue(ValueError):
    """A value is not of its type. The message names its path."""


def _other(value: Any) -> Any:
    """Encode the types that msgspec does not know."""
    if isinstance(value, MappingProxyType):
        return dict(value)
    if isinstance(value, _IP_TYPES):
        return str(value)
    if isinstance(value, PackedJournal):
        return tuple(value)
    raise TypeError(f"{type(value).__name__} cannot be written")


_ENCODER: Final = msgspec.json.Encoder(order="deterministic", enc_hook=_other)


def write(value: Any) -> bytes:
    """Encode a value as JSON. Equal values give equal bytes.

    Raises:
        TypeError, ValueError, RecursionError: it cannot be encoded as JSON.
    """
    return _ENCODER.encode(value)


def read(kind: Any, value: Any, where: str) -> Any:
    """The value of type ``kind`` from parsed JSON of :func:`write`.

    Raises:
        InvalidValue: it is not exactly of that type; the message begins with ``where``.
    """
    try:
        return _reader(kind)(value)
    except InvalidValue as error:
        raise InvalidValue(f"{where}{error}") from error
    except RecursionError as error:
        raise InvalidValue(f"{where} is nested too deeply") from error


@functools.lru_cache(maxsize=512)
def _reader(kind: Any) -> Callable[[Any], Any]:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return lambda value: value
    if origin in (typing.Union, types.UnionType):
        return _union(arguments)
    if origin in (tuple, Sequence):
        return _sequence(tuple, _reader(arguments[0]))
    if origin is frozenset:
        return _sequence(frozenset, _reader(arguments[0]))
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(_reader(arguments[1]))
    if _is_dataclass(kind):
        return _dataclass(kind)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _through(kind, str)
    if kind in _IP_TYPES:
        return _through(kind, str)
    if kind is datetime:
        return _moment
    if kind is timedelta:
        return lambda value: _converted(value, timedelta)
    if kind in (str, bool, int):
        return _exactly(kind)
    raise TypeError(f"no reader for {kind}")


def _exactly(kind: type) -> Callable[[Any], Any]:
    def reader(value: Any) -> Any:
        if type(value) is not kind:
            raise InvalidValue(f" is not of type {kind.__name__}")
        return value

    return reader


def _through(make: Callable[[Any], Any], kind: type) -> Callable[[Any], Any]:
    def reader(value: Any) -> Any:
        try:
            return make(_exactly(kind)(value))
        except ValueError as error:
            raise InvalidValue(f" is not a valid {getattr(make, '__name__', 'value')}") from error

    return reader


def _converted(value: Any, kind: type[T]) -> T:
    try:
        return msgspec.convert(_exactly(str)(value), kind)
    except (msgspec.ValidationError, OverflowError) as error:
        raise InvalidValue(f" is not a valid {kind.__name__}") from error


def _moment(value: Any) -> datetime:
    moment = _converted(value, datetime)
    if moment.tzinfo is None:
        raise InvalidValue(" is a time without a zone")
    return moment.astimezone(UTC)


def _sequence(make: Callable[[Any], Any], item: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def reader(value: Any) -> Any:
        return make([_inside(f"[{index}]", item, one) for index, one in enumerate(_exactly(list)(value))])

    return reader


def _mapping(item: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def reader(value: Any) -> Any:
        return {key: _inside(f".{key[:64]}", item, one) for key, one in _exactly(dict)(value).items()}

    return reader


def _inside(where: str, reader: Callable[[Any], Any], value: Any) -> Any:
    try:
        return reader(value)
    except InvalidValue as error:
        raise InvalidValue(f"{where}{error}") from error


_OF_THE_LOG: Final = "signer.audit"
MAY_BE_MISSING: Final[Mapping[str, bool]] = MappingProxyType({"may be missing": True})
"""Metadata of a later field that lines of the same version may lack. Its default has the same meaning."""


@functools.lru_cache(maxsize=128)
def _fields(kind: type) -> Mapping[str, Any]:
    hints = typing.get_type_hints(kind)
    return {field.name: hints[field.name] for field in dataclasses.fields(kind)}


def _needed(kind: type) -> frozenset[str]:
    """The required fields. In a view, a field with a default may be newer than the line. The log's own types are
    versioned, and a missing stage would mean that it was not reached: there, only marked fields may be missing.
    """
    if kind.__module__.startswith(_OF_THE_LOG):
        return frozenset(field.name for field in dataclasses.fields(kind) if not field.metadata)
    missing = dataclasses.MISSING
    return frozenset(
        field.name
        for field in dataclasses.fields(kind)
        if field.default is missing and field.default_factory is missing
    )


def _dataclass(kind: type) -> Callable[[Any], Any]:
    fields, needed = _fields(kind), _needed(kind)

    def reader(value: Any) -> Any:
        found = _exactly(dict)(value)
        if not needed <= found.keys() <= fields.keys():
            raise InvalidValue(f" does not have the fields of {kind.__name__}")
        # The readers of the fields are looked up late, because types may be recursive.
        read_fields = {name: _inside(f".{name}", _reader(fields[name]), found[name]) for name in found}
        try:
            return kind(**read_fields)
        except ValueError as error:
            raise InvalidValue(f" is not a valid {kind.__name__}: {error}") from error

    return reader


def _is_dataclass(kind: Any) -> bool:
    return isinstance(kind, type) and dataclasses.is_dataclass(kind)


def _union(members: tuple[Any, ...]) -> Callable[[Any], Any]:
    dataclass_members = [member for member in members if _is_dataclass(member)]
    others = [member for member in members if not _is_dataclass(member)]

    def reader(value: Any) -> Any:
        if isinstance(value, dict):
            fitting = [
                member for member in dataclass_members if _needed(member) <= value.keys() <= _fields(member).keys()
            ]
            if len(fitting) == 1:
                return _reader(fitting[0])(value)
        for member in others:
            try:
                return None if member is type(None) and value is None else _reader(member)(value)
            except (InvalidValue, TypeError):
                continue
        raise InvalidValue(" is of none of the allowed types")

    return reader
