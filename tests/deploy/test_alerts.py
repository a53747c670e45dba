"""Alerts and dashboard use existing metrics and labels, and each alert fires when a scrape shows its fault."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
import yaml

from attestors.contract import CloudCall, CloudCallOutcome
from attestors.wire.names import CHALLENGE_EXPIRED
from signer.bastions.metrics import BastionMetrics
from signer.controller.access_grants import REASONS
from signer.controller.audit_heads import HeadResult
from signer.controller.diagnostics.connections import Closed
from signer.controller.telemetry import metrics_collector
from signer.controller.telemetry.metrics import DescribedMetric, Metrics
from signer.gateway.metrics import GatewayMetrics
from signer.model import condition as conditions
from signer.model import decision
from signer.model.documentation import DOCUMENTATION_URL
from signer.model.namespace_limits import OverLimit
from signer.model.policy import Mode
from signer.model.reasons import Reason
from signer.rotation import condition_types as rotation_conditions
from tests.deploy.monitoring import (
    CLUSTER,
    DAY,
    MONITORING,
    Course,
    Named,
    Scrape,
    alerts,
    expressions,
    named,
    promtool_test,
)
from tests.documents.markdown import ROOT, anchors
from tests.documents.test_blocks import commands
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.yaml_documents import safe_load

SITE: Final = f"{DOCUMENTATION_URL}/"
"""The placeholder for the address of the documentation site."""
DESCRIBED: Final = {
    one.name: one for one in (*Metrics().described(), *BastionMetrics().described(), *GatewayMetrics().described())
}
ALL: Final = list(expressions())
VALUES: Final = {
    "certificate": {one.value for one in metrics_collector.Certificate},
    "condition": {
        text
        for module in (conditions, rotation_conditions)
        for name, text in vars(module).items()
        if name.isupper() and isinstance(text, str)
    },
    "decision": set(vars(decision)),
    "mode": {one.value for one in Mode},
    "outcome": {one.value for one in CloudCallOutcome} | {"failed", "succeeded"},
    "reason": {one.value for one in Reason}
    | {"EvidenceExpired|ChallengeExpired", "PlaceChanged|PlaceUnknown"}
    | REASONS
    | {one.value for one in Closed},
    "status": {"True", "False", "Unknown"},
}
"""The values that a label in a matcher may have."""


def metric_of(series: str) -> DescribedMetric | None:
    """The metric of a series; the series of a histogram have suffixes."""
    for suffix in ("_bucket", "_count", "_sum"):
        described = DESCRIBED.get(series.removesuffix(suffix))
        if series.endswith(suffix) and described is not None and described.type == "histogram":
            return described
    return DESCRIBED.get(series)


def faults_of(one: Named) -> list[str]:
    """The named metrics, labels and values that do not exist."""
    found = [f"metric {name}" for name in one.metrics if (metric_of(name) is None)]
    # Prometheus adds job, and the buckets of histograms have le.
    known = {"job", "le"} | {label for name in one.metrics if (metric := metric_of(name)) for label in metric.labels}
    found += [f"label {label}" for label in one.grouped if label not in known]
    for name, label, value in one.matched:
        metric = metric_of(name)
        if metric is not None and label not in metric.labels:
            found.append(f"label {label} of {name}")
        if label in VALUES and value not in VALUES[label]:
            found.append(f"value {value} of {label}")
    return found


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.where)
def test_named_metrics_and_labels_exist(one: Named) -> None:
    assert one.metrics
    assert faults_of(one) == []


def test_unknown_names_are_found() -> None:
    expression = 'sum by (machine) (node_attestation_nodes{certificate="gone", node="x"}) + node_attestation_nothing'
    assert sorted(faults_of(named("x", expression, "{{ $labels.pod }}"))) == [
        "label machine",
        "label node of node_attestation_nodes",
        "label pod",
        "metric node_attestation_nothing",
        "value gone of certificate",
    ]


def test_each_panel_of_the_dashboard_is_distinct() -> None:
    """A copied panel needs its own place, title, description and ID."""
    panels = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))["panels"]
    places = [tuple(panel["gridPos"].items()) for panel in panels]
    titles = [panel["title"] for panel in panels]
    said = [panel["description"] for panel in panels if panel["description"]]
    ids = [panel["id"] for panel in panels]
    for each in (places, titles, said, ids):
        assert len(set(each)) == len(each)


def test_every_metric_is_on_the_dashboard_or_in_an_alert() -> None:
    used = {metric.name for one in ALL for name in one.metrics if (metric := metric_of(name))}
    not_shown = {"node_attestation_build_info", "node_attestation_certificates_published_total"}
    assert set(DESCRIBED) - used == not_shown


@pytest.mark.parametrize("rule", alerts(), ids=lambda rule: rule["alert"])
def test_an_alert_says_what_to_do(rule: dict[str, dict[str, str]]) -> None:
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert {"summary", "description", "runbook_url"} == set(rule["annotations"])
    page, _, anchor = rule["annotations"]["runbook_url"].partition("/#")
    assert page.startswith(SITE)
    assert anchor == str(rule["alert"]).lower()
    assert anchor in anchors(ROOT / "docs" / f"{page.removeprefix(SITE)}.md")


def test_the_address_of_the_runbooks_is_put_in() -> None:
    """The sed command of README.md replaces the address in each runbook URL."""
    [command] = [words for _, words in commands() if words[0] == "sed"]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT, timeout=60)
    rules = [rule for group in safe_load(ran.stdout)["spec"]["groups"] for rule in group["rules"]]
    assert len(rules) == len(alerts())
    for rule in rules:
        assert rule["annotations"]["runbook_url"].startswith(
            "https://docs.example.com/node-attestation/observability/#"
        )


def deny(scrape: Scrape) -> None:
    scrape.metrics.decisions.labels(CLUSTER, "tpm", "Deny", "IdentityConflict").inc(30)


def let_evidence_run_out(scrape: Scrape) -> None:
    scrape.metrics.decided(CLUSTER, "tpm", "Deny", CHALLENGE_EXPIRED)


def meet_a_defect(scrape: Scrape) -> None:
    scrape.metrics.decided(CLUSTER, "tpm", "Defer", Reason.INTERNAL_ERROR)


def throttle(scrape: Scrape) -> None:
    scrape.metrics.cloud_called(CloudCall("AWS EC2", "DescribeInstances", CloudCallOutcome.THROTTLED, 0.1))


def lose_watch(scrape: Scrape) -> None:
    scrape.process = replace(scrape.process, watched={"machines": False})


def lose_the_controller_key(scrape: Scrape) -> None:
    scrape.process = replace(scrape.process, controller_key_readable=(False,))


def break_a_setting(scrape: Scrape) -> None:
    scrape.metrics.broken_attestor_settings.set(1)


def exceed_a_limit(scrape: Scrape) -> None:
    scrape.process = replace(scrape.process, over_limits=(OverLimit("machines", "team-a", 50_001, 50_000),))


def stand_by(scrape: Scrape) -> None:
    """Only the leader reads the key."""
    scrape.process = replace(scrape.process, controller_key_readable=())


def stop_deciding(scrape: Scrape) -> None:
    scrape.process = replace(scrape.process, ready=False)


def lose_shards(scrape: Scrape) -> None:
    scrape.metrics.shards.set(8)
    scrape.metrics.shards_owned.set(6)


def find_foreign_records(scrape: Scrape) -> None:
    scrape.process = replace(scrape.process, ignored_records=1)


def possible_under_observe(scrape: Scrape) -> None:
    scrape.fail(conditions.AUTO_APPROVAL_REMOVED)
    scrape.change(mode="Observe")


def unproven_under_observe(scrape: Scrape) -> None:
    scrape.doubt(conditions.AUTO_APPROVAL_REMOVED)
    scrape.change(mode="Observe")


def request_unattested_under_observe(scrape: Scrape) -> None:
    scrape.request_unattested()
    scrape.change(mode="Observe")


def lose_the_cluster(scrape: Scrape) -> None:
    """Then condition AutoApprovalRemoved is Unknown, too."""
    scrape.doubt(conditions.AUTO_APPROVAL_REMOVED)
    scrape.change(reachable=False)


WEBHOOK: Final = {"AccessWebhookDisturbed"}


def lose_the_bastion_controller(scrape: Scrape) -> None:
    scrape.has_bastions = False


def lose_the_gateway(scrape: Scrape) -> None:
    scrape.has_gateway = False


def fail_one_sweep_of_two(scrape: Scrape) -> None:
    scrape.bastions.sweeps.labels("aws", "failed").inc()
    scrape.bastions.sweeps.labels("aws", "succeeded").inc()


def publish_every_other_head(scrape: Scrape) -> None:
    scrape.metrics.audit_head_published(HeadResult.FAILED)
    scrape.metrics.audit_head_published(HeadResult.CURRENT)


SCENARIOS: Final[list[tuple[Callable[[Scrape], None], set[str]]]] = [
    (stop_deciding, {"ControllerDown"}),
    (lambda scrape: scrape.certificates(1.0 * DAY), {"OutageBudgetLow"}),
    (lambda scrape: scrape.certificates(0.4 * DAY), {"OutageBudgetLow", "OutageBudgetCritical"}),
    (lambda scrape: scrape.certificates(-1.0), {"NodeExpired"}),
    (lambda scrape: scrape.fail(conditions.AUTO_APPROVAL_REMOVED), {"AutoApprovalPossible"}),
    (possible_under_observe, set()),
    (lambda scrape: scrape.doubt(conditions.AUTO_APPROVAL_REMOVED), {"AutoApprovalUnproven"}),
    (unproven_under_observe, set()),
    (lose_the_cluster, {"ClusterUnreachable"}),
    (lambda scrape: scrape.metrics.builtin_approvals.labels(CLUSTER).inc(), {"BuiltinApproval"}),
    (Scrape.request_unattested, {"UnattestedRequests"}),
    (request_unattested_under_observe, set()),
    (lambda scrape: scrape.change(reachable=False), {"ClusterUnreachable"}),
    (lose_watch, {"ManagementWatchFailing"}),
    (lose_the_controller_key, {"ControllerKeyUnreadable"}),
    (break_a_setting, {"AttestorSettingsBroken"}),
    (exceed_a_limit, {"NamespaceOverLimit"}),
    (stand_by, set()),
    (lose_shards, {"ShardsNotOwned"}),
    (lambda scrape: scrape.fail(conditions.CLOCKS_AGREE), {"ClocksDiffer"}),
    (lambda scrape: scrape.fail(conditions.CERTIFICATE_AUTHORITY_AVAILABLE), {"CertificateAuthorityUnavailable"}),
    (lambda scrape: scrape.fail(conditions.CERTIFICATE_AUTHORITY_TRUSTED), {"CertificateAuthorityNotTrusted"}),
    (lambda scrape: scrape.change(authority_expiry=(20 * DAY,)), {"CertificateAuthorityExpires"}),
    (
        lambda scrape: scrape.change(authority_expiry=(3 * DAY,)),
        {"CertificateAuthorityExpires", "CertificateAuthorityExpiresSoon"},
    ),
    (lambda scrape: scrape.meet(rotation_conditions.ROTATION_STALLED), {"RotationStalled"}),
    (lambda scrape: scrape.fail(rotation_conditions.ROTATION_STALLED), set()),
    (lambda scrape: scrape.serve(metrics_collector.ROTATION_PREPARED, -8 * DAY), {"RotationNotCompleted"}),
    (lambda scrape: scrape.serve(metrics_collector.ROTATION_PREPARED, -6 * DAY), set()),
    (lambda scrape: scrape.serve(metrics_collector.ROTATION_LINK, 12 * DAY), {"RotationLinkEnds"}),
    (lambda scrape: scrape.serve(metrics_collector.ROTATION_LINK, 20 * DAY), set()),
    (lambda scrape: scrape.serve(metrics_collector.SSH_TRUST, 0), {"SSHTrustNotPublished"}),
    (lambda scrape: scrape.serve(metrics_collector.SSH_TRUST, 1), set()),
    (lambda scrape: scrape.serve(metrics_collector.CONTAINER_ACCESS, 0), {"ContainerAccessNotReady"}),
    (lambda scrape: scrape.serve(metrics_collector.CONTAINER_ACCESS, 1), set()),
    (lambda scrape: scrape.metrics.access_refused(CLUSTER, "CreatorNotProtected"), {"AccessCreatorsNotProtected"}),
    (lambda scrape: scrape.metrics.access_refused(CLUSTER, "ApprovalsMissing"), set()),
    (lambda scrape: scrape.metrics.access_ended(CLUSTER, "RecordNotAuthentic"), {"AccessRecordChanged"}),
    (lambda scrape: scrape.metrics.access_webhook_requests.labels("/validate", "too_much").inc(900), WEBHOOK),
    (lambda scrape: scrape.metrics.access_webhook_connections_closed.labels("evicted").inc(900), WEBHOOK),
    (lambda scrape: scrape.metrics.access_webhook_connections_closed.labels("tls_handshake").inc(900), set()),
    (lambda scrape: scrape.metrics.access_webhook_requests.labels("/validate", "refused").inc(900), set()),
    (lambda scrape: scrape.metrics.access_ended(CLUSTER, "HeartbeatMissing"), set()),
    (lambda scrape: scrape.change(oldest_pending_seconds=1000.0), {"RequestsWait"}),
    (let_evidence_run_out, {"EvidenceRunsOut"}),
    (deny, {"Denials"}),
    (meet_a_defect, {"InternalErrors"}),
    (lambda scrape: scrape.metrics.task_failed("garbage collection"), {"InternalErrors"}),
    (find_foreign_records, {"ForeignRecords"}),
    (lambda scrape: scrape.metrics.audit_lines.labels("failed").inc(), {"AuditLogFailing"}),
    (lambda scrape: scrape.metrics.audit_lines.labels("omitted").inc(), {"AuditLinesOmitted"}),
    (lambda scrape: scrape.metrics.audit_head_published(HeadResult.FAILED), {"AuditHeadNotPublished"}),
    (publish_every_other_head, set()),
    (lambda scrape: scrape.metrics.audit_head_published(HeadResult.DIFFERS), {"AuditHeadDiffers"}),
    (throttle, {"CloudCallsFail"}),
    (lose_the_bastion_controller, {"BastionControllerDown"}),
    (lambda scrape: scrape.bastions.leaked.labels("aws").inc(), {"BastionsLeaked"}),
    (lambda scrape: scrape.bastions.sweeps.labels("aws", "failed").inc(), {"BastionSweepsFail"}),
    (fail_one_sweep_of_two, set()),
    (lambda scrape: scrape.bastions.operations.labels("aws", "ensure", "failed").inc(), {"BastionCallsFail"}),
    (lambda scrape: scrape.bastions.operations.labels("aws", "ensure", "broken").inc(), set()),
    (lambda scrape: scrape.bastions.refusals.labels("PlaceChanged").inc(), {"BastionElsewhere"}),
    (lambda scrape: scrape.bastions.refusals.labels("PlaceUnknown").inc(), {"BastionElsewhere"}),
    (lambda scrape: scrape.bastions.refusals.labels("TargetNotAllowed").inc(), set()),
    (lambda scrape: scrape.bastions.task_failed("sweep"), {"BastionInternalErrors"}),
    (lose_the_gateway, {"GatewayDown"}),
    (lambda scrape: scrape.gateway.in_touch.set(0), {"GatewayDown"}),
    (lambda scrape: scrape.gateway.signals_failed.inc(), {"GatewaySignalsFailed"}),
    (lambda scrape: scrape.gateway.task_failed("grants"), {"GatewayInternalErrors"}),
    (lambda scrape: scrape.gateway.login("Expired"), set()),
]
"""Each fault, and the alerts that fire, without the prefix that :func:`alert_names` adds."""


def alert_names(*names: str) -> frozenset[str]:
    return frozenset(
        ("NodeAccess" if name.startswith(("Bastion", "Gateway")) else "NodeAttestation") + name for name in names
    )


OF_CLUSTER: Final = f'cluster="{CLUSTER}"'
UNPROVEN: Final = (
    f'node_attestation_cluster_condition{{{OF_CLUSTER}, condition="AutoApprovalRemoved", status="Unknown"}}'
)
ENFORCING: Final = {f'node_attestation_cluster_info{{{OF_CLUSTER}, mode="Enforce"}}': "1+0x1000"}
NOTHING: Final = alert_names()
FOREIGN: Final = 'node_attestation_ignored_records_total{pod="one"}'
READY: Final = 'node_attestation_ready{pod="one"}'
READY_OF_ANOTHER_POD: Final = 'node_attestation_ready{pod="another"}'
FOREIGN_OF_ANOTHER_POD: Final = 'node_attestation_ignored_records_total{pod="another"}'
DENIED: Final = f'node_attestation_decisions_total{{{OF_CLUSTER}, decision="Deny", reason="IdentityConflict"}}'
DENIED_OTHERWISE: Final = DENIED.replace("IdentityConflict", "NodeNameMismatch")
BUILTIN_APPROVED: Final = f"node_attestation_builtin_approvals_total{{{OF_CLUSTER}}}"
RUN_OUT: Final = f'node_attestation_decisions_total{{{OF_CLUSTER}, decision="Deny", reason="ChallengeExpired"}}'
CALLED: Final = 'node_attestation_cloud_calls_total{{service="AWS STS", operation="x", outcome="{}"}}'
DEFECT: Final = f'node_attestation_decisions_total{{{OF_CLUSTER}, decision="Defer", reason="InternalError"}}'
TASK_FAILED: Final = 'node_attestation_task_failures_total{task="garbage collection"}'
HEAD_DIFFERS: Final = 'node_attestation_audit_heads_total{result="differs"}'
LINE_FAILED: Final = 'node_attestation_audit_lines_total{result="failed"}'
REACHABLE: Final = f"node_attestation_workload_cluster_reachable{{{OF_CLUSTER}}}"

COURSES: Final = [
    Course(
        "auto-approval that is checked in time",
        {**ENFORCING, UNPROVEN: "1+0x25 stale", REACHABLE: "1+0x90"},
        {25: NOTHING, 60: NOTHING},
    ),
    Course(
        "a cluster that is reachable at times stays unproven",
        {**ENFORCING, UNPROVEN: "1+0x90", REACHABLE: "0+0x9 1 " * 9},
        {20: NOTHING, 60: alert_names("AutoApprovalUnproven"), 89: alert_names("AutoApprovalUnproven")},
    ),
    Course(
        "a Pod with another key, which read all records before its first scrape",
        {FOREIGN: "_ _ 120+0x150", READY: "_ _ 1+0x150"},
        {1: NOTHING, 2: alert_names("ForeignRecords"), 60: alert_names("ForeignRecords"), 120: NOTHING},
    ),
    Course(
        "records that were found long ago",
        {FOREIGN: "120+0x400", READY: "1+0x400"},
        {130: NOTHING, 400: NOTHING},
    ),
    Course(
        "a container that restarts, and finds the remaining records",
        {FOREIGN: "120+0x200 0 80+0x200", READY: "1+0x200 0 1+0x200"},
        {200: NOTHING, 202: NOTHING, 230: NOTHING, 262: NOTHING, 300: NOTHING, 340: NOTHING},
    ),
    Course(
        "a Pod that replaces another, and finds the same records",
        {
            FOREIGN: "120+0x202 stale",
            READY: "1+0x202 stale",
            FOREIGN_OF_ANOTHER_POD: "_x150 0+0x49 120+0x200",
            READY_OF_ANOTHER_POD: "_x150 0+0x49 1+0x200",
        },
        {201: NOTHING, 202: NOTHING, 205: NOTHING, 265: NOTHING, 330: NOTHING},
    ),
    Course(
        "records that one of two installations finds, fewer than the other knew",
        {
            FOREIGN.replace("{", '{job="one", '): "500+0x400",
            FOREIGN.replace("{", '{job="another", '): "0+0x198 _ 120+0x200",
        },
        {190: NOTHING, 201: alert_names("ForeignRecords"), 290: NOTHING},
    ),
    Course("an installation without bastions", {}, {30: NOTHING}),
    Course(
        "a bastion controller that starts again, and one that was taken away long ago",
        {'node_access_bastions{pod="one"}': "1+0x20 _x5 1+0x20 stale"},
        {24: NOTHING, 40: NOTHING, 70: alert_names("BastionControllerDown"), 420: NOTHING},
    ),
    Course("an installation without a gateway", {}, {30: NOTHING}),
    Course(
        "one of two replicas of the gateway is out of touch, and then both are",
        {f'node_access_gateway_in_touch{{pod="{pod}"}}': f"1+0x{good} 0+0x80" for pod, good in (("a", 10), ("b", 40))},
        {35: NOTHING, 60: alert_names("GatewayDown")},
    ),
    Course(
        "one of two installations decides nothing",
        {'node_attestation_ready{job="one"}': "1+0x60", 'node_attestation_ready{job="another"}': "1+0x10 0+0x50"},
        {15: NOTHING, 30: alert_names("ControllerDown")},
    ),
    Course(
        "shards without an owner, in one of two installations",
        {
            f'node_attestation_shards{of}{{job="{job}"}}': values
            for job, owned in (("one", "8+0x60"), ("another", "8+0x10 6+0x50"))
            for of, values in (("", "8+0x60"), ("_owned", owned))
        },
        {13: NOTHING, 30: alert_names("ShardsNotOwned")},
    ),
    Course(
        "a Pod that Prometheus did not reach for a while",
        {FOREIGN: "120+0x150 stale _x9 120+0x150", READY: "1+0x150 stale _x9 1+0x150"},
        {150: NOTHING, 155: NOTHING, 162: NOTHING, 215: NOTHING, 222: NOTHING, 275: NOTHING},
    ),
    Course(
        "records that come after a start, fewer than before it",
        {FOREIGN: "500+0x200 0+0x10 120+0x200", READY: "1+0x200 0 1+0x300"},
        {
            205: NOTHING,
            213: alert_names("ForeignRecords"),
            260: alert_names("ForeignRecords"),
            280: NOTHING,
            400: NOTHING,
        },
    ),
    Course(
        "a node with a TPM that waits for its Machine: a challenge, a response, and five minutes later another",
        {RUN_OUT: "_x20 " + " ".join(str(count) for count in range(1, 13) for _ in range(5)) + " 12+0x60"},
        {45: NOTHING, 62: alert_names("EvidenceRunsOut"), 79: alert_names("EvidenceRunsOut"), 120: NOTHING},
    ),
    Course(
        "nodes that were started together, and waited for their Machines for a quarter of an hour",
        {RUN_OUT: "0+0x20 2 6 9+0x4 12 16+0x3 17+0x60"},
        dict.fromkeys(range(20, 80, 3), NOTHING),
    ),
    Course(
        "one of few calls that timed out, with a retry",
        {CALLED.format("timeout"): "5+0x20 6+0x60", CALLED.format("ok"): "100+0x20 101+0x60"},
        dict.fromkeys((21, 31, 34, 40), NOTHING),
    ),
    Course(
        "a cloud that is down, and one node whose attestation calls it every five minutes",
        {CALLED.format("timeout"): "5+0x20 6+0x4 7+0x4 8+0x4 9+0x4 10+0x4 11+0x4", CALLED.format("ok"): "100+0x60"},
        {21: NOTHING, 48: alert_names("CloudCallsFail")},
    ),
    Course("denials before the first scrape", {DENIED: "_ _ 500+0x60"}, {10: alert_names("Denials"), 30: NOTHING}),
    Course(
        "the first denials for a reason",
        {DENIED: "500+0x200", DENIED_OTHERWISE: "_x100 30+0x100"},
        {90: NOTHING, 105: alert_names("Denials"), 120: NOTHING},
    ),
    Course("denials of long ago", {DENIED: "500+0x200"}, {30: NOTHING, 200: NOTHING}),
    Course("occasional denials", {DENIED: "500+1x200"}, {30: NOTHING, 200: NOTHING}),
    Course(
        "a restart, and few denials", {DENIED: "500+0x100 0+0x9 5+0x60"}, {105: NOTHING, 112: NOTHING, 140: NOTHING}
    ),
    Course("a restart, and many denials", {DENIED: "500+0x100 0 30+0x60"}, {105: alert_names("Denials"), 130: NOTHING}),
    Course(
        "a Pod that Prometheus did not reach, without new denials",
        {DENIED: "500+0x100 stale _x20 500+0x100"},
        {101: NOTHING, 110: NOTHING, 122: NOTHING, 125: NOTHING, 140: NOTHING},
    ),
    Course(
        "a built-in approval before the first scrape of the replica that took over",
        {**ENFORCING, BUILTIN_APPROVED: "_x60 1+0x60"},
        {65: alert_names("BuiltinApproval"), 90: NOTHING},
    ),
    *[
        course
        for series, alert in (
            (BUILTIN_APPROVED, "BuiltinApproval"),
            (DEFECT, "InternalErrors"),
            (TASK_FAILED, "InternalErrors"),
            (LINE_FAILED, "AuditLogFailing"),
            (HEAD_DIFFERS, "AuditHeadDiffers"),
        )
        for course in (
            Course(
                f"{alert}: only at the start",
                {**ENFORCING, series: "_ _ 3+0x200"},
                {10: alert_names(alert), 30: NOTHING, 100: NOTHING},
            ),
            Course(
                f"{alert}: fewer after a restart than before it",
                {**ENFORCING, series: "9+0x100 0+0x5 2+0x60"},
                {90: NOTHING, 108: alert_names(alert), 140: NOTHING},
            ),
            Course(
                f"{alert}: a Pod that was not scraped for a while",
                {**ENFORCING, series: "9+0x100 stale _x20 9+0x100"},
                {101: NOTHING, 110: NOTHING, 122: NOTHING, 137: NOTHING, 140: NOTHING},
            ),
        )
    ],
]
"""Tests that need more than two scrapes."""


def test_every_alert_is_tried() -> None:
    tried = {alert for _, names in SCENARIOS for alert in alert_names(*names)}
    assert tried == {rule["alert"] for rule in alerts()}


def run_promtool(*arguments: str) -> subprocess.CompletedProcess[str]:
    promtool = shutil.which("promtool")
    if promtool is None:
        skip_or_fail(MissingPart("promtool is not installed: run tests/provision/provision.sh, or install prometheus"))
    return subprocess.run([promtool, *arguments], capture_output=True, text=True, check=False, timeout=300)


@pytest.mark.slow
def test_alerts_fire_when_their_fault_shows_in_a_scrape_and_only_then(tmp_path: Path) -> None:
    rules = safe_load((MONITORING / "alerts.yaml").read_text(encoding="utf-8"))["spec"]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    checked = run_promtool("check", "rules", str(tmp_path / "rules.yaml"))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    steady = [promtool_test(fault, alert_names(*names)) for fault, names in SCENARIOS]
    courses = [course.promtool_test() for course in COURSES]
    # Two hours of the same scrape look the same every five minutes.
    for interval, tests in (("5m", steady), ("1m", courses)):
        document = {"rule_files": ["rules.yaml"], "evaluation_interval": interval, "tests": tests}
        (tmp_path / "tests.yaml").write_text(json.dumps(document))
        ran = run_promtool("test", "rules", str(tmp_path / "tests.yaml"))
        assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.slow
def test_metrics_are_well_formed_by_prometheus_own_rules() -> None:
    scrape = Scrape.healthy()
    scrape.series()
    from prometheus_client import generate_latest

    promtool = shutil.which("promtool")
    if promtool is None:
        skip_or_fail(MissingPart("promtool is not installed: run tests/provision/provision.sh, or install prometheus"))
    text = generate_latest(scrape.metrics.registry)
    ran = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stderr.decode()
