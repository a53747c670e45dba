"""Why a cloud did not say what was asked: a small closed tree, and what it means for a request.

    CloudError
    ├── CloudUnavailable     an outage, or an answer that cannot be used
    │   ├── CloudThrottled   it asks for fewer calls, or too many of ours are under way already
    │   └── CloudTimeout     no answer in time
    ├── CloudRefused         the cloud refuses our credentials, or they lack a permission; or we have none
    └── CloudObjectMissing   the cloud knows no such object

None of them speaks against a node. A cloud's view may be younger than a machine, so even a missing object is no proof.
The reasons that attestors of clouds share are explained here too: cause and remedy, for a person.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Final

from attestors.contract import CloudCallOutcome, NotProvableYet, ReasonExplanation

DEFAULT_PAUSE: Final = timedelta(seconds=10)
REFUSED_PAUSE: Final = timedelta(minutes=1)
"""Somebody has to grant something first."""
_MINIMUM_PAUSE: Final = timedelta(seconds=1)
_MAXIMUM_PAUSE: Final = timedelta(minutes=10)
_MAXIMUM_CHARACTERS: Final = 400


class CloudError(Exception):
    """A call to a cloud did not give what was asked. The text names the service and holds nothing that it answered."""

    reason = "CloudUnavailable"
    call_outcome = CloudCallOutcome.ERROR
    """How the call ended, for those who count calls."""

    def __init__(self, service: str, cause: str, *, retry_after: timedelta = DEFAULT_PAUSE) -> None:
        text = f"{service}: {cause}"
        super().__init__("".join(one if one.isprintable() else " " for one in text)[:_MAXIMUM_CHARACTERS])
        self.service = service
        self.retry_after = min(max(retry_after, _MINIMUM_PAUSE), _MAXIMUM_PAUSE)
        """When to ask again; 1 second to 10 minutes."""

    def outcome(self) -> NotProvableYet:
        """What a request gets that cannot be judged because of it."""
        return NotProvableYet(self.reason, str(self), self.retry_after)


class CloudUnavailable(CloudError):
    """Down, unreachable, too slow, throttling, or answering what cannot be used: its fault, or the network's."""


class CloudThrottled(CloudUnavailable):
    """It asks for fewer calls; or too many of ours are under way already, and it was not asked."""

    call_outcome = CloudCallOutcome.THROTTLED


class CloudTimeout(CloudUnavailable):
    """It did not answer in time."""

    call_outcome = CloudCallOutcome.TIMEOUT


class CloudRefused(CloudError):
    """The cloud does not let us: the operator's credentials or permissions."""

    reason = "CloudAccessRefused"
    call_outcome = CloudCallOutcome.REFUSED

    def __init__(self, service: str, cause: str, *, retry_after: timedelta = REFUSED_PAUSE) -> None:
        super().__init__(service, cause, retry_after=retry_after)


class CloudObjectMissing(CloudError):
    """There is no such object, as far as the cloud can see now."""

    reason = "CloudObjectMissing"
    call_outcome = CloudCallOutcome.OK


def pause_from(header: str | None, default: timedelta = DEFAULT_PAUSE) -> timedelta:
    """What a ``Retry-After`` header (RFC 9110 10.2.3) asks for, in seconds; a date or anything else is ``default``."""
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
