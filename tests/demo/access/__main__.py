"""``python -m tests.demo.access``: exits with 0 only if all is as expected."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.text import Text

from signer.access.admission.messages import FOREIGN_INGRESS
from signer.audit.access_line import EndLine, IssuanceLine
from signer.kube.backoff import Backoff
from signer.kube.resources import ACCESS_GRANTS
from signer.model import access_policy
from signer.ssh import reconciler
from tests.demo.access.ending import (
    MORAL,
    Lapse,
    audited,
    foreign_bastion,
    foreign_ingress,
    foreign_name,
    lapsed,
    login,
)
from tests.demo.access.stage import CLUSTER, TIME_TO_LIVE, Stage, opened
from tests.demo.access.surroundings import NAMESPACE, PEOPLE
from tests.demo.printing import print_heading, print_indented
from tests.demo.ssh.__main__ import say_what_is_missing
from tests.demo.ssh.ending import Seen, show
from tests.demo.terminal import run_on_terminal
from tests.support.access_client import ALICE, BOB
from tests.support.access_node import NODE
from tests.support.access_objects import USER_KEY
from tests.support.binaries import MissingPart
from tests.support.openssh import find_openssh
from tests.support.processes import ProgramFailed, wait_until

_SLEEP: Final = "sleep 4712"
_FOREIGN: Final = "203.0.113.66/32"
_SECONDS: Final = 60


class Scene:
    """The scene on its stage."""

    def __init__(self, console: Console, stage: Stage) -> None:
        self._console, self._stage = console, stage
        self._logs: dict[str, str] = {}

    def play(self) -> list[Seen]:
        """What was seen. Raises ``ProgramFailed`` and TimeoutError."""
        found = [self._login()]
        found += self._steal()
        print_heading(
            self._console,
            "Bob has a bastion of his own",
            "He asks for the same node from the same office, and goes in. His laptop will send no heartbeat. Then "
            "Alice tries her key and certificate on both bastions.",
        )
        with self._bob() as process:
            found += [self._foreign(), self._lapse(process)]
        return [*found, *self._audit()]

    def _login(self) -> Seen:
        print_heading(
            self._console,
            "Alice asks for access, and is on the node",
            "One command makes a key, a grant, and waits for certificates of both hops. sshd of both trusts "
            "the Cluster's authority; nobody has confirmed a host key here.",
        )
        code, output = self._run(ALICE, *self._asked(), "--keep", self._node, "--", "hostname")
        self._keep_log(ALICE)
        return login(code, output, NODE)

    def _steal(self) -> Iterator[Seen]:
        print_heading(
            self._console,
            "Bob wants Alice's way in",
            "Bob may make grants, too, and RBAC lets him patch them. He lets his own address in at Alice's bastion. "
            "Then he asks for a grant in her name.",
        )
        grant = self._stage.grant_of(ALICE)
        patch = json.dumps({"spec": {"ingress": [{"ipBlock": {"cidr": _FOREIGN}}]}})
        code, output = self._kubectl(BOB, "patch", "accessgrant", name_of(grant), "--type=merge", "-p", patch)
        changed = self._stage.grant_of(ALICE)["spec"]["ingress"] != grant["spec"]["ingress"]
        yield foreign_ingress(code, output, FOREIGN_INGRESS, changed=changed)
        file = self._stage.people[BOB].home / "forged.json"
        file.write_text(json.dumps(_forged()))
        code, _ = self._kubectl(BOB, "create", "-f", file.name)
        creator = ""
        if code == 0:
            words = ("get", "accessgrant", "forged", "-o", "jsonpath={.spec.createdBy.username}")
            _, creator = self._kubectl(BOB, *words)
            self._kubectl(BOB, "delete", "accessgrant", "forged", "--wait=false")
            wait_until(lambda: len(self._stage.grants()) == 1, "the forged grant is gone", _SECONDS)
        yield foreign_name(creator, BOB)

    @contextlib.contextmanager
    def _bob(self) -> Iterator[subprocess.Popen[str]]:
        words = [*self._asked(), "--keep", "--no-keepalive", self._node, "--", f"setsid -f {_SLEEP}; {_SLEEP}"]
        self._say_command(BOB, "node-access", words)
        with self._stage.people[BOB].started("ssh", *words) as process:
            processes = self._stage.node.processes
            wait_until(
                lambda: process.poll() is not None or len(processes(f"^{_SLEEP}")) == 2, "Bob is on the node", _SECONDS
            )
            if process.poll() is not None:
                raise ProgramFailed(f"node-access of Bob: {process.communicate()[1]}")
            self._keep_log(BOB)
            print_indented(self._console, f"[green]✔ {BOB} is on the node, with two processes[/green]\n")
            yield process

    def _foreign(self) -> Seen:
        own, other = (self._try_bastion(ALICE, of) for of in PEOPLE)
        for of, said in ((ALICE, own), (BOB, other)):
            print_indented(self._console, f"through {of}'s bastion: {escape(said)}")
        self._console.print()
        return foreign_bastion(own, other)

    def _try_bastion(self, person: str, of: str) -> str:
        """What comes through the bastion of ``of`` with the key and the bastion's certificate of ``person``: the first
        line of the node's sshd, or why not.
        """
        (folder,) = self._stage.people[person].folders()
        ingress = self._stage.grant_of(of)["status"]["ingress"]
        options = [
            *("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "GlobalKnownHostsFile=none"),
            *("BatchMode=yes", "IdentitiesOnly=yes", f"IdentityFile={folder}/key.pub", "ConnectTimeout=20"),
            f"CertificateFile={folder}/bastion-cert.pub",
        ]
        command = [
            *(str(find_openssh("ssh")), "-F", "none", *(word for one in options for word in ("-o", one))),
            *("-p", str(ingress["port"]), "-W", f"{self._stage.address}:{self._stage.node.port}"),
            f"bastion@{ingress['ip']}",
        ]
        ran = self._stage.people[person].other(command)
        found: str = (ran.stdout.splitlines() or ran.stderr.splitlines()[-1:] or ["nothing"])[0].strip()
        return found

    def _lapse(self, process: subprocess.Popen[str]) -> Seen:
        stage = self._stage
        grant = stage.grant_of(BOB)
        uid, ingress = self._stage.bastion_uid(grant), grant["status"]["ingress"]
        expires = datetime.fromisoformat(grant["status"]["expirationTimestamp"]).timestamp()
        print_heading(
            self._console,
            "No heartbeat comes from Bob",
            f"The policy's timeToLive is {TIME_TO_LIVE.seconds} s in this demo; elsewhere it is at least a minute. "
            "Alice's client sends heartbeats in the background; Bob's does not.",
        )
        things: dict[str, Callable[[], bool]] = {
            "the grant": lambda: bool(stage.grant_of(BOB)),
            "its bastion's sshd": lambda: bool(stage.cloud.processes(uid)),
            "its bastion's port": lambda: _is_open(stage.address, ingress["port"]),
            "the session": lambda: process.poll() is None,
            "its processes": lambda: bool(stage.node.processes(f"^{_SLEEP}")),
        }
        seen = dict.fromkeys(things, 0.0)
        deadline = expires + _SECONDS / 2
        while time.time() < deadline and not all(seen.values()):
            for name, is_there in things.items():
                if not seen[name] and not is_there():
                    seen[name] = time.time()
            time.sleep(0.05)
        for name, gone in sorted(seen.items(), key=lambda one: one[1]):
            when = f"gone {gone - expires:+.1f} s after the grant's expiration" if gone else "[bold red]still there"
            print_indented(self._console, f"{name:<19} {when}")
        self._console.print()
        left = [name for name, gone in seen.items() if not gone]
        ready = (stage.grant_of(ALICE).get("status") or {}).get("conditions") or []
        others = any(one["type"] == "Ready" and one["status"] == "True" for one in ready)
        code = process.poll() or 0
        ended = [one.cause for one in stage.audit.access if isinstance(one, EndLine) and one.name == name_of(grant)]
        cause = ended[0] if ended else ""
        return lapsed(Lapse(cause, max(seen.values()) - expires, tuple(left), code, others))

    def _audit(self) -> Iterator[Seen]:
        print_heading(
            self._console,
            "Who was it?",
            "Both were root on the node. The audit log names the person of each certificate, and sshd logs the "
            "certificate's key id, on the bastion and on the node.",
        )
        journal = self._stage.node.journal()
        for person in PEOPLE:
            lines = [
                one
                for one in self._stage.audit.access
                if isinstance(one, IssuanceLine) and one.creator.username == person and one.key_id in journal
            ]
            creator, key_id = (lines[0].creator.username, lines[0].key_id) if lines else ("", "")
            logged = [one for one in journal.splitlines() if "Accepted publickey" in one and f"ID {key_id} " in one]
            print_indented(self._console, f"audit  {creator or 'nobody'}: key id {escape(key_id)}")
            print_indented(self._console, f"node   {escape(logged[0] if logged else 'nothing')}\n")
            on_bastion = f"ID {key_id} " in self._logs[person]
            yield audited(person, creator, key_id, logged[0] if logged and on_bastion else "")

    @property
    def _node(self) -> str:
        return f"{NODE}.{CLUSTER}"

    def _asked(self) -> list[str]:
        return ["--cidr", self._stage.address, "--reason", "disk full"]

    def _keep_log(self, person: str) -> None:
        """What sshd of a bastion has logged, which goes with the bastion."""
        grant = self._stage.grant_of(person)
        if not grant:
            raise ProgramFailed(f"{person} has no grant")
        self._logs[person] = self._stage.cloud.log(self._stage.bastion_uid(grant))

    def _run(self, person: str, *words: str) -> tuple[int, str]:
        """``node-access ssh``, as on the person's terminal."""
        self._say_command(person, "node-access", words)
        who = self._stage.people[person]
        return self._print(run_on_terminal(who.command("ssh", *words), self._console.width, who.environment))

    def _kubectl(self, person: str, *words: str) -> tuple[int, str]:
        self._say_command(person, "kubectl", words)
        ran = self._stage.people[person].other(["kubectl", *words])
        return self._print((ran.returncode, ran.stdout + ran.stderr))

    def _say_command(self, person: str, program: str, words: Sequence[str]) -> None:
        shown = f"{program} {'ssh ' if program == 'node-access' else ''}{' '.join(words)}"
        print_indented(self._console, f"[bold]{person}$ {escape(shown)}[/bold]", 0)

    def _print(self, ran: tuple[int, str]) -> tuple[int, str]:
        print_indented(self._console, escape(Text.from_ansi(ran[1]).plain.strip()))
        self._console.print()
        return ran


def name_of(grant: dict[str, Any]) -> str:
    """Its name."""
    return str(grant["metadata"]["name"])


def _forged() -> dict[str, Any]:
    return {
        "apiVersion": ACCESS_GRANTS.api_version,
        "kind": "AccessGrant",
        "metadata": {"name": "forged", "namespace": NAMESPACE},
        "spec": {
            "clusterRef": {"name": CLUSTER},
            "target": {"nodes": [NODE]},
            "sshPublicKey": USER_KEY,
            "bastion": "None",
            "createdBy": {"username": ALICE, "groups": ["system:authenticated"]},
        },
    }


def _is_open(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=2).close()
    except OSError:
        return False
    return True


def main(console: Console) -> int:
    """Play the scene; returns the exit code."""
    began = time.monotonic()
    console.print(
        Panel.fit(
            "A shared bastion, a shared key, and nobody knows who was root last night.\n"
            "Here each person asks, each has a bastion, and both end when nobody is there.",
            title="Access demo",
            padding=(0, 2),
        )
    )
    print_indented(
        console,
        "\nReal, on this host: sshd of the bastions, systemd and sshd of the node in a scratch root, ssh, ssh-agent, "
        "kubectl, node-access, the controller with its webhook, and the bastion controller. The API servers are "
        "embedded ones.\n",
        0,
    )
    try:
        with opened(console) as stage:
            seen = Scene(console, stage).play()
    except MissingPart as missing:
        return say_what_is_missing(console, missing)
    except (TimeoutError, ProgramFailed) as error:
        print_indented(console, f"[bold red]The scene cannot go on:[/bold red] {escape(str(error))}", 0)
        return 1
    return show(seen, console, time.monotonic() - began, MORAL)


def _parse() -> None:
    argparse.ArgumentParser(
        prog="python -m tests.demo.access",
        description="Two people get access to a node through bastions of their own, neither takes the other's, and "
        "access ends when heartbeats do. The demo runs on this host, as root.",
        epilog="Exit code: 0 if all is as expected, 2 if real parts are missing, else 1.",
    ).parse_args()


if __name__ == "__main__":
    _parse()
    os.umask(0o022)
    logging.disable(logging.WARNING)
    reconciler.WAITING = Backoff(base_seconds=0.1, maximum_seconds=0.5, jitter=0.0)  # type: ignore[misc]
    access_policy.MINIMUM_TIME_TO_LIVE = TIME_TO_LIVE  # type: ignore[misc]
    sys.exit(main(Console(highlight=False)))
