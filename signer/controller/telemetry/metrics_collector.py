"""How things stand, as metrics: looked at when somebody asks, so that nothing is counted twice or left behind.

A cluster that is gone has no series any more, without anybody having to remove them.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from signer.model.condition import PolicyCondition
from signer.store.node_certificates import NodeCertificates


class Certificate(enum.Enum):
    """How it stands with a node's last client certificate."""

    VALID = "valid"
    OVERDUE = "overdue"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class QueueGauges:
    """One cluster's queue of requests."""

    depth: int
    """That wait for a worker now."""
    oldest_seconds: float
    longest_processing_seconds: float


@dataclass(frozen=True, slots=True)
class ClusterGauges:
    """How one cluster stands."""

    pending: int
    oldest_pending_seconds: float
    queue: QueueGauges
    reachable: bool
    mode: str
    """That its policy names, also while that cannot be followed; empty where it names none."""
    conditions: tuple[PolicyCondition, ...]
    authority_expiry: tuple[float, ...]
    """Unix time; empty where there is no CA."""
    certificates: NodeCertificates
    unattested_requesters: int
    """See :class:`~signer.controller.auto_approval.unattested_requests.UnattestedRequests`."""
    now: float
    """Unix time."""


@dataclass(frozen=True, slots=True)
class ProcessGauges:
    """How the process stands."""

    ready: bool = False
    watched: Mapping[str, bool] = field(default_factory=dict)
    """Whether each collection of the management cluster can be watched."""
    controller_key_readable: tuple[bool, ...] = ()
    """Empty until it was looked at: a standby does not."""
    ignored_records: int = 0
    dropped_events: int = 0


@dataclass(frozen=True, slots=True)
class _Family:
    name: str
    type: str
    documentation: str
    labels: tuple[str, ...] = ()

    def empty(self, namespace: str) -> GaugeMetricFamily | CounterMetricFamily:
        kind = CounterMetricFamily if self.type == "counter" else GaugeMetricFamily
        return kind(f"{namespace}_{self.name}", self.documentation, labels=self.labels)


_OF_CLUSTER: Final = ("cluster",)
READY: Final = _Family("ready", "gauge", "1 while this replica decides requests, as /readyz says, else 0.")
WATCHED: Final = _Family(
    "management_watch_reachable",
    "gauge",
    "1 while that collection of the management cluster is watched, 0 while it cannot be.",
    ("resource",),
)
CONTROLLER_KEY: Final = _Family(
    "controller_key_readable",
    "gauge",
    "1 while the Secret with the controller key is there and can be used, 0 while it is gone, malformed or forbidden.",
)
IGNORED: Final = _Family(
    "ignored_records",
    "counter",
    "Versions of AttestedNodes that were found not to be written by this controller.",
)
DROPPED: Final = _Family("dropped_events", "counter", "Events that were not written because there were too many.")
PENDING: Final = _Family(
    "pending_requests",
    "gauge",
    "Requests without a certificate or a denial, save those that the policy leaves alone.",
    _OF_CLUSTER,
)
OLDEST: Final = _Family(
    "oldest_pending_request_seconds",
    "gauge",
    "How long the oldest of them has been waiting since this controller saw it, in seconds; 0 where none waits.",
    _OF_CLUSTER,
)
DEPTH: Final = _Family("queue_depth", "gauge", "Requests that wait for a worker now.", _OF_CLUSTER)
QUEUE_OLDEST: Final = _Family(
    "queue_oldest_seconds", "gauge", "How long the oldest of them has been waiting for a worker.", _OF_CLUSTER
)
PROCESSING: Final = _Family(
    "queue_longest_processing_seconds", "gauge", "How long a worker has had the same request at most.", _OF_CLUSTER
)
REACHABLE: Final = _Family(
    "workload_cluster_reachable",
    "gauge",
    "1 while the workload cluster's requests are watched, 0 while it cannot be reached.",
    _OF_CLUSTER,
)
INFO: Final = _Family("cluster_info", "gauge", "1, with the mode of the cluster's policy.", ("cluster", "mode"))
CONDITION: Final = _Family(
    "cluster_condition",
    "gauge",
    "1 for the status (True, False or Unknown) that a condition of the cluster's policy has now.",
    ("cluster", "condition", "status"),
)
AUTHORITY: Final = _Family(
    "certificate_authority_expiry_timestamp_seconds",
    "gauge",
    "When the CA that signs for the cluster runs out, in Unix time.",
    _OF_CLUSTER,
)
NODES: Final = _Family(
    "nodes",
    "gauge",
    "Attested nodes whose Machine exists, by their last client certificate: valid, overdue (less than 15 % of its life "
    "left, although it can be renewed) or expired.",
    ("cluster", "certificate"),
)
BUDGET: Final = _Family(
    "outage_budget_timestamp_seconds",
    "gauge",
    "When the first attested node whose client certificate is still good loses it if no more are issued, in Unix time.",
    _OF_CLUSTER,
)
UNATTESTED: Final = _Family(
    "unattested_requesters",
    "gauge",
    "Nodes and bootstrap tokens that have asked kubernetes.io/kube-apiserver-client-kubelet within the last hour and "
    "got nothing; 64 at most.",
    _OF_CLUSTER,
)
_FAMILIES: Final = (
    READY,
    WATCHED,
    CONTROLLER_KEY,
    IGNORED,
    DROPPED,
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
)


class MetricsCollector(Collector):
    """Asks whoever knows, when metrics are collected."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        self.process: Callable[[], ProcessGauges] = ProcessGauges
        self.clusters: dict[str, Callable[[], ClusterGauges]] = {}

    def described(self) -> Iterator[tuple[str, str, tuple[str, ...], str]]:
        """Name, type, labels and documentation of each metric."""
        for family in _FAMILIES:
            suffix = "_total" if family.type == "counter" else ""
            yield f"{self._namespace}_{family.name}{suffix}", family.type, family.labels, family.documentation

    def describe(self) -> Iterable[Metric]:
        """See :class:`prometheus_client.registry.Collector`."""
        return [family.empty(self._namespace) for family in _FAMILIES]

    def collect(self) -> Iterable[Metric]:
        """See :class:`prometheus_client.registry.Collector`."""
        families = {family: family.empty(self._namespace) for family in _FAMILIES}

        def add(family: _Family, value: float, *labels: str) -> None:
            families[family].add_metric(labels, value)

        process = self.process()
        add(READY, process.ready)
        add(IGNORED, process.ignored_records)
        add(DROPPED, process.dropped_events)
        for resource, reachable in process.watched.items():
            add(WATCHED, reachable, resource)
        for readable in process.controller_key_readable:
            add(CONTROLLER_KEY, readable)
        for cluster, look in list(self.clusters.items()):
            _add_cluster(add, cluster, look())
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
    for moment in gauges.authority_expiry:
        add(AUTHORITY, moment, cluster)
    expired = gauges.certificates.count_expired(gauges.now)
    overdue = gauges.certificates.count_overdue(gauges.now)
    add(NODES, len(gauges.certificates.ends) - expired - overdue, cluster, Certificate.VALID.value)
    add(NODES, overdue, cluster, Certificate.OVERDUE.value)
    add(NODES, expired, cluster, Certificate.EXPIRED.value)
    for moment in gauges.certificates.outage_budget(gauges.now):
        add(BUDGET, moment, cluster)
    add(UNATTESTED, gauges.unattested_requesters, cluster)
