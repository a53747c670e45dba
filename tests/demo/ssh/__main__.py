"""``python -m tests.demo.ssh``: exits with 0 only if all is as expected."""

from __future__ import annotations

import argparse
import base64
import contextlib
import json
import logging
import os
import re
import secrets
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from keyed_mac.keys import derive_machine_key
from rich.console import Console
from rich.markup import escape
from rich.panel import Panel

from attestors.wire.ssh.certificate import SignedCertificate, parse_certificate_file
from attestors.wire.ssh.signatures import PrivateKey
from signer.configuration import Configuration, OperatorAttestor, SSHPermission
from signer.kube.backoff import Backoff
from signer.kube.resources import NODE_ATTESTATION_POLICIES, SECRETS
from signer.ssh import reconciler
from signer.testing.api import EmbeddedAPI
from signer.testing.api.kubeconfig import kubeconfig_of
from signer.testing.nodes import SimulatedNode
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster, RunningController, WorldCluster
from tests.demo.machines import provider_id
from tests.demo.printing import print_heading, print_indented
from tests.demo.ssh.ending import Seen, login, session, show, thief
from tests.demo.terminal import PROGRAM, Terminal, program, run_on_terminal
from tests.support.access_node import FOLDER, HOST, NODE, USER, AccessNode
from tests.support.binaries import MissingPart
from tests.support.node_program import NodeProgram
from tests.support.openssh import private_key, write_private_key
from tests.support.processes import ProgramFailed, wait_until

NAMESPACE: Final = "default"
CLUSTER: Final = "production"
KEY: Final = f"{NAMESPACE}/{CLUSTER}"
HOST_KEY: Final = "etc/ssh/ssh_host_ed25519_key"
SESSION_SECONDS: Final = 12
_MISSING: Final = 2
_SLEEP: Final = "sleep 4711"
_UNTIL: Final = re.compile(r"until (\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC")


class Scene:
    """The scene in a running world."""

    def __init__(
        self, console: Console, cluster: WorldCluster, node: AccessNode, program_of_node: NodeProgram, folder: Path
    ) -> None:
        self._console, self._cluster, self._node, self._folder = console, cluster, node, folder
        self._program_of_node = program_of_node
        self._kubeconfig = folder / "management.kubeconfig"
        self._terminal = Terminal(console, {"KUBECONFIG": str(self._kubeconfig), "HOME": str(folder)})
        self._authority = folder / f"{CLUSTER}-ssh-user.json"
        self._config = folder / f"{NAMESPACE}.{CLUSTER}" / "config"

    def play(self) -> list[Seen]:
        """What was seen. Raises ``ProgramFailed`` and TimeoutError."""
        print_heading(
            self._console,
            "The node proves itself",
            f"{NODE} requests its kubelet's certificate, and proves that it has its host key. The host certificate "
            "comes with the kubelet's.",
        )
        self._join()
        print_heading(
            self._console,
            "A person logs in",
            "The person may read the user authority's Secret. A key that exists for this login alone gets a "
            "certificate of five minutes. Nobody has ever confirmed a host key here.",
        )
        self._person()
        found = [login(*self._attempt("hostname"))]
        print_heading(
            self._console,
            "A thief poses as the node",
            f"Another machine answers at {NODE}'s address. It has a copy of the host certificate, and a host key of "
            "its own.",
        )
        with self._stolen():
            found.append(thief(*self._attempt("hostname")))
        print_heading(
            self._console,
            "The session ends",
            f"A session with a certificate of {SESSION_SECONDS} seconds starts a process that wants to survive it.",
        )
        found.append(self._session())
        return found

    def _join(self) -> None:
        self._program_of_node.supply_bootstrap(self._cluster)
        ran = self._program_of_node.credential()
        if ran.exit_code != 0:
            raise ProgramFailed(f"kubelet-authenticator of {NODE}: {ran.log}")
        certificate = self._host_certificate().certificate
        print_indented(self._console, f"[green]✔ {NODE} has a host certificate[/green]")
        print_indented(self._console, f"for   {', '.join(map(str, certificate.principals))}", 4)
        print_indented(self._console, f"by    {certificate.authority.fingerprint}\n", 4)

    def _host_certificate(self) -> SignedCertificate:
        file = self._node.file("ssh_host_ed25519_key-cert.pub")
        try:
            return parse_certificate_file(file.read_bytes())
        except FileNotFoundError:
            raise ProgramFailed(f"kubelet-authenticator has written no {file.name}") from None

    def _person(self) -> None:
        """What a person has after ``kubectl get secret``."""
        secret = self._cluster.management.client.get(SECRETS.object(f"{CLUSTER}-ssh-user", NAMESPACE))
        self._authority.touch(mode=0o600)
        self._authority.write_text(json.dumps(secret))
        self._terminal.run(
            *("node-access", "config", KEY, "--folder", str(self._folder)),
            *("--login", USER, "--port", str(self._node.port)),
        )

    def _attempt(self, *command: str, validity: str = "5m") -> tuple[int, str]:
        """Exit code and output, which is printed."""
        arguments = [
            *("ssh-sign", "--authority", str(self._authority), "--principal", f"{USER}@{NODE}"),
            *("--validity", validity, "--exec", "-F", str(self._config), f"{NODE}.{CLUSTER}", *command),
        ]
        self._console.print(f"[bold]$ {PROGRAM} {escape(' '.join(arguments))}[/bold]", soft_wrap=True)
        code, output = run_on_terminal([program(), *arguments], self._console.width, self._terminal.environment)
        self._console.print(escape(output), soft_wrap=True)
        self._console.print()
        return code, output

    @contextlib.contextmanager
    def _stolen(self) -> Iterator[None]:
        """sshd reads its host key at each connection."""
        file = self._node.root / HOST_KEY
        own = file.read_bytes()
        key: PrivateKey = private_key("ed25519", 4711)
        try:
            write_private_key(file, key)
            yield
        finally:
            file.write_bytes(own)

    def _session(self) -> Seen:
        command = f"setsid -f {_SLEEP}; echo logged in; {_SLEEP}"
        code, output = self._attempt("-tt", command, validity=f"{SESSION_SECONDS}s")
        late = time.time() - _end_of_certificate(output)
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: not self._node.processes(f"^{_SLEEP}"), "the session's processes", timeout=5)
        return session(code, late, self._node.processes(f"^{_SLEEP}"))


def _end_of_certificate(output: str) -> float:
    """Unix time, from what ``ssh-sign`` says."""
    found = _UNTIL.search(output)
    if found is None:
        raise ProgramFailed(f"ssh-sign says no end: {output!a}")
    return datetime.strptime(found[1], "%Y-%m-%d %H:%M:%S").replace(tzinfo=UTC).timestamp()


def main(console: Console) -> int:
    """Play the scene; returns the exit code."""
    began = time.monotonic()
    console.print(
        Panel.fit(
            "ssh asks: are you sure that you want to continue connecting?\n"
            "Here nobody has to know. And a login that was allowed for minutes ends after minutes.",
            title="SSH demo",
            padding=(0, 2),
        )
    )
    print_indented(
        console,
        "\nReal, on this host: systemd and sshd with the image files of deploy/node/ssh in a scratch root, ssh, the "
        "node's programs, the controller and its commands. The API servers are embedded ones.\n",
        0,
    )
    try:
        with _opened(console) as scene:
            seen = scene.play()
    except MissingPart as missing:
        return say_what_is_missing(console, missing)
    except (TimeoutError, ProgramFailed) as error:
        print_indented(console, f"[bold red]The scene cannot go on:[/bold red] {escape(str(error))}", 0)
        return 1
    return show(seen, console, time.monotonic() - began)


def say_what_is_missing(console: Console, missing: MissingPart) -> int:
    """The real parts are not installed, or this is not root."""
    print_indented(
        console,
        f"\n[yellow]This scene needs real parts:[/yellow] {escape(str(missing))}\n"
        "As root on Debian, `make provision` installs them; elsewhere it prints what to install.",
        0,
    )
    return _MISSING


@contextlib.contextmanager
def _opened(console: Console) -> Iterator[Scene]:
    """A controller, a cluster whose policy turns SSH on, and a node that is switched on and has not joined."""
    master_key = secrets.token_bytes(32)
    settings = {"masterKey": base64.b64encode(master_key).decode("ascii")}
    configuration = Configuration(
        namespace=CONTROLLER_NAMESPACE,
        attestors={"keyed-mac": OperatorAttestor(settings=settings)},
        ssh=SSHPermission(frozenset({NAMESPACE})),
    )
    with contextlib.ExitStack() as stack:
        with console.status("Starting API servers, a controller, and a node with systemd …"):
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="node-attestation-demo-")))
            folder.chmod(0o755)  # sshd's command runs as another user
            node = stack.enter_context(AccessNode(folder / "node"))
            management_api = stack.enter_context(EmbeddedAPI())
            workload_api = stack.enter_context(EmbeddedAPI(seed_kubeadm=True))
            management = stack.enter_context(ManagementCluster(management_api))
            cluster = management.add_cluster(CLUSTER, workload_api, namespace=NAMESPACE)
            cluster.authorize("keyed-mac", ssh={})
            cluster.add_machine(NODE, provider_id=provider_id(NODE), addresses=[("InternalIP", HOST)])
            stack.enter_context(RunningController(management_api.connection(), configuration))
            kubeconfig = folder / "management.kubeconfig"
            kubeconfig.touch(mode=0o600)
            kubeconfig.write_text(kubeconfig_of(management_api.connection(), "management"))
            _wait_for_authorities(cluster)
        yield Scene(console, cluster, node, node_program(cluster, node, folder / "programs", master_key), folder)


def node_program(cluster: WorldCluster, node: AccessNode, folder: Path, master_key: bytes) -> NodeProgram:
    """kubelet-authenticator of the node, with the key of its Machine."""
    identifier = provider_id(NODE)
    key = base64.b64encode(derive_machine_key(master_key, identifier)).decode("ascii")
    simulated = SimulatedNode(
        node_name=NODE,
        provider_id=identifier,
        ca_cert_hash=cluster.ca_cert_hash,
        provider="keyed-mac",
        settings={"provider-id": identifier, "machine-key": key},
    )
    ssh = {"hostKeys": [str(node.root / HOST_KEY)], "folder": str(node.root / FOLDER.lstrip("/"))}
    return NodeProgram(folder, simulated, extra={"ssh": ssh})


def _wait_for_authorities(cluster: WorldCluster) -> None:
    path = NODE_ATTESTATION_POLICIES.object(CLUSTER, NAMESPACE)
    wait_until(lambda: "ssh" in (cluster.management.client.get(path).get("status") or {}), "the SSH authorities")


def _parse() -> None:
    argparse.ArgumentParser(
        prog="python -m tests.demo.ssh",
        description="A node gets a host certificate with its kubelet's, a person logs in, and the session ends with "
        "the person's certificate. The demo runs on this host, as root.",
        epilog="Exit code: 0 if all is as expected, 2 if real parts are missing, else 1.",
    ).parse_args()


if __name__ == "__main__":
    _parse()
    os.umask(0o022)
    logging.disable(logging.WARNING)
    reconciler.WAITING = Backoff(base_seconds=0.1, maximum_seconds=0.5, jitter=0.0)  # type: ignore[misc]
    sys.exit(main(Console(highlight=False)))
