"""What the chart makes for the Prometheus operator and for Grafana, each by its own switch."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from signer.model.documentation import DOCUMENTATION_URL
from signer.testing.world import CONTROLLER_NAMESPACE
from tests.deploy.monitoring import MONITORING, alerts
from tests.deploy.test_chart import TestNotes, objects, of_kind
from tests.deploy.test_chart_pods import ALL_PODS
from tests.documents.markdown import ROOT, anchors
from tests.support.helm import HelmFailed, render_chart
from tests.support.yaml_documents import safe_load

pytestmark = pytest.mark.slow

PAGE: Final = "https://docs.example.com/node-attestation/observability/"
KINDS: Final = {
    "serviceMonitor": "ServiceMonitor",
    "podMonitor": "PodMonitor",
    "prometheusRule": "PrometheusRule",
    "dashboard": "ConfigMap",
}
MONITOR: Final[dict[str, Any]] = {
    "enabled": True,
    "labels": {"release": "prometheus"},
    "annotations": {"example.com/a": "b"},
    "interval": "30s",
    "scrapeTimeout": "10s",
    "relabelings": [{"action": "labeldrop", "regex": "pod"}],
    "metricRelabelings": [{"action": "drop", "regex": "python_.*"}],
}


def with_monitoring(**values: Any) -> dict[str, Any]:
    return {"monitoring": values}


def the_one(kind: str, values: dict[str, Any]) -> dict[str, Any]:
    [found] = of_kind(kind, values)
    return found


def test_nothing_is_made_by_default() -> None:
    assert not {one["kind"] for one in objects()} & set(KINDS.values())


@pytest.mark.parametrize("switch", KINDS)
def test_a_switch_brings_its_object_alone(switch: str) -> None:
    values = with_monitoring(**{switch: {"enabled": True}}, tokenSecret={"name": "scraper"})
    before = objects()
    added = [one for one in objects(values) if one not in before]
    assert [(one["kind"], one["metadata"]["namespace"]) for one in added] == [(KINDS[switch], CONTROLLER_NAMESPACE)]


def test_the_service_monitor_is_that_of_the_manifests() -> None:
    spec = the_one("ServiceMonitor", {**ALL_PODS, **with_monitoring(serviceMonitor={"enabled": True})})["spec"]
    assert spec["selector"].pop("matchLabels") == {"app.kubernetes.io/instance": "node-attestation"}
    assert spec == safe_load((MONITORING / "servicemonitor.yaml").read_text(encoding="utf-8"))["spec"]


def test_a_monitor_names_what_is_enabled_alone() -> None:
    spec = the_one("ServiceMonitor", with_monitoring(serviceMonitor={"enabled": True}))["spec"]
    assert spec["namespaceSelector"] == {"matchNames": [CONTROLLER_NAMESPACE]}
    [expression] = spec["selector"]["matchExpressions"]
    assert expression["values"] == ["node-attestation-controller"]


def test_the_pod_monitor_selects_every_pod_with_metrics() -> None:
    values = {**ALL_PODS, **with_monitoring(podMonitor=MONITOR, tokenSecret={"name": "scraper"})}
    spec = the_one("PodMonitor", values)["spec"]
    [expression] = spec["selector"]["matchExpressions"]
    [endpoint] = spec["podMetricsEndpoints"]
    for one in of_kind("Deployment", values):
        template = one["spec"]["template"]
        labels = template["metadata"]["labels"]
        assert one["metadata"]["namespace"] in spec["namespaceSelector"]["matchNames"]
        assert labels[expression["key"]] in expression["values"]
        assert spec["selector"]["matchLabels"].items() <= labels.items()
        assert endpoint["port"] in [port["name"] for port in template["spec"]["containers"][0]["ports"]]


@pytest.mark.parametrize(
    ("switch", "endpoints"), [("serviceMonitor", "endpoints"), ("podMonitor", "podMetricsEndpoints")]
)
def test_the_settings_of_a_monitor(switch: str, endpoints: str) -> None:
    values = with_monitoring(**{switch: MONITOR}, tokenSecret={"name": "scraper", "key": "bearer"})
    found = the_one(KINDS[switch], values)
    assert found["metadata"]["labels"]["release"] == "prometheus"
    assert found["metadata"]["annotations"] == MONITOR["annotations"]
    assert found["spec"][endpoints] == [
        {
            "port": "metrics",
            "path": "/metrics",
            "scheme": "https",
            "tlsConfig": {"insecureSkipVerify": True},
            "authorization": {"credentials": {"name": "scraper", "key": "bearer"}},
            **{key: MONITOR[key] for key in ("interval", "scrapeTimeout", "relabelings", "metricRelabelings")},
        }
    ]
    plain = the_one(KINDS[switch], {**values, "diagnostics": {"insecure": True}})["spec"][endpoints][0]
    assert (plain["scheme"], set(plain) & {"tlsConfig", "authorization"}) == ("http", set())


def test_the_role_for_metrics_is_bound_to_the_scrapers() -> None:
    values = with_monitoring(scrapers=[{"name": "prometheus", "namespace": "monitoring"}])
    before = objects()
    [binding] = [one for one in objects(values) if one not in before]
    assert binding["roleRef"]["name"] in {one["metadata"]["name"] for one in of_kind("ClusterRole")}
    assert binding["roleRef"]["name"].endswith("-metrics-reader")
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "prometheus", "namespace": "monitoring"}]


def rules_of(**settings: Any) -> list[dict[str, Any]]:
    made = the_one("PrometheusRule", with_monitoring(prometheusRule={"enabled": True, **settings}))
    return [rule for group in made["spec"]["groups"] for rule in group["rules"]]


def test_every_alert_links_to_its_heading_on_the_operators_page() -> None:
    headings = anchors(ROOT / "docs/observability.md")
    rules = rules_of(runbookURL=PAGE)
    for rule in rules:
        address, _, anchor = rule["annotations"].pop("runbook_url").partition("#")
        assert address == PAGE
        assert anchor in headings
    for before in (manifests := alerts()):
        assert before["annotations"].pop("runbook_url").partition("/#")[0].endswith("/observability")
    assert rules == manifests


def test_without_a_page_no_alert_has_a_link_that_leads_nowhere() -> None:
    values = with_monitoring(prometheusRule={"enabled": True})
    assert "runbook_url" not in render_chart(values)
    assert DOCUMENTATION_URL not in render_chart(values)
    assert "WARNING: The alerts have no links" in TestNotes.said(values)
    linked = with_monitoring(prometheusRule={"enabled": True, "runbookURL": PAGE})
    assert "The alerts have no links" not in TestNotes.said(linked)


def test_alerts_are_left_out_and_labelled() -> None:
    left_out = ["NodeAttestationDenials", "NodeAccessGatewayDown"]
    rules = rules_of(disabled=left_out, ruleLabels={"team": "platform", "severity": "page"})
    assert {rule["alert"] for rule in alerts()} - {rule["alert"] for rule in rules} == set(left_out)
    assert {rule["labels"]["team"] for rule in rules} == {"platform"}
    assert {rule["labels"]["severity"] for rule in rules} == {"warning", "critical"}


def test_the_dashboard_is_found_by_grafanas_sidecar() -> None:
    settings = {"enabled": True, "namespace": "grafana", "annotations": {"grafana_folder": "Clusters"}}
    dashboard = the_one("ConfigMap", with_monitoring(dashboard=settings))
    assert dashboard["metadata"]["namespace"] == "grafana"
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert dashboard["metadata"]["annotations"] == {"grafana_folder": "Clusters"}
    [content] = dashboard["data"].values()
    assert json.loads(content) == json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (with_monitoring(serviceMonitor={"enabled": True}, podMonitor={"enabled": True}), "counted twice"),
        (with_monitoring(podMonitor={"enabled": True}), "monitoring.tokenSecret.name"),
        (
            {"diagnostics": {"enabled": False}, **with_monitoring(serviceMonitor={"enabled": True})},
            "serviceMonitor: set diagnostics.enabled too",
        ),
        (
            {"diagnostics": {"insecure": True}, **with_monitoring(scrapers=[{"name": "a", "namespace": "b"}])},
            "monitoring.scrapers: the role",
        ),
        (with_monitoring(prometheusRule={"enabled": True, "disabled": ["NodeDown"]}), "there is no alert NodeDown"),
        (
            with_monitoring(prometheusRule={"runbookURL": f"{PAGE}#top"}, serviceMonitor={"interval": "often"}),
            "(?s)(?=.*/monitoring/prometheusRule/runbookURL)(?=.*/monitoring/serviceMonitor/interval)",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_values_are_refused(values: dict[str, Any], says: str) -> None:
    with pytest.raises(HelmFailed, match=says):
        render_chart(values)
