"""Parses the node's presigned request and rebuilds it from its parts.

The node signs a GetCallerIdentity request with its instance role's credentials and sends the URL. The controller never
sends this URL. It parses the URL into typed parts, checks each one, and builds its own request from the parts for a
host that this module chooses. The parts cannot express a request to another host, path or action, or one with a
repeated or additional parameter (CVE-2020-16250 of Vault, CVE-2022-2385 of aws-iam-authenticator).

Source: "Authenticating Requests: Using Query Parameters (AWS Signature Version 4)", IAM user guide.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final, NoReturn
from urllib.parse import quote, unquote

from attestors.aws import wire
from attestors.aws.partitions import Region, UnknownRegion, parse_region
from attestors.wire.evidence import MalformedEvidence

ALGORITHM: Final = "AWS4-HMAC-SHA256"
SIGNED_HEADERS: Final = f"host;{wire.BINDING_HEADER}"
"""Exactly these: without the binding the request could be reused, and no other header is sent."""
MAXIMUM_LIFETIME: Final = timedelta(minutes=15)
"""The maximum that STS accepts, counted from the signature, whatever ``X-Amz-Expires`` says."""

_PARAMETERS: Final = (
    "Action",
    "Version",
    "X-Amz-Algorithm",
    "X-Amz-Credential",
    "X-Amz-Date",
    "X-Amz-Expires",
    "X-Amz-Security-Token",
    "X-Amz-SignedHeaders",
    "X-Amz-Signature",
)
_LOWER_CASE: Final = frozenset(name.lower() for name in _PARAMETERS)
_UNRESERVED: Final = "-._~"
_URL: Final = re.compile(r"https://(?P<host>[^/?#]*)(?P<path>(?:/[^?#]*)?)\?(?P<query>[^?#]*)")
_TEMPORARY_ACCESS_KEY_ID: Final = re.compile(r"ASIA[A-Z0-9]{12,124}")
"""Access keys of role sessions start with ``ASIA``, a user's with ``AKIA`` (IAM user guide, "Unique identifiers")."""
_DATE: Final = re.compile(r"[0-9]{8}")
_TIMESTAMP: Final = re.compile(r"[0-9]{8}T[0-9]{6}Z")
_SECONDS: Final = re.compile(r"[1-9][0-9]{0,2}")
_SIGNATURE: Final = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class PresignedRequest:
    """The variable parts of a presigned GetCallerIdentity request."""

    region: Region
    """The Region whose STS it is for."""
    signed_at: datetime
    lifetime: timedelta
    access_key_id: str = field(repr=False)
    session_token: str = field(repr=False)
    signature: str = field(repr=False)

    @classmethod
    def parse(cls, url: str) -> PresignedRequest:
        """Parse the URL in the form that botocore writes.

        Raises:
            MalformedEvidence: it has another scheme, host, path, action or service, a parameter is missing, repeated,
                unknown or malformed, or it signs other headers than required.
        """
        found = _URL.fullmatch(url)
        # JSON may hold a lone surrogate, which cannot be encoded.
        if found is None or not url.isascii():
            _refuse("is not an https URL with a query")
        if found["path"] != "/":
            _refuse("has another path than /")
        parameters = _parameters(found["query"])
        for name, only in (("Action", wire.STS_ACTION), ("Version", wire.STS_VERSION), ("X-Amz-Algorithm", ALGORITHM)):
            if parameters[name] != only:
                _refuse(f"has another {name} than {only}")
        if parameters["X-Amz-SignedHeaders"] != SIGNED_HEADERS:
            _refuse(f"must sign exactly the headers {SIGNED_HEADERS}")
        signed_at = _timestamp(parameters["X-Amz-Date"])
        access_key_id, region = _credential(parameters["X-Amz-Credential"], parameters["X-Amz-Date"])
        if found["host"] != region.sts_host:
            _refuse("is for another host than the STS of the Region that it is signed for")
        return cls(
            region=region,
            signed_at=signed_at,
            lifetime=_lifetime(parameters["X-Amz-Expires"]),
            access_key_id=access_key_id,
            session_token=_matching(wire.SESSION_TOKEN, parameters, "X-Amz-Security-Token"),
            signature=_matching(_SIGNATURE, parameters, "X-Amz-Signature"),
        )

    @property
    def without_credentials(self) -> str:
        """The URL with digests in place of session token and signature: same form, but useless as a credential."""
        token, signature = (
            hashlib.sha256(text.encode("ascii")).hexdigest() for text in (self.session_token, self.signature)
        )
        redacted = replace(self, session_token=token, signature=signature)
        return f"https://{redacted.host}{redacted.target}"

    @property
    def host(self) -> str:
        """The host of the Region's STS, the only one that the request is sent to."""
        return self.region.sts_host

    @property
    def target(self) -> str:
        """Path and query, rebuilt from the parts."""
        # "%Y" omits the leading zeros of an early year.
        signed_at = f"{self.signed_at.year:04}{self.signed_at:%m%dT%H%M%SZ}"
        values = (
            wire.STS_ACTION,
            wire.STS_VERSION,
            ALGORITHM,
            f"{self.access_key_id}/{signed_at[:8]}/{self.region.name}/sts/aws4_request",
            signed_at,
            str(self.lifetime // timedelta(seconds=1)),
            self.session_token,
            SIGNED_HEADERS,
            self.signature,
        )
        query = "&".join(
            f"{name}={quote(value, safe=_UNRESERVED)}" for name, value in zip(_PARAMETERS, values, strict=True)
        )
        return f"/?{query}"


def _parameters(query: str) -> dict[str, str]:
    """Exactly the parameters above, each once, in any order, with their exact letter case."""
    parameters: dict[str, str] = {}
    seen: set[str] = set()
    parts = query.split("&", len(_PARAMETERS))
    for part in parts:
        name, equals, encoded = part.partition("=")
        if name.lower() in seen:
            _refuse("has a parameter twice")
        if not equals or name not in _PARAMETERS:
            _refuse(
                "has a parameter in another letter case" if name.lower() in _LOWER_CASE else "has an unknown parameter"
            )
        seen.add(name.lower())
        parameters[name] = _decoded(encoded)
    missing = [name for name in _PARAMETERS if name not in parameters]
    if missing:
        _refuse(f"lacks the parameter {missing[0]}")
    return parameters


def _decoded(encoded: str) -> str:
    """The text, which must be percent-encoded canonically (RFC 3986 section 2.1, narrowed by Signature Version 4)."""
    try:
        text = unquote(encoded, encoding="ascii", errors="strict")
    except UnicodeDecodeError:
        _refuse("holds a value that is not ASCII")
    if quote(text, safe=_UNRESERVED) != encoded:
        _refuse("holds a value that is not percent-encoded as AWS does")
    return text


def _timestamp(text: str) -> datetime:
    if not _TIMESTAMP.fullmatch(text):
        _refuse("has an X-Amz-Date of another form")
    try:
        return datetime.strptime(text, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
    except ValueError:
        _refuse("has an X-Amz-Date that is not a valid time")


def _credential(scope: str, timestamp: str) -> tuple[str, Region]:
    """Access key and Region; the rest of the scope is fixed."""
    parts = scope.split("/")
    if len(parts) != 5 or parts[3:] != ["sts", "aws4_request"]:
        _refuse("is signed for another service than sts")
    access_key_id, date, region, _, _ = parts
    if not _TEMPORARY_ACCESS_KEY_ID.fullmatch(access_key_id):
        _refuse("is not signed with a role's temporary credentials")
    if not _DATE.fullmatch(date) or date != timestamp[:8]:
        _refuse("is signed for another day than its X-Amz-Date")
    try:
        return access_key_id, parse_region(region)
    except UnknownRegion as error:
        raise MalformedEvidence("the caller identity request is signed for an unknown Region") from error


def _lifetime(text: str) -> timedelta:
    if not _SECONDS.fullmatch(text) or timedelta(seconds=int(text)) > MAXIMUM_LIFETIME:
        _refuse(f"must expire after 1 to {MAXIMUM_LIFETIME // timedelta(seconds=1)} seconds")
    return timedelta(seconds=int(text))


def _matching(form: re.Pattern[str], parameters: dict[str, str], name: str) -> str:
    if not form.fullmatch(parameters[name]):
        _refuse(f"has an {name} of another form")
    return parameters[name]


def _refuse(what: str) -> NoReturn:
    raise MalformedEvidence(f"the caller identity request {what}")
