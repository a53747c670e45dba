"""Measures a revocation among many: from the controller's list to sshd's file on a node, over a real API server."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, TypeVar

from attestors.wire.names import PROVIDER_ID_OID
from attestors.wire.node_access import Trust
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.keys import host_key
from attestors.wire.ssh.krl import CertificateRevocations, parse_revocation_list
from attestors.wire.ssh.signatures import public_key_of
from attestors.wire.statement import ClusterIdentity, PinnedController
from attestors.wire.statement.names import NODE_ACCESS_CONFIG_MAP
from authenticator.api.server import ApiServer
from authenticator.configuration import SSH, Configuration
from authenticator.flow.clock import Clock
from authenticator.flow.node_api import ServedNodeApi
from authenticator.flow.sshd_files import REVOKED_KEYS_FILE
from authenticator.flow.trust_bundle import TrustBundleStep
from authenticator.model.cluster import ClientCertificate, Cluster
from authenticator.model.kubeconfig import exec_kubeconfig
from authenticator.store.store import Store
from signer.authority import load_certificate_authority
from signer.authority.ssh.private_key import new_private_key
from signer.authority.statement_signing import StatementKeys
from signer.kube.client import Client
from signer.model.seal import ControllerKeys, KeyUse
from signer.rotation.statements.readers import ensure_readers
from signer.ssh.bundle.content import BundleFacts
from signer.ssh.bundle.publishing import NothingPublished, PublishedBundle, publish_bundle
from tests.support.control_plane import ControlPlane
from tests.support.openssh import find_openssh, ssh_keygen

REVOCATIONS: Final = 10_000
MAXIMUM_SECONDS: Final = 1.0
"""Limit of the whole way, without the time until the node looks."""
_NODE: Final = "worker-1"
_CLUSTER: Final = ClusterIdentity("fleet", "prod", "5f1c1f7a-0000-4000-8000-000000000001")
_KEYS: Final = StatementKeys.of(ControllerKeys(bytes(range(32))).subkeys(KeyUse.STATEMENT))
_Result = TypeVar("_Result")


@dataclass
class Revocations:
    """The result, in seconds, one of each round."""

    count: int
    list_bytes: int = 0
    text_bytes: int = 0
    published: list[float] = field(default_factory=list)
    """The controller builds, signs and publishes, and reads what is there."""
    in_place: list[float] = field(default_factory=list)
    """The node reads, judges and writes; ssh-keygen reads the list before it is in place."""
    openssh: list[float] = field(default_factory=list)
    """ssh-keygen alone asks the list about a key."""

    @property
    def altogether(self) -> list[float]:
        """From the list to sshd's file."""
        return [one + other for one, other in zip(self.published, self.in_place, strict=True)]


def measure_revocations(count: int, rounds: int) -> Revocations:
    """Raises :class:`tests.support.binaries.MissingPart`."""
    find_openssh("ssh-keygen")
    with ControlPlane() as control_plane, tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measure(control_plane, Path(folder), Revocations(count), rounds))


async def _measure(control_plane: ControlPlane, folder: Path, found: Revocations, rounds: int) -> Revocations:
    user, host = (public_key_of(new_private_key()) for _ in range(2))
    authority = load_certificate_authority(
        {"tls.crt": control_plane.ca.certificate_pem, "tls.key": control_plane.ca.key_pem}, now=datetime.now(UTC)
    )
    node = _Node(control_plane, folder)
    last: PublishedBundle | NothingPublished = NothingPublished()
    async with Client(control_plane.connection()) as client:
        await ensure_readers(client, NODE_ACCESS_CONFIG_MAP)
        for number in range(rounds + 1):
            names = range(found.count)
            key_ids = tuple(f"grant/team-{one % 50}/{number}-{one:05}/{one:08x}-0000-4000-8000-00" for one in names)
            revoked = (CertificateRevocations(user, key_ids=key_ids),)
            facts = BundleFacts(_CLUSTER, Trust((user,), (), (host_key(host),), 1), 0, 10, revoked, (authority,))
            began = time.perf_counter()
            last = await publish_bundle(client, facts, _KEYS, datetime.now(UTC), last)
            published = time.perf_counter() - began
            in_place = await asyncio.to_thread(_seconds, node.look)
            content = node.revoked.read_bytes()
            assert parse_revocation_list(content).entries == found.count
            openssh = _seconds(node.ask_openssh)
            if number:  # the first one imports much
                found.published.append(published)
                found.in_place.append(in_place)
                found.openssh.append(openssh)
            found.list_bytes, found.text_bytes = len(content), len(last.text)
    return found


class _Node:
    """A node whose agent looks when it is told to."""

    def __init__(self, control_plane: ControlPlane, folder: Path) -> None:
        self.ssh = SSH((), folder=folder / "node-access")
        self.revoked = self.ssh.folder / REVOKED_KEYS_FILE
        self.folder = folder
        store = Store(folder / "pki")
        store.open()
        store.save_pin(PinnedController(_CLUSTER, _KEYS.public, 1))
        cluster = Cluster(control_plane.server, control_plane.ca.certificate_pem.decode("ascii"))
        store.save_authority(cluster.certificate_authority)
        nowhere = folder / "nothing"
        configuration = Configuration(
            "keyed-mac", {}, _NODE, "", PROVIDER_ID_OID, nowhere, folder / "kubelet.conf", store.folder, 1.0, None, None
        )
        text = exec_kubeconfig(
            cluster,
            authority_file=str(store.authority_file),
            command="kubelet-authenticator",
            arguments=[],
            api_version="client.authentication.k8s.io/v1",
        )
        configuration.kubeconfig.write_text(text)
        certificate, key = control_plane.ca.issue_client(f"system:node:{_NODE}", ["system:nodes"])
        credential = ClientCertificate(certificate.decode("ascii"), key.decode("ascii"))
        api = ServedNodeApi(ApiServer(cluster, credential), _NODE)
        self._now = 0.0
        clock = Clock(wall=time.time, monotonic=lambda: self._now)
        self._step = TrustBundleStep(configuration, self.ssh, store, clock, lambda text: None, lambda *_: api)
        (folder / "key.pub").write_text(f"{key_line(public_key_of(new_private_key()))}\n")

    def look(self) -> None:
        """The agent's step."""
        self._now += 60
        self._step.turn()

    def ask_openssh(self) -> None:
        """As sshd does at a login."""
        done = ssh_keygen("-Q", "-f", self.revoked, self.folder / "key.pub")
        assert done.returncode == 0, done.stderr


def _seconds(run: Callable[[], _Result]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began
