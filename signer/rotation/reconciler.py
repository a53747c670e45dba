"""Rotates the CAs of one workload cluster while it is connected: one move at each pass.

A pass reads the record and the orders of people, observes the world, and makes the one move that comes next
(:mod:`signer.rotation.plan`). It keeps nothing in memory but the time since which the old CA is refused, so a restart
loses nothing but that wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from random import Random
from typing import Final, Protocol, TypeAlias

from attestors.wire.statement import ClusterIdentity, MalformedStatement
from attestors.wire.statement.names import STATEMENT_CONFIG_MAP
from signer.authority import AuthorityError
from signer.authority.presented import Presented
from signer.kube.backoff import Backoff
from signer.kube.calls import GetCreatePatch, Replace
from signer.kube.client import Client, JsonObject
from signer.kube.errors import ApiError, Conflict, Forbidden, NotFound
from signer.kube.resources import NODE_ATTESTATION_POLICIES, SECRETS
from signer.kube.supervision import until_wanted
from signer.model.cluster import ClusterKey, ClusterView
from signer.model.condition import PolicyCondition
from signer.model.decision import Deferred, printable
from signer.model.fields import mapping_of
from signer.model.seal import Generation
from signer.rotation.abandonment import require_cleared
from signer.rotation.authorities import AuthorityKind, NotMade, Role
from signer.rotation.condition_types import OPERATION_REJECTED, UNVERIFIED_CURE
from signer.rotation.conditions import leftovers_condition, rotation_conditions
from signer.rotation.desired import WriteKubeconfig
from signer.rotation.facts import Acceptance, Facts, HeldPair, NotObserved, ServersFacts
from signer.rotation.leftovers import LeftoverSearch, Scan
from signer.rotation.operations import (
    OPERATION_ANNOTATION,
    SKIP_GATES_ANNOTATION,
    NeverRotated,
    NoOrder,
    Operation,
    OperationRejected,
    Order,
    UnknownOperation,
    read_order,
    require_possible,
)
from signer.rotation.phases import Phase, RollbackAvailable, Step
from signer.rotation.plan import (
    CALL_FAILED,
    Advance,
    Finished,
    Make,
    Move,
    Wait,
    abandoned,
    carry_out,
    next_move,
    started,
)
from signer.rotation.proofs import NotKnown, signed_by_new
from signer.rotation.record import NotYet, RotationRecord
from signer.rotation.rotations import Known, RotationChanged, Rotations, Unverified, Verified
from signer.rotation.secrets import read_secret
from signer.rotation.statements import NotPublished, SequenceTooLow, TrustFacts, publish_statement
from signer.rotation.statements.readers import ensure_readers
from signer.rotation.statements.wanted import NoStatement, wanted_statement
from signer.rotation.writer import Gathered, Writer, WriteRefused
from signer.store.caches import Caches

_LOG = logging.getLogger(__name__)
IDLE_SECONDS: Final = 600.0
"""How often a cluster without a rotation is looked at without a change."""
CHANGED_SECONDS: Final = 0.5
"""After a write that another one came before; the watch shows the new version meanwhile."""
WAITING: Final = Backoff(base_seconds=5.0, maximum_seconds=60.0, jitter=0.2)
"""While a step waits for the world."""
SERVER_STEPS: Final = frozenset(
    {
        Step.SERVERS_TRUST,
        Step.CONTROLLER_MANAGERS_SIGN,
        Step.NODES_TRUST,
        Step.PREPARED,
        Step.SERVERS_PRESENT,
        Step.DROP_OLD,
        Step.NODES_RETURN,
    }
)
"""Steps for which the API servers, or kube-controller-managers, must take files."""


class ManagementCalls(GetCreatePatch, Replace, Protocol):
    """The calls to the management cluster."""


@dataclass(frozen=True, slots=True)
class Observed:
    """What one pass has observed."""

    facts: Facts
    gathered: Gathered
    are_answers_earlier: bool = False
    """Whether the API servers' answers are those of an earlier pass."""


class Observer(Protocol):
    """Observes everything that a move depends on."""

    async def observe(self, record: RotationRecord, cluster: ClusterView, workload: Client, *, anew: bool) -> Observed:
        """Observe it once. Unless ``anew``, the API servers' answers may be minutes old where nothing but a person or
        the clock is waited for: nothing may be written by such facts.

        Raises:
            ApiError: the management cluster cannot be asked.
            Deferred: the controller key is not available.
        """
        ...

    async def first_record(self, order: Order, cluster: ClusterView, policy: JsonObject) -> RotationRecord:
        """The first record of a new rotation, if it could be finished (preflight).

        Raises:
            OperationRejected: it could not; the message says what is missing.
            ApiError: the management cluster cannot be asked.
        """
        ...

    async def have_servers_renewed(self, record: RotationRecord, cluster: ClusterView) -> None:
        """Have the API servers take what is published, if that was not asked for yet.

        Raises:
            ApiError: the management cluster cannot be asked.
        """
        ...


class NodeClientOrders(Protocol):
    """Carries out orders to replace the node-client authority."""

    async def carry_out(self, order: Order) -> None:
        """Carry it out, or nothing if that was done before.

        Raises:
            OperationRejected: it is not possible now; the message says why.
            ApiError: the management cluster cannot be asked, or the write failed.
            Deferred: the controller key is not available.
        """
        ...


class Tell(Protocol):
    """Records an Event on the policy."""

    def __call__(self, kind: str, reason: str, message: str) -> None:
        """``kind`` is Normal or Warning."""
        ...


Pause: TypeAlias = float


class RotationReconciler:
    """One cluster's rotation."""

    name: Final = "certificate authority rotation"

    def __init__(
        self,
        key: ClusterKey,
        *,
        management: ManagementCalls,
        caches: Caches,
        rotations: Rotations,
        observer: Observer,
        node_client: NodeClientOrders,
        tell: Tell,
        changed: Callable[[], None],
        reconnect: Callable[[], None],
        now: Callable[[], datetime],
        random: Random,
        elsewhere: frozenset[Operation] = frozenset(),
    ) -> None:
        """``changed`` is called when conditions have changed, ``reconnect`` when the kubeconfig has: a connection keeps
        the CAs and the client certificate with which it was made. ``elsewhere`` are the operations that another part of
        this controller carries out.
        """
        self._key = key
        self._management = management
        self._caches = caches
        self._rotations = rotations
        self._observer = observer
        self._node_client = node_client
        self._tell = tell
        self._changed = changed
        self._reconnect = reconnect
        self._now = now
        self._random = random
        self._elsewhere = elsewhere
        self._wanted = asyncio.Event()
        self._waits = 0
        self._readers_ensured = False
        self._refused_since: datetime | NotObserved = _NOT_REFUSED
        self._last: tuple[Facts, Move] | None = None
        self._rejected: PolicyCondition | None = None
        self._leftovers = LeftoverSearch(now)

    @property
    def conditions(self) -> Sequence[PolicyCondition]:
        """For the policy's status."""
        try:
            known = self._rotations.of(self._key)
        except Deferred:
            return ()  # a condition of its own says that the controller key is missing
        facts, move = self._last or (None, None)
        rejected = () if self._rejected is None else (self._rejected,)
        scan = self._leftovers.last
        leftovers = (leftovers_condition(scan),) if isinstance(scan, Scan) else ()
        return (*rotation_conditions(known, facts, move), *leftovers, *rejected)

    @property
    def last(self) -> tuple[Facts, Move] | None:
        """Facts and move of the last pass, for status and metrics."""
        return self._last

    def wake(self) -> None:
        """The Cluster, its policy, its record or an order has changed."""
        self._wanted.set()

    async def run(self, client: Client) -> None:
        """Work over a connection to the workload cluster until cancelled."""
        while True:
            self._wanted.clear()
            pause = await self._try_pass(client)
            await until_wanted(self._wanted, pause)

    async def _try_pass(self, client: Client) -> Pause:
        before = tuple(self.conditions)
        try:
            pause = await self.look(client)
        except (RotationChanged, Conflict, NotFound) as error:
            _LOG.info(
                "an object of a rotation has changed since it was read",
                extra={"cluster": str(self._key), "error": printable(str(error))},
            )
            pause = CHANGED_SECONDS
        except (ApiError, Deferred) as error:
            _LOG.warning(
                "a rotation of certificate authorities cannot go on",
                extra={"cluster": str(self._key), "error": printable(str(error))},
            )
            pause = self._waiting()
        if tuple(self.conditions) != before:
            self._changed()
        return pause

    def _show_failure(self, why: str) -> None:
        """The step waits for the failure to end, and is stalled if that takes long."""
        if self._last is not None:
            self._last = self._last[0], Wait(CALL_FAILED, NotKnown(printable(why)))

    def _waiting(self) -> Pause:
        self._waits += 1
        return WAITING.delay(self._waits - 1, self._random)

    async def look(self, client: Client) -> Pause:
        """One pass; returns how many seconds to wait before the next one.

        Raises:
            ApiError: from the management cluster, or from a write.
            RotationChanged: another client wrote the record first.
            Deferred: the controller key is not available.
        """
        try:
            return await self._look(client)
        except (RotationChanged, Conflict, NotFound):
            raise
        except (ApiError, Deferred) as error:
            self._show_failure(str(error))
            raise

    async def _look(self, client: Client) -> Pause:
        cluster = self._caches.clusters.get(self._key.namespace, self._key.name)
        if cluster is None or cluster.deleting:
            return IDLE_SECONDS
        known = self._rotations.of(self._key)
        if isinstance(known, Verified) and known.sealed_with is Generation.PREVIOUS and not cluster.paused:
            # A record that nothing changes for months, as in Prepared or after the end, would outlive the key.
            await self._advance(known.record.next(self._now()), known, cluster)
            return 0.0
        try:
            policy = await self._management.get(NODE_ATTESTATION_POLICIES.object(self._key.name, self._key.namespace))
        except NotFound:
            return IDLE_SECONDS  # no order without it; the next policy wakes this
        order = read_order(policy)
        is_elsewhere = isinstance(order, Order) and order.operation in self._elsewhere
        if not isinstance(order, NoOrder) and not is_elsewhere:
            await self._carry_out(order, known, cluster, policy, client)
            return 0.0
        if not is_elsewhere and SKIP_GATES_ANNOTATION in mapping_of(mapping_of(policy, "metadata"), "annotations"):
            # Gates alone are no order. They must not wait for that of another person, which may not name any.
            await self._remove_annotation(policy)
            return 0.0
        if not isinstance(known, Verified) or known.record.phase.is_over:
            self._last = None
            await self._look_for_leftovers(known, client)
            return IDLE_SECONDS
        self._leftovers.forget()
        return await self._move(known, cluster, client)

    async def _look_for_leftovers(self, known: Known, client: Client) -> None:
        if isinstance(known, Verified) and known.record.phase is Phase.COMPLETED:
            await self._leftovers.look(client, known.record.authority(AuthorityKind.CLUSTER).old.digest)
        else:
            self._leftovers.forget()

    async def _move(self, known: Verified, cluster: ClusterView, client: Client) -> Pause:
        observed = await self._observe(known.record, cluster, client, anew=False)
        move = next_move(known.record, observed.facts)
        if observed.are_answers_earlier and not isinstance(move, Wait):
            observed = await self._observe(known.record, cluster, client, anew=True)
            move = next_move(known.record, observed.facts)
        self._last = observed.facts, move
        if not observed.facts.paused:
            await self._tell_nodes(known.record, observed, client)
        match move:
            case Make(write):
                await self._rotations.require_newest(known)
                try:
                    await Writer(self._management, client, self._now).make(write, known.record, observed.gathered)
                except WriteRefused as error:
                    _LOG.warning(
                        "a write of a rotation is not possible",
                        extra={"cluster": str(self._key), "error": printable(str(error))},
                    )
                    self._show_failure(str(error))
                    return self._waiting()
                _LOG.info("rotation: wrote", extra={"cluster": str(self._key), "detail": str(write)})
                self._waits = 0
                if isinstance(write, WriteKubeconfig):
                    self._reconnect()
                return 0.0
            case Advance(record):
                await self._advance(record, known, cluster)
                return 0.0
            case Finished():
                return IDLE_SECONDS
            case Wait():
                if _servers_must_change(known.record, observed.facts):
                    await self._observer.have_servers_renewed(known.record, cluster)
                return self._waiting()

    async def _tell_nodes(self, record: RotationRecord, observed: Observed, client: Client) -> None:
        """Publish what agents are told at this step. A failure holds nothing but the nodes."""
        wanted = wanted_statement(record)
        if isinstance(wanted, NoStatement):
            return
        by_role = observed.gathered.secrets.cluster.by_role
        if set(by_role) != set(Role):
            return  # the facts say which CA cannot be used
        try:
            facts = TrustFacts(
                cluster=ClusterIdentity(
                    namespace=self._key.namespace, name=self._key.name, uid=observed.gathered.cluster.uid
                ),
                rotation_id=record.rotation_id,
                sequence=wanted.sequence,
                trusted=tuple(by_role[role] for role in wanted.trusted),
                signers=tuple(by_role[role] for role in Role if role not in wanted.trusted),
                node_names=tuple(node.node for node in observed.facts.nodes),
            )
            await self._ensure_readers(client)
            published = await publish_statement(client, facts, self._caches.authentic.statement_keys(), self._now())
        except (ApiError, NotPublished, SequenceTooLow, MalformedStatement, AuthorityError) as error:
            _LOG.warning(
                "nodes are not told about the rotation",
                extra={"cluster": str(self._key), "error": printable(str(error))},
            )
            return
        if published.written:
            _LOG.info("rotation: nodes are told", extra={"cluster": str(self._key), "detail": str(wanted.trusted)})

    async def _ensure_readers(self, client: Client) -> None:
        """Once in each process, so that none relies on what another one was about to do.

        A kubeconfig that is no administrator's may not create Roles. The manifest with its own grants has this one.
        """
        if self._readers_ensured:
            return
        try:
            await ensure_readers(client, STATEMENT_CONFIG_MAP)
        except Forbidden as error:
            _LOG.warning(
                "nodes read what they are told only if deploy/rbac/workload-rotation.yaml is applied: the controller "
                "may not create the Role by which they do",
                extra={"cluster": str(self._key), "error": printable(str(error))},
            )
        self._readers_ensured = True

    async def _advance(self, record: RotationRecord, known: Known, cluster: ClusterView) -> Verified:
        before = known.record if isinstance(known, Verified) else None
        written = await self._rotations.write(record, known, cluster)
        self._waits = 0
        if before is None or before.phase is not record.phase:
            self._tell("Normal", record.phase.value, f"rotation {record.rotation_id}: {record.phase.value}")
        if before is None or before.step is not record.step:
            _LOG.info(
                "rotation: step",
                extra={"cluster": str(self._key), "detail": record.step.value},
            )
        return written

    async def _observe(self, record: RotationRecord, cluster: ClusterView, client: Client, *, anew: bool) -> Observed:
        observed = await self._observer.observe(record, cluster, client, anew=anew)
        self._refused_since = _refused_since(self._refused_since, observed.facts)
        facts = _with_refusal(observed.facts, self._refused_since)
        return replace(observed, facts=facts)

    # Orders

    async def _carry_out(
        self, order: Order | UnknownOperation, known: Known, cluster: ClusterView, policy: JsonObject, client: Client
    ) -> None:
        """Carry out the order or reject it; then take the annotation away. After a crash in between, the same order
        comes again: the record names it, so only the annotation goes.
        """
        try:
            if isinstance(order, UnknownOperation):
                raise OperationRejected(f"{order.value!r} is no operation on certificate authorities")
            await self._order(order, known, cluster, policy, client)
        except OperationRejected as rejected:
            message = printable(str(rejected))
            asked = order.operation.value if isinstance(order, Order) else order.value
            self._rejected = PolicyCondition(OPERATION_REJECTED, True, "Rejected", f"{asked}: {message}")
            self._tell("Warning", "OperationRejected", f"{asked}: {message}")
        else:
            self._rejected = None
        await self._remove_annotation(policy)

    async def _order(
        self, order: Order, known: Known, cluster: ClusterView, policy: JsonObject, client: Client
    ) -> None:
        if order.operation is Operation.ROTATE_NODE_CLIENT:
            await self._node_client.carry_out(order)
            return
        if order.operation.is_on_ssh:
            raise OperationRejected("this controller runs without --ssh")
        if isinstance(known, Unverified):
            raise OperationRejected(f"{known.message}: {UNVERIFIED_CURE}")
        if isinstance(known, Verified) and known.record.operation == order.identifier:
            return
        if cluster.paused:
            raise OperationRejected("the Cluster is paused")
        if order.operation.is_start:
            before = known.record if isinstance(known, Verified) else NeverRotated()
            phase = before.phase if isinstance(before, RotationRecord) else before
            require_possible(order.operation, phase, RollbackAvailable.NONE, stalled=False)
            if isinstance(before, RotationRecord) and before.phase is Phase.ABANDONED:
                require_cleared((await self._observe(before, cluster, client, anew=True)).facts)
            fresh = await self._observer.first_record(order, cluster, policy)
            await self._advance(started(order, before, fresh), known, cluster)
            return
        if not isinstance(known, Verified):
            require_possible(order.operation, NeverRotated(), RollbackAvailable.NONE, stalled=False)
            return
        if order.operation is Operation.ABANDON:
            await self._require_known_authority(known.record)
            if (after := abandoned(order, known.record, self._now())) is not known.record:
                await self._advance(after, known, cluster)
            return
        observed = await self._observe(known.record, cluster, client, anew=True)
        stalled = isinstance(next_move(known.record, observed.facts), Wait)
        after = carry_out(order, known.record, observed.facts, stalled=stalled)
        if after is not known.record:
            await self._advance(after, known, cluster)

    async def _require_known_authority(self, record: RotationRecord) -> None:
        """Secret ``<cluster>-ca``, which decides who signs from then on, holds one of the two CAs.

        Raises:
            OperationRejected: it does not.
            ApiError: it cannot be read.
        """
        name = f"{self._key.name}-{AuthorityKind.CLUSTER.value}"
        try:
            secret = await self._management.get(SECRETS.object(name, self._key.namespace))
        except NotFound:
            raise OperationRejected(f"Secret {name} does not exist: restore it first") from None
        held, cluster = read_secret(AuthorityKind.CLUSTER, secret).held, record.authority(AuthorityKind.CLUSTER)
        known = {cluster.old.digest} | (set() if isinstance(cluster.new, NotMade) else {cluster.new.digest})
        if not isinstance(held, HeldPair) or not {one.digest for one in held.certificates} <= known:
            raise OperationRejected(f"Secret {name} holds another CA, which would sign: restore it first")

    async def _remove_annotation(self, policy: JsonObject) -> None:
        """Only from the version that had the order: another one may have been written since."""
        annotations = {OPERATION_ANNOTATION: None, SKIP_GATES_ANNOTATION: None}
        metadata = {"resourceVersion": policy["metadata"]["resourceVersion"], "annotations": annotations}
        path = NODE_ATTESTATION_POLICIES.object(self._key.name, self._key.namespace)
        with contextlib.suppress(Conflict, NotFound):
            await self._management.patch(path, {"metadata": metadata})


def _servers_must_change(record: RotationRecord, facts: Facts) -> bool:
    """Whether the step waits for API servers that take files. On the way back, only those that present the new CA, or a
    link certificate that ends, and kube-controller-managers that sign with the new CA.
    """
    if facts.paused:
        return False
    if record.step not in SERVER_STEPS:  # a link was renewed while the overlap, or a person, is waited for
        return not isinstance(record.machines_made_after, NotYet) and bool(facts.renewal.lagging)
    if record.step is not Step.NODES_RETURN or signed_by_new(record) or record.link_was_renewed:
        return True
    seen = facts.servers.seen if isinstance(facts.servers, ServersFacts) else ()
    return any(one.presents in (Presented.NEW, Presented.NEW_LINKED) for one in seen)


_NOT_REFUSED: Final = NotObserved("the old CA is not refused by every API server")


def _refused_since(before: datetime | NotObserved, facts: Facts) -> datetime | NotObserved:
    """The first of the passes in a row at which every API server refused the old CA."""
    servers = facts.servers
    refused = (
        isinstance(servers, ServersFacts)
        and servers.seen
        and not servers.unseen
        and all(one.old is Acceptance.REFUSED and one.new is Acceptance.ACCEPTED for one in servers.seen)
    )
    if not refused:
        return _NOT_REFUSED
    return facts.now if isinstance(before, NotObserved) else before


def _with_refusal(facts: Facts, since: datetime | NotObserved) -> Facts:
    return replace(facts, old_refused_since=since)
