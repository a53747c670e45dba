"""Host certificates by a running controller. Whatever is wrong with them, the kubelet gets its certificate."""

from __future__ import annotations

from typing import Any, Final

import pytest
from cryptography import x509

from attestors.wire.node_access import NodeAccess, NoNodeAccess
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.signatures import public_key_of
from attestors.wire.ssh_host_keys import ClaimedHostKey, HostKeysClaim, claim_with, encode
from signer.testing.nodes import SimulatedNode
from signer.testing.world import Verdict, WorldCluster
from tests.integration.fixtures import Harness, node_of, provider_id
from tests.integration.host_certificates import (
    ALLOWED,
    access_in,
    claim_of,
    look_often,
    principals_in,
    request_with,
    wait_for_authorities,
)
from tests.support.openssh import private_key

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_waits")]

KEY: Final = private_key("ed25519")
THIEF: Final = private_key("ed25519", 666)


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    look_often(monkeypatch)


def on(harness: Harness, name: str = "workload", **ssh: Any) -> WorldCluster:
    """A cluster whose policy turns SSH on, and whose authorities may sign; its controller runs already, or starts."""
    cluster = harness.cluster(name, policy={"ssh": ssh})
    if not harness.audited:
        harness.run(ssh=ALLOWED)
    wait_for_authorities(cluster)
    return cluster


def asks(cluster: WorldCluster, machine: str, value: bytes | None = None, *, csr: str = "") -> Verdict:
    """A join of that Machine's node, whose request has the extension; by default with ``KEY``."""
    node = added(cluster, machine)
    return posts(cluster, node, claim_of(node, KEY) if value is None else value, csr or machine)


def added(cluster: WorldCluster, machine: str, **more: Any) -> SimulatedNode:
    cluster.add_machine(machine, provider_id=provider_id(machine), **more)
    return node_of(cluster, machine)


def posts(cluster: WorldCluster, node: SimulatedNode, value: bytes, csr: str) -> Verdict:
    cluster.submit_with_token(request_with(node, csr, value))
    verdict = cluster.wait_until_decided(csr)
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict
    x509.load_pem_x509_certificate(verdict.certificate)
    return verdict


def refused(harness: Harness, cluster: WorldCluster, verdict: Verdict, machine: str, reason: str) -> str:
    """The host certificates were refused for that reason, and nothing else was; the Event's message."""
    assert access_in(verdict) == NoNodeAccess()
    assert "ssh" not in record(harness, cluster, machine)
    message = harness.wait_for_event("HostCertificatesRefused", machine, part=f"{reason}: ")
    harness.assert_audited()
    return message


def record(harness: Harness, cluster: WorldCluster, node_name: str) -> dict[str, Any]:
    """The ``spec`` of the node's record."""
    return next(one["spec"] for one in harness.records(cluster) if one["spec"]["nodeName"] == node_name)


def test_a_node_gets_a_certificate_for_its_host_key(harness: Harness) -> None:
    cluster = on(harness)
    addresses = [
        ("InternalIP", "192.0.2.17"),
        ("InternalDNS", "worker-1.internal.example"),
        ("InternalIP", "127.0.0.1"),
        ("InternalDNS", "kubernetes"),
        ("Hostname", "worker-1"),
    ]
    node = added(cluster, "worker-1", addresses=addresses)
    access = access_in(posts(cluster, node, claim_of(node, KEY, private_key("nistp384"), version=5), "worker-1"))
    assert isinstance(access, NodeAccess)
    names = ["worker-1", f"worker-1.{cluster.name}.default", "worker-1.internal.example", "192.0.2.17"]
    first, second = access.host_certificates
    for signed, key in ((first, KEY), (second, private_key("nistp384"))):
        signed.verify()
        assert signed.certificate.public_key == public_key_of(key)
        assert signed.certificate.authority in access.trust.host_authorities
        assert [str(one) for one in signed.certificate.principals] == names
        assert signed.certificate.key_id == f"host/default/{cluster.name}/worker-1"
    kept = record(harness, cluster, "worker-1")["ssh"]
    assert kept["trustVersion"] == 5
    assert [one["publicKey"] for one in kept["hostKeys"]] == [
        key_line(public_key_of(key)) for key in (KEY, private_key("nistp384"))
    ]
    assert kept["hostKeys"][0]["fingerprint"] == public_key_of(KEY).fingerprint
    assert kept["hostKeys"][0]["certificateSerialNumber"] == str(first.certificate.serial)
    assert kept["authorityFingerprint"] == access.trust.host_authorities[0].fingerprint
    assert kept["principals"] == names
    harness.assert_audited()


def test_a_copy_gets_the_same_bytes(harness: Harness) -> None:
    cluster = on(harness)
    node = added(cluster, "worker-1")
    value = claim_of(node, KEY)
    first = posts(cluster, node, value, "worker-1")
    assert isinstance(access_in(first), NodeAccess)
    assert access_in(posts(cluster, node, value, "copy")) == access_in(first)
    harness.assert_audited()


def test_proof_by_another_key(harness: Harness) -> None:
    """Test 11: the key of another node beside a proof of one's own key; and a proof over another request's key."""
    cluster = on(harness)
    node, other = added(cluster, "worker-1"), added(cluster, "worker-2")
    own = claim_with(THIEF, node.subject_public_key_info)
    theirs = encode(HostKeysClaim(0, (ClaimedHostKey(public_key_of(KEY), own.proof),)))
    message = refused(harness, cluster, posts(cluster, node, theirs, "one"), "worker-1", "HostKeyNotProven")
    assert "SignedByAnotherKey" in message
    copied = claim_of(node, KEY)
    refused(harness, cluster, posts(cluster, other, copied, "two"), "worker-2", "HostKeyNotProven")


def test_one_host_key_on_two_machines(harness: Harness) -> None:
    """Test 12, within a cluster and in another one."""
    cluster, other = on(harness), on(harness, "other")
    assert isinstance(access_in(asks(cluster, "worker-1")), NodeAccess)
    message = refused(harness, cluster, asks(cluster, "worker-2"), "worker-2", "HostKeyInUse")
    assert "worker-1" in message
    refused(harness, other, asks(other, "worker-3"), "worker-3", "HostKeyInUse")


def test_an_extension_of_no_form(harness: Harness) -> None:
    cluster = on(harness)
    refused(harness, cluster, asks(cluster, "worker-1", b"no DER"), "worker-1", "HostKeysMalformed")


def test_where_ssh_is_off(harness: Harness) -> None:
    """Test 14: the extension counts as any unknown one, where the policy or the operator does not turn SSH on."""
    cluster = harness.cluster()
    harness.run(ssh=ALLOWED)
    assert access_in(asks(cluster, "worker-1")) == NoNodeAccess()
    assert "ssh" not in record(harness, cluster, "worker-1")
    harness.assert_audited()


def test_without_the_extension_nothing_is_added(harness: Harness) -> None:
    """Test 14: a node program that knows no SSH."""
    cluster = on(harness)
    assert access_in(harness.join(cluster, "worker-1")) == NoNodeAccess()


def test_authorities_that_may_not_sign_cost_no_kubelet_its_certificate(harness: Harness) -> None:
    cluster = harness.cluster(policy={"ssh": {}})
    harness.run()  # without --ssh: off
    assert access_in(asks(cluster, "worker-1")) == NoNodeAccess()


def test_a_renewal_renews_them(harness: Harness) -> None:
    cluster = on(harness)
    node = added(cluster, "worker-1")
    first = access_in(posts(cluster, node, claim_of(node, KEY), "worker-1"))
    assert isinstance(first, NodeAccess)
    later = node.but(key=node_of(cluster, "worker-1").key)
    cluster.submit_as_node(
        request_with(later, "renewal", claim_of(later, KEY, version=first.trust.version)), "worker-1"
    )
    second = access_in(cluster.wait_until_decided("renewal"))
    assert isinstance(second, NodeAccess)
    assert second.host_certificates[0].certificate.serial != first.host_certificates[0].certificate.serial
    assert principals_in(second) == principals_in(first)
    assert record(harness, cluster, "worker-1")["ssh"]["trustVersion"] == first.trust.version
    harness.assert_audited()
