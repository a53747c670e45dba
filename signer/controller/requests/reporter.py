"""What people see of a decision: one log line, one count, one Event on the Machine."""

from __future__ import annotations

import contextlib
import enum
import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, NamedTuple, Protocol

from attestors.wire.names import NODE_USER_PREFIX, Purpose, SignerName
from signer.controller.telemetry.metrics import Metrics
from signer.controller.telemetry.recorder import Occurrence, Recorder, Subject
from signer.model.cluster import MACHINE_KIND, ClusterKey, MachineView
from signer.model.csr_header import NotOurs
from signer.model.decision import (
    Approve,
    ApproveOnly,
    Challenge,
    Decision,
    Defer,
    Deferred,
    Deny,
    Fail,
    Ignore,
    LeftAlone,
    Refused,
    printable,
)
from signer.model.documentation import reason_url
from signer.model.explain_command import explain_hint
from signer.model.kubernetes_time import parse_time
from signer.model.reasons import Reason
from signer.model.record import AttestedNode, record_name
from signer.model.signing_request import BuiltinServingRequest, Parsed, SigningRequest
from signer.rules.machine import MachineGone
from signer.rules.request import claimed_provider_id
from signer.rules.shape import node_name_of
from signer.store.caches import Caches

_LOG = logging.getLogger(__name__)
_CLUSTER_KIND: Final = "Cluster"
MESSAGES_SAID: Final = 5
"""Of one request that waits for one reason. What changes in a message may be a hostile API server's to choose."""
TOLD_AGAIN_SECONDS: Final = 2700.0
"""Of what still waits for the same. API servers forget Events after an hour (kube-apiserver ``--event-ttl``)."""


class _Telling(enum.Enum):
    """Whether what is to be said of a request that waits was told before."""

    FIRST = enum.auto()
    AGAIN = enum.auto()
    """The Event of it is about to be forgotten."""
    ENOUGH = enum.auto()
    """Lately, or often enough of that reason."""


class _Said(NamedTuple):
    """What was told last of a request that waits."""

    kind: str
    reason: str
    message: int
    """Its hash."""
    messages: int
    """How many were told of this reason."""
    at: float
    """On the monotonic clock."""


class DecisionListener(Protocol):
    """Who wants to know what was decided about a Machine, such as the writer of its condition."""

    def decided(self, machine: MachineView, decision: Decision, hint: str) -> None:
        """A request that claims this Machine was decided; must neither wait nor raise. ``hint`` says how to explain."""
        ...


class Reporter:
    """Tells of one cluster's decisions; a deferral once, until its reason changes, or what it says of it, or the Event
    of it is about to be forgotten.
    """

    def __init__(
        self,
        key: ClusterKey,
        *,
        caches: Caches,
        recorder: Recorder,
        metrics: Metrics,
        now: Callable[[], datetime],
        monotonic: Callable[[], float],
        listeners: Sequence[DecisionListener] = (),
    ) -> None:
        """``monotonic`` is a clock, in seconds."""
        self._key = key
        self._caches = caches
        self._recorder = recorder
        self._metrics = metrics
        self._now = now
        self._monotonic = monotonic
        self._listeners = listeners
        self._said: dict[str, _Said] = {}

    def forget(self, name: str) -> None:
        """That CSR is settled or gone."""
        self._said.pop(name, None)

    def report(self, name: str, parsed: Parsed, decision: Decision) -> None:
        """Log, count and record one decision."""
        if isinstance(parsed, NotOurs) or isinstance(decision, Ignore):
            return
        if isinstance(decision, LeftAlone):
            self._leave_alone(name, parsed, decision)
            return
        header = parsed.header
        reason = str(Reason.CHALLENGE_ISSUED if isinstance(decision, Challenge) else decision.reason)
        message = "" if isinstance(decision, Challenge) else decision.message
        kind = type(decision).__name__
        # The built-in signers have no attestor.
        provider = header.signer.provider if isinstance(header.signer, SignerName) else ""
        purpose = header.signer.purpose
        self._metrics.decided(str(self._key), provider, kind, reason)
        if isinstance(decision, Approve):
            now = self._now()
            self._metrics.published(
                str(self._key),
                provider,
                purpose.value,
                created=_created(header.created, now).timestamp(),
                now=now.timestamp(),
            )
        machines = self._claimed(parsed)
        subject = self._subject(machines)
        telling = self._telling(name, kind, reason, message, subject) if isinstance(decision, Defer) else _Telling.FIRST
        if telling is _Telling.ENOUGH:
            return
        hint = explain_hint(name, self._key, reason_url(reason, provider))
        # What lets a node join. Of what still waits nothing is new: another request may have been decided since.
        if purpose is Purpose.CLIENT and telling is _Telling.FIRST:
            for machine in machines:
                for listener in self._listeners:
                    listener.decided(machine, decision, hint)
        _LOG.info(
            "decided",
            extra={
                "cluster": str(self._key),
                "csr": printable(name),
                "uid": printable(header.uid),
                "decision": kind,
                "reason": reason,
                "detail": message,
                "provider": provider,
                "purpose": purpose.value,
                "requester": printable(header.username),
                "machine": _machine_of(subject),
                "node": _node_of(parsed),
                "serialNumber": f"{decision.entry.serial_number:x}" if isinstance(decision, Approve) else "",
            },
        )
        if subject is not None and not _is_routine(decision, header.username):
            text = f"{machines[0].provider_id}: {message}" if _is_one_of_many(machines) and message else message
            self._recorder.record(_occurrence(subject, name, decision, reason, text, hint))

    def _telling(self, name: str, kind: str, reason: str, message: str, subject: Subject | None) -> _Telling:
        """What is to be said now; it is remembered as told.

        What was told of the Cluster is told of the Machine, too, which may get its provider ID after its node asks.
        """
        before, messages, digest = self._said.get(name), 0, hash((message, subject))
        now, telling = self._monotonic(), _Telling.FIRST
        if before is not None and (before.kind, before.reason) == (kind, reason):
            messages = before.messages
            if before.message == digest or messages >= MESSAGES_SAID:
                telling = _Telling.AGAIN if now - before.at >= TOLD_AGAIN_SECONDS else _Telling.ENOUGH
        if telling is not _Telling.ENOUGH:
            self._said[name] = _Said(kind, reason, digest, messages + 1, now)
        return telling

    def _leave_alone(self, name: str, parsed: Parsed, decision: LeftAlone) -> None:
        """Count and log once what would have been decided; nobody is sent an Event about what did not happen."""
        would_be = decision.instead_of
        kind, reason = type(would_be).__name__, str(would_be.reason)
        telling = self._telling(name, kind, reason, would_be.message, None)
        if isinstance(parsed, NotOurs) or telling is not _Telling.FIRST:
            return
        self._metrics.decided(str(self._key), "", LeftAlone.__name__, str(would_be.reason))
        _LOG.info(
            "left alone",
            extra={
                "cluster": str(self._key),
                "csr": printable(name),
                "uid": printable(parsed.header.uid),
                "decision": LeftAlone.__name__,
                "insteadOf": kind,
                "reason": reason,
                "node": _node_of(parsed),
                "detail": would_be.message,
                "requester": printable(parsed.header.username),
            },
        )

    def _claimed(self, parsed: Parsed) -> tuple[MachineView, ...]:
        """The one Machine, or instance of a MachinePool, that the request claims to be; none where it is not clear."""
        with contextlib.suppress(Refused):
            if isinstance(parsed, SigningRequest):
                machines = self._caches.matching(self._key, claimed_provider_id(parsed))
                if machines:
                    return machines if len(machines) == 1 else ()
                return self._called(node_name_of(parsed))
            if isinstance(parsed, BuiltinServingRequest):
                return self._recorded(node_name_of(parsed))
        return ()

    def _called(self, node_name: str) -> tuple[MachineView, ...]:
        """The Machine of that name that has no provider ID yet: many providers call the node as the Machine."""
        machine = self._caches.machines.get(self._key.namespace, node_name)
        if machine is None or machine.cluster != self._key or machine.provider_id:
            return ()
        return (machine,)

    def _recorded(self, node_name: str) -> tuple[MachineView, ...]:
        """The Machine that the node's record names, for a request that names no provider ID."""
        caches = self._caches
        with contextlib.suppress(Deferred):  # without the controller key there are no records to go by
            record = caches.authentic.get(self._key.namespace, record_name(self._key, node_name))
            machine = caches.machine(record.machine) if isinstance(record, AttestedNode) else MachineGone()
            return (machine,) if isinstance(machine, MachineView) else ()
        return ()

    def _subject(self, machines: tuple[MachineView, ...]) -> Subject | None:
        """What an Event is about: the Machine or MachinePool that was claimed, else the Cluster."""
        caches = self._caches
        for machine in machines:
            version = caches.version.machines.api_version
            return Subject(version, machine.kind, self._key.namespace, machine.name, machine.uid)
        cluster = caches.clusters.get(self._key.namespace, self._key.name)
        if cluster is None:
            return None
        version = caches.version.clusters.api_version
        return Subject(version, _CLUSTER_KIND, self._key.namespace, self._key.name, cluster.uid)


def _machine_of(subject: Subject | None) -> str:
    """Namespace and name of the Machine or MachinePool; empty where none is known."""
    return f"{subject.namespace}/{subject.name}" if subject is not None and subject.kind != _CLUSTER_KIND else ""


def _node_of(parsed: Parsed) -> str:
    """The node name that is asked for; empty where the request does not say one that can be."""
    with contextlib.suppress(Refused):
        if isinstance(parsed, SigningRequest | BuiltinServingRequest):
            return printable(node_name_of(parsed))
    return ""


def _created(text: str, now: datetime) -> datetime:
    """When the workload cluster says that a request was made; now, where it says nothing that can be read."""
    with contextlib.suppress(ValueError):
        return parse_time(text)
    return now


def _is_one_of_many(machines: tuple[MachineView, ...]) -> bool:
    """An instance: the Event stands on its MachinePool, and has to say which of them it is about."""
    return any(machine.kind != MACHINE_KIND for machine in machines)


def _occurrence(subject: Subject, name: str, decision: Decision, reason: str, message: str, hint: str) -> Occurrence:
    normal = isinstance(decision, Approve | ApproveOnly | Challenge) and reason != Reason.ASSERTED
    kind = "Normal" if normal else "Warning"
    text = printable(f"{message} (CSR {name})") if reason == Reason.ASSERTED else message or "challenge issued"
    return Occurrence(subject, kind, reason, text, hint if isinstance(decision, Deny | Defer | Fail) else "")


def _is_routine(decision: Decision, requester: str) -> bool:
    """A node that renews, every few days for each node: nobody reads an Event about it, and it would cost a write."""
    return isinstance(decision, Approve | ApproveOnly | Challenge) and requester.startswith(NODE_USER_PREFIX)
