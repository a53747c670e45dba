"""``make containers``: sessions and files through the gateway and on the node, beside kubectl and scp to the node.

All take turns with the same API server, kubelet and node, so what else the machine does slows all. The gateway's part
is what its own process needs.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.machine import this_machine
from tests.bench.node_logins import measure_node_logins
from tests.support.binaries import MissingPart
from tests.support.containers.cluster import ContainerCluster, running_kubelet
from tests.support.containers.node_mode import NodeMode
from tests.support.containers.plain_sshd import PlainSSHServer
from tests.support.containers.pods import files_container, pod_manifest
from tests.support.gateway import GatewayOfTest, GrantOfTest, running_gateway
from tests.support.kubectl import find_kubectl
from tests.support.openssh import find_openssh
from tests.support.processes import wait_until

MEBIBYTE: Final = 1024 * 1024
FILE_MEBIBYTES: Final = 200
TRANSFER_ROUNDS: Final = 3
LOGINS: Final = 31
SESSIONS: Final = 200
TRANSFER_TARGET: Final = 0.5
"""Of the rate of a peer, at least."""
LOGIN_TARGET: Final = 1.5
"""Times ``kubectl exec``, at most."""
MEMORY_TARGET: Final = 1.0
"""MiB for each session, at most."""
SECTIONS: Final = ("files", "logins", "memory", "node")
POD: Final = "files"
USER: Final = f"default_{POD}"
ON_NODE: Final = f"{USER}_app"
"""Nodes want the container's name, too."""
PEERS: Final = ("kubectl cp", "scp to the node")
"""What the others are compared with. ``kubectl cp`` goes by API server and kubelet, as the gateway does."""
COMPARED: Final[Mapping[str, Sequence[str]]] = {
    "ssh": PEERS[:1],
    "sftp": PEERS[:1],
    "scp": PEERS[:1],
    "sftp on the node": PEERS,
    "scp on the node": PEERS,
}
"""The ways into the container, and with which peers the target counts for each."""
_WITHIN_SECONDS: Final = 600
_SESSIONS_PER_ADDRESS: Final = 50
"""The gateway takes so many connections from one address, and a few more."""


@dataclass(frozen=True, slots=True)
class Place:
    """The Pod, the ways to it, and files of this machine."""

    cluster: ContainerCluster
    gateway: GatewayOfTest
    grant: GrantOfTest
    folder: Path
    node: NodeMode
    sshd: PlainSSHServer

    def kubectl(self, *words: str) -> list[str]:
        """With a discovery cache, as people have it."""
        configuration = [f"--kubeconfig={self.folder / 'kubeconfig'}", f"--cache-dir={self.folder / 'cache'}"]
        return [str(find_kubectl()), *configuration, *words]

    def ssh(self, *words: str, options: Sequence[str] = ()) -> list[str]:
        """Stock ssh."""
        return self.grant.command(USER, *words, options=options)

    def tool(self, name: str, *words: str) -> list[str]:
        """Stock sftp or scp."""
        return [str(find_openssh(name)), *self.grant.options(), f"-P{self.gateway.port}", *words]


@contextlib.contextmanager
def place() -> Iterator[Place]:
    """Raises MissingPart."""
    with tempfile.TemporaryDirectory(prefix="node-access-bench-") as name, running_kubelet() as cluster:
        folder = Path(name)
        (folder / "kubeconfig").touch(mode=0o600)
        (folder / "kubeconfig").write_text(cluster.plane.kubeconfig())
        cluster.create(pod_manifest(POD, [files_container()]))
        with running_gateway(cluster) as gateway:
            grant = gateway.grant({"namespace": "default", "pod": POD, "container": "app"})
            node = NodeMode(cluster)
            node.user(ON_NODE)
            yield Place(cluster, gateway, grant, folder, node, PlainSSHServer(node))


def seconds(words: Sequence[str], source: Path | None = None, sink: Path | None = None) -> float:
    """How long a program runs. Raises AssertionError if it fails."""
    with contextlib.ExitStack() as stack:
        read = stack.enter_context(source.open("rb")) if source else subprocess.DEVNULL
        written = stack.enter_context(sink.open("wb")) if sink else subprocess.DEVNULL
        started = time.perf_counter()
        done = subprocess.run(
            words, stdin=read, stdout=written, stderr=subprocess.PIPE, timeout=_WITHIN_SECONDS, check=False
        )
        taken = time.perf_counter() - started
    if done.returncode:
        raise AssertionError(f"{Path(words[0]).name}: {done.returncode}: {done.stderr.decode(errors='replace')}")
    return taken


# Files


@dataclass(frozen=True, slots=True)
class Way:
    """A program that transfers the file."""

    name: str
    up: Callable[[], float]
    down: Callable[[], float]


def ways(at: Place, size: int) -> list[Way]:
    """The first is the one to compare with."""
    sent, received, there = at.folder / "sent", at.folder / "received", f"/tmp/{POD}"
    with sent.open("wb") as file:
        for _ in range(size // MEBIBYTE):
            file.write(secrets.token_bytes(MEBIBYTE))
    store = f"head -c {size} > {there}"  # API servers before 1.30 cannot pass on the end of input
    pod, remote = f"default/{POD}:{there}", f"{USER}@127.0.0.1:{there}"
    execute = ("exec", "--stdin", POD, "--")
    batches = {name: at.folder / f"batch-{name}" for name in ("put", "get")}
    batches["put"].write_text(f"put {sent} {there}\n")
    batches["get"].write_text(f"get {there} {received}\n")

    def sftp(name: str) -> Callable[[], float]:
        return lambda: seconds(at.tool("sftp", "-b", str(batches[name]), f"{USER}@127.0.0.1"))

    def sftp_on_node(name: str) -> Callable[[], float]:
        return lambda: seconds(at.node.ssh(ON_NODE, "-b", str(batches[name]), "node", program="sftp"))

    def scp_on_node(*words: str) -> Callable[[], float]:
        return lambda: seconds(at.node.ssh(ON_NODE, *words, program="scp"))

    def scp_to_node(*words: str) -> Callable[[], float]:
        return lambda: seconds(at.sshd.scp(*words))

    plain = f"node:{at.sshd.folder / POD}"
    return [
        Way(
            "kubectl cp",
            lambda: seconds(at.kubectl("cp", str(sent), pod)),
            lambda: seconds(at.kubectl("cp", pod, str(received))),
        ),
        Way(
            "kubectl exec",
            lambda: seconds(at.kubectl(*execute, "sh", "-c", f"{store}; exit $?"), source=sent),
            lambda: seconds(at.kubectl(*execute[:1], *execute[2:], "cat", there), sink=received),
        ),
        Way("ssh", lambda: seconds(at.ssh(store), source=sent), lambda: seconds(at.ssh(f"cat {there}"), sink=received)),
        Way("sftp", sftp("put"), sftp("get")),
        Way(
            "scp",
            lambda: seconds(at.tool("scp", str(sent), remote)),
            lambda: seconds(at.tool("scp", remote, str(received))),
        ),
        Way("sftp on the node", sftp_on_node("put"), sftp_on_node("get")),
        Way("scp on the node", scp_on_node(str(sent), f"node:{there}"), scp_on_node(f"node:{there}", str(received))),
        Way("scp to the node", scp_to_node(str(sent), plain), scp_to_node(plain, str(received))),
    ]


def measure_files(at: Place, mebibytes: int, rounds: int) -> bool:
    """Print MB/s both ways, and the gateway's CPU; whether the target is met."""
    size = mebibytes * MEBIBYTE
    found: dict[tuple[str, str], list[float]] = {}
    spent: dict[tuple[str, str], list[float]] = {}
    tried = ways(at, size)
    for _ in range(rounds):
        for way in tried:
            for direction, run in (("up", way.up), ("down", way.down)):
                (at.folder / "received").unlink(missing_ok=True)
                before = cpu_seconds(at.gateway)
                found.setdefault((way.name, direction), []).append(run())
                spent.setdefault((way.name, direction), []).append(cpu_seconds(at.gateway) - before)
                if direction == "down" and (at.folder / "received").stat().st_size != size:
                    print(f"{way.name}: {(at.folder / 'received').stat().st_size} of {size} bytes came back")
    is_met = True
    for direction in ("up", "down"):
        peers = {name: statistics.median(found[name, direction]) for name in PEERS}
        for way in tried:
            median = statistics.median(found[way.name, direction])
            cpu = statistics.median(spent[way.name, direction])
            ratios = {name: peer / median for name, peer in peers.items()}
            print(
                f"{way.name:18}{direction:6}{size / median / 1e6:8.0f} MB/s "
                f"{ratios[PEERS[0]]:8.2f} {ratios[PEERS[1]]:8.2f}    "
                f"gateway {1000 * cpu / mebibytes:6.2f} ms/MiB"
            )
            is_met = is_met and all(ratios[name] >= TRANSFER_TARGET for name in COMPARED.get(way.name, ()))
    print(f"medians of {rounds}; ratios to {' and to '.join(PEERS)}")
    for name, against in COMPARED.items():
        print(f"{name}: at least {TRANSFER_TARGET} of {' and of '.join(against)}")
    return is_met


def cpu_seconds(gateway: GatewayOfTest) -> float:
    """CPU time of the gateway's process."""
    fields = Path(f"/proc/{gateway.program.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# Sessions


def measure_logins(at: Place, rounds: int) -> bool:
    """Print medians; whether the target is met."""
    socket = at.folder / "control"
    with master(at, socket):
        commands = {
            "kubectl exec": at.kubectl("exec", POD, "--", "true"),
            "ssh": at.ssh("true", options=["-n"]),
            "ssh, open": at.ssh("true", options=["-n", "-S", str(socket)]),
        }
        found: dict[str, list[float]] = {name: [] for name in commands}
        spent: dict[str, list[float]] = {name: [] for name in commands}
        for number in range(rounds + 1):
            for name, words in commands.items():
                before = cpu_seconds(at.gateway)
                taken = seconds(words)
                if number:  # the first one warms caches
                    found[name].append(taken)
                    spent[name].append(cpu_seconds(at.gateway) - before)
    medians = {name: statistics.median(taken) for name, taken in found.items()}
    for name, median in medians.items():
        ratio = median / medians["kubectl exec"]
        cpu = statistics.mean(spent[name])
        print(f"{name:20}{1000 * median:8.0f} ms   {ratio:8.2f}    gateway {1000 * cpu:6.1f} ms")
    print(f"ratio to kubectl exec for a new session, at most {LOGIN_TARGET}")
    return medians["ssh"] / medians["kubectl exec"] <= LOGIN_TARGET


@contextlib.contextmanager
def master(at: Place, socket: Path) -> Iterator[None]:
    """A connection that stays open for others."""
    process = at.grant.start(USER, options=["-N", "-M", "-S", str(socket)])
    try:
        wait_until(socket.exists, "ssh shares its connection")
        yield
    finally:
        process.terminate()
        process.communicate()


# Memory


def measure_memory(at: Place, count: int) -> bool:
    """Print MiB for each session; whether the target is met."""
    seconds(at.ssh("true", options=["-n"]))
    before = resident_mebibytes(at.gateway)
    running: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(count):
            options = ["-o", f"BindAddress=127.0.0.{2 + number // _SESSIONS_PER_ADDRESS}"]
            process = at.grant.start(USER, "echo begun; cat", options=options)
            running.append(process)
            if process.stdout is None or process.stdout.readline() != b"begun\n":
                raise AssertionError(at.gateway.log())
        each = (resident_mebibytes(at.gateway) - before) / count
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.communicate()
    print(f"{count} open sessions, each  {each:8.2f} MiB    at most {MEMORY_TARGET}    (without any {before:.0f} MiB)")
    return each <= MEMORY_TARGET


def resident_mebibytes(gateway: GatewayOfTest) -> float:
    """Of the gateway's process."""
    pages = int(Path(f"/proc/{gateway.program.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / MEBIBYTE


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; returns 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.containers", description=__doc__)
    parser.add_argument("--only", choices=SECTIONS, action="append", help="measure this alone")
    parser.add_argument("--mebibytes", type=int, default=FILE_MEBIBYTES, help="size of the file")
    parser.add_argument("--rounds", type=int, default=TRANSFER_ROUNDS, help="transfers of the file each way")
    parser.add_argument("--logins", type=int, default=LOGINS, help="sessions each way")
    parser.add_argument("--sessions", type=int, default=SESSIONS, help="sessions open at once")
    options = parser.parse_args(arguments)
    measures: Mapping[str, Callable[[Place], bool]] = {
        "files": lambda at: measure_files(at, options.mebibytes, options.rounds),
        "logins": lambda at: measure_logins(at, options.logins),
        "memory": lambda at: measure_memory(at, options.sessions),
        "node": lambda at: measure_node_logins(at.kubectl("exec", POD, "--", "true"), at.folder, options.logins),
    }
    print(this_machine())
    try:
        with place() as at:
            met = [measure(at) for name, measure in measures.items() if name in (options.only or SECTIONS)]
    except MissingPart as missing:
        print(missing, file=sys.stderr)
        return 2
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
