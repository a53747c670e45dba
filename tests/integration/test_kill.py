"""The controller, as its own process, is killed again and again while machines join; nobody joins twice or wrongly."""

from __future__ import annotations

import base64
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.testing.api import Request
from signer.testing.fixtures import embedded_api
from signer.testing.nodes import SimulatedNode
from signer.testing.world import WorldCluster
from tests.integration.house import CONTROLLER_USER, MASTER_KEY, MASTERS, House, node_of, provider_id
from tests.integration.ownership import assert_one_owner_each, verdicts

pytestmark = pytest.mark.slow

HONEST: Final = 200
IMPOSTORS: Final = 40
KILLS: Final = 12
WRITES_PER_JOIN: Final = 5
"""Two reservations, the record, approval and certificate; Events come on top."""
SEED: Final = 20260301
_START_SECONDS: Final = 30.0


class Killer:
    """Kills the controller with SIGKILL at a chosen write to any API server, carried out or not."""

    def __init__(self, *apis: Any) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._writes_left = 0
        self._carried_out = False
        self.killed = threading.Event()
        for api in apis:
            api.faults.inject(lambda request: self._strikes(request, carried_out=True), drop="after", times=None)
            api.faults.inject(lambda request: self._strikes(request, carried_out=False), drop="before", times=None)

    def aim(self, process: subprocess.Popen[bytes], writes: int, *, carried_out: bool) -> None:
        """Let so many more writes pass."""
        with self._lock:
            self._process, self._writes_left, self._carried_out = process, writes, carried_out
            self.killed.clear()

    def _strikes(self, request: Request, *, carried_out: bool) -> bool:
        if request.method == "GET" or request.user.name != CONTROLLER_USER:
            return False
        with self._lock:
            if self._process is None or carried_out is not self._carried_out:
                return False
            self._writes_left -= 1
            if self._writes_left > 0:
                return False
            self._process.send_signal(signal.SIGKILL)
            self._process = None
            self.killed.set()
            return True


@contextmanager
def controller(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The real command line. It may die before the end."""
    command = [sys.executable, "-m", "signer.cli", "run"]
    command += ["--kubeconfig", str(folder / "kubeconfig"), "--config", str(folder / "config")]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with (folder / "log").open("ab") as log, subprocess.Popen(command, stderr=log, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def _configure(house: House, folder: Path) -> None:
    (folder / "kubeconfig").write_text(house.api.kubeconfig("management", CONTROLLER_USER, MASTERS))
    settings = {"masterKey": base64.b64encode(MASTER_KEY).decode("ascii")}
    (folder / "config").write_text(json.dumps({"attestors": {"keyed-mac": {"settings": settings}}}))


def _impostor(cluster: WorldCluster, number: int) -> dict[str, Any]:
    """Each claims to be an honest node: by name, with copied evidence, or with another machine's key."""
    name, victim = f"impostor-{number}", f"node-{number}"
    match number % 3:
        case 0:
            return node_of(cluster, f"node-{number + 1}", victim).client_request(name)
        case 1:
            copied = node_of(cluster, victim).evidence()
            return node_of(cluster, victim).client_request(name, evidence_of=copied)
        case _:
            other = node_of(cluster, f"node-{number + 1}")
            pretender = SimulatedNode(victim, provider_id(victim), cluster.ca_cert_hash, "keyed-mac", other.settings)
            return pretender.client_request(name)


def test_killed_at_random_while_machines_join(house: House, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    cluster = house.cluster()
    for number in range(HONEST):
        cluster.add_machine(f"node-{number}", provider_id=provider_id(f"node-{number}"))
    requests = [node_of(cluster, f"node-{number}").client_request(f"join-{number}") for number in range(HONEST)]
    requests += [_impostor(cluster, number) for number in range(IMPOSTORS)]
    chance.shuffle(requests)
    _configure(house, tmp_path)
    killer = Killer(house.api, embedded_api(cluster))

    batch = len(requests) // KILLS
    with cluster.client(cluster.api.token_connection(cluster.api.bootstrap_token())) as client:
        for _ in range(KILLS):
            with controller(tmp_path) as process:
                writes = chance.randint(1, batch * WRITES_PER_JOIN // 2)
                killer.aim(process, writes, carried_out=chance.random() < 0.5)
                client.create_all(CERTIFICATE_SIGNING_REQUESTS.collection(), requests[:batch])
                requests = requests[batch:]
                assert killer.killed.wait(_START_SECONDS), (tmp_path / "log").read_text()[-2000:]
                assert process.wait(_START_SECONDS) == -signal.SIGKILL
        client.create_all(CERTIFICATE_SIGNING_REQUESTS.collection(), requests)
    with controller(tmp_path):
        for name in verdicts(cluster):
            cluster.wait_until_decided(name)

    _assert_only_the_honest_joined(house, cluster)


def _assert_only_the_honest_joined(house: House, cluster: WorldCluster) -> None:
    decided = verdicts(cluster)
    assert len(decided) == HONEST + IMPOSTORS
    for name, verdict in decided.items():
        assert verdict.condition == ("Approved" if name.startswith("join-") else "Denied"), (name, verdict)
    records = assert_one_owner_each(house, (cluster,))
    assert sorted(record.node_name for record in records) == sorted(f"node-{number}" for number in range(HONEST))
    for record in records:
        assert record.identity.provider == "keyed-mac"
        # Planned once, whoever issued it: no second certificate for the same request.
        assert [entry.csr_name for entry in record.journal] == [record.node_name.replace("node-", "join-")]
