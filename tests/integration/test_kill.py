"""Controllers, alone or racing, are killed repeatedly while machines join; no machine joins twice or wrongly."""

from __future__ import annotations

import base64
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from attestors.wire.names import NODE_USER_PREFIX
from signer.kube.resources import CERTIFICATE_SIGNING_REQUESTS
from signer.testing.api import Request
from signer.testing.fixtures import embedded_api
from signer.testing.nodes import SimulatedNode
from signer.testing.world import Verdict, WorldCluster
from tests.integration.endorsement_key_sources import BUILTIN_SERVING_SIGNER, assert_one_owner_each, verdicts
from tests.integration.fixtures import CONTROLLER_USER, MASTER_KEY, MASTERS, Harness, node_of, provider_id
from tests.support.certificates import with_client_certificate
from tests.support.signing_requests import request_pem, signing_request

pytestmark = pytest.mark.slow

HONEST: Final = 500
SERVING: Final = 20
"""Nodes that also ask for a serving certificate of ours, and as many that ask the built-in signer."""
IMPOSTORS: Final = 40
ROUNDS: Final = 12
WRITES_PER_JOIN: Final = 5
"""Two reservations, the record, approval and certificate; Events come on top."""
READS_AT_START: Final = 25
SEED_VARIABLE: Final = "NODE_ATTESTATION_SEED"
"""Repeats a run: the seed is printed when the test fails."""
ROUND_SECONDS: Final = 60.0


@dataclass(frozen=True, slots=True)
class Strike:
    """When a controller dies: at a request of its own, or a moment after one."""

    requests: int
    """So many pass before."""
    counts_reads: bool
    way: str
    """``before`` it is carried out, ``after`` that but before the answer, or a moment ``later``."""
    later_seconds: float

    @classmethod
    def at_random(cls, chance: random.Random, writes: int) -> Strike:
        """Mostly at a write; now and then at any request, which may be one of its first."""
        counts_reads = chance.random() < 0.25
        requests = chance.randint(1, READS_AT_START if counts_reads else writes)
        return cls(requests, counts_reads, chance.choice(("before", "after", "later")), chance.uniform(0, 0.02))


class Killer:
    """Kills controllers with SIGKILL, one for each strike.

    Racing controllers look alike to the API servers: the request at which one dies may be the other's, to which that is
    one more broken connection.
    """

    def __init__(self, *apis: Any) -> None:
        self._lock = threading.Lock()
        self._aimed: list[tuple[subprocess.Popen[bytes], Strike]] = []
        self._passed = 0
        self._doomed: set[subprocess.Popen[bytes]] = set()
        self.killed = 0
        self.finished = threading.Event()
        for api in apis:
            api.faults.inject(lambda request: self._strikes(request, "after"), drop="after", times=None)
            api.faults.inject(lambda request: self._strikes(request, "before"), drop="before", times=None)
            api.faults.inject(lambda request: self._strikes(request, "later"), times=None)

    def aim(self, processes: Sequence[subprocess.Popen[bytes]], strikes: Sequence[Strike]) -> None:
        """At these, in this order."""
        with self._lock:
            self._aimed, self._passed = list(zip(processes, strikes, strict=True)), 0
            self._doomed = set(processes)
            self.finished.clear()

    def rest(self) -> None:
        """Kill no more."""
        with self._lock:
            self._aimed, self._doomed = [], set()
            self.finished.clear()

    def _strikes(self, request: Request, way: str) -> bool:
        if request.user.name != CONTROLLER_USER:
            return False
        with self._lock:
            if not self._aimed or self._aimed[0][1].way != way:
                return False
            process, strike = self._aimed[0]
            self._passed += request.method != "GET" or strike.counts_reads
            if self._passed < strike.requests:
                return False
            self._aimed, self._passed = self._aimed[1:], 0
        if way == "later":
            threading.Timer(strike.later_seconds, self._kill, [process]).start()
            return False  # nothing happens to the request itself
        self._kill(process)
        return True

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGKILL)
        self.killed += 1
        with self._lock:
            if process not in self._doomed:
                return  # by a timer that was late: the round is over
            self._doomed.discard(process)
            if not self._doomed:
                self.finished.set()


@contextmanager
def controller(folder: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """The real command line. It may die before the end."""
    command = [sys.executable, "-m", "signer.cli", "run", *options]
    command += ["--kubeconfig", str(folder / "kubeconfig"), "--config", str(folder / "config")]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with (folder / "log").open("ab") as log, subprocess.Popen(command, stderr=log, env=environment) as process:
        try:
            yield process
        finally:
            process.kill()


def configure(harness: Harness, folder: Path, **configuration: Any) -> None:
    """Write what the command line reads."""
    (folder / "kubeconfig").write_text(harness.api.kubeconfig("management", CONTROLLER_USER, MASTERS))
    settings = {"masterKey": base64.b64encode(MASTER_KEY).decode("ascii")}
    (folder / "config").write_text(json.dumps({"attestors": {"keyed-mac": {"settings": settings}}, **configuration}))


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


def _ask_for_serving_certificates(cluster: WorldCluster, nodes: dict[int, SimulatedNode]) -> None:
    """Nodes with a client certificate request serving from controller and built-in signer, and leave the list."""
    joined = verdicts(cluster)
    for number, node in list(nodes.items()):
        certificate = joined[f"join-{number}"].certificate if f"join-{number}" in joined else b""
        if certificate:
            connection = with_client_certificate(cluster.api.connection(), certificate, node.key)
            cluster.submit(node.serving_request(f"serve-{number}", dns_names=[node.node_name]), connection)
            request = request_pem(NODE_USER_PREFIX + node.node_name, alternative_names=[node.node_name])
            usages = ("digital signature", "server auth")
            builtin = signing_request(f"builtin-{number}", request, signer=BUILTIN_SERVING_SIGNER, usages=usages)
            cluster.submit(builtin, connection)
            del nodes[number]


def _is_decided(name: str, verdict: Verdict) -> bool:
    """No built-in signer runs: these clusters have no kube-controller-manager."""
    return bool(
        verdict.certificate or verdict.condition == "Denied" or (verdict.condition and name.startswith("builtin"))
    )


def test_killed_at_random_while_machines_join(harness: Harness, tmp_path: Path) -> None:
    seed = int(os.environ.get(SEED_VARIABLE) or random.SystemRandom().randrange(2**32))
    print(f"{SEED_VARIABLE}={seed}")
    chance = random.Random(seed)
    cluster = harness.cluster(policy={"builtinServingRequests": "Approve"})
    for number in range(HONEST):
        cluster.add_machine(f"node-{number}", provider_id=provider_id(f"node-{number}"))
    nodes = {number: node_of(cluster, f"node-{number}") for number in range(HONEST)}
    requests = [node.client_request(f"join-{number}") for number, node in nodes.items()]
    requests += [_impostor(cluster, number) for number in range(IMPOSTORS)]
    chance.shuffle(requests)
    serving = chance.sample(range(HONEST), SERVING)
    waiting = {number: nodes[number] for number in serving}
    configure(harness, tmp_path)
    killer = Killer(harness.api, embedded_api(cluster))

    for number in range(ROUNDS):
        with ExitStack() as stack:
            processes = [stack.enter_context(controller(tmp_path)) for _ in range(chance.choice((1, 2)))]
            now = requests[number::ROUNDS]
            killer.aim(processes, [Strike.at_random(chance, len(now) * WRITES_PER_JOIN // 2) for _ in processes])
            _submit(cluster, now)
            _ask_for_serving_certificates(cluster, waiting)
            _wait_until_decided(cluster, killer, tmp_path)
            killer.rest()
            for process in processes:
                process.kill()
                assert process.wait(ROUND_SECONDS) == -signal.SIGKILL, _log(tmp_path)
    assert killer.killed > ROUNDS // 2
    with controller(tmp_path), controller(tmp_path):
        _wait_until_decided(cluster, killer, tmp_path)
        _ask_for_serving_certificates(cluster, waiting)
        _wait_until_decided(cluster, killer, tmp_path)

    _assert_only_the_honest_joined(harness, cluster, serving)


def _submit(cluster: WorldCluster, requests: list[dict[str, Any]]) -> None:
    """Post them with a bootstrap token, all at once."""
    with cluster.client(cluster.api.token_connection(cluster.api.bootstrap_token())) as client:
        client.create_all(CERTIFICATE_SIGNING_REQUESTS.collection(), requests)


def _wait_until_decided(cluster: WorldCluster, killer: Killer, folder: Path) -> None:
    """Or until all are killed. Listing hundreds of CSRs is dear, so it is not done all the time."""
    deadline = time.monotonic() + ROUND_SECONDS
    while not killer.finished.wait(0.5):
        if all(_is_decided(name, verdict) for name, verdict in verdicts(cluster).items()):
            return
        assert time.monotonic() < deadline, _log(folder)


def _log(folder: Path) -> str:
    return (folder / "log").read_text()[-2000:]


def _assert_only_the_honest_joined(harness: Harness, cluster: WorldCluster, serving: list[int]) -> None:
    decided = verdicts(cluster)
    assert len(decided) == HONEST + IMPOSTORS + 2 * SERVING
    for name, verdict in decided.items():
        assert verdict.condition == ("Denied" if name.startswith("impostor-") else "Approved"), (name, verdict)
    records = assert_one_owner_each(harness, (cluster,))
    assert sorted(record.node_name for record in records) == sorted(f"node-{number}" for number in range(HONEST))
    for record in records:
        assert record.identity.provider == "keyed-mac"
        # Planned once, whoever issued it: no second certificate for the same request.
        number = int(record.node_name.removeprefix("node-"))
        expected = [f"join-{number}", *([f"serve-{number}"] if number in serving else [])]
        assert sorted(entry.csr_name for entry in record.journal) == expected
        assert [one.csr_name for one in record.builtin_approvals] == (
            [f"builtin-{number}"] if number in serving else []
        )
