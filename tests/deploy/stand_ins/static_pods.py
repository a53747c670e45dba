"""What a kubelet does with static pods, as far as one program each goes: containers do not run in a scratch root.

A program runs while its manifest is there and the kubelet does. Programs that the machine does not have do not run.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from pathlib import Path
from typing import Final, Never

import yaml

MANIFESTS: Final = Path("/etc/kubernetes/manifests")
KUBELET: Final = ("127.0.0.1", 10248)
"""Where the kubelet says that it is healthy."""
_POLL_SECONDS: Final = 0.1


def main() -> Never:
    """Until it is killed, and its programs with it."""
    running: dict[Path, subprocess.Popen[bytes]] = {}
    while True:
        manifests = set(MANIFESTS.glob("*.yaml"))
        for gone in running.keys() - manifests:
            running[gone].kill()
            running.pop(gone).wait()
        if kubelet_runs():
            for new in manifests - running.keys():
                [container] = yaml.safe_load(new.read_text(encoding="utf-8"))["spec"]["containers"]
                if shutil.which(container["command"][0]):
                    running[new] = subprocess.Popen(container["command"])
        time.sleep(_POLL_SECONDS)


def kubelet_runs() -> bool:
    """Whether somebody listens there."""
    try:
        socket.create_connection(KUBELET, 1).close()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    main()
