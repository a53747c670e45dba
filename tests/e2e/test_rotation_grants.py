"""``deploy/rbac/workload-rotation.yaml`` on API servers: what the restricted user and the nodes may do, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from signer.rotation.servers.key_set import KEY_SET_PATH, MEDIA_TYPE
from signer.testing.api import EmbeddedAPI
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.control_plane import ControlPlane
from tests.support.grants import WORKLOAD_USER
from tests.support.kubectl import find_kubectl, run_kubectl
from tests.support.processes import wait_until
from tests.support.raw_client import RawClient

pytestmark = pytest.mark.slow

FILE: Final = Path(__file__).parents[2] / "deploy/rbac/workload-rotation.yaml"
API = EmbeddedAPI | ControlPlane
CONFIG_MAPS: Final = "/api/v1/namespaces/{}/configmaps"
EVERY_CONFIG_MAP: Final = "/api/v1/configmaps"
ROOT_CAS: Final = "metadata.name=kube-root-ca.crt"


@pytest.fixture(scope="module", params=["embedded", pytest.param("real", marks=pytest.mark.real)])
def api(request: pytest.FixtureRequest) -> Iterator[API]:
    """An API server with the file applied by kubectl, and ConfigMaps that the controller writes and others."""
    try:
        find_kubectl()
    except MissingPart as missing:
        skip_or_fail(missing)
    if request.param == "real":
        real: ControlPlane = request.getfixturevalue("real_control_plane")
        prepare(real)
        yield real
        return
    with EmbeddedAPI() as embedded:
        for name in ("kube-public", "kube-system"):
            embedded.apply_yaml(f"{{apiVersion: v1, kind: Namespace, metadata: {{name: {name}}}}}")
        prepare(embedded)
        yield embedded


def prepare(api: API) -> None:
    applied = run_kubectl(api.kubeconfig(), ["apply", "-f", str(FILE)])
    assert applied.returncode == 0, applied.stderr
    with RawClient(api.connection()) as administrator:
        for namespace, name in (
            ("kube-public", "cluster-info"),
            ("kube-public", "other"),
            ("kube-system", "node-attestation-trust"),
            ("kube-system", "other"),
            ("default", "kube-root-ca.crt"),
        ):
            body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "b"}}
            administrator.post(CONFIG_MAPS.format(namespace), body).expect(201, 409)
    with client(api) as controller, node(api) as kubelet:
        trust = f"{CONFIG_MAPS.format('kube-system')}/node-attestation-trust"
        wait_until(lambda: kubelet.get(trust).status == 200, "the nodes' role is in force")
        wait_until(lambda: may_list_root_cas(controller), "the controller's roles are in force")


def may_list_root_cas(controller: RawClient) -> bool:
    return controller.get(EVERY_CONFIG_MAP, fieldSelector=ROOT_CAS).status == 200


def client(api: API) -> RawClient:
    """The user of the restricted kubeconfig."""
    return RawClient(api.connection(WORKLOAD_USER, ()))


def node(api: API) -> RawClient:
    return RawClient(api.connection("system:node:worker-1", ("system:nodes",)))


def replaced(client: RawClient, namespace: str, name: str) -> int:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "c"}}
    return client.put(f"{CONFIG_MAPS.format(namespace)}/{name}", body).status


def test_the_controller_writes_the_named_objects_and_no_others(api: API) -> None:
    with client(api) as controller:
        assert replaced(controller, "kube-public", "cluster-info") == 200
        assert replaced(controller, "kube-public", "other") == 403
        assert replaced(controller, "kube-system", "node-attestation-trust") == 200
        assert replaced(controller, "kube-system", "other") == 403
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "node-attestation-trust"}}
        assert controller.post(CONFIG_MAPS.format("kube-system"), body).status == 409
        assert controller.post(CONFIG_MAPS.format("kube-public"), body).status == 403


def test_the_controller_lists_what_pods_trust_and_no_other_config_maps(api: API) -> None:
    with client(api) as controller:
        listed = controller.get(EVERY_CONFIG_MAP, fieldSelector=ROOT_CAS).expect(200)["items"]
        assert {one["metadata"]["name"] for one in listed} == {"kube-root-ca.crt"}
        assert controller.get(EVERY_CONFIG_MAP).status == 403
        assert controller.get(EVERY_CONFIG_MAP, fieldSelector="metadata.name=other").status == 403
        assert controller.get(CONFIG_MAPS.format("kube-system")).status == 403


def test_the_controller_reads_the_pods_of_kube_system_alone(api: API) -> None:
    with client(api) as controller:
        assert controller.get("/api/v1/namespaces/kube-system/pods/kube-apiserver-a").status == 404
        assert controller.get("/api/v1/namespaces/default/pods/kube-apiserver-a").status == 403


def test_nodes_read_the_statement_and_change_nothing(api: API) -> None:
    path = CONFIG_MAPS.format("kube-system")
    with node(api) as kubelet:
        assert kubelet.get(f"{path}/node-attestation-trust").status == 200
        assert kubelet.get(f"{path}/other").status == 403
        assert replaced(kubelet, "kube-system", "node-attestation-trust") == 403


def test_the_controller_reads_the_keys_of_service_accounts(api: API) -> None:
    """The embedded API server has none. A real one answers 406 to those who ask for another media type."""
    accept = {"Accept": MEDIA_TYPE}
    with RawClient(api.connection(WORKLOAD_USER, ()), headers=accept) as controller, node(api) as kubelet:
        assert controller.get(KEY_SET_PATH).status == (404 if isinstance(api, EmbeddedAPI) else 200)
        assert kubelet.get(KEY_SET_PATH).status == 403
