"""The requests of one cluster that still need something, and what each of them may be waiting for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from typing import Final

from attestors.wire.names import SIGNER_DOMAIN
from signer.kube.client import JsonObject
from signer.model.signing_request import MAXIMUM_REQUEST_TEXT
from signer.store.mirror import object_key

_REMEMBERED_SETTLED: Final = 4096


class PendingRequests:
    """CSR objects by name, an index by claimed provider ID, and the UIDs that were settled lately.

    The index wakes exactly those that a change of a Machine concerns. The UIDs keep an old event of a CSR that we have
    just settled from bringing it back.
    """

    def __init__(self) -> None:
        self._manifests: dict[str, JsonObject] = {}
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

    def put(self, manifest: JsonObject) -> None:
        """Keep a CSR, or its newer state."""
        self._manifests[request_name(manifest)] = _bounded(manifest)

    def drop(self, name: str) -> None:
        """It is settled or gone."""
        self._manifests.pop(name, None)
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
        manifest = self._manifests[name]
        self.drop(name)
        self._manifests[name] = manifest
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
    return not any(
        isinstance(condition, dict) and condition.get("type") in ("Denied", "Failed")
        for condition in status.get("conditions") or []
    )


def _bounded(manifest: JsonObject) -> JsonObject:
    """The CSR as it is kept: of a request that is too large to be read, only enough to see that it is.

    API servers take CSRs of a megabyte, and any bootstrap token may post them by the hundred.
    """
    request = manifest["spec"].get("request")
    if not isinstance(request, str) or len(request) <= MAXIMUM_REQUEST_TEXT:
        return manifest
    # Still whole groups of base64, or the API server could not read the denial; it keeps its own spec in any case.
    return {**manifest, "spec": {**manifest["spec"], "request": request[: MAXIMUM_REQUEST_TEXT + 4]}}
