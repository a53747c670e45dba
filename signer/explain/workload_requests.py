"""Counts the requests of one workload cluster, which keeps decided requests for an hour."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from attestors.wire.names import NODE_USER_PREFIX
from signer.controller.workload_access import WorkloadAccessRefused, workload_connection
from signer.explain.current_conditions import current_conditions_of
from signer.explain.found_requests import MAXIMUM_REQUESTS, FoundRequest, found_request
from signer.explain.readable import NotingReads
from signer.kube.calls import Get
from signer.kube.client import Client
from signer.kube.errors import ApiError
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.kube.tls import TlsMaterialRefused
from signer.model.cluster import ClusterKey
from signer.model.decision import printable
from signer.model.fields import mapping_of, text_of
from signer.model.reasons import Reason
from signer.model.signing_request import (
    BuiltinCSRHeader,
    Condition,
    NotOurs,
    parse_signing_request,
    peek_claimed_provider_id,
)

_MAXIMUM_REASONS: Final = 16
_MAXIMUM_REASON_CHARACTERS: Final = 64
OTHER_REASONS: Final = "others"


@dataclass(frozen=True, slots=True)
class RequestCounts:
    """Counts of requests to attestors' signers and of nodes' built-in serving requests."""

    pending: int
    denied: Mapping[str, int]
    """By reason, most frequent first. A challenge is not a denial."""
    failed: int
    counted_all: bool
    """False if there were more requests than ``MAXIMUM_REQUESTS``."""
    last: Mapping[str, FoundRequest] = field(default_factory=dict)
    """By provider ID, of those that were asked for: the newest request that waits and claims it, else the newest. Its
    manifest is left out."""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The requests cannot be read; the message says why."""

    message: str
    not_readable: bool = False
    """Whether this user may not read the Cluster's kubeconfig: the cluster itself may be well."""


async def count_requests(
    management: Get,
    key: ClusterKey,
    providers: frozenset[str],
    timeout_seconds: float,
    provider_ids: frozenset[str] = frozenset(),
) -> RequestCounts | Unreachable:
    """Count the requests of one cluster, connecting as the controller does. Requests that claim one of the
    ``provider_ids`` are also told by it.
    """
    reads = NotingReads(management)
    try:
        async with asyncio.timeout(timeout_seconds):
            connection = await workload_connection(reads, key)
            async with Client(connection, timeout_seconds=timeout_seconds) as workload:
                return await _count(workload, providers, provider_ids)
    except TimeoutError:
        return Unreachable(f"no answer within {timeout_seconds:g} seconds")
    except (WorkloadAccessRefused, TlsMaterialRefused, ApiError, ValueError) as error:
        return Unreachable(printable(str(error)), not_readable=reads.refused)


async def _count(workload: Client, providers: frozenset[str], provider_ids: frozenset[str]) -> RequestCounts:
    pending = failed = seen = 0
    last: dict[str, FoundRequest] = {}
    denied: Counter[str] = Counter()
    async with contextlib.aclosing(workload.list_pages(CERTIFICATE_SIGNING_REQUESTS.collection())) as pages:
        async for page in pages:
            for item in page["items"]:
                if not isinstance(item, dict) or not _is_counted(item, providers):
                    continue
                claimed = peek_claimed_provider_id(item, providers) if provider_ids else ""
                if claimed in provider_ids:
                    found = replace(found_request(item), manifest={})
                    last[claimed] = max(last.get(claimed, found), found, key=lambda one: one.order)
                current = current_conditions_of(item)
                types = {one.type: one.reason for one in current.conditions}
                failed += Condition.FAILED.value in types
                reason = types.get(Condition.DENIED.value)
                if reason is not None and reason != Reason.CHALLENGE_ISSUED:
                    denied[reason[:_MAXIMUM_REASON_CHARACTERS]] += 1
                pending += not current.is_settled and not current.conditions
            seen += len(page["items"])
            if seen >= MAXIMUM_REQUESTS:
                break
    return RequestCounts(pending, _bounded(denied), failed, counted_all=seen < MAXIMUM_REQUESTS, last=last)


def _is_counted(item: Mapping[str, Any], providers: frozenset[str]) -> bool:
    """Whether the controller would decide the request; for the built-in signer, only requests of nodes."""
    bare = {"metadata": mapping_of(item, "metadata"), "spec": {**mapping_of(item, "spec"), "request": ""}}
    parsed = parse_signing_request(bare, providers)
    if isinstance(parsed, NotOurs):
        return False
    is_builtin = isinstance(parsed.header, BuiltinCSRHeader)
    return not is_builtin or text_of(mapping_of(item, "spec"), "username").startswith(NODE_USER_PREFIX)


def _bounded(denied: Counter[str]) -> dict[str, int]:
    """Limit the number of reasons: the workload cluster chooses their texts."""
    common = dict(denied.most_common(_MAXIMUM_REASONS))
    rest = denied.total() - sum(common.values())
    return {**common, OTHER_REASONS: rest} if rest else common
