"""Why the composite attestor itself denies a request or lets it wait. Its parts have reasons of their own."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from attestors.contract import ReasonExplanation

EXPLANATIONS: Final[Mapping[str, ReasonExplanation]] = MappingProxyType(
    {
        "AttestorsProveDifferentMachines": ReasonExplanation(
            "The parts of the evidence prove different provider IDs.",
            "Find the machine that sent the request: no genuine node sends this.",
        ),
        "AttestorsDisagree": ReasonExplanation(
            "Two attestors state names, addresses or annotations of the machine that have nothing in common.",
            "Compare what the platforms of the named attestors say of the machine.",
        ),
        "AttestorsChanged": ReasonExplanation(
            "The Machine's record is of other attestors than the operator's `attestors` names now.",
            "Replace the Machine; or delete its AttestedNode and IdentityReservations, and let the node join again.",
        ),
    }
)
