"""The admission policies of mode Enforce at a real API server: what they refuse from the first moment, and what not.

From Kubernetes 1.30 on. Before, the condition says that they are not served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from attestors.wire.names import BuiltinSigner, Purpose, SignerName
from signer.admission.manifests import AdmissionVersion, binding_manifest, policy_manifest
from signer.controller.auto_approval.findings import Situation
from signer.controller.auto_approval.refusal import BuiltinRequestRefusal
from signer.controller.auto_approval.refusal_policies import APPROVERS, CLIENT_SIGNERS, NODES, TOKENS
from signer.kube.client import Client
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.model.cluster import ClusterView
from signer.model.condition import PolicyCondition
from tests.conformance.api import version_of
from tests.e2e.auto_approval_fixtures import BUILTIN_CLIENT_USAGES
from tests.support import kubeadm
from tests.support.control_plane import ControlPlane
from tests.support.grants import WORKLOAD_USER, grant_in_workload_cluster
from tests.support.processes import wait_until
from tests.support.raw_client import Answer, RawClient
from tests.support.rotation_operations import grant
from tests.support.signing_requests import condition, request_pem, signing_request, with_conditions
from tests.unit.signer.builders import cluster_view, policy
from tests.unit.signer.store.removed_bindings_fixtures import ObjectStore, removed_bindings

pytestmark = [pytest.mark.real, pytest.mark.slow]

FIRST_VERSION: Final = (1, 30)
HASH: Final = f"sha256:{'ab' * 32}"
NODE: Final = "system:node:node-1"
TOKEN: Final = "system:bootstrap:abcdef"
TOKEN_GROUPS: Final = ("system:bootstrappers", kubeadm.NODE_TOKEN_GROUP)
MANIFESTS: Final = tuple(
    render(one.policy, AdmissionVersion.V1) for one in (TOKENS, NODES) for render in (policy_manifest, binding_manifest)
)
REFUSED: Final = "mode Enforce refuses"


class World:
    """One API server, the controller's user with the grants of ``deploy/rbac``, and everybody who posts requests."""

    def __init__(self, plane: ControlPlane, admin: RawClient) -> None:
        self.plane = plane
        self.admin = admin
        self.refusal = BuiltinRequestRefusal(removed_bindings(ObjectStore()), lambda: datetime.now(UTC))
        self.key = ec.generate_private_key(ec.SECP256R1())

    async def refuse(
        self, *unattested: str, cluster: ClusterView | None = None, user: str = WORKLOAD_USER
    ) -> PolicyCondition:
        situation = Situation(policy(mode="Enforce"), cluster or cluster_view(), HASH, unattested, frozenset())
        async with Client(self.plane.connection(user, ())) as client:
            return await self.refusal.refuse(client, situation)

    async def refuse_until(self, met: bool, reason: str, *unattested: str) -> PolicyCondition:
        """Check again until the condition is so: an API server applies a policy after some seconds."""
        async with asyncio.timeout(60):
            while True:
                found = await self.refuse(*unattested)
                if (found.met, found.reason) == (met, reason):
                    return found
                assert found.reason == "NotProven", found

    def post(self, user: str, groups: tuple[str, ...], signer: str, usages: tuple[str, ...] = ()) -> Answer:
        with RawClient(self.plane.connection(user, groups)) as client:
            request = signing_request(
                "unused", request_pem(NODE, key=self.key), signer=signer, usages=usages or BUILTIN_CLIENT_USAGES
            )
            request["metadata"] = {"generateName": "posted-"}
            return client.post(CERTIFICATE_SIGNING_REQUESTS.collection(), request)

    def post_with_token(self, signer: str = CLIENT_SIGNERS[0]) -> Answer:
        return self.post(TOKEN, TOKEN_GROUPS, signer)

    def post_as_node(self, signer: str = CLIENT_SIGNERS[0]) -> Answer:
        return self.post(NODE, ("system:nodes",), signer)

    def approve(self, request: dict[str, Any], user: str, groups: tuple[str, ...] = ()) -> Answer:
        with RawClient(self.plane.connection(user, groups)) as client:
            path = CERTIFICATE_SIGNING_REQUESTS.object(request["metadata"]["name"], subresource="approval")
            return client.put(path, with_conditions(request, condition("Approved")))

    async def leave(self) -> None:
        async with Client(self.plane.connection(WORKLOAD_USER, ())) as client:
            await self.refusal.withdraw(client)


def _delete(admin: RawClient) -> None:
    for manifest in reversed(MANIFESTS):
        admin.delete(manifest.path)


@pytest.fixture(scope="module")
def version(real_control_plane: ControlPlane) -> tuple[int, int]:
    with RawClient(real_control_plane.connection()) as client:
        return version_of(client)


@pytest.fixture(scope="module")
def prepared(real_control_plane: ControlPlane, version: tuple[int, int]) -> Iterator[RawClient]:
    """kubeadm's grants, the controller's, and those with which kube-controller-manager approves."""
    real_control_plane.seed_kubeadm()
    grant_in_workload_cluster(real_control_plane.connection(), real_control_plane.connection(WORKLOAD_USER, ()))
    with RawClient(real_control_plane.connection()) as admin:
        signers = {"apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "verbs": ["approve"]}
        approval = {
            "apiGroups": ["certificates.k8s.io"],
            "resources": ["certificatesigningrequests/approval"],
            "verbs": ["update"],
        }
        for approver in APPROVERS if version >= FIRST_VERSION else ():
            grant(admin, approver, [signers, approval])
        yield admin
        _delete(admin)


@pytest.fixture
def world(real_control_plane: ControlPlane, prepared: RawClient, version: tuple[int, int]) -> World:
    if version < FIRST_VERSION:
        found = f"kube-apiserver {version[0]}.{version[1]}"
        pytest.skip(f"{found} serves no admission policies: set KUBEBUILDER_ASSETS to 1.30 or newer")
    _delete(prepared)
    made = World(real_control_plane, prepared)
    wait_until(lambda: made.post_with_token().status == 201, "no policy is in force")
    wait_until(lambda: made.post_as_node().status == 201, "no policy is in force")
    return made


async def test_an_api_server_that_is_too_old_is_named(
    real_control_plane: ControlPlane, prepared: RawClient, version: tuple[int, int]
) -> None:
    if version >= FIRST_VERSION:
        pytest.skip(f"kube-apiserver {version[0]}.{version[1]} serves admission policies")
    world = World(real_control_plane, prepared)
    found = await world.refuse()
    assert (found.met, found.reason) == (False, "NotServed")
    assert "before 1.30" in found.message
    await world.leave()


async def test_tokens_are_refused_at_once_and_nodes_when_all_are_attested(world: World) -> None:
    pending = [world.post_with_token().expect(201), world.post_as_node().expect(201)]
    said = await world.refuse_until(False, "WaitingForAttestation", "Machine old-node")
    assert "Machine old-node" in said.message
    for signer in CLIENT_SIGNERS:
        answer = world.post_with_token(signer)
        assert (answer.status, REFUSED in answer.message) == (403, True), answer.text
        world.post_as_node(signer).expect(201)
    said = await world.refuse_until(True, "Proven")
    assert "since" in said.message
    for signer in CLIENT_SIGNERS:
        for answer in (world.post_with_token(signer), world.post_as_node(signer)):
            assert (answer.status, REFUSED in answer.message) == (403, True), answer.text
    # What was posted before is not approved by the automatic approver either, whatever bindings come back.
    for approver in APPROVERS:
        for request in pending:
            answer = world.approve(request, approver)
            assert (answer.status, REFUSED in answer.message) == (403, True), answer.text
    for request in pending:
        world.approve(request, "kubernetes-admin", ("system:masters",)).expect(200)


async def test_what_everybody_else_needs_passes(world: World) -> None:
    await world.refuse_until(True, "Proven")
    client = str(SignerName(Purpose.CLIENT, "tpm"))
    world.post_with_token(client).expect(201)
    world.post_as_node(client).expect(201)
    serving = ("digital signature", "key encipherment", "server auth")
    world.post(NODE, ("system:nodes",), BuiltinSigner.KUBELET_SERVING.value, serving).expect(201)
    for signer in CLIENT_SIGNERS:
        answer = world.post("kubernetes-admin", ("system:masters",), signer)
        request = answer.expect(201)
        world.approve(request, APPROVERS[0]).expect(200)


async def test_a_machine_that_is_not_attested_later_opens_nothing(world: World) -> None:
    await world.refuse_until(True, "Proven")
    assert (await world.refuse("Machine late")).reason == "Proven"
    # Nor does a controller that starts anew.
    world.refusal = World(world.plane, world.admin).refusal
    assert (await world.refuse("Machine late")).reason == "Proven"
    assert world.post_as_node().status == 403


@pytest.mark.parametrize("number", range(4))
async def test_what_somebody_changes_or_deletes_is_restored_and_reported(world: World, number: int) -> None:
    said = await world.refuse_until(True, "Proven")
    assert "somebody" not in said.message
    manifest = MANIFESTS[number]
    change = {"spec": {"failurePolicy": "Ignore"}} if number % 2 == 0 else {"spec": {"validationActions": ["Audit"]}}
    world.admin.patch(manifest.path, change).expect(200)
    said = await world.refuse_until(True, "Proven")
    assert f"somebody had changed or deleted {manifest.name}, restored at" in said.message
    assert world.admin.get(manifest.path).expect(200)["spec"] == manifest.body["spec"]
    world.refusal = World(world.plane, world.admin).refusal
    await world.refuse_until(True, "Proven")
    world.admin.delete(manifest.path).expect(200)
    said = await world.refuse_until(True, "Proven")
    assert f"somebody had changed or deleted {manifest.name}, restored at" in said.message


async def test_leaving_takes_both_away(world: World) -> None:
    await world.refuse_until(True, "Proven")
    await world.leave()
    assert [world.admin.get(manifest.path).status for manifest in MANIFESTS] == [404] * 4
    wait_until(lambda: world.post_with_token().status == 201, "tokens are not refused any more")
    wait_until(lambda: world.post_as_node().status == 201, "nodes are not refused any more")
    assert (await world.refuse("Machine old-node")).reason in ("WaitingForAttestation", "NotProven")


async def test_a_paused_cluster_is_left_as_it_is(world: World) -> None:
    paused = replace(cluster_view(), paused=True)
    found = await world.refuse(cluster=paused)
    assert (found.met, found.reason) == (False, "Paused")
    assert world.admin.get(MANIFESTS[0].path).status == 404
    await world.refuse_until(True, "Proven")
    assert (await world.refuse(cluster=paused)).reason == "Proven"


async def test_without_the_rights_the_condition_names_the_role(world: World) -> None:
    found = await world.refuse(user="stranger")
    assert (found.met, found.reason) == (False, "Forbidden")
    assert "node-attestation-admission-policies" in found.message
    assert world.admin.get(MANIFESTS[0].path).status == 404
