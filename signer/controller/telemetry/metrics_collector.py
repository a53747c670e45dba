"""Gauges that are read at scrape time, so that nothing is counted twice or left behind.

The series of a removed cluster disappear without being deleted explicitly.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from signer.model.condition import PolicyCondition
from signer.model.namespace_limits import OverLimit
from signer.store.node_certificates import NodeCertificates


class Certificate(enum.Enum):
    """State of a node's last client certificate."""

    VALID = "valid"
    OVERDUE = "overdue"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class MetricFamily:
    """Description of a collected metric."""

    name: str
    type: str
    documentation: str
    labels: tuple[str, ...] = ()

    def empty(self, namespace: str) -> GaugeMetricFamily | CounterMetricFamily:
        kind = CounterMetricFamily if self.type == "counter" else GaugeMetricFamily
        return kind(f"{namespace}_{self.name}", self.documentation, labels=self.labels)


@dataclass(frozen=True, slots=True)
class ServiceGauge:
    """A value that a service of a cluster reports; the metric's first label is the cluster."""

    family: MetricFamily
    value: float
    labels: tuple[str, ...] = ()
    """Values of the metric's other labels."""


@dataclass(frozen=True, slots=True)
class QueueGauges:
    """Gauges of one cluster's queue of requests."""

    depth: int
    """Requests that wait for a worker."""
    oldest_seconds: float
    longest_processing_seconds: float


@dataclass(frozen=True, slots=True)
class ClusterGauges:
    """Gauges of one cluster."""

    pending: int
    oldest_pending_seconds: float
    queue: QueueGauges
    reachable: bool
    mode: str
    """The policy's mode, even if the policy is invalid; empty if it has none."""
    conditions: tuple[PolicyCondition, ...]
    authority_expiry: tuple[float, ...]
    """Unix time; empty without a CA."""
    certificates: NodeCertificates
    services: tuple[ServiceGauge, ...]
    """Gauges of the services that run for the cluster."""
    now: float
    """Unix time."""


@dataclass(frozen=True, slots=True)
class ProcessGauges:
    """Gauges of the process."""

    ready: bool = False
    watched: Mapping[str, bool] = field(default_factory=dict)
    """Whether each resource of the management cluster can be watched."""
    controller_key_readable: tuple[bool, ...] = ()
    """Empty until the Secret was read; a standby does not read it."""
    ignored_records: int = 0
    dropped_events: int = 0
    over_limits: tuple[OverLimit, ...] = ()
    """The namespaces in which nothing is decided."""


_OF_CLUSTER: Final = ("cluster",)
READY: Final = MetricFamily("ready", "gauge", "1 while this replica decides requests, else 0.")
WATCHED: Final = MetricFamily(
    "management_watch_reachable",
    "gauge",
    "1 while the controller watches the resource in the management cluster, 0 while it cannot.",
    ("resource",),
)
CONTROLLER_KEY: Final = MetricFamily(
    "controller_key_readable",
    "gauge",
    "1 while the Secret with the controller key exists and can be used, 0 while it is missing, malformed or forbidden.",
)
IGNORED: Final = MetricFamily(
    "ignored_records",
    "counter",
    "Versions of AttestedNodes that the controller ignored because they are not sealed with its key.",
)
DROPPED: Final = MetricFamily(
    "dropped_events", "counter", "Events that the controller dropped because there were too many."
)
OVER_LIMIT: Final = MetricFamily(
    "namespace_over_limit_objects",
    "gauge",
    "Objects of the resource in a namespace that has more than the operator's limit, so that nothing there is decided, "
    "or no new access given; missing for every other namespace.",
    ("namespace", "resource"),
)
PENDING: Final = MetricFamily(
    "pending_requests",
    "gauge",
    "Requests without a certificate or a denial, excluding those the policy ignores.",
    _OF_CLUSTER,
)
OLDEST: Final = MetricFamily(
    "oldest_pending_request_seconds",
    "gauge",
    "Age of the oldest pending request since this controller first saw it, in seconds; 0 if there is none.",
    _OF_CLUSTER,
)
DEPTH: Final = MetricFamily("queue_depth", "gauge", "Requests that wait for a worker.", _OF_CLUSTER)
QUEUE_OLDEST: Final = MetricFamily(
    "queue_oldest_seconds",
    "gauge",
    "Time for which the oldest queued request has waited for a worker, in seconds.",
    _OF_CLUSTER,
)
PROCESSING: Final = MetricFamily(
    "queue_longest_processing_seconds",
    "gauge",
    "Longest time for which a worker has been processing its current request, in seconds.",
    _OF_CLUSTER,
)
REACHABLE: Final = MetricFamily(
    "workload_cluster_reachable",
    "gauge",
    "1 while the controller watches the requests of the workload cluster, 0 while it cannot reach it.",
    _OF_CLUSTER,
)
INFO: Final = MetricFamily(
    "cluster_info", "gauge", "Always 1; the label holds the mode of the cluster's policy.", ("cluster", "mode")
)
CONDITION: Final = MetricFamily(
    "cluster_condition",
    "gauge",
    "1 for the current status (True, False or Unknown) of each condition of the cluster's policy.",
    ("cluster", "condition", "status"),
)
AUTHORITY: Final = MetricFamily(
    "certificate_authority_expiry_timestamp_seconds",
    "gauge",
    "When the CA that signs for the cluster expires, in Unix time.",
    _OF_CLUSTER,
)
NODES: Final = MetricFamily(
    "nodes",
    "gauge",
    "Attested nodes whose Machine exists, by the state of their last client certificate: valid, overdue (renewable, "
    "but less than 15 % of its lifetime left) or expired.",
    ("cluster", "certificate"),
)
BUDGET: Final = MetricFamily(
    "outage_budget_timestamp_seconds",
    "gauge",
    "When the first still valid client certificate of an attested node expires if no more are issued, in Unix time.",
    _OF_CLUSTER,
)
UNATTESTED: Final = MetricFamily(
    "unattested_requesters",
    "gauge",
    "Nodes and bootstrap tokens whose requests to kubernetes.io/kube-apiserver-client-kubelet within the last hour "
    "were not approved; at most 64.",
    _OF_CLUSTER,
)
ROTATION_STEP: Final = MetricFamily(
    "rotation_step_timestamp_seconds",
    "gauge",
    "When the present step of the rotation of the cluster's CAs began, in Unix time; missing without a rotation.",
    _OF_CLUSTER,
)
ROTATION_PREPARED: Final = MetricFamily(
    "rotation_prepared_timestamp_seconds",
    "gauge",
    "Since when the rotation is prepared and waits for complete-ca-rotation, in Unix time; missing otherwise.",
    _OF_CLUSTER,
)
ROTATION_LINK: Final = MetricFamily(
    "rotation_link_expiry_timestamp_seconds",
    "gauge",
    "When the link certificate ends by which clients of one CA accept the other, in Unix time; missing without one.",
    _OF_CLUSTER,
)
ROTATION_NODES: Final = MetricFamily(
    "rotation_lagging_nodes",
    "gauge",
    "Nodes that are not proven to trust and use the CA to which the rotation leads; missing without a rotation.",
    _OF_CLUSTER,
)
ROTATION_SERVERS: Final = MetricFamily(
    "rotation_lagging_api_servers",
    "gauge",
    "API servers that are not yet as the rotation wants them, or cannot be asked; missing without a rotation.",
    _OF_CLUSTER,
)
NODE_CLIENT_NODES: Final = MetricFamily(
    "node_client_authority_nodes",
    "gauge",
    "Nodes whose newest client certificate is by the cluster's node-client authority; missing where none is used.",
    _OF_CLUSTER,
)
NODE_CLIENT_FORMER_NODES: Final = MetricFamily(
    "node_client_authority_former_nodes",
    "gauge",
    "Nodes whose newest client certificate is by the former node-client authority; missing unless it is being retired.",
    _OF_CLUSTER,
)
SSH_AUTHORITIES: Final = MetricFamily(
    "ssh_authorities_available",
    "gauge",
    "1 while the cluster's two SSH authorities are available, else 0; missing where no policy has turned SSH on.",
    _OF_CLUSTER,
)
SSH_ROTATION_NODES: Final = MetricFamily(
    "ssh_rotation_lagging_nodes",
    "gauge",
    "Nodes for which a rotation of the cluster's SSH authorities waits; missing while none is under way.",
    _OF_CLUSTER,
)
SSH_TRUST: Final = MetricFamily(
    "ssh_trust_published",
    "gauge",
    "1 while the trust bundle is published as it should be, else 0; missing where no policy has turned SSH on.",
    _OF_CLUSTER,
)
CONTAINER_ACCESS: Final = MetricFamily(
    "container_access_ready",
    "gauge",
    "1 while the gateway to containers has its way into the workload cluster, else 0; missing without --containers and "
    "where the policy does not allow access.",
    _OF_CLUSTER,
)
ACCESS_GRANTS: Final = MetricFamily(
    "access_grants",
    "gauge",
    "AccessGrants by state: Pending (no certificates yet), Live, Ending (being revoked) and Ended; missing without "
    "--access.",
    ("cluster", "state"),
)
_FAMILIES: Final = (
    READY,
    WATCHED,
    CONTROLLER_KEY,
    IGNORED,
    DROPPED,
    OVER_LIMIT,
    PENDING,
    OLDEST,
    DEPTH,
    QUEUE_OLDEST,
    PROCESSING,
    REACHABLE,
    INFO,
    CONDITION,
    AUTHORITY,
    NODES,
    BUDGET,
    UNATTESTED,
    ROTATION_STEP,
    ROTATION_PREPARED,
    ROTATION_LINK,
    ROTATION_NODES,
    ROTATION_SERVERS,
    NODE_CLIENT_NODES,
    NODE_CLIENT_FORMER_NODES,
    SSH_AUTHORITIES,
    SSH_ROTATION_NODES,
    SSH_TRUST,
    ACCESS_GRANTS,
    CONTAINER_ACCESS,
)


class MetricsCollector(Collector):
    """Reads the gauges of the process and the clusters when metrics are collected."""

    def __init__(self, namespace: str, families: Sequence[MetricFamily] = ()) -> None:
        """``families`` are the metrics of optional services, in addition to the controller's own."""
        self._namespace = namespace
        self._families = (*_FAMILIES, *families)
        self.process: Callable[[], ProcessGauges] = ProcessGauges
        self.clusters: dict[str, Callable[[], ClusterGauges]] = {}

    def described(self) -> Iterator[tuple[str, str, tuple[str, ...], str]]:
        """Name, type, labels and documentation of each metric."""
        for family in self._families:
            suffix = "_total" if family.type == "counter" else ""
            yield f"{self._namespace}_{family.name}{suffix}", family.type, family.labels, family.documentation

    def describe(self) -> Iterable[Metric]:
        """See :class:`prometheus_client.registry.Collector`."""
        return [family.empty(self._namespace) for family in self._families]

    def collect(self) -> Iterable[Metric]:
        """See :class:`prometheus_client.registry.Collector`."""
        families = {family: family.empty(self._namespace) for family in self._families}

        def add(family: MetricFamily, value: float, *labels: str) -> None:
            families[family].add_metric(labels, value)

        process = self.process()
        add(READY, process.ready)
        add(IGNORED, process.ignored_records)
        add(DROPPED, process.dropped_events)
        for resource, reachable in process.watched.items():
            add(WATCHED, reachable, resource)
        for one in process.over_limits:
            add(OVER_LIMIT, one.count, one.namespace, one.resource)
        for readable in process.controller_key_readable:
            add(CONTROLLER_KEY, readable)
        for cluster, read_gauges in list(self.clusters.items()):
            _add_cluster(add, cluster, read_gauges())
        return families.values()


def _add_cluster(add: Callable[..., None], cluster: str, gauges: ClusterGauges) -> None:
    add(PENDING, gauges.pending, cluster)
    add(OLDEST, gauges.oldest_pending_seconds, cluster)
    add(DEPTH, gauges.queue.depth, cluster)
    add(QUEUE_OLDEST, gauges.queue.oldest_seconds, cluster)
    add(PROCESSING, gauges.queue.longest_processing_seconds, cluster)
    add(REACHABLE, gauges.reachable, cluster)
    if gauges.mode:
        add(INFO, 1, cluster, gauges.mode)
    for condition in gauges.conditions:
        add(CONDITION, 1, cluster, condition.type, condition.status)
    for timestamp in gauges.authority_expiry:
        add(AUTHORITY, timestamp, cluster)
    expired = gauges.certificates.count_expired(gauges.now)
    overdue = gauges.certificates.count_overdue(gauges.now)
    add(NODES, len(gauges.certificates.ends) - expired - overdue, cluster, Certificate.VALID.value)
    add(NODES, overdue, cluster, Certificate.OVERDUE.value)
    add(NODES, expired, cluster, Certificate.EXPIRED.value)
    for timestamp in gauges.certificates.outage_budget(gauges.now):
        add(BUDGET, timestamp, cluster)
    for gauge in gauges.services:
        add(gauge.family, gauge.value, cluster, *gauge.labels)
