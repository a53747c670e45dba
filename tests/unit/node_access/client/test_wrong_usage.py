"""Wrong calls of ``node-access``. ssh reads the standard output of ``connect``, so nothing is written to it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from node_access.client.cli import main
from tests.support.wrong_usage import answer, files

MANAGEMENT = ("--folder", "{home}", "--kubectl", "{kubectl}")


def said_of(words: Sequence[str], code: int, folder: Path, capfd: pytest.CaptureFixture[str]) -> str:
    (folder / "kubectl").write_text("#!/bin/sh\nexit 1\n")
    (folder / "kubectl").chmod(0o755)
    paths = {**files(folder), "home": str(folder / "home"), "kubectl": str(folder / "kubectl")}
    said = answer(main, [word.format(**paths) for word in words], capfd, code)
    assert not (folder / "home").exists()
    return said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "required: COMMAND, which is one of ssh, scp, forward, grant, "),
        (["shh", "a.b"], "Did you mean ssh? Type `node-access --help`"),
        (["--cluster", "b", "grant"], "unknown arguments: --cluster; flags of a command follow its name"),
        (["grant"], "required: ACTION, which is one of create, list, show, extend, revoke, approve"),
        (["grant", "creat"], "Did you mean create? Type `node-access grant --help`"),
        (["grant", "show"], "required: GRANT\nType `node-access grant show --help`"),
        (["grant", "show", "Bad_", *MANAGEMENT], "'Bad_' is not a grant: lower-case letters, digits, '-' and '.'"),
        (["grant", "list", "-o", "jsn"], "Did you mean json? Type `node-access grant list --help`"),
        (["grant", "list", "--namespce=x"], "Did you mean --namespace? "),
        (["grant", "list", "--kubeconfig", "{missing}"], "missing': there is no such file"),
        (["grant", "list", "--kubeconfig", "{folder}"], "is a folder: name a file in it"),
        (
            ["grant", "create", *MANAGEMENT],
            "name nodes of one Cluster as NODE.CLUSTER, or use --all-nodes with --cluster",
        ),
        (["grant", "create", "a.b", "--all-nodes", *MANAGEMENT], "leave it out, or name no node"),
        (["grant", "create", "a_b_c.d", "--all-nodes", *MANAGEMENT], "name one container alone"),
        (["grant", "extend", "x", "--timeout", "nan"], "'nan' is not a number of seconds from 0 to 86400"),
        (["grant", "extend", "x", "--timeout", "soon"], "'soon' is not a number of seconds from 0 to 86400"),
        (["patch-ingress"], "required: GRANT"),
        (["config", "--login", "Bad!", *MANAGEMENT], "'Bad!' is not a login: lower-case letters, digits, "),
        (["known-hosts", "a", "b"], "unknown arguments: b"),
        (["agent", "x", "--folder", "{home}"], "'x' is no live grant of this machine"),
        (["doctor", "--login", "Bad!", *MANAGEMENT], "'Bad!' is not a login"),
    ],
)
def test_wrong_calls(words: Sequence[str], said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert said in said_of(words, 2, tmp_path, capfd)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["ssh"], "required: NODE[.CLUSTER]\nType `node-access ssh --help`"),
        (["ssh", "a.b", "ls"], "unknown arguments: ls; a command for the node follows --"),
        (["ssh", "a.b", "--duraton", "8h"], "Did you mean --duration? "),
        (["ssh", "a.b", "--duration", "1d", *MANAGEMENT], "'1d' is not a duration: write it such as 8h or 90m"),
        (["ssh", "a.b", "--timeout", "-1"], "'-1' is not a number of seconds from 0 to 86400"),
        (["ssh", "a.b", "--timeout", "86401"], "'86401' is not a number of seconds"),
        (["ssh", "a.b", "--via", "gatway"], "Did you mean gateway? "),
        (["ssh", "a.b", "--kubeconfig", "{missing}"], "--kubeconfig: "),
        (
            ["ssh", "a.b", "--folder", "{home}", "--kubectl", "{missing}"],
            "missing is not installed, or not in PATH: install it, ",
        ),
        (["ssh", "a_b_c.d", "--login", "root", *MANAGEMENT], "--login is for nodes: "),
        (["scp", "a"], "name one node or container, as NODE[.CLUSTER]:PATH"),
        (["scp", "a.b:x", "c.d:y"], "name one node or container, as NODE[.CLUSTER]:PATH"),
        (["forward", "a.b"], "required: [ADDRESS:]PORT:HOST:PORT"),
        (["forward", "a.b", "1:2", *MANAGEMENT], "'1:2' is not [ADDRESS:]PORT:HOST:PORT"),
    ],
)
def test_wrong_calls_of_sessions(
    words: Sequence[str], said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """With ssh's exit code: each of the others may be the remote command's."""
    assert said in said_of(words, 255, tmp_path, capfd)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "required: PORT, ADDRESS"),
        (["22"], "required: ADDRESS"),
        (["ssh", "a"], "argument PORT: 'ssh' is not a whole number"),
        (["99999", "a"], "99999 is no port: give a number from 1 to 65535"),
        (["22", "bad_addr!"], "'bad_addr!' is not the name of a host: "),
        (["22", "a", "--pause", "long"], "'long' is not a number of seconds"),
        (["22", "a", "--throug", "b", "--config"], "--config: expected one argument"),
        (["22", "a", "--trough=b"], "Did you mean --through? "),
        (["22", "a", "-v"], "unknown arguments: -v"),
        (["--", "22", "-oProxyCommand=x"], "is not the name of a host: "),
    ],
)
def test_wrong_calls_of_the_proxy_command(
    words: Sequence[str], said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert said in said_of(["connect", *words], 2, tmp_path, capfd)
