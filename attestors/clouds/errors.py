"""Errors of cloud calls: a small closed tree, with their meaning for a request.

    CloudError
    ├── CloudUnavailable     an outage, or an unusable answer
    │   ├── CloudThrottled   the cloud asked for fewer calls, or too many of ours are in progress
    │   └── CloudTimeout     no answer in time
    ├── CloudRefused         our credentials are missing or rejected, or lack a permission
    └── CloudObjectMissing   the cloud knows no such object

None of them is evidence against a node. A cloud's view may lag behind, so even a missing object proves nothing.
The reasons that cloud attestors share are explained here too: causes and remedies.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Final

from attestors.contract import CloudCallOutcome, NotProvableYet, ReasonExplanation

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


BOTH_SETTINGS: Final = "the operator's, then the policy's where it has any"
"""Where a list is set that a policy may narrow: either setting may leave an entry out."""
SHARED_EXPLANATIONS: Final[Mapping[str, ReasonExplanation]] = MappingProxyType(
    {
        "ClockBehind": ReasonExplanation(
            "The evidence was signed by the cloud at a time that is ahead of the controller's clock.",
            "Set the controller's clock.",
        ),
        "CloudAccessRefused": ReasonExplanation(
            "The cloud refuses the controller's call.", "Grant the permission that the message names."
        ),
        "CloudUnavailable": ReasonExplanation(
            "The cloud does not answer, or its answer cannot be used.",
            "Nothing if it ends soon. Otherwise check the network path from the controller to the cloud.",
        ),
        "EvidenceExpired": ReasonExplanation(
            "The evidence was valid and expired while the request waited.",
            "Nothing: the node [asks again](node.md#evidence-that-runs-out). If it happens again, find out what the "
            "request waits for, and compare the clocks.",
        ),
        "InstanceNotRunning": ReasonExplanation("The instance is not running, or not yet.", "Start the instance."),
    }
)
