"""Two tenants' Clusters with one CA, or with CAs of one root: no evidence for one counts in the other."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from signer.authority.lenient_certificate import parse_ca_certificate
from signer.configuration import AllowedAuthorities
from signer.controller import authorities_at_start
from signer.kube.resources import NODE_ATTESTATION_POLICIES, SECRETS
from signer.model.authority_sharing import SharingGroup, SharingGroups
from signer.model.cluster import WATCH_FILTER_LABEL, WatchFilter
from signer.model.shard import shard_of
from signer.testing.certificates import EncryptionAlgorithm, new_cluster_certificate_authority
from signer.testing.world import RunningController, WorldCluster
from tests.integration.fixtures import Harness, node_of, pending, provider_id
from tests.integration.replicas import shards_owned, start_replica
from tests.support.processes import wait_until
from tests.unit.signer.authority.support import Made, make

KIND: Final = "CertificateAuthorityNotShared"
REASON: Final = "CertificateAuthorityShared"
MACHINE: Final = "m"


def victim_and_thief(harness: Harness, name: str = "thief") -> tuple[WorldCluster, WorldCluster]:
    """Clusters of two tenants with one CA key. Each has a Machine with the provider ID of the victim's node."""
    authority = new_cluster_certificate_authority(EncryptionAlgorithm.ECDSA_P256)
    victim = harness.cluster("victim", namespace="team-a", api={"authority": authority})
    thief = harness.cluster(name, namespace="team-b", api={"authority": authority})
    for cluster in (victim, thief):
        cluster.add_machine(MACHINE, provider_id=provider_id(MACHINE))
    return victim, thief


def replayed(victim: WorldCluster, thief: WorldCluster, name: str = "join") -> None:
    """The victim's node asks, and the thief posts a copy in its own Cluster."""
    request = node_of(victim, MACHINE).client_request(name)
    thief.submit_with_token(request)
    victim.submit_with_token(request)


def assert_nothing_reserved(harness: Harness, *clusters: WorldCluster) -> None:
    assert harness.reservations() == []
    assert [harness.records(cluster) for cluster in clusters] == [[] for _ in clusters]


def assert_waits(harness: Harness, cluster: WorldCluster, part: str, csr: str = "join") -> None:
    message = harness.wait_for_event(REASON, MACHINE, namespace=cluster.namespace, part=part)
    assert "team-" not in message.replace(f"{cluster.namespace}/", ""), "it names another tenant"
    pending(cluster, csr)


def conditions(harness: Harness, cluster: WorldCluster) -> set[str]:
    policy = harness.management.client.get(NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace))
    return {one["type"] for one in policy["status"]["conditions"]}


def test_one_ca_key_in_the_clusters_of_two_tenants(harness: Harness) -> None:
    """Without the check, the thief's Cluster reserves the identity, and the victim's node is denied."""
    victim, thief = victim_and_thief(harness)
    harness.run()
    for cluster in (victim, thief):
        shown = harness.wait_for_condition(cluster, KIND, "False")
        assert (shown["reason"], victim.ca_cert_hash in shown["message"]) == (REASON, True)
        assert harness.wait_for_condition(cluster, "Ready", "False")["reason"] == REASON
    replayed(victim, thief)
    for cluster in (victim, thief):
        assert_waits(harness, cluster, f"another Cluster has the private key of CA {victim.ca_cert_hash}")
    assert_nothing_reserved(harness, victim, thief)

    # The victim's node waits no longer than its CA is shared.
    thief.put_secret("ca", new_cluster_certificate_authority(EncryptionAlgorithm.ECDSA_P256).secret_data)
    harness.management.client.delete(NODE_ATTESTATION_POLICIES.object(thief.name, thief.namespace))
    verdict = victim.wait_until_decided("join")
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested")
    wait_until(lambda: KIND not in conditions(harness, victim), "the end of the condition")


def was_requested(harness: Harness, pattern: str) -> bool:
    return bool(harness.api.requests.matching(pattern))


def test_before_anything_is_published(harness: Harness) -> None:
    """A replica needs no status for the Clusters that it serves itself."""
    victim, thief = victim_and_thief(harness)
    harness.api.faults.inject("PATCH */nodeattestationpolicies/*/status", status=500, times=None)
    harness.run()
    for cluster in (victim, thief):  # which comes after the CA is read
        attempt = f"PATCH */nodeattestationpolicies/{cluster.name}/status"
        wait_until(partial(was_requested, harness, attempt), attempt)
    replayed(victim, thief)
    for cluster in (victim, thief):
        assert_waits(harness, cluster, victim.ca_cert_hash)
    assert_nothing_reserved(harness, victim, thief)
    harness.api.faults.clear()


def test_clusters_of_one_owner_share_a_ca_by_the_operators_word(harness: Harness) -> None:
    victim, thief = victim_and_thief(harness)
    groups = SharingGroups((SharingGroup(frozenset({"team-a"}), frozenset({thief.key})),))
    harness.run(authorities=AllowedAuthorities(shared_by=groups))
    victim.submit_with_token(node_of(victim, MACHINE).client_request("join"))
    assert victim.wait_until_decided("join").condition == "Approved"
    for cluster in (victim, thief):
        harness.wait_for_condition(cluster, "Ready", "True")
        assert KIND not in conditions(harness, cluster)


def signed_by(root: Made, cluster: WorldCluster) -> Made:
    """The cluster's CA with a certificate of that root; API servers accept what it signs by its own certificate."""
    key = load_pem_private_key(cluster.api.ca_key_pem, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    since = datetime.now(UTC) - timedelta(days=1)
    return make("kubernetes", key, root, not_before=since, not_after=since + timedelta(days=99))


def of_one_root(harness: Harness) -> tuple[WorldCluster, WorldCluster, str]:
    """Clusters of two tenants whose CAs have one root, and the hash by which a node names that root."""
    since = datetime.now(UTC) - timedelta(days=2)
    root = make("root", ec.generate_private_key(ec.SECP256R1()), not_before=since, not_after=since + timedelta(days=99))
    made = [harness.cluster(name, namespace=of) for name, of in (("victim", "team-a"), ("thief", "team-b"))]
    for cluster in made:
        cluster.put_secret("ca", signed_by(root, cluster).secret(root))
        cluster.add_machine(MACHINE, provider_id=provider_id(MACHINE))
    return made[0], made[1], hash_of(root)


def hash_of(made: Made) -> str:
    return parse_ca_certificate(made.certificate.public_bytes(Encoding.DER)).public_key_hash


def test_evidence_names_the_root_of_two_tenants_clusters(harness: Harness) -> None:
    """Without the check, evidence for the root counts in both. The CA that signs still counts."""
    victim, thief, root = of_one_root(harness)
    harness.run()
    for cluster in (victim, thief):
        shown = harness.wait_for_condition(cluster, KIND, "True")
        assert (shown["reason"], root in shown["message"]) == ("IssuerShared", True)
        harness.wait_for_condition(cluster, "Ready", "True")
    request = node_of(victim, MACHINE).but(ca_cert_hash=root).client_request("join")
    for cluster in (thief, victim):
        cluster.submit_with_token(request)
    for cluster in (victim, thief):
        assert_waits(harness, cluster, f"the evidence names {root}, an issuer")
    assert_nothing_reserved(harness, victim, thief)
    victim.submit_with_token(node_of(victim, MACHINE).client_request("by-its-own"))
    assert victim.wait_until_decided("by-its-own").condition == "Approved"


def test_a_tenant_that_lists_anothers_ca_has_nobody_wait(harness: Harness) -> None:
    """The certificate is public: without the private key, or the issuer's signature, it proves nothing."""
    victim, thief, _ = of_one_root(harness)
    for cluster in (victim, thief):
        own = {"tls.crt": cluster.api.ca_certificate_pem, "tls.key": cluster.api.ca_key_pem}
        cluster.put_secret("ca", own)
    copied = thief.api.ca_certificate_pem + victim.api.ca_certificate_pem
    thief.put_secret("ca", {"tls.crt": copied, "tls.key": thief.api.ca_key_pem, "ca.crt": copied})
    harness.run()
    replayed(victim, thief)
    assert victim.wait_until_decided("join").condition == "Approved"
    for cluster in (victim, thief):
        harness.wait_for_condition(cluster, "Ready", "True")
        assert KIND not in conditions(harness, cluster)


def of_filter(harness: Harness, value: str) -> RunningController:
    return harness.run(watch_filter=WatchFilter(value))


def test_a_cluster_that_another_replica_serves(harness: Harness) -> None:
    """Each replica knows by the policies' status what the others read, and the seal of the controller."""
    victim, thief = victim_and_thief(harness)
    for cluster in (victim, thief):
        cluster.patch({"metadata": {"labels": {WATCH_FILTER_LABEL: cluster.name}}})
    path = NODE_ATTESTATION_POLICIES.object(victim.name, victim.namespace)
    of_filter(harness, victim.name)
    harness.wait_for_condition(victim, "Ready", "True")
    published = harness.management.client.get(path)["status"]["certificateAuthorities"]
    assert published["keys"] == [victim.ca_cert_hash]
    of_filter(harness, thief.name)
    for cluster in (victim, thief):
        harness.wait_for_condition(cluster, KIND, "False")
    replayed(victim, thief)
    for cluster in (victim, thief):
        assert_waits(harness, cluster, victim.ca_cert_hash)
    assert_nothing_reserved(harness, victim, thief)


UNAVAILABLE: Final = "CertificateAuthorityUnavailable"
UNREAD: Final = "has not read the CA of each Cluster yet"


def ca_of(cluster: WorldCluster) -> str:
    """The requests for the Secret of that Cluster's CA."""
    return f"GET {SECRETS.object(f'{cluster.name}-ca', cluster.namespace)}"


def test_at_the_first_start_nothing_is_decided_before_every_ca_is_read(harness: Harness) -> None:
    """Without the wait, the thief's request is approved while the victim's CA cannot be read."""
    victim, thief = victim_and_thief(harness)
    honest = harness.cluster("honest", namespace="team-c")
    honest.add_machine(MACHINE, provider_id=provider_id("honest"))
    harness.api.faults.inject(ca_of(victim), status=503, times=None)
    thief.submit_with_token(node_of(victim, MACHINE).client_request("join"))
    asks = node_of(honest, "honest", MACHINE)
    honest.submit_with_token(asks.client_request("join"))
    harness.run()
    for cluster in (thief, honest):
        harness.wait_for_event(UNAVAILABLE, MACHINE, namespace=cluster.namespace, part=UNREAD)
        pending(cluster, "join")
    assert_nothing_reserved(harness, victim, thief)

    harness.api.faults.clear()
    assert honest.wait_until_decided("join").condition == "Approved"
    assert_waits(harness, thief, victim.ca_cert_hash)


@pytest.mark.parametrize("status", [403, 404])
def test_a_cluster_whose_ca_is_never_read_holds_no_other(harness: Harness, status: int) -> None:
    tenant = harness.cluster("tenant", namespace="team-a")
    honest = harness.cluster("honest", namespace="team-b")
    harness.api.faults.inject(ca_of(tenant), status=status, times=None)
    harness.run()
    harness.join(honest)
    harness.wait_for_condition(tenant, "CertificateAuthorityAvailable", "False")
    harness.api.faults.clear()


def test_the_wait_for_a_read_without_an_answer_is_bounded(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(authorities_at_start, "READ_SECONDS", 1.0)
    tenant = harness.cluster("tenant", namespace="team-a")
    honest = harness.cluster("honest", namespace="team-b")
    harness.api.faults.inject(ca_of(tenant), status=503, times=None)
    harness.run()
    harness.join(honest)
    [warned] = [one for one in caplog.records if "no longer wait for CAs" in one.getMessage()]
    assert (warned.__dict__["failed"], warned.__dict__["cluster"]) == (1, str(tenant.key))
    harness.api.faults.clear()


def test_a_replica_reads_the_cas_of_other_shards_too(harness: Harness) -> None:
    """Each replica knows the CAs of the Clusters that the other has not published yet."""
    victim, thief = victim_and_thief(harness, name="second")
    assert {shard_of(cluster.key, 2) for cluster in (victim, thief)} == {0, 1}
    harness.api.faults.inject("PATCH */nodeattestationpolicies/*/status", status=500, times=None)
    replicas = [start_replica(harness, user, shards=2) for user in ("one", "two")]
    wait_until(lambda: [shards_owned(replica) for replica in replicas] == [1, 1], "each replica owns a shard")
    replayed(victim, thief)
    for cluster in (victim, thief):
        assert_waits(harness, cluster, victim.ca_cert_hash)
    assert_nothing_reserved(harness, victim, thief)
    harness.api.faults.clear()
