"""Verifies Signature Version 4 as AWS does, from AWS's documentation, independent of the code under test.

Source: IAM user guide, "Create a signed AWS API request", and "Authenticating Requests: Using Query Parameters".
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import parse_qsl, quote

ALGORITHM: Final = "AWS4-HMAC-SHA256"
TIMEOUT: Final = timedelta(minutes=15)
_AUTHORIZATION: Final = re.compile(r"AWS4-HMAC-SHA256 Credential=(\S+), SignedHeaders=(\S+), Signature=([0-9a-f]{64})")


class Refused(Exception):
    """The request is refused; the message is AWS's error code."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request as received."""

    method: str
    path: str
    query: str
    headers: Sequence[tuple[str, str]]
    body: bytes


@dataclass(frozen=True, slots=True)
class Credential:
    """A secret key, and the session token that belongs to it."""

    secret_key: str
    session_token: str


def verify(
    request: Request, credential_of: Callable[[str], Credential], *, service: str, region: str, now: datetime
) -> str:
    """Verify the signature; returns the access key.

    Raises:
        Refused: the signature is invalid or expired.
    """
    parameters = parse_qsl(request.query, keep_blank_values=True, strict_parsing=bool(request.query))
    headers: dict[str, list[str]] = {}
    for name, value in request.headers:
        headers.setdefault(name.lower(), []).append(" ".join(value.split()))
    shown = _presigned(parameters) if any(name == "X-Amz-Signature" for name, _ in parameters) else _authorized(headers)
    access_key, date, *scope = shown.credential.split("/")
    if scope != [region, service, "aws4_request"] or date != shown.timestamp[:8]:
        raise Refused("SignatureDoesNotMatch")
    credential = credential_of(access_key)
    if not hmac.compare_digest(shown.session_token, credential.session_token):
        raise Refused("InvalidClientTokenId")
    signed_at = datetime.strptime(shown.timestamp, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    if not -TIMEOUT <= now - signed_at <= TIMEOUT:
        raise Refused("SignatureDoesNotMatch")
    names = shown.signed_headers.split(";")
    if "host" not in names or names != sorted(names):
        raise Refused("IncompleteSignature")
    canonical = "\n".join(
        [
            request.method,
            request.path,
            "&".join(
                f"{_encoded(name)}={_encoded(value)}" for name, value in sorted(parameters) if name != "X-Amz-Signature"
            ),
            *(f"{name}:{','.join(headers.get(name, []))}" for name in names),
            "",
            shown.signed_headers,
            hashlib.sha256(request.body).hexdigest(),
        ]
    )
    to_sign = "\n".join(
        [ALGORITHM, shown.timestamp, "/".join([date, *scope]), hashlib.sha256(canonical.encode()).hexdigest()]
    )
    key = f"AWS4{credential.secret_key}".encode()
    for part in (date, *scope):
        key = hmac.digest(key, part.encode(), "sha256")
    if not hmac.compare_digest(hmac.digest(key, to_sign.encode(), "sha256").hex(), shown.signature):
        raise Refused("SignatureDoesNotMatch")
    return access_key


@dataclass(frozen=True, slots=True)
class _Shown:
    credential: str
    timestamp: str
    session_token: str
    signed_headers: str
    signature: str


def _presigned(parameters: Sequence[tuple[str, str]]) -> _Shown:
    # Like AWS, take the first of several parameters, in any letter case (see CVE-2022-2385).
    found: dict[str, str] = {}
    for name, value in parameters:
        found.setdefault(name.lower(), value)
    if found.get("x-amz-algorithm") != ALGORITHM:
        raise Refused("IncompleteSignature")
    return _Shown(
        found.get("x-amz-credential", ""),
        found.get("x-amz-date", ""),
        found.get("x-amz-security-token", ""),
        found.get("x-amz-signedheaders", ""),
        found.get("x-amz-signature", ""),
    )


def _authorized(headers: Mapping[str, list[str]]) -> _Shown:
    found = _AUTHORIZATION.fullmatch(headers.get("authorization", [""])[0])
    if found is None:
        raise Refused("MissingAuthenticationToken")
    return _Shown(
        found[1],
        headers.get("x-amz-date", [""])[0],
        headers.get("x-amz-security-token", [""])[0],
        found[2],
        found[3],
    )


def _encoded(text: str) -> str:
    return quote(text, safe="-._~")
