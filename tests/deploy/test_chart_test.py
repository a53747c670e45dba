"""The Pod that ``helm test`` runs. ``tests/e2e/test_deployment.py`` runs its command against a real controller."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tests.deploy.test_chart import objects, of_kind, violations

pytestmark = pytest.mark.slow

ON: Final[dict[str, Any]] = {"helmTest": {"enabled": True}}


def test_it_is_off_by_default_and_brings_hooks_alone() -> None:
    before = objects()
    added = [one for one in objects(ON) if one not in before]
    assert {one["kind"] for one in added} == {"Service", "Pod"}
    for one in added:
        annotations = one["metadata"]["annotations"]
        assert annotations["helm.sh/hook"] == "test"
        assert annotations["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded"


def test_the_pod_asks_ready_replicas_and_is_restricted() -> None:
    [pod] = of_kind("Pod", ON)
    [service] = [one for one in of_kind("Service", ON) if "annotations" in one["metadata"]]
    [deployment] = of_kind("Deployment", ON)
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert not service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    [container] = pod["spec"]["containers"]
    [manager] = deployment["spec"]["template"]["spec"]["containers"]
    assert container["image"] == manager["image"]
    assert pod["spec"]["automountServiceAccountToken"] is False
    assert violations({**pod["spec"], "volumes": [], "containers": [{**container, "ports": []}]}) == []
    name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
    assert container["args"][1] == f"http://{name}.{namespace}.svc:9440/readyz?verbose"


def test_the_network_policy_lets_it_in_where_it_lets_few_in() -> None:
    few: dict[str, Any] = {"networkPolicy": {"ingressFrom": [{"namespaceSelector": {}}]}}
    [pod] = of_kind("Pod", ON)
    [policy] = of_kind("NetworkPolicy", {**ON, **few})
    _, rule = policy["spec"]["ingress"]
    assert rule["ports"] == [{"port": 9440, "protocol": "TCP"}]
    [source] = rule["from"]
    assert source["podSelector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    assert len(of_kind("NetworkPolicy", few)[0]["spec"]["ingress"]) == 1
