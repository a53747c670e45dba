"""One node's folder, and the commands run in this process."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from authenticator import commands
from authenticator.store.store import Store
from tests.unit.authenticator.builders import NODE, NOW, PROVIDER_ID, SETTINGS


@dataclass
class Node:
    """A node with the keyed-mac attestor."""

    folder: Path
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    @property
    def store(self) -> Store:
        return Store(self.folder / "pki")

    @property
    def bootstrap_kubeconfig(self) -> Path:
        return self.folder / "bootstrap-kubelet.conf"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubelet.conf"

    def configure(self, **changes: Any) -> str:
        """Write the configuration file; returns its path."""
        path = self.folder / "configuration.json"
        content = {
            "apiVersion": "attestation.cluster.x-k8s.io/v1alpha1",
            "kind": "KubeletAuthenticatorConfiguration",
            "provider": "keyed-mac",
            "settings": SETTINGS,
            "nodeName": NODE,
            "bootstrapKubeconfig": str(self.bootstrap_kubeconfig),
            "kubeconfig": str(self.kubeconfig),
            "store": str(self.store.folder),
            **changes,
        }
        path.write_text(json.dumps(content))
        return str(path)

    def run(self, command: str, *arguments: str) -> tuple[int, str, str]:
        """Exit code, output and log of one command."""
        code = commands.run([command, "--config", str(self.folder / "configuration.json"), *arguments])
        printed = self.capsys.readouterr()
        return code, printed.out, printed.err

    def files(self) -> dict[str, bytes]:
        """All files of the store."""
        if not self.store.folder.exists():
            return {}
        return {path.name: path.read_bytes() for path in self.store.folder.iterdir()}

    @contextmanager
    def unchanged(self) -> Iterator[None]:
        """The store is what it was before."""
        before = self.files()
        yield
        assert self.files() == before


@pytest.fixture
def node(
    tmp_path: Path,
    nothing_configured: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Node:
    made = Node(tmp_path, monkeypatch, capsys)
    made.configure(providerID=PROVIDER_ID)
    # The commands' clocks took the function itself when they were imported.
    for command in ("status", "request"):
        monkeypatch.setattr(f"authenticator.commands.{command}.Clock", lambda: _Clock())
    assert time.time() > NOW.timestamp()
    return made


class _Clock:
    """It is always the same moment."""

    def now(self) -> int:
        return int(NOW.timestamp())
