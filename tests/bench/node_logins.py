"""Sessions in containers by the sshd of a node, beside ``kubectl exec`` and beside a stock sshd that runs a shell.

All take turns, so what else the machine does slows all. The stock sshds have the same keys, algorithms and client, a
file of principals, and no program of ours: a new connection cannot take less time than theirs.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from attestors.wire.ssh.principals import PlainPrincipal
from tests.support.access_node import HOST, NODE
from tests.support.containers.systemd_node import USER, ContainersNode
from tests.support.processes import free_port, wait_until

OPEN_TARGET: Final = 1.0
"""Times ``kubectl exec``, at most, for a session over an open connection."""
PEER: Final = "kubectl exec"
STOCK: Final = "stock sshd"
ACTIVATED: Final = "stock sshd, socket"
NEW: Final = "node"
OPEN: Final = "node, open"
_COMMAND: Final = re.compile(
    r"AuthorizedPrincipalsCommand .*\nAuthorizedPrincipalsCommandUser .*\nAuthorizedPrincipalsFile none"
)
_WITHIN_SECONDS: Final = 60


def measure_node_logins(kubectl: Sequence[str], folder: Path, rounds: int) -> bool:
    """Print medians beside that of ``kubectl``, a command line that runs ``true``; whether the target is met.

    Raises:
        MissingPart: the node needs root, sshd, systemd and runc.
    """
    for parent in (folder, *folder.parents[:1]):
        parent.chmod(parent.stat().st_mode | 0o055)  # sshd's principals command runs as another user
    with ContainersNode(folder / "node") as node:
        stock, activated = _stock_sshds(node)
        certificate, plain = node.certificate(PlainPrincipal(USER)), node.certificate()
        socket = folder / "node-control"
        commands = {PEER: list(kubectl)}
        for name, port in ((STOCK, stock), (ACTIVATED, activated)):
            node.port = port
            commands[name] = node.ssh(plain, NODE, "true")
        commands[NEW] = node.ssh_to_container(certificate, NODE, "true")
        commands[OPEN] = node.ssh_to_container(certificate, "-S", str(socket), NODE, "true")
        master = subprocess.Popen(
            node.ssh_to_container(certificate, "-N", "-M", "-S", str(socket), NODE), stdin=subprocess.DEVNULL
        )
        try:
            wait_until(socket.exists, "ssh shares its connection")
            found = _measured(commands, rounds)
        finally:
            master.terminate()
            master.wait()
    return _print(found)


def _measured(commands: Mapping[str, Sequence[str]], rounds: int) -> Mapping[str, Sequence[float]]:
    found: dict[str, list[float]] = {name: [] for name in commands}
    for number in range(rounds + 1):
        for name, words in commands.items():
            started = time.perf_counter()
            done = subprocess.run(
                words, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_WITHIN_SECONDS
            )
            taken = time.perf_counter() - started
            if done.returncode:
                raise AssertionError(f"{name}: {done.returncode}: {done.stderr.decode(errors='replace')}")
            if number:  # the first one warms caches
                found[name].append(taken)
    return found


def _print(found: Mapping[str, Sequence[float]]) -> bool:
    medians = {name: statistics.median(taken) for name, taken in found.items()}
    for name, median in medians.items():
        least = min(found[name])
        ratio, of_least = median / medians[PEER], least / min(found[PEER])
        print(f"{name:20}{1000 * median:8.0f} ms   {ratio:8.2f}    least {1000 * least:6.0f} ms   {of_least:8.2f}")
    floor = min(medians[STOCK], medians[ACTIVATED])
    print(f"{NEW} to stock sshd   {medians[NEW] / floor:8.2f}")
    print(f"ratio to {PEER}, over an open connection at most {OPEN_TARGET}")
    return medians[OPEN] / medians[PEER] <= OPEN_TARGET


def _stock_sshds(node: ContainersNode) -> tuple[int, int]:
    """Start sshd without programs of ours, once listening and once by a socket; returns their ports."""
    text = (node.root / "etc/ssh/node-access-sshd.conf").read_text()
    plain, changed = _COMMAND.subn("AuthorizedPrincipalsFile /etc/ssh/plain-principals", text)
    if changed != 1:
        raise AssertionError("the image's configuration has no principals command")
    (node.root / "etc/ssh/plain.conf").write_text(plain)
    (node.root / "etc/ssh/plain-principals").write_text(f"alice@{NODE}\n")
    units, stock, activated = node.root / "etc/systemd/system", free_port(), free_port()
    listening = f"ExecStart=/usr/sbin/sshd -D -f /etc/ssh/plain.conf -o ListenAddress={HOST}:{stock}\n"
    (units / "stock.service").write_text(f"[Service]\n{listening}")
    (units / "plain.slice").write_text((units / "nodeaccess.slice").read_text())
    service = (units / "node-access-ssh@.service").read_text()
    service = service.replace("node-access-sshd.conf", "plain.conf").replace("nodeaccess.slice", "plain.slice")
    (units / "plain@.service").write_text(service)
    listen = f"ListenStream={HOST}:{activated}"
    (units / "plain.socket").write_text(
        (units / "node-access-ssh.socket").read_text().replace("ListenStream=2222", listen)
    )
    node.machine.run("systemctl daemon-reload && systemctl start plain.socket stock.service")
    return stock, activated
