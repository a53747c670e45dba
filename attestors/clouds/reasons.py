"""Cause and remedy of the reasons that cloud attestors share, for a person."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from attestors.contract import ReasonExplanation

BOTH_SETTINGS: Final = "the operator's, then the policy's where it has any"
"""Location of a list that a policy may narrow: either list may exclude the value."""
SHARED_EXPLANATIONS: Final[Mapping[str, ReasonExplanation]] = MappingProxyType(
    {
        "ClockBehind": ReasonExplanation(
            "The evidence is ahead of the controller's clock.", "Set the controller's clock."
        ),
        "CloudAccessRefused": ReasonExplanation("The cloud rejects the controller.", "Grant what the message names."),
        "CloudUnavailable": ReasonExplanation(
            "The cloud does not answer, or its answer is unusable.",
            "Nothing if it resolves by itself; otherwise check the controller's connection to the cloud.",
        ),
        "EvidenceExpired": ReasonExplanation(
            "Valid evidence expired while the request waited.",
            "Nothing: the node [retries](node.md#evidence-that-runs-out). If the reason recurs, compare clocks.",
        ),
        "InstanceNotRunning": ReasonExplanation("The instance does not run, or not yet.", "Start it."),
    }
)
