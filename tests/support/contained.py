"""Runs a Deployment's container in its image with podman, as the kubelet would."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import IO, Any, Final
from urllib.parse import urlsplit

from tests.support.container_engine import ContainerEngine
from tests.support.control_plane import ControlPlane
from tests.support.deployed import Mount, Pod, RunningPod

_SERVICE_ACCOUNT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"


class ContainedController(RunningPod):
    """The Deployment's only container in an image, with its security context and in-cluster configuration."""

    def __init__(
        self, plane: ControlPlane, namespace: str, name: str, folder: Path, *, engine: ContainerEngine, image: str
    ) -> None:
        super().__init__(plane, Pod(plane, namespace, name), folder)
        self._engine = engine
        self._image = image

    @property
    def arguments(self) -> list[str]:
        return list(self.pod.container["args"])

    def start(self, log: IO[bytes]) -> subprocess.Popen[bytes]:
        volumes = [self._volume(mount) for mount in self.pod.mounts] + [self._service_account()]
        server = urlsplit(self.plane.server)
        environment = {
            "KUBERNETES_SERVICE_HOST": server.hostname,
            "KUBERNETES_SERVICE_PORT": server.port,
            **self.pod.environment(),
        }
        options = [
            *[f"--volume={volume}" for volume in volumes],
            *[f"--env={name}={value}" for name, value in environment.items()],
            *security_options(self.pod.spec["securityContext"], self.pod.container["securityContext"]),
        ]
        command = self._engine.run_command(self._image, self.arguments, options)
        return subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)

    def _volume(self, mount: Mount) -> str:
        folder = mount.write(self.folder / "mounts")
        source = mount.volume.get("secret") or mount.volume.get("configMap") or {}
        self._give(folder, source.get("defaultMode", 0o644))
        return f"{folder}:{mount.path}:{'ro' if mount.read_only else 'rw'}"

    def _service_account(self) -> str:
        folder = self.folder / "mounts" / "service-account"
        folder.mkdir()
        (folder / "token").write_text(self.pod.token(), encoding="ascii")
        (folder / "ca.crt").write_bytes(self.plane.connection().certificate_authority)
        (folder / "namespace").write_text(self.pod.namespace, encoding="ascii")
        self._give(folder, 0o600)
        return f"{folder}:{_SERVICE_ACCOUNT}:ro"

    def _give(self, folder: Path, mode: int) -> None:
        """Set owner and mode as the kubelet does: root and the Pod's ``fsGroup``; an emptyDir is world-writable."""
        group = self.pod.spec["securityContext"]["fsGroup"]
        folder.chmod(0o755 if any(folder.iterdir()) else 0o777)
        for path in folder.iterdir():
            path.chmod(mode | 0o040)
            os.chown(path, 0, group)


def security_options(pod: dict[str, Any], container: dict[str, Any]) -> list[str]:
    """podman's options for the two security contexts. podman's default seccomp profile equals ``RuntimeDefault``."""
    both = {**pod, **container}
    if both["privileged"] or both["allowPrivilegeEscalation"] or both["seccompProfile"] != {"type": "RuntimeDefault"}:
        raise ValueError(f"not the restricted profile: {both}")
    return [
        f"--user={both['runAsUser']}:{both['runAsGroup']}",
        f"--group-add={both['fsGroup']}",
        "--security-opt=no-new-privileges",
        f"--read-only={str(both['readOnlyRootFilesystem']).lower()}",
        "--read-only-tmpfs=false",
        *[f"--cap-drop={name}" for name in both["capabilities"]["drop"]],
    ]
