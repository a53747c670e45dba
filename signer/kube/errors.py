"""Errors of calls to an API server.

::

    ApiError                       base class, never raised itself
    ├── Unauthorized        401    credentials unknown or expired: load them again
    ├── Forbidden           403    authenticated, but not allowed
    ├── NotFound            404    no such object
    ├── ResourceNotServed   404    no such resource, or not yet: no statement about any object
    ├── Conflict            409    stale resourceVersion or failed precondition: read again
    ├── AlreadyExists       409    a create found the name taken (reason AlreadyExists)
    ├── Gone                410    resourceVersion or continue token expired: list again
    ├── Invalid             400, 422  the request itself is wrong
    ├── TooManyRequests     429    carries retry_after_seconds
    ├── ServerError         5xx    carries retry_after_seconds
    ├── UnexpectedAnswer    any    redirect, not JSON, malformed event, other status
    │   └── AnswerTooLarge  any    larger than the limit for one response
    └── Unreachable         none   no response: name resolution, refused, TLS, reset, timeout

Statuses and reasons are those of ``metav1.Status`` (apimachinery ``pkg/apis/meta/v1/types.go``, StatusReason). The
message may come from a tenant's API server: it is bounded and escaped here, once, so that it can be logged. An honest
server quotes names and numbers; a webhook, a proxy or a hostile server may quote the request with its credentials,
which are redacted here too.
"""

from __future__ import annotations

import enum
import re
from typing import ClassVar, Final

MAXIMUM_MESSAGE_CHARACTERS = 256
MAXIMUM_RETRY_AFTER_SECONDS = 300.0
"""A hostile Retry-After must not suspend a cluster for a day."""

_REASON = re.compile(r"[A-Za-z]{1,64}", re.ASCII)
_DELTA_SECONDS = re.compile(r"[0-9]{1,9}", re.ASCII)


class Retry(enum.Enum):
    """What a caller can do after an error."""

    BACKOFF = "backoff"
    """The same call may succeed later."""
    REREAD = "reread"
    """The caller's data is stale: read again, then decide again."""
    NEVER = "never"
    """The same call can never succeed."""


class Cause(enum.Enum):
    """Where a connection failed; a small closed set, so it can be a metric label."""

    NAME_RESOLUTION = "name-resolution"
    REFUSED = "connection-refused"
    NETWORK = "network"
    TLS = "tls"
    RESET = "connection-reset"
    TIMEOUT = "timeout"
    SILENCE = "silence"
    """An accepted watch sent nothing for longer than bookmarks are apart."""


def bounded_text(text: str, limit: int = MAXIMUM_MESSAGE_CHARACTERS) -> str:
    """``text`` on one line of at most ``limit`` characters, with control and other unprintable characters escaped."""
    head = text[:limit]
    if not head.isprintable():
        head = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in head)
    return head if len(head) <= limit and len(text) <= limit else head[: limit - 1] + "…"


def retry_after_seconds(value: str | int | None) -> float | None:
    """The delta-seconds of a Retry-After (RFC 9110 section 10.2.3), at most five minutes; None if there is none.

    Kubernetes never sends the date form, so it counts as absent.
    """
    if isinstance(value, bool) or value is None:
        return None
    text = str(value).strip()
    if _DELTA_SECONDS.fullmatch(text) is None:
        return None
    return min(float(text), MAXIMUM_RETRY_AFTER_SECONDS)


class ApiError(Exception):
    """A call to an API server failed."""

    retry: ClassVar[Retry] = Retry.BACKOFF
    default_reason: ClassVar[str] = "Unknown"

    def __init__(self, message: str, *, status: int | None = None, reason: str = "") -> None:
        self.message = bounded_text(message)
        """At most 256 characters, one line, safe to log."""
        self.status = status
        """HTTP status, or None if there was no response."""
        self.reason = reason if _REASON.fullmatch(reason) else self.default_reason
        """``reason`` of the Kubernetes Status, letters only; the class's default if the server gave none."""
        super().__init__(self.message)

    def __str__(self) -> str:
        return (
            f"{self.reason}: {self.message}" if self.status is None else f"{self.status} {self.reason}: {self.message}"
        )


class Unauthorized(ApiError):
    """401: the API server does not know the caller; the credentials must be loaded again."""

    default_reason = "Unauthorized"


class Forbidden(ApiError):
    """403: the API server knows the caller and denies the call; a grant may still be added."""

    default_reason = "Forbidden"


class NotFound(ApiError):
    """404 with a Kubernetes Status: the object does not exist."""

    retry = Retry.REREAD
    default_reason = "NotFound"


class ResourceNotServed(ApiError):
    """404 without a Kubernetes Status: the path is unknown, for example because a CustomResourceDefinition is not
    installed.

    A starting API server also gives this response for every object of every custom resource, until it has read the
    definitions (apiextensions-apiserver ``customresource_handler.go`` passes unknown paths to ``http.NotFound``;
    measured 30 to 70 ms). No object may be considered deleted because of it.
    """

    default_reason = "NotFound"


class Conflict(ApiError):
    """409: the resourceVersion is stale or a precondition failed."""

    retry = Retry.REREAD
    default_reason = "Conflict"


class AlreadyExists(ApiError):
    """409 with reason AlreadyExists: the name is taken. Not a Conflict: none of the caller's data was stale."""

    retry = Retry.REREAD
    default_reason = "AlreadyExists"


class Gone(ApiError):
    """410: the resourceVersion or the continue token is older than the server's history."""

    retry = Retry.REREAD
    default_reason = "Expired"


class Invalid(ApiError):
    """400 or 422: the request itself is wrong."""

    retry = Retry.NEVER
    default_reason = "Invalid"


class TooManyRequests(ApiError):
    """429: the API server requests a pause (priority and fairness)."""

    default_reason = "TooManyRequests"

    def __init__(
        self, message: str, *, status: int | None = None, reason: str = "", retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(message, status=status, reason=reason)
        self.retry_after_seconds = retry_after_seconds
        """Pause that the server requested, in seconds, at most 300; None if it requested none."""


class ServerError(ApiError):
    """5xx: the API server, or a component in front of it, failed."""

    default_reason = "InternalError"

    def __init__(
        self, message: str, *, status: int | None = None, reason: str = "", retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(message, status=status, reason=reason)
        self.retry_after_seconds = retry_after_seconds
        """Pause that the server requested, in seconds, at most 300; None if it requested none."""


class UnexpectedAnswer(ApiError):
    """The response is not one of an API server: a redirect, not JSON, too large, or malformed."""

    default_reason = "UnexpectedAnswer"


class AnswerTooLarge(UnexpectedAnswer):
    """The response exceeds the limit; a smaller page of a list may fit."""


class Unreachable(ApiError):
    """There was no response."""

    default_reason = "Unreachable"

    def __init__(self, message: str, *, cause: Cause) -> None:
        super().__init__(message)
        self.cause = cause


_BY_STATUS: dict[int, type[ApiError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
}


def error_for_status(
    status: int, *, reason: str = "", message: str = "", retry_after_seconds: float | None = None
) -> ApiError:
    """The error for an HTTP status and a Kubernetes reason. Credentials in ``message`` are redacted."""
    text = without_credentials(message) or f"HTTP status {status}, without a Kubernetes Status"
    if status == 404 and not message:
        return ResourceNotServed(f"{text}: this resource is not served there", status=status, reason=reason)
    if status == 429:
        return TooManyRequests(text, status=status, reason=reason, retry_after_seconds=retry_after_seconds)
    if 500 <= status <= 599:
        return ServerError(text, status=status, reason=reason, retry_after_seconds=retry_after_seconds)
    if status == 409 and reason == "AlreadyExists":
        return AlreadyExists(text, status=status, reason=reason)
    return _BY_STATUS.get(status, UnexpectedAnswer)(text, status=status, reason=reason)


REDACTED: Final = "[redacted]"
_CREDENTIALS: Final = re.compile(
    r"-----BEGIN [A-Z0-9 ]{1,64}-----.*?(?:-----END [A-Z0-9 ]{1,64}-----|\Z)"  # PEM, also truncated
    r"|\b(?:bearer|basic)\s+[!-~]+"  # an Authorization header
    r"|\beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?"  # a JSON Web Token
    r"|\b[a-z0-9]{6}\.[a-z0-9]{16}\b"  # a bootstrap token
    r"|[A-Za-z0-9+/_=-]{96,}",  # keys, certificates, evidence; names of our own objects hold digests of 64 digits
    # ASCII: each failing alternative then reads at most 96 characters, or the last one matches them all.
    re.IGNORECASE | re.DOTALL | re.ASCII,
)
_READ_CHARACTERS: Final = 4096
"""A few hundred characters of a message are shown; a hostile server's may have millions, read on the event loop."""


def without_credentials(text: str) -> str:
    """``text`` with ``[redacted]`` in place of anything that looks like a credential, a key or evidence. Of a long text
    only the beginning is returned.
    """
    if len(text) > _READ_CHARACTERS:
        # A truncated credential would not be recognized.
        text = f"{text[:_READ_CHARACTERS].rpartition(' ')[0]} {REDACTED}"
    return _CREDENTIALS.sub(REDACTED, text)
