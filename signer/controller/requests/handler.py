"""The requests of one workload cluster, taken from its queue by workers: judged, answered, concluded."""

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
from signer.decision.decider import DecidedRequest, Decider, deferral_of
from signer.kube.client import Client, JsonObject
from signer.kube.errors import ApiError, Conflict, NotFound, Unauthorized, UnexpectedAnswer
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.kube.supervision import is_told_to_end, isolated
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
from signer.model.signing_request import Parsed, SigningRequest
from signer.rules.request import claimed_provider_id
from signer.store.caches import REACHED_AGAIN

_LOG = logging.getLogger(__name__)
_UNKNOWN_EVERY_SECONDS: Final = 0.02
"""Judging what no Machine has takes about a millisecond. One that gets its Machine leaves that flow at once."""


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
        self._looking = asyncio.Lock()
        self._judging_unknown = asyncio.Lock()

    def workers_over(self, client: Client, publisher: Publisher) -> Workers:
        """Who handles the requests from now on, over this connection; those of the one before have ended."""
        workers = Workers(
            partial(self.work, client, publisher),
            limit=self._workers_per_cluster,
            name=f"{self._key} worker",
            is_wanted=self._queue.is_unattended,
            worker_pool=self._worker_pool,
        )
        self._queue.call_when_unattended(workers.call)
        workers.call(max(1, len(self._queue)))
        return workers

    async def work(self, client: Client, publisher: Publisher) -> None:
        """Handle one request after the other until the queue is closed, or another worker waits for the next.

        An attestor may keep a cancellation to itself: the next request is not waited for then, but the end.
        """
        with contextlib.suppress(QueueClosed):
            while not (self._queue.is_attended() or is_told_to_end()):
                name = await self._queue.get()
                self._queue.call_if_unattended()  # there may be room for another worker by now
                try:
                    with isolated(partial(self._failed, name)), log_context(csr=printable(name)):
                        await self._handle(client, publisher, name)
                finally:
                    self._queue.done(name)
                    self._look_at_meanwhile(name)

    def _look_at_meanwhile(self, name: str) -> None:
        with isolated(partial(self._failed, name)):
            self.informer.look_at_meanwhile(name)

    def _failed(self, name: str, error: BaseException) -> None:
        """A fault of ours ends no worker: the request waits."""
        _LOG.error("unexpected fault", exc_info=error, extra={"cluster": str(self._key), "csr": printable(name)})
        self._metrics.decided(str(self._key), "", Defer.__name__, Reason.INTERNAL_ERROR)
        if self._pending.get(name) is not None:
            self._queue.retry(name)

    async def _handle(self, client: Client, publisher: Publisher, name: str) -> None:
        if self._is_to_be_looked_at(name):
            # One look in each turn of the event loop: the watch, and answers to other workers, come in between.
            async with self._looking:
                sent = self._is_to_be_looked_at(name) and self._moved_to_its_flow(name)
                await asyncio.sleep(0)
            if sent:
                return
        # Where nobody needs to be asked, judging waits for nothing, and thousands of requests would hold up the watch.
        await self._turn_of(self._pending.flow(name))
        manifest = self._pending.get(name)
        if manifest is None:
            return
        started = self._monotonic()
        decided_request = await self._decider.decide(manifest)
        if isinstance(decided_request.decision, Defer | LeftAlone) and self._pending.is_still(name, manifest):
            # Before anything else: what changes while the decision is logged must wake it again.
            self._awaits(name, decided_request.parsed, decided_request.decision)
        decision = await self._auditing.decided(name, manifest, decided_request)
        if not self._pending.is_still(name, manifest):
            self._auditing.forget(name)  # it went while its line was written, and nobody tells of that again
        try:
            await _carry_out(publisher, manifest, decided_request.parsed, decision)
        except NotFound:
            self._drop_this(name, manifest)
            return
        except Conflict:
            await self._read_again(client, name, manifest)
            return
        except ApiError as error:
            if isinstance(error, Unauthorized):
                self._reachability.failed(error)  # a watch that began with them goes on meanwhile
            decision = deferral_of(Reason.WORKLOAD_CLUSTER_UNREACHABLE, error)
        self._conclude(name, manifest, decided_request, decision)
        self._metrics.handling_seconds.labels(type(decision).__name__).observe(self._monotonic() - started)

    async def _turn_of(self, flow: Flow) -> None:
        """Let others have the event loop first. Crowds of what no Machine has are judged in one twentieth of the time:
        the watch, behind which honest nodes' requests wait, must keep up with whoever invents provider IDs.
        """
        if flow.priority_level is PriorityLevel.UNKNOWN_MACHINE and self._queue.is_crowded(flow.requester):
            async with self._judging_unknown:
                await asyncio.sleep(_UNKNOWN_EVERY_SECONDS)
        await asyncio.sleep(0)

    def _is_to_be_looked_at(self, name: str) -> bool:
        """Of many by the same requester each is looked at first, and then takes its turn among its like."""
        flow = self._pending.flow(name)
        crowded = self._queue.is_crowded(flow.requester)
        return crowded and flow.priority_level is PriorityLevel.UNFILTERED and name in self._pending

    def _moved_to_its_flow(self, name: str) -> bool:
        if self._pending.pre_filter(name).priority_level is PriorityLevel.UNFILTERED:
            return False  # it could not be told
        self._queue.add(name)
        return True

    async def _read_again(self, client: Client, name: str, manifest: JsonObject) -> None:
        """The CSR changed while it was judged: judge what it is now.

        At once when that happens first, then after a pause that grows: an API server that answers every write so would
        have its requests judged, by attestors and clouds, too, and written into the audit log without end.
        """
        try:
            current = await client.get(CERTIFICATE_SIGNING_REQUESTS.object(name))
            if request_name(current) != name:  # which would be kept instead, and this one be forgotten
                raise UnexpectedAnswer("the answer is another CSR", status=200)
        except NotFound:
            self._drop_this(name, manifest)
        except ApiError:
            if self._pending.is_still(name, manifest):
                self._queue.retry(name)
        else:
            # What the watch said meanwhile, that it is gone or another one, is not older than this answer.
            if self._pending.is_still(name, manifest):
                self.informer.changed_while_judged(name, current)

    def _conclude(self, name: str, manifest: JsonObject, decided_request: DecidedRequest, decision: Decision) -> None:
        if isinstance(decision, Defer | LeftAlone):
            if not self._pending.is_still(name, manifest):
                return  # gone while it was judged; one that was re-created under its name is in the queue by itself
            self._wait(name, decided_request, decision.instead_of if isinstance(decision, LeftAlone) else decision)
        else:
            if not isinstance(decision, Ignore):
                self._pending.settled(manifest)
            self._drop_this(name, manifest)
            if isinstance(decision, Approve) and isinstance(decided_request.parsed, SigningRequest):
                provider_id = claimed_provider_id(decided_request.parsed)
                # Older requests that prove the same identity are denied now.
                self.informer.wake(frozenset({provider_id}))
        self._reporter.report(name, decided_request.parsed, decision)

    def _drop_this(self, name: str, manifest: JsonObject) -> None:
        """A CSR that was re-created under the same name meanwhile is another one, and stays."""
        if self._pending.is_still(name, manifest):
            self.informer.drop(name)

    def _wait(self, name: str, decided_request: DecidedRequest, decision: Decision) -> None:
        """Until something changes that it waits for, and in any case for a while."""
        self._awaits(name, decided_request.parsed, decision)
        if isinstance(decided_request.decision, LeftAlone):
            self.informer.is_left_alone(name)
            return  # until the policy changes
        self.informer.waits_for_us(name)
        if isinstance(decision, Defer) and decision.retry_after is not None:
            self._queue.add_after(name, self._backoff.seconds(name, decision, decision.retry_after))
        else:
            self._queue.retry(name)

    def _awaits(self, name: str, parsed: Parsed, decision: Decision) -> None:
        """What wakes it: a change of the Machine that it claims to be, and of others in its way."""
        waiting = decision.instead_of if isinstance(decision, LeftAlone) else decision
        awaited = list(waiting.waits_for) if isinstance(waiting, Defer) else []
        if isinstance(waiting, Defer) and waiting.reason == Reason.MANAGEMENT_CLUSTER_UNREACHABLE:
            awaited += REACHED_AGAIN
        flow = self._pending.flow(name)
        if flow.priority_level is PriorityLevel.UNKNOWN_MACHINE:  # also of what cannot be read as a whole
            awaited.append(flow.provider_id)
        if isinstance(parsed, SigningRequest):
            with contextlib.suppress(Refused):
                awaited.append(claimed_provider_id(parsed))
        self._pending.waits_for(name, awaited)


async def _carry_out(publisher: Publisher, manifest: JsonObject, parsed: Parsed, decision: Decision) -> None:
    match decision:
        case Approve():
            if not isinstance(parsed, SigningRequest):
                raise TypeError("only a request that was read completely can be approved")
            await publisher.approve_and_sign(manifest, parsed, decision)
        case ApproveOnly():
            await publisher.approve(manifest, decision)
        case Deny() | Challenge():
            await publisher.deny(manifest, decision)
        case Fail():
            await publisher.fail(manifest, decision)
        case Defer() | Ignore() | LeftAlone():
            pass
