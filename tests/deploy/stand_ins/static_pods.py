"""Static pods without containers, which do not run in a scratch root: one program for each manifest.

A program starts when its manifest exists and the kubelet is healthy. It is skipped if the machine does not have it.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Final, Never

from tests.support.yaml_documents import safe_load

MANIFESTS: Final = Path("/etc/kubernetes/manifests")
KUBELET: Final = ("127.0.0.1", 10248)
"""The address of the kubelet's health endpoint."""
_POLL_SECONDS: Final = 0.1


def main() -> Never:
    """Run until killed, together with the programs."""
    running: dict[Path, subprocess.Popen[bytes]] = {}
    while True:
        manifests = set(MANIFESTS.glob("*.yaml"))
        for gone in running.keys() - manifests:
            running[gone].kill()
            running.pop(gone).wait()
        if kubelet_runs():
            for new in manifests - running.keys():
                [container] = safe_load(new.read_text(encoding="utf-8"))["spec"]["containers"]
                if shutil.which(container["command"][0]):
                    running[new] = subprocess.Popen(container["command"])
        time.sleep(_POLL_SECONDS)


def kubelet_runs() -> bool:
    """Whether the kubelet's health endpoint accepts connections."""
    try:
        socket.create_connection(KUBELET, 1).close()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
