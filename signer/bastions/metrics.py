"""Metrics of the bastion controller."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from signer.controller.telemetry.metrics import DescribedMetric, described_of

NAMESPACE: Final = "node_access"
OPERATION_BUCKETS: Final = (0.1, 0.5, 1.0, 5.0, 15.0, 60.0, 150.0)


class BastionMetrics:
    """Of one process. The outcome of a call is ready, gone, listed, pending, broken or failed."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.operations = Counter(
            "bastion_operations",
            "Calls of providers, by what they answered.",
            ("provider", "operation", "outcome"),
            namespace=NAMESPACE,
            registry=self.registry,
        )
        self.operation_seconds = Histogram(
            "bastion_operation_seconds",
            "Duration of calls of providers.",
            ("provider", "operation"),
            namespace=NAMESPACE,
            registry=self.registry,
            buckets=OPERATION_BUCKETS,
        )
        self.bastions = Gauge(
            "bastions",
            "Bastions that the API server has.",
            namespace=NAMESPACE,
            registry=self.registry,
        )
        self.refusals = Counter(
            "bastion_refusals",
            "Times that a Bastion newly needed the operator, by the reason of its condition.",
            ("reason",),
            namespace=NAMESPACE,
            registry=self.registry,
        )
        self.leaked = Counter(
            "bastions_leaked",
            "Bastions without an object that the sweep found and deleted.",
            ("provider",),
            namespace=NAMESPACE,
            registry=self.registry,
        )
        self.sweeps = Counter(
            "bastion_sweeps",
            "Sweeps of one provider's resources, by outcome (succeeded, failed).",
            ("provider", "outcome"),
            namespace=NAMESPACE,
            registry=self.registry,
        )
        self.task_failures = Counter(
            "bastion_task_failures",
            "Defects that ended a task of the controller, which started again.",
            ("task",),
            namespace=NAMESPACE,
            registry=self.registry,
        )

    def described(self) -> tuple[DescribedMetric, ...]:
        """Every metric, for documents and tests."""
        return described_of(self)

    def task_failed(self, task: str) -> None:
        """A task has failed."""
        self.task_failures.labels(task).inc()
