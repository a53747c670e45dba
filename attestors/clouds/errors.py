"""Errors of cloud calls: a small closed tree, with their meaning for a request.

    CloudError
    ├── CloudUnavailable     an outage, or an unusable answer
    │   ├── CloudThrottled   the cloud asked for fewer calls, or too many of ours are in progress
    │   └── CloudTimeout     no answer in time
    ├── CloudRefused         our credentials are missing or rejected, or lack a permission
    └── CloudObjectMissing   the cloud knows no such object

None of them is evidence against a node. A cloud's view may lag behind, so even a missing object proves nothing.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from attestors.contract import CloudCallOutcome, NotProvableYet

DEFAULT_PAUSE: Final = timedelta(seconds=10)
REFUSED_PAUSE: Final = timedelta(minutes=1)
"""An operator must grant something first."""
_MINIMUM_PAUSE: Final = timedelta(seconds=1)
_MAXIMUM_PAUSE: Final = timedelta(minutes=10)
_MAXIMUM_CHARACTERS: Final = 400


class CloudError(Exception):
    """A call to a cloud failed. The message names the service and quotes nothing of its answer."""

    reason = "CloudUnavailable"
    call_outcome = CloudCallOutcome.ERROR
    """The outcome of the call, for metrics."""

    def __init__(self, service: str, cause: str, *, retry_after: timedelta = DEFAULT_PAUSE) -> None:
        text = f"{service}: {cause}"
        super().__init__("".join(one if one.isprintable() else " " for one in text)[:_MAXIMUM_CHARACTERS])
        self.service = service
        self.retry_after = min(max(retry_after, _MINIMUM_PAUSE), _MAXIMUM_PAUSE)
        """Delay before the next attempt; 1 second to 10 minutes."""

    def outcome(self) -> NotProvableYet:
        """The outcome of a request that cannot be verified because of this error."""
        return NotProvableYet(self.reason, str(self), self.retry_after)


class CloudUnavailable(CloudError):
    """The service is down, unreachable, too slow or throttling, or its answer is unusable."""


class CloudThrottled(CloudUnavailable):
    """The service asked for fewer calls; or the call was not made, because too many of ours are in progress."""

    call_outcome = CloudCallOutcome.THROTTLED


class CloudTimeout(CloudUnavailable):
    """The service did not answer in time."""

    call_outcome = CloudCallOutcome.TIMEOUT


class CloudRefused(CloudError):
    """The service rejects the operator's credentials or permissions."""

    reason = "CloudAccessRefused"
    call_outcome = CloudCallOutcome.REFUSED

    def __init__(self, service: str, cause: str, *, retry_after: timedelta = REFUSED_PAUSE) -> None:
        super().__init__(service, cause, retry_after=retry_after)


class CloudObjectMissing(CloudError):
    """The service currently knows no such object."""

    reason = "CloudObjectMissing"
    call_outcome = CloudCallOutcome.OK


def pause_from(header: str | None, default: timedelta = DEFAULT_PAUSE) -> timedelta:
    """The seconds in a ``Retry-After`` header (RFC 9110 10.2.3); ``default`` for a date or anything else."""
    if header is None or not (header.isascii() and header.isdigit() and len(header) <= 6):
        return default
    return min(max(timedelta(seconds=int(header)), _MINIMUM_PAUSE), _MAXIMUM_PAUSE)
