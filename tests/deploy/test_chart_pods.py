"""The chart's Pods: labels, volumes, names of hosts, probes, security contexts, disruptions."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.deploy.test_chart import objects, of_kind, violations
from tests.support.helm import HelmFailed, render_chart

pytestmark = pytest.mark.slow

OWNER: Final = "example.com/owner"
ALL_PODS: Final[dict[str, Any]] = {
    "ssh": {"enabled": True},
    "access": {
        "enabled": True,
        "webhook": {"enabled": True},
        "bastions": {"enabled": True, "hostKeySecret": "host-key", "config": {"owner": "blue"}},
    },
    "containers": {"enabled": True, "gateway": {"enabled": True}},
}
"""The controller, the bastion controller and the gateway."""
EVERYTHING: Final[dict[str, Any]] = {
    **ALL_PODS,
    "createNamespace": True,
    "commonLabels": {OWNER: "platform", "team": "1"},
    "replicas": 4,
    "podDisruptionBudget": {"maxUnavailable": "50%", "unhealthyPodEvictionPolicy": "AlwaysAllow"},
    "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": "0%"}},
    "revisionHistoryLimit": 0,
    "deploymentAnnotations": {"example.com/reload": "true"},
    "diagnostics": {"serviceAnnotations": {"example.com/a": "b"}, "serviceLabels": {"example.com/scrape": "yes"}},
    "serviceAccount": {"labels": {"azure.workload.identity/use": "true"}},
    "podLabels": {"team": "2"},
    "podSecurityContext": {
        "fsGroup": 7,
        "fsGroupChangePolicy": "OnRootMismatch",
        "supplementalGroups": [8],
        "seLinuxOptions": {"level": "s0:c1,c2"},
        "seccompProfile": {"type": "Localhost", "localhostProfile": "own.json"},
    },
    "securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}},
    "livenessProbe": {"failureThreshold": 60},
    "readinessProbe": {"timeoutSeconds": 9},
    "runtimeClassName": "gvisor",
    "hostAliases": [{"ip": "192.0.2.7", "hostnames": ["api.example.com"]}],
    "dnsPolicy": "None",
    "dnsConfig": {"nameservers": ["192.0.2.53"]},
    "extraVolumes": [{"name": "roots", "projected": {"sources": [{"configMap": {"name": "roots"}}]}}],
    "extraVolumeMounts": [{"name": "roots", "mountPath": "/roots", "readOnly": True}],
    "topologySpreadConstraints": [{"topologyKey": "rack", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}],
}


def deployments(values: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The Deployments, by the name of their container."""
    found = {}
    for one in of_kind("Deployment", values):
        [container] = one["spec"]["template"]["spec"]["containers"]
        found[container["name"]] = one
    assert set(found) == {"manager", "bastions", "gateway"}
    return found


def test_every_object_and_pod_has_the_common_labels() -> None:
    found = objects(EVERYTHING)
    assert {one["metadata"]["labels"].get(OWNER) for one in found} == {"platform"}
    for name, one in deployments(EVERYTHING).items():
        labels = one["spec"]["template"]["metadata"]["labels"]
        assert (labels[OWNER], labels["team"]) == ("platform", "2" if name == "manager" else "1")


def test_no_selector_has_them() -> None:
    """A Deployment's selector cannot be changed, so it must not depend on a value."""
    before = {one["metadata"]["name"]: one["spec"]["selector"] for one in deployments(ALL_PODS).values()}
    assert {one["metadata"]["name"]: one["spec"]["selector"] for one in deployments(EVERYTHING).values()} == before
    for one in objects(EVERYTHING):
        if one["kind"] in ("Service", "NetworkPolicy", "PodDisruptionBudget"):
            assert OWNER not in str({key: value for key, value in one.items() if key != "metadata"})


def test_what_all_pods_share() -> None:
    for one in deployments(EVERYTHING).values():
        pod = one["spec"]["template"]["spec"]
        assert pod["runtimeClassName"] == "gvisor"
        assert pod["hostAliases"] == [{"ip": "192.0.2.7", "hostnames": ["api.example.com"]}]
        assert (pod["dnsPolicy"], pod["dnsConfig"]) == ("None", {"nameservers": ["192.0.2.53"]})
        assert pod["securityContext"] == {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            **EVERYTHING["podSecurityContext"],
        }
        [container] = pod["containers"]
        assert container["securityContext"]["appArmorProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"]["readOnlyRootFilesystem"] is True
        liveness, readiness = container["livenessProbe"], container["readinessProbe"]
        assert (liveness["failureThreshold"], liveness["periodSeconds"]) == (60, 10)
        assert (readiness["timeoutSeconds"], readiness["failureThreshold"]) == (9, 3)
        assert liveness["httpGet"] == {"path": "/healthz", "port": "health"}
        assert readiness["httpGet"] == {"path": "/readyz", "port": "health"}
        assert violations(pod) == []


def test_no_key_of_the_security_context_occurs_twice() -> None:
    """Parsers differ in which one counts."""
    text = render_chart(EVERYTHING)
    assert (text.count(" fsGroup:"), text.count(" seccompProfile:")) == (3, 3)


def test_what_the_controllers_pod_has_alone() -> None:
    found = deployments(EVERYTHING)
    manager = found["manager"]
    assert manager["metadata"]["annotations"] == {"example.com/reload": "true"}
    assert manager["spec"]["revisionHistoryLimit"] == 0
    assert manager["spec"]["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": "0%"}
    pod = manager["spec"]["template"]["spec"]
    assert pod["volumes"][-1] == EVERYTHING["extraVolumes"][0]
    assert pod["containers"][0]["volumeMounts"][-1] == EVERYTHING["extraVolumeMounts"][0]
    assert pod["topologySpreadConstraints"] == EVERYTHING["topologySpreadConstraints"]
    for other in ("bastions", "gateway"):
        assert "roots" not in str(found[other])
    [account] = [one for one in of_kind("ServiceAccount", EVERYTHING) if "attestation" in one["metadata"]["name"]]
    assert account["metadata"]["labels"]["azure.workload.identity/use"] == "true"
    [service] = [one for one in of_kind("Service", EVERYTHING) if one["metadata"]["name"] == "node-attestation-metrics"]
    assert service["metadata"]["labels"]["example.com/scrape"] == "yes"
    assert service["metadata"]["annotations"] == {"example.com/a": "b"}


@pytest.mark.parametrize(
    ("values", "spec"),
    [
        ({"maxUnavailable": "50%"}, {"maxUnavailable": "50%"}),
        ({"minAvailable": 3}, {"minAvailable": 3}),
        ({"minAvailable": "75%"}, {"minAvailable": "75%"}),
    ],
)
def test_numbers_and_percentages_of_disruptions(values: dict[str, Any], spec: dict[str, Any]) -> None:
    [budget] = of_kind("PodDisruptionBudget", {"replicas": 4, "podDisruptionBudget": values})
    assert {key: value for key, value in budget["spec"].items() if key != "selector"} == spec


def test_the_schema_refuses_what_weakens_or_means_nothing() -> None:
    """All at once, because helm names every violation."""
    wrong = {
        "commonLabels": {"app.kubernetes.io/name": "other", "team": "a b"},
        "podLabels": {"helm.sh/chart": "other"},
        "podDisruptionBudget": {"maxUnavailable": "0%", "minAvailable": "150%"},
        "strategy": {"type": "Sometimes", "rollingUpdate": {"maxSurge": "half"}},
        "podSecurityContext": {"runAsNonRoot": False, "seccompProfile": {"type": "Unconfined"}},
        "securityContext": {"readOnlyRootFilesystem": False},
        "livenessProbe": {"httpGet": {"path": "/"}},
        "hostAliases": [{"ip": "192.0.2.7"}],
        "extraVolumes": [{"name": "host", "hostPath": {"path": "/"}}, {"name": "config", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "host"}],
    }
    with pytest.raises(HelmFailed) as refused:
        render_chart(wrong)
    for says in (
        "invalid propertyName 'app.kubernetes.io/name'",
        "/commonLabels/team",
        "invalid propertyName 'helm.sh/chart'",
        "/podDisruptionBudget/maxUnavailable",
        "/podDisruptionBudget/minAvailable",
        "/strategy/type",
        "/strategy/rollingUpdate/maxSurge",
        "'runAsNonRoot' not allowed",
        "/podSecurityContext/seccompProfile/type",
        "'readOnlyRootFilesystem' not allowed",
        "'httpGet' not allowed",
        "/hostAliases/0",
        "invalid propertyName 'hostPath'",
        "/extraVolumes/1/name",
        "/extraVolumeMounts/0",
    ):
        assert says in str(refused.value), says


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"replicas": 3, "podDisruptionBudget": {"minAvailable": 3}}, "no Pod could be evicted"),
        ({"replicas": 3, "podDisruptionBudget": {"minAvailable": "67%"}}, "no Pod could be evicted"),
        ({**ALL_PODS, "podDisruptionBudget": {"minAvailable": "51%"}}, "with 2 in containers.gateway.replicas"),
        ({"extraVolumeMounts": [{"name": "gone", "mountPath": "/gone"}]}, "gone is no volume of extraVolumes"),
        ({"extraVolumes": [{"name": "a", "emptyDir": {}}] * 2}, "two volumes have the same name"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_values_that_do_not_go_together_are_refused(values: dict[str, Any], says: str) -> None:
    with pytest.raises(HelmFailed, match=says):
        render_chart(values)
