"""Wrong calls of ``node-access-containers``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from node_access.containers import cli
from tests.support.wrong_usage import answer, as_nobody, checked, files

_RUN = """\
import grp, os
from node_access.containers import cli
from node_access.containers.cli import main
cli.GROUP = grp.getgrgid(os.getgid()).gr_name
cli.DATABASE = cli.STATE = cli.Path({folder!r}, "none")
cli.SOCKET = cli.Path({folder!r}, "agent/socket")
cli.load_tools = lambda *paths: None
"""


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([], 2, "required: COMMAND, which is one of run, list"),
        (["lst"], 2, "Did you mean list? Type `node-access-containers --help`"),
        (["end"], 2, "'end' is not one of run, list\nType `node-access-containers --help`"),
        (["--tasks", "/x", "list"], 2, "unknown arguments: --tasks; flags of a command follow its name"),
        (["list", "--task-folder", "/x"], 2, "Type `node-access-containers list --help`"),
        (["list", "--runtime-rot=/x"], 2, "Did you mean --runtime-root? "),
        (["list", "--tasks"], 2, "--tasks: expected one argument"),
        (["list", "--first-uid", "1"], 2, "unknown arguments: --first-uid"),
        (["list", "all"], 2, "unknown arguments: all"),
        (
            ["list", "--tasks", "{missing}"],
            1,
            "missing: no such folder: containerd has started no container, or ",
        ),
        (["list", "--tasks", "{broken}"], 1, "broken: no such folder: "),
        (["run", "--uids", "many"], 2, "argument --uids: 'many' is not a whole number"),
        (["run", "--first-uid", "1000"], 2, "the uids of --first-uid and --uids are not between 65536 and 2147483648"),
        (["run", "--run", "/x"], 2, "--run is cut too short: it may be --runtime-root, --runc"),
        (["run"], 2, "there is no group no-such-group: run systemd-sysusers"),
    ],
)
def test_wrong_calls(
    words: Sequence[str],
    code: int,
    said: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cli, "GROUP", "no-such-group")
    paths = files(tmp_path)
    assert said in answer(cli.main, [word.format(**paths) for word in words], capfd, code)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("missing", "missing: No such file or directory: install busybox-static"),
        ("empty", "empty is no program of a machine with 64 bits: install busybox-static"),
        ("folder", "Is a directory: install busybox-static"),
    ],
)
def test_tools_that_are_none(
    name: str, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "GROUP", "root")
    monkeypatch.setattr(cli, "DATABASE", tmp_path / "passwd")
    monkeypatch.setattr(cli, "STATE", tmp_path / "users.json")
    assert said in answer(cli.main, ["run", "--busybox", files(tmp_path)[name]], capfd)


@pytest.mark.parametrize(
    ("database", "state", "said"),
    [
        ("list", "none", "list has lines that are not this program's: move these users to /etc/passwd"),
        ("none", "broken", "end all sessions, remove it, and start again"),
        ("none", "list", "end all sessions, remove it, and start again"),
    ],
)
def test_files_of_another_program(
    database: str,
    state: str,
    said: str,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files(tmp_path)
    monkeypatch.setattr(cli, "GROUP", "root")
    monkeypatch.setattr(cli, "DATABASE", tmp_path / database)
    monkeypatch.setattr(cli, "STATE", tmp_path / state)
    assert said in answer(cli.main, ["run"], capfd)


def test_another_user(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    done = as_nobody(_RUN.format(folder=str(tmp_path)), "run")
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert checked(done.stderr) == (
        f"node-access-containers: {tmp_path / 'agent'}: Permission denied: "
        "start it by `systemctl start node-access-containers`\n"
    )
