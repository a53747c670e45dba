"""``node-access`` as a person runs it: real kubectl at an embedded API, a real ssh-agent, a home of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from signer.kube.resources import ACCESS_GRANTS
from signer.testing.api import EmbeddedAPI
from tests.support.grant_controller import NAMESPACE, GrantController
from tests.support.kubectl import find_kubectl
from tests.support.openssh import find_openssh, is_listening
from tests.support.processes import wait_until

ROOT: Final = Path(__file__).parents[2]
CRDS: Final = ROOT / "signer/crds"
ALICE: Final = "alice"
BOB: Final = "bob"
ROLE: Final = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: people}
rules:
  - apiGroups: [access.cluster.x-k8s.io]
    resources: [accessgrants, accessapprovals]
    verbs: [get, list, create, patch, delete]
  - apiGroups: [access.cluster.x-k8s.io]
    resources: [logins]
    resourceNames: [root]
    verbs: [use, approve]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: people}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: people}
subjects:
  - {kind: User, apiGroup: rbac.authorization.k8s.io, name: alice}
  - {kind: User, apiGroup: rbac.authorization.k8s.io, name: bob}
"""
_SECONDS: Final = 60


def prepare(api: EmbeddedAPI) -> None:
    """The kinds, and the rights of alice and bob."""
    for file in sorted(CRDS.glob("access.cluster.x-k8s.io_*.yaml")):
        api.apply_yaml(file.read_text(encoding="utf-8"))
    api.apply_yaml(ROLE)


class Person:
    """Somebody with a home, a kubeconfig and perhaps an ssh-agent."""

    def __init__(self, home: Path, api: EmbeddedAPI, name: str = ALICE) -> None:
        """Raises ``MissingPart``."""
        self.home = home
        self.kubeconfig = home / "kubeconfig"
        self.folder = home / ".ssh/node-access"
        kubectl = find_kubectl()
        programs = home / "programs"
        programs.mkdir(parents=True)
        (programs / "kubectl").symlink_to(kubectl)
        for program in ("ssh", "scp"):
            find_openssh(program)
        self.kubeconfig.write_text(api.kubeconfig("management", name, ()))
        self.environment = {
            "PATH": f"{programs}:/usr/bin:/bin",
            "HOME": str(home),
            "KUBECONFIG": str(self.kubeconfig),
            "PYTHONPATH": str(ROOT),
            "LC_ALL": "C.UTF-8",
        }
        self._agent: list[subprocess.Popen[bytes]] = []

    def start_agent(self) -> Path:
        """A real ssh-agent; returns its socket."""
        socket = self.home / "agent"
        agent = subprocess.Popen(
            [find_openssh("ssh-agent"), "-D", "-a", socket], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._agent.append(agent)
        wait_until(lambda: is_listening(socket), "ssh-agent")
        self.environment["SSH_AUTH_SOCK"] = str(socket)
        return socket

    def close(self) -> None:
        """Stop the agent."""
        for agent in self._agent:
            agent.kill()
            agent.wait()

    def command(self, *words: str) -> list[str]:
        """The command line."""
        return [sys.executable, "-P", "-m", "node_access.client", *words]

    def run(self, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
        """Run it."""
        return self.other(self.command(*words), **more)

    def other(
        self, command: Sequence[str | Path], *, environment: Mapping[str, str] | None = None, text: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run another program in the same environment."""
        return subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            check=False,
            timeout=_SECONDS,
            env={**self.environment, **(environment or {})},
            cwd=self.home,
        )

    def at_home(self, command: Sequence[str | Path], *, text: str = "") -> subprocess.CompletedProcess[str]:
        """Run another program in this person's account, whose home OpenSSH reads instead of ``$HOME``. Needs root."""
        accounts = self.home / "passwd"
        accounts.write_text(f"root:x:0:0:root:{self.home}:/bin/sh\n")
        start = 'mount --bind "$0" /etc/passwd; exec "$@"'
        return self.other(["unshare", "--mount", "sh", "-ec", start, accounts, *command], text=text)

    @contextlib.contextmanager
    def started(self, *words: str) -> Iterator[subprocess.Popen[str]]:
        """It runs in the block, with pipes, in a process group of its own, as a terminal has it."""
        with subprocess.Popen(
            self.command(*words),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
            cwd=self.home,
            start_new_session=True,
        ) as process:
            try:
                yield process
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)

    def folders(self) -> list[Path]:
        """The folders of its grants."""
        return sorted((self.folder / "grants").glob("*"))

    def agent_keys(self) -> str:
        """What ``ssh-add -l`` prints."""
        return self.other([find_openssh("ssh-add"), "-l"]).stdout

    def forget(self) -> None:
        """Remove all of its files and keys."""
        if self._agent:
            self.other([find_openssh("ssh-add"), "-q", "-D"])
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.home / ".ssh/config").unlink(missing_ok=True)


def the_grant(controller: GrantController) -> dict[str, Any]:
    """The one grant that there is."""
    (found,) = controller.grants()
    return found


def grant_named(controller: GrantController, name: str) -> dict[str, Any]:
    """That grant."""
    return dict(controller.client.get(ACCESS_GRANTS.object(name, NAMESPACE)))


def is_running(pid: int) -> bool:
    """Whether a process exists."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
