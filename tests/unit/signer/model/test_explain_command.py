from __future__ import annotations

import shlex

import pytest

from signer.model.cluster import ClusterKey
from signer.model.decision import MAXIMUM_MESSAGE_CHARACTERS
from signer.model.documentation import reason_url
from signer.model.explain_command import (
    ControllerDeployment,
    NoControllerDeployment,
    RunsIn,
    explain_command,
    explain_hint,
    with_hint,
    without_hint,
)

CLUSTER = ClusterKey("team-a", "prod")
POD = ControllerDeployment("node-attestation-system", "controller")
LINK = reason_url("InvalidSubjectAlternativeNames", "")


@pytest.mark.parametrize("name", ["csr-1", "node-csr:x", "$(reboot)", "a b;c", "-h", "--cluster", "'"])
def test_a_shell_reads_the_name_as_one_word(name: str) -> None:
    words = shlex.split(explain_command(name, CLUSTER, NoControllerDeployment()))
    assert words[:2] == ["node-attestation-controller", "explain"]
    assert sorted(words[2:]) == sorted(["--cluster", "team-a/prod", name, *(["--"] if name.startswith("-") else [])])
    if name.startswith("-"):
        assert words[-2:] == ["--", name]


def test_the_hint_stands_behind_the_message() -> None:
    text = with_hint("no", explain_hint("csr-1", CLUSTER, "https://docs.example/#no", NoControllerDeployment()))
    assert text == (
        "no (CSR csr-1: node-attestation-controller explain csr-1 --cluster team-a/prod; see https://docs.example/#no)"
    )
    assert without_hint(text) == "no"


def test_the_pod_of_the_controller_has_what_the_command_needs() -> None:
    words = shlex.split(explain_command("csr-1", CLUSTER, POD))
    assert words[:5] == ["kubectl", "exec", "-n", "node-attestation-system", "deploy/controller"]
    assert words[5:] == ["--", "node-attestation-controller", "explain", "csr-1", "--cluster", "team-a/prod"]


@pytest.mark.parametrize("runs_in", [NoControllerDeployment(), POD], ids=["outside", "Pod"])
@pytest.mark.parametrize("name", ["x" * 253, "'" * 253, "\x1b[31m" * 50, "\u202e" * 300])
def test_it_is_bounded_and_printable_whatever_the_name(name: str, runs_in: RunsIn) -> None:
    text = with_hint("m" * 2000, explain_hint(name, CLUSTER, LINK, runs_in))
    assert len(text.encode()) <= MAXIMUM_MESSAGE_CHARACTERS == 1024
    assert text.isprintable()
    assert text.isascii()
    assert text.endswith(f"; see {LINK})")
    assert text.startswith("mmm")
