"""Typed claims of an instance identity token.

Source: "Verify VM identity" of Compute Engine's documentation (``format=full``), OpenID Connect Core 1.0 section 2,
RFC 7519. They are unverified until the token's signature is verified.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from attestors.clouds.google.provider_id import GCEProviderID, InvalidGCEName, check_instance_id

SERVICE_ACCOUNT: Final = re.compile(r"[A-Za-z0-9._+-]{1,128}@[a-z0-9.-]{1,253}")
"""The email address of a service account."""

_MAXIMUM_UNSIGNED_64: Final = 2**64 - 1
_LATEST_SECONDS: Final = 253_402_300_799
"""9999-12-31T23:59:59Z, the maximum of :class:`datetime.datetime`."""


class MalformedClaims(ValueError):
    """A claim is missing or malformed; the message names it and never quotes its value."""


@dataclass(frozen=True, slots=True)
class InstanceClaims:
    """``google.compute_engine``: the virtual machine that requested the token."""

    provider_id: GCEProviderID
    project_number: int
    instance_id: str
    """Digits; unlike the name it is never reused."""
    created: datetime
    """To the second."""


@dataclass(frozen=True, slots=True)
class NoInstance:
    """There is no ``google.compute_engine``: a token of a user, of a service account, or of ``format=standard``."""


@dataclass(frozen=True, slots=True)
class VerifiedEmail:
    """The instance's service account, verified by Google."""

    address: str


@dataclass(frozen=True, slots=True)
class NoVerifiedEmail:
    """Google does not vouch for the token's email address."""


@dataclass(frozen=True, slots=True)
class Claims:
    """All claims in use. Others, such as licences, are ignored."""

    issuer: str
    audience: str
    issued: datetime
    expires: datetime
    service_account: VerifiedEmail | NoVerifiedEmail
    instance: InstanceClaims | NoInstance


_Object: TypeAlias = Mapping[str, Any]


def read_claims(payload: _Object) -> Claims:
    """Parse the token's payload.

    Raises:
        MalformedClaims: a claim is missing or malformed.
    """
    return Claims(
        issuer=_text(payload, "iss"),
        audience=_text(payload, "aud"),
        issued=_time(payload, "iat"),
        expires=_time(payload, "exp"),
        service_account=_service_account(payload),
        instance=_instance(payload),
    )


def _service_account(payload: _Object) -> VerifiedEmail | NoVerifiedEmail:
    if "email" not in payload:
        return NoVerifiedEmail()
    address = _text(payload, "email")
    if not SERVICE_ACCOUNT.fullmatch(address):
        raise MalformedClaims("email is not a service account's address")
    # Only JSON's true counts: "false" is a non-empty text.
    return VerifiedEmail(address) if payload.get("email_verified") is True else NoVerifiedEmail()


def _instance(payload: _Object) -> InstanceClaims | NoInstance:
    if "google" not in payload:
        return NoInstance()
    google = _object(payload, "google")
    if "compute_engine" not in google:
        return NoInstance()
    engine = _object(google, "compute_engine")
    try:
        instance_id = check_instance_id(_text(engine, "instance_id"))
        provider_id = GCEProviderID(
            project=_text(engine, "project_id"), zone=_text(engine, "zone"), name=_text(engine, "instance_name")
        )
    except InvalidGCEName as error:
        raise MalformedClaims(f"google.compute_engine: {error}") from error
    return InstanceClaims(
        provider_id=provider_id,
        project_number=_integer(engine, "project_number", maximum=_MAXIMUM_UNSIGNED_64),
        instance_id=instance_id,
        created=_time(engine, "instance_creation_timestamp"),
    )


def _object(parent: _Object, name: str) -> _Object:
    value = parent.get(name)
    if not isinstance(value, dict):
        raise MalformedClaims(f"{name} is not a JSON object")
    return value


def _text(parent: _Object, name: str) -> str:
    value = parent.get(name)
    if not isinstance(value, str) or not value:
        raise MalformedClaims(f"{name} is missing or not a text")
    return value


def _integer(parent: _Object, name: str, *, maximum: int) -> int:
    value = parent.get(name)
    # JSON's true is an int in Python.
    if type(value) is not int or not 0 < value <= maximum:
        raise MalformedClaims(f"{name} is missing or not a positive whole number")
    return value


def _time(parent: _Object, name: str) -> datetime:
    return datetime.fromtimestamp(_integer(parent, name, maximum=_LATEST_SECONDS), UTC)
