"""A rotation of SSH authorities by a running controller, ordered by the command, advanced by attested requests."""

from __future__ import annotations

import contextlib
import json
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from attestors.wire.node_access import NodeAccess, NoNodeAccess
from attestors.wire.ssh.key_line import key_line, parse_key_line
from attestors.wire.statement.names import NODE_ACCESS_CONFIG_MAP, STATEMENT_KEY, STATEMENT_NAMESPACE
from authenticator.flow.sshd_files import USER_AUTHORITIES_FILE, SSHDFiles
from signer.cli import main, rotate_order
from signer.configuration import RotationSettings
from signer.controller.cluster import workload_cluster
from signer.kube.resources import CONFIG_MAPS, MACHINES_V1BETA2, NODE_ATTESTATION_POLICIES
from signer.rotation.operations import OPERATION_ANNOTATION
from signer.ssh import reconciler
from signer.testing.fixtures import embedded_api
from signer.testing.nodes import SimulatedNode
from signer.testing.world import WorldCluster
from tests.integration.fixtures import Harness, node_of, provider_id
from tests.integration.host_certificates import (
    ALLOWED,
    access_in,
    claim_of,
    look_often,
    request_with,
    wait_for_authorities,
)
from tests.support.node_program import NodeProgram
from tests.support.openssh import private_key, write_private_key
from tests.support.processes import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("short_waits")]

Run = Callable[..., tuple[int, dict[str, Any]]]
EARLY: Final = ("worker-8", "worker-12")
"""Their turn to attest is in the first second (attestors.wire.statement.cluster_trust.node_digest)."""
KEYS: Final = {name: private_key("ed25519", seed) for seed, name in enumerate(("worker-1", "worker-2"), 200)}


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    look_often(monkeypatch)
    monkeypatch.setattr(reconciler, "ROTATING_SECONDS", 0.2)
    monkeypatch.setattr(reconciler, "IDLE_SECONDS", 0.3)
    monkeypatch.setattr(workload_cluster, "RECONCILE_REFILL_SECONDS", 0.2)


@pytest.fixture
def run(harness: Harness, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs ``rotate CLUSTER ssh``; its exit code and what it prints as JSON."""
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(harness.api.kubeconfig())

    def rotate(*arguments: str) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        words = ["rotate", "workload", "ssh", *arguments, "--kubeconfig", str(kubeconfig), "--output", "json"]
        code = main(words)
        return code, json.loads(capsys.readouterr().out)

    return rotate


class Attesting:
    """A node that attests again and again."""

    def __init__(self, cluster: WorldCluster, name: str) -> None:
        self.cluster, self.name, self.version, self.requests = cluster, name, 0, 0
        cluster.add_machine(name, provider_id=provider_id(name))
        self.node = node_of(cluster, name)

    def attest(self) -> NodeAccess:
        """With the trust that it got last."""
        self.requests += 1
        name = f"{self.name}-{self.requests}"
        node: SimulatedNode = (
            self.node if self.requests == 1 else self.node.but(key=node_of(self.cluster, self.name).key)
        )
        manifest = request_with(node, name, claim_of(node, KEYS[self.name], version=self.version))
        if self.requests == 1:
            self.cluster.submit_with_token(manifest)
        else:
            self.cluster.submit_as_node(manifest, self.name)
        verdict = self.cluster.wait_until_decided(name)
        assert verdict.reason == "Attested", verdict
        access = access_in(verdict)
        assert isinstance(access, NodeAccess)
        self.version = access.trust.version
        return access


def all_attest(nodes: list[Attesting]) -> NodeAccess:
    """What the first one gets."""
    first, *_ = map(Attesting.attest, nodes)
    return first


def policy(cluster: WorldCluster) -> dict[str, Any]:
    path = NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace)
    return cluster.management.client.get(path)


def wait_for(run: Run, purpose: str, phase: str, step: str) -> dict[str, Any]:
    def reached() -> bool:
        rotations = {one["purpose"]: one for one in run("status")[1]["rotations"]}
        return (rotations[purpose]["phase"], rotations[purpose]["step"]) == (phase, step)

    wait_until(reached, f"the {purpose} authority's rotation is {phase}, {step}")
    return run("status")[1]


def test_nodes_advance_it_by_their_attested_requests(harness: Harness, run: Run) -> None:
    cluster = harness.cluster(policy={"ssh": {}})
    harness.run(ssh=ALLOWED)
    wait_for_authorities(cluster)
    nodes = [Attesting(cluster, name) for name in KEYS]
    first = all_attest(nodes)
    code, shown = run("status")
    assert (code, shown["phase"], shown["rotations"]) == (0, "", [])

    code, answer = run("start", "--yes")
    assert (code, answer["answer"]) == (0, "Accepted"), answer
    assert OPERATION_ANNOTATION not in policy(cluster)["metadata"].get("annotations", {})
    assert run("start", "--yes")[0] == 4, "one is under way"
    state = wait_for(run, "user", "Preparing", "NodesTrust")
    assert state["rotations"][0]["lagging"] == ["worker-1", "worker-2"]
    both = all_attest(nodes).trust
    assert (len(both.user_authorities), len(both.host_authorities)) == (2, 2)
    nodes[0].attest()
    wait_until(lambda: run("status")[1]["rotations"][0]["lagging"] == ["worker-2"], "one node has reported it")
    assert run("status")[0] == 3
    nodes[1].attest()
    state = wait_for(run, "user", "Prepared", "Prepared")
    assert run("status")[0] == 5
    issuing = {one["purpose"]: one["fingerprint"] for one in state["authorities"] if one["state"] == "Issuing"}
    assert issuing["user"] == both.user_authorities[1].fingerprint
    assert issuing["host"] == both.host_authorities[0].fingerprint

    assert run("complete", "--yes", "--skip-gates", "overlap")[1]["answer"] == "Accepted"
    wait_for(run, "user", "Completing", "NodesForget")
    wait_for(run, "host", "Completing", "NodesRenew")
    renewed = all_attest(nodes)
    assert renewed.host_certificates[0].certificate.authority == both.host_authorities[1]
    wait_for(run, "host", "Completed", "NodesRenew")
    all_attest(nodes)
    last = all_attest(nodes).trust
    wait_for(run, "user", "Completed", "NodesForget")
    assert last.user_authorities == both.user_authorities[1:]
    assert last.host_authorities == both.host_authorities[1:]
    assert first.trust.user_authorities[0] not in last.user_authorities
    shown = policy(cluster)["status"]["ssh"]
    assert [one["publicKey"] for one in shown["userAuthorities"]] == [key_line(last.user_authorities[0])]
    conditions = {one["type"]: one for one in policy(cluster)["status"]["conditions"]}
    assert conditions["SSHAuthorityRotationProgressing"]["reason"] == "Completed"
    harness.wait_for_event("SSHAuthorityCompleted", cluster.name, "NodeAttestationPolicy")
    harness.assert_audited()


class WithAgent:
    """A node of its own, with the agent's process, which looks at the bundle when it starts."""

    def __init__(self, folder: Path, cluster: WorldCluster, name: str) -> None:
        cluster.add_machine(name, provider_id=provider_id(name))
        self.name, self.program = name, NodeProgram(folder / name, node_of(cluster, name))
        seed = int(name.removeprefix("worker-"))
        host_key = write_private_key(folder / name / "ssh_host_ed25519_key", private_key("ed25519", seed))
        self.files = SSHDFiles(folder / name / "node-access")
        self.program.configure(ssh={"hostKeys": [str(host_key)], "folder": str(self.files.folder)})
        self.program.supply_bootstrap(cluster)

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        process = self.program.start("agent")
        try:
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)

    def users(self) -> str:
        """The user authorities that sshd trusts."""
        file = self.files.folder / USER_AUTHORITIES_FILE
        return file.read_text() if file.exists() else ""


def requests_of(cluster: WorldCluster) -> list[str]:
    return [one["spec"]["username"] for one in embedded_api(cluster).objects("certificatesigningrequests")]


def wait_until_told(cluster: WorldCluster, before: int) -> int:
    """Until the published bundle has nodes report a later version of the trust; returns it."""
    path, told = CONFIG_MAPS.object(NODE_ACCESS_CONFIG_MAP, STATEMENT_NAMESPACE), [0]

    def is_told() -> bool:
        text = cluster.client().get(path)["data"][STATEMENT_KEY]
        told[0] = json.loads(text)["statement"]["payload"]["renewBelow"]
        return told[0] > before

    wait_until(is_told, "the bundle has nodes report what they trust")
    return told[0]


def test_nodes_attest_because_the_bundle_tells_them(harness: Harness, run: Run, tmp_path: Path) -> None:
    """Nobody has their certificates renewed: it is their agents that read the bundle, and attest once for each step."""
    cluster = harness.cluster(policy={"ssh": {}})
    harness.run(ssh=ALLOWED)
    wait_for_authorities(cluster)
    nodes = [WithAgent(tmp_path, cluster, name) for name in EARLY]
    with contextlib.ExitStack() as agents:
        for node in nodes:
            agents.enter_context(node.running())
        for node in nodes:
            wait_until(lambda node=node: bool(node.users()), f"{node.name} has the trust")  # type: ignore[misc]
    first = nodes[0].users()
    before = len(requests_of(cluster))
    assert before == len(nodes), "no rotation waits for them"

    assert run("start", "--yes")[1]["answer"] == "Accepted"
    wait_for(run, "user", "Preparing", "NodesTrust")
    told = wait_until_told(cluster, 0)
    with contextlib.ExitStack() as agents:
        for node in nodes:
            agents.enter_context(node.running())
        state = wait_for(run, "user", "Prepared", "Prepared")
        assert first in nodes[0].users()
        assert len(nodes[0].users().splitlines()) == 2
        issuing = {one["purpose"]: one["fingerprint"] for one in state["authorities"] if one["state"] == "Issuing"}
        assert issuing["user"] != parse_key_line(first.strip()).fingerprint
    assert len(requests_of(cluster)) == before + len(nodes), "once each"

    assert run("revoke-user", "--yes")[1]["answer"] == "Accepted"
    wait_until_told(cluster, told)
    with contextlib.ExitStack() as agents:
        for node in nodes:
            agents.enter_context(node.running())
        wait_for(run, "user", "Completed", "NodesForget")
        for node in nodes:
            assert first not in node.users(), "the leaked one counts nowhere"
    assert len(requests_of(cluster)) == before + 2 * len(nodes)
    harness.assert_audited()


def test_a_node_whose_host_keys_are_refused_is_waited_for(harness: Harness, run: Run) -> None:
    """It trusts what the bundle says, and reports that in each attested request."""
    cluster = harness.cluster(policy={"ssh": {}})
    harness.run(ssh=ALLOWED)
    wait_for_authorities(cluster)
    first = Attesting(cluster, "worker-1")
    version = first.attest().trust.version
    cluster.add_machine("copied", provider_id=provider_id("copied"))

    def attests(version: int) -> None:
        node = node_of(cluster, "copied")
        name = f"copied-{version}"
        submit = cluster.submit_with_token if version == 1 else lambda made: cluster.submit_as_node(made, "copied")
        submit(request_with(node, name, claim_of(node, KEYS["worker-1"], version=version)))
        assert access_in(cluster.wait_until_decided(name)) == NoNodeAccess()

    attests(1)
    harness.wait_for_event("HostCertificatesRefused", "copied", part="HostKeyInUse: ")
    assert run("start", "--yes")[1]["answer"] == "Accepted"
    first.attest()
    first.attest()
    assert first.version > version
    wait_until(lambda: run("status")[1]["rotations"][0]["lagging"] == ["copied"], "its trust is not known to be new")
    attests(first.version)
    wait_for(run, "user", "Prepared", "Prepared")


def test_a_certificate_that_was_never_issued_renews_nothing(harness: Harness, run: Run) -> None:
    """The record names it before the node can read it. A controller that cannot answer leaves it at that."""
    cluster = harness.cluster(policy={"ssh": {}})
    harness.run(ssh=ALLOWED)
    wait_for_authorities(cluster)
    node = Attesting(cluster, "worker-1")
    former = node.attest().host_certificates[0].certificate.authority
    assert run("revoke-host", "--yes")[1]["answer"] == "Accepted"
    wait_for(run, "host", "Completing", "NodesRenew")
    api = embedded_api(cluster)
    fault = api.faults.inject("PUT *certificatesigningrequests/never/status", status=500, times=None)
    later = node.node.but(key=node_of(cluster, "worker-1").key)
    cluster.submit_as_node(request_with(later, "never", claim_of(later, KEYS["worker-1"])), "worker-1")

    def ssh() -> dict[str, Any]:
        found: dict[str, Any] = harness.records(cluster)[0]["spec"]["ssh"]
        return found

    wait_until(lambda: fault.hits > 1, "the controller has tried to answer")
    assert ssh()["authorityFingerprint"] != former.fingerprint
    assert ssh()["former"]["authorityFingerprint"] == former.fingerprint
    cluster.client().delete("/apis/certificates.k8s.io/v1/certificatesigningrequests/never")
    api.faults.clear()
    cluster.management.client.patch(
        NODE_ATTESTATION_POLICIES.object(cluster.name, cluster.namespace),
        {"spec": {"ssh": {"rotationPeriod": "8784h"}}},
    )
    harness.wait_for_condition(cluster, "SSHAuthoritiesWithinPeriod", "True")  # another pass
    host = run("status")[1]["rotations"][0]
    assert (host["step"], host["lagging"]) == ("NodesRenew", ["worker-1"])
    assert node.attest().host_certificates[0].certificate.authority != former
    wait_for(run, "host", "Completed", "NodesRenew")
    assert "former" not in ssh()
    harness.assert_audited()


def test_after_a_leak_a_machine_in_deletion_is_waited_for_until_it_is_gone(harness: Harness, run: Run) -> None:
    cluster = harness.cluster(policy={"ssh": {}})
    harness.run(ssh=ALLOWED)
    wait_for_authorities(cluster)
    nodes = [Attesting(cluster, name) for name in KEYS]
    all_attest(nodes)
    path = MACHINES_V1BETA2.object("worker-2", cluster.namespace)
    cluster.management.client.patch(path, {"metadata": {"finalizers": ["machine.cluster.x-k8s.io"]}})
    cluster.management.client.delete(path)
    assert run("revoke-user", "--yes")[1]["answer"] == "Accepted"
    wait_for(run, "user", "Completing", "NodesForget")
    nodes[0].attest()
    nodes[0].attest()
    wait_until(
        lambda: run("status")[1]["rotations"][0]["lagging"] == ["worker-2"], "it runs, and trusts the leaked key"
    )
    assert "until their Machines, which are being deleted, are gone" in run("status")[1]["rotations"][0]["waitsFor"]
    cluster.management.client.patch(path, {"metadata": {"finalizers": None}})
    wait_for(run, "user", "Completed", "NodesForget")


def test_beside_the_rotation_of_cas(harness: Harness, run: Run) -> None:
    """One annotation, two parts of one controller: each takes its own orders."""
    cluster = harness.cluster(policy={"ssh": {}})
    harness.run(ssh=ALLOWED, rotation=RotationSettings())
    wait_for_authorities(cluster)
    assert run("revoke-user", "--yes")[1]["answer"] == "Accepted"
    state = wait_for(run, "user", "Completed", "NodesForget")  # no node has SSH
    assert state["rotations"][0]["cause"] == "Revoked"
    harness.wait_for_event("SSHAuthorityRevoked", cluster.name, "NodeAttestationPolicy")


def test_without_ssh_the_order_is_rejected_by_the_rotation_of_cas(
    harness: Harness, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = harness.cluster()
    harness.run(rotation=RotationSettings())
    harness.wait_for_condition(cluster, "Ready", "True")
    monkeypatch.setattr(rotate_order, "ANSWERED_WITHIN_SECONDS", 2.0)
    run("start", "--yes")
    rejected = harness.wait_for_condition(cluster, "OperationRejected", "True")
    assert "runs without --ssh" in rejected["message"]
    assert OPERATION_ANNOTATION not in policy(cluster)["metadata"].get("annotations", {})


def test_an_order_where_the_policy_turns_ssh_off(harness: Harness, run: Run) -> None:
    harness.cluster()
    harness.run(ssh=ALLOWED)
    code, answer = run("start", "--yes")
    assert (code, answer["answer"]) == (4, "Rejected")
    assert "the policy does not turn SSH on" in answer["message"]
    assert "the policy does not turn SSH on" in run("status")[1]["rejected"]


def test_which_nodes_are_waited_for(harness: Harness, run: Run) -> None:
    """A worker that joined and has no record is; a node whose Machine is gone, and one without SSH, are not."""
    cluster = harness.cluster(policy={"ssh": {}})
    harness.run(ssh=ALLOWED)
    wait_for_authorities(cluster)
    nodes = [Attesting(cluster, name) for name in KEYS]
    all_attest(nodes)
    harness.join(cluster, "without-ssh")
    unknown = cluster.add_machine("worker-9", provider_id=provider_id("worker-9"))
    cluster.set_machine_status(unknown, {"nodeRef": {"name": "worker-9"}})
    assert run("start", "--yes")[1]["answer"] == "Accepted"

    def lagging(*names: str) -> None:
        wait_until(lambda: run("status")[1]["rotations"][0]["lagging"] == list(names), f"{names} are waited for")

    lagging("worker-1", "worker-2")
    cluster.management.client.delete(MACHINES_V1BETA2.object("worker-2", cluster.namespace))
    lagging("worker-1")
    nodes[0].attest()
    nodes[0].attest()
    lagging("worker-9")
    assert "nothing is known of these nodes" in run("status")[1]["rotations"][0]["waitsFor"]
    assert run("retry", "--yes", "--skip-gates", "unreachable-nodes")[1]["answer"] == "Accepted"
    wait_for(run, "user", "Prepared", "Prepared")
    message = harness.wait_for_event("NodesSkipped", cluster.name, "NodeAttestationPolicy")
    assert "worker-9" in message
