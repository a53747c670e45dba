"""``node-access`` into containers as a person runs it, and the status of the grants as the controller writes it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.signatures import public_key_of
from signer.kube.resources import ACCESS_GRANTS
from signer.model.fields import format_time
from tests.support.access_grants import HOUR
from tests.support.containers.cluster import ContainerCluster
from tests.support.containers.node_mode import PORT, NodeMode
from tests.support.gateway import GatewayOfTest
from tests.support.gateway_grants import CLUSTER, container_grant
from tests.support.grant_controller import HEARTBEAT
from tests.support.kubectl import find_kubectl
from tests.support.raw_client import RawClient

ROOT: Final = Path(__file__).parents[3]
CREATOR: Final = "alice"
NO_HEARTBEAT: Final = "--no-keepalive"
_ASKING: Final = ("ssh", "scp", "forward", "grant create")
_ASKED: Final = ("--user", CREATOR, NO_HEARTBEAT)


class Statuses:
    """Writes the status of new grants, and again after each heartbeat, until the block ends. With ``node``, it has the
    node, too, as the hint says.
    """

    def __init__(
        self,
        gateway: GatewayOfTest,
        *,
        names_gateway: bool = True,
        node: NodeMode | None = None,
        runs_on: str = "",
        lifetime: timedelta = HOUR,
        time_to_live: timedelta = timedelta(minutes=30),
    ) -> None:
        self._gateway = gateway
        self._names_gateway = names_gateway
        self._node = node
        self._runs_on = runs_on
        self._lifetime = lifetime
        self._time_to_live = time_to_live
        self._beats: dict[str, object] = {}
        self.ends: list[datetime] = []
        """Of the certificates, whose serial numbers are their places here, from 1 on."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Statuses:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with RawClient(self._gateway.cluster.plane.connection()) as client:  # the test asks by another
            self._write(client)

    def _write(self, client: RawClient) -> None:
        while not self._stop.wait(0.1):
            for one in client.get(ACCESS_GRANTS.collection(CLUSTER.namespace)).expect(200)["items"]:
                beat = (one["metadata"].get("annotations") or {}).get(HEARTBEAT, "")
                if self._beats.get(one["metadata"]["uid"]) != beat:
                    self._beats[one["metadata"]["uid"]] = beat
                    path = ACCESS_GRANTS.object(one["metadata"]["name"], CLUSTER.namespace)
                    client.patch(f"{path}/status", {"status": self._status(one)})

    def _status(self, grant: dict[str, Any]) -> dict[str, Any]:
        spec, metadata = grant["spec"], grant["metadata"]
        now = datetime.now(UTC).replace(microsecond=0)
        self.ends.append(now + self._lifetime)
        given = {name: spec[name] for name in ("sshPublicKey", "permissions") if name in spec}
        made = container_grant(
            spec["target"]["container"],
            name=metadata["name"],
            uid=metadata["uid"],
            number=len(self.ends),
            now=now,
            creator=CREATOR,
            lifetime=self._lifetime,
            **given,
        )
        status: dict[str, Any] = made["status"]
        status.update(
            observedGeneration=metadata["generation"],
            lastHeartbeatTimestamp=format_time(now),
            expirationTimestamp=format_time(now + self._time_to_live),
        )
        if self._names_gateway:
            key = " ".join((self._gateway.folder / "host_key.pub").read_text().split()[:2])
            status["gateway"] = {"host": "127.0.0.1", "port": self._gateway.port}
            status["knownHosts"] = [f"node-access-gateway-{metadata['uid']} {key}"]
        if self._node is not None:
            here = self._node.node
            addresses = [here.network.address]
            status["targets"] = [
                {"node": "worker-9", "addresses": addresses, "port": PORT},
                {"node": here.name, "addresses": addresses, "port": PORT},
            ]
            status["containerNode"] = self._runs_on or here.name
            line = f"@cert-authority * {key_line(public_key_of(self._node.host_authority))}"
            status["knownHosts"] = [*status.get("knownHosts", ()), line]
        return status


class Alice:
    """A person with a home and a kubeconfig, and without an ssh-agent."""

    def __init__(self, home: Path, cluster: ContainerCluster) -> None:
        programs = home / "programs"
        programs.mkdir(parents=True)
        (programs / "kubectl").symlink_to(find_kubectl())
        (home / "kubeconfig").touch(mode=0o600)
        (home / "kubeconfig").write_text(cluster.plane.kubeconfig(user=CREATOR, groups=("system:masters",)))
        self.home = home
        self.environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "HOME": str(home),
            "KUBECONFIG": str(home / "kubeconfig"),
            "PYTHONPATH": str(ROOT),
        }

    def command(self, name: str, *words: str) -> list[str]:
        """The command line."""
        program = [sys.executable, "-P", "-m", "node_access.client", *name.split()]
        return [*program, "--namespace", CLUSTER.namespace, *(_ASKED if name in _ASKING else ()), *words]

    def run(self, name: str, *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        return subprocess.run(
            self.command(name, *words),
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=90,
            env=self.environment,
            cwd=self.home,
        )
