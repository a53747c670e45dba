"""A real containerd as container runtime of a real kubelet. It runs no containers in these tests."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
from pathlib import Path
from typing import Final

from tests.support.binaries import MissingPart
from tests.support.closing import ClosedAtTheEnd
from tests.support.processes import Programs

SOCKET: Final = "containerd.sock"
# A network configuration makes the runtime report ready; networks are created only with Pods.
_NETWORK: Final = {"cniVersion": "0.3.1", "name": "loopback", "plugins": [{"type": "loopback"}]}


class Containerd(ClosedAtTheEnd):
    """A running containerd; a context manager that stops it. Raises ``MissingPart`` if it is not installed."""

    def __init__(self) -> None:
        binary = shutil.which("containerd")
        if binary is None:
            raise MissingPart("containerd is not installed: run tests/provision/provision.sh")
        self._programs = Programs("node-attestation-containerd-")
        with self._programs.closed_on_failure():
            self.folder = self._programs.folder / "run"
            self.folder.mkdir()
            networks = self._programs.folder / "networks"
            networks.mkdir()
            (networks / "10-loopback.conflist").write_text(json.dumps(_NETWORK), encoding="utf-8")
            configuration = self._programs.folder / "config.toml"
            configuration.write_text(_configuration(self._programs.folder, self.folder, networks), encoding="utf-8")
            program = self._programs.start("containerd", [binary, "--config", configuration])
            program.wait_ready(self._answers)

    def close(self) -> None:
        """Stop it and remove its folder."""
        self._programs.close()

    def _answers(self) -> bool:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            probe.connect(str(self.folder / SOCKET))
            return True
        return False


def _configuration(folder: Path, sockets: Path, networks: Path) -> str:
    cri = 'plugins."io.containerd.grpc.v1.cri"'
    return f"""version = 2
root = "{folder}/root"
state = "{folder}/state"
[grpc]
address = "{sockets / SOCKET}"
[{cri}]
stream_server_address = "127.0.0.1"
stream_server_port = "0"
[{cri}.cni]
bin_dir = "{folder}"
conf_dir = "{networks}"
[{cri}.containerd]
snapshotter = "native"
"""
