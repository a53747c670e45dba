"""What an instance identity token says, typed.

Source: "Verify VM identity" of Compute Engine's documentation (``format=full``), OpenID Connect Core 1.0 section 2,
RFC 7519. Everything here is a claim until the token's signature is verified.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from attestors.clouds.google.provider_id import GCEProviderID, InvalidGCEName, check_instance_id

SERVICE_ACCOUNT: Final = re.compile(r"[A-Za-z0-9._+-]{1,128}@[a-z0-9.-]{1,253}")
"""The address of a service account."""

_MAXIMUM_UNSIGNED_64: Final = 2**64 - 1
_LATEST_SECONDS: Final = 253_402_300_799
"""9999-12-31T23:59:59Z: what :class:`datetime.datetime` can hold."""


class MalformedClaims(ValueError):
    """A claim is missing or not of its form; the message names it and never holds its value."""


@dataclass(frozen=True, slots=True)
class InstanceClaims:
    """``google.compute_engine``: which virtual machine asked the metadata server."""

    provider_id: GCEProviderID
    project_number: int
    instance_id: str
    """Digits; unlike the name never used again."""
    created: datetime
    """To the second."""


@dataclass(frozen=True, slots=True)
class NoInstance:
    """There is no ``google.compute_engine``: the token of a user, of a service account, or of ``format=standard``."""


@dataclass(frozen=True, slots=True)
class VerifiedEmail:
    """The instance's service account, as Google vouches for it."""

    address: str


@dataclass(frozen=True, slots=True)
class NoVerifiedEmail:
    """Google does not say whose the token is."""


@dataclass(frozen=True, slots=True)
class Claims:
    """All claims that are looked at. Others, such as licences, are not."""

    issuer: str
    audience: str
    issued: datetime
    expires: datetime
    service_account: VerifiedEmail | NoVerifiedEmail
    instance: InstanceClaims | NoInstance


_Object: TypeAlias = Mapping[str, Any]


def read_claims(payload: _Object) -> Claims:
    """Read the token's payload.

    Raises:
        MalformedClaims: a claim is missing or not of its form.
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
        raise MalformedClaims("email is no service account's address")
    # Anything but JSON's true says no: "false" is a text, and not empty.
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
        raise MalformedClaims(f"{name} is no JSON object")
    return value


def _text(parent: _Object, name: str) -> str:
    value = parent.get(name)
    if not isinstance(value, str) or not value:
        raise MalformedClaims(f"{name} is missing or no text")
    return value


def _integer(parent: _Object, name: str, *, maximum: int) -> int:
    value = parent.get(name)
    # JSON's true is an int to Python.
    if type(value) is not int or not 0 < value <= maximum:
        raise MalformedClaims(f"{name} is missing or no positive whole number")
    return value


def _time(parent: _Object, name: str) -> datetime:
    return datetime.fromtimestamp(_integer(parent, name, maximum=_LATEST_SECONDS), UTC)
