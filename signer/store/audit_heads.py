"""The ConfigMap with the published heads of audit logs, in the controller's own namespace.

Every replica patches its own entry, at the resourceVersion that it read, so that none puts back another's older head.
Entries under the previous controller key are sealed anew, so that they count after the next rotation too. So a replica
may find its own entry under a key that it has not read yet: it reads the controller key before it judges the entry.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from signer.kube.calls import GetCreatePatch
from signer.kube.client import JsonObject
from signer.kube.errors import AlreadyExists, ApiError, Conflict, NotFound
from signer.kube.resources import CONFIG_MAPS
from signer.model.audit_head import HEADS_NAME, MAXIMUM_HEADS, AuthenticHead, BadHead, Head, KnownHead, read_heads
from signer.model.decision import Deferred
from signer.model.fields import mapping_of, text_of
from signer.model.seal import ControllerKeys, Generation, KeyUse, Seals

_ATTEMPTS: Final = 8


class RequireLookedFor(Protocol):
    """Makes sure that the controller key was read since a seal named a key that is not known."""

    def __call__(self, identifier: str, what: str) -> None:
        """``what`` is sealed with the key of that identifier.

        Raises:
            Deferred: the controller key was not read since; the read is asked for.
        """
        ...


class HeadNotPublished(Exception):
    """The head is not in the management cluster. The message says why."""


class HeadDiffers(Exception):
    """The published head of the chain is not one that this program published, or it does not count."""

    def __init__(self, published: KnownHead) -> None:
        super().__init__("another head of the chain is published")
        self.published = published


class AuditHeads:
    """Reads and writes the ConfigMap."""

    def __init__(
        self,
        management: GetCreatePatch,
        namespace: str,
        keys: Callable[[], ControllerKeys],
        require_looked_for: RequireLookedFor,
    ) -> None:
        """``keys`` raises Deferred while there are none."""
        self._management = management
        self._require_looked_for = require_looked_for
        self._waited_for = ""
        """The unknown key that a read of the controller key was waited for since the last write."""
        self._namespace = namespace
        self._keys = keys
        self._known: set[Head] = set()
        """The head that this program published last, or accepted, and later ones that it tried to publish: the answer
        to a write may be lost.
        """

    def accept(self, head: Head) -> None:
        """Accept a published head of an earlier process: its line is still in the log."""
        self._known = {head}

    @property
    def key_identifier(self) -> str:
        """Of the key that seals heads now.

        Raises:
            HeadNotPublished: there is no key.
        """
        return self._seals().key_identifier

    async def published(self, chain: str) -> KnownHead | None:
        """The head of that chain, if there is one.

        Raises:
            HeadNotPublished: it cannot be read.
        """
        return self._own(chain, read_heads(await self._read(), self._seals()))

    async def publish(self, head: Head) -> None:
        """Write the head.

        Raises:
            HeadDiffers: the chain has another head than this program knows; it stays.
            HeadNotPublished: it is not written.
        """
        for _ in range(_ATTEMPTS):
            with contextlib.suppress(Conflict, AlreadyExists):
                manifest, seals = await self._read(), self._seals()
                patch = self._patched(head, read_heads(manifest, seals), seals)
                self._known.add(head)
                await self._write(manifest, patch)
                self._known, self._waited_for = {head}, ""
                return
        raise HeadNotPublished(f"others keep changing ConfigMap {self._namespace}/{HEADS_NAME}")

    def _patched(self, head: Head, heads: Mapping[str, KnownHead], seals: Seals) -> dict[str, str | None]:
        before = self._own(head.chain, heads)
        if before is not None and not (isinstance(before, AuthenticHead) and before.head in self._known):
            raise HeadDiffers(before)
        patch: dict[str, str | None] = {head.chain: head.encode(seals)}
        others = {chain: one for chain, one in heads.items() if chain != head.chain}
        for chain in _oldest(others):
            patch[chain] = None
        for chain, one in others.items():
            if chain not in patch and isinstance(one, AuthenticHead) and one.generation is Generation.PREVIOUS:
                patch[chain] = one.head.encode(seals)
        return patch

    def _own(self, chain: str, heads: Mapping[str, KnownHead]) -> KnownHead | None:
        """The head of that chain, once the controller key was read since it was found under an unknown one.

        Only one key is waited for: a writer that names another one each time must not keep its change from being told.
        """
        found = heads.get(chain)
        unknown = found.unknown_key if isinstance(found, BadHead) else ""
        if unknown and self._waited_for in ("", unknown):
            self._waited_for = unknown
            try:
                self._require_looked_for(unknown, "the published head of this log")
            except Deferred as error:
                raise HeadNotPublished(error.defer.message) from error
        return found

    async def _read(self) -> JsonObject:
        try:
            return await self._management.get(CONFIG_MAPS.object(HEADS_NAME, self._namespace))
        except NotFound:
            return {}
        except ApiError as error:
            raise self._failed(error) from error

    async def _write(self, before: Mapping[str, Any], patch: Mapping[str, str | None]) -> None:
        try:
            if not before:
                await self._management.create(CONFIG_MAPS.collection(self._namespace), self._manifest(patch))
                return
            metadata = mapping_of(before, "metadata")
            version = {"uid": text_of(metadata, "uid"), "resourceVersion": text_of(metadata, "resourceVersion")}
            path = CONFIG_MAPS.object(HEADS_NAME, self._namespace)
            await self._management.patch(path, {"metadata": version, "data": dict(patch)})
        except (Conflict, AlreadyExists):
            raise
        except ApiError as error:
            raise self._failed(error) from error

    def _manifest(self, data: Mapping[str, str | None]) -> JsonObject:
        return {
            "apiVersion": CONFIG_MAPS.api_version,
            "kind": "ConfigMap",
            "metadata": {"name": HEADS_NAME, "namespace": self._namespace},
            "data": dict(data),
        }

    def _seals(self) -> Seals:
        try:
            return Seals(self._keys(), KeyUse.AUDIT_HEAD)
        except Deferred as error:
            raise HeadNotPublished(error.defer.message) from error

    def _failed(self, error: ApiError) -> HeadNotPublished:
        return HeadNotPublished(f"ConfigMap {self._namespace}/{HEADS_NAME} of the management cluster: {error}")


def _oldest(others: Mapping[str, KnownHead]) -> list[str]:
    """The entries to remove so that there is room for one more: first those that do not count, then the oldest."""
    excess = len(others) + 1 - MAXIMUM_HEADS
    if excess <= 0:
        return []
    bad = [chain for chain, one in others.items() if isinstance(one, BadHead)]
    dated = sorted((one.head.published, chain) for chain, one in others.items() if isinstance(one, AuthenticHead))
    return (bad + [chain for _, chain in dated])[:excess]
