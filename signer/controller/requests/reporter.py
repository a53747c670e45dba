"""Reports a decision: one log line, one metric count, one Event on the Machine."""

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
from signer.model.explain_command import RunsIn, explain_hint
from signer.model.fields import parse_time
from signer.model.host_keys import HostCertificates, HostCertificatesIssued, HostCertificatesRefused, NotAsked
from signer.model.reasons import Reason
from signer.model.record import AttestedNode, record_name
from signer.model.signing_request import BuiltinServingRequest, NotOurs, Parsed, SigningRequest
from signer.rules.machine import MachineGone
from signer.rules.nearest_machine import NearMachine
from signer.rules.request import claimed_provider_id
from signer.rules.shape import node_name_of
from signer.store.caches import Caches

_LOG = logging.getLogger(__name__)
_CLUSTER_KIND: Final = "Cluster"
HOST_CERTIFICATES_REFUSED: Final = "HostCertificatesRefused"
"""Reason of the Event."""
HOST_CERTIFICATES_ISSUED: Final = "Issued"
"""In the metric, beside the reasons."""
MESSAGES_PER_REASON: Final = 5
"""Messages reported per waiting request and reason: a hostile API server may control part of the message."""
REPORT_AGAIN_SECONDS: Final = 2700.0
"""A request that still waits for the same reason is reported again after this. API servers delete Events after an hour
(kube-apiserver ``--event-ttl``)."""


class _Novelty(enum.Enum):
    """Whether the deferral of a request was reported before."""

    FIRST = enum.auto()
    REPEAT = enum.auto()
    """Reported before, but its Event is about to expire."""
    DUPLICATE = enum.auto()
    """Reported recently, or often enough for this reason."""


class _Reported(NamedTuple):
    """The last report of a waiting request."""

    kind: str
    reason: str
    message: int
    """Hash of the message."""
    messages: int
    """Number of messages reported for this reason."""
    at: float
    """Time on the monotonic clock."""


class DecisionListener(Protocol):
    """Receives decisions about Machines, such as the writer of the Machine condition."""

    def decided(self, machine: MachineView, decision: Decision, hint: str) -> None:
        """A request that claims this Machine was decided; must neither wait nor raise. ``hint`` names ``explain``."""
        ...


class Reporter:
    """Reports the decisions of one cluster.

    A deferral is reported once until its reason or message changes, or its Event is about to expire.
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
        runs_in: RunsIn,
        listeners: Sequence[DecisionListener] = (),
    ) -> None:
        """``monotonic`` is a clock, in seconds. Messages name commands for the Deployment of ``runs_in``."""
        self._key = key
        self._caches = caches
        self._recorder = recorder
        self._metrics = metrics
        self._now = now
        self._monotonic = monotonic
        self._runs_in = runs_in
        self._listeners = listeners
        self._reported: dict[str, _Reported] = {}

    def forget(self, name: str) -> None:
        """The CSR is settled or gone."""
        self._reported.pop(name, None)

    def report(self, name: str, parsed: Parsed, decision: Decision) -> None:
        """Log, count and record one decision."""
        if isinstance(parsed, NotOurs) or isinstance(decision, Ignore):
            return
        if isinstance(decision, LeftAlone):
            self._report_left_alone(name, parsed, decision)
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
            if not isinstance(decision.host_certificates, NotAsked):
                self._metrics.host_certificates_answered(str(self._key), _answer_of(decision.host_certificates))
        machines = self._claimed(parsed)
        about = machines or self._nearest(parsed, reason)
        subject = self._subject(about)
        novelty = (
            self._novelty_of(name, kind, reason, message, subject) if isinstance(decision, Defer) else _Novelty.FIRST
        )
        if novelty is _Novelty.DUPLICATE:
            return
        hint = explain_hint(name, self._key, reason_url(reason, provider), self._runs_in)
        # Only client certificates let a node join. A repeat is not passed on: another request of the Machine may have
        # been decided since.
        if purpose is Purpose.CLIENT and novelty is _Novelty.FIRST:
            for machine in machines:
                for listener in self._listeners:
                    listener.decided(machine, decision, hint)
        _LOG.log(
            logging.WARNING if reason == Reason.WORKLOAD_GRANT_MISSING else logging.INFO,
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
        if subject is not None and not (
            _is_routine(decision, header.username) and not self._is_last(decision, machines)
        ):
            text = f"{about[0].provider_id}: {message}" if _is_pool_instance(about) and message else message
            self._recorder.record(_occurrence(subject, name, decision, reason, text, hint))
        if subject is not None and isinstance(decision, Approve):
            self._report_host_certificates(subject, name, decision.host_certificates)

    def _report_host_certificates(self, subject: Subject, name: str, answer: HostCertificates) -> None:
        """Log and record why host keys got no certificates: the kubelet's own came without a word about them."""
        if not isinstance(answer, HostCertificatesRefused):
            return
        _LOG.warning(
            "no host certificates",
            extra={
                "cluster": str(self._key),
                "csr": printable(name),
                "reason": answer.reason.value,
                "detail": answer.message,
                "machine": _machine_of(subject),
            },
        )
        text = printable(f"{answer.reason}: {answer.message} (CSR {name})")
        self._recorder.record(
            Occurrence(
                subject,
                "Warning",
                HOST_CERTIFICATES_REFUSED,
                text,
                explain_hint(name, self._key, reason_url(answer.reason, ""), self._runs_in),
            )
        )

    def _novelty_of(self, name: str, kind: str, reason: str, message: str, subject: Subject | None) -> _Novelty:
        """Whether to report a deferral now, which is remembered as reported.

        The subject counts too: a deferral reported on the Cluster is reported again on the Machine, which may get its
        provider ID after its node posts the request.
        """
        before, messages, digest = self._reported.get(name), 0, hash((message, subject))
        now, novelty = self._monotonic(), _Novelty.FIRST
        if before is not None and (before.kind, before.reason) == (kind, reason):
            messages = before.messages
            if before.message == digest or messages >= MESSAGES_PER_REASON:
                novelty = _Novelty.REPEAT if now - before.at >= REPORT_AGAIN_SECONDS else _Novelty.DUPLICATE
        if novelty is not _Novelty.DUPLICATE:
            self._reported[name] = _Reported(kind, reason, digest, messages + 1, now)
        return novelty

    def _report_left_alone(self, name: str, parsed: Parsed, decision: LeftAlone) -> None:
        """Count and log once what the decision would have been, without an Event."""
        would_be = decision.instead_of
        kind, reason = type(would_be).__name__, str(would_be.reason)
        novelty = self._novelty_of(name, kind, reason, would_be.message, None)
        if isinstance(parsed, NotOurs) or novelty is not _Novelty.FIRST:
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
        """The one Machine or MachinePool instance that the request claims; empty if ambiguous."""
        with contextlib.suppress(Refused):
            if isinstance(parsed, SigningRequest):
                machines = self._caches.matching(self._key, claimed_provider_id(parsed))
                if machines:
                    return machines if len(machines) == 1 else ()
                return self._without_provider_id(node_name_of(parsed))
            if isinstance(parsed, BuiltinServingRequest):
                return self._recorded(node_name_of(parsed))
        return ()

    def _nearest(self, parsed: Parsed, reason: str) -> tuple[MachineView, ...]:
        """If no Machine has the claimed provider ID, the one that nearly has it: its owner sees what differs."""
        if reason == Reason.MACHINE_NOT_FOUND and isinstance(parsed, SigningRequest):
            with contextlib.suppress(Refused):
                near = self._caches.nearest(self._key, claimed_provider_id(parsed))
                return (near.machine,) if isinstance(near, NearMachine) else ()
        return ()

    def _without_provider_id(self, node_name: str) -> tuple[MachineView, ...]:
        """The Machine whose provider ID the node's record claims, else the Machine that is named like the node."""
        recorded = self._recorded(node_name)
        claimed = tuple(machine for machine in recorded if machine.claimed_provider_id)
        return claimed or self._machine_named(node_name)

    def _machine_named(self, node_name: str) -> tuple[MachineView, ...]:
        """The Machine of that name without a provider ID: many providers name the node like the Machine."""
        machine = self._caches.machines.get(self._key.namespace, node_name)
        if machine is None or machine.cluster != self._key or machine.provider_id:
            return ()
        return (machine,)

    def _recorded(self, node_name: str) -> tuple[MachineView, ...]:
        """The Machine that the node's record names, for a request that names no provider ID."""
        caches = self._caches
        with contextlib.suppress(Deferred):  # without the controller key no record counts
            record = caches.authentic.get(self._key.namespace, record_name(self._key, node_name))
            machine = caches.machine(record.machine) if isinstance(record, AttestedNode) else MachineGone()
            return (machine,) if isinstance(machine, MachineView) else ()
        return ()

    def _is_last(self, decision: Decision, machines: tuple[MachineView, ...]) -> bool:
        """Whether this is a certificate of a Machine or Cluster that is being deleted: each has an Event."""
        if isinstance(decision, Challenge):
            return False
        cluster = self._caches.clusters.get(self._key.namespace, self._key.name)
        return any(machine.deleting for machine in machines) or (cluster is not None and cluster.deleting)

    def _subject(self, machines: tuple[MachineView, ...]) -> Subject | None:
        """The subject of an Event: the claimed Machine or MachinePool, otherwise the Cluster."""
        caches = self._caches
        for machine in machines:
            version = caches.version.machines.api_version
            return Subject(version, machine.kind, self._key.namespace, machine.name, machine.uid)
        cluster = caches.clusters.get(self._key.namespace, self._key.name)
        if cluster is None:
            return None
        version = caches.version.clusters.api_version
        return Subject(version, _CLUSTER_KIND, self._key.namespace, self._key.name, cluster.uid)


def _answer_of(answer: HostCertificatesIssued | HostCertificatesRefused) -> str:
    """For the metric."""
    return HOST_CERTIFICATES_ISSUED if isinstance(answer, HostCertificatesIssued) else answer.reason.value


def _machine_of(subject: Subject | None) -> str:
    """Namespace and name of the Machine or MachinePool; empty if unknown."""
    return f"{subject.namespace}/{subject.name}" if subject is not None and subject.kind != _CLUSTER_KIND else ""


def _node_of(parsed: Parsed) -> str:
    """The requested node name; empty if the request has no valid one."""
    with contextlib.suppress(Refused):
        if isinstance(parsed, SigningRequest | BuiltinServingRequest):
            return printable(node_name_of(parsed))
    return ""


def _created(text: str, now: datetime) -> datetime:
    """The request's creation time according to the workload cluster; ``now`` if it cannot be parsed."""
    with contextlib.suppress(ValueError):
        return parse_time(text)
    return now


def _is_pool_instance(machines: tuple[MachineView, ...]) -> bool:
    """Whether the Event is about a MachinePool instance, which its message must then name."""
    return any(machine.kind != MACHINE_KIND for machine in machines)


def _occurrence(subject: Subject, name: str, decision: Decision, reason: str, message: str, hint: str) -> Occurrence:
    normal = isinstance(decision, Approve | ApproveOnly | Challenge) and reason != Reason.ASSERTED
    kind = "Normal" if normal else "Warning"
    text = printable(f"{message} (CSR {name})") if reason == Reason.ASSERTED else message or "challenge issued"
    return Occurrence(subject, kind, reason, text, hint if isinstance(decision, Deny | Defer | Fail) else "")


def _is_routine(decision: Decision, requester: str) -> bool:
    """Whether this is a renewal, which happens every few days per node and is not worth an Event."""
    return isinstance(decision, Approve | ApproveOnly | Challenge) and requester.startswith(NODE_USER_PREFIX)
