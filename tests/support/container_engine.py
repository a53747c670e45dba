"""Builds an image with podman and runs it, in a temporary store.

Its base image is of no registry: ``tests/provision/build-base-image.sh`` makes it.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.support.binaries import MissingPart, build_cache

_BASE: Final = "localhost/python-base"
_BUILD_SECONDS: Final = 600.0
_PIP_CONFIGURATION: Final = ("/etc/pip.conf", "/root/.config/pip/pip.conf")
_CERTIFICATES: Final = "/etc/ssl/certs/ca-certificates.crt"
_MOUNTS: Final = "/proc/self/mountinfo"


class EngineFailed(Exception):
    """podman failed; the message is its output."""


class ContainerEngine:
    """podman, its images and containers in ``store``."""

    def __init__(self, podman: Path, store: Path) -> None:
        # cgroupfs and no events, because tests may run without systemd. The host's network suffices.
        self._command = [
            str(podman),
            f"--root={store / 'root'}",
            f"--runroot={store / 'run'}",
            f"--tmpdir={store / 'tmp'}",
            "--runtime=runc",
            "--cgroup-manager=cgroupfs",
            "--events-backend=none",
        ]

    def import_base(self, archive: Path) -> None:
        """Import a root file system as an image."""
        self.do("import", "--quiet", str(archive), _BASE)

    def build(self, arguments: Sequence[str], context: Path) -> None:
        """Run ``podman build`` with these arguments in the folder ``context``, on the base image.

        Packages come from the index of this machine's pip.
        """
        here = [
            "--network=host",
            "--pull-never",
            f"--build-arg=BASE={_BASE}",
            f"--volume={_CERTIFICATES}:{_CERTIFICATES}:ro",
        ]
        here += [f"--volume={path}:{path}:ro" for path in _PIP_CONFIGURATION if Path(path).is_file()]
        variables = [name for name in os.environ if name.startswith("PIP_")]
        here += [f"--env={name}" for name in variables]
        self.do("build", *here, *arguments, context=context)

    def run_command(self, image: str, arguments: Sequence[str], options: Sequence[str] = ()) -> list[str]:
        """The command that runs a container in the foreground, with the host's network, and removes it."""
        # podman would raise the limits, which may be forbidden.
        _, files = resource.getrlimit(resource.RLIMIT_NOFILE)
        limits = [f"--ulimit=nofile={files}:{files}", "--ulimit=nproc=1024:1024"]
        here = ["run", "--rm", "--pull=never", "--network=host", *limits]
        return [*self._command, *here, *options, image, *arguments]

    def run(self, image: str, *arguments: str, options: Sequence[str] = ()) -> str:
        """Run a container; returns its output. Raises ``EngineFailed``."""
        return _run(self.run_command(image, arguments, options))

    def do(self, *arguments: str, context: Path | None = None, environment: Mapping[str, str] | None = None) -> str:
        """Run podman, with more in its environment; returns its output. Raises ``EngineFailed``."""
        return _run([*self._command, *arguments], context, environment)


@contextlib.contextmanager
def container_engine(*, has_base: bool = True) -> Iterator[ContainerEngine]:
    """An engine with the base image, or with no image. Raises ``MissingPart``."""
    podman, archive = _find()
    store = Path(tempfile.mkdtemp(prefix="containers-"))
    try:
        engine = ContainerEngine(podman, store)
        if has_base:
            engine.import_base(archive)
        yield engine
        engine.do("rm", "--all", "--force")
    finally:
        _remove(store)


def _find() -> tuple[Path, Path]:
    install = "run tests/provision/provision.sh image as root on Debian"
    podman = shutil.which("podman")
    if podman is None or shutil.which("runc") is None:
        raise MissingPart(f"podman or runc is not installed: {install}")
    if os.geteuid() != 0:
        raise MissingPart("these tests run containers as root")
    archive = build_cache().parent / "python-base.tar"
    if not archive.is_file():
        raise MissingPart(f"there is no base image: {install}")
    return Path(podman), archive


def _remove(store: Path) -> None:
    """Remove the store, which the layer driver keeps mounted on itself."""
    mounted = [line.split()[4] for line in Path(_MOUNTS).read_text(encoding="utf-8").splitlines()]
    for path in reversed([path for path in mounted if Path(path).is_relative_to(store)]):
        subprocess.run(["umount", "--lazy", path], check=True, timeout=60)
    shutil.rmtree(store)


def _run(command: Sequence[str], folder: Path | None = None, environment: Mapping[str, str] | None = None) -> str:
    variables = {**os.environ, **(environment or {})}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_BUILD_SECONDS, env=variables)
    if done.returncode != 0:
        raise EngineFailed(f"{' '.join(command)} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout
