"""Metrics of the gateway."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge

from signer.controller.telemetry.metrics import DescribedMetric, described_of

NAMESPACE: Final = "node_access"


class GatewayMetrics:
    """Of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.in_touch = Gauge(
            "gateway_in_touch",
            "1 while the gateway knows from the management cluster what is open, else 0: then it opens nothing.",
            namespace=NAMESPACE,
            registry=self.registry,
        )
        self.sessions = Gauge(
            "gateway_connections", "SSH connections that are logged in.", namespace=NAMESPACE, registry=self.registry
        )
        self.logins = Counter(
            "gateway_logins",
            "Logins whose key a grant names, by result (Admitted, or the reason of a refusal).",
            ("result",),
            namespace=NAMESPACE,
            registry=self.registry,
        )
        self.ends = Counter(
            "gateway_connections_ended",
            "Connections that the gateway has ended.",
            namespace=NAMESPACE,
            registry=self.registry,
        )
        self.signals_failed = Counter(
            "gateway_signals_failed",
            "Ended connections whose processes in a container may go on, because no signal could be sent.",
            namespace=NAMESPACE,
            registry=self.registry,
        )
        self.task_failures = Counter(
            "gateway_task_failures",
            "Defects that ended a task of the gateway, which started again.",
            ("task",),
            namespace=NAMESPACE,
            registry=self.registry,
        )

    def described(self) -> tuple[DescribedMetric, ...]:
        """Every metric, for documents and tests."""
        return described_of(self)

    def login(self, result: str) -> None:
        """A login was admitted or refused."""
        self.logins.labels(str(result)).inc()

    def task_failed(self, task: str) -> None:
        """A task has failed."""
        self.task_failures.labels(task).inc()


__all__ = ["NAMESPACE", "GatewayMetrics"]
