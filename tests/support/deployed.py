"""A Deployment's container as a process on this machine: nobody runs Pods on the tests' control planes.

What the kubelet would do is done here: arguments, environment, mounted Secrets and ConfigMaps, and a token of the Pod's
ServiceAccount, all as they are stored in the API server.
"""

from __future__ import annotations

import base64
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.support.control_plane import ControlPlane
from tests.support.grants import service_account_token
from tests.support.processes import wait_until
from tests.support.raw_client import RawClient

_PROGRAM: Final = Path(sys.executable).with_name("node-attestation-controller")
"""ENTRYPOINT of the image."""
_CONFIGURATION: Final = "/etc/node-attestation/config"
_STOP_SECONDS: Final = 15.0


class DeployedController:
    """The one container of the Deployment, running; a context manager that ends it with SIGTERM.

    ``folder`` is an empty one for its mounts.
    """

    def __init__(self, plane: ControlPlane, namespace: str, name: str, folder: Path) -> None:
        self._plane = plane
        self._namespace = namespace
        self._folder = folder
        with RawClient(plane.connection()) as administrator:
            path = f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}"
            self._pod: dict[str, Any] = administrator.get(path).expect(200)["spec"]["template"]["spec"]
            [self._container] = self._pod["containers"]
            mounts = self._mounts(administrator)
        self._name = f"{name}-0"
        self.arguments = [_inside(argument, mounts) for argument in self._container["args"]]
        self.log = folder / "log"

    def __enter__(self) -> Self:
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [_PROGRAM, *self.arguments], stdout=log, stderr=log, env=self._environment(), cwd=self._folder
            )
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

    def _environment(self) -> dict[str, str]:
        kubeconfig = self._folder / "service-account.kubeconfig"
        kubeconfig.touch(mode=0o600)
        token = service_account_token(self._plane, self._namespace, self._pod["serviceAccountName"])
        connection = self._plane.token_connection(token)
        kubeconfig.write_text(self._plane.kubeconfig("management", connection=connection))
        values = {"metadata.namespace": self._namespace, "metadata.name": self._name}
        environment = {"PATH": os.environ.get("PATH", ""), "KUBECONFIG": str(kubeconfig)}
        for variable in self._container["env"]:
            if "value" in variable:
                environment[variable["name"]] = variable["value"]
            else:
                environment[variable["name"]] = values[variable["valueFrom"]["fieldRef"]["fieldPath"]]
        return environment

    def _mounts(self, administrator: RawClient) -> dict[str, Path]:
        """Mount path in the container to a folder here that holds what would be seen there."""
        volumes = {volume["name"]: volume for volume in self._pod["volumes"]}
        found = {}
        for mount in self._container["volumeMounts"]:
            volume = volumes[mount["name"]]
            folder = self._folder / "mounts" / mount["name"]
            folder.mkdir(parents=True)
            for name, content in _files_of(volume, self._namespace, administrator).items():
                (folder / name).write_bytes(content)
            found[mount["mountPath"]] = folder
        for path in found[_CONFIGURATION].iterdir():
            path.write_text(_below_mounts(path.read_text(), found))
        return found

    def _is_ready(self) -> bool:
        """What the readiness probe finds."""
        if self._process.poll() is not None:
            raise AssertionError(f"it ended with {self._process.returncode}: {self.log.read_text()}")
        probe = self._container["readinessProbe"]["httpGet"]
        ports = {port["name"]: port["containerPort"] for port in self._container["ports"]}
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{ports[probe['port']]}{probe['path']}") as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError):
            return False


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
    """The configuration file, with folders that are mounted as they are on this machine."""
    for mount, folder in mounts.items():
        configuration = re.sub(rf"{re.escape(mount)}(?![\w-])", str(folder), configuration)
    return configuration


def _inside(argument: str, mounts: dict[str, Path]) -> str:
    """The argument with paths below a mount as they are on this machine."""
    flag, separator, value = argument.partition("=")
    for mount, folder in mounts.items():
        if value.startswith(f"{mount}/"):
            return f"{flag}{separator}{folder}{value.removeprefix(mount)}"
    return argument
