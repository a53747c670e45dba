"""Every decision goes into the audit log before anything of it is published.

An approval whose line cannot be written waits: no certificate without a line that says why. A denial goes on without
its line, which is counted: refusing needs no proof.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

from attestors.registry import Registry
from signer.audit.decision_line import DecisionLine, LoggedDecision, logged_request
from signer.audit.errors import NotRedacted
from signer.audit.log import AuditLog, AuditLogUnavailable, NoAuditLog
from signer.controller.telemetry.metrics import Metrics
from signer.decision.decider import DecidedRequest
from signer.kube.client import JsonObject
from signer.model.cluster import ClusterKey
from signer.model.csr_header import NotOurs
from signer.model.decision import Approve, ApproveOnly, Decision, Defer, Ignore, LeftAlone
from signer.model.reasons import Reason

_LOG = logging.getLogger(__name__)
_TRY_AGAIN: Final = timedelta(seconds=5)
_NO_ATTESTORS: Final = Registry([])


class Auditing:
    """The lines of one cluster's decisions; of a request that waits one, until its reason changes."""

    def __init__(
        self,
        key: ClusterKey,
        *,
        audit_log: AuditLog,
        registry: Registry,
        provider_id_oids: tuple[str, ...],
        metrics: Metrics,
        now: Callable[[], datetime],
    ) -> None:
        self._key = key
        self._audit_log = audit_log
        self._registry = registry
        self._provider_id_oids = provider_id_oids
        self._metrics = metrics
        self._now = now
        self._enabled = not isinstance(audit_log, NoAuditLog)
        self._said: dict[str, tuple[str, str, str]] = {}
        self._failing = False

    def forget(self, name: str) -> None:
        """That CSR is settled or gone."""
        self._said.pop(name, None)

    async def decided(self, name: str, manifest: JsonObject, decided_request: DecidedRequest) -> Decision:
        """What may be carried out now: the decision once its line is written, or to wait."""
        decision, parsed = decided_request.decision, decided_request.parsed
        if not self._enabled or isinstance(decision, Ignore) or isinstance(parsed, NotOurs):
            return decision
        logged = LoggedDecision.of(decision)
        said = (parsed.header.uid, logged.kind, logged.reason)
        waits = isinstance(decision, Defer | LeftAlone)
        if waits and self._said.get(name) == said:
            return decision
        try:
            await self._audit_log.append(self._line(manifest, decided_request, logged))
        except Exception as error:  # noqa: BLE001 - whatever it is: an approval without its line waits, nothing else does
            return self._unwritten(decision, error)
        self._metrics.audit_lines.labels("written").inc()
        self._written_again()
        if waits:
            self._said[name] = said
        return decision

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

    def _unwritten(self, decision: Decision, error: Exception) -> Decision:
        self._metrics.audit_lines.labels("failed").inc()
        is_told = isinstance(error, AuditLogUnavailable | NotRedacted)
        cause = str(error) if is_told else f"unexpected {type(error).__name__}"
        if not self._failing:
            self._failing = True
            unexpected = None if isinstance(error, AuditLogUnavailable) else error
            _LOG.error("no audit line", exc_info=unexpected, extra={"cluster": str(self._key), "detail": cause})
        if isinstance(decision, Approve | ApproveOnly):
            return Defer(Reason.AUDIT_LOG_UNAVAILABLE, f"the decision is not in the audit log: {cause}", _TRY_AGAIN)
        return decision

    def _written_again(self) -> None:
        if self._failing:
            self._failing = False
            _LOG.info("the audit log is written again", extra={"cluster": str(self._key)})

    def _attestors_of(self, decided_request: DecidedRequest) -> Registry:
        """The attestors that may say which evidence to redact: one that is not allowed is not loaded."""
        return self._registry if decided_request.decision_inputs.is_for_an_allowed_attestor else _NO_ATTESTORS
