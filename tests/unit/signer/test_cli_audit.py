"""The flags of the audit log, and the exit codes of ``audit``."""

from __future__ import annotations

from pathlib import Path

import pytest

from signer.audit.log import FileLines
from signer.cli import _parser, main
from signer.cli.run import _audit_log
from signer.controller.configuration import InvalidConfiguration


async def opened(path: str) -> None:
    options = _parser().parse_args(["run", "--audit-log-path", path])
    async with _audit_log(options) as log:
        await log.append(b'{"number":0}')


async def test_a_log_is_opened_and_closed(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    await opened(str(path))
    await opened(str(path))  # it was given back


async def test_two_controllers_do_not_share_one(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    first = FileLines(path, 0, 0)
    with pytest.raises(InvalidConfiguration, match=r"--audit-log-path: another controller writes to .*audit\.log$"):
        await opened(str(path))
    first.close()


async def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match=r"--audit-log-path: .*No such file"):
        await opened(str(tmp_path / "missing" / "audit.log"))


@pytest.mark.parametrize("value", ["-1", "many", "1000001"])
def test_sizes_are_bounded(value: str) -> None:
    with pytest.raises(SystemExit):
        _parser().parse_args(["run", "--audit-log-maxsize", value])


@pytest.mark.parametrize("command", [["verify"], ["show", "--node", "x"]], ids=lambda command: command[0])
def test_a_file_that_is_not_there(tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", *command, str(tmp_path / "missing.log")]) == 2
    assert "missing.log: No such file" in capsys.readouterr().err


def test_an_empty_log_is_good(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    FileLines(tmp_path / "audit.log", 0, 0).close()
    assert main(["audit", "verify", str(tmp_path / "audit.log")]) == 0
    assert "0 decisions" in capsys.readouterr().out


def test_a_name_with_the_marks_of_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fixture = Path(__file__).parents[3] / "fixtures" / "audit" / "v1" / "audit.log"
    path = tmp_path / "[red]\x1b[2J.log"
    path.write_bytes(fixture.read_bytes())
    assert main(["audit", "show", str(path), "--node", "worker-1"]) == 0
    assert r"[red]\x1b[2J.log:2" in capsys.readouterr().out
