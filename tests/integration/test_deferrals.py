"""Rows of the table "Bad input: decision" that end in a Defer, each woken by the change and by nothing else.

The work queue's own retries are switched off here, so a request that is decided was woken. Meanwhile another cluster's
node joins as if nothing was.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest
import yaml

from signer.kube.resources import NODE_ATTESTATION_POLICIES
from signer.kube.workqueue import WorkQueue
from signer.testing.certificates import EncryptionAlgorithm, new_cluster_certificate_authority
from signer.testing.fixtures import embedded_api
from signer.testing.world import WorldCluster
from tests.integration.fixtures import (
    Harness,
    assert_one_certificate,
    assert_readable,
    node_of,
    pending,
    provider_id,
)
from tests.support.yaml_documents import safe_load

pytestmark = pytest.mark.slow

_NUMBERS: Final = itertools.count(1)
PAUSED: Final = "cluster.x-k8s.io/paused"


@pytest.fixture(scope="module")
def harness(shared_harness: Harness, short_waits: None) -> Iterator[Harness]:
    """One harness; its controller never tries again just because time has passed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WorkQueue, "retry", lambda self, key: 0.0)
        shared_harness.run()
        yield shared_harness


@pytest.fixture(scope="module")
def healthy(harness: Harness) -> WorldCluster:
    """The other cluster."""
    return harness.cluster("healthy")


@pytest.fixture
def cluster(harness: Harness, healthy: WorldCluster) -> WorldCluster:
    """A cluster of this test's own."""
    return harness.cluster(f"cluster-{next(_NUMBERS)}")


@pytest.fixture
def machine() -> str:
    """The name of a Machine that does not exist yet."""
    return f"machine-{next(_NUMBERS)}"


class Waiting:
    """A node's request that was deferred, and what must be seen of it until it is decided."""

    def __init__(self, harness: Harness, healthy: WorldCluster, cluster: WorldCluster, machine: str) -> None:
        self.harness, self.healthy, self.cluster, self.machine = harness, healthy, cluster, machine
        harness.join(healthy)  # its Machine comes last: the controller has seen what was done to Machines before
        cluster.submit_with_token(node_of(cluster, machine).client_request(machine))

    def for_reason(self, reason: str, kind: str = "Machine") -> None:
        """It waits, an Event says why, and the other cluster does not care."""
        name = self.machine if kind == "Machine" else self.cluster.name
        assert_readable(self.harness.wait_for_event(reason, name, kind))
        self.harness.join(self.healthy)
        pending(self.cluster, self.machine)

    def is_over(self) -> None:
        """It was woken, and ended well."""
        verdict = self.cluster.wait_until_decided(self.machine)
        assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict
        assert_one_certificate(self.harness, self.cluster, self.machine, self.machine)


Wait = Callable[[], Waiting]


@pytest.fixture
def wait(harness: Harness, healthy: WorldCluster, cluster: WorldCluster, machine: str) -> Wait:
    """Post the request of ``machine`` now."""
    return lambda: Waiting(harness, healthy, cluster, machine)


def test_machine_appears(wait: Wait, cluster: WorldCluster, machine: str) -> None:
    waiting = wait()
    waiting.for_reason("MachineNotFound", "Cluster")
    cluster.add_machine(machine, provider_id=provider_id(machine))
    waiting.is_over()


def test_machine_has_nearly_the_provider_id(wait: Wait, harness: Harness, cluster: WorldCluster, machine: str) -> None:
    """As ``openstack:///u`` and ``openstack://RegionOne/u``."""
    near = f"{machine}-near"
    addresses = [("Hostname", machine)]
    cluster.add_machine(near, provider_id=provider_id(machine).replace(":///", "://RegionOne/"), addresses=addresses)
    wait()
    message = harness.wait_for_event("MachineNotFound", near, part="the nearest is Machine")
    assert_readable(message)
    assert "the part before the last is none in the request and RegionOne in the Machine" in message
    cluster.patch_machine(near, {"spec": {"providerID": provider_id(machine)}})
    assert cluster.wait_until_decided(machine).reason == "Attested"


def test_machine_gets_its_provider_id(wait: Wait, cluster: WorldCluster, machine: str) -> None:
    cluster.add_machine(machine)
    waiting = wait()
    waiting.for_reason("MachineNotFound", "Machine")
    cluster.patch_machine(machine, {"spec": {"providerID": provider_id(machine)}})
    waiting.is_over()


def test_two_machines_have_the_provider_id(wait: Wait, cluster: WorldCluster, machine: str) -> None:
    cluster.add_machine(machine, provider_id=provider_id(machine))
    cluster.add_machine(f"{machine}-twin", provider_id=provider_id(machine))
    waiting = wait()
    waiting.for_reason("MachineAmbiguous", "Cluster")
    cluster.patch_machine(f"{machine}-twin", {"spec": {"providerID": provider_id("another")}})
    waiting.is_over()


def test_machine_gets_addresses(wait: Wait, cluster: WorldCluster, machine: str) -> None:
    found = cluster.add_machine(machine, provider_id=provider_id(machine))
    cluster.set_machine_status(found, {"addresses": None})
    waiting = wait()
    waiting.for_reason("MachineAddressesUnknown")
    cluster.set_machine_status(found, {"addresses": [{"type": "Hostname", "address": machine}]})
    waiting.is_over()


def test_machine_gets_bootstrap_data(wait: Wait, cluster: WorldCluster, machine: str) -> None:
    found = cluster.add_machine(machine, provider_id=provider_id(machine), bootstrap_ready=False)
    waiting = wait()
    waiting.for_reason("MachineNotReady")
    cluster.set_machine_status(found, {"initialization": {"bootstrapDataSecretCreated": True}})
    waiting.is_over()


def test_machine_is_unpaused(wait: Wait, cluster: WorldCluster, machine: str) -> None:
    cluster.add_machine(machine, provider_id=provider_id(machine))
    cluster.patch_machine(machine, {"metadata": {"annotations": {PAUSED: ""}}})
    waiting = wait()
    waiting.for_reason("MachinePaused")
    cluster.patch_machine(machine, {"metadata": {"annotations": {PAUSED: None}}})
    waiting.is_over()


@pytest.mark.parametrize(
    ("pause", "resume"),
    [
        ({"spec": {"paused": True}}, {"spec": {"paused": False}}),
        ({"metadata": {"annotations": {PAUSED: "true"}}}, {"metadata": {"annotations": {PAUSED: None}}}),
    ],
)
def test_cluster_is_unpaused(
    harness: Harness, wait: Wait, cluster: WorldCluster, machine: str, pause: dict[str, Any], resume: dict[str, Any]
) -> None:
    cluster.add_machine(machine, provider_id=provider_id(machine))
    cluster.patch(pause)
    harness.join(harness.cluster(f"after-{machine}"))  # a Cluster that comes later: the pause has been seen
    waiting = wait()
    waiting.for_reason("ClusterPaused")
    cluster.patch(resume)
    waiting.is_over()


def test_node_ref_disagrees(wait: Wait, cluster: WorldCluster, machine: str) -> None:
    found = cluster.add_machine(machine, provider_id=provider_id(machine))
    cluster.set_machine_status(found, {"nodeRef": {"name": "somebody-else"}})
    waiting = wait()
    waiting.for_reason("NodeRefDisagrees")
    cluster.set_machine_status(found, {"nodeRef": {"name": machine}})
    waiting.is_over()


def test_a_provider_names_a_running_node_otherwise(
    harness: Harness, healthy: WorldCluster, cluster: WorldCluster, machine: str
) -> None:
    """A fleet must not lose its renewals by an upgrade of its infrastructure provider."""
    harness.join(cluster, machine)
    found = {"metadata": {"name": machine}}
    cluster.set_machine_status(found, {"addresses": [{"type": "Hostname", "address": "otherwise"}]})
    harness.join(healthy)  # its Machine comes last: the new address has been seen
    cluster.submit_as_node(node_of(cluster, machine).client_request(machine), machine)
    said = harness.wait_for_event("NodeNameMismatch", machine)
    assert f"it was attested as node {machine} before" in said
    pending(cluster, machine)
    cluster.set_machine_status(found, {"addresses": [{"type": "Hostname", "address": machine}]})
    verdict = cluster.wait_until_decided(machine)
    assert (verdict.condition, verdict.reason) == ("Approved", "Attested"), verdict


# The CA's Secret


def _other_key(cluster: WorldCluster) -> bytes:
    return new_cluster_certificate_authority(EncryptionAlgorithm.ECDSA_P256).private_key


AUTHORITIES: Final[dict[str, Callable[[WorldCluster], dict[str, bytes]]]] = {
    "empty": lambda cluster: {},
    "garbage": lambda cluster: {"tls.crt": b"\x00garbage\xff", "tls.key": b"\x1b[31m"},
    "key missing": lambda cluster: {"tls.crt": cluster.api.ca_certificate_pem},
    "certificate missing": lambda cluster: {"tls.key": cluster.api.ca_key_pem},
    "key of another CA": lambda cluster: {"tls.crt": cluster.api.ca_certificate_pem, "tls.key": _other_key(cluster)},
}


@pytest.mark.parametrize("snapshot", ["absent", *AUTHORITIES])
def test_certificate_authority_is_repaired(
    harness: Harness, wait: Wait, cluster: WorldCluster, machine: str, snapshot: str
) -> None:
    good = {"tls.crt": cluster.api.ca_certificate_pem, "tls.key": cluster.api.ca_key_pem}
    harness.wait_for_condition(cluster, "CertificateAuthorityAvailable", "True")
    if snapshot == "absent":
        cluster.delete_secret("ca")
    else:
        cluster.put_secret("ca", AUTHORITIES[snapshot](cluster))
    condition = harness.wait_for_condition(cluster, "CertificateAuthorityAvailable", "False")
    key_text = cluster.api.ca_key_pem.decode().splitlines()[1]
    assert_readable(condition["message"], key_text)
    cluster.add_machine(machine, provider_id=provider_id(machine))
    waiting = wait()
    waiting.for_reason("CertificateAuthorityUnavailable")
    cluster.put_secret("ca", good)
    waiting.is_over()
    harness.wait_for_condition(cluster, "Ready", "True")


# The kubeconfig's Secret


def _changed(text: str, change: Callable[[dict[str, Any]], object]) -> bytes:
    document = safe_load(text)
    change(document)
    return yaml.safe_dump(document).encode()


def _user(document: dict[str, Any]) -> dict[str, Any]:
    user: dict[str, Any] = document["users"][0]["user"]
    return user


def _server(document: dict[str, Any]) -> dict[str, Any]:
    server: dict[str, Any] = document["clusters"][0]["cluster"]
    return server


FAST: Final = ("garbage", "exec", "token file", "proxy")
KUBECONFIGS: Final[dict[str, Callable[[str], bytes]]] = {
    "garbage": lambda text: b"\x00\xff{{{",
    "empty": lambda text: b"",
    "exec": lambda text: _changed(text, lambda d: _user(d).update(exec={"command": "/bin/sh", "args": ["-c", "id"]})),
    "auth provider": lambda text: _changed(text, lambda d: _user(d).update({"auth-provider": {"name": "oidc"}})),
    "token file": lambda text: _changed(text, lambda d: _user(d).update(tokenFile="/etc/hostname")),
    "key file": lambda text: _changed(text, lambda d: _user(d).update({"client-key": "/etc/hostname"})),
    "CA file": lambda text: _changed(text, lambda d: _server(d).update({"certificate-authority": "/etc/hostname"})),
    "proxy": lambda text: _changed(text, lambda d: _server(d).update({"proxy-url": "http://127.0.0.1:1"})),
    "TLS not verified": lambda text: _changed(text, lambda d: _server(d).update({"insecure-skip-tls-verify": True})),
    "plain HTTP": lambda text: _changed(text, lambda d: _server(d).update(server="http://127.0.0.1:1")),
    "CA that is none": lambda text: _changed(
        text, lambda d: _server(d).update({"certificate-authority-data": "Z2FyYmFnZQ=="})
    ),
    "token that no header can carry": lambda text: _changed(text, lambda d: _user(d).update(token="a\nb")),
}


@pytest.mark.parametrize(
    "snapshot",
    [
        "absent",
        *(pytest.param(snapshot, marks=() if snapshot in FAST else pytest.mark.slow) for snapshot in KUBECONFIGS),
    ],
)
def test_kubeconfig_is_repaired(
    harness: Harness, healthy: WorldCluster, short_waits: None, machine: str, snapshot: str
) -> None:
    cluster = harness.cluster(f"kubeconfig-{next(_NUMBERS)}", ())
    text = embedded_api(cluster).kubeconfig()
    if snapshot == "absent":
        cluster.delete_secret("kubeconfig")
    else:
        cluster.put_secret("kubeconfig", {"value": KUBECONFIGS[snapshot](text)})
    cluster.authorize("keyed-mac")
    cluster.add_machine(machine, provider_id=provider_id(machine))
    waiting = Waiting(harness, healthy, cluster, machine)
    condition = harness.wait_for_condition(cluster, "WorkloadClusterReachable", "False")
    assert condition["reason"] in ("KubeconfigRefused", "KubeconfigMissing")
    assert_readable(condition["message"])
    harness.join(healthy)
    pending(cluster, machine)
    cluster.put_secret("kubeconfig", {"value": text.encode()})
    waiting.is_over()
    harness.wait_for_condition(cluster, "WorkloadClusterReachable", "True")


def test_workload_api_comes_back(harness: Harness, healthy: WorldCluster, cluster: WorldCluster, machine: str) -> None:
    harness.wait_for_condition(cluster, "WorkloadClusterReachable", "True")
    cluster.add_machine(machine, provider_id=provider_id(machine))
    cluster.close()
    embedded_api(cluster).stop_listening()
    condition = harness.wait_for_condition(cluster, "WorkloadClusterReachable", "False")
    assert_readable(condition["message"])
    harness.join(healthy)
    embedded_api(cluster).start_listening()
    waiting = Waiting(harness, healthy, cluster, machine)
    waiting.is_over()
    harness.wait_for_condition(cluster, "WorkloadClusterReachable", "True")


def test_policy_that_cannot_be_followed(harness: Harness, wait: Wait, cluster: WorldCluster, machine: str) -> None:
    path = NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
    harness.management.client.patch(path, {"spec": {"certificates": {"clientDuration": "9999h"}}})
    condition = harness.wait_for_condition(cluster, "AttestorsConfigured", "False")
    assert condition["reason"] == "PolicyInvalid"
    assert_readable(condition["message"])
    cluster.add_machine(machine, provider_id=provider_id(machine))
    waiting = wait()
    waiting.for_reason("PolicyInvalid")
    harness.management.client.patch(path, {"spec": {"certificates": {"clientDuration": "48h"}}})
    waiting.is_over()
