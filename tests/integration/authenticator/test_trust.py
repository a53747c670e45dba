"""From the published statement to a kubelet that trusts it, with the grants of a node and of a controller."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest

from attestors.wire.statement import ClusterIdentity, PinnedController
from authenticator.api.errors import Forbidden
from authenticator.api.server import ApiServer
from authenticator.configuration import Trust
from authenticator.flow.asking import client_certificate
from authenticator.flow.node_api import ServedNodeApi
from authenticator.flow.prepare import ExecStanza, prepare
from authenticator.flow.trust import TrustStep
from signer.authority import CertificateAuthority, load_certificate_authority
from signer.kube.client import Client
from signer.kube.errors import Forbidden as ControllerForbidden
from signer.rotation.statements import TrustFacts, publish_statement
from signer.testing.api import EmbeddedAPI
from tests.integration.authenticator.fixtures import DAY, LONG_AGO, Node
from tests.support.statements import ROTATION, authority, bundle_of, controller
from tests.unit.authenticator.builders import V1
from tests.unit.authenticator.flow.trust_fixtures import PlayedKubelet

ROOT: Final = Path(__file__).parents[3]
CONTROLLER: Final = "node-attestation-controller"
CLUSTER: Final = ClusterIdentity("fleet", "prod", "u-1")


@pytest.fixture
def granted(api: EmbeddedAPI) -> EmbeddedAPI:
    api.apply_yaml((ROOT / "deploy" / "rbac" / "workload-rotation.yaml").read_text(encoding="utf-8"))
    for item in api.objects("configmaps"):
        if item["metadata"]["name"] == "node-attestation-trust":
            api.delete("configmaps", item["metadata"]["name"], item["metadata"]["namespace"])
    return api


def old_authority(api: EmbeddedAPI) -> CertificateAuthority:
    """The CA of the API server."""
    data = {"tls.crt": api.ca_certificate_pem, "tls.key": api.ca_key_pem}
    return load_certificate_authority(data, now=datetime.now(UTC))


def facts(api: EmbeddedAPI, node: Node) -> TrustFacts:
    return TrustFacts(CLUSTER, ROTATION, 1, (authority("new"), old_authority(api)), (), (node.name,), 120)


async def publish(api: EmbeddedAPI, node: Node, user: str = CONTROLLER) -> bool:
    async with Client(api.connection(user, ())) as client:
        return (await publish_statement(client, facts(api, node), controller(), datetime.now(UTC))).written


class BeatingKubelet(PlayedKubelet):
    """It sends a heartbeat whenever it is looked at."""

    beat: Callable[[], None] = staticmethod(lambda: None)

    def problem(self) -> str:
        self.beat()
        return super().problem()


async def test_the_node_trusts_what_the_controller_publishes(granted: EmbeddedAPI, node: Node) -> None:
    node.put_pair(age=LONG_AGO, left=DAY)
    node.supply_bootstrap()
    stanza = ExecStanza("/usr/local/bin/kubelet-authenticator", ["credential"], V1)
    prepare(node.configuration, node.store, stanza, node.time.clock())
    node.configuration.bootstrap_kubeconfig.unlink()
    node.store.save_pin(PinnedController(CLUSTER, controller().public, 1))
    client_authority = node.folder / "ca.crt"
    client_authority.write_bytes(granted.ca_certificate_pem)
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    made = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": node.name}}
    granted.create(made)
    granted.update({**made, "status": status}, "status")
    lease: dict[str, Any] = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {}}
    lease["metadata"] = {"name": node.name, "namespace": "kube-node-lease"}
    granted.create(lease)
    kubelet = BeatingKubelet(node.folder, node.store.authority_file)
    beats = iter(range(60))

    def beat() -> None:
        spec = {"renewTime": f"2026-01-01T00:00:{next(beats):02}.000000Z"}
        (found,) = granted.objects("leases", "kube-node-lease")
        granted.update({**found, "spec": spec})

    kubelet.beat = beat
    kubelet.start()
    step = TrustStep(
        node.configuration,
        Trust((client_authority,), authority_files_may_be_missing=False),
        node.store,
        node.time.clock(),
        node.reports.append,
        kubelet,
    )
    step.turn()
    assert node.reports == [], "nothing is published"
    assert await publish(granted, node)
    assert not await publish(granted, node)
    for _ in range(12):
        node.time.pass_by(step.turn())
        if node.store.trust_state().sequence:
            break
    wanted = bundle_of(authority("new"), old_authority(granted))
    assert node.store.trust_state().rejection is None
    assert node.store.authority_file.read_text() == client_authority.read_text() == kubelet.loaded == wanted


async def test_nodes_read_the_statement_and_no_other_config_map(granted: EmbeddedAPI, node: Node) -> None:
    pair = node.put_pair(age=LONG_AGO, left=DAY)
    server = ApiServer(node.cluster, client_certificate(pair))
    asked = ServedNodeApi(server, node.name)
    assert asked.statement() is None
    await publish(granted, node)
    assert asked.statement() is not None
    with pytest.raises(Forbidden):
        server.read("/api/v1/namespaces/kube-system/configmaps/another")


async def test_without_the_grants_nothing_is_published_and_nothing_read(node: Node) -> None:
    with EmbeddedAPI(seed_kubeadm=True) as api:
        with pytest.raises(ControllerForbidden):
            await publish(api, node)
        async with Client(api.connection()) as client:
            await publish_statement(client, facts(api, node), controller(), datetime.now(UTC))
        elsewhere = Node.new(node.folder, api)
        pair = elsewhere.put_pair(age=LONG_AGO, left=DAY)
        server = ApiServer(elsewhere.cluster, client_certificate(pair))
        assert ServedNodeApi(server, elsewhere.name).statement() is None
