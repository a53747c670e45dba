"""Why cloud attestors deny a request or let it wait, as far as they share it: causes and remedies."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from attestors.contract import ReasonExplanation

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
