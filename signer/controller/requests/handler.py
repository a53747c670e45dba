"""Handles the queued requests of one workload cluster: workers decide, audit and publish, and requeue what waits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from signer.controller.requests.auditing import Auditing
from signer.controller.requests.deferral_backoff import DeferralBackoff
from signer.controller.requests.informer import RequestInformer
from signer.controller.requests.pending import request_name
from signer.controller.requests.publisher import Publisher
from signer.controller.requests.reachability import Reachability
from signer.controller.requests.reporter import Reporter
from signer.controller.requests.workers import SharedWorkerPool, Workers
from signer.controller.telemetry.logs import log_context
from signer.controller.telemetry.metrics import Metrics
from signer.controller.workload_access import BUILTIN_SERVING_ROLE, SIGNERS_ROLE, grant_remedy
from signer.decision.decider import DecidedRequest, Decider, deferral_of
from signer.kube.client import Client, JsonObject
from signer.kube.errors import ApiError, Conflict, Forbidden, NotFound, Unauthorized, UnexpectedAnswer
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.kube.supervision import is_cancelled, isolated
from signer.kube.workqueue import QueueClosed
from signer.model.cluster import ClusterKey
from signer.model.decision import (
    Approve,
    ApproveOnly,
    Challenge,
    Decision,
    Defer,
    Deny,
    Fail,
    Ignore,
    LeftAlone,
    Refused,
    printable,
)
from signer.model.flow import Flow, PriorityLevel
from signer.model.reasons import Reason
from signer.model.signing_request import (
    BuiltinServingRequest,
    MalformedBuiltinServingRequest,
    Parsed,
    SigningRequest,
)
from signer.rules.request import claimed_provider_id
from signer.store.caches import REACHED_AGAIN

_LOG = logging.getLogger(__name__)
_UNKNOWN_MACHINE_SECONDS: Final = 0.02
"""Minimum interval between decisions about requests of unknown Machines while they are many; each takes about 1 ms.
A request whose Machine appears leaves that flow at once."""


class RequestHandler:
    """Handles the requests of one cluster."""

    def __init__(
        self,
        key: ClusterKey,
        *,
        decider: Decider,
        informer: RequestInformer,
        reachability: Reachability,
        reporter: Reporter,
        auditing: Auditing,
        backoff: DeferralBackoff,
        metrics: Metrics,
        workers_per_cluster: int,
        worker_pool: SharedWorkerPool,
        monotonic: Callable[[], float],
    ) -> None:
        """``monotonic`` is a clock, in seconds."""
        self._key = key
        self._decider = decider
        self.informer = informer
        self._reachability = reachability
        self._reporter = reporter
        self._auditing = auditing
        self._backoff = backoff
        self._metrics = metrics
        self._workers_per_cluster = workers_per_cluster
        self._worker_pool = worker_pool
        self._monotonic = monotonic
        self._pending, self._queue = informer.pending, informer.queue
        self._pre_filter_lock = asyncio.Lock()
        self._unknown_machine_lock = asyncio.Lock()

    def workers_over(self, client: Client, publisher: Publisher) -> Workers:
        """Workers that handle requests over this connection. The workers of an earlier connection must have ended."""
        workers = Workers(
            partial(self.work, client, publisher),
            limit=self._workers_per_cluster,
            name=f"{self._key} worker",
            needs_worker=self._queue.is_unattended,
            worker_pool=self._worker_pool,
        )
        self._queue.call_when_unattended(workers.start)
        workers.start(max(1, len(self._queue)))
        return workers

    async def work(self, client: Client, publisher: Publisher) -> None:
        """Handle requests until the queue is closed, the task is cancelled, or another worker already waits.

        An attestor may swallow a cancellation, so the worker checks for one before it takes the next request.
        """
        with contextlib.suppress(QueueClosed):
            while not (self._queue.is_attended() or is_cancelled()):
                name = await self._queue.get()
                self._queue.call_if_unattended()  # another worker may be available by now
                try:
                    with isolated(partial(self._failed, name)), log_context(csr=name):
                        await self._handle(client, publisher, name)
                finally:
                    self._queue.done(name)
                    self._requeue_if_changed(name)

    def _requeue_if_changed(self, name: str) -> None:
        with isolated(partial(self._failed, name)):
            self.informer.requeue_if_changed(name)

    def _failed(self, name: str, error: BaseException) -> None:
        """Log an internal error and retry the request with backoff; the worker continues."""
        _LOG.error("unexpected fault", exc_info=error, extra={"cluster": str(self._key), "csr": printable(name)})
        self._metrics.decided(str(self._key), "", Defer.__name__, Reason.INTERNAL_ERROR)
        if self._pending.get(name) is not None:
            self._queue.retry(name)

    async def _handle(self, client: Client, publisher: Publisher, name: str) -> None:
        if self._needs_pre_filter(name):
            # One pre-filter per iteration of the event loop, so that the watch and other workers run in between.
            async with self._pre_filter_lock:
                requeued = self._needs_pre_filter(name) and self._pre_filter_and_requeue(name)
                await asyncio.sleep(0)
            if requeued:
                return
        # A decision that needs no call never awaits, and thousands of them would block the watch.
        await self._yield_to_others(self._pending.known_flow(name))
        manifest = self._pending.get(name)
        if manifest is None:
            return
        started = self._monotonic()
        decided_request = await self._decider.decide(manifest)
        if isinstance(decided_request.decision, Defer | LeftAlone) and self._pending.has_same_uid(name, manifest):
            # Before anything else: a change during the write of the audit line must wake the request.
            self._set_awaited(name, decided_request.parsed, decided_request.decision)
        decision = await self._auditing.decided(name, manifest, decided_request)
        if not self._pending.has_same_uid(name, manifest):
            # The CSR was deleted while its audit line was written; no later event reports it.
            self._auditing.forget(name)
        try:
            await _publish(publisher, manifest, decided_request.parsed, decision)
        except NotFound:
            self._drop_if_same(name, manifest)
            return
        except Conflict:
            await self._reread(client, name, manifest)
            return
        except ApiError as error:
            if isinstance(error, Unauthorized):
                self._reachability.failed(error)  # otherwise the watch keeps running on the rejected credentials
            decision = self._not_published(error, decided_request.parsed)
        if isinstance(decision, Approve):
            await self._decider.answered(decision)
        self._conclude(name, manifest, decided_request, decision)
        self._metrics.handling_seconds.labels(type(decision).__name__).observe(self._monotonic() - started)

    def _not_published(self, error: ApiError, parsed: Parsed) -> Defer:
        """A 403 is an answer of a reachable API server, and another call gets the same one until somebody acts."""
        if not isinstance(error, Forbidden):
            return deferral_of(Reason.WORKLOAD_CLUSTER_UNREACHABLE, error)
        builtin = isinstance(parsed, BuiltinServingRequest | MalformedBuiltinServingRequest)
        remedy = grant_remedy(self._key, BUILTIN_SERVING_ROLE if builtin else SIGNERS_ROLE)
        return Defer(Reason.WORKLOAD_GRANT_MISSING, printable(f"{error}: {remedy}"))

    async def _yield_to_others(self, flow: Flow) -> None:
        """Yield the event loop before a decision.

        A crowd of requests of unknown Machines gets one twentieth of the time: the watch, which delivers honest nodes'
        requests, must keep up with a requester that invents provider IDs.
        """
        if flow.priority_level is PriorityLevel.UNKNOWN_MACHINE and self._queue.is_crowded(flow.requester):
            async with self._unknown_machine_lock:
                await asyncio.sleep(_UNKNOWN_MACHINE_SECONDS)
        await asyncio.sleep(0)

    def _needs_pre_filter(self, name: str) -> bool:
        """Whether the requester has so many ready requests that this one must be pre-filtered before it is decided."""
        if name not in self._pending or not self._queue.is_crowded(self._pending.known_flow(name).requester):
            return False
        return self._pending.flow(name).priority_level is PriorityLevel.UNFILTERED

    def _pre_filter_and_requeue(self, name: str) -> bool:
        if self._pending.pre_filter(name).priority_level is PriorityLevel.UNFILTERED:
            return False  # the pre-filter found no flow
        self._queue.add(name)
        return True

    async def _reread(self, client: Client, name: str, manifest: JsonObject) -> None:
        """Read a CSR that changed while it was decided, and requeue it: at once the first time, then with backoff.

        Without backoff, an API server that answers every write with a conflict could cause endless decisions, cloud
        calls and audit lines.
        """
        try:
            current = await client.get(CERTIFICATE_SIGNING_REQUESTS.object(name))
            if request_name(current) != name:  # it would replace this CSR, which would be forgotten
                raise UnexpectedAnswer("the answer is another CSR", status=200)
        except NotFound:
            self._drop_if_same(name, manifest)
        except ApiError:
            if self._pending.has_same_uid(name, manifest):
                self._queue.retry(name)
        else:
            # If the watch has reported meanwhile that the CSR is gone or re-created, this response is not newer.
            if self._pending.has_same_uid(name, manifest):
                self.informer.changed_while_deciding(name, current)

    def _conclude(self, name: str, manifest: JsonObject, decided_request: DecidedRequest, decision: Decision) -> None:
        if isinstance(decision, Defer | LeftAlone):
            if not self._pending.has_same_uid(name, manifest):
                return  # gone meanwhile; a re-created CSR is in the queue by itself
            self._wait(name, decided_request, decision.instead_of if isinstance(decision, LeftAlone) else decision)
        else:
            if not isinstance(decision, Ignore):
                self._pending.mark_settled(manifest)
            self._drop_if_same(name, manifest)
            if isinstance(decision, Approve) and isinstance(decided_request.parsed, SigningRequest):
                provider_id = claimed_provider_id(decided_request.parsed)
                # Older requests that claim the same identity are denied now.
                self.informer.wake(frozenset({provider_id}))
        self._reporter.report(name, decided_request.parsed, decision)

    def _drop_if_same(self, name: str, manifest: JsonObject) -> None:
        """Drop the CSR unless it was re-created under the same name."""
        if self._pending.has_same_uid(name, manifest):
            self.informer.drop(name)

    def _wait(self, name: str, decided_request: DecidedRequest, decision: Decision) -> None:
        """Requeue the request after a delay; a change of what it waits for wakes it earlier."""
        self._set_awaited(name, decided_request.parsed, decision)
        if isinstance(decided_request.decision, LeftAlone):
            self.informer.mark_left_alone(name)
            return  # a change of the policy wakes it
        self.informer.mark_waiting(name)
        if isinstance(decision, Defer) and decision.retry_after is not None:
            self._queue.add_after(name, self._backoff.seconds(name, decision, decision.retry_after))
        else:
            self._queue.retry(name)

    def _set_awaited(self, name: str, parsed: Parsed, decision: Decision) -> None:
        """Index what wakes the request: the Machine that it claims, conflicting Machines, the management cluster."""
        waiting = decision.instead_of if isinstance(decision, LeftAlone) else decision
        awaited = list(waiting.waits_for) if isinstance(waiting, Defer) else []
        if isinstance(waiting, Defer) and waiting.reason == Reason.MANAGEMENT_CLUSTER_UNREACHABLE:
            awaited += REACHED_AGAIN
        flow = self._pending.flow(name)
        if flow.priority_level is PriorityLevel.UNKNOWN_MACHINE:  # also when the request cannot be parsed
            awaited.append(flow.provider_id)
        if isinstance(parsed, SigningRequest):
            with contextlib.suppress(Refused):
                awaited.append(claimed_provider_id(parsed))
        self._pending.set_awaited(name, awaited)


async def _publish(publisher: Publisher, manifest: JsonObject, parsed: Parsed, decision: Decision) -> None:
    match decision:
        case Approve():
            if not isinstance(parsed, SigningRequest):
                raise TypeError("only a request that was parsed completely can be approved")
            await publisher.approve_and_sign(manifest, parsed, decision)
        case ApproveOnly():
            await publisher.approve(manifest, decision)
        case Deny() | Challenge():
            await publisher.deny(manifest, decision)
        case Fail():
            await publisher.fail(manifest, decision)
        case Defer() | Ignore() | LeftAlone():
            pass
