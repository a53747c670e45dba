"""Prometheus metrics. Labels are bounded: served clusters, installed providers, a closed list of reasons.

This module counts events; :mod:`signer.controller.telemetry.metrics_collector` reads gauges at scrape time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import product
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

from attestors.contract import CloudCall
from attestors.wire.names import NODE_STARTS_AGAIN
from signer.controller.telemetry.metrics_collector import ClusterGauges, MetricFamily, MetricsCollector, ProcessGauges
from signer.model.program_version import program_version
from signer.model.reasons import Reason

NAMESPACE: Final = "node_attestation"
_KNOWN_REASONS: Final = frozenset({*(reason.value for reason in Reason), *NODE_STARTS_AGAIN})
"""Includes the attestor reasons with a general meaning: the node posts a new request by itself."""
OTHER_REASON: Final = "AttestorSpecific"
OTHER: Final = "other"
MAXIMUM_CLOUD_OPERATIONS: Final = 64
"""Limit for distinct pairs of service and operation; a third-party attestor may use any names."""
MAXIMUM_LATENCY_SECONDS: Final = 86400.0
"""Kubernetes deletes an undecided request after a day, so an older creation time is invented."""
_HANDLING_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_LATENCY_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600)
_CLOUD_BUCKETS: Final = (0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_WEBHOOK_BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_LATENESS_BUCKETS: Final = (0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60, 300)
_CLUSTER: Final = "cluster"


@dataclass(frozen=True, slots=True)
class DescribedMetric:
    """A metric by the name that documents, alerts and dashboards use."""

    name: str
    """Includes ``_total`` for a counter, but no suffixes of a histogram's series."""
    type: str
    labels: tuple[str, ...]
    documentation: str


def described_of(metrics: object) -> tuple[DescribedMetric, ...]:
    """The metrics that are attributes of an object, in their order."""
    return tuple(
        DescribedMetric(
            f"{family.name}_total" if family.type == "counter" else family.name,
            family.type,
            tuple(metric._labelnames),
            family.documentation,
        )
        for metric in vars(metrics).values()
        if isinstance(metric, MetricWrapperBase)
        for family in metric.describe()
    )


class Metrics:
    """The controller's metrics, in their own registry so that tests can run several controllers in one process."""

    def __init__(self, families: Sequence[MetricFamily] = ()) -> None:
        """``families`` are the metrics of optional services."""
        self.registry = CollectorRegistry()
        self.decisions = self._counter(
            "decisions", "Decisions on CertificateSigningRequests.", _CLUSTER, "provider", "decision", "reason"
        )
        self.certificates = self._counter(
            "certificates_published",
            "Certificates written into CertificateSigningRequests.",
            _CLUSTER,
            "provider",
            "purpose",
        )
        self.host_certificates = self._counter(
            "ssh_host_certificates",
            "Requests with SSH host keys, by what they got: Issued, or why they got no host certificates.",
            _CLUSTER,
            "result",
        )
        self.last_certificate = Gauge(
            "last_certificate_published_timestamp_seconds",
            "When the controller last published a certificate for the cluster, in Unix time.",
            (_CLUSTER,),
            namespace=NAMESPACE,
            registry=self.registry,
        )
        self.builtin_approvals = self._counter(
            "builtin_approvals",
            "Requests to kubernetes.io/kube-apiserver-client-kubelet that were approved without attestation.",
            _CLUSTER,
        )
        self.handling_seconds = self._histogram(
            "handling_seconds",
            "Time from taking a request off the queue to writing its decision, in seconds.",
            _HANDLING_BUCKETS,
            "decision",
        )
        self.access_certificates = self._counter(
            "access_certificates", "SSH certificates issued for AccessGrants, by hop: node or bastion.", _CLUSTER, "hop"
        )
        self.access_ends = self._counter(
            "access_ends", "Ends and pauses of AccessGrants, by reason of their condition Ready.", _CLUSTER, "reason"
        )
        self.access_refusals = self._counter(
            "access_refusals",
            "Times that an AccessGrant newly got no certificates, by reason of its condition Ready.",
            _CLUSTER,
            "reason",
        )
        self.access_expiry_lateness_seconds = self._histogram(
            "access_expiry_lateness_seconds",
            "Time from the moment at which an AccessGrant expired to the write of its end, in seconds.",
            _LATENESS_BUCKETS,
        )
        self.access_webhook_requests = self._counter(
            "access_webhook_requests",
            "Requests to the webhook of access, by path and answer: allowed, refused, invalid, foreign_client, "
            "too_much or rights_unknown.",
            "path",
            "answer",
        )
        self.access_webhook_seconds = self._histogram(
            "access_webhook_seconds",
            "Time in which the webhook of access answers a request that has arrived, in seconds.",
            _WEBHOOK_BUCKETS,
            "path",
        )
        self.access_webhook_connections_closed = self._counter(
            "access_webhook_connections_closed",
            "Connections to the webhook of access that were closed unanswered, by reason: evicted, too_many_of_source, "
            "timeout or tls_handshake.",
            "reason",
        )
        self.audit_lines = self._counter(
            "audit_lines", "Lines for the audit log, by result: written, failed or omitted.", "result"
        )
        self.audit_heads = self._counter(
            "audit_heads",
            "Attempts to publish the head of the audit log, by result: current, differs (lines were removed or written "
            "anew) or failed.",
            "result",
        )
        self.leader = Gauge(
            "leader",
            "1 while this replica leads, owns a shard, or runs without leader election and shards; 0 on standby.",
            namespace=NAMESPACE,
            registry=self.registry,
        )
        self.broken_attestor_settings = Gauge(
            "broken_attestor_settings",
            "Settings of attestors in the configuration file with which no request can be attested.",
            namespace=NAMESPACE,
            registry=self.registry,
        )
        self.shards = Gauge(
            "shards",
            "Number of shards that the replicas divide between them; 0 without --shards.",
            namespace=NAMESPACE,
            registry=self.registry,
        )
        self.shards_owned = Gauge(
            "shards_owned",
            "Number of shards that this replica owns.",
            namespace=NAMESPACE,
            registry=self.registry,
        )
        self.certificate_latency_seconds = self._histogram(
            "certificate_latency_seconds",
            "Time from a request's creationTimestamp, as the workload cluster reports it, to publishing its "
            "certificate, in seconds.",
            _LATENCY_BUCKETS,
            "provider",
            "purpose",
        )
        self.cloud_calls = self._counter(
            "cloud_calls",
            "Calls of attestors to clouds, by outcome: ok, refused (credentials or permissions), throttled, timeout or "
            "error.",
            "service",
            "operation",
            "outcome",
        )
        self.cloud_call_seconds = self._histogram(
            "cloud_call_seconds",
            "Duration of a call of an attestor to a cloud, including the wait for a free slot, in seconds.",
            _CLOUD_BUCKETS,
            "service",
            "operation",
        )
        self.attestor_blocking_seconds = self._counter(
            "attestor_blocking_seconds",
            "Seconds for which an attestor blocked the event loop, and so every cluster; blocks of 0.1 seconds or "
            "longer count.",
            "provider",
        )
        self.task_failures = self._counter(
            "task_failures", "Defects that ended one of the controller's own tasks, which then restarted.", "task"
        )
        self.build = Gauge(
            "build_info",
            "Always 1; the label holds the running version.",
            ("version",),
            namespace=NAMESPACE,
            registry=self.registry,
        )
        self.build.labels(program_version()).set(1)
        self._cloud_operations: set[tuple[str, str]] = set()
        self.gauges = MetricsCollector(NAMESPACE, families)
        self.registry.register(self.gauges)

    # Events

    def decided(self, cluster: str, provider: str, decision: str, reason: str) -> None:
        """Count one decision; an attestor's own reasons share one label value."""
        known = reason if reason in _KNOWN_REASONS else OTHER_REASON
        self.decisions.labels(cluster, provider, decision, known).inc()

    def publishes_audit_heads(self, results: Iterable[Enum]) -> None:
        """Start the series of audit heads at zero, so that the first failure is an increase."""
        for result in results:
            self.audit_heads.labels(result.value)

    def audit_head_published(self, result: Enum) -> None:
        """Count one attempt to publish the head of the audit log."""
        self.audit_heads.labels(result.value).inc()

    def host_certificates_answered(self, cluster: str, result: str) -> None:
        """Count one answer to host keys."""
        self.host_certificates.labels(cluster, result).inc()

    def published(self, cluster: str, provider: str, purpose: str, *, created: float, now: float) -> None:
        """Count one certificate. The workload cluster reports ``created``; both times are Unix times."""
        self.certificates.labels(cluster, provider, purpose).inc()
        self.last_certificate.labels(cluster).set(now)
        latency = min(max(now - created, 0.0), MAXIMUM_LATENCY_SECONDS)
        self.certificate_latency_seconds.labels(provider, purpose).observe(latency)

    def cloud_called(self, call: CloudCall) -> None:
        """Count one call to a cloud."""
        service, operation = self._bounded_labels(call.service, call.operation)
        self.cloud_calls.labels(service, operation, call.outcome.value).inc()
        self.cloud_call_seconds.labels(service, operation).observe(call.seconds)

    def access_issued(self, cluster: str, hop: str) -> None:
        """Count one certificate of an access grant."""
        self.access_certificates.labels(cluster, hop).inc()

    def access_ended(self, cluster: str, reason: str) -> None:
        """Count one end or pause of an access grant. Reasons are a closed set."""
        self.access_ends.labels(cluster, reason).inc()

    def access_refused(self, cluster: str, reason: str) -> None:
        """Count one access grant that newly gets no certificates. Reasons are a closed set."""
        self.access_refusals.labels(cluster, reason).inc()

    def access_expired_late(self, seconds: float) -> None:
        """Count one expiry of an access grant, that long after its time."""
        self.access_expiry_lateness_seconds.observe(seconds)

    def webhook_serves(self, paths: Iterable[str], answers: Iterable[Enum], reasons: Iterable[Enum]) -> None:
        """Start all series of the webhook of access at zero, so that the first of each is an increase."""
        for path, answer in product(paths, answers):
            self.access_webhook_requests.labels(path, answer.value)
        for reason in reasons:
            self.access_webhook_connections_closed.labels(reason.value)

    def webhook_answered(self, path: str, answer: str, seconds: float) -> None:
        """Count one request to the webhook of access."""
        self.access_webhook_requests.labels(path, answer).inc()
        self.access_webhook_seconds.labels(path).observe(seconds)

    def webhook_closed(self, reason: str) -> None:
        """Count one connection to the webhook of access that was closed unanswered."""
        self.access_webhook_connections_closed.labels(reason).inc()

    def attestor_blocking(self, provider: str, seconds: float) -> None:
        """Count the seconds for which an attestor blocked the event loop."""
        self.attestor_blocking_seconds.labels(provider).inc(seconds)

    def task_failed(self, task: str) -> None:
        """Count a defect that ended a task."""
        self.task_failures.labels(task).inc()

    def _bounded_labels(self, service: str, operation: str) -> tuple[str, str]:
        pair = (service, operation)
        if pair not in self._cloud_operations:
            if len(self._cloud_operations) >= MAXIMUM_CLOUD_OPERATIONS:
                return OTHER, OTHER
            self._cloud_operations.add(pair)
        return pair

    # Gauges

    def serve_process(self, read_gauges: Callable[[], ProcessGauges]) -> None:
        """Read the gauges of the process with ``read_gauges`` from now on."""
        self.gauges.process = read_gauges

    def serve_cluster(self, cluster: str, read_gauges: Callable[[], ClusterGauges]) -> None:
        """Read the gauges of the cluster with ``read_gauges`` from now on."""
        self.gauges.clusters[cluster] = read_gauges
        self.builtin_approvals.labels(cluster)  # start at zero, so that the first approval is an increase

    def forget_cluster(self, cluster: str, read_gauges: Callable[[], ClusterGauges]) -> None:
        """Drop all series of a removed cluster, but not those of a successor with the same name."""
        if self.gauges.clusters.get(cluster) != read_gauges:
            return
        del self.gauges.clusters[cluster]
        for metric in vars(self).values():
            if isinstance(metric, MetricWrapperBase) and _CLUSTER in metric._labelnames:
                metric.remove_by_labels({_CLUSTER: cluster})

    # Description

    def described(self) -> tuple[DescribedMetric, ...]:
        """Every metric, for documents and tests."""
        return (*described_of(self), *(DescribedMetric(*described) for described in self.gauges.described()))

    def _counter(self, name: str, documentation: str, *labels: str) -> Counter:
        return Counter(name, documentation, labels, namespace=NAMESPACE, registry=self.registry)

    def _histogram(self, name: str, documentation: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(name, documentation, labels, namespace=NAMESPACE, registry=self.registry, buckets=buckets)
