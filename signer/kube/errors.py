"""What can go wrong when an API server is called.

::

    ApiError                       base; also the type of nothing else
    ├── Unauthorized        401    credentials unknown or expired: load them again
    ├── Forbidden           403    known, but not allowed
    ├── NotFound            404    no such object
    ├── ResourceNotServed   404    no such resource, or not yet: says nothing of any object
    ├── Conflict            409    stale resourceVersion or failed precondition: read again
    ├── AlreadyExists       409    a create found the name taken (reason AlreadyExists)
    ├── Gone                410    resourceVersion or continue token expired: list again
    ├── Invalid             400, 422  the request itself is wrong
    ├── TooManyRequests     429    carries retry_after_seconds
    ├── ServerError         5xx    carries retry_after_seconds
    ├── UnexpectedAnswer    any    redirect, not JSON, malformed event, other status
    │   └── AnswerTooLarge  any    more than is read of one answer
    └── Unreachable         none   no answer: name resolution, refused, TLS, reset, timeout

Statuses and reasons are those of ``metav1.Status`` (apimachinery ``pkg/apis/meta/v1/types.go``, StatusReason). Their
text comes from an API server that may be a tenant's: it is bounded and escaped here, once, so that it can be logged. An
honest server quotes names and numbers; a webhook, a proxy or a hostile server may quote the request with its
credentials, which are redacted here too.
"""

from __future__ import annotations

import enum
import re
from typing import ClassVar, Final

MAXIMUM_MESSAGE_CHARACTERS = 256
MAXIMUM_RETRY_AFTER_SECONDS = 300.0
"""A hostile Retry-After must not park a cluster for a day."""

_REASON = re.compile(r"[A-Za-z]{1,64}", re.ASCII)
_DELTA_SECONDS = re.compile(r"[0-9]{1,9}", re.ASCII)


class Retry(enum.Enum):
    """What a caller may do with the same intention after an error."""

    BACKOFF = "backoff"
    """The same call may succeed later."""
    REREAD = "reread"
    """The world is not as it was believed to be: read again, then decide again."""
    NEVER = "never"
    """The same call can never succeed."""


class Cause(enum.Enum):
    """Where reaching the server failed; few and closed, so it can be a metric label."""

    NAME_RESOLUTION = "name-resolution"
    REFUSED = "connection-refused"
    NETWORK = "network"
    TLS = "tls"
    RESET = "connection-reset"
    TIMEOUT = "timeout"


def bounded_text(text: str, limit: int = MAXIMUM_MESSAGE_CHARACTERS) -> str:
    """``text`` on one line, control and other unprintable characters escaped, at most ``limit`` characters long."""
    head = text[:limit]
    if not head.isprintable():
        head = "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in head)
    return head if len(head) <= limit and len(text) <= limit else head[: limit - 1] + "…"


def retry_after_seconds(value: str | int | None) -> float | None:
    """Delta-seconds of a Retry-After (RFC 9110 section 10.2.3), at most five minutes; None where there is none.

    Kubernetes never sends the date form; it is read as absent.
    """
    if isinstance(value, bool) or value is None:
        return None
    text = str(value).strip()
    if _DELTA_SECONDS.fullmatch(text) is None:
        return None
    return min(float(text), MAXIMUM_RETRY_AFTER_SECONDS)


class ApiError(Exception):
    """A call to an API server did not do what was asked."""

    retry: ClassVar[Retry] = Retry.BACKOFF
    default_reason: ClassVar[str] = "Unknown"

    def __init__(self, message: str, *, status: int | None = None, reason: str = "") -> None:
        self.message = bounded_text(message)
        """At most 256 characters, one line, safe to log."""
        self.status = status
        """HTTP status, or None where no answer came."""
        self.reason = reason if _REASON.fullmatch(reason) else self.default_reason
        """``reason`` of the Kubernetes Status, letters only; a default of the class where the server gave none."""
        super().__init__(self.message)

    def __str__(self) -> str:
        return (
            f"{self.reason}: {self.message}" if self.status is None else f"{self.status} {self.reason}: {self.message}"
        )


class Unauthorized(ApiError):
    """401: the API server does not know who is asking; the credentials must be loaded again."""

    default_reason = "Unauthorized"


class Forbidden(ApiError):
    """403: the API server knows who is asking and says no; a grant may still come."""

    default_reason = "Forbidden"


class NotFound(ApiError):
    """404, said in a Kubernetes Status: the object does not exist."""

    retry = Retry.REREAD
    default_reason = "NotFound"


class ResourceNotServed(ApiError):
    """404 without a Kubernetes Status: the path is unknown, as where a CustomResourceDefinition is not installed.

    An API server answers so, too, for a moment after its start, of every object of every custom resource: until it has
    read the definitions (apiextensions-apiserver ``customresource_handler.go`` leaves what it does not find to
    ``http.NotFound``; measured 30 to 70 ms). Nothing may be taken for gone because of it.
    """

    default_reason = "NotFound"


class Conflict(ApiError):
    """409: the resourceVersion is stale or a precondition failed."""

    retry = Retry.REREAD
    default_reason = "Conflict"


class AlreadyExists(ApiError):
    """409 with reason AlreadyExists: the name is taken. Not a Conflict: nothing of ours was stale."""

    retry = Retry.REREAD
    default_reason = "AlreadyExists"


class Gone(ApiError):
    """410: the resourceVersion or the continue token is older than the server remembers."""

    retry = Retry.REREAD
    default_reason = "Expired"


class Invalid(ApiError):
    """400 or 422: the request itself is wrong."""

    retry = Retry.NEVER
    default_reason = "Invalid"


class TooManyRequests(ApiError):
    """429: the API server asks for a pause (priority and fairness)."""

    default_reason = "TooManyRequests"

    def __init__(
        self, message: str, *, status: int | None = None, reason: str = "", retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(message, status=status, reason=reason)
        self.retry_after_seconds = retry_after_seconds
        """Pause the server asked for, in seconds, at most 300; None where it named none."""


class ServerError(ApiError):
    """5xx: the API server, or something in front of it, failed."""

    default_reason = "InternalError"

    def __init__(
        self, message: str, *, status: int | None = None, reason: str = "", retry_after_seconds: float | None = None
    ) -> None:
        super().__init__(message, status=status, reason=reason)
        self.retry_after_seconds = retry_after_seconds
        """Pause the server asked for, in seconds, at most 300; None where it named none."""


class UnexpectedAnswer(ApiError):
    """Something answered that does not behave as an API server: redirect, not JSON, too large, malformed."""

    default_reason = "UnexpectedAnswer"


class AnswerTooLarge(UnexpectedAnswer):
    """The answer exceeds what is read of one; of a list, a smaller page may fit."""


class Unreachable(ApiError):
    """No answer at all."""

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
    """The error that an HTTP status, with the Kubernetes reason, means; without credentials that it repeats."""
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
    r"-----BEGIN [A-Z0-9 ]{1,64}-----.*?(?:-----END [A-Z0-9 ]{1,64}-----|\Z)"  # PEM, also where it is cut off
    r"|\b(?:bearer|basic)\s+[!-~]+"  # an Authorization header
    r"|\beyJ[\w-]{8,}\.[\w-]+(?:\.[\w-]*)?"  # a JSON Web Token
    r"|\b[a-z0-9]{6}\.[a-z0-9]{16}\b"  # a bootstrap token
    r"|[A-Za-z0-9+/_=-]{96,}",  # keys, certificates, evidence; names of our own objects hold digests of 64 digits
    # ASCII: then each alternative that fails has looked at no more than 96 characters, or the last one takes them all.
    re.IGNORECASE | re.DOTALL | re.ASCII,
)
_READ_CHARACTERS: Final = 4096
"""A message is shown to a few hundred; a hostile server's may have millions, and is looked at in the event loop."""


def without_credentials(text: str) -> str:
    """``text`` with ``[redacted]`` in place of whatever has the form of a credential, a key or evidence; its beginning
    where it is long.
    """
    if len(text) > _READ_CHARACTERS:
        # Half of a credential does not look like one.
        text = f"{text[:_READ_CHARACTERS].rpartition(' ')[0]} {REDACTED}"
    return _CREDENTIALS.sub(REDACTED, text)
