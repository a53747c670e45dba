"""``python -m tests.demo.containers``: exits with 0 only if all is as expected."""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import logging
import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from rich.console import Console
from rich.markup import escape
from rich.panel import Panel
from rich.text import Text

from signer.access.containers import reconciler as container_reconciler
from signer.kube.backoff import Backoff
from signer.kube.resources import ACCESS_GRANTS
from signer.ssh import reconciler
from tests.demo.access.surroundings import NAMESPACE
from tests.demo.containers.ending import MORAL, copied, forwarded, login, named, other_container, revoked
from tests.demo.containers.stage import APP, CLUSTER, GATEWAY, SECONDS, SHOP, VAULT, Stage, opened
from tests.demo.printing import print_heading, print_indented
from tests.demo.ssh.__main__ import say_what_is_missing
from tests.demo.ssh.ending import Seen, show
from tests.support.access_client import ALICE
from tests.support.binaries import MissingPart
from tests.support.containers.cluster import NotReady
from tests.support.containers.images import APPLICATION_USER, PAGE, WEB_PORT
from tests.support.openssh import find_openssh
from tests.support.processes import ProgramFailed, free_port, wait_until

_GRANT: Final = "repair"
_USER: Final = f"{SHOP}_deploy.web_{APP}"
_OTHER: Final = f"{SHOP}_deploy.web_{VAULT}"
_SLEEP: Final = "sleep 4713"
_OPENED: Final = "the vault is open"
_FILE_BYTES: Final = 100_000


class Scene:
    """The scene on its stage."""

    def __init__(self, console: Console, stage: Stage) -> None:
        self._console, self._stage = console, stage

    def play(self) -> list[Seen]:
        """What was seen. Raises ``ProgramFailed`` and TimeoutError."""
        print_heading(
            self._console,
            "Alice asks for a container of a Deployment",
            "She has no account in the workload cluster and no kubeconfig of it. The grant names one container.",
        )
        self._ask()
        print_heading(
            self._console,
            "Stock ssh, scp and a forwarded port",
            "The address names the Deployment; on a terminal, the gateway says which Pod it chose. The image has an "
            "SFTP server, which scp uses.",
        )
        found = [self._login(), self._copy(), self._forward()]
        print_heading(self._console, "Another container of the same Pod", "The grant does not name it.")
        found.append(self._other())
        print_heading(
            self._console,
            "Who was it?",
            "The workload cluster's own kube-apiserver logs who asked for it. The gateway may do nothing there but "
            "act in a person's name.",
        )
        found.append(self._audit())
        print_heading(
            self._console,
            "The grant is revoked",
            "Alice has a session with a process that wants to survive it. Then her grant is deleted.",
        )
        found.append(self._revoke())
        return found

    def _ask(self) -> None:
        file = self._stage.person.home / "grant.json"
        key = self._stage.person.home.joinpath("key.pub").read_text(encoding="utf-8").strip()
        file.write_text(json.dumps(_grant(key)), encoding="utf-8")
        target = _grant(key)["spec"]["target"]
        print_indented(self._console, f"{file.name}: spec.target is {escape(json.dumps(target))}", 0)
        self._checked("kubectl", "create", "-f", file.name)
        self._checked("kubectl", "wait", "accessgrant", _GRANT, "--for=condition=Ready", f"--timeout={SECONDS}s")
        ready = ["ssh", "-F", "config", f"{_USER}@{GATEWAY}", "true"]
        # The gateway learns of the grant by a watch, as kubectl did.
        wait_until(lambda: self._ran(ready).returncode == 0, "the gateway knows the grant", SECONDS)

    def _login(self) -> Seen:
        code, output = self._run("ssh", "-F", "config", "-tt", f"{_USER}@{GATEWAY}", "id; hostname")
        return login(code, output, self._stage.pod, str(APPLICATION_USER))

    def _copy(self) -> Seen:
        sent = secrets.token_bytes(_FILE_BYTES)
        home = self._stage.person.home
        (home / "patch.bin").write_bytes(sent)
        code, _ = self._run("scp", "-F", "config", "-q", "patch.bin", f"{_USER}@{GATEWAY}:/tmp/patch.bin")
        back, _ = self._run("scp", "-F", "config", "-q", f"{_USER}@{GATEWAY}:/tmp/patch.bin", "copy.bin")
        copy = home / "copy.bin"
        return copied(code or back, sent, copy.read_bytes() if copy.exists() else b"")

    def _forward(self) -> Seen:
        port = free_port()
        words = ("ssh", "-F", "config", "-N", "-L", f"{port}:localhost:{WEB_PORT}", f"{_USER}@{GATEWAY}")
        self._say_command(words)
        with self._started(words) as process:
            answer = _fetch(port, process)
        print_indented(
            self._console, f"http://localhost:{port}/ says: {escape(answer.decode(errors='replace').strip())}\n"
        )
        return forwarded(answer, PAGE)

    def _other(self) -> Seen:
        code, output = self._run("ssh", "-F", "config", f"{_OTHER}@{GATEWAY}", f"echo {_OPENED}")
        return other_container(code, output, _OPENED)

    def _audit(self) -> Seen:
        events = self._stage.audited()
        for subresource in ("exec", "portforward"):
            found = [one for one in events if one["objectRef"].get("subresource") == subresource]
            if found:
                print_indented(self._console, f"{escape(json.dumps(_shown(found[0])))}\n")
        return named(events)

    def _revoke(self) -> Seen:
        words = ("ssh", "-F", "config", f"{_USER}@{GATEWAY}", f"setsid {_SLEEP} >/dev/null 2>&1 & {_SLEEP}")
        self._say_command(words)
        stage = self._stage
        with self._started(words) as process:
            wait_until(
                lambda: process.poll() is not None or stage.processes(APP).count(_SLEEP) >= 2, "the session", SECONDS
            )
            self._checked("kubectl", "delete", "accessgrant", _GRANT)
            _, output = process.communicate(timeout=SECONDS)
        print_indented(self._console, f"ssh says: {escape(output.strip())}\n")
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: _SLEEP not in stage.processes(APP), "the session's processes", 10)
        return revoked(process.returncode, output, left=_SLEEP in stage.processes(APP))

    @contextlib.contextmanager
    def _started(self, words: Sequence[str]) -> Iterator[subprocess.Popen[str]]:
        with subprocess.Popen(
            _real(words),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self._stage.person.environment,
            cwd=self._stage.person.home,
        ) as process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    process.terminate()

    def _ran(self, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        self._stage.gateway.check_running()
        return self._stage.person.other(_real(words))

    def _run(self, *words: str) -> tuple[int, str]:
        self._say_command(words)
        ran = self._ran(words)
        output = Text.from_ansi(ran.stdout + ran.stderr).plain.replace("\r", "").strip()
        if output:
            print_indented(self._console, escape(output))
        self._console.print()
        return ran.returncode, output

    def _checked(self, *words: str) -> None:
        code, output = self._run(*words)
        if code != 0:
            raise ProgramFailed(f"{' '.join(words)}: {output}")

    def _say_command(self, words: Sequence[str]) -> None:
        shown = " ".join(f"'{word}'" if ";" in word or "&" in word else word for word in words)
        print_indented(self._console, f"[bold]{ALICE}$ {escape(shown)}[/bold]", 0)


def _fetch(port: int, process: subprocess.Popen[str]) -> bytes:
    """What the web server behind the port says, once ssh listens."""
    wait_until(lambda: process.poll() is not None or _is_open(port), "ssh listens", SECONDS)
    if process.poll() is not None:
        raise ProgramFailed(f"ssh -L: {process.communicate()[1].strip()}")
    with contextlib.closing(http.client.HTTPConnection("localhost", port, timeout=SECONDS)) as connection:
        connection.request("GET", "/")
        return connection.getresponse().read()


def _is_open(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("localhost", port), timeout=2):
        return True
    return False


def _real(words: Sequence[str]) -> list[str]:
    """With the client of OpenSSH that the tests use."""
    return [str(find_openssh(words[0])) if words[0] in ("ssh", "scp") else words[0], *words[1:]]


def _shown(event: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an audit event that say who did what."""
    reference = event["objectRef"]
    path = f"{reference['namespace']}/{reference['name']}/{reference['subresource']}"
    return {
        "user": event["user"]["username"],
        "impersonatedUser": event.get("impersonatedUser", {}),
        "verb": event["verb"],
        "object": path,
    }


def _grant(key: str) -> dict[str, Any]:
    workload = {"kind": "Deployment", "name": "web"}
    return {
        "apiVersion": ACCESS_GRANTS.api_version,
        "kind": "AccessGrant",
        "metadata": {"name": _GRANT, "namespace": NAMESPACE},
        "spec": {
            "clusterRef": {"name": CLUSTER},
            "target": {"container": {"namespace": SHOP, "workload": workload, "container": APP}},
            "sshPublicKey": key,
            "permissions": {"portForwarding": True},
            "reason": "disk full",
        },
    }


def main(console: Console) -> int:
    """Play the scene; returns the exit code."""
    began = time.monotonic()
    console.print(
        Panel.fit(
            "A shared kubeconfig, and kubectl exec: the log says admin.\n"
            "Here a person asks, comes by ssh, and the cluster's log names the person.",
            title="Containers demo",
            padding=(0, 2),
        )
    )
    print_indented(
        console,
        "\nReal, on this host: kube-apiserver, kubelet, containerd and a Deployment's Pod, ssh, scp, kubectl, the "
        "controller with its webhook, and the gateway. The management cluster's API server is an embedded one.\n",
        0,
    )
    try:
        with opened(console) as stage:
            seen = Scene(console, stage).play()
    except MissingPart as missing:
        return say_what_is_missing(console, missing)
    except (TimeoutError, ProgramFailed, NotReady, subprocess.TimeoutExpired) as error:
        print_indented(console, f"[bold red]The scene cannot go on:[/bold red] {escape(str(error))}", 0)
        return 1
    return show(seen, console, time.monotonic() - began, MORAL)


def _parse() -> None:
    argparse.ArgumentParser(
        prog="python -m tests.demo.containers",
        description="A person gets into a container of a Deployment by stock ssh, the workload cluster's audit log "
        "names the person, and the session ends with the grant. The demo runs on this host, as root.",
        epilog="Exit code: 0 if all is as expected, 2 if real parts are missing, else 1.",
    ).parse_args()


if __name__ == "__main__":
    _parse()
    os.umask(0o022)
    logging.disable(logging.WARNING)
    soon = Backoff(base_seconds=0.1, maximum_seconds=0.5, jitter=0.0)
    reconciler.WAITING = soon  # type: ignore[misc]
    container_reconciler.WAITING = soon  # type: ignore[misc]
    sys.exit(main(Console(highlight=False)))
