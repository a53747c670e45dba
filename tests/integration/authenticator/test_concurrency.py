"""Twenty invocations at once, as a kubelet and a person may start them: one request, and a certificate for each."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest
from cryptography import x509

from attestors.wire.names import Purpose
from authenticator.model.certificate import load_key
from authenticator.model.pair import parse_pair
from authenticator.store.store import Store
from signer.testing.fixtures import embedded_api
from signer.testing.world import WorldCluster
from tests.integration.fixtures import Harness, node_of, provider_id
from tests.support.kill_points import ROOT
from tests.support.node_certificates import NEARLY_OVER, node_certificate
from tests.support.node_program import NodeProgram, Ran, exec_info
from tests.support.processes import wait_until

pytestmark = pytest.mark.slow

INVOCATIONS: Final = 20
LOCK: Final = "kubelet-authenticator-client.lock"
SECONDS: Final = 60.0


@pytest.fixture
def cluster(harness: Harness) -> WorldCluster:
    cluster = harness.cluster()
    cluster.add_machine("worker-1", provider_id=provider_id("worker-1"))
    harness.run()
    return cluster


@pytest.fixture
def program(cluster: WorldCluster, tmp_path: Path) -> NodeProgram:
    program = NodeProgram(tmp_path / "node", node_of(cluster, "worker-1"), timeout=SECONDS)
    program.supply_bootstrap(cluster)
    return program


def posted(cluster: WorldCluster) -> int:
    """How many CSRs were ever asked for here, with success or without."""
    return len(embedded_api(cluster).requests.matching("POST */certificatesigningrequests"))


@contextmanager
def started(program: NodeProgram) -> Iterator[list[subprocess.Popen[str]]]:
    """Twenty invocations that run at the same time."""
    with ExitStack() as stack:
        processes = []
        for _ in range(INVOCATIONS):
            processes.append(stack.enter_context(program.start("credential", environment=exec_info())))
            stack.callback(processes[-1].kill)
        yield processes


def ended(processes: list[subprocess.Popen[str]]) -> list[Ran]:
    """What they ended with, when all have."""
    outputs = [process.communicate(timeout=SECONDS) for process in processes]
    return [Ran(process.returncode, *output) for process, output in zip(processes, outputs, strict=True)]


def wait_for_the_lock(processes: list[subprocess.Popen[str]], lock: Path) -> None:
    """Wait until each of them has the lock's file open."""
    deadline = time.monotonic() + SECONDS
    while not all(_has_open(process.pid, lock) for process in processes):
        assert time.monotonic() < deadline
        assert all(process.poll() is None for process in processes)
        time.sleep(0.02)


def _has_open(process: int, path: Path) -> bool:
    for descriptor in Path(f"/proc/{process}/fd").iterdir():
        try:
            if descriptor.readlink() == path:
                return True
        except FileNotFoundError:
            continue
    return False


def assert_all_print_the_stored_certificate(program: NodeProgram, runs: list[Ran]) -> None:
    stored = x509.load_pem_x509_certificate(program.client_pair.read_bytes())
    assert [ran.certificate() for ran in runs] == [stored] * INVOCATIONS
    files = sorted(path.name for path in program.store.iterdir() if path.suffix != ".lock")
    assert files == [
        "kubelet-authenticator-client.pem",
        "kubelet-authenticator-cluster.json",
        "kubelet-authenticator-controller.json",
    ]


def test_on_an_empty_store(cluster: WorldCluster, program: NodeProgram) -> None:
    with started(program) as processes:
        assert_all_print_the_stored_certificate(program, ended(processes))
    assert posted(cluster) == 1


def stopped(program: NodeProgram, step: int) -> subprocess.Popen[bytes]:
    """An invocation that stands still at ``step``, until it is killed."""
    command = [sys.executable, "-m", "tests.support.kill_points", "--stop", str(step), "--"]
    process = subprocess.Popen(
        [*command, "credential", "--config", str(program.configuration)],
        cwd=ROOT,
        env=program.environment(exec_info()),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    return process


def step_called(program: NodeProgram, name: str) -> int:
    """The number of the first step whose name begins so, in an invocation of its own."""
    steps = program.folder / "steps"
    command = [sys.executable, "-m", "tests.support.kill_points", "--steps", str(steps), "0", "--"]
    subprocess.run(
        [*command, "credential", "--config", str(program.configuration)],
        cwd=ROOT,
        env=program.environment(exec_info()),
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    names = steps.read_text().splitlines()
    return 1 + next(number for number, found in enumerate(names) if found.startswith(name))


@pytest.mark.parametrize("step", ["after fcntl.flock", "after HTTPResponse.read", "amid file.write"])
def test_while_the_locks_holder_is_killed(
    cluster: WorldCluster, program: NodeProgram, tmp_path: Path, step: str
) -> None:
    """Whatever the holder had done before: nothing, a file by half, or a request that the API server has."""
    cluster.add_machine("model", provider_id=provider_id("model"))
    model = NodeProgram(tmp_path / "model", node_of(cluster, "model"))
    model.supply_bootstrap(cluster)
    number = step_called(model, step)
    before = posted(cluster)
    holder = stopped(program, number)
    with started(program) as processes:
        try:
            wait_for_the_lock(processes, program.store / LOCK)
            assert all(process.poll() is None for process in processes)
        finally:
            holder.send_signal(signal.SIGKILL)
            holder.wait()
        assert_all_print_the_stored_certificate(program, ended(processes))
    assert posted(cluster) - before == 1


def test_when_a_renewal_is_due(cluster: WorldCluster, program: NodeProgram) -> None:
    former = _let_a_renewal_be_due(cluster, program)
    before = posted(cluster)
    with started(program) as processes:
        runs = ended(processes)
    # Where nobody was patient enough, the next one waits for the same request.
    wait_until(lambda: program.credential().certificate() != former, "the next certificate is stored")
    fresh = program.credential().certificate()
    assert posted(cluster) - before == 1
    assert {ran.certificate() for ran in runs} <= {former, fresh}


def _let_a_renewal_be_due(cluster: WorldCluster, program: NodeProgram) -> x509.Certificate:
    """Let the node join, and put a certificate of which a tenth is left in the place of the one that it has."""
    program.credential().certificate()
    key = parse_pair(program.client_pair.read_text()).key
    old = node_certificate(cluster, load_key(key).public_key(), program.node.node_name, NEARLY_OVER)
    Store(program.store).save_pair(Purpose.CLIENT, parse_pair(old + key))
    return x509.load_pem_x509_certificate(old.encode())
