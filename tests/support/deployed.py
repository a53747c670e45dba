"""Runs a Deployment's container as a process on this machine, because the tests' control planes run no Pods.

It does the kubelet's work: arguments, environment, mounted Secrets and ConfigMaps, and a token of the Pod's
ServiceAccount, all from the API server. :mod:`tests.support.contained` runs the container in its image.
"""

from __future__ import annotations

import abc
import base64
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

from tests.support.control_plane import ControlPlane
from tests.support.grants import service_account_token
from tests.support.processes import wait_until
from tests.support.raw_client import RawClient

_PROGRAM: Final = Path(sys.executable).with_name("node-attestation-controller")
"""ENTRYPOINT of the image."""
_CONFIGURATION: Final = "/etc/node-attestation/config"
_STOP_SECONDS: Final = 15.0


@dataclass(frozen=True)
class Mount:
    """The files that a container would see below a path."""

    path: str
    volume: dict[str, Any]
    files: dict[str, bytes]
    read_only: bool

    def write(self, folder: Path) -> Path:
        """Write the files into a new folder below ``folder``."""
        here = folder / str(self.volume["name"])
        here.mkdir(parents=True)
        for name, content in self.files.items():
            (here / name).write_bytes(content)
        return here


class Pod:
    """The Pod that a Deployment would create, with its objects from the API server."""

    def __init__(self, plane: ControlPlane, namespace: str, deployment: str) -> None:
        self.namespace = namespace
        self._plane = plane
        self._name = f"{deployment}-0"
        with RawClient(plane.connection()) as administrator:
            path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{deployment}"
            self.spec: dict[str, Any] = administrator.get(path).expect(200)["spec"]["template"]["spec"]
            [self.container] = self.spec["containers"]
            self.mounts = self._mounts(administrator)

    def environment(self) -> dict[str, str]:
        """The environment of the Deployment, without the variables of every Pod."""
        fields = {"metadata.namespace": self.namespace, "metadata.name": self._name}
        return {
            variable["name"]: variable["value"]
            if "value" in variable
            else fields[variable["valueFrom"]["fieldRef"]["fieldPath"]]
            for variable in self.container["env"]
        }

    def token(self) -> str:
        """A new token of its ServiceAccount."""
        return service_account_token(self._plane, self.namespace, self.spec["serviceAccountName"])

    def is_ready(self) -> bool:
        """The result of the readiness probe."""
        probe = self.container["readinessProbe"]["httpGet"]
        ports = {port["name"]: port["containerPort"] for port in self.container["ports"]}
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{ports[probe['port']]}{probe['path']}") as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError):
            return False

    def _mounts(self, administrator: RawClient) -> list[Mount]:
        volumes = {volume["name"]: volume for volume in self.spec["volumes"]}
        found = []
        for mount in self.container["volumeMounts"]:
            volume = volumes[mount["name"]]
            files = _files_of(volume, self.namespace, administrator)
            found.append(Mount(mount["mountPath"], volume, files, mount.get("readOnly", False)))
        return found


class RunningPod(abc.ABC):
    """A Pod's only container, running; a context manager that ends it with SIGTERM.

    ``folder`` is an empty folder for its files.
    """

    def __init__(self, plane: ControlPlane, pod: Pod, folder: Path) -> None:
        self.plane = plane
        self.pod = pod
        self.folder = folder
        self.log = folder / "log"

    @property
    @abc.abstractmethod
    def arguments(self) -> list[str]:
        """The container's arguments, as the program gets them."""

    @abc.abstractmethod
    def start(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start the container, with output to ``log``. SIGTERM to the returned process reaches the program."""

    def __enter__(self) -> Self:
        with self.log.open("ab") as log:
            self._process = self.start(log)
        try:
            wait_until(self._is_ready, "the controller is ready", timeout=60)
        except BaseException:
            self._process.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            code = self._process.wait(_STOP_SECONDS)
        finally:
            self._process.kill()
        assert code == 0 or error is not None, self.log.read_text()

    def _is_ready(self) -> bool:
        if self._process.poll() is not None:
            raise AssertionError(f"it ended with {self._process.returncode}: {self.log.read_text()}")
        return self.pod.is_ready()


class DeployedController(RunningPod):
    """The Deployment's only container as a process, with its mounts below ``folder``."""

    def __init__(self, plane: ControlPlane, namespace: str, name: str, folder: Path) -> None:
        super().__init__(plane, Pod(plane, namespace, name), folder)
        mounts = {mount.path: mount.write(folder / "mounts") for mount in self.pod.mounts}
        for path in mounts[_CONFIGURATION].iterdir():
            path.write_text(_below_mounts(path.read_text(), mounts))
        self._arguments = [_inside(argument, mounts) for argument in self.pod.container["args"]]

    @property
    def arguments(self) -> list[str]:
        return self._arguments

    def start(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        kubeconfig = self.folder / "service-account.kubeconfig"
        kubeconfig.touch(mode=0o600)
        connection = self.plane.token_connection(self.pod.token())
        kubeconfig.write_text(self.plane.kubeconfig("management", connection=connection))
        path = os.environ.get("PATH", "")
        environment = {"PATH": path, "KUBECONFIG": str(kubeconfig), **self.pod.environment()}
        command = [str(_PROGRAM), *self.arguments]
        return subprocess.Popen(command, stdout=log, stderr=log, env=environment, cwd=self.folder)


def _files_of(volume: dict[str, Any], namespace: str, administrator: RawClient) -> dict[str, bytes]:
    if "emptyDir" in volume:
        return {}
    if "secret" in volume:
        path = f"/api/v1/namespaces/{namespace}/secrets/{volume['secret']['secretName']}"
        data: dict[str, str] = administrator.get(path).expect(200)["data"]
        return {name: base64.b64decode(content) for name, content in data.items()}
    path = f"/api/v1/namespaces/{namespace}/configmaps/{volume['configMap']['name']}"
    return {name: text.encode() for name, text in administrator.get(path).expect(200)["data"].items()}


def _below_mounts(configuration: str, mounts: dict[str, Path]) -> str:
    """The configuration file, with mounted folders replaced by their paths on this machine."""
    for mount, folder in mounts.items():
        configuration = re.sub(rf"{re.escape(mount)}(?![\w-])", str(folder), configuration)
    return configuration


def _inside(argument: str, mounts: dict[str, Path]) -> str:
    """The argument, with paths below a mount replaced by their paths on this machine."""
    flag, separator, value = argument.partition("=")
    for mount, folder in mounts.items():
        if value.startswith(f"{mount}/"):
            return f"{flag}{separator}{folder}{value.removeprefix(mount)}"
    return argument
