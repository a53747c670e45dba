"""Nodes whose programs end, or whose disks fail, at a step that a test says: what holds at any time, and in the end."""

from __future__ import annotations

import base64
import json
import queue
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from attestors.wire import request as wire_request
from attestors.wire.names import NODE_USER_PREFIX, Purpose
from attestors.wire.request import RequestBlocks
from authenticator.model.certificate import load_key, new_key
from authenticator.model.cluster import Cluster
from authenticator.model.pair import parse_pair
from authenticator.store.store import KnownCluster, Store
from signer.testing.api import EmbeddedAPI
from signer.testing.fixtures import embedded_api
from signer.testing.nodes import SimulatedNode
from signer.testing.world import WorldCluster
from tests.integration.fixtures import node_of, provider_id
from tests.support.challenge_attestor import ANSWER_FIELD
from tests.support.kill_points import KillPoints, Order
from tests.support.node_certificates import NEARLY_OVER, node_certificate
from tests.support.node_program import NodeProgram, Ran, exec_info

SIGNING_REQUESTS: Final = "certificatesigningrequests"
LOCKS: Final = {"kubelet-authenticator-client.lock", "kubelet-authenticator-bootstrap.lock"}
SETTLED: Final = {
    "kubelet-authenticator-client.pem",
    "kubelet-authenticator-cluster.json",
}
PIN: Final = "kubelet-authenticator-controller.json"
"""Not of a node whose requests a test decides: only the controller hands out its keys."""
"""What is in the store, beside locks, when there is nothing left to do."""
ATTEMPT: Final = "kubelet-authenticator-client.attempt.json"
PUBLIC_FILE: Final = "kubelet-authenticator-ca.crt"
KNOWN_FILES: Final = SETTLED | LOCKS | {PIN, ATTEMPT, "kubelet-authenticator-bootstrap.json", PUBLIC_FILE}
WORKERS: Final = 2


@dataclass(frozen=True, order=True)
class Posted:
    """A CertificateSigningRequest that was once created."""

    name: str
    requester: str
    public_key: bytes
    step: str
    evidence_version: str
    node_name: str


@dataclass
class Scene:
    """A cluster, and the nodes' programs that are killed there."""

    cluster: WorldCluster
    pool: queue.SimpleQueue[KillPoints]
    folder: Path
    attestation: str = ""
    renewing_stores: set[Path] = field(default_factory=set)
    """Of nodes that were once made to renew."""

    @property
    def api(self) -> EmbeddedAPI:
        """The workload API."""
        return embedded_api(self.cluster)

    def joining(self, name: str, node: SimulatedNode | None = None) -> NodeProgram:
        """A new Machine, whose node has nothing but its bootstrap kubeconfig."""
        if node is None:
            self.cluster.add_machine(name, provider_id=provider_id(name))
        program = NodeProgram(self.folder / name, node or node_of(self.cluster, name))
        program.supply_bootstrap(self.cluster)
        return program

    def renewing(self, name: str) -> NodeProgram:
        """A new Machine, whose node has a certificate that is about to run out."""
        program = self.joining(name)
        program.bootstrap_kubeconfig.unlink()
        store = Store(program.store)
        store.open()
        authority = self.api.ca_certificate_pem.decode("ascii")
        store.save_known_cluster(KnownCluster(Cluster(self.api.server, authority), ""))
        self.store_old_pair(program, new_key())
        return program

    def store_old_pair(self, program: NodeProgram, key: str) -> None:
        """Store a pair with a tenth of its life left."""
        self.renewing_stores.add(program.store)
        certificate = node_certificate(self.cluster, load_key(key).public_key(), program.node.node_name, NEARLY_OVER)
        Store(program.store).save_pair(Purpose.CLIENT, parse_pair(certificate + key))

    def run(
        self,
        program: NodeProgram,
        step: int = 0,
        steps: str = "",
        *,
        command: str = "credential",
        error: int = 0,
        lasting: bool = False,
    ) -> Ran:
        """Run a command in a fork; it dies at ``step``, or that fails with ``error``, and what follows, too."""
        output, log = program.folder / "output", program.folder / "log"
        order = Order(
            [command, "--config", str(program.configuration)],
            program.environment(exec_info()),
            str(output),
            str(log),
            step,
            steps,
            self.attestation,
            error,
            lasting,
        )
        runs = self.pool.get()
        try:
            code = runs.run(order)
        finally:
            self.pool.put(runs)
        ran = Ran(code, output.read_text(), log.read_text())
        check_store(program)
        return ran

    def recover(self, program: NodeProgram, at_most: int) -> None:
        """Run until all is well, at most so many times; the time of pauses passes at once."""
        logs = []
        for _ in range(at_most):
            ran = self.run(program)
            if ran.exit_code == 0 and _is_fresh(ran.certificate()):
                assert_settled(program, ran, renewing=program.store in self.renewing_stores)
                return
            logs.append((ran.exit_code, ran.log))
            rewind_pause(program)
        raise AssertionError(f"{program.node.node_name} did not recover: {logs}")

    def posted(self) -> list[Posted]:
        """Every CSR that was ever created here, those that are gone included."""
        collection = self.api.store.collection("certificates.k8s.io", SIGNING_REQUESTS)
        changes = self.api._loop_thread.call(lambda: collection.log.since(0))
        return [posted_by(change.after.value) for change in changes if change.before is None]

    def posted_for(self, program: NodeProgram) -> list[Posted]:
        """Those of them in that node's name."""
        return [one for one in self.posted() if one.node_name == program.node.node_name]

    def check_posted(self) -> dict[str, list[Posted]]:
        """No name twice, no key twice with the same step and version. Returns the CSRs of each requester."""
        posted = self.posted()
        assert len({one.name for one in posted}) == len(posted)
        assert len({(one.public_key, one.step, one.evidence_version) for one in posted}) == len(posted)
        by_requester: dict[str, list[Posted]] = {}
        for one in posted:
            by_requester.setdefault(one.requester, []).append(one)
        return by_requester


# What holds at any time.


def check_store(program: NodeProgram) -> None:
    """No pair that does not match, no file that others may read, nothing that piles up."""
    if not program.store.exists():
        return
    for path in program.store.iterdir():
        name = path.name.removeprefix(".").removesuffix(".partial")
        assert name in KNOWN_FILES, path
        assert path.stat().st_mode & 0o777 == (0o644 if name == PUBLIC_FILE else 0o600), path
        if path.name == "kubelet-authenticator-client.pem":
            content = path.read_bytes()
            public_key = x509.load_pem_x509_certificate(content).public_key()
            assert load_pem_private_key(content[content.index(b"-----BEGIN PRIVATE KEY") :], None).public_key() == (
                public_key
            )


def assert_settled(program: NodeProgram, ran: Ran, *, renewing: bool) -> None:
    """The printed certificate is the stored one, and nothing is left of how it was come by.

    But for a renewal that was killed when its pair was stored, whatever bootstrap kubeconfig was supplied since: then
    the same key stands in the attempt until the next renewal, because nothing but the pair is looked at before a
    certificate is printed.
    """
    files = {path.name for path in program.store.iterdir()} - LOCKS - {PUBLIC_FILE}
    if ATTEMPT in files and renewing:
        pending = json.loads((program.store / ATTEMPT).read_text())["pending"]
        assert pending["key"] in program.client_pair.read_text()
        files.remove(ATTEMPT)
    assert files - {PIN} == SETTLED
    assert ran.certificate() == x509.load_pem_x509_certificate(program.client_pair.read_bytes())


def rewind_pause(program: NodeProgram) -> dict[str, Any] | None:
    """Let the time of the pause pass, if there is one; returns the pause as it was."""
    path = program.store / ATTEMPT
    if not path.exists():
        return None
    document = json.loads(path.read_text())
    pause: dict[str, Any] | None = document.get("pause")
    if pause is not None:
        path.write_text(json.dumps({**document, "pause": {**pause, "until": int(time.time()) - 1}}))
    return pause


def _is_fresh(certificate: x509.Certificate) -> bool:
    life = certificate.not_valid_after_utc - certificate.not_valid_before_utc
    return certificate.not_valid_after_utc - datetime.now(UTC) > life / 5


def blocks_of(csr: dict[str, Any]) -> RequestBlocks:
    """A request's blocks."""
    return wire_request.decode(base64.b64decode(csr["spec"]["request"]))


def evidence_in(csr: dict[str, Any]) -> dict[str, str]:
    """A request's evidence."""
    evidence: dict[str, str] = json.loads(blocks_of(csr).evidence)
    return evidence


def posted_by(csr: dict[str, Any]) -> Posted:
    """Who posted what with that CSR."""
    evidence = evidence_in(csr)
    asked = x509.load_der_x509_csr(blocks_of(csr).certificate_request)
    (common_name,) = asked.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return Posted(
        csr["metadata"]["name"],
        csr["spec"]["username"],
        asked.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo),
        "answer" if ANSWER_FIELD in evidence else "first",
        evidence["version"],
        str(common_name.value).removeprefix(NODE_USER_PREFIX),
    )
