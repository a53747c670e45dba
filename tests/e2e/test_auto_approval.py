"""The auto-approval: a bootstrap token takes another node's name from the built-in signer, until Enforce; then nothing
does.

On a real kube-apiserver and kube-controller-manager. First the thief succeeds, so that each failure after it says
something; a request that must stay unanswered is followed by one that the same built-in signer signs.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Iterator
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from attestors.wire.names import (
    ANNOTATION_PREFIX,
    CHALLENGE_ANNOTATION,
    ENDORSEMENT_KEY_ANNOTATION,
    SUPPORTED_VERSIONS_ANNOTATION,
)
from signer.controller.auto_approval import reconciler as reconciler
from signer.kube.client import Client
from signer.kube.connection import ClusterConnection
from signer.kube.resources import (
    CERTIFICATE_SIGNING_REQUESTS,
    CLUSTER_ROLE_BINDINGS,
    CLUSTERS_V1BETA2,
    NODE_ATTESTATION_POLICIES,
)
from signer.testing.api import EmbeddedAPI
from signer.testing.nodes import SimulatedNode
from signer.testing.world import WorldCluster
from tests.e2e.auto_approval_fixtures import (
    ADDRESSES,
    CONTROL_PLANE_HOST,
    KUBEADM_BINDINGS,
    NAMESPACE,
    REFUSED,
    SECRET_PATH,
    THIEF,
    VICTIM,
    AutoApprovalWorld,
    builtin_client_request,
    builtin_serving_request,
    reads_the_secret,
    run_a_pod_on,
)
from tests.integration.endorsement_key_sources import assert_every_certificate_is_permitted
from tests.support import kubeadm
from tests.support.certificates import with_client_certificate
from tests.support.processes import wait_until
from tests.support.raw_client import STRATEGIC_PATCH, RawClient
from tests.support.signing_requests import condition, with_certificate, with_conditions

pytestmark = [pytest.mark.real, pytest.mark.slow]

SMUGGLED = [
    VICTIM,
    ADDRESSES[VICTIM],
    CONTROL_PLANE_HOST,
    "kubernetes",
    "kubernetes.default.svc",
    "10.96.0.1",
    "127.0.0.1",
]
"""What the thief's serving certificate must not be for: the other Machine, the API server, services, everybody."""


@dataclass(frozen=True)
class Loot:
    """What the thief took through the built-in signer."""

    certificate: bytes
    approval: str
    connection: ClusterConnection


@pytest.fixture(scope="module")
def observed(auto_approval_world: AutoApprovalWorld) -> Iterator[AutoApprovalWorld]:
    """The world in Observe; both nodes have joined by attestation, and the controller runs.

    It looks at the door each second instead of every three minutes.
    """
    run_a_pod_on(auto_approval_world, VICTIM)
    with pytest.MonkeyPatch.context() as patch, auto_approval_world.controller():
        patch.setattr(reconciler, "RECHECK_SECONDS", 1.0)
        patch.setattr(reconciler, "MINIMUM_PAUSE_SECONDS", 0.2)
        for machine in (VICTIM, THIEF):
            auto_approval_world.join(machine)
        yield auto_approval_world


@pytest.fixture(scope="module")
def loot(observed: AutoApprovalWorld) -> Loot:
    """Before Enforce: with nothing but a bootstrap token, the thief asks the built-in signer to be the victim."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = observed.post(builtin_client_request(observed.name("theft"), VICTIM, key), observed.as_token_holder())
    observed.not_ours.add(name)
    verdict = observed.cluster.wait_until_decided(name)
    return Loot(
        verdict.certificate,
        verdict.reason,
        with_client_certificate(observed.plane.connection(), verdict.certificate, key),
    )


@pytest.fixture(scope="module")
def world(observed: AutoApprovalWorld, loot: Loot) -> AutoApprovalWorld:
    """The world in Enforce, once the controller says that the auto-approval is shut."""
    observed.set_mode("Enforce")
    observed.wait_until_shut()
    return observed


@pytest.fixture(autouse=True)
def only_what_was_attested_is_certified(auto_approval_world: AutoApprovalWorld) -> Iterator[None]:
    """After each test: every certificate in any CSR has an AttestedNode that permits it."""
    yield
    assert_every_certificate_is_permitted(
        auto_approval_world.management, [auto_approval_world.cluster], not_ours=auto_approval_world.not_ours
    )


def test_before_enforce_the_thief_becomes_the_victim(observed: AutoApprovalWorld, loot: Loot) -> None:
    assert loot.approval == "AutoApproved"
    certificate = x509.load_pem_x509_certificate(loot.certificate)
    assert certificate.subject.rfc4514_string() == f"CN=system:node:{VICTIM},O=system:nodes"
    # The thief's own node may not have the Secret of the victim's Pod; its stolen name may.
    wait_until(lambda: reads_the_secret(observed.as_node(VICTIM)) == 200, "the API server knows whose Pod it is")
    assert reads_the_secret(observed.as_node(THIEF)) == 403
    with RawClient(loot.connection) as client:
        secret = client.get(SECRET_PATH).expect(200)
    assert base64.b64decode(secret["data"]["password"]) == b"of the victim"


def test_shut_means_that_kubeadms_bindings_are_gone(world: AutoApprovalWorld) -> None:
    assert not set(KUBEADM_BINDINGS) & set(world.bindings())


class TestBuiltinSigners:
    """Approved by nobody, or denied by the controller; kube-controller-manager works all the while."""

    def test_the_token_gets_no_client_certificate(self, world: AutoApprovalWorld) -> None:
        request = builtin_client_request(world.name("stock-client"), VICTIM)
        world.assert_gets_no_client_certificate(request, world.as_token_holder())

    @pytest.mark.parametrize("node_name", [THIEF, VICTIM])
    def test_a_node_cannot_renew_past_attestation(self, world: AutoApprovalWorld, node_name: str) -> None:
        request = builtin_client_request(world.name("stock-renewal"), node_name)
        # NodeRestriction of newer API servers refuses another node's name before the controller's policy does.
        refused_as = REFUSED if node_name == THIEF else "can only create a node CSR with CN="
        world.assert_gets_no_client_certificate(request, world.as_node(THIEF), refused_as=refused_as)

    def test_what_was_stolen_before_cannot_be_renewed(self, world: AutoApprovalWorld, loot: Loot) -> None:
        request = builtin_client_request(world.name("stolen-renewal"), VICTIM)
        world.assert_gets_no_client_certificate(request, loot.connection)
        evidence_of_the_thief = world.node(THIEF).but(node_name=VICTIM, provider_id=f"test:///{VICTIM}")
        name = world.post(evidence_of_the_thief.client_request(world.name("stolen-renewal")), loot.connection)
        world.assert_denied(name, "BindingMismatch")

    def test_an_attested_node_has_its_serving_certificate(self, world: AutoApprovalWorld) -> None:
        request = builtin_serving_request(world.name("stock-serving"), VICTIM, VICTIM, ADDRESSES[VICTIM])
        verdict = world.cluster.wait_until_decided(world.post(request, world.as_node(VICTIM)))
        assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict
        assert verdict.certificate

    @pytest.mark.parametrize("smuggled", SMUGGLED)
    def test_no_alternative_name_is_smuggled(self, world: AutoApprovalWorld, smuggled: str) -> None:
        names = (THIEF, ADDRESSES[THIEF], smuggled)
        name = world.post(builtin_serving_request(world.name("stock-serving"), THIEF, *names), world.as_node(THIEF))
        world.assert_denied(name, "InvalidSubjectAlternativeNames")

    def test_no_node_serves_under_anothers_name(self, world: AutoApprovalWorld) -> None:
        request = builtin_serving_request(world.name("stock-serving"), VICTIM, VICTIM)
        if world.post_unless_forbidden(request, world.as_node(THIEF)):
            world.assert_denied(request["metadata"]["name"], "RequesterNotAllowed")

    def test_the_token_gets_no_serving_certificate(self, world: AutoApprovalWorld) -> None:
        request = builtin_serving_request(world.name("stock-serving"), VICTIM, VICTIM)
        name = world.post(request, world.as_token_holder())
        # Not denied, because it is none of the controller's business: nobody approves such requests by themselves.
        later = world.post(builtin_serving_request(world.name("later"), THIEF, "kubernetes"), world.as_node(THIEF))
        world.assert_denied(later, "InvalidSubjectAlternativeNames")
        verdict = world.cluster.verdict(name)
        assert (verdict.condition, verdict.certificate) == ("", b""), verdict


class TestOurSigners:
    """Denied, each for its reason."""

    def test_the_token_and_a_true_machine_give_no_other_name(self, world: AutoApprovalWorld) -> None:
        request = world.node(THIEF).but(node_name=VICTIM).client_request(world.name("other-name"))
        world.assert_denied(world.post(request, world.as_token_holder()), "NodeNameMismatch")

    def test_renewal_keeps_the_name(self, world: AutoApprovalWorld) -> None:
        request = world.node(THIEF).but(node_name=VICTIM).client_request(world.name("other-name"))
        world.assert_denied(world.post(request, world.as_node(THIEF)), "RequesterNotAllowed")

    def test_annotations_of_the_requester_say_nothing(self, world: AutoApprovalWorld) -> None:
        annotations = {
            ENDORSEMENT_KEY_ANNOTATION: base64.b64encode(b"the thief's own").decode(),
            CHALLENGE_ANNOTATION: "answered",
            SUPPORTED_VERSIONS_ANNOTATION: "v1",
            f"{ANNOTATION_PREFIX}/approved": "true",
            f"{ANNOTATION_PREFIX}/node-name": VICTIM,
        }
        copied = world.node(VICTIM).evidence()
        pretender = world.node(THIEF).but(node_name=VICTIM, provider_id=f"test:///{VICTIM}")
        for request, reason in (
            (world.node(THIEF).but(node_name=VICTIM).client_request(world.name("annotated")), "NodeNameMismatch"),
            (pretender.client_request(world.name("annotated"), evidence_of=copied), "BindingMismatch"),
        ):
            request["metadata"]["annotations"] = annotations
            world.assert_denied(world.post(request, world.as_token_holder()), reason)
        builtin = builtin_client_request(world.name("annotated"), VICTIM, annotations=annotations)
        world.assert_gets_no_client_certificate(builtin, world.as_token_holder())

    def test_an_attested_node_has_its_serving_certificate(self, world: AutoApprovalWorld) -> None:
        request = _serving_request(world, world.node(VICTIM), VICTIM, ADDRESSES[VICTIM])
        verdict = world.cluster.wait_until_decided(world.post(request, world.as_node(VICTIM)))
        assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict

    @pytest.mark.parametrize("smuggled", SMUGGLED)
    def test_no_alternative_name_is_smuggled(self, world: AutoApprovalWorld, smuggled: str) -> None:
        request = _serving_request(world, world.node(THIEF), THIEF, ADDRESSES[THIEF], smuggled)
        world.assert_denied(world.post(request, world.as_node(THIEF)), "InvalidSubjectAlternativeNames")

    def test_a_node_cannot_change_what_it_asked_for(self, world: AutoApprovalWorld) -> None:
        request = builtin_client_request(world.name("changed"), VICTIM)
        if world.refuses_at_admission:  # no client request is stored that could be changed
            request = builtin_serving_request(world.name("changed"), VICTIM, VICTIM)
        name = world.post(request, world.as_token_holder())
        path = CERTIFICATE_SIGNING_REQUESTS.object(name)
        found = world.cluster.client().get(path)
        approved = with_conditions(found, condition("Approved"))
        annotated = {"metadata": {"annotations": {ENDORSEMENT_KEY_ANNOTATION: "the thief's own"}}}
        for machine in (THIEF, VICTIM):
            with RawClient(world.as_node(machine)) as node:
                for answer in (
                    node.put(path, {**found, "metadata": {**found["metadata"], **annotated["metadata"]}}),
                    node.patch(path, annotated),
                    node.patch(path, annotated, STRATEGIC_PATCH),
                    node.put(f"{path}/approval", approved),
                    node.patch(f"{path}/approval", {"status": approved["status"]}),
                    node.put(f"{path}/status", with_certificate(approved, world.plane.ca_certificate_pem)),
                    node.delete(path),
                ):
                    assert (answer.status, answer.reason) == (403, "Forbidden"), answer
        assert world.cluster.client().get(path) == found
        if not world.refuses_at_admission:
            world.assert_waits_for_ever(name)

    @pytest.mark.parametrize("subresource", ["approval", "status"])
    def test_a_request_of_the_same_name_is_another_request(
        self, world: AutoApprovalWorld, monkeypatch: pytest.MonkeyPatch, subresource: str
    ) -> None:
        """Just before approval or certificate is written, a cleaner deletes it, and the thief is ready."""
        honest = world.node(VICTIM)
        request = honest.client_request(world.name("recreated"))
        name = request["metadata"]["name"]
        pretender = world.node(THIEF).but(node_name=VICTIM, provider_id=honest.provider_id)
        forged = pretender.client_request(name, evidence_of=honest.evidence())

        def swap() -> None:
            with RawClient(world.plane.connection()) as cleaner:
                cleaner.delete(CERTIFICATE_SIGNING_REQUESTS.object(name)).expect(200)
            world.post(forged, world.as_token_holder())

        swapped = _before_the_write(
            monkeypatch, CERTIFICATE_SIGNING_REQUESTS.object(name, subresource=subresource), swap
        )
        world.post(request, world.as_token_holder())
        wait_until(lambda: bool(swapped), "the request was swapped under the controller's hand")
        world.assert_denied(name, "BindingMismatch")
        now = world.cluster.client().get(CERTIFICATE_SIGNING_REQUESTS.object(name))
        assert now["spec"]["request"] == forged["spec"]["request"]

    def test_a_node_ref_gives_no_name(self, world: AutoApprovalWorld) -> None:
        """The thief's kubelet registered under the victim's provider ID, and Cluster API believed it."""
        machine = {"metadata": {"name": THIEF}}
        waiting = world.node(THIEF).client_request(world.name("node-ref"))
        world.cluster.set_machine_status(machine, {"nodeRef": {"name": VICTIM}})
        try:
            for connection in (world.as_token_holder(), world.as_node(VICTIM)):
                request = world.node(THIEF).but(node_name=VICTIM).client_request(world.name("node-ref"))
                world.assert_denied(world.post(request, connection), "NodeNameMismatch")
            # Its own name is not proven wrong for good: it waits until somebody has looked.
            name = world.post(waiting, world.as_node(THIEF))
            world.management.client.wait_for_any(
                "/api/v1/namespaces/auto-approval/events",
                lambda event: event["reason"] == "NodeRefDisagrees" and event["involvedObject"]["name"] == THIEF,
            )
            assert world.cluster.verdict(name).condition == ""
        finally:
            world.cluster.set_machine_status(machine, {"nodeRef": {"name": THIEF}})
        assert world.cluster.wait_until_decided(name).condition == "Approved"


class TestTheDoorStaysShut:
    """Whatever the bindings are called, and whatever becomes of the policy during a move."""

    @pytest.fixture
    def attack(self, world: AutoApprovalWorld) -> Iterator[None]:
        """Afterwards the door is shut as before, and the thief tries again."""
        yield
        world.wait_until_shut()
        request = builtin_client_request(world.name("stock-client"), VICTIM)
        world.assert_gets_no_client_certificate(request, world.as_token_holder())

    @pytest.mark.usefixtures("attack")
    @pytest.mark.parametrize("group", [kubeadm.NODE_TOKEN_GROUP, "system:bootstrappers", "system:authenticated"])
    def test_a_second_binding_under_another_name_is_removed(self, world: AutoApprovalWorld, group: str) -> None:
        name = world.name("nothing-of-interest")  # one that came back each time would be another attack
        binding = kubeadm.cluster_role_binding(name, kubeadm.NODECLIENT, group)
        world.management.client.create(CLUSTER_ROLE_BINDINGS.collection(), binding)
        wait_until(lambda: name not in world.bindings(), "the second binding is removed")

    @pytest.mark.usefixtures("attack")
    def test_a_second_binding_that_grants_more_is_named(self, world: AutoApprovalWorld) -> None:
        client = world.management.client
        rules = [
            {"apiGroups": ["certificates.k8s.io"], "resources": ["*/nodeclient"], "verbs": ["create"]},
            {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]},
        ]
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "rules": rules}
        client.create(f"{kubeadm.RBAC}/clusterroles", {**role, "metadata": {"name": "something-more"}})
        binding = kubeadm.cluster_role_binding("something-more", "something-more", kubeadm.NODE_TOKEN_GROUP)
        client.create(CLUSTER_ROLE_BINDINGS.collection(), binding)
        try:
            said = world.wait_for_auto_approval_removed("False", "GrantedByOtherBinding")
            assert "something-more" in said["message"]
            assert "something-more" in world.bindings()
        finally:
            client.delete(CLUSTER_ROLE_BINDINGS.object("something-more"))

    @pytest.mark.usefixtures("attack")
    def test_bindings_that_kubeadm_upgrade_brought_back_are_removed(self, world: AutoApprovalWorld) -> None:
        world.plane.seed_kubeadm()
        wait_until(lambda: not set(KUBEADM_BINDINGS) & set(world.bindings()), "kubeadm's bindings are removed again")

    @pytest.mark.usefixtures("attack")
    @pytest.mark.parametrize("sign", ["the Cluster is paused", "the policy is deleted for the move"])
    def test_a_move_gives_nothing_back(self, world: AutoApprovalWorld, canary: WorldCluster, sign: str) -> None:
        """Cluster API's ``clusterctl move`` deletes at the source what lives on at the target."""
        policy = NODE_ATTESTATION_POLICIES.object(world.cluster.name, NAMESPACE)
        if sign == "the Cluster is paused":
            world.cluster.patch({"spec": {"paused": True}})
        else:
            for_move = {"metadata": {"annotations": {"clusterctl.cluster.x-k8s.io/delete-for-move": ""}}}
            world.management.client.patch(policy, for_move)
        world.management.client.delete(policy)
        # Another cluster's policy is deleted after it, for good: by the time that shows, the move's has been seen.
        world.management.client.delete(NODE_ATTESTATION_POLICIES.object(canary.name, NAMESPACE))
        wait_until(lambda: set(KUBEADM_BINDINGS) <= bindings_of(canary), "the canary's bindings are restored")
        request = builtin_client_request(world.name("stock-client"), VICTIM)
        world.assert_gets_no_client_certificate(request, world.as_token_holder())
        assert not set(KUBEADM_BINDINGS) & set(world.bindings())
        world.cluster.authorize("keyed-mac", mode="Enforce")
        world.cluster.patch({"spec": {"paused": None}})


@pytest.fixture
def canary(world: AutoApprovalWorld) -> Iterator[WorldCluster]:
    """Another cluster of the same controller, in Enforce, without any Machine."""
    with EmbeddedAPI(seed_kubeadm=True) as api:
        cluster = world.management.add_cluster(world.name("canary"), api, namespace=NAMESPACE)
        cluster.authorize("keyed-mac", mode="Enforce")
        wait_until(lambda: not set(KUBEADM_BINDINGS) & bindings_of(cluster), "the canary's auto-approval is shut")
        yield cluster
        world.management.client.delete(CLUSTERS_V1BETA2.object(cluster.name, NAMESPACE))
        cluster.close()


def bindings_of(cluster: WorldCluster) -> set[str]:
    """The names of that cluster's ClusterRoleBindings."""
    return {item["metadata"]["name"] for item in cluster.client().items(CLUSTER_ROLE_BINDINGS.collection())}


def _serving_request(world: AutoApprovalWorld, node: SimulatedNode, *names: str) -> dict[str, Any]:
    addresses = [ip_address(name) for name in names if name[0].isdigit()]
    dns_names = [name for name in names if not name[0].isdigit()]
    return node.serving_request(world.name("serving"), dns_names=dns_names, ip_addresses=addresses)


def _before_the_write(monkeypatch: pytest.MonkeyPatch, path: str, act: Any) -> list[str]:
    """Act once, in the moment before the controller's first write to that path; the list says that it happened."""
    happened: list[str] = []
    replace = Client.replace

    async def replace_after_the_act(self: Client, written: str, body: dict[str, Any]) -> dict[str, Any]:
        if written == path and not happened:
            happened.append(written)
            await asyncio.to_thread(act)
        return await replace(self, written, body)

    monkeypatch.setattr(Client, "replace", replace_after_the_act)
    return happened
