"""Kubernetes Status errors, the form of all error responses of the embedded API.

Codes, reasons, messages and ``details`` follow k8s.io/apimachinery ``pkg/api/errors`` and
``pkg/util/validation/field``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

_STATUS_HEAD = {"kind": "Status", "apiVersion": "v1", "metadata": {}}


class APIError(Exception):
    """A refusal by the API server: an HTTP status code and a Kubernetes reason."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: dict[str, Any] | None = None,
        retry_after_seconds: int | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = dict(details) if details is not None else {}
        self.retry_after_seconds = retry_after_seconds
        if retry_after_seconds is not None:
            self.details["retryAfterSeconds"] = retry_after_seconds

    def status(self) -> dict[str, Any]:
        """The Status object of the answer's body."""
        body: dict[str, Any] = {**_STATUS_HEAD, "status": "Failure", "message": self.message}
        if self.reason:
            body["reason"] = self.reason
        body["details"] = self.details
        body["code"] = self.code
        if not self.details and self.reason in {"Unauthorized", "BadRequest", "Expired", "InternalError", ""}:
            del body["details"]
        return body


@dataclass(frozen=True, slots=True)
class Target:
    """What an error is about: ``secrets "x"`` or ``certificatesigningrequests.certificates.k8s.io "x"``."""

    group: str
    plural: str
    kind: str
    name: str = ""

    @property
    def qualified_plural(self) -> str:
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def qualified_kind(self) -> str:
        return f"{self.kind}.{self.group}" if self.group else self.kind

    def details(self, *, kind: str | None = None) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if self.name:
            found["name"] = self.name
        if self.group:
            found["group"] = self.group
        found["kind"] = kind or self.plural
        return found


@dataclass(frozen=True, slots=True)
class FieldError:
    """One entry of an Invalid answer: the field's path, the cause's reason and its text."""

    reason: str
    field: str
    text: str

    def __str__(self) -> str:
        return f"{self.field}: {self.text}"


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    return msgspec.json.encode(value).decode()


def required(field: str, text: str = "") -> FieldError:
    return FieldError("FieldValueRequired", field, f"Required value: {text}" if text else "Required value")


def invalid_value(field: str, value: Any, text: str) -> FieldError:
    return FieldError("FieldValueInvalid", field, f"Invalid value: {_shown(value)}: {text}")


def unsupported(field: str, value: Any, supported: Sequence[Any]) -> FieldError:
    known = ", ".join(_shown(item) for item in supported)
    return FieldError("FieldValueNotSupported", field, f"Unsupported value: {_shown(value)}: supported values: {known}")


def duplicate(field: str, value: Any) -> FieldError:
    return FieldError("FieldValueDuplicate", field, f"Duplicate value: {_shown(value)}")


def forbidden_field(field: str, text: str) -> FieldError:
    return FieldError("FieldValueForbidden", field, f"Forbidden: {text}")


def too_long(field: str, limit: int) -> FieldError:
    return FieldError("FieldValueTooLong", field, f"Too long: may not be more than {limit} bytes")


def too_many(field: str, count: int, limit: int) -> FieldError:
    return FieldError("FieldValueTooMany", field, f"Too many: {count}: must have at most {limit} items")


def invalid(target: Target, errors: Sequence[FieldError]) -> APIError:
    text = str(errors[0]) if len(errors) == 1 else "[" + ", ".join(str(error) for error in errors) + "]"
    details = target.details(kind=target.kind)
    details["causes"] = [{"reason": e.reason, "message": e.text, "field": e.field} for e in errors]
    return APIError(422, "Invalid", f'{target.qualified_kind} "{target.name}" is invalid: {text}', details)


def not_found(target: Target) -> APIError:
    return APIError(404, "NotFound", f'{target.qualified_plural} "{target.name}" not found', target.details())


def no_such_resource() -> APIError:
    return APIError(404, "NotFound", "the server could not find the requested resource", {})


def already_exists(target: Target) -> APIError:
    message = f'{target.qualified_plural} "{target.name}" already exists'
    return APIError(409, "AlreadyExists", message, target.details())


def conflict(target: Target, text: str = "") -> APIError:
    text = text or "the object has been modified; please apply your changes to the latest version and try again"
    message = f'Operation cannot be fulfilled on {target.qualified_plural} "{target.name}": {text}'
    return APIError(409, "Conflict", message, target.details())


def forbidden(target: Target, text: str) -> APIError:
    named = f'{target.qualified_plural} "{target.name}"' if target.name else target.qualified_plural
    return APIError(403, "Forbidden", f"{named} is forbidden: {text}", target.details())


def unauthorized() -> APIError:
    return APIError(401, "Unauthorized", "Unauthorized")


def bad_request(text: str) -> APIError:
    return APIError(400, "BadRequest", text)


def method_not_allowed() -> APIError:
    return APIError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource", {})


def unsupported_media_type(accepted: Sequence[str]) -> APIError:
    text = "the body of the request was in an unknown format - accepted media types include: " + ", ".join(accepted)
    return APIError(415, "UnsupportedMediaType", text, {})


def too_large(limit: int) -> APIError:
    return APIError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}", {})


def expired(text: str) -> APIError:
    return APIError(410, "Expired", text)


def version_too_large(wanted: int, current: int) -> APIError:
    """A list asked for a resourceVersion that does not exist yet (the real server waits three seconds first)."""
    message = f"Timeout: Too large resource version: {wanted}, current: {current}"
    causes = [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]
    return APIError(504, "Timeout", message, {"causes": causes}, retry_after_seconds=1)


def success(target: Target, uid: str) -> dict[str, Any]:
    """The Status body of a finished delete."""
    return {**_STATUS_HEAD, "status": "Success", "details": {**target.details(), "uid": uid}}
