"""Secrets and ConfigMaps: data under keys (Kubernetes ``pkg/apis/core/validation``)."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from .status import FieldError, forbidden_field, invalid_value, required, too_long
from .strategy import Context, Strategy

MAXIMUM_BYTES: Final = 1024 * 1024
"""Of all values together."""
_MAXIMUM_KEY_CHARACTERS: Final = 253
_KEY: Final = re.compile(r"[-._a-zA-Z0-9]+")
_REQUIRED_KEYS: Final = {
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}
_ONE_REQUIRED_KEY: Final = {"kubernetes.io/basic-auth": ("username", "password")}


class Secrets(Strategy):
    """``stringData`` is written into ``data``; the type never changes."""

    fields_supported = frozenset({"metadata.name", "metadata.namespace", "type"})

    def fields(self, value: dict[str, Any]) -> Mapping[str, str]:
        return {**super().fields(value), "type": value.get("type", "")}

    def prepare_create(self, value: dict[str, Any], context: Context) -> None:
        import_string_data(value)
        value["type"] = value.get("type") or "Opaque"

    def prepare_update(self, value: dict[str, Any], old: dict[str, Any], subresource: str, context: Context) -> None:
        import_string_data(value)
        if not value.get("type"):
            value["type"] = old["type"]

    def validate_create(self, value: dict[str, Any], context: Context) -> list[FieldError]:
        data = value.get("data") or {}
        errors = _check_keys("data", data)
        errors += [required(f"data[{key}]") for key in _REQUIRED_KEYS.get(value["type"], ()) if key not in data]
        either = _ONE_REQUIRED_KEY.get(value["type"], ())
        if either and not any(key in data for key in either):
            errors += [required(f"data[{key}]") for key in either]
        account = "kubernetes.io/service-account.name"
        if value["type"] == "kubernetes.io/service-account-token" and not value["metadata"].get("annotations", {}).get(
            account
        ):
            errors.append(required(f"metadata.annotations[{account}]"))
        return errors + _check_size("data", map(_decoded_length, data.values()))

    def validate_update(
        self, value: dict[str, Any], old: dict[str, Any], subresource: str, context: Context
    ) -> list[FieldError]:
        errors = self.validate_create(value, context)
        if value["type"] != old["type"]:
            errors.append(invalid_value("type", value["type"], "field is immutable"))
        return errors + _immutable(value, old)


def import_string_data(value: dict[str, Any]) -> None:
    texts = value.pop("stringData", None)
    if texts:
        data = dict(value.get("data") or {})
        data.update({name: base64.b64encode(text.encode()).decode() for name, text in texts.items()})
        value["data"] = data


def _immutable(value: dict[str, Any], old: dict[str, Any]) -> list[FieldError]:
    if not old.get("immutable"):
        return []
    text = "field is immutable when `immutable` is set"
    names = ("data", "binaryData", "immutable")
    return [forbidden_field(name, text) for name in names if value.get(name) != old.get(name)]


class ConfigMaps(Strategy):
    """Texts and bytes under one set of keys."""

    def validate_create(self, value: dict[str, Any], context: Context) -> list[FieldError]:
        texts, binary = value.get("data") or {}, value.get("binaryData") or {}
        errors = _check_keys("data", texts) + _check_keys("binaryData", binary)
        errors += [
            invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData")
            for key in texts
            if key in binary
        ]
        lengths = [*(len(text.encode()) for text in texts.values()), *map(_decoded_length, binary.values())]
        return errors + _check_size("", lengths)

    def validate_update(
        self, value: dict[str, Any], old: dict[str, Any], subresource: str, context: Context
    ) -> list[FieldError]:
        return self.validate_create(value, context) + _immutable(value, old)


def _check_keys(field: str, data: Mapping[str, Any]) -> list[FieldError]:
    errors = []
    for key in data:
        if len(key) > _MAXIMUM_KEY_CHARACTERS:
            errors.append(invalid_value(f"{field}[{key}]", key, "must be no more than 253 characters"))
        elif key == "." or key.startswith("..") or _KEY.fullmatch(key) is None:
            text = "a valid config key must consist of alphanumeric characters, '-', '_' or '.'"
            errors.append(invalid_value(f"{field}[{key}]", key, text))
    return errors


def _check_size(field: str, lengths: Iterable[int]) -> list[FieldError]:
    return [too_long(field, MAXIMUM_BYTES)] if sum(lengths) > MAXIMUM_BYTES else []


def _decoded_length(encoded: str | None) -> int:
    return len(encoded or "") // 4 * 3 - (encoded or "")[-2:].count("=")
