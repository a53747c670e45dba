"""Which container an address means. The API server is one that answers what it is told to; the real one is in e2e."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import pytest

from attestors.wire.ssh.container_names import Container, Pod, Workload, WorkloadKind, parse_container_address
from signer.gateway.resolver import KubernetesResolver, NotResolved, RunningContainer
from signer.kube.client import JsonObject, Parameters
from signer.kube.errors import Forbidden, NotFound

APPS: Final = "/apis/apps/v1/namespaces/shop"
PODS: Final = "/api/v1/namespaces/shop/pods"
WEB: Final = Container("shop", Workload(WorkloadKind.DEPLOYMENT, "web"), "app")
DB: Final = Container("shop", Workload(WorkloadKind.STATEFUL_SET, "db"), "app")
ONE: Final = Container("shop", Pod("web-0"), "app")


def pod(name: str, owner: str = "", created: str = "2026-11-27T10:00:00Z", **more: Any) -> dict[str, Any]:
    state = more.pop("state", {"running": {}})
    metadata: dict[str, Any] = {"name": name, "namespace": "shop", "uid": f"u-{name}", "creationTimestamp": created}
    if owner:
        metadata["ownerReferences"] = [{"uid": "somebody", "controller": False}, {"uid": owner, "controller": True}]
    return {
        "metadata": {**metadata, **more.pop("metadata", {})},
        "spec": more.pop("spec", {}),
        "status": {
            "conditions": [{"type": "Ready", "status": more.pop("ready", "True")}],
            "containerStatuses": [{"name": "app", "state": state}],
        },
    }


def workload(uid: str, **selector: Any) -> dict[str, Any]:
    selector = selector or {"matchLabels": {"app": "web"}}
    return {"metadata": {"name": "x", "uid": uid}, "spec": {"selector": selector}}


class API:
    """Objects and lists by path. Lists by path and selector."""

    def __init__(self, objects: Mapping[str, Any], **lists: list[dict[str, Any]]) -> None:
        self.objects = objects
        self.lists = {f"{APPS}/replicasets": lists.get("replicasets", []), PODS: lists.get("pods", [])}
        self.selectors: list[str] = []

    async def get(self, path: str, params: Parameters | None = None) -> JsonObject:
        if params is not None:
            self.selectors.append(str(params["labelSelector"]))
            return {"items": self.lists[path]}
        found = self.objects.get(path)
        if found is None:
            raise NotFound("no such object")
        if isinstance(found, Exception):
            raise found
        assert isinstance(found, dict)
        return found


async def resolve(api: API, target: Container, user: str) -> RunningContainer:
    return await KubernetesResolver().resolve(api, target, parse_container_address(user))


async def refusal(api: API, target: Container, user: str) -> str:
    with pytest.raises(NotResolved) as caught:
        await resolve(api, target, user)
    return caught.value.message


async def test_a_pod_by_its_name() -> None:
    api = API({f"{PODS}/web-0": pod("web-0")})
    found = await resolve(api, ONE, "shop_web-0_app")
    assert found == RunningContainer("shop", "web-0", "u-web-0", "app", shares_host_network=False)
    assert await refusal(API({}), ONE, "shop_web-0") == "there is no pod shop/web-0"


async def test_a_container_that_does_not_run() -> None:
    waiting = API({f"{PODS}/web-0": pod("web-0", state={"waiting": {"reason": "CrashLoopBackOff"}})})
    assert await refusal(waiting, ONE, "shop_web-0") == (
        "container app of pod shop/web-0 does not run: CrashLoopBackOff"
    )
    unknown = API({f"{PODS}/web-0": pod("web-0", state={})})
    assert "its state is unknown" in await refusal(unknown, ONE, "shop_web-0")
    other = Container("shop", Pod("web-0"), "sidecar")
    assert "no such container" in await refusal(API({f"{PODS}/web-0": pod("web-0")}), other, "shop_web-0")


async def test_an_answer_about_another_object_is_refused() -> None:
    api = API({f"{PODS}/web-0": pod("web-0", metadata={"namespace": "other"})})
    assert "another object" in await refusal(api, ONE, "shop_web-0")
    assert "another object" in await refusal(API({f"{PODS}/web-0": {}}), ONE, "shop_web-0")


async def test_a_pod_on_its_nodes_network_is_marked() -> None:
    api = API({f"{PODS}/web-0": pod("web-0", spec={"hostNetwork": True})})
    assert (await resolve(api, ONE, "shop_web-0")).shares_host_network


def deployment() -> API:
    sets = [
        {"metadata": {"uid": "rs-new", "ownerReferences": [{"uid": "d", "controller": True}]}},
        {"metadata": {"uid": "rs-foreign", "ownerReferences": [{"uid": "other", "controller": True}]}},
    ]
    pods = [
        pod("web-b", "rs-new", "2026-11-27T10:00:00Z"),
        pod("web-a", "rs-new", "2026-11-27T10:00:00Z"),
        pod("web-old", "rs-new", "2026-11-27T09:00:00Z", ready="False"),
        pod("web-going", "rs-new", "2026-11-27T08:00:00Z", metadata={"deletionTimestamp": "2026-11-27T11:00:00Z"}),
        pod("stranger", "rs-foreign", "2026-11-27T07:00:00Z"),
        pod("orphan", "", "2026-11-27T06:00:00Z"),
    ]
    objects = {f"{APPS}/deployments/web": workload("d"), **{f"{PODS}/{one['metadata']['name']}": one for one in pods}}
    return API(objects, replicasets=sets, pods=pods)


@pytest.mark.parametrize(
    ("user", "name"),
    [
        ("shop_deploy.web", "web-a"),
        ("shop_deploy.web.0", "web-a"),
        ("shop_deploy.web.1_app", "web-b"),
        ("shop_web-b", "web-b"),
    ],
)
async def test_pods_of_a_deployment_by_age_and_name(user: str, name: str) -> None:
    """Only ready ones have a number."""
    assert (await resolve(deployment(), WEB, user)).pod == name


async def test_there_is_no_such_number() -> None:
    assert await refusal(deployment(), WEB, "shop_deploy.web.2") == (
        "Deployment shop/web has 2 ready pods: the last number is 1"
    )
    empty = API({f"{APPS}/deployments/web": workload("d")})
    assert await refusal(empty, WEB, "shop_deploy.web") == "Deployment shop/web has no ready pod"


@pytest.mark.parametrize("name", ["stranger", "orphan"])
async def test_a_pod_that_the_workload_does_not_own_is_refused(name: str) -> None:
    """Its labels may be the workload's."""
    message = await refusal(deployment(), WEB, f"shop_{name}")
    assert message == f"pod {name} is not one of Deployment web, which the grant is for"


async def test_a_pod_of_a_stateful_set_by_its_ordinal() -> None:
    api = API({f"{APPS}/statefulsets/db": workload("s"), f"{PODS}/db-3": pod("db-3", "s"), f"{PODS}/db-4": pod("db-4")})
    assert (await resolve(api, DB, "shop_sts.db.3")).pod == "db-3"
    assert "is not one of StatefulSet db" in await refusal(api, DB, "shop_sts.db.4")
    assert await refusal(api, DB, "shop_sts.db.5") == "there is no pod shop/db-5"


async def test_jobs_and_daemon_sets() -> None:
    for kind, path in (
        (WorkloadKind.JOB, "/apis/batch/v1/namespaces/shop/jobs/x"),
        (WorkloadKind.DAEMON_SET, f"{APPS}/daemonsets/x"),
    ):
        api = API({path: workload("w")}, pods=[pod("x-1", "w")])
        target = Container("shop", Workload(kind, "x"), "app")
        assert (await resolve(api, target, f"shop_{kind.short_name}.x")).pod == "x-1"


async def test_selectors_are_written_as_kubectl_writes_them() -> None:
    expressions = [
        {"key": "tier", "operator": "In", "values": ["a", "b"]},
        {"key": "env", "operator": "NotIn", "values": ["dev"]},
        {"key": "web", "operator": "Exists"},
        {"key": "old", "operator": "DoesNotExist"},
    ]
    selector = {"matchLabels": {"b": "2", "a": "1"}, "matchExpressions": expressions}
    api = API({f"{APPS}/deployments/web": workload("d", **selector)})
    await refusal(api, WEB, "shop_deploy.web")
    assert set(api.selectors) == {"a=1,b=2,tier in (a,b),env notin (dev),web,!old"}


@pytest.mark.parametrize(
    "selector", [{"matchLabels": {}}, {"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}]
)
async def test_a_selector_that_selects_everything_is_refused(selector: dict[str, Any]) -> None:
    message = await refusal(API({f"{APPS}/deployments/web": workload("d", **selector)}), WEB, "shop_deploy.web")
    assert "select" in message


async def test_what_the_person_may_not_see_is_said() -> None:
    api = API({f"{PODS}/web-0": Forbidden('pods "web-0" is forbidden\x1b[2J')})
    message = await refusal(api, ONE, "shop_web-0")
    assert message.startswith("you may not see pod shop/web-0")
    assert message.isprintable()
