"""A CA of its own for the nodes' client certificates, on real API servers that read their file while they run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from time import monotonic

import pytest

from attestors.wire import statement
from attestors.wire.statement import ClientRenewal
from attestors.wire.statement.names import RENEWAL_KEY, STATEMENT_CONFIG_MAP, STATEMENT_NAMESPACE
from signer.configuration import Configuration
from signer.kube.backoff import Backoff
from signer.kube.connection import ClusterConnection
from signer.kube.resources import NODE_ATTESTATION_POLICIES
from signer.rotation.node_client import reconciler
from signer.testing.world import CONTROLLER_NAMESPACE, RunningController
from tests.e2e.rotation.test_whole_rotation import pairs as pairs
from tests.e2e.rotation.test_whole_rotation import world as world
from tests.e2e.rotation.world import CLUSTER, NAMESPACE, SETTINGS, RotatedNode, RotationWorld
from tests.integration.fixtures import keyed_mac
from tests.support.certificates import CertificateAuthority
from tests.support.processes import wait_until
from tests.support.raw_client import RawClient

pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.serial,
    pytest.mark.skipif(
        "NODE_ATTESTATION_ROTATION" not in os.environ, reason="minutes each, on a quiet machine: make rotation"
    ),
]
MOST_SECONDS = 180.0
"""Kubernetes 1.20 looks at its files once a minute."""


@pytest.fixture
def controller(world: RotationWorld, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningController]:
    monkeypatch.setattr(reconciler, "WAITING", Backoff(base_seconds=2.0, maximum_seconds=4.0, jitter=0.0))
    configuration = Configuration(
        namespace=CONTROLLER_NAMESPACE,
        watch_namespace=NAMESPACE,
        attestors=keyed_mac(),
        rotation=replace(SETTINGS, node_client_namespaces=frozenset({NAMESPACE})),
    )
    with RunningController(world.management.api.connection(), configuration) as running:
        yield running


def status_at(world: RotationWorld, connection: ClusterConnection, path: str) -> dict[str, int]:
    """What each API server answers, past the load balancer."""
    found = {}
    for server in world.control_plane.servers:
        with RawClient(replace(connection, server=server.server, tls=None)) as client:
            found[server.name] = client.get(path).status
    return found


def serving_certificates(world: RotationWorld) -> list[bytes]:
    return [(server.folder / "serving.crt").read_bytes() for server in world.control_plane.servers]


def test_api_servers_take_it_without_a_restart(world: RotationWorld, controller: RunningController) -> None:
    node = world.add_node("worker-0")
    first, presented = node.issuer, serving_certificates(world)
    policy = NODE_ATTESTATION_POLICIES.object(CLUSTER, NAMESPACE)
    world.client.patch(policy, {"spec": {"nodeClientAuthority": "Separate"}})

    def reason() -> str:
        return str(world.condition("NodeClientAuthoritySigns").get("reason"))

    wait_until(lambda: reason() == "NotAccepted", "the authority is published, and no API server has it")
    one, *others = world.control_plane.servers
    began = monotonic()
    one.accept_pem(world.secret("trust")["client-ca.crt"])
    pair = world.secret("node-client-ca")
    own = CertificateAuthority.from_pem(pair["tls.crt"], pair["tls.key"])
    probe, key = own.issue_client("system:node:probe", ["system:nodes"])
    probing = replace(world.api.connection(), client_certificate=probe, client_key=key)
    wait_until(lambda: status_at(world, probing, "/version")[one.name] == 200, "one has read its file", MOST_SECONDS)
    node.renew()
    assert (reason(), node.issuer) == ("NotAccepted", first), "the other one would refuse such a certificate"
    assert 401 in status_at(world, probing, "/version").values()

    for server in others:
        server.accept_pem(world.secret("trust")["client-ca.crt"])
    wait_until(lambda: reason() == "Signing", "every API server accepts it", MOST_SECONDS)
    node.renew()
    assert node.issuer.rfc4514_string().startswith("CN=kubernetes-node-client-")
    took = monotonic() - began
    print(f"from the first file to the node's certificate: {took:.0f} s")
    assert set(status_at(world, node.connection, "/api/v1/nodes/worker-0").values()) <= {403, 404}
    assert set(status_at(world, node.connection, "/version").values()) == {200}
    assert serving_certificates(world) == presented
    assert world.provider.rollouts == 0


def test_it_is_replaced_and_the_former_one_is_refused_everywhere(
    world: RotationWorld, controller: RunningController
) -> None:
    """With the key of the former one in a thief's hands: administrator before, and nobody afterwards."""
    nodes = [world.add_node(f"worker-{number}") for number in range(2)]
    presented = serving_certificates(world)
    policy = NODE_ATTESTATION_POLICIES.object(CLUSTER, NAMESPACE)
    world.client.patch(policy, {"spec": {"nodeClientAuthority": "Separate"}})

    def reason() -> str:
        return str(world.condition("NodeClientAuthoritySigns").get("reason"))

    def give_the_file() -> None:
        for server in world.control_plane.servers:
            server.accept_pem(world.secret("trust")["client-ca.crt"])

    wait_until(lambda: reason() == "NotAccepted", "the authority is published")
    give_the_file()
    wait_until(lambda: reason() == "Signing", "it signs", MOST_SECONDS)
    for node in nodes:
        node.renew()
    stolen = world.secret("node-client-ca")
    former = CertificateAuthority.from_pem(stolen["tls.crt"], stolen["tls.key"])
    certificate, key = former.issue_client("thief", ["system:masters"])
    thief = replace(world.api.connection(), client_certificate=certificate, client_key=key)
    assert set(status_at(world, thief, "/api/v1/secrets").values()) == {200}

    began = monotonic()
    world.order("rotate-node-client-authority")
    wait_until(lambda: reason() == "NotAccepted", "the next one is published")
    assert world.secret("node-client-ca")["tls.crt"] != stolen["tls.crt"]
    assert world.secret("node-client-ca-old") == stolen
    give_the_file()
    wait_until(lambda: reason() == "NodesRenew", "the next one signs", MOST_SECONDS)
    print(f"until it signs: {monotonic() - began:.0f} s")
    wait_until(lambda: renewal_read_by(nodes[0]) == former.key_identifier.hex(), "nodes read what they are to renew")
    nodes[0].renew()
    assert "worker-1" in world.condition("NodeClientAuthoritySigns")["message"]
    assert set(status_at(world, nodes[1].connection, "/version").values()) == {200}, "a node that is late is accepted"
    nodes[1].renew()
    wait_until(lambda: reason() == "ServersDropFormer", "no node has a certificate of the former one")
    print(f"until every node has another certificate: {monotonic() - began:.0f} s")
    assert stolen["tls.crt"] not in world.secret("trust")["client-ca.crt"]
    give_the_file()
    wait_until(lambda: reason() == "ForgetFormer", "every API server refuses it twice", 2 * MOST_SECONDS)
    print(f"until every API server refuses it twice: {monotonic() - began:.0f} s")
    wait_until(lambda: reason() == "Signing", "its key is deleted", MOST_SECONDS)
    print(f"until its key is deleted: {monotonic() - began:.0f} s")

    assert set(world.secret("node-client-ca-old")) == {"tls.crt"}
    assert set(status_at(world, thief, "/api/v1/secrets").values()) == {401}
    for node in nodes:
        assert set(status_at(world, node.connection, "/version").values()) == {200}
    with RawClient(world.admin_connection()) as client:
        found = client.get("/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication")
    assert stolen["tls.crt"].decode().strip() not in found.body["data"]["client-ca-file"]
    assert serving_certificates(world) == presented
    assert world.provider.rollouts == 0


def renewal_read_by(node: RotatedNode) -> str:
    """The CA of the certificates that a node is told to renew, as it reads it; empty if it cannot."""
    path = f"/api/v1/namespaces/{STATEMENT_NAMESPACE}/configmaps/{STATEMENT_CONFIG_MAP}"
    with RawClient(replace(node.connection, tls=None)) as client:
        found = client.get(path)
    if found.status != 200:
        return ""
    payload = statement.decode(found.body["data"][RENEWAL_KEY].encode()).statement.payload
    assert isinstance(payload, ClientRenewal)
    return payload.authority


def test_what_an_api_server_believes_of_it(world: RotationWorld, controller: RunningController) -> None:
    """Any user and any group: the protection lies in who holds the key."""
    policy = NODE_ATTESTATION_POLICIES.object(CLUSTER, NAMESPACE)
    world.client.patch(policy, {"spec": {"nodeClientAuthority": "Separate"}})
    wait_until(lambda: world.condition("NodeClientAuthoritySigns").get("reason") == "NotAccepted", "it is published")
    pair = world.secret("node-client-ca")
    own = CertificateAuthority.from_pem(pair["tls.crt"], pair["tls.key"])
    certificate, key = own.issue_client("thief", ["system:masters"])
    thief = replace(world.api.connection(), client_certificate=certificate, client_key=key)
    assert set(status_at(world, thief, "/api/v1/secrets").values()) == {401}
    for server in world.control_plane.servers:
        server.accept_pem(world.secret("trust")["client-ca.crt"])
        server.restart()
    assert set(status_at(world, thief, "/api/v1/secrets").values()) == {200}
