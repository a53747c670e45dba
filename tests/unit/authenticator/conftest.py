"""Fixtures of the node's program: nothing of this machine's own configuration is seen."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def nothing_configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No variables, and default files in an empty folder; returns that folder."""
    for name in [*os.environ]:
        if name.startswith(("KUBELET_AUTHENTICATOR_", "KUBERNETES_EXEC")) or name == "NO_COLOR":
            monkeypatch.delenv(name)
    folder = tmp_path / "defaults"
    folder.mkdir()
    for module in ("authenticator.configuration", "authenticator.stored_credential"):
        monkeypatch.setattr(f"{module}.DEFAULT_CONFIGURATION_FILE", str(folder / "kubelet-authenticator.json"))
        monkeypatch.setattr(f"{module}.DEFAULT_STORE", str(folder / "pki"))
    return folder
