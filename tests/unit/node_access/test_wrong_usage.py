"""Wrong calls of ``node-access-sessions``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from node_access import cli
from tests.support.wrong_usage import answer, as_nobody, checked, files

_RUN = """\
from node_access import cli
from node_access.cli import main
cli._USER = "nobody"
cli.SOCKET = cli.Path({socket!r})
"""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "required: COMMAND, which is one of run, list"),
        (["lst"], "Did you mean list? Type `node-access-sessions --help`"),
        (["end"], "'end' is not one of run, list\nType `node-access-sessions --help`"),
        (["--folder", "/etc", "run"], "unknown arguments: --folder; flags of a command follow its name"),
        (["list", "--floder=/etc"], "Did you mean --folder? Type `node-access-sessions list --help`"),
        (["list", "--all"], "unknown arguments: --all"),
        (["list", "-f", "/etc"], "unknown arguments: -f"),
        (["list", "all"], "unknown arguments: all"),
        (["list", "--folder"], "--folder: expected one argument"),
        (["run", "--socket", "/x"], "unknown arguments: --socket"),
        (["run", "list"], "unknown arguments: list"),
        (["run"], "there is no user no-such-user: run systemd-sysusers"),
    ],
)
def test_wrong_calls(
    words: Sequence[str], said: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "_USER", "no-such-user")
    assert said in answer(cli.main, words, capfd)


@pytest.mark.parametrize("where", ["broken/socket", "missing/socket"])
def test_a_folder_that_systemd_did_not_make(
    where: str, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody starts it by hand."""
    files(tmp_path)
    monkeypatch.setattr(cli, "_USER", "root")
    monkeypatch.setattr(cli, "RECORDS_FOLDER", tmp_path / "records")
    monkeypatch.setattr(cli, "SOCKET", tmp_path / where)
    said = answer(cli.main, ["run", "--folder", str(tmp_path)], capfd)
    assert said.startswith(f"node-access-sessions: {tmp_path / where}: ")
    assert said.endswith(": start it by `systemctl start node-access-sessions`\n")


def test_another_user(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    done = as_nobody(_RUN.format(socket=str(tmp_path / "socket")), "run", "--folder", "/nonexistent")
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert checked(done.stderr) == (
        f"node-access-sessions: {tmp_path / 'socket'}: Permission denied: "
        "start it by `systemctl start node-access-sessions`\n"
    )
