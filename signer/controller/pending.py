"""The requests of one cluster that still need something, and what each of them may be waiting for."""

from __future__ import annotations

import enum
import logging
import sys
from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from attestors.wire.names import SIGNER_DOMAIN
from signer.kube.client import JsonObject
from signer.kube.resources import segment
from signer.model.cluster import ClusterKey
from signer.model.decision import printable
from signer.model.signing_request import MAXIMUM_REQUEST_TEXT
from signer.store.mirror import object_key

_LOG = logging.getLogger(__name__)
_REMEMBERED_SETTLED: Final = 4096

# All clusters share one process, and a workload API server may send whatever it likes, as much as it likes.
MAXIMUM_REQUESTS: Final = 20_000
"""Kept of one cluster: several times the nodes of the largest clusters (Kubernetes is built for 5,000)."""
MAXIMUM_BYTES: Final = 64 * 1024 * 1024
"""Kept of one cluster, in bytes of memory: 5,000 requests of 12 KiB, which is ample for evidence with its chain."""
MAXIMUM_ANNOTATION_BYTES: Final = 64 * 1024
"""Kept of one CSR's annotations and labels, in bytes of memory; none of those that are read is near that."""
MAXIMUM_OBJECT_BYTES: Final = 256 * 1024
"""Kept of one CSR, in bytes of memory: the largest request (88 KiB of base64) and its requester, with room."""
MAXIMUM_UID_CHARACTERS: Final = 128
"""API servers make UUIDs, of 36; UIDs of settled CSRs are kept for longer than the CSRs."""


class Put(enum.Enum):
    """What became of a CSR that was to be kept."""

    KEPT = enum.auto()
    LEFT_OUT = enum.auto()
    """There is no room: list again when there is."""
    UNUSABLE = enum.auto()
    """Nothing can be written to it, or no API server could hold it: it is ignored."""


class UnusableRequest(Exception):
    """A CSR that no call can name, or that is too large even without what is not needed."""


@dataclass(slots=True)
class _Room:
    """What of the limits is taken."""

    requests: int = 0
    bytes: int = 0

    def take(self, size: int) -> bool:
        """Take a place for a request of that size, if there is one."""
        if self.requests >= MAXIMUM_REQUESTS or self.bytes + size > MAXIMUM_BYTES:
            return False
        self.requests += 1
        self.bytes += size
        return True

    def give_back(self, size: int) -> None:
        """That request is no longer kept."""
        self.requests -= 1
        self.bytes -= size

    @property
    def is_half_free(self) -> bool:
        """Whether listing again is worth its cost."""
        return self.requests < MAXIMUM_REQUESTS / 2 and self.bytes < MAXIMUM_BYTES / 2


class PendingRequests:
    """CSR objects by name, an index by claimed provider ID, and the UIDs that were settled lately.

    The index wakes exactly those that a change of a Machine concerns. The UIDs keep an old event of a CSR that we have
    just settled from bringing it back. Everything is bounded, the objects of a list that is under way included.
    """

    def __init__(self, key: ClusterKey) -> None:
        self._key = key
        self._manifests: dict[str, JsonObject] = {}
        self._sizes: dict[str, int] = {}
        self._room = _Room()
        self._listed = _Room()
        self._left_out_of_list = False
        self.left_out = False
        """Whether requests are known to wait that are not kept."""
        self.unusable = 0
        """How often a CSR was ignored because it is unusable."""
        self._names_by_provider_id: dict[str, set[str]] = {}
        self._provider_id_by_name: dict[str, str] = {}
        self._settled: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._manifests)

    def __iter__(self) -> Iterator[str]:
        """The names, as they are now; the requests may change meanwhile."""
        return iter(tuple(self._manifests))

    def get(self, name: str) -> JsonObject | None:
        """The CSR as it was last seen, or None if it no longer needs anything."""
        return self._manifests.get(name)

    def concerns_us(self, manifest: JsonObject) -> bool:
        """Whether a CSR that was seen belongs here."""
        return is_open(manifest) and request_uid(manifest) not in self._settled

    def put(self, manifest: JsonObject) -> Put:
        """Keep a CSR, or its newer state, if possible; what is kept under its name may be older otherwise."""
        try:
            kept, size = bounded(manifest)
        except UnusableRequest as error:
            self._ignore(manifest, error)
            return Put.UNUSABLE
        name = request_name(kept)
        before = self._sizes.pop(name, None)
        if before is not None:
            self._room.give_back(before)
            del self._manifests[name]
        if not self._room.take(size):
            self.left_out = True
            return Put.LEFT_OUT
        self._manifests[name] = kept
        self._sizes[name] = size
        return Put.KEPT

    # A list that is under way: its objects are held by who reads it, and are bounded all the same

    def list_begins(self) -> None:
        """Whatever was read of a list before is held by nobody any more."""
        self._listed = _Room()
        self._left_out_of_list = False

    def holds_of_list(self, manifest: JsonObject) -> bool:
        """Whether an object of a list is to be held until the list is complete; it is cut to what is kept."""
        if not self.concerns_us(manifest):
            return False
        try:
            kept, size = bounded(manifest)
        except UnusableRequest as error:
            self._ignore(manifest, error)
            return False
        if not self._listed.take(size):
            self._left_out_of_list = True
            return False
        manifest.clear()
        manifest.update(kept)
        return True

    def list_ends(self) -> bool:
        """It is complete, and knows better than anything before; returns whether something was left out of it."""
        left_out = self._left_out_of_list
        self.left_out = False
        self.list_begins()
        return left_out

    @property
    def has_room_again(self) -> bool:
        """Whether something was left out, and at least half of everything is free now."""
        return self.left_out and self._room.is_half_free

    def _ignore(self, manifest: JsonObject, error: UnusableRequest) -> None:
        self.unusable += 1
        if self.unusable == 1:
            _LOG.warning(
                "ignored a request that cannot be kept; further ones are ignored silently",
                extra={"cluster": str(self._key), "csr": printable(request_name(manifest)), "detail": str(error)},
            )

    def drop(self, name: str) -> None:
        """It is settled or gone."""
        if self._manifests.pop(name, None) is not None:
            self._room.give_back(self._sizes.pop(name))
        self._no_longer_claims(name)

    def _no_longer_claims(self, name: str) -> None:
        provider_id = self._provider_id_by_name.pop(name, None)
        if provider_id is not None:
            names = self._names_by_provider_id[provider_id]
            names.discard(name)
            if not names:
                del self._names_by_provider_id[provider_id]

    def is_still(self, name: str, manifest: JsonObject) -> bool:
        """Whether what is kept under that name is that very CSR, not one that was re-created under its name."""
        current = self._manifests.get(name)
        return current is not None and request_uid(current) == request_uid(manifest)

    def settled(self, manifest: JsonObject) -> None:
        """We have just decided it for good."""
        self._settled[request_uid(manifest)] = None
        if len(self._settled) > _REMEMBERED_SETTLED:
            self._settled.popitem(last=False)

    def claims(self, name: str, provider_id: str) -> None:
        """It waits, and claims that provider ID."""
        if name not in self._manifests:
            return
        self._no_longer_claims(name)
        self._provider_id_by_name[name] = provider_id
        self._names_by_provider_id.setdefault(provider_id, set()).add(name)

    def claiming(self, provider_ids: Iterable[str]) -> set[str]:
        """The names of those that wait and claim one of these."""
        return {name for provider_id in provider_ids for name in self._names_by_provider_id.get(provider_id, ())}


def request_name(manifest: JsonObject) -> str:
    """The CSR's name; empty when it has none."""
    return object_key(manifest)[1]


def request_uid(manifest: JsonObject) -> str:
    """The CSR's UID; empty when it has none."""
    metadata = manifest.get("metadata")
    return str(metadata.get("uid", "")) if isinstance(metadata, dict) else ""


def is_open(manifest: JsonObject) -> bool:
    """Whether it can be one of ours that still needs something; the parser decides for good."""
    spec, status = manifest.get("spec"), manifest.get("status") or {}
    if not isinstance(spec, dict) or not str(spec.get("signerName", "")).startswith(f"{SIGNER_DOMAIN}/"):
        return False
    if not isinstance(status, dict) or status.get("certificate"):
        return False
    conditions = status.get("conditions")
    return not any(
        isinstance(condition, dict) and condition.get("type") in ("Denied", "Failed")
        for condition in (conditions if isinstance(conditions, list) else ())
    )


def bounded(manifest: JsonObject) -> tuple[JsonObject, int]:
    """The CSR as it is kept, and the bytes of memory that it takes; ``manifest`` is one that :func:`is_open`.

    Raises:
        UnusableRequest: it cannot be kept at all.
    """
    metadata, spec, status = manifest.get("metadata"), manifest["spec"], manifest.get("status") or {}
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise UnusableRequest("it has no name that is text")
    name, uid = metadata["name"], metadata.get("uid")
    try:
        segment(name)
    except ValueError as error:
        raise UnusableRequest(str(error)) from error
    if not isinstance(uid, str) or not 0 < len(uid) <= MAXIMUM_UID_CHARACTERS:
        raise UnusableRequest(f"its UID is no text of 1 to {MAXIMUM_UID_CHARACTERS} characters")
    request = spec.get("request")
    if isinstance(request, str) and len(request) > MAXIMUM_REQUEST_TEXT:
        # Enough to see that it is too large. Whole groups of base64, or the API server could not read the denial; it
        # keeps its own spec in any case.
        spec = {**spec, "request": request[: MAXIMUM_REQUEST_TEXT + 4]}
    kept = {
        **manifest,
        "metadata": {field: value for field, value in metadata.items() if field != "managedFields"},
        "spec": spec,
    }
    described = [metadata.get("annotations"), metadata.get("labels")]
    if _size(described, MAXIMUM_ANNOTATION_BYTES) <= MAXIMUM_ANNOTATION_BYTES:
        size = _size(kept, MAXIMUM_OBJECT_BYTES)
        if size <= MAXIMUM_OBJECT_BYTES:
            return kept, size
    kept = {
        "metadata": {"name": name, "uid": uid, "resourceVersion": metadata.get("resourceVersion")},
        "spec": spec,
        "status": {"conditions": status["conditions"]} if "conditions" in status else {},
    }
    size = _size(kept, MAXIMUM_OBJECT_BYTES)
    if size > MAXIMUM_OBJECT_BYTES:
        raise UnusableRequest(f"spec and conditions take more than {MAXIMUM_OBJECT_BYTES} bytes")
    return kept, size


def _size(value: Any, maximum: int) -> int:
    """The bytes of memory that a value out of JSON takes; anything above ``maximum`` once it is clear that it is more.

    All values count, not only the texts: a megabyte of ``{},{},...`` takes thirty.
    """
    size = 0
    rest = [value]
    while rest and size <= maximum:
        item = rest.pop()
        size += sys.getsizeof(item)
        if size > maximum:
            break  # before the items of a long list are looked at
        if isinstance(item, dict):
            rest.extend(item.keys())
            rest.extend(item.values())
        elif isinstance(item, list):
            rest.extend(item)
    return size
