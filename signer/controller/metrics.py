"""Prometheus metrics. Labels are bounded: clusters we serve, installed providers, reasons of a closed list."""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from signer.model.reasons import Reason

_NAMESPACE: Final = "node_attestation"
_KNOWN_REASONS: Final = frozenset(reason.value for reason in Reason)
OTHER_REASON: Final = "AttestorSpecific"


class Metrics:
    """The controller's metrics, in a registry of their own so that several controllers fit into one test process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.decisions = Counter(
            "decisions",
            "Decisions on CertificateSigningRequests.",
            ("cluster", "provider", "decision", "reason"),
            namespace=_NAMESPACE,
            registry=self.registry,
        )
        self.certificates = Counter(
            "certificates_published",
            "Certificates written into CertificateSigningRequests.",
            ("cluster", "provider", "purpose"),
            namespace=_NAMESPACE,
            registry=self.registry,
        )
        self.stock_approvals = Counter(
            "stock_approvals",
            "Requests to kubernetes.io/kube-apiserver-client-kubelet that were approved, without attestation.",
            ("cluster",),
            namespace=_NAMESPACE,
            registry=self.registry,
        )
        self.handling_seconds = Histogram(
            "handling_seconds",
            "Time from taking a request off the queue to its decision being written, in seconds.",
            ("decision",),
            namespace=_NAMESPACE,
            registry=self.registry,
            buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
        )
        self.audit_lines = Counter(
            "audit_lines",
            "Decisions for the audit log: written, or failed to be written.",
            ("result",),
            namespace=_NAMESPACE,
            registry=self.registry,
        )
        self.pending = Gauge(
            "pending_requests",
            "Requests to our signers without a certificate or a denial.",
            ("cluster",),
            namespace=_NAMESPACE,
            registry=self.registry,
        )
        self.leader = Gauge(
            "leader",
            "1 while this replica leads or there is no leader election, 0 while it stands by.",
            namespace=_NAMESPACE,
            registry=self.registry,
        )
        self.reachable = Gauge(
            "workload_cluster_reachable",
            "1 while the workload cluster's requests are watched, 0 while it cannot be reached.",
            ("cluster",),
            namespace=_NAMESPACE,
            registry=self.registry,
        )

    def decided(self, cluster: str, provider: str, decision: str, reason: str) -> None:
        """Count one decision; an attestor's own reasons share one label value."""
        known = reason if reason in _KNOWN_REASONS else OTHER_REASON
        self.decisions.labels(cluster, provider, decision, known).inc()

    def forget_cluster(self, cluster: str) -> None:
        """Drop the gauges of a cluster that is gone."""
        for gauge in (self.pending, self.reachable):
            gauge.remove_by_labels({"cluster": cluster})
