"""T1, short: a whole rotation on real API servers, under load."""

from __future__ import annotations

import base64
import os
import secrets
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from signer.configuration import Configuration
from signer.kube.connection import ClusterConnection
from signer.kube.resources import CERTIFICATE_AUTHORITY_ROTATIONS, SECRETS
from signer.rotation.phases import SigningPairs
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster, RunningController
from tests.e2e.rotation.afterwards import ask_all
from tests.e2e.rotation.load import KubectlLoad, Load, LoadClient, status_of
from tests.e2e.rotation.shortened import shortened
from tests.e2e.rotation.world import CLUSTER, NAMESPACE, SETTINGS, RotationWorld
from tests.integration.fixtures import keyed_mac
from tests.support.binaries import MissingPart, find_control_plane, skip_or_fail
from tests.support.certificates import private_key_pem
from tests.support.processes import wait_until
from tests.support.raw_client import RawClient
from tests.support.signing_requests import (
    BUILTIN_SERVING_SIGNER,
    COLLECTION,
    condition,
    request_pem,
    signing_request,
    with_conditions,
)

pytestmark = [
    pytest.mark.real,
    pytest.mark.slow,
    pytest.mark.serial,
    pytest.mark.skipif(
        "NODE_ATTESTATION_ROTATION" not in os.environ, reason="minutes each, on a quiet machine: make rotation"
    ),
]
NODES = 6
ONE_PAIR, SPLIT = SigningPairs.ONE_PAIR, SigningPairs.SPLIT
CLIENT: Final = ("kubernetes.io/kube-apiserver-client", ("digital signature", "client auth"))
SERVING: Final = (BUILTIN_SERVING_SIGNER, ("digital signature", "key encipherment", "server auth"))
BOTH_PAIRS = pytest.mark.parametrize("pairs", [ONE_PAIR, SPLIT], ids=lambda one: one.value, indirect=True)


@pytest.fixture
def pairs(request: pytest.FixtureRequest) -> SigningPairs:
    """What the template has kube-controller-manager sign with."""
    found: SigningPairs = getattr(request, "param", ONE_PAIR)
    return found


@pytest.fixture
def world(management_cluster: ManagementCluster, pairs: SigningPairs) -> Iterator[RotationWorld]:
    """With waits that exist for caches shortened: here every process reads its files at its start."""
    try:
        find_control_plane().kube_controller_manager()
    except MissingPart as missing:
        skip_or_fail(missing)
    with shortened(), RotationWorld(management_cluster, signing_pairs=pairs) as world:
        world.cluster.authorize("keyed-mac", mode="Observe")
        yield world


@pytest.fixture
def controller(world: RotationWorld) -> Iterator[RunningController]:
    configuration = Configuration(
        namespace=CONTROLLER_NAMESPACE, watch_namespace=NAMESPACE, attestors=keyed_mac(), rotation=SETTINGS
    )
    with RunningController(world.management.api.connection(), configuration) as running:
        yield running


@pytest.fixture
def load(world: RotationWorld, controller: RunningController) -> Iterator[Load]:
    """Six nodes and a client with the kubeconfig, together more than 20 requests a second."""
    for number in range(NODES):
        world.add_node(f"worker-{number}")
    clients = [LoadClient(name, node.get_connection) for name, node in world.nodes.items()]
    clients.append(LoadClient("administrator", world.admin_connection))
    with Load(clients, lambda: str(world.record.get("step"))) as load:
        yield load


def shown(world: RotationWorld) -> dict[str, Any]:
    """The rotation in the policy's status, which is written at most every few seconds."""
    found: dict[str, Any] = world.policy["status"]["credentials"]["rotation"]["certificateAuthorities"]
    return found


def only(connection: ClusterConnection, authority: bytes) -> ClusterConnection:
    """A client that trusts this CA alone."""
    return replace(connection, certificate_authority=authority, tls=None)


class Person:
    """Has kube-controller-manager sign certificates, as soon as the rotation says that it is time."""

    def __init__(self, world: RotationWorld, load: Load) -> None:
        self.world = world
        self.connection = world.admin_connection()
        load.add(LoadClient("person", self._present))

    def exchange(self) -> x509.Name:
        """Get a client certificate, and use it in the load from now on; returns its CA."""
        key = ec.generate_private_key(ec.SECP256R1())
        pem = signed_by_controller_manager(self.world, request_pem("person", ("people",), key=key), CLIENT)
        connection = self.world.admin_connection()
        self.connection = replace(connection, client_certificate=pem, client_key=private_key_pem(key))
        return issuer_of(pem)

    def _present(self) -> ClusterConnection:
        trust = self.world.secret("trust")["server-ca.crt"]
        return replace(self.connection, certificate_authority=trust, tls=None)


def signed_by_controller_manager(world: RotationWorld, request: bytes, what: tuple[str, tuple[str, ...]]) -> bytes:
    """The certificate (PEM) that the kube-controller-manager signs that leads now."""
    name = f"exchange-{secrets.token_hex(5)}"
    signer, usages = what
    connection = world.admin_connection()
    if signer == BUILTIN_SERVING_SIGNER:  # only a kubelet may ask
        user, groups = "system:node:exchanging", ("system:nodes", "system:masters")
        connection = world.api.connection(user, groups)
    with RawClient(connection) as client:
        client.post(COLLECTION, signing_request(name, request, signer=signer, usages=usages)).expect(201)
        approved = with_conditions(client.get(f"{COLLECTION}/{name}").body, condition("Approved"))
        client.put(f"{COLLECTION}/{name}/approval", approved).expect(200)

        def text() -> str:
            found: str = client.get(f"{COLLECTION}/{name}").body["status"].get("certificate", "")
            return found

        wait_until(lambda: bool(text()), "kube-controller-manager signs")
        return base64.b64decode(text())


def serving_issuer(world: RotationWorld) -> x509.Name:
    """By which CA kube-controller-manager signs serving certificates of kubelets."""
    request = request_pem("system:node:exchanging", alternative_names=["exchanging"])
    return issuer_of(signed_by_controller_manager(world, request, SERVING))


def issuer_of(pem: bytes) -> x509.Name:
    """The CA of a certificate."""
    return x509.load_pem_x509_certificate(pem).issuer


@BOTH_PAIRS
def test_a_whole_rotation(world: RotationWorld, load: Load, pairs: SigningPairs, tmp_path: Path) -> None:
    kubectl = KubectlLoad(lambda: world.secret("kubeconfig")["value"], tmp_path, load.outcomes)
    former = {name: node.connection for name, node in world.nodes.items()}
    world.order("start-ca-rotation")
    world.until_phase("Prepared", work=kubectl.ask)
    assert world.condition("RollbackAvailable")["reason"] == "Full"
    assert world.authority().certificate_pem == world.old.certificate_pem, "nothing is switched without an order"
    if pairs is SPLIT:
        opened = "ExchangeClientCertificates"
        wait_until(lambda: world.condition(opened)["reason"] == "Open", "the condition follows the record")
        person = Person(world, load)
        assert person.exchange() == world.control_plane.new.name, "GEP-0018: the new CA signs clients in phase one"
        assert serving_issuer(world) == world.old.name
        for server in world.control_plane.servers:
            assert status_of(replace(person.connection, server=server.server)) == 200
    world.order("complete-ca-rotation")
    world.until_phase("Completed", work=kubectl.ask)

    assert load.outcomes.failures == []
    assert set(load.outcomes.answered) == {
        *world.nodes,
        "administrator",
        "kubectl",
        *(["person"] if pairs is SPLIT else []),
    }
    new = world.authority()
    record = world.record
    for answers in ask_all(world, former):
        assert answers.old_is_refused, answers
        assert answers.new_is_accepted, answers
    trust = world.secret("trust")
    assert trust == {"client-ca.crt": new.certificate_pem, "server-ca.crt": new.certificate_pem, "link.crt": b""}
    kept = world.secret(f"ca-{record['rotationID']}-old")
    assert kept == {"tls.crt": world.old.certificate_pem}, "the old key is gone, its certificate stays"
    assert "operation" not in str(world.policy["metadata"].get("annotations"))
    wait_until(lambda: shown(world)["phase"] == "Completed", "the status follows the record")
    status = shown(world)
    assert (status["phase"], status["gepPhase"], status["rollbackAvailable"]) == ("Completed", "Completed", "None")
    rollouts = 4 if pairs is SPLIT else 3
    assert world.provider.rollouts == 2 * rollouts, "of two Machines"
    assert world.record.get("signingPairs", ONE_PAIR.value) == pairs.value
    if pairs is SPLIT:
        pair = {"crt": new.certificate_pem, "key": new.key_pem}
        assert world.secret("signing") == {f"{one}.{end}": pair[end] for one in ("client", "serving") for end in pair}
        assert serving_issuer(world) == new.name


def test_a_server_that_does_not_get_the_bundle_holds_the_rotation(world: RotationWorld, load: Load) -> None:
    """T3: its Machine is named, nothing is signed by the new CA; once it is repaired, the rotation goes on."""
    left_out = world.provider.machines[-1]
    world.provider.leave_out(left_out)
    world.order("start-ca-rotation")

    def named() -> bool:
        world.know_new_authority()
        world.provider.follow()
        progressing = world.condition("CertificateAuthorityRotationProgressing")
        return progressing.get("reason") == "ServersTrust" and left_out.name in progressing["message"]

    wait_until(named, "the condition names the Machine", 60)
    world.nodes["worker-0"].follow()
    issued = world.nodes["worker-0"].issuer
    assert issued == world.old.name, "the old CA signs while one server would refuse the new one"
    world.provider.leave_out(None)
    world.until_phase("Prepared")
    assert load.outcomes.failures == []


@pytest.mark.parametrize(
    ("step", "pairs"),
    [("NodesTrust", ONE_PAIR), ("Prepared", ONE_PAIR), ("Prepared", SPLIT)],
    ids=["NodesTrust", "Prepared", "Prepared-Split"],
    indirect=["pairs"],
)
def test_roll_back(world: RotationWorld, load: Load, step: str, pairs: SigningPairs) -> None:
    """T8: all of it is taken back: the old CA signs, the new one's key is gone, and no client noticed."""
    world.order("start-ca-rotation")
    world.until_step(step)
    person = Person(world, load)
    if pairs is SPLIT:
        assert person.exchange() == world.control_plane.new.name
    rotation_id = world.record["rotationID"]
    world.order("rollback-ca-rotation")
    world.until_phase("RolledBack")
    assert load.outcomes.failures == []
    assert world.authority().certificate_pem == world.old.certificate_pem
    assert set(world.secret(f"ca-{rotation_id}")) == {"tls.crt"}
    for node in world.nodes.values():
        assert node.issuer == world.old.name
        assert status_of(only(node.connection, world.old.certificate_pem)) == 200
    trust = world.secret("trust")
    assert trust["server-ca.crt"] == world.old.certificate_pem
    if pairs is SPLIT:
        assert person.exchange() == world.old.name, "every kube-controller-manager that may lead signs by the old CA"
        assert world.secret("signing")["client.crt"] == world.old.certificate_pem
    assert world.client.get(SECRETS.object(f"{CLUSTER}-ca", NAMESPACE))["type"] == "cluster.x-k8s.io/secret"
    assert world.client.get(CERTIFICATE_AUTHORITY_ROTATIONS.object(CLUSTER, NAMESPACE))
