"""``docs/ssh-ways-in.md``: every kind, hint, reason, exit code and unit is there, and no other figure."""

from __future__ import annotations

import re
from typing import Final

import pytest

from authenticator.model.other_ways_in import STOCK_UNITS
from signer.cli import node_access_preflight
from signer.cli.node_access_preflight import Verdict
from signer.ssh.ways_in import kubeadm, status, watch
from signer.ssh.ways_in.infrastructure import MACHINE_KINDS
from tests.documents.markdown import ROOT

TEXT: Final = (ROOT / "docs/ssh-ways-in.md").read_text(encoding="utf-8")


def first_column(heading: str) -> set[str]:
    """The names in the table with that heading."""
    table = TEXT.split(f"| {heading} |")[1].split("\n\n")[0]
    return set(re.findall(r"^\| `?([\w]+)`?", table, re.MULTILINE))


@pytest.mark.parametrize("kind", MACHINE_KINDS)
def test_each_kind_is_named(kind: str) -> None:
    section = TEXT.split("## Launch keys")[1].split("\n## ")[0]
    assert re.search(rf"\b{kind}\b", section) or (kind == "DockerMachinePool" and "DockerMachine" in section)


def test_the_condition() -> None:
    assert first_column("reason | status") == {
        status.NONE_DECLARED,
        status.DECLARED,
        status.POSSIBLE,
        status.NOT_KNOWN,
    }
    for page in ("ssh-ways-in", "ssh-authorities", "troubleshooting"):
        text = (ROOT / f"docs/{page}.md").read_text(encoding="utf-8")
        assert f"`{status.NO_OTHER_WAYS_IN_DECLARED}`" in text
    assert (watch.LOOK_SECONDS, watch.LEAST_SECONDS) == (600.0, 30.0)
    assert "every ten minutes, and when Cluster or policy change, at most twice a minute" in TEXT.replace("\n", " ")


def test_the_command() -> None:
    codes = dict(re.findall(r"^\| (\d) \| `(\w+)` \|", TEXT, re.MULTILINE))
    expected = {0: Verdict.NONE_DECLARED, 3: Verdict.DECLARED, 5: Verdict.NOT_KNOWN}
    assert codes == {str(code): verdict.value for code, verdict in expected.items()}
    assert (node_access_preflight.EXIT_NEEDS_ATTENTION, node_access_preflight.EXIT_NOT_KNOWN) == (3, 5)


def test_bootstrap_data() -> None:
    section = TEXT.split("## Bootstrap data")[1].split("\n## ")[0].lower()
    assert all(word in section for word in kubeadm._MENTIONS)
    assert all(kind.lower() in section for kind in kubeadm.SPECS)
    assert all(name.lower() in section for name in kubeadm._COMMANDS)


def test_the_node() -> None:
    section = TEXT.split("## On the node")[1]
    assert set(re.findall(r"`([\w]+\.(?:service|socket))`", section)) == STOCK_UNITS
