"""The flow of a waiting request. The fair queue and fair-share eviction treat all flows alike.

A bootstrap token allows any number of requests, and pools share tokens. So flows differ by requester
(``spec.username``, which the API server authenticated; never the subject, which the requester chooses), then by the
claimed machine, then by key. The evidence of another machine can be copied only together with its key, and then all
copies are in one flow behind the original.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from attestors.wire.names import NODE_USER_PREFIX
from signer.model.fields import MAXIMUM_NAME_CHARACTERS, mapping_of, text_of

MAXIMUM_REQUESTER_CHARACTERS: Final = len(NODE_USER_PREFIX) + MAXIMUM_NAME_CHARACTERS
"""Of a node, which has the longest name that is ever approved."""
DEFAULT_WORKERS: Final = 32
"""Requests decided concurrently in each cluster."""


class PriorityLevel(enum.IntEnum):
    """Result of the pre-filter, which reads only the request and its evidence; best first. It orders requests only."""

    PLAUSIBLE = 0
    """The evidence verifies, as far as that is possible without calls to other services."""
    UNFILTERED = 1
    """The request was not pre-filtered, or the result is unknown."""
    UNKNOWN_MACHINE = 2
    """No Machine in the Cluster has the claimed provider ID, so the pre-filter did not run yet."""
    REFUSED = 3
    """A check that needs no other service refuses the request."""


@dataclass(frozen=True, slots=True)
class Flow:
    """One flow. Requests in the same flow are served in order of arrival."""

    priority_level: PriorityLevel
    requester: str
    """``spec.username``."""
    provider_id: str = ""
    """The claimed provider ID; empty if the request was not read yet or claims no valid one."""
    public_key: str = ""
    """SHA-256 of the subject's public key, hexadecimal; empty if evidence does not pin it."""

    @property
    def path(self) -> tuple[str, ...]:
        """The keys by which flows of this priority level differ, coarsest first. All have the same length."""
        match self.priority_level:
            case PriorityLevel.PLAUSIBLE:
                return (self.requester, self.provider_id, self.public_key)
            case PriorityLevel.UNFILTERED | PriorityLevel.REFUSED:
                return (self.requester, self.provider_id)
            case PriorityLevel.UNKNOWN_MACHINE:
                return (self.requester,)  # invented provider IDs must not each get a turn


def requester_of(manifest: Mapping[str, Any]) -> str:
    """``spec.username``: the CSR's requester, as the workload API server authenticated it.

    Of a longer one than a node can have, only the beginning: a flow is kept beside the packed request, where no limit
    of memory counts it.
    """
    return text_of(mapping_of(manifest, "spec"), "username")[:MAXIMUM_REQUESTER_CHARACTERS]


def unfiltered(manifest: Mapping[str, Any]) -> Flow:
    """The flow of a CSR that was not pre-filtered yet."""
    return Flow(PriorityLevel.UNFILTERED, requester_of(manifest))


ONE_FLOW: Final = Flow(PriorityLevel.PLAUSIBLE, "")
"""The flow of keys that do not compete with each other."""
