"""Finds the real parts (etcd, kube-apiserver, ...), and skips or fails tests that need a missing one."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NoReturn

import pytest

ASSETS_VARIABLE: Final = "KUBEBUILDER_ASSETS"
"""A folder with etcd and kube-apiserver, as in controller-runtime's envtest."""
REQUIRE_VARIABLE: Final = "NODE_ATTESTATION_REQUIRE_REAL"
"""``1`` turns skips for missing real parts into failures, as in continuous integration."""

_NO_INSECURE_PORT: Final = (1, 24)
_KERNEL_LOG: Final = "/dev/kmsg"


class MissingPart(Exception):
    """A real part is not installed; the message is one line that says what to install."""


@dataclass(frozen=True, slots=True)
class ControlPlaneBinaries:
    """The programs of a control plane."""

    etcd: Path
    kube_apiserver: Path
    folder: Path

    def program(self, name: str) -> Path:
        """Raises ``MissingPart``: not every assets folder has every program."""
        return _executable(self.folder, name)

    def kube_controller_manager(self) -> Path:
        """Raises ``MissingPart``."""
        return self.program("kube-controller-manager")

    def without_insecure_port(self) -> dict[str, object]:
        """Flags that stop kube-controller-manager from listening on port 10252, which parallel runs would share.

        Before Kubernetes 1.24 it listens by default; later versions do not know the flag. Raises ``MissingPart``.
        """
        return {"port": 0} if kubernetes_version(self.kube_controller_manager()) < _NO_INSECURE_PORT else {}

    def kubemark(self) -> Path:
        """Kubernetes' hollow node, a kubelet without containers.

        Raises ``MissingPart`` if the program is missing or this user may not run it.
        """
        kubemark = self.program("kubemark")
        try:
            os.close(os.open(_KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK))
        except OSError as error:
            needed = "run as root, or as root once: sysctl kernel.dmesg_restrict=0"
            raise MissingPart(f"kubemark reads {_KERNEL_LOG} ({error.strerror}): {needed}") from None
        return kubemark

    def kubernetes(self) -> tuple[int, int]:
        """Major and minor version of kube-apiserver."""
        return kubernetes_version(self.kube_apiserver)

    def versions(self) -> dict[str, str]:
        """The version output of each program, for test reports and benchmarks."""
        return {path.name: _version(path) for path in (self.etcd, self.kube_apiserver)}


def find_control_plane() -> ControlPlaneBinaries:
    """The binaries of ``$KUBEBUILDER_ASSETS`` if it is set, else of the build cache and ``PATH``.

    Raises ``MissingPart``.
    """
    assets = os.environ.get(ASSETS_VARIABLE)
    return control_plane_in(Path(assets) if assets else build_cache())


def control_plane_in(folder: Path) -> ControlPlaneBinaries:
    """The binaries of that folder; etcd may be on ``PATH`` instead.

    Raises ``MissingPart``.
    """
    kube_apiserver = _executable(folder, "kube-apiserver")
    beside = folder / "etcd"
    if _is_executable(beside):
        return ControlPlaneBinaries(beside, kube_apiserver, folder)
    found = shutil.which("etcd")
    if found is None:
        raise MissingPart(f"etcd is not installed: run tests/provision/provision.sh, or set {ASSETS_VARIABLE}")
    return ControlPlaneBinaries(Path(found), kube_apiserver, folder)


def build_cache() -> Path:
    """The folder in which tests/provision/provision.sh puts its builds."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "capi-node-attestation" / "kubernetes-debian"


def skip_or_fail(missing: MissingPart) -> NoReturn:
    """Skip the running test, or fail it if the real parts are required."""
    if os.environ.get(REQUIRE_VARIABLE) == "1":
        pytest.fail(f"{missing} ({REQUIRE_VARIABLE}=1)", pytrace=False)
    pytest.skip(str(missing))


def _executable(folder: Path, name: str) -> Path:
    path = folder / name
    if not _is_executable(path):
        raise MissingPart(f"{name} is not in {folder}: run tests/provision/provision.sh, or set {ASSETS_VARIABLE}")
    return path


def _is_executable(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def kubernetes_version(program: Path) -> tuple[int, int]:
    """Major and minor version of a program of Kubernetes, by ``--version``."""
    major, minor, _ = _version(program).rpartition(" v")[2].split(".", 2)
    return int(major), int(minor)


def _version(path: Path) -> str:
    output = subprocess.run([path, "--version"], check=True, capture_output=True, text=True, timeout=60).stdout
    return output.splitlines()[0].strip()
