"""Why cloud attestors refuse or wait, in what they share: cause and cure, for a person."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from attestors.contract import ReasonExplanation

BOTH_SETTINGS: Final = "the operator's, then the policy's where it has any"
"""Where a list stands that a policy may narrow: either may be what leaves somebody out."""
SHARED_EXPLANATIONS: Final[Mapping[str, ReasonExplanation]] = MappingProxyType(
    {
        "ClockBehind": ReasonExplanation(
            "The evidence is ahead of the controller's clock.", "Set the controller's clock."
        ),
        "CloudAccessRefused": ReasonExplanation("The cloud refuses the controller.", "Grant what the message names."),
        "CloudUnavailable": ReasonExplanation(
            "The cloud does not answer, or not usefully.", "Nothing where it ends; else the controller's way to it."
        ),
        "EvidenceExpired": ReasonExplanation(
            "Good evidence ran out while the request waited.",
            "Nothing: the node [asks again](node.md#evidence-that-runs-out). Where it comes back, compare clocks.",
        ),
        "InstanceNotRunning": ReasonExplanation("It does not run, or not yet.", "Start it."),
    }
)
