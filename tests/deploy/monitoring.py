"""Names in alerts and dashboard, and scrapes with which promtool tests the alerts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from attestors.contract import CloudCall, CloudCallOutcome
from signer.access.admission.webhook import PATHS
from signer.bastions.metrics import BastionMetrics
from signer.controller.access_webhook import Answer
from signer.controller.audit_heads import HeadResult
from signer.controller.diagnostics.connections import Closed
from signer.controller.telemetry.metrics import Metrics
from signer.controller.telemetry.metrics_collector import (
    UNATTESTED,
    ClusterGauges,
    MetricFamily,
    ProcessGauges,
    QueueGauges,
    ServiceGauge,
)
from signer.gateway.metrics import GatewayMetrics
from signer.model.condition import (
    AUTO_APPROVAL_REMOVED,
    CERTIFICATE_AUTHORITY_AVAILABLE,
    ConditionType,
    PolicyCondition,
)
from signer.store.node_certificates import NodeCertificates
from tests.support.yaml_documents import safe_load

MONITORING: Final = Path(__file__).parents[2] / "deploy/monitoring"
CLUSTER: Final = "default/production"
DAY: Final = 86400.0
MINUTES: Final = 125
"""For how many minutes each of the two scrapes is repeated, once a minute; longer than the ``for`` of any alert."""

_SELECTOR: Final = re.compile(r"(?P<name>node_(?:attestation|access)_[a-z_]+)(?:\{(?P<matchers>[^{}]*)\})?")
_MATCHER: Final = re.compile(r'(?P<label>[a-z_]+)\s*(?:=~|!~|!=|=)\s*"(?P<value>[^"]*)"')
_GROUPING: Final = re.compile(r"\b(?:by|on)\s*\((?P<labels>[^()]*)\)")
_SHOWN: Final = re.compile(r"\{\{\s*(?:\$labels\.)?(?P<label>[a-z_]+)\s*\}\}")


@dataclass(frozen=True, slots=True)
class Named:
    """The names in one expression and in its annotations."""

    where: str
    metrics: frozenset[str]
    matched: frozenset[tuple[str, str, str]]
    """Metric, label and value of each matcher."""
    grouped: frozenset[str]
    """Labels that are grouped by, joined on, or shown."""


def alerts() -> list[dict[str, Any]]:
    """The alerting rules."""
    document = safe_load((MONITORING / "alerts.yaml").read_text(encoding="utf-8"))
    return [rule for group in document["spec"]["groups"] for rule in group["rules"]]


def expressions() -> Iterator[Named]:
    """Every expression in alerts and dashboard."""
    for rule in alerts():
        yield named(rule["alert"], rule["expr"], *rule["annotations"].values())
    dashboard = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            yield named(panel["title"], target["expr"], target["legendFormat"])
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"]).groups()  # type: ignore[union-attr]
            yield Named(variable["name"], frozenset({metric}), frozenset(), frozenset({label}))


def named(where: str, expression: str, *texts: str) -> Named:
    """The names in ``expression`` and in the templates of ``texts``."""
    found = list(_SELECTOR.finditer(expression))
    matched = {
        (one["name"], matcher["label"], matcher["value"])
        for one in found
        for matcher in _MATCHER.finditer(one["matchers"] or "")
    }
    grouped = {
        label.strip() for one in _GROUPING.finditer(expression) for label in one["labels"].split(",") if label.strip()
    }
    grouped |= {one["label"] for text in texts for one in _SHOWN.finditer(text)}
    return Named(where, frozenset(one["name"] for one in found), frozenset(matched), frozenset(grouped))


def healthy_cluster() -> ClusterGauges:
    """A cluster that is healthy from time 0 on, for the days of a test."""
    met = (
        PolicyCondition(CERTIFICATE_AUTHORITY_AVAILABLE, True, "Loaded", "valid"),
        PolicyCondition(AUTO_APPROVAL_REMOVED, True, "Removed", "removed"),
    )
    return ClusterGauges(
        pending=1,
        oldest_pending_seconds=5.0,
        queue=QueueGauges(0, 0.0, 0.0),
        reachable=True,
        mode="Enforce",
        conditions=met,
        authority_expiry=(3650 * DAY,),
        certificates=NodeCertificates(ends=(5 * DAY,), renewing_ends=(5 * DAY,), overdue=(4 * DAY,)),
        services=(ServiceGauge(UNATTESTED, 0),),
        now=0.0,
    )


@dataclass
class Scrape:
    """The content of a scrape. A test injects a fault into it."""

    cluster: ClusterGauges
    process: ProcessGauges
    metrics: Metrics
    bastions: BastionMetrics
    gateway: GatewayMetrics
    has_bastions: bool = True
    """Whether the bastion controller is scraped."""
    has_gateway: bool = True
    """Whether the gateway is scraped."""

    @classmethod
    def healthy(cls) -> Scrape:
        """A scrape without a fault."""
        process = ProcessGauges(ready=True, watched={"machines": True}, controller_key_readable=(True,))
        scrape = cls(healthy_cluster(), process, Metrics(), BastionMetrics(), GatewayMetrics())
        scrape.gateway.in_touch.set(1)
        scrape.bastions.bastions.set(1)
        scrape.bastions.operations.labels("aws", "ensure", "ready")
        scrape.bastions.sweeps.labels("aws", "succeeded")
        scrape.metrics.decided(CLUSTER, "tpm", "Deny", "IdentityConflict")
        scrape.metrics.cloud_called(CloudCall("AWS EC2", "DescribeInstances", CloudCallOutcome.OK, 0.1))
        scrape.metrics.cloud_calls.labels("AWS EC2", "DescribeInstances", "throttled")
        scrape.metrics.webhook_serves(PATHS, Answer, Closed)
        scrape.metrics.publishes_audit_heads(HeadResult)
        return scrape

    def change(self, **changes: Any) -> None:
        """Change fields of the cluster."""
        self.cluster = replace(self.cluster, **changes)

    def fail(self, condition: str) -> None:
        """Set the condition to False."""
        self._condition(PolicyCondition(ConditionType(condition), False, "Broken", "broken"))

    def meet(self, condition: str) -> None:
        """Set the condition to True."""
        self._condition(PolicyCondition(ConditionType(condition), True, "Met", "met"))

    def serve(self, family: MetricFamily, value: float) -> None:
        """Add a gauge of a service."""
        self.change(services=(*self.cluster.services, ServiceGauge(family, value)))

    def doubt(self, condition: str) -> None:
        """Set the condition to Unknown."""
        self._condition(PolicyCondition(ConditionType(condition), None, "Forbidden", "forbidden"))

    def _condition(self, condition: PolicyCondition) -> None:
        others = tuple(one for one in self.cluster.conditions if one.type != condition.type)
        self.change(conditions=(*others, condition))

    def request_unattested(self) -> None:
        """One node requests a certificate without attestation."""
        self.change(services=(ServiceGauge(UNATTESTED, 1),))

    def certificates(self, end: float) -> None:
        """Set the end of the only node's certificate, with an overdue renewal."""
        self.change(certificates=NodeCertificates(ends=(end,), renewing_ends=(end,), overdue=(-1.0,)))

    def series(self) -> Mapping[str, float]:
        """Each series in the notation of Prometheus, with its value."""
        self.metrics.serve_cluster(CLUSTER, lambda: self.cluster)
        self.metrics.serve_process(lambda: self.process)
        found = {}
        registries = [
            self.metrics.registry,
            *((self.bastions.registry,) if self.has_bastions else ()),
            *((self.gateway.registry,) if self.has_gateway else ()),
        ]
        for family in (one for registry in registries for one in registry.collect()):
            for sample in family.samples:
                labels = ",".join(f'{key}="{value}"' for key, value in sorted(sample.labels.items()))
                if not sample.name.endswith("_created"):
                    found[f"{sample.name}{{{labels}}}"] = sample.value
        return found


@dataclass(frozen=True, slots=True)
class Course:
    """A few series in promtool's notation, with one sample per minute, and the alerts that fire at each minute."""

    about: str
    series: Mapping[str, str]
    firing: Mapping[int, frozenset[str]]

    def promtool_test(self) -> dict[str, Any]:
        """A unit test for promtool, of a controller that decides requests."""
        ready = {"node_attestation_ready": "1+0x1000"}
        return {
            "name": self.about,
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in {**ready, **self.series}.items()],
            "promql_expr_test": [_fires(minute, names) for minute, names in sorted(self.firing.items())],
        }


def promtool_test(break_something: Callable[[Scrape], None], expected: frozenset[str]) -> dict[str, Any]:
    """A unit test for promtool: no alert fires for the healthy scrape, exactly ``expected`` fire after the fault."""
    before, after = Scrape.healthy(), Scrape.healthy()
    break_something(after)
    first, second = before.series(), after.series()
    return {
        "interval": "1m",
        "input_series": [
            {"series": name, "values": f"{_values(first, name, {})} {_values(second, name, first)}"}
            for name in sorted(first.keys() | second.keys())
        ],
        "promql_expr_test": [
            _fires(MINUTES - 1, frozenset()),
            _fires(2 * MINUTES - 1, expected),
        ],
    }


def _fires(minute: int, names: frozenset[str]) -> dict[str, Any]:
    """Exactly these alerts fire at that minute."""
    return {
        "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
        "eval_time": f"{minute}m",
        "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in sorted(names)],
    }


def _values(series: Mapping[str, float], name: str, before: Mapping[str, float]) -> str:
    """The value repeated each minute; a counter keeps its growth rate."""
    if name not in series:
        return f"_x{MINUTES}"
    step = 0.0
    if before and re.match(r"\w+_(total|count|sum|bucket)\{", name):
        step = series[name] - before.get(name, 0.0)
    return f"{series[name]:f}+{step:f}x{MINUTES - 1}"
