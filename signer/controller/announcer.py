"""What people see of a decision: one log line, one count, one Event on the Machine."""

from __future__ import annotations

import contextlib
import logging

from attestors.wire.names import NODE_USER_PREFIX
from signer.controller.recorder import Occurrence, Subject
from signer.controller.surroundings import Surroundings
from signer.model.cluster import ClusterKey
from signer.model.decision import Approve, Challenge, Decision, Defer, Ignore, Refused, printable
from signer.model.reasons import Reason
from signer.model.signing_request import NotOurs, Parsed, SigningRequest
from signer.rules.request import claimed_provider_id

_LOG = logging.getLogger(__name__)


class Announcer:
    """Tells of one cluster's decisions; a deferral is told once, until its reason changes."""

    def __init__(self, key: ClusterKey, surroundings: Surroundings) -> None:
        self._key = key
        self._around = surroundings
        self._said: dict[str, tuple[str, str]] = {}

    def forget(self, name: str) -> None:
        """That CSR is settled or gone."""
        self._said.pop(name, None)

    def announce(self, name: str, parsed: Parsed, decision: Decision) -> None:
        """Log, count and record one decision."""
        if isinstance(parsed, NotOurs) or isinstance(decision, Ignore):
            return
        envelope = parsed.envelope
        reason = str(Reason.CHALLENGE_ISSUED if isinstance(decision, Challenge) else decision.reason)
        message = "" if isinstance(decision, Challenge) else decision.message
        kind = type(decision).__name__
        self._around.metrics.decided(str(self._key), envelope.signer.provider, kind, reason)
        if isinstance(decision, Approve):
            self._around.metrics.certificates.labels(
                str(self._key), envelope.signer.provider, envelope.signer.purpose.value
            ).inc()
        said = (kind, reason)
        if isinstance(decision, Defer):
            if self._said.get(name) == said:
                return
            self._said[name] = said
        subject = self._subject(parsed)
        _LOG.info(
            "decided",
            extra={
                "cluster": str(self._key),
                "csr": printable(name),
                "decision": kind,
                "reason": reason,
                "detail": message,
                "provider": envelope.signer.provider,
                "purpose": envelope.signer.purpose.value,
                "requester": printable(envelope.username),
                "machine": subject.name if subject is not None and subject.kind == "Machine" else "",
                "serialNumber": f"{decision.entry.serial_number:x}" if isinstance(decision, Approve) else "",
            },
        )
        if subject is not None and not _is_routine(decision, envelope.username):
            self._around.recorder.record(_occurrence(subject, name, decision, reason, message))

    def _subject(self, parsed: Parsed) -> Subject | None:
        """The Machine that the request claims, or the Cluster when there is none."""
        inventory = self._around.inventory
        if isinstance(parsed, SigningRequest):
            with contextlib.suppress(Refused):
                machines = inventory.machines_with(self._key, claimed_provider_id(parsed))
                if len(machines) == 1:
                    machine = machines[0]
                    version = inventory.version.machines.api_version
                    return Subject(version, "Machine", self._key.namespace, machine.name, machine.uid)
        cluster = inventory.clusters.get(self._key.namespace, self._key.name)
        if cluster is None:
            return None
        version = inventory.version.clusters.api_version
        return Subject(version, "Cluster", self._key.namespace, self._key.name, cluster.uid)


def _occurrence(subject: Subject, name: str, decision: Decision, reason: str, message: str) -> Occurrence:
    normal = isinstance(decision, Approve | Challenge) and reason != Reason.ASSERTED
    kind = "Normal" if normal else "Warning"
    text = printable(f"{message} (CSR {name})") if reason == Reason.ASSERTED else message or "challenge issued"
    return Occurrence(subject, kind, reason, text)


def _is_routine(decision: Decision, requester: str) -> bool:
    """A node that renews, every few days for each node: nobody reads an Event about it, and it would cost a write."""
    return isinstance(decision, Approve) and requester.startswith(NODE_USER_PREFIX)
