"""The pending requests of one cluster, with an index of what each of them waits for."""

from __future__ import annotations

import enum
import itertools
import logging
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final

from attestors.wire.names import SIGNER_DOMAIN, BuiltinSigner
from signer.controller.requests.bounded_request import PackedRequest, UnusableRequest, bounded
from signer.controller.requests.listed_requests import ListedRequests, Measured
from signer.controller.requests.request_budget import BudgetExceeded, Limits, RequestBudget, SharedRequestMemory
from signer.decision.pre_filter import PreFilter, unfiltered
from signer.kube.client import JsonObject
from signer.model.cluster import ClusterKey
from signer.model.decision import printable
from signer.model.fields import mapping_of, text_of
from signer.model.flow import Flow, PriorityLevel

_LOG = logging.getLogger(__name__)
_REMEMBERED_SETTLED: Final = 4096

# All clusters share one process, and a workload API server may present any number of requests of any size.
MAXIMUM_REQUESTS: Final = 20_000
"""Limit per cluster: several times the nodes of the largest clusters (Kubernetes supports 5,000)."""
MAXIMUM_BYTES: Final = 40 * 1024 * 1024
"""Limit per cluster, in bytes of memory, packed: enough for 5,000 requests of 12 KiB, an ample size with a chain."""


class Put(enum.Enum):
    """Result of adding a CSR."""

    KEPT = enum.auto()
    OVERFLOW = enum.auto()
    """The budget is exhausted: relist later."""
    UNUSABLE = enum.auto()
    """The CSR cannot be answered, or is too large to be genuine: it is ignored."""


def _limits() -> Limits:
    return Limits(MAXIMUM_REQUESTS, MAXIMUM_BYTES)


class PendingRequests:
    """Pending CSRs by name with their flows, an index by awaited provider ID, and the UIDs of recently settled CSRs.

    The index finds exactly the requests that a change of a Machine concerns. The UIDs prevent a late event from
    bringing a settled CSR back. Everything is bounded, including the objects of a list whose pages still arrive;
    ``signer.controller.requests.request_budget`` decides what is kept when the budget is exhausted.

    ``peek`` finds the flow of a new CSR, and ``pre_filter`` the flow of a CSR that was checked closely. Without them,
    requesters share equally, and each requester's oldest requests stay. All clusters share ``shared_memory``.

    A CSR that nobody waits beside needs no flow yet: it is peeked at when its flow is asked for.

    CSRs are kept packed, and compressed once there are many.
    """

    def __init__(
        self,
        key: ClusterKey,
        *,
        peek: PreFilter = unfiltered,
        pre_filter: PreFilter = unfiltered,
        shared_memory: SharedRequestMemory | None = None,
    ) -> None:
        self._key = key
        self._peek = peek
        self._pre_filter = pre_filter
        self._evicted: list[str] = []
        self._unpeeked: set[str] = set()
        """Those kept that were not peeked at yet."""
        self._kept: dict[str, PackedRequest] = {}
        self._shared_memory = shared_memory if shared_memory is not None else SharedRequestMemory()
        self._budget: RequestBudget[str] = RequestBudget(
            _limits, lambda name: pre_filter(self._kept[name].unpacked()), self._evict, self._shared_memory
        )
        self._list = ListedRequests(_limits, peek, pre_filter, self._shared_memory)
        self._measured: dict[int, Measured] = {}
        self.overflow = False
        """Whether there are known pending requests that are not kept."""
        self._overflow_since_relist = False
        """The same, since the last relist began."""
        self.unusable = 0
        """How often an unusable CSR was ignored."""
        self._waiting: dict[str, set[str]] = {}
        self._arrivals: dict[str, int] = {}
        self._arrived = itertools.count()
        self._awaited: dict[str, tuple[str, ...]] = {}  # a set of one takes five times as much
        self._settled: OrderedDict[str, None] = OrderedDict()

    def close(self) -> None:
        """Return the memory budget: the cluster is no longer served."""
        self._list.close()
        self._budget.close()

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, name: object) -> bool:
        return name in self._kept

    def __iter__(self) -> Iterator[str]:
        """A snapshot of the names; requests may change during iteration."""
        return iter(tuple(self._kept))

    def get(self, name: str) -> JsonObject | None:
        """The CSR as last observed, or None if it is not pending."""
        kept = self._kept.get(name)
        return None if kept is None else kept.unpacked()

    def is_relevant(self, manifest: JsonObject) -> bool:
        """Whether the CSR is pending and was not settled by this controller."""
        return is_pending(manifest) and request_uid(manifest) not in self._settled

    def put(self, manifest: JsonObject, *, alone: bool = False) -> Put:
        """Keep a CSR or its newer state. Unless the result is KEPT, an older state may remain under its name.

        ``alone`` means that no other CSR waits for a worker: then a new one is not peeked at, unless memory is short.
        """
        found = self._measured.pop(id(manifest), None)
        is_peeked = found is not None or not (alone and self._budget.is_almost_empty) or request_name(manifest) in self
        try:
            found = found or self._measure(manifest, self._peek if is_peeked else unfiltered)
        except UnusableRequest as error:
            self._ignore(manifest, error)
            return Put.UNUSABLE
        kept, flow = found.manifest, found.flow
        name = request_name(kept)
        if self.has_same_uid(name, kept):
            flow = flow if self._is_unpeeked(name) else _refreshed_flow(self._budget.flow(name), flow)
        elif name in self._kept:
            self._budget.release(name)
            self._clear_awaited(name)
        packed = self._kept[name] = PackedRequest.of(
            kept, request_uid(kept), compressed=not self._budget.is_almost_empty
        )
        self._arrivals.setdefault(name, next(self._arrived))
        try:
            self._budget.admit(name, flow, packed.size)
        except BudgetExceeded:
            del self._kept[name], self._arrivals[name]
            self._unpeeked.discard(name)
            self._mark_overflow()
            return Put.OVERFLOW
        if is_peeked:
            self._unpeeked.discard(name)
        else:
            self._unpeeked.add(name)
        if flow.priority_level is PriorityLevel.UNKNOWN_MACHINE and name not in self._awaited:
            self.set_awaited(name, (flow.provider_id,))
        return Put.KEPT

    def _measure(self, manifest: JsonObject, peek: PreFilter) -> Measured:
        kept, _ = bounded(manifest)
        return Measured(kept, peek(kept))

    def _evict(self, name: str) -> None:
        del self._kept[name], self._arrivals[name]
        self._unpeeked.discard(name)
        self._clear_awaited(name)
        self._mark_overflow()
        self._evicted.append(name)

    def pop_evicted(self) -> tuple[str, ...]:
        """The names of the CSRs that were evicted since the last call."""
        evicted, self._evicted = tuple(self._evicted), []
        return evicted

    def _mark_overflow(self) -> None:
        self.overflow = self._overflow_since_relist = True

    # Flows

    def flow(self, name: str) -> Flow:
        """The flow of a CSR that is kept, peeked at by now; an arbitrary flow for others, which no worker handles."""
        if self._is_unpeeked(name):
            flow = self._peek(self._kept[name].unpacked())
            self._budget.move(name, flow)
            if flow.priority_level is PriorityLevel.UNKNOWN_MACHINE:
                self.set_awaited(name, (*self._awaited.get(name, ()), flow.provider_id))
        self._unpeeked.discard(name)
        return self.known_flow(name)

    def known_flow(self, name: str) -> Flow:
        """The same, as far as it is known: one that was not peeked at is in its requester's unfiltered flow."""
        return self._budget.flow(name) if name in self._budget else _ABSENT

    def _is_unpeeked(self, name: str) -> bool:
        """Whether the CSR is still to be peeked at: it is not once it was pre-filtered."""
        return name in self._unpeeked and self._budget.flow(name).priority_level is PriorityLevel.UNFILTERED

    def pre_filter(self, name: str) -> Flow:
        """Pre-filter a CSR unless that was done already, and return its flow. Raises KeyError if it is not kept."""
        flow = self._budget.flow(name)
        if flow.priority_level is PriorityLevel.UNFILTERED:
            found = self._pre_filter(self._kept[name].unpacked())
            if found.priority_level is PriorityLevel.UNFILTERED:
                return flow
            flow = found
            self._budget.move(name, flow)
        return flow

    def refresh_flow(self, name: str) -> None:
        """Peek again at a request of an unknown Machine: a Machine has changed, which may be the request's."""
        if name in self._budget and self._budget.flow(name).priority_level is PriorityLevel.UNKNOWN_MACHINE:
            self._budget.move(name, self._peek(self._kept[name].unpacked()))

    # A list whose pages arrive

    def begin_list(self) -> None:
        """A list begins; the pages of an earlier one are discarded."""
        self._list.close()
        self._list = ListedRequests(_limits, self._peek, self._pre_filter, self._shared_memory)
        self._measured = {}

    def add_listed(self, manifest: JsonObject) -> bool:
        """Cut an object of a list to what is kept, and return whether the reader should hold it until the list ends.

        An object that is evicted later is emptied.
        """
        if not self.is_relevant(manifest):
            return False
        try:
            kept, size = bounded(manifest)
        except UnusableRequest as error:
            self._ignore(manifest, error)
            return False
        manifest.clear()
        manifest.update(kept)
        return self._list.add(manifest, size)

    def end_list(self) -> bool:
        """The list is complete and replaces the earlier state; returns whether requests of it overflowed."""
        ended = self._list
        self.overflow = False
        self.begin_list()
        self._measured = ended.measured()
        return ended.overflow

    def begin_relist(self) -> None:
        """A relist begins: it contains every overflowed request."""
        self._overflow_since_relist = False

    def end_relist(self) -> None:
        """The relist was read to its end."""
        self.overflow = self._overflow_since_relist

    @property
    def has_overflow(self) -> bool:
        """Whether requests overflowed, including those of an unfinished list."""
        return self.overflow or self._list.overflow

    @property
    def can_relist(self) -> bool:
        """Whether requests overflowed and at least half of the budget is free now."""
        return self.overflow and self._budget.is_half_free

    def _ignore(self, manifest: JsonObject, error: UnusableRequest) -> None:
        self.unusable += 1
        if self.unusable == 1:
            _LOG.warning(
                "ignored a request that cannot be kept; further ones are not logged",
                extra={"cluster": str(self._key), "csr": printable(request_name(manifest)), "detail": str(error)},
            )

    def drop(self, name: str) -> None:
        """Remove a CSR that is settled or gone."""
        if self._kept.pop(name, None) is not None:
            self._unpeeked.discard(name)
            del self._arrivals[name]
            self._budget.release(name)
        self._clear_awaited(name)

    def _clear_awaited(self, name: str) -> None:
        for provider_id in self._awaited.pop(name, ()):
            names = self._waiting[provider_id]
            names.discard(name)
            if not names:
                del self._waiting[provider_id]

    def has_same_uid(self, name: str, manifest: JsonObject) -> bool:
        """Whether the CSR kept under ``name`` has the same UID, so that it was not re-created."""
        current = self._kept.get(name)
        return current is not None and current.uid == request_uid(manifest)

    def mark_settled(self, manifest: JsonObject) -> None:
        """Remember that this controller has settled the CSR."""
        self._settled[request_uid(manifest)] = None
        if len(self._settled) > _REMEMBERED_SETTLED:
            self._settled.popitem(last=False)

    def set_awaited(self, name: str, provider_ids: Iterable[str]) -> None:
        """Index a CSR by what it waits for: provider IDs of the Machine that it claims and of conflicting Machines."""
        if name not in self._kept:
            return
        self._clear_awaited(name)
        self._awaited[name] = tuple(dict.fromkeys(provider_ids))
        for provider_id in self._awaited[name]:
            self._waiting.setdefault(provider_id, set()).add(name)

    def names_waiting_for(self, provider_ids: Iterable[str]) -> list[str]:
        """The CSRs that wait for one of these, in order of arrival, so that a copy is never first."""
        names = {name for provider_id in provider_ids for name in self._waiting.get(provider_id, ())}
        return sorted(names, key=self._arrivals.__getitem__)


def _refreshed_flow(before: Flow, peeked: Flow) -> Flow:
    """The flow of a known CSR after another peek; the result of the pre-filter is kept."""
    if peeked.priority_level is PriorityLevel.UNFILTERED and before.priority_level is not PriorityLevel.UNKNOWN_MACHINE:
        return before
    return peeked


_ABSENT: Final = unfiltered({})


def request_name(manifest: JsonObject) -> str:
    """The CSR's name; empty if it has none."""
    return text_of(mapping_of(manifest, "metadata"), "name")


def request_uid(manifest: JsonObject) -> str:
    """The CSR's UID; empty if it has none."""
    return text_of(mapping_of(manifest, "metadata"), "uid")


def is_pending(manifest: JsonObject) -> bool:
    """Whether the CSR may be for one of our signers and undecided; the parser has the final say."""
    spec, status = manifest.get("spec"), manifest.get("status") or {}
    if not isinstance(spec, dict) or not isinstance(status, dict) or status.get("certificate"):
        return False
    signer_name = text_of(spec, "signerName")
    if signer_name == BuiltinSigner.KUBELET_SERVING.value:
        settled: tuple[str, ...] = ("Approved", "Denied", "Failed")
    elif signer_name.startswith(f"{SIGNER_DOMAIN}/"):
        settled = ("Denied", "Failed")
    else:
        return False
    conditions = status.get("conditions")
    return not any(
        isinstance(condition, dict) and condition.get("type") in settled
        for condition in (conditions if isinstance(conditions, list) else ())
    )
