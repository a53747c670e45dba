"""Files for the commands."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest
import yaml

from attestors.wire.ssh.key_line import key_line
from signer.offline.main import main
from tests.support.openssh import public_keys
from tests.unit.signer.authority.ssh.test_secret import manifest

Run: TypeAlias = Callable[..., int]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with a master secret, a Secret's manifest, and public keys."""
    monkeypatch.chdir(tmp_path)
    parts = (("key", range(32)), ("salt", range(32, 64)))
    secret = {name: base64.b64encode(bytes(value)).decode() for name, value in parts}
    (tmp_path / "master.json").write_text(json.dumps(secret))
    (tmp_path / "authority.yaml").write_text(yaml.safe_dump(manifest()))
    (tmp_path / "authority.json").write_text(json.dumps(manifest()))
    for name, key in public_keys().items():
        (tmp_path / f"{name}.pub").write_text(f"{key_line(key)} alice@laptop\n")
    return tmp_path


@pytest.fixture
def run(folder: Path) -> Run:
    """Runs a command in the folder; the exit code, also where argparse exits."""

    def run_there(*arguments: str) -> int:
        try:
            return main(arguments)
        except SystemExit as ended:
            return ended.code if isinstance(ended.code, int) else -1

    return run_there
