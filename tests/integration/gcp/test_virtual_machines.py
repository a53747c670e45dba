"""Virtual machines join, renew and serve: the real agent plugin, the real controller, a fake Google between them."""

from __future__ import annotations

from datetime import timedelta
from ipaddress import ip_address

import pytest
from cryptography import x509

from attestors.gcp import certificate_source
from attestors.registry import Registry
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS, NODE_ATTESTATION_POLICIES
from signer.testing.world import Verdict, WorldCluster
from tests.integration.fixtures import Harness, assert_one_certificate, assert_readable, certificate_of, pending
from tests.integration.gcp.virtual_machine import OTHER_PROJECT, VirtualMachine, csr, new_instance
from tests.integration.kubelets import builtin_serving_request
from tests.support.fake_google import FakeGoogle, Fault, Service, encode_token, identity_claims
from tests.support.fake_google.signing import signing_key
from tests.support.processes import wait_until

pytestmark = pytest.mark.slow

HOUR = timedelta(hours=1)


@pytest.fixture
def victim(google: FakeGoogle, cluster: WorldCluster) -> VirtualMachine:
    return VirtualMachine.start(google, cluster)


@pytest.fixture
def attacker(google: FakeGoogle, cluster: WorldCluster) -> VirtualMachine:
    """An instance of the same project and cluster, whose owner does what it wants."""
    return VirtualMachine.start(google, cluster)


def assert_denied(verdict: Verdict, reason: str, part: str = "") -> None:
    assert (verdict.condition, verdict.reason, verdict.certificate) == ("Denied", reason, b""), verdict
    assert_readable(verdict.message, "eyJ")
    assert part in verdict.message


def assert_issued(verdict: Verdict) -> None:
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict


def honest_token(machine: VirtualMachine) -> str:
    return machine.google.identity_token(machine.instance, machine.audience())


class TestHonest:
    def test_join_and_renewal(self, running: Harness, victim: VirtualMachine) -> None:
        join, renewal = csr("join"), csr("renewal")
        verdict = victim.ask(join)
        assert_issued(verdict)
        name = victim.instance.name
        assert certificate_of(verdict).subject.rfc4514_string() == f"CN=system:node:{name},O=system:nodes"
        credential = victim.node.connection(victim.cluster.api.connection(), verdict.certificate)
        assert_issued(victim.but(credential=credential).with_new_key().ask(renewal))
        assert_one_certificate(running, victim.cluster, name, join, renewal)
        (record,) = [one for one in running.records(victim.cluster) if one["spec"]["machineRef"]["name"] == name]
        assert record["spec"]["identity"] == f"gcp:730000000001:{victim.instance.instance_id}"

    def test_join_while_keys_rotate(
        self, google: FakeGoogle, victim: VirtualMachine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        victim.joined()
        monkeypatch.setattr(certificate_source, "UNKNOWN_KEY_INTERVAL", timedelta())
        google.rotate_keys()
        google.rotate_keys()
        VirtualMachine.start(google, victim.cluster).joined()

    def test_serving_certificate(self, google: FakeGoogle, cluster: WorldCluster) -> None:
        """Its Machine has no IP address: what the certificate may say is Google's word."""
        machine = VirtualMachine.start(google, cluster).joined()
        name = machine.instance.name
        dns_names = [name, f"{name}.europe-west1-b.c.capi-workloads.internal", f"{name}.c.capi-workloads.internal"]
        address = ip_address(machine.instance.addresses[0])
        verdict = machine.ask_to_serve(csr("serve"), dns_names, [address])
        assert_issued(verdict)
        names = certificate_of(verdict).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert set(names.get_values_for_type(x509.DNSName)) == set(dns_names)
        assert names.get_values_for_type(x509.IPAddress) == [address]

    def test_another_instances_names(self, google: FakeGoogle, cluster: WorldCluster, victim: VirtualMachine) -> None:
        addresses = [("Hostname", "irrelevant")]
        machine = VirtualMachine.start(google, cluster, addresses=addresses).joined()
        for dns_name in (victim.instance.name, f"{victim.instance.name}.c.capi-workloads.internal"):
            verdict = machine.ask_to_serve(csr("serve"), [dns_name])
            assert_denied(verdict, "InvalidSubjectAlternativeNames", "does not belong to")
        verdict = machine.ask_to_serve(csr("serve"), ip_addresses=[ip_address(victim.instance.addresses[0])])
        assert_denied(verdict, "InvalidSubjectAlternativeNames", "does not belong to")


class TestCopies:
    """Everybody with a bootstrap token can read everybody's evidence."""

    def test_another_machines_evidence(self, victim: VirtualMachine) -> None:
        token = honest_token(victim)
        assert_issued(victim.ask(csr(), token))
        assert_denied(victim.with_new_key().ask(csr(), token), "BindingMismatch")

    def test_evidence_of_another_cluster(self, victim: VirtualMachine, other_cluster: WorldCluster) -> None:
        elsewhere = victim.but(cluster=other_cluster)
        other_cluster.add_machine(victim.instance.name, provider_id=victim.instance.provider_id)
        assert_denied(elsewhere.ask(csr(), honest_token(victim)), "BindingMismatch")

    def test_ones_own_token_for_another_machine(self, victim: VirtualMachine, attacker: VirtualMachine) -> None:
        """Bound to the request well, and of another instance than the request claims."""
        token = attacker.google.identity_token(attacker.instance, victim.with_new_key().audience())
        assert_denied(victim.ask(csr(), token), "BindingMismatch")
        token = attacker.google.identity_token(attacker.instance, victim.audience())
        assert_denied(victim.ask(csr(), token), "ProviderIDMismatch", attacker.instance.provider_id)

    def test_one_instance_for_two_machines(self, victim: VirtualMachine, cluster: WorldCluster) -> None:
        victim.joined()
        cluster.add_machine(f"{victim.instance.name}-b", provider_id=victim.instance.provider_id)
        VirtualMachine.start(victim.google, cluster).joined()  # whose Machine comes later: that one has been seen
        thief = victim.with_new_key()
        name = csr()
        thief.post(name, thief.node.client_request(name))
        pending(cluster, name)


class TestForgeries:
    def test_a_key_of_the_attackers(self, victim: VirtualMachine) -> None:
        claims = identity_claims(victim.instance, victim.audience(), victim.google.clock())
        genuine = victim.google.keys[-1].key_id
        forged = encode_token(claims, signing_key(90), {"alg": "RS256", "kid": genuine, "typ": "JWT"})
        assert_denied(victim.ask(csr(), forged), "TokenSignatureInvalid")

    def test_no_algorithm(self, victim: VirtualMachine) -> None:
        claims = identity_claims(victim.instance, victim.audience(), victim.google.clock())
        key = victim.google.keys[-1]
        for algorithm in ("none", "HS256", "ES256"):
            forged = encode_token(claims, key, {"alg": algorithm, "kid": key.key_id, "typ": "JWT"})
            assert_denied(victim.ask(csr(), forged), "TokenAlgorithmRefused")

    def test_no_key_id(self, victim: VirtualMachine) -> None:
        claims = identity_claims(victim.instance, victim.audience(), victim.google.clock())
        forged = encode_token(claims, victim.google.keys[-1], {"alg": "RS256", "typ": "JWT"})
        assert_denied(victim.ask(csr(), forged), "MalformedEvidence", "no key ID")

    def test_an_old_token(self, victim: VirtualMachine) -> None:
        claims = identity_claims(victim.instance, victim.audience(), victim.google.clock() - 2 * HOUR)
        assert_denied(victim.ask(csr(), encode_token(claims, victim.google.keys[-1])), "EvidenceExpired")

    def test_a_service_accounts_token(self, victim: VirtualMachine) -> None:
        """Whoever may use the service account can have one made for any audience, and it names no instance."""
        claims = identity_claims(victim.instance, victim.audience(), victim.google.clock(), full=False)
        assert_denied(victim.ask(csr(), encode_token(claims, victim.google.keys[-1])), "TokenOfNoInstance")

    def test_an_instance_of_another_project(self, google: FakeGoogle, cluster: WorldCluster) -> None:
        foreign = VirtualMachine.start(google, cluster, project="attackers-project", project_number="730000000666")
        assert_denied(foreign.ask(csr()), "ProjectNotAllowed")

    def test_a_project_of_the_same_name(self, google: FakeGoogle, cluster: WorldCluster) -> None:
        foreign = VirtualMachine.start(google, cluster, project_number="730000000666")
        assert_denied(foreign.ask(csr()), "ProjectNumberMismatch")


class TestBuiltinServing:
    """A kubelet's own serving requests show no token: they rest on the record, while its client certificate lasts."""

    def test_a_project_that_is_taken_out_ends_them(self, google: FakeGoogle, running: Harness) -> None:
        policy = {"authorizedAttestors": [{"name": "gcp"}], "builtinServingRequests": "Approve"}
        cluster = running.cluster("approving", ["gcp"], policy=policy)
        machine = VirtualMachine.start(google, cluster).joined()
        assert self.serves(machine).reason == "Attested"
        only_another = [{"name": "gcp", "settings": {"projects": [OTHER_PROJECT]}}]
        path = NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
        running.management.client.patch(path, {"spec": {"authorizedAttestors": only_another}})
        wait_until(lambda: machine.with_new_key().ask(csr()).reason == "ProjectNotAllowed", "the policy is known")
        refused = self.serves(machine)
        assert (refused.condition, refused.reason) == ("Denied", "ProjectNotAllowed"), refused

    @staticmethod
    def serves(machine: VirtualMachine) -> Verdict:
        """The verdict about its kubelet's own request. Nothing signs here."""
        name = csr("builtin")
        assert machine.credential is not None
        request = builtin_serving_request(name, machine.instance.name, [machine.instance.name])
        machine.cluster.submit(request, machine.credential)
        path = CERTIFICATE_SIGNING_REQUESTS.collection()
        client = machine.cluster.client()
        return Verdict.of(client.wait_for(path, name, lambda one: bool((one.get("status") or {}).get("conditions"))))


class TestInstances:
    def test_the_same_name_again_is_another_identity(self, google: FakeGoogle, victim: VirtualMachine) -> None:
        """The Machine is the first one's: whoever makes an instance of that name does not become the node."""
        victim.joined()
        google.add(victim.instance.created_again(str(int(victim.instance.instance_id) + 10**17), google.clock()))
        assert_denied(victim.with_new_key().ask(csr()), "IdentityConflict")

    def test_a_token_outlives_its_instance(self, google: FakeGoogle, victim: VirtualMachine) -> None:
        token = honest_token(victim)
        google.add(victim.instance.created_again(str(int(victim.instance.instance_id) + 10**17), google.clock()))
        assert_denied(victim.ask(csr(), token), "InstanceReplaced", "is gone")

    def test_an_instance_that_is_stopped_waits(
        self, running: Harness, google: FakeGoogle, cluster: WorldCluster
    ) -> None:
        machine = VirtualMachine.start(google, cluster, status="TERMINATED")
        name = csr()
        machine.post(name, machine.node.client_request(name))
        message = running.wait_for_event("InstanceNotRunning", machine.instance.name)
        assert "TERMINATED" in message
        assert_readable(message)
        pending(cluster, name)

    def test_an_outage_of_compute_engine_waits(
        self, running: Harness, google: FakeGoogle, victim: VirtualMachine
    ) -> None:
        google.fail(Service.COMPUTE, Fault.status(503))
        name = csr()
        victim.post(name, victim.node.client_request(name))
        message = running.wait_for_event("CloudUnavailable", victim.instance.name)
        assert "Google Compute Engine" in message
        assert_readable(message)
        pending(victim.cluster, name)
        google.mend(Service.COMPUTE)
        victim.with_new_key().joined()


def test_the_entry_point_is_installed() -> None:
    assert "gcp" in Registry().providers


def test_instances_are_different(google: FakeGoogle) -> None:
    """What the tests above rest on."""
    one, two = new_instance(google), new_instance(google)
    assert one.instance_id != two.instance_id
    assert one.addresses != two.addresses
