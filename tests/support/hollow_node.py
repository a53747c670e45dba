"""A real kubelet without containers for tests: Kubernetes' hollow node, ``kubemark --morph=kubelet``.

Clients, registration and heartbeats are the kubelet's own code; container runtime, volumes and control groups are
fakes. It creates its clients itself (``cmd/kubemark/hollow-node.go``), so it supports neither
``--bootstrap-kubeconfig`` nor ``rotateCertificates``, and requests no serving certificate: it listens without TLS,
without authentication and on all addresses.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from tests.support.binaries import find_control_plane
from tests.support.closing import ClosedAtTheEnd
from tests.support.etcd import START_ATTEMPTS
from tests.support.processes import Program, ProgramFailed, Programs, free_port
from tests.support.raw_client import RawClient

_WAIT_SECONDS: Final = 60.0
_TOLD_LINES: Final = 100

# Compiled into kubemark, independent of TMPDIR. All hollow nodes of a machine use the same socket: each one removes
# the previous socket, listens, and connects to it once.
_TEMPORARY: Final = Path("/tmp")
_RUNTIME_SOCKET: Final = _TEMPORARY / "kubelet_remote.sock"
_ROOT_FOLDER: Final = re.compile(r"Using (/tmp/hollow-kubelet\.\w+) as root dir for hollow-kubelet$", re.MULTILINE)
# Newer versions quote messages.
_STARTED: Final = re.compile(r'\] "?Started kubelet"?$', re.MULTILINE)
# Ten times a second.
_NOT_REGISTERED_YET: Final = re.compile(r'node \\?"[^"]*" not found"?$')
# The stack traces of all goroutines, after klog's last message.
_STACKS: Final = "\ngoroutine "


class HollowNode(ClosedAtTheEnd):
    """A running kubelet, Node ``name``; a context manager that stops it and shows its log when the test fails.

    ``kubeconfig`` is the content of its kubeconfig; relative paths in it are relative to ``folder``. ``environment`` is
    added to this process's; see also ``_isolated_environment``. ``binary`` is kubemark (default: the one of
    ``find_control_plane``). Raises ``MissingPart`` without it and ``ProgramFailed`` if it does not start; a failing
    plugin does not prevent the start.
    """

    def __init__(
        self,
        name: str,
        kubeconfig: str,
        *,
        environment: Mapping[str, str] | None = None,
        binary: Path | None = None,
    ) -> None:
        self.name = name
        self._binary = binary or find_control_plane().kubemark()
        self._programs = Programs("node-attestation-hollow-node-")
        self._last_log = ""
        self._log = self._programs.folder / "kubemark.log"
        self._program: Program | None = None
        with self.closed_on_failure():
            self._environment = _isolated_environment(self._programs.folder, environment or {})
            self._kubeconfig = self._programs.folder / "kubeconfig"
            self._kubeconfig.touch(mode=0o600)
            self._kubeconfig.write_text(kubeconfig)
            with _alone_in_temporary_folder():
                self._program = self._start_on_free_port()

    # For tests

    @property
    def folder(self) -> Path:
        """The kubelet's working folder, removed with it."""
        return self._programs.folder

    @property
    def log(self) -> str:
        """The standard error of the kubelet and its plugin; also available after ``close``."""
        try:
            return self._log.read_text(errors="replace")
        except FileNotFoundError:
            return self._last_log

    def wait_until(self, ready: Callable[[], bool], what: str, timeout: float = _WAIT_SECONDS) -> None:
        """Wait until ``ready``; raises ``ProgramFailed`` if the kubelet ends or after ``timeout`` seconds."""
        if self._program is None:
            raise ProgramFailed(f"{what}: the kubelet of {self.name} does not run")
        self._wait(self._program, ready, what, timeout)

    def wait_registered(self, client: RawClient, timeout: float = _WAIT_SECONDS) -> dict[str, Any]:
        """Wait until ``client`` can read the Node; returns it."""
        return self._wait_for_node(client, lambda node: True, f"Node {self.name} is registered", timeout)

    def wait_ready(self, client: RawClient, timeout: float = _WAIT_SECONDS) -> dict[str, Any]:
        """Wait until the Node's condition Ready is True; returns the Node as read by ``client``."""
        return self._wait_for_node(client, _is_ready, f"Node {self.name} is Ready", timeout)

    def stop(self) -> None:
        """Stop the kubelet; the folder stays until ``close``."""
        if self._program is not None:
            self._programs.stop(self._program)
            self._program = None

    def remove_from(self, client: RawClient) -> None:
        """Stop the kubelet and delete its objects in the cluster: Node, Lease and CSINode."""
        self.stop()
        for path in (
            f"/api/v1/nodes/{self.name}",
            f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{self.name}",
            f"/apis/storage.k8s.io/v1/csinodes/{self.name}",
        ):
            client.delete(path).expect(200, 404)

    def close(self) -> None:
        """Stop the kubelet and remove its folders."""
        self.stop()
        self._last_log = self.log
        self._programs.close()
        with _alone_in_temporary_folder():
            for root_folder in _ROOT_FOLDER.findall(self._last_log):
                shutil.rmtree(root_folder, ignore_errors=True)
            # It may be another hollow node's socket, but that one has connected by now, and connects only once.
            with contextlib.suppress(FileNotFoundError, PermissionError):
                _RUNTIME_SOCKET.unlink()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        # What failed here has its log in its message.
        if error is not None and not isinstance(error, ProgramFailed):
            print(f"The kubelet of {self.name} wrote:\n{self._told()}", file=sys.stderr)

    # How it starts.

    def _start_on_free_port(self) -> Program:
        for attempt in range(1, START_ATTEMPTS + 1):
            port = free_port()
            program = self._start(port)
            try:
                self._wait(program, partial(self._is_started, port), "the kubelet has started", _WAIT_SECONDS)
            except ProgramFailed as failure:
                self._programs.stop(program)
                if attempt == START_ATTEMPTS or "address already in use" not in str(failure):
                    raise
            else:
                return program
        raise AssertionError("unreachable: the last attempt returns or raises")

    def _start(self, port: int) -> Program:
        flags = [
            "--morph=kubelet",
            f"--name={self.name}",
            f"--kubeconfig={self._kubeconfig}",
            f"--kubelet-port={port}",
            # No second server.
            "--kubelet-read-only-port=0",
            *self._without_the_machine(),
        ]
        return self._programs.start("kubemark", [self._binary, *flags], self._environment)

    def _without_the_machine(self) -> list[str]:
        """Flags that keep it away from the machine's packet filter and containerd, depending on its version."""
        told = subprocess.run(
            [self._binary, "--help"], check=True, capture_output=True, text=True, timeout=_WAIT_SECONDS
        )
        return [
            f"--{flag}=false" for flag in ("use-real-proxier", "use-host-image-service") if f"--{flag} " in told.stdout
        ]

    def _is_started(self, port: int) -> bool:
        if not _STARTED.search(self.log):
            return False
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    def _wait_for_node(
        self, client: RawClient, is_right: Callable[[dict[str, Any]], bool], what: str, timeout: float
    ) -> dict[str, Any]:
        found: list[dict[str, Any]] = []

        def look() -> bool:
            answer = client.get(f"/api/v1/nodes/{self.name}")
            if answer.status == 200 and is_right(answer.body):
                found.append(answer.body)
            return bool(found)

        self.wait_until(look, what, timeout)
        return found[0]

    def _wait(self, program: Program, ready: Callable[[], bool], what: str, timeout: float) -> None:
        try:
            program.wait_ready(ready, timeout)
        except ProgramFailed as failure:
            reason = str(failure).partition("\n")[0]
            raise ProgramFailed(f"{what}: {reason}\n{self._told()}") from None

    def _told(self) -> str:
        """The end of the log, without stack traces that hide the reason of a failure."""
        lines = self.log.partition(_STACKS)[0].splitlines()
        return "\n".join([line for line in lines if not _NOT_REGISTERED_YET.search(line)][-_TOLD_LINES:])


def _isolated_environment(folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """``environment``, with variables that isolate a kubelet that runs as root from this machine.

    Otherwise it would write rules to the packet filter, and search the home folder and the cloud's metadata service for
    image registry credentials. Its plugin inherits the environment.
    """
    programs = folder / "programs"
    programs.mkdir()
    for name in ("iptables", "ip6tables"):
        refusing = programs / name
        refusing.write_text("#!/bin/sh\necho not in a test >&2\nexit 1\n")
        refusing.chmod(0o755)
    path = environment.get("PATH", os.environ.get("PATH", os.defpath))
    return {
        "HOME": str(folder),
        "AWS_EC2_METADATA_DISABLED": "true",
        **environment,
        "PATH": f"{programs}{os.pathsep}{path}",
    }


def _is_ready(node: dict[str, Any]) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


@contextlib.contextmanager
def _alone_in_temporary_folder() -> Iterator[None]:
    """Lock the socket that all hollow nodes share, while this one listens on and connects to it."""
    folder = os.open(_TEMPORARY, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
