"""``tpm fingerprint`` without a TPM: what it prints, and its exit codes. With one: ``tests/integration/tpm``."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from attestors.contract import EvidenceUnavailable, ShownKey
from authenticator import commands
from authenticator.configuration import Configuration
from authenticator.flow.evidence import Attestation
from authenticator.model.failures import ExitCode
from tests.unit.authenticator.commands.conftest import Node

ONE = ShownKey("sha256:" + "ab" * 32, "rsa-2048", True, "chip:sha256:" + "cd" * 32)
OTHER = ShownKey("sha256:" + "12" * 32, "ecc-p256", False, "")


class Plugin:
    """Of a machine with these keys."""

    def __init__(self, keys: Sequence[ShownKey] | Exception) -> None:
        self.keys = keys
        self.asked: list[bool] = []

    def shown_keys(self, *, every: bool) -> Sequence[ShownKey]:
        self.asked.append(every)
        if isinstance(self.keys, Exception):
            raise self.keys
        return self.keys


class Machine:
    """Runs the command on a machine whose attestor has that plugin."""

    def __init__(self, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        self.configurations: list[Configuration] = []

    def run(self, plugin: object, *arguments: str) -> tuple[int, str, str]:
        def of(configuration: Configuration) -> Attestation:
            self.configurations.append(configuration)
            description: Any = type("Description", (), {"provider": configuration.provider})
            unchecked: Any = plugin
            return Attestation(description, unchecked, "", "")

        self._monkeypatch.setattr(Attestation, "of", of)
        code = commands.run(["tpm", "fingerprint", *arguments])
        printed = self._capsys.readouterr()
        return code, printed.out, printed.err


@pytest.fixture
def machine(nothing_configured: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(capsys, monkeypatch)


def test_without_a_configuration_file(machine: Machine) -> None:
    plugin = Plugin([ONE])
    code, out, _ = machine.run(plugin, "--setting", "ek=rsa-2048")
    assert (code, out) == (0, f"{ONE.fingerprint}  rsa-2048, with a certificate {ONE.chip}\n")
    (configuration,) = machine.configurations
    assert (configuration.provider, dict(configuration.settings)) == ("tpm", {"ek": "rsa-2048"})
    assert plugin.asked == [False]


def test_for_programs(machine: Machine) -> None:
    plugin = Plugin([ONE, OTHER])
    code, out, _ = machine.run(plugin, "--all", "-o", "json")
    assert (code, plugin.asked) == (0, [True])
    assert json.loads(out)["endorsementKeys"] == [
        {"fingerprint": ONE.fingerprint, "template": "rsa-2048", "certificate": True, "chip": ONE.chip},
        {"fingerprint": OTHER.fingerprint, "template": "ecc-p256", "certificate": False, "chip": ""},
    ]


@pytest.mark.parametrize(
    ("plugin", "message"),
    [
        (Plugin([]), "the TPM stores no certificate"),
        (Plugin(EvidenceUnavailable("no device: load the driver")), "no device: load the driver"),
        (Plugin(KeyError("x")), "failed with KeyError"),
        (object(), "recognizes machines by no key"),
    ],
)
def test_no_key(machine: Machine, plugin: object, message: str) -> None:
    code, out, error = machine.run(plugin)
    assert (code, out) == (ExitCode.NO_EVIDENCE, "")
    assert message in error


def test_the_node_uses_another_attestor(node: Node, machine: Machine) -> None:
    code, out, error = machine.run(Plugin([ONE]), "--config", node.configure())
    assert (code, out) == (ExitCode.CONFIGURATION, "")
    assert "the configured attestor is keyed-mac, which uses no TPM: give --provider tpm" in error
    assert machine.configurations == []
