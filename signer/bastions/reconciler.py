"""One Bastion object at a time: make it, keep it so, and remove it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from node_access.bastions.contract import (
    Bastion,
    BastionReference,
    BastionResources,
    Broken,
    Deadline,
    Gone,
    InvalidBastion,
    InvalidSettings,
    Pending,
    ProviderUnavailable,
    Ready,
)
from signer.bastions.host_keys import HostKeySecret
from signer.bastions.objects import Report, deleted, ended, ensured, failed, status_patch, to_contract
from signer.bastions.providers import NotAllowed, ProviderFailed, Providers
from signer.kube.calls import GetPatch
from signer.kube.client import JsonObject
from signer.kube.errors import NotFound
from signer.kube.resources import BASTIONS
from signer.model import access
from signer.model.access.bastion import FINALIZER
from signer.model.fields import items_of, mapping_of, text_of

_LOG = logging.getLogger(__name__)
RESYNC: Final = timedelta(minutes=5)
"""A ready bastion is ensured again: somebody may have changed its firewall."""
_UNKNOWN: Final = "unknown"


@dataclass(frozen=True, slots=True, order=True)
class BastionKey:
    """Namespace and name of a Bastion."""

    namespace: str
    name: str

    @property
    def path(self) -> str:
        """Of the object."""
        return BASTIONS.object(self.name, self.namespace)


@dataclass(frozen=True, slots=True)
class Again:
    """Look again after this time, or earlier if the object changes."""

    after: timedelta


@dataclass(frozen=True, slots=True)
class Retry:
    """Look again, with growing pauses."""


@dataclass(frozen=True, slots=True)
class Done:
    """Nothing to do until the object changes."""


Next = Again | Retry | Done


class EventSink(Protocol):
    """Takes Events."""

    def record(self, manifest: Mapping[str, Any], reason: str, message: str) -> None:
        """A warning about a Bastion object."""
        ...


class BastionReconciler:
    """Reads the object anew each time: what a watch showed may be old, and a decision is about money and doors."""

    def __init__(
        self,
        client: GetPatch,
        providers: Providers,
        secret: HostKeySecret,
        events: EventSink,
        now: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._providers = providers
        self._secret = secret
        self._events = events
        self._now = now

    async def reconcile(self, key: BastionKey) -> Next:
        """One turn.

        Raises:
            ApiError: the API server did not answer; the caller comes again.
        """
        try:
            manifest = await self._client.get(key.path)
        except NotFound:
            return Done()
        metadata = mapping_of(manifest, "metadata")
        if "deletionTimestamp" in metadata:
            if FINALIZER not in items_of(metadata, "finalizers"):
                return Done()
            return await self._delete(key, manifest)
        try:
            bastion = access.parse_bastion(manifest)
            wanted = to_contract(bastion, self._secret)
        except (access.InvalidBastion, InvalidBastion) as error:
            # What was made for an earlier, valid form stays until the object goes.
            await self._write(key, manifest, failed(f"The Bastion is invalid: {error}", "Reconcile", final=True))
            return Done()
        if self._now() >= wanted.not_after:
            return await self._end(key, manifest)
        if FINALIZER not in bastion.metadata.finalizers:
            # Before the first resource: with it, no resource is without an object that removes it.
            await self._set_finalizers(key, manifest, [*bastion.metadata.finalizers, FINALIZER])
            return Again(timedelta(milliseconds=1))
        return await self._ensure(key, manifest, bastion, wanted)

    async def _ensure(self, key: BastionKey, manifest: JsonObject, bastion: access.Bastion, wanted: Bastion) -> Next:
        try:
            resources = self._providers.opened(bastion.provider, key.namespace, bastion.settings)
        except (NotAllowed, InvalidSettings) as error:
            await self._write(key, manifest, failed(str(error), "Reconcile", final=True))
            return Again(RESYNC)
        except ProviderUnavailable as error:
            await self._write(key, manifest, failed(str(error), "Reconcile"))
            return Retry()
        try:
            answer = await self._providers.call(
                bastion.provider, "ensure", lambda deadline: resources.ensure(wanted, deadline)
            )
        except ProviderFailed as error:
            await self._write(key, manifest, failed(str(error), "Reconcile"))
            return Retry()
        await self._write(key, manifest, ensured(answer))
        match answer:
            case Ready():
                return Again(max(min(RESYNC, wanted.not_after - self._now()), timedelta(seconds=1)))
            case Pending(_, after):
                return Again(after)
            case Broken(_, final):
                return Again(RESYNC) if final else Retry()

    async def _end(self, key: BastionKey, manifest: JsonObject) -> Next:
        """``notAfter`` has passed: the bastion goes, although its grant may be there."""
        if FINALIZER not in items_of(mapping_of(manifest, "metadata"), "finalizers"):
            await self._write(key, manifest, ended())  # nothing was ever made
            return Done()
        outcome = await self._remove(key, manifest)
        if isinstance(outcome, Report):
            await self._write(key, manifest, outcome)
            return Retry()
        await self._write(key, manifest, ended() if isinstance(outcome, Gone) else deleted(outcome))
        return Done() if isinstance(outcome, Gone) else Again(outcome.after)

    async def _delete(self, key: BastionKey, manifest: JsonObject) -> Next:
        outcome = await self._remove(key, manifest)
        if isinstance(outcome, Report):
            await self._write(key, manifest, outcome)
            return Retry()
        if isinstance(outcome, Pending):
            await self._write(key, manifest, deleted(outcome))
            return Again(outcome.after)
        others = [one for one in items_of(mapping_of(manifest, "metadata"), "finalizers") if one != FINALIZER]
        await self._set_finalizers(key, manifest, others)
        return Done()

    async def _remove(self, key: BastionKey, manifest: JsonObject) -> Gone | Pending | Report:
        """Without a look at anything but what the object says of itself, which may be invalid otherwise."""
        spec = mapping_of(manifest, "spec")
        provider = text_of(spec, "provider")
        reference = _reference(key, manifest)
        try:
            resources = self._providers.operators(provider, key.namespace)
            return await self._removed(provider, resources, reference)
        except (NotAllowed, InvalidSettings, ProviderUnavailable, ProviderFailed) as error:
            return failed(str(error), "Delete")

    async def _removed(self, provider: str, resources: BastionResources, reference: BastionReference) -> Gone | Pending:
        def delete(deadline: Deadline) -> Gone | Pending:
            return resources.delete(reference, deadline)

        return await self._providers.call(provider, "delete", delete)

    async def _set_finalizers(self, key: BastionKey, manifest: JsonObject, finalizers: list[Any]) -> None:
        """With the version that was read: a list is replaced as a whole, and another controller may have one in it."""
        version = text_of(mapping_of(manifest, "metadata"), "resourceVersion")
        metadata = {"resourceVersion": version, "finalizers": finalizers}
        await self._client.patch(key.path, {"metadata": metadata})

    async def _write(self, key: BastionKey, manifest: JsonObject, report: Report) -> None:
        patch = status_patch(manifest, report, self._now())
        if not patch:
            return
        await self._client.patch(BASTIONS.object(key.name, key.namespace, "status"), patch)
        if report.state in ("Error", "Failed"):
            self._events.record(manifest, report.reason, report.message)
            _LOG.warning(
                "a bastion is not as it should be",
                extra={
                    "namespace": key.namespace,
                    "object": key.name,
                    "reason": report.reason,
                    "detail": report.message,
                },
            )


def _reference(key: BastionKey, manifest: Mapping[str, Any]) -> BastionReference:
    cluster = text_of(mapping_of(mapping_of(manifest, "spec"), "clusterRef"), "name")
    uid = text_of(mapping_of(manifest, "metadata"), "uid")
    try:
        return BastionReference(uid, key.namespace, key.name, cluster)
    except InvalidBastion:
        return BastionReference(uid, key.namespace, key.name, _UNKNOWN)  # the UID is the API server's
