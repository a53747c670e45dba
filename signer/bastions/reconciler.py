"""One Bastion object at a time: make it, keep it so, and remove it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Protocol

from node_access.bastions.contract import (
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
from signer.bastions.configuration import BastionConfiguration
from signer.bastions.host_keys import HostKeySecret
from signer.bastions.metrics import BastionMetrics
from signer.bastions.objects import (
    Report,
    deleted,
    ended,
    ensured,
    failed,
    refused,
    status_patch,
    to_contract,
    withdrawn,
)
from signer.bastions.placing import Elsewhere, Placing
from signer.bastions.providers import NotAllowed, ProviderFailed, Providers
from signer.bastions.targets import Bounded, TargetNotAllowed, left_out_message, within
from signer.kube.calls import GetPatch
from signer.kube.client import JsonObject
from signer.kube.errors import NotFound
from signer.kube.resources import BASTIONS
from signer.model import access
from signer.model.access.bastion import BROKEN, FINALIZER, BastionReason
from signer.model.fields import items_of, mapping_of, required_time, text_of

_LOG = logging.getLogger(__name__)
RESYNC: Final = timedelta(minutes=5)
"""A ready bastion is ensured again: somebody may have changed its firewall."""
_FOR_THE_OPERATOR: Final = BROKEN - {BastionReason.FAILED}
_AT_ONCE: Final = timedelta(milliseconds=1)
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
        configuration: BastionConfiguration,
        providers: Providers,
        secret: HostKeySecret,
        events: EventSink,
        metrics: BastionMetrics,
        now: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._targets = configuration.targets
        self._providers = providers
        self._placing = Placing(client, configuration, providers)
        self._secret = secret
        self._events = events
        self._metrics = metrics
        self._now = now

    async def reconcile(self, key: BastionKey) -> Next:
        """One turn.

        Raises:
            ApiError: the API server did not answer; the caller comes again.
        """
        try:
            manifest = await self._placing.recovered(await self._client.get(key.path))
        except NotFound:
            return Done()
        if "deletionTimestamp" in mapping_of(manifest, "metadata"):
            return await self._delete(key, manifest) if _has_finalizer(manifest) else Done()
        try:
            bastion = access.parse_bastion(manifest)
            wanted = to_contract(bastion, self._secret)
        except (access.InvalidBastion, InvalidBastion) as error:
            return await self._keep_until_its_end(key, manifest, f"The Bastion is invalid: {error}")
        if self._now() >= wanted.not_after:
            return await self._end(key, manifest)
        try:
            resources = self._providers.opened(bastion.provider, key.namespace, bastion.settings)
            bounded = within(wanted, self._targets)
            if not _has_finalizer(manifest):
                return await self._begin(key, manifest)
            self._placing.require(manifest)
        except (NotAllowed, InvalidSettings) as error:
            return await self._withdraw(key, manifest, BastionReason.FAILED, str(error))
        except TargetNotAllowed as error:
            return await self._withdraw(key, manifest, BastionReason.TARGET_NOT_ALLOWED, str(error))
        except Elsewhere as error:
            # Another bastion elsewhere would be in addition to the one that runs.
            await self._write(key, manifest, refused(error.reason, error.message))
            return self._again_before(wanted.not_after)
        except ProviderUnavailable as error:
            await self._write(key, manifest, failed(str(error), "Reconcile"))
            return Retry()
        return await self._ensure(key, manifest, bounded, resources)

    async def _begin(self, key: BastionKey, manifest: JsonObject) -> Next:
        """Before the first resource: with the finalizer, no resource is without an object that removes it. The place
        comes before the finalizer, so that a finalizer without one means a lost status.
        """
        manifest = await self._placing.record(manifest)
        finalizers = items_of(mapping_of(manifest, "metadata"), "finalizers")
        await self._set_finalizers(key, manifest, [*finalizers, FINALIZER])
        return Again(_AT_ONCE)

    async def _ensure(
        self, key: BastionKey, manifest: JsonObject, bounded: Bounded, resources: BastionResources
    ) -> Next:
        wanted = bounded.bastion
        try:
            answer = await self._providers.call(
                _provider(manifest), "ensure", lambda deadline: resources.ensure(wanted, deadline)
            )
        except ProviderFailed as error:
            await self._write(key, manifest, failed(str(error), "Reconcile"))
            return Retry()
        await self._write(key, manifest, ensured(answer, left_out_message(bounded.left_out)))
        match answer:
            case Ready():
                return self._again_before(wanted.not_after)
            case Pending(_, after):
                return Again(after)
            case Broken(_, final):
                return self._again_before(wanted.not_after) if final else Retry()

    async def _keep_until_its_end(self, key: BastionKey, manifest: JsonObject, message: str) -> Next:
        """What was made for an earlier, valid form stays until the object goes, or until its end; without a readable
        end, not at all.
        """
        try:
            end = required_time(mapping_of(manifest, "spec"), "notAfter")
        except (KeyError, TypeError, ValueError):
            end = self._now()
        if self._now() >= end and _has_finalizer(manifest):
            return await self._end(key, manifest)
        await self._write(key, manifest, failed(message, "Reconcile", final=True))
        return self._again_before(end) if _has_finalizer(manifest) else Done()

    def _again_before(self, end: datetime) -> Again:
        return Again(max(min(RESYNC, end - self._now()), timedelta(seconds=1)))

    async def _withdraw(self, key: BastionKey, manifest: JsonObject, reason: BastionReason, message: str) -> Next:
        """The operator does not allow the bastion, or not any more: what was made goes."""
        if not _has_finalizer(manifest):
            await self._write(key, manifest, refused(reason, message))
            return Again(RESYNC)
        outcome = await self._remove(key, manifest)
        if isinstance(outcome, Gone):
            await self._drop_finalizer(key, manifest)
            return Again(_AT_ONCE)
        await self._write(key, manifest, withdrawn(reason, message, outcome))
        return Again(outcome.after) if isinstance(outcome, Pending) else Retry()

    async def _end(self, key: BastionKey, manifest: JsonObject) -> Next:
        """``notAfter`` has passed: the bastion goes, although its grant may be there."""
        if not _has_finalizer(manifest):
            await self._write(key, manifest, ended())  # nothing was ever made, or nothing is left
            return Done()
        outcome = await self._remove(key, manifest)
        if isinstance(outcome, Gone):
            await self._drop_finalizer(key, manifest)
            return Again(_AT_ONCE)
        return await self._not_removed(key, manifest, outcome)

    async def _delete(self, key: BastionKey, manifest: JsonObject) -> Next:
        outcome = await self._remove(key, manifest)
        if isinstance(outcome, Gone):
            await self._drop_finalizer(key, manifest)
            return Done()
        return await self._not_removed(key, manifest, outcome)

    async def _not_removed(self, key: BastionKey, manifest: JsonObject, outcome: Pending | Report) -> Next:
        if isinstance(outcome, Report):
            await self._write(key, manifest, outcome)
            return Retry()
        await self._write(key, manifest, deleted(outcome))
        return Again(outcome.after)

    async def _remove(self, key: BastionKey, manifest: JsonObject) -> Gone | Pending | Report:
        """Without a look at anything but what the object says of itself, which may be invalid otherwise."""
        provider = _provider(manifest)
        reference = _reference(key, manifest)
        try:
            self._placing.require(manifest)
            resources = self._providers.operators(provider, key.namespace)
            return await self._removed(provider, resources, reference)
        except Elsewhere as error:
            return refused(error.reason, error.message, "Delete")
        except (NotAllowed, InvalidSettings, ProviderUnavailable, ProviderFailed) as error:
            return failed(str(error), "Delete")

    async def _removed(self, provider: str, resources: BastionResources, reference: BastionReference) -> Gone | Pending:
        def delete(deadline: Deadline) -> Gone | Pending:
            return resources.delete(reference, deadline)

        return await self._providers.call(provider, "delete", delete)

    async def _drop_finalizer(self, key: BastionKey, manifest: JsonObject) -> None:
        others = [one for one in items_of(mapping_of(manifest, "metadata"), "finalizers") if one != FINALIZER]
        await self._set_finalizers(key, manifest, others)

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
            if report.reason in _FOR_THE_OPERATOR:
                self._metrics.refusals.labels(report.reason.value).inc()
            self._events.record(manifest, report.reason.value, report.message)
            _LOG.warning(
                "a bastion is not as it should be",
                extra={
                    "namespace": key.namespace,
                    "object": key.name,
                    "reason": report.reason.value,
                    "detail": report.message,
                },
            )


def _has_finalizer(manifest: Mapping[str, Any]) -> bool:
    """Whether something of the bastion may exist."""
    return FINALIZER in items_of(mapping_of(manifest, "metadata"), "finalizers")


def _provider(manifest: Mapping[str, Any]) -> str:
    return text_of(mapping_of(manifest, "spec"), "provider")


def _reference(key: BastionKey, manifest: Mapping[str, Any]) -> BastionReference:
    cluster = text_of(mapping_of(mapping_of(manifest, "spec"), "clusterRef"), "name")
    uid = text_of(mapping_of(manifest, "metadata"), "uid")
    try:
        return BastionReference(uid, key.namespace, key.name, cluster)
    except InvalidBastion:
        return BastionReference(uid, key.namespace, key.name, _UNKNOWN)  # the UID is the API server's
