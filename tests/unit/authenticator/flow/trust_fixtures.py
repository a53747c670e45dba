"""A node whose kubelet and API server are played, with real files, store and statements."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from attestors.wire import statement
from attestors.wire.names import PROVIDER_ID_OID, Purpose
from attestors.wire.statement import PinnedController, SignedStatement
from authenticator.api.errors import CallFailed, Unreachable
from authenticator.configuration import Configuration, Trust
from authenticator.flow.authority_files import AuthorityFiles
from authenticator.flow.bootstrap import cluster_of_own_kubeconfig
from authenticator.flow.clock import Clock
from authenticator.flow.kubelet import KubeletFailed
from authenticator.flow.node_api import NodeApi
from authenticator.flow.trust import TrustStep
from authenticator.model.cluster import Cluster
from authenticator.model.kubeconfig import exec_kubeconfig
from authenticator.model.trust_state import TrustState
from authenticator.store.store import KnownCluster, Store
from tests.support.statements import IDENTITY, NOW, authority, bundle_of, controller, signed, trust_of
from tests.unit.authenticator.builders import NODE, SERVER, V1, pair

OLD, NEW = authority("old"), authority("new")
PIN = PinnedController(IDENTITY, controller().public, 1)
TURN = NOW // 240 * 240
"""Time of the first half of the node's turn: it is the only one listed, and there are two turns of 120 seconds."""


def both(sequence: int = 1) -> SignedStatement:
    """The statement that publishes the new CA beside the old one."""
    return signed(trust_of(NEW, OLD, nodes=(NODE,)), OLD, NEW, sequence=sequence, not_before=TURN)


@dataclass
class PlayedKubelet:
    """A kubelet that reads its CA file when it starts, and nothing later. Its state is in files."""

    folder: Path
    authority_file: Path
    fails: str = ""
    """Why the restart command fails."""
    ignores: bool = False
    """The command does nothing."""
    refuses: str = ""
    """It does not start with a file that has this in it."""

    @property
    def _loaded(self) -> Path:
        return self.folder / "loaded"

    @property
    def loaded(self) -> str:
        """The CAs that the running process read; empty if none runs."""
        return self._loaded.read_text() if self._loaded.exists() else ""

    def start(self) -> None:
        content = self.authority_file.read_text()
        self._loaded.unlink(missing_ok=True)
        (self.folder / "starts").write_text(str(self.starts + 1))
        if not (self.refuses and self.refuses in content):
            self._loaded.write_text(content)

    @property
    def starts(self) -> int:
        count = self.folder / "starts"
        return int(count.read_text()) if count.exists() else 0

    def process(self) -> str:
        return str(self.starts) if self.loaded else ""

    def restart(self) -> None:
        if self.fails:
            raise KubeletFailed(self.fails)
        if not self.ignores:
            self.start()

    def problem(self) -> str:
        return "" if self.loaded else "the kubelet does not answer"


@dataclass
class PlayedApi:
    """The API server: what is published, and what the node's heartbeats say."""

    kubelet: PlayedKubelet
    published: bytes | None = None
    renewals: bytes | None = None
    bundle: bytes | None = None
    bundle_version: int = 0
    bundles_read: int = 0
    ready: bool = True
    failure: CallFailed | None = None
    beats: int = 0
    silent: bool = False

    def statement(self) -> bytes | None:
        if self.failure is not None:
            raise self.failure
        return self.published

    def renewal(self) -> bytes | None:
        if self.failure is not None:
            raise self.failure
        return self.renewals

    def trust_bundle_version(self) -> str:
        if self.failure is not None:
            raise self.failure
        return "" if self.bundle is None else str(self.bundle_version)

    def trust_bundle(self) -> bytes | None:
        self.bundles_read += 1
        return self.bundle

    def is_ready(self) -> bool:
        return self.ready

    def heartbeat(self) -> str:
        if self.failure is not None:
            raise self.failure
        self.beats += not self.silent and bool(self.kubelet.loaded)
        return str(self.beats)


@dataclass
class TrustNode:
    """A node that joined under the old CA and pinned the controller's keys."""

    folder: Path
    time: float = float(TURN)
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.client_authority_file.write_text(bundle_of(OLD))
        self.kubelet = PlayedKubelet(self.folder, self.store.authority_file)
        self.api = PlayedApi(self.kubelet)
        if not self.store.folder.exists():
            self.store.open()
            self.store.save_authority(bundle_of(OLD))
            self.store.save_pin(PIN)
            for purpose in Purpose:
                self.store.save_pair(purpose, pair())
            cluster = Cluster(SERVER, bundle_of(OLD))
            self.store.save_known_cluster(KnownCluster(cluster, ""))
            self.configuration.kubeconfig.write_text(
                exec_kubeconfig(
                    cluster,
                    authority_file=str(self.store.authority_file),
                    command="kubelet-authenticator",
                    arguments=[],
                    api_version=V1,
                )
            )
            self.kubelet.start()
        self.step = self.new_process()

    @property
    def store(self) -> Store:
        return Store(self.folder / "pki")

    @property
    def client_authority_file(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def files(self) -> AuthorityFiles:
        return AuthorityFiles(self.store.authority_file, [self.client_authority_file], others_may_be_missing=False)

    @property
    def configuration(self) -> Configuration:
        nowhere = self.folder / "nothing"
        return Configuration(
            "keyed-mac",
            {},
            NODE,
            "",
            PROVIDER_ID_OID,
            nowhere,
            self.folder / "kubelet.conf",
            self.folder / "pki",
            1.0,
            None,
            None,
        )

    def new_process(self) -> TrustStep:
        """The step of an agent that has just started."""
        clock = Clock(wall=lambda: self.time, monotonic=lambda: self.time, sleep=self.pass_by)
        trust = Trust((self.client_authority_file,), authority_files_may_be_missing=False)
        return TrustStep(
            self.configuration, trust, self.store, clock, self.told.append, self.kubelet, lambda *_: self._connect()
        )

    def _connect(self) -> NodeApi | None:
        """As TLS has it: the servers present the old CA's certificate, with the new one's link in their chain."""
        cluster = cluster_of_own_kubeconfig(self.configuration.kubeconfig)
        if cluster is None:
            return None
        if not {OLD.certificate.public_key_hash, NEW.certificate.public_key_hash} & set(cluster.authority_hashes):
            self.api.failure = Unreachable("no trusted certificate")
        return self.api

    def pass_by(self, seconds: float) -> None:
        self.time += seconds

    def publish(self, found: SignedStatement | bytes) -> None:
        self.api.published = found if isinstance(found, bytes) else statement.encode(found)

    def publish_renewal(self, found: SignedStatement) -> None:
        self.api.renewals = statement.encode(found)

    def publish_bundle(self, found: SignedStatement | bytes) -> None:
        self.api.bundle = found if isinstance(found, bytes) else statement.encode(found)
        self.api.bundle_version += 1

    def run(self, turns: int = 1) -> None:
        """So many turns of the agent, each when it is due."""
        for _ in range(turns):
            self.pass_by(self.step.turn())

    @property
    def state(self) -> TrustState:
        return self.store.trust_state()

    @property
    def reason(self) -> str:
        rejection = self.state.rejection
        return rejection.reason if rejection is not None else ""

    @property
    def contents(self) -> set[str]:
        return {self.store.authority_file.read_text(), self.client_authority_file.read_text()}
