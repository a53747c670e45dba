from __future__ import annotations

import json
from io import StringIO
from typing import Any, Final

import pytest
from rich.console import Console

from signer.cli import main
from signer.cli.version import ControllerNotAsked, ControllerNotKnown, InstalledController, as_json, installed, show
from signer.model.program_version import program_version

DEPLOYMENT: Final = {
    "metadata": {"namespace": "n", "name": "controller", "labels": {"app.kubernetes.io/version": "0.1.0"}},
    "spec": {"template": {"spec": {"containers": [{"image": "registry.example/controller:0.1.0"}]}}},
    "status": {"replicas": 2, "readyReplicas": 1},
}
FOUND: Final = InstalledController("n/controller", "0.1.0", "registry.example/controller:0.1.0", 1, 2)


def shown(found: Any) -> str:
    written = StringIO()
    show(found, Console(file=written, width=200))
    return written.getvalue()


def test_a_deployment() -> None:
    assert installed({"items": [DEPLOYMENT]}) == (FOUND,)
    assert as_json((FOUND,))["controllers"][0]["readyReplicas"] == 1
    text = shown((FOUND,))
    assert "Controller version: 0.1.0 (Deployment n/controller, 1 of 2 replicas ready" in text
    assert "The versions differ" in text


def test_the_same_version_is_not_warned_of() -> None:
    assert "differ" not in shown((InstalledController("n/c", program_version(), "image", 1, 1),))


def test_a_deployment_without_anything() -> None:
    [one] = installed({"items": [{"metadata": {"namespace": "n", "name": "\x1b[2J"}}]})
    assert (one.version, one.image, one.ready, one.replicas) == ("", "", 0, 0)
    assert "\x1b" not in one.deployment
    assert "without a label" in shown((one,))
    assert installed({}) == ()


def test_the_client_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["version", "--client", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == as_json(ControllerNotAsked()) == {"clientVersion": program_version()}


def test_a_cluster_that_cannot_be_asked(capsys: pytest.CaptureFixture[str]) -> None:
    """The client's version is printed all the same, as by kubectl."""
    assert main(["version", "--kubeconfig", "/nowhere"]) == 1
    output = capsys.readouterr().out
    assert output.startswith(f"Client version: {program_version()}\n")
    assert "not known: not readable here: kubeconfig /nowhere: no such file" in output
    assert as_json(ControllerNotKnown("why"))["message"] == "why"
