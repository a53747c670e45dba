"""``make logins``: a login through sshd with principals command and sessions daemon, beside the same sshd without them.

Both are socket-activated on one node, and their logins take turns, so what else the machine does slows both.
"""

from __future__ import annotations

import re
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.bench.machine import this_machine
from tests.support.access_node import HOST, NODE, AccessNode
from tests.support.binaries import MissingPart
from tests.support.processes import free_port

ROUNDS: Final = 41
TARGET: Final = 1.2
_COMMAND: Final = re.compile(
    r"AuthorizedPrincipalsCommand .*\nAuthorizedPrincipalsCommandUser .*\nAuthorizedPrincipalsFile none"
)
_UNITS: Final = "etc/systemd/system"


@dataclass(frozen=True, slots=True)
class Logins:
    """Median seconds of a login that runs one command."""

    with_sessions: float
    without: float

    @property
    def ratio(self) -> float:
        """How many times as long."""
        return self.with_sessions / self.without


def measure(rounds: int = ROUNDS) -> Logins:
    """Log in that often each way.

    Raises:
        MissingPart: the node needs root, sshd and systemd.
    """
    with tempfile.TemporaryDirectory(prefix="node-attestation-logins-") as folder:
        Path(folder).chmod(0o755)  # sshd's principals command runs as another user
        with AccessNode(Path(folder) / "root") as node:
            ports: dict[int, list[float]] = {node.port: [], _plain(node): []}
            certificate = node.certificate()
            for number in range(rounds + 1):
                for port, seconds in ports.items():
                    node.port = port
                    started = time.perf_counter()
                    done = node.log_in(certificate, "true")
                    if done.returncode:
                        raise AssertionError(done.stderr + node.journal())
                    if number:  # the first one warms caches
                        seconds.append(time.perf_counter() - started)
            return Logins(*map(statistics.median, ports.values()))


def _plain(node: AccessNode) -> int:
    """The same units and configuration, with a file of principals; returns the port."""
    configuration = (node.root / "etc/ssh/node-access-sshd.conf").read_text()
    plain, changed = _COMMAND.subn("AuthorizedPrincipalsFile /etc/ssh/plain-principals", configuration)
    if changed != 1:
        raise AssertionError("the image's configuration has no principals command")
    (node.root / "etc/ssh/plain.conf").write_text(plain)
    (node.root / "etc/ssh/plain-principals").write_text(f"alice@{NODE}\n")
    units, port = node.root / _UNITS, free_port()
    (units / "plain.slice").write_text((units / "nodeaccess.slice").read_text())
    service = (units / "node-access-ssh@.service").read_text()
    service = service.replace("node-access-sshd.conf", "plain.conf").replace("nodeaccess.slice", "plain.slice")
    (units / "plain@.service").write_text(service)
    socket = (units / "node-access-ssh.socket").read_text().replace("ListenStream=2222", f"ListenStream={HOST}:{port}")
    (units / "plain.socket").write_text(socket)
    node.machine.run("systemctl daemon-reload && systemctl start plain.socket")
    return port


def main() -> int:
    """Print the medians; returns 1 if the target is missed."""
    try:
        found = measure()
    except MissingPart as missing:
        print(missing, file=sys.stderr)
        return 2
    print(this_machine())
    print(f"login with sessions, p50  {1000 * found.with_sessions:6.0f} ms")
    print(f"the same sshd without     {1000 * found.without:6.0f} ms")
    print(f"ratio                     {found.ratio:6.2f}    at most {TARGET}")
    return 0 if found.ratio <= TARGET else 1


if __name__ == "__main__":
    sys.exit(main())
