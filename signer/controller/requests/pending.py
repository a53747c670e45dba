"""The requests of one cluster that still need something, and what each of them may be waiting for."""

from __future__ import annotations

import enum
import itertools
import logging
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final

from attestors.wire.names import SIGNER_DOMAIN, BuiltinSigner
from signer.controller.requests.bounded_request import UnusableRequest, bounded
from signer.controller.requests.listed_requests import ListedRequests, Measured
from signer.controller.requests.packed_request import PackedRequest
from signer.controller.requests.request_budget import BudgetExceeded, Limits, RequestBudget, SharedRequestMemory
from signer.decision.pre_filter import PreFilter, unfiltered
from signer.kube.client import JsonObject
from signer.model.cluster import ClusterKey
from signer.model.decision import printable
from signer.model.fields import mapping_of, text_of
from signer.model.flow import Flow, PriorityLevel
from signer.store.cache import object_key

_LOG = logging.getLogger(__name__)
_REMEMBERED_SETTLED: Final = 4096

# All clusters share one process, and a workload API server may send whatever it likes, as much as it likes.
MAXIMUM_REQUESTS: Final = 20_000
"""Kept of one cluster: several times the nodes of the largest clusters (Kubernetes is built for 5,000)."""
MAXIMUM_BYTES: Final = 40 * 1024 * 1024
"""Kept of one cluster, in bytes of memory, packed: 5,000 requests of 12 KiB, which is ample with its chain."""


class Put(enum.Enum):
    """What became of a CSR that was to be kept."""

    KEPT = enum.auto()
    OVERFLOW = enum.auto()
    """There is no room: list again when there is."""
    UNUSABLE = enum.auto()
    """Nothing can be written to it, or no API server could hold it: it is ignored."""


def _limits() -> Limits:
    return Limits(MAXIMUM_REQUESTS, MAXIMUM_BYTES)


class PendingRequests:
    """CSR objects by name with their flows, an index by claimed provider ID, and the UIDs that were settled lately.

    The index wakes exactly those that a change of a Machine concerns. The UIDs keep an old event of a CSR that we have
    just settled from bringing it back. Everything is bounded, the objects of a list that is under way included; what is
    kept when not all can be is a matter of ``signer.controller.requests.request_budget``.

    ``peek`` finds the flow of a CSR that has just come, ``pre_filter`` that of one that was looked at closely: without
    them, requesters share alike, and of each the first come stay. All clusters share ``shared_memory``.

    A CSR is kept packed: its text is base64 of base64 of base64, and in a flood there are thousands. Few are not worth
    compressing.
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
        self._kept: dict[str, PackedRequest] = {}
        self._shared_memory = shared_memory if shared_memory is not None else SharedRequestMemory()
        self._budget: RequestBudget[str] = RequestBudget(
            _limits, lambda name: pre_filter(self._kept[name].unpacked()), self._evict, self._shared_memory
        )
        self._list = ListedRequests(_limits, peek, pre_filter, self._shared_memory)
        self._measured: dict[int, Measured] = {}
        self.overflow = False
        """Whether requests are known to wait that are not kept."""
        self._overflow_again = False
        """The same, since a list was begun beside the watch."""
        self.unusable = 0
        """How often a CSR was ignored because it is unusable."""
        self._waiting: dict[str, set[str]] = {}
        self._arrivals: dict[str, int] = {}
        self._arrived = itertools.count()
        self._awaited: dict[str, tuple[str, ...]] = {}  # a set of one takes five times as much
        self._settled: OrderedDict[str, None] = OrderedDict()

    def close(self) -> None:
        """The cluster is no longer served: others may have what its requests took."""
        self._list.close()
        self._budget.close()

    def __len__(self) -> int:
        return len(self._kept)

    def __contains__(self, name: object) -> bool:
        return name in self._kept

    def __iter__(self) -> Iterator[str]:
        """The names, as they are now; the requests may change meanwhile."""
        return iter(tuple(self._kept))

    def get(self, name: str) -> JsonObject | None:
        """The CSR as it was last seen, or None if it no longer needs anything."""
        kept = self._kept.get(name)
        return None if kept is None else kept.unpacked()

    def concerns_us(self, manifest: JsonObject) -> bool:
        """Whether a CSR that was seen belongs here."""
        return is_open(manifest) and request_uid(manifest) not in self._settled

    def put(self, manifest: JsonObject) -> Put:
        """Keep a CSR, or its newer state, if possible; what is kept under its name may be older otherwise."""
        try:
            found = self._measured.pop(id(manifest), None) or self._measure(manifest)
        except UnusableRequest as error:
            self._ignore(manifest, error)
            return Put.UNUSABLE
        kept, flow = found.manifest, found.flow
        name = request_name(kept)
        if self.is_still(name, kept):
            flow = _newer(self._budget.flow(name), flow)
        elif name in self._kept:
            self._budget.release(name)
            self._waits_no_longer(name)
        packed = self._kept[name] = PackedRequest.of(
            kept, request_uid(kept), compressed=not self._budget.is_almost_empty
        )
        self._arrivals.setdefault(name, next(self._arrived))
        try:
            self._budget.admit(name, flow, packed.size)
        except BudgetExceeded:
            del self._kept[name], self._arrivals[name]
            self._leave_out()
            return Put.OVERFLOW
        if flow.priority_level is PriorityLevel.UNKNOWN_MACHINE and name not in self._awaited:
            self.waits_for(name, (flow.provider_id,))
        return Put.KEPT

    def _measure(self, manifest: JsonObject) -> Measured:
        kept, _ = bounded(manifest)
        return Measured(kept, self._peek(kept))

    def _evict(self, name: str) -> None:
        del self._kept[name], self._arrivals[name]
        self._waits_no_longer(name)
        self._leave_out()
        self._evicted.append(name)

    def take_evicted(self) -> tuple[str, ...]:
        """The names of the CSRs that had to make way for others since the last call, each once."""
        evicted, self._evicted = tuple(self._evicted), []
        return evicted

    def _leave_out(self) -> None:
        self.overflow = self._overflow_again = True

    # Flows

    def flow(self, name: str) -> Flow:
        """The flow of a CSR that is kept; any flow for others, which nobody works on."""
        return self._budget.flow(name) if name in self._budget else _ABSENT

    def pre_filter(self, name: str) -> Flow:
        """Find the flow of a CSR that is kept and was not pre-filtered yet. Raises KeyError where it is not kept."""
        flow = self._budget.flow(name)
        if flow.priority_level is PriorityLevel.UNFILTERED:
            found = self._pre_filter(self._kept[name].unpacked())
            if found.priority_level is PriorityLevel.UNFILTERED:
                return flow
            flow = found
            self._budget.move(name, flow)
        return flow

    def peek_again(self, name: str) -> None:
        """A Machine has changed: what no Machine had may have one now, and another flow."""
        if name in self._budget and self._budget.flow(name).priority_level is PriorityLevel.UNKNOWN_MACHINE:
            self._budget.move(name, self._peek(self._kept[name].unpacked()))

    # A list that is under way

    def list_begins(self) -> None:
        """Whatever was read of a list before is held by nobody any more."""
        self._list.close()
        self._list = ListedRequests(_limits, self._peek, self._pre_filter, self._shared_memory)
        self._measured = {}

    def holds_of_list(self, manifest: JsonObject) -> bool:
        """Whether an object of a list is to be held until the list is complete; it is cut to what is kept.

        One that is held may have to make way for others: it is empty then.
        """
        if not self.concerns_us(manifest):
            return False
        try:
            kept, size = bounded(manifest)
        except UnusableRequest as error:
            self._ignore(manifest, error)
            return False
        manifest.clear()
        manifest.update(kept)
        return self._list.holds(manifest, size)

    def list_ends(self) -> bool:
        """It is complete, and knows better than anything before; returns whether something was left out of it."""
        ended = self._list
        self.overflow = False
        self.list_begins()
        self._measured = ended.measured()
        return ended.overflow

    def relist_begins(self) -> None:
        """All that was left out is in a list that is read beside the watch."""
        self._overflow_again = False

    def relist_ends(self) -> None:
        """It was read to its end."""
        self.overflow = self._overflow_again

    @property
    def leaves_out(self) -> bool:
        """Whether something was left out, also of a list that is not at its end yet."""
        return self.overflow or self._list.overflow

    @property
    def has_room_again(self) -> bool:
        """Whether something was left out, and at least half of everything is free now."""
        return self.overflow and self._budget.is_half_free

    def _ignore(self, manifest: JsonObject, error: UnusableRequest) -> None:
        self.unusable += 1
        if self.unusable == 1:
            _LOG.warning(
                "ignored a request that cannot be kept; further ones are ignored silently",
                extra={"cluster": str(self._key), "csr": printable(request_name(manifest)), "detail": str(error)},
            )

    def drop(self, name: str) -> None:
        """It is settled or gone."""
        if self._kept.pop(name, None) is not None:
            del self._arrivals[name]
            self._budget.release(name)
        self._waits_no_longer(name)

    def _waits_no_longer(self, name: str) -> None:
        for provider_id in self._awaited.pop(name, ()):
            names = self._waiting[provider_id]
            names.discard(name)
            if not names:
                del self._waiting[provider_id]

    def is_still(self, name: str, manifest: JsonObject) -> bool:
        """Whether what is kept under that name is that very CSR, not one that was re-created under its name."""
        current = self._kept.get(name)
        return current is not None and current.uid == request_uid(manifest)

    def settled(self, manifest: JsonObject) -> None:
        """We have just decided it for good."""
        self._settled[request_uid(manifest)] = None
        if len(self._settled) > _REMEMBERED_SETTLED:
            self._settled.popitem(last=False)

    def waits_for(self, name: str, provider_ids: Iterable[str]) -> None:
        """It waits for a change of what these stand for: the Machine that it claims to be, and others in its way."""
        if name not in self._kept:
            return
        self._waits_no_longer(name)
        self._awaited[name] = tuple(dict.fromkeys(provider_ids))
        for provider_id in self._awaited[name]:
            self._waiting.setdefault(provider_id, set()).add(name)

    def waiting_for(self, provider_ids: Iterable[str]) -> list[str]:
        """The names of those that wait for one of these, in the order in which they came: a copy is never first."""
        names = {name for provider_id in provider_ids for name in self._waiting.get(provider_id, ())}
        return sorted(names, key=self._arrivals.__getitem__)


def _newer(before: Flow, peeked: Flow) -> Flow:
    """The flow of a CSR that had one, after another glance: what a closer look has found is not forgotten."""
    if peeked.priority_level is PriorityLevel.UNFILTERED and before.priority_level is not PriorityLevel.UNKNOWN_MACHINE:
        return before
    return peeked


_ABSENT: Final = unfiltered({})


def request_name(manifest: JsonObject) -> str:
    """The CSR's name; empty when it has none."""
    return object_key(manifest)[1]


def request_uid(manifest: JsonObject) -> str:
    """The CSR's UID; empty when it has none."""
    return text_of(mapping_of(manifest, "metadata"), "uid")


def is_open(manifest: JsonObject) -> bool:
    """Whether it can be one of ours that still needs something; the parser decides for good."""
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
