"""Finds the requests of a Machine or node among those of its workload cluster.

What a request says is only a claim: another machine may ask in this one's name. So each request that is found is named,
and the checks decide which one is right.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from signer.explain.current_conditions import Answer, Answered, NotAnswered, current_conditions_of
from signer.kube.calls import GetList
from signer.kube.client import JsonObject
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.model.cluster import LONG_AGO
from signer.model.decision import printable
from signer.model.fields import mapping_of, parse_time, text_of
from signer.model.requested_node import requested_node_names
from signer.model.signing_request import NO_CLAIM, peek_claimed_provider_id

MAXIMUM_REQUESTS: Final = 20_000
"""Read of one cluster's requests."""
WAITS: Final = "waits"
"""The state of a request that has no answer yet."""
MAXIMUM_FOUND: Final = 16
"""Kept of the requests that match: those that wait, then the newest. A client may post any number of them."""

_BY_CONSEQUENCE: Final = (Answer.CHALLENGED, Answer.DENIED, Answer.FAILED, Answer.APPROVED)


@dataclass(frozen=True, slots=True)
class Sought:
    """The names by which requests are recognized."""

    provider_ids: frozenset[str]
    """What a request to an attestor's signer claims. Empty: such requests are recognized by the node's name too."""
    node_names: frozenset[str]


@dataclass(frozen=True, slots=True)
class FoundRequest:
    """A request that matches."""

    manifest: JsonObject = field(repr=False)
    name: str
    created: datetime
    """:data:`~signer.model.cluster.LONG_AGO` if the time cannot be read."""
    state: str
    """``waits``, or type and reason of its first condition."""
    answered: Answered | NotAnswered

    @property
    def waits(self) -> bool:
        """Whether it has no answer yet."""
        return self.state == WAITS

    @property
    def order(self) -> tuple[bool, datetime, int, str]:
        """Sorts the request that matters most last: those that wait after decided ones, newer after older ones.

        Times are in seconds, and a node answers a challenge at once: of requests of one second, that with the answer of
        more consequence comes after.
        """
        consequence = _BY_CONSEQUENCE.index(self.answered.answer) if isinstance(self.answered, Answered) else -1
        return self.waits, self.created, consequence, self.name


@dataclass(frozen=True, slots=True)
class FoundRequests:
    """The requests that match, those that wait first, each newest first."""

    requests: tuple[FoundRequest, ...]
    others: int
    """How many more match."""
    searched_all: bool
    """False if the cluster has more requests than ``MAXIMUM_REQUESTS``."""


async def find_requests(
    workload: GetList, sought: Sought, providers: frozenset[str], provider_id_oids: tuple[str, ...]
) -> FoundRequests:
    """Find the requests that match.

    Raises:
        ApiError: the workload cluster's requests cannot be listed.
    """
    found: list[FoundRequest] = []
    seen = matching = 0
    async with contextlib.aclosing(workload.list_pages(CERTIFICATE_SIGNING_REQUESTS.collection())) as pages:
        async for page in pages:
            for item in page["items"]:
                if isinstance(item, dict) and _matches(item, sought, providers, provider_id_oids):
                    matching += 1
                    found.append(found_request(item))
            found = sorted(found, key=lambda one: one.order, reverse=True)[:MAXIMUM_FOUND]
            seen += len(page["items"])
            if seen >= MAXIMUM_REQUESTS:
                break
    return FoundRequests(tuple(found), matching - len(found), searched_all=seen < MAXIMUM_REQUESTS)


def _matches(
    item: Mapping[str, Any], sought: Sought, providers: frozenset[str], provider_id_oids: tuple[str, ...]
) -> bool:
    claimed = peek_claimed_provider_id(item, providers, provider_id_oids)
    if claimed != NO_CLAIM and sought.provider_ids:
        return claimed in sought.provider_ids
    return bool(sought.node_names & requested_node_names(item, providers, provider_id_oids))


def found_request(item: JsonObject) -> FoundRequest:
    """A CSR with its name, time and state."""
    metadata, current = mapping_of(item, "metadata"), current_conditions_of(item)
    try:
        created = parse_time(text_of(metadata, "creationTimestamp"))
    except ValueError:
        created = LONG_AGO
    state = WAITS
    if current.conditions:
        state = f"{current.conditions[0].type} {current.conditions[0].reason}".strip()
    elif current.has_certificate:
        state = "has a certificate"
    return FoundRequest(item, printable(text_of(metadata, "name")), created, state, current.answered)
