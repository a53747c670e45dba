"""Where a waiting request stands among others: one value, by which requests take turns and share what is kept.

Whoever holds a bootstrap token can post requests without end, and pools share tokens. So requests are told apart by
who posted them (``spec.username``, which the API server authenticated; never the subject, which is free to choose),
then by the machine that they claim, then by key: the evidence of another machine can be copied, but only together with
its key, and then all copies stand in one flow behind the original.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from signer.model.fields import mapping_of, text_of


class PriorityLevel(enum.IntEnum):
    """What a look at the request and its evidence alone has said, best first. It orders requests and admits none."""

    PLAUSIBLE = 0
    """The evidence verifies, as far as that can be told without asking anybody."""
    UNFILTERED = 1
    """Not looked at, or it could not be told."""
    UNKNOWN_MACHINE = 2
    """Nothing in the Cluster has the provider ID that it claims: there is nothing to look at closely yet."""
    REFUSED = 3
    """Some check that needs nobody else refuses it."""


@dataclass(frozen=True, slots=True)
class Flow:
    """One flow. Requests in the same flow are served first come, first served."""

    priority_level: PriorityLevel
    requester: str
    """``spec.username``."""
    provider_id: str = ""
    """The claimed provider ID; empty where nobody has looked yet, or nothing sensible is claimed."""
    public_key: str = ""
    """SHA-256 of the subject's public key, hexadecimal; empty where evidence does not pin it."""

    @property
    def path(self) -> tuple[str, ...]:
        """By what flows of the same screening differ, coarsest first; of the same length for all of them."""
        match self.priority_level:
            case PriorityLevel.PLAUSIBLE:
                return (self.requester, self.provider_id, self.public_key)
            case PriorityLevel.UNFILTERED | PriorityLevel.REFUSED:
                return (self.requester, self.provider_id)
            case PriorityLevel.UNKNOWN_MACHINE:
                return (self.requester,)  # whoever invents provider IDs gets no turn for each


def requester_of(manifest: Mapping[str, Any]) -> str:
    """``spec.username``: who posted the CSR, as the workload API server says."""
    return text_of(mapping_of(manifest, "spec"), "username")


def unfiltered(manifest: Mapping[str, Any]) -> Flow:
    """The flow of a CSR that was not looked at yet."""
    return Flow(PriorityLevel.UNFILTERED, requester_of(manifest))


ONE_FLOW: Final = Flow(PriorityLevel.PLAUSIBLE, "")
"""For keys that nobody competes for."""
