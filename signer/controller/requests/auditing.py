"""Writes each decision to the audit log before the decision is published.

An approval waits until its line is written, so that every certificate has a line that explains it. A denial is
published without its line, and the failure is counted. So is any other decision once a cluster has written too much:
the lines of a flood would push those of certificates out of the files that are kept, or fill the disk for everybody.
An approval that the journal had before counts as such, too: of a copy of an approved request, or of a request whose
answer the workload API server does not take. Beyond that limit it waits.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from attestors.net.rate_limiter import TokenBucket
from attestors.registry import Registry
from signer.audit.decision_inputs import BuiltinStage, MachineStage
from signer.audit.decision_line import DecisionLine, LoggedDecision, logged_request
from signer.audit.errors import NotRedacted
from signer.audit.log import AuditLog, AuditLogUnavailable, NoAuditLog
from signer.controller.telemetry.metrics import Metrics
from signer.decision.decider import DecidedRequest
from signer.kube.client import JsonObject
from signer.model.cluster import ClusterKey
from signer.model.decision import Approve, ApproveOnly, Decision, Defer, Ignore, LeftAlone
from signer.model.reasons import Reason
from signer.model.record import AttestedNode
from signer.model.signing_request import NotOurs

_LOG = logging.getLogger(__name__)
_RETRY_AFTER: Final = timedelta(seconds=5)
_REPEATED_RETRY_AFTER: Final = timedelta(minutes=1)
_NO_ATTESTORS: Final = Registry([])
UNAPPROVED_BYTES: Final = 32 * 1024 * 1024
"""Lines of one cluster at once that are of no new certificate: thousands of honest ones, or some 400 of the largest."""
UNAPPROVED_BYTES_PER_SECOND: Final = 4096
"""Afterwards: 340 MiB a day, and ten times what the challenges of 5,000 nodes take."""

_REPEATED_WAITS: Final = Defer(
    Reason.AUDIT_LOG_UNAVAILABLE,
    "the approval was journaled before, and a flood of requests has used up the cluster's room in the audit log",
    _REPEATED_RETRY_AFTER,
    grows=True,
)


class Auditing:
    """Writes the audit lines of one cluster; a waiting request gets one line until its reason changes."""

    def __init__(
        self,
        key: ClusterKey,
        *,
        audit_log: AuditLog,
        registry: Registry,
        provider_id_oids: tuple[str, ...],
        metrics: Metrics,
        now: Callable[[], datetime],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``monotonic`` is a clock, in seconds."""
        self._key = key
        self._audit_log = audit_log
        self._registry = registry
        self._provider_id_oids = provider_id_oids
        self._metrics = metrics
        self._now = now
        self._enabled = not isinstance(audit_log, NoAuditLog)
        self._logged: dict[str, tuple[str, str, str]] = {}
        self._failing = self._omitting = False
        self._unapproved = TokenBucket(UNAPPROVED_BYTES, 1 / UNAPPROVED_BYTES_PER_SECOND, monotonic)

    def forget(self, name: str) -> None:
        """The CSR is settled or gone."""
        self._logged.pop(name, None)

    async def decided(self, name: str, manifest: JsonObject, decided_request: DecidedRequest) -> Decision:
        """Write the audit line, and return what may be published now: the decision, or a deferral."""
        decision, parsed = decided_request.decision, decided_request.parsed
        if not self._enabled or isinstance(decision, Ignore) or isinstance(parsed, NotOurs):
            return decision
        logged = LoggedDecision.of(decision)
        summary = (parsed.header.uid, logged.kind, logged.reason)
        waits = isinstance(decision, Defer | LeftAlone)
        if waits and self._logged.get(name) == summary:
            return decision
        try:
            line = self._line(manifest, decided_request, logged)
            approves = isinstance(decision, Approve | ApproveOnly)
            if (approves and not _was_journaled(decided_request)) or self._has_room(line):
                await self._audit_log.append(line)
                self._metrics.audit_lines.labels("written").inc()
                self._append_succeeded()
            elif approves:
                return _REPEATED_WAITS
        except Exception as error:  # noqa: BLE001 - any failure must defer an approval, and only an approval
            return self._append_failed(decision, error)
        if waits:
            self._logged[name] = summary
        return decision

    def _has_room(self, line: bytes) -> bool:
        """Whether the line of a decision about no new certificate may be written; one that may not is counted."""
        has_room = self._unapproved.take_if_there(len(line))
        if not has_room:
            self._metrics.audit_lines.labels("omitted").inc()
        if not has_room and not self._omitting:
            _LOG.warning(
                "a flood of requests: not every denial is in the audit log, and what was approved before waits",
                extra={"cluster": str(self._key)},
            )
        self._omitting = not has_room
        return has_room

    def _line(self, manifest: JsonObject, decided_request: DecidedRequest, logged: LoggedDecision) -> bytes:
        line = DecisionLine(
            cluster=str(self._key),
            time=self._now(),
            request=logged_request(
                manifest,
                decided_request.parsed,
                self._attestors_of(decided_request),
                self._provider_id_oids,
            ),
            decision_inputs=decided_request.decision_inputs.without_seals(),
            decision=logged,
        )
        return line.encode()

    def _append_failed(self, decision: Decision, error: Exception) -> Decision:
        self._metrics.audit_lines.labels("failed").inc()
        is_expected = isinstance(error, AuditLogUnavailable | NotRedacted)
        cause = str(error) if is_expected else f"unexpected {type(error).__name__}"
        if not self._failing:
            self._failing = True
            unexpected = None if isinstance(error, AuditLogUnavailable) else error
            _LOG.error(
                "cannot write the audit log", exc_info=unexpected, extra={"cluster": str(self._key), "detail": cause}
            )
        if isinstance(decision, Approve | ApproveOnly):
            return Defer(Reason.AUDIT_LOG_UNAVAILABLE, f"the decision is not in the audit log: {cause}", _RETRY_AFTER)
        return decision

    def _append_succeeded(self) -> None:
        if self._failing:
            self._failing = False
            _LOG.info("the audit log is writable again", extra={"cluster": str(self._key)})

    def _attestors_of(self, decided_request: DecidedRequest) -> Registry:
        """The attestors that decide which evidence to redact; an attestor that is not allowed is not loaded."""
        return self._registry if decided_request.decision_inputs.is_for_an_allowed_attestor else _NO_ATTESTORS


def _was_journaled(decided_request: DecidedRequest) -> bool:
    """Whether the record had the approval before this decision."""
    decision, inputs, parsed = decided_request.decision, decided_request.decision_inputs, decided_request.parsed
    if isinstance(decision, Approve) and isinstance(inputs.machine, MachineStage):
        record = inputs.machine.record
        return isinstance(record, AttestedNode) and decision.entry in record.journal
    if (
        isinstance(decision, ApproveOnly)
        and isinstance(inputs.builtin, BuiltinStage)
        and not isinstance(parsed, NotOurs)
    ):
        record = inputs.builtin.record
        header = parsed.header
        return isinstance(record, AttestedNode) and record.has_builtin_approval(header.uid, header.spec_digest)
    return False
