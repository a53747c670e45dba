"""``python -m tests.demo.rotation``: exits with 0 only if the rotation is completed and no request failed."""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.status import Status
from rich.text import Text

from signer.configuration import Configuration
from signer.kube.connection import ClusterConnection
from signer.rotation.condition_types import ROTATION_PROGRESSING
from signer.rotation.plan import WAITING_FOR_COMPLETION
from signer.testing.api.kubeconfig import kubeconfig_of
from signer.testing.opening import open_management_cluster
from signer.testing.world import CONTROLLER_NAMESPACE, RunningController
from tests.demo.printing import print_heading, print_indented
from tests.demo.rotation.ending import Ending, Server, show
from tests.demo.rotation.steps import Requests, Steps
from tests.demo.terminal import PROGRAM, Terminal, program
from tests.e2e.rotation.afterwards import ask_all
from tests.e2e.rotation.load import Load, LoadClient
from tests.e2e.rotation.shortened import OFTEN, shortened
from tests.e2e.rotation.world import CLUSTER, NAMESPACE, SETTINGS, RotationWorld
from tests.integration.fixtures import keyed_mac
from tests.support.binaries import MissingPart, find_control_plane
from tests.support.processes import ProgramFailed, wait_until

NODES: Final = 3
_MISSING: Final = 2
_KEY: Final = f"{NAMESPACE}/{CLUSTER}"
_LOOK_SECONDS: Final = 0.5
_LIMIT_SECONDS: Final = 180
_END_SECONDS: Final = 10
_PAUSE: Final = 0.2


class Scene:
    """The scene in a running world."""

    def __init__(self, console: Console, world: RotationWorld, load: Load, terminal: Terminal, began: float) -> None:
        self._console = console
        self._world = world
        self._load = load
        self._terminal = terminal
        self._began = began
        self._former: dict[str, ClusterConnection] = {}
        self._unexpected: list[str] = []
        self._steps = Steps(console, self._requests, self._seconds)

    def play(self) -> int:
        """Rotate, and return the exit code. Raises TimeoutError."""
        self._former = {name: node.connection for name, node in self._world.nodes.items()}
        self._former["administrator"] = self._world.admin_connection()
        print_heading(self._console, "First phase", "A person checks and starts. The controller goes on by itself.")
        self._run("preflight")
        self._run("start")
        self._until("Prepared", WAITING_FOR_COMPLETION)
        self._run("status", 5)
        print_heading(
            self._console,
            "Second phase",
            "Until here nothing presents the new CA, and all can be taken back. A person has given the new CA to other "
            "clients by now, and completes.",
        )
        self._run("complete")
        self._until("Completed", "Completed")
        self._run("status")
        self._load.stop()
        print_heading(self._console, "Afterwards", "Every API server is asked with certificates of both CAs.")
        return show(self._ending(), self._console, self._seconds())

    def _requests(self) -> Requests:
        outcomes = self._load.outcomes
        return Requests(outcomes.total, sum(outcomes.unavailable.values()), tuple(outcomes.failures))

    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _run(self, action: str, expected: int = 0) -> None:
        code = self._terminal.run("rotate", _KEY, action)
        if code != expected:
            self._unexpected.append(f"rotate {_KEY} {action} has ended with exit code {code}, not {expected}")

    def _reason(self) -> str:
        return str(self._world.condition(ROTATION_PROGRESSING).get("reason"))

    def _until(self, phase: str, reason: str) -> None:
        """Machines and nodes do their part until the rotation is in that phase and the policy's status says so; the
        steps are printed meanwhile.
        """
        arguments = ["rotate", _KEY, "status", "--watch"]
        self._console.print(f"[bold]$ {PROGRAM} {' '.join(arguments)}[/bold]", soft_wrap=True)
        with self._followed([*arguments, "--output", "json"]):
            self._world.until_phase(phase, seconds=_LIMIT_SECONDS)
            wait_until(lambda: self._reason() == reason, f"the policy's status says {reason}")
        self._console.print()

    @contextlib.contextmanager
    def _followed(self, arguments: list[str]) -> Iterator[None]:
        """Print what the program says. It ends by itself when the rotation waits for a person or is over."""
        environment = {**os.environ, **self._terminal.environment}
        watching = subprocess.Popen(
            [program(), *arguments], stdout=subprocess.PIPE, text=True, env=environment, start_new_session=True
        )
        stop = threading.Event()
        with self._console.status("") as status:
            threads = [
                threading.Thread(target=self._take, args=(watching,), daemon=True),
                threading.Thread(target=self._show_progress, args=(status, stop), daemon=True),
            ]
            for thread in threads:
                thread.start()
            try:
                yield
                threads[0].join(_END_SECONDS)
            finally:
                stop.set()
                watching.kill()
                watching.wait()
                for thread in threads:
                    thread.join()

    def _take(self, watching: subprocess.Popen[str]) -> None:
        assert watching.stdout is not None
        with watching.stdout as lines:
            for line in lines:
                self._steps.take(line)

    def _show_progress(self, status: Status, stop: threading.Event) -> None:
        """One line at the bottom of a terminal; nothing elsewhere."""
        while not stop.wait(_LOOK_SECONDS):
            text = Text(f"{self._seconds():.0f} s, {self._requests()}; {self._steps.current}")
            text.truncate(max(self._console.width - 4, 1), overflow="ellipsis")
            status.update(text)

    def _ending(self) -> Ending:
        world = self._world
        record = world.record
        servers = [Server(one.server, one.old_is_refused, one.new_is_accepted) for one in ask_all(world, self._former)]
        kept = world.secret(f"ca-{record['rotationID']}-old")
        old_key = "still in its Secret" if "tls.key" in kept else "deleted"
        return Ending(str(record["phase"]), self._requests(), servers, old_key, tuple(self._unexpected))


def main(console: Console) -> int:
    """Play the scene; returns the exit code."""
    began = time.monotonic()
    console.print(
        Panel.fit(
            "A cluster's CA is replaced while clients ask its API servers all the time.\n"
            "No request may fail, and in the end the old CA must be worth nothing.",
            title="rotation demo",
            padding=(0, 2),
        )
    )
    try:
        binaries = find_control_plane()
        binaries.kube_controller_manager()
    except MissingPart as missing:
        return say_what_is_missing(console, missing)
    print_indented(
        console,
        f"\nReal, on this host: etcd, two kube-apiservers {'.'.join(map(str, binaries.kubernetes()))} behind a load "
        "balancer, kube-controller-manager, the controller and its commands. Imitated: the Machines, as "
        "KubeadmControlPlane makes them, and the agents of the nodes. Waits of minutes and of a day are shortened to "
        "seconds: nothing here reads files later than at its start. This takes about two minutes.\n",
        0,
    )
    try:
        with _opened(console) as (world, load, terminal):
            return Scene(console, world, load, terminal, began).play()
    except (TimeoutError, ProgramFailed) as error:
        print_indented(console, f"[bold red]The scene cannot go on:[/bold red] {escape(str(error))}", 0)
        return 1


def say_what_is_missing(console: Console, missing: MissingPart) -> int:
    """The real parts are not installed."""
    print_indented(
        console,
        f"\n[yellow]This scene needs real parts of Kubernetes:[/yellow] {escape(str(missing))}\n"
        "As root on Debian, `make provision` installs and builds them; elsewhere it prints what to install.",
        0,
    )
    return _MISSING


@contextlib.contextmanager
def _opened(console: Console) -> Iterator[tuple[RotationWorld, Load, Terminal]]:
    """A running world with nodes, a controller and load."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(shortened(OFTEN))
        with console.status("Starting etcd, API servers, a controller and three nodes …"):
            management = stack.enter_context(open_management_cluster())
            world = stack.enter_context(RotationWorld(management))
            world.provider.drained = lambda server: world.control_plane.balancer.without(server.address)
            world.cluster.authorize("keyed-mac", mode="Observe")
            configuration = Configuration(
                namespace=CONTROLLER_NAMESPACE, watch_namespace=NAMESPACE, attestors=keyed_mac(), rotation=SETTINGS
            )
            stack.enter_context(RunningController(management.api.connection(), configuration))
            for number in range(1, NODES + 1):
                world.add_node(f"worker-{number}")
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="node-attestation-demo-")))
            kubeconfig = folder / "management.kubeconfig"
            kubeconfig.touch(mode=0o600)
            kubeconfig.write_text(kubeconfig_of(management.api.connection(), "management"))
        clients = [LoadClient(name, node.get_connection, pause=_PAUSE) for name, node in world.nodes.items()]
        clients.append(LoadClient("administrator", world.admin_connection, pause=_PAUSE))
        load = stack.enter_context(Load(clients, lambda: str(world.record.get("step", "before"))))
        print_indented(
            console,
            f"{NODES} nodes and an administrator ask an API server {1 / _PAUSE:.0f} times a second each, always on a "
            "new connection.\n",
            0,
        )
        yield world, load, Terminal(console, {"KUBECONFIG": str(kubeconfig)})


def _parse() -> None:
    argparse.ArgumentParser(
        prog="python -m tests.demo.rotation",
        description="A cluster's CA is replaced on real API servers, under load. The demo runs on this host.",
        epilog="Exit code: 0 if the rotation is completed and no request failed, 2 if real parts are missing, else 1.",
    ).parse_args()


if __name__ == "__main__":
    _parse()
    logging.disable(logging.WARNING)  # connections to API servers that are being replaced
    sys.exit(main(Console(highlight=False)))
