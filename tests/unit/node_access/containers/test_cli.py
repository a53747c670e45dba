"""The command line of ``node-access-containers``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from node_access.containers.cli import main
from tests.unit.node_access.containers.made import IDENTIFIER, NAME, MadeNode


def test_list_shows_containers_and_why_one_is_refused(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    node = MadeNode(tmp_path_factory.mktemp("node"))
    node.add()
    assert main(["list", "--tasks", str(node.tasks), "--runtime-root", str(node.root)]) == 0
    [shown] = json.loads(capsys.readouterr().out)["containers"]
    assert (shown["user"], shown["container"]) == (NAME, IDENTIFIER)
    assert shown["refused"] == "the container has ended"


def test_list_says_that_there_is_no_such_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No containers, and a wrong path, are different answers."""
    assert main(["list", "--tasks", str(tmp_path / "none")]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert "--tasks" in told.err
    assert main(["list", "--tasks", str(tmp_path)]) == 0


@pytest.mark.parametrize(("first", "count"), [("1000", "10"), ("65536", "0"), ("2147483000", "1000")])
def test_uids_of_people_and_negative_ones_are_no_pool(
    first: str, count: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "--first-uid", first, "--uids", count]) == 2
    assert "uids are not between" in capsys.readouterr().err


def test_without_its_group_it_does_not_start(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run"]) == 2
    assert "systemd-sysusers" in capsys.readouterr().err
