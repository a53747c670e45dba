"""The flags of the audit log, and the exit codes of ``audit``."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

import pytest

from signer.audit.lines import FileLines
from signer.cli import _parser, main
from signer.cli.run import _audit_log
from signer.configuration import InvalidConfiguration


async def opened(path: str) -> None:
    options = _parser().parse_args(["run", "--audit-log-path", path])
    async with _audit_log(options) as log:
        await log.append(b'{"number":0}')


async def test_a_log_is_opened_and_closed(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    await opened(str(path))
    await opened(str(path))  # the lock was released


async def test_two_controllers_cannot_share_a_log(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    first = FileLines(path, 0, 0)
    with pytest.raises(InvalidConfiguration, match=r"--audit-log-path: another controller writes to .*audit\.log$"):
        await opened(str(path))
    first.close()


async def test_unwritable_path(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfiguration, match=r"--audit-log-path: .*No such file"):
        await opened(str(tmp_path / "missing" / "audit.log"))


@pytest.mark.parametrize("path", ["/", ".", "..", "{tmp_path}"])
def test_a_folder_is_refused(tmp_path: Path, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no file is left next to it."""
    monkeypatch.chdir(tmp_path)
    folder = path.format(tmp_path=tmp_path)
    before = sorted(tmp_path.parent.iterdir())
    with pytest.raises(InvalidConfiguration) as refused:
        asyncio.run(opened(folder))
    assert str(refused.value) == f"--audit-log-path: {folder}: is a folder: name a file in it"
    assert (sorted(tmp_path.parent.iterdir()), list(tmp_path.iterdir())) == (before, [])


@pytest.mark.parametrize("value", ["-1", "many", "1000001"])
def test_sizes_are_bounded(value: str) -> None:
    with pytest.raises(SystemExit):
        _parser().parse_args(["run", "--audit-log-maxsize", value])


@pytest.mark.parametrize("command", [["verify"], ["show", "--node", "x"]], ids=lambda command: command[0])
def test_missing_file(tmp_path: Path, command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", *command, str(tmp_path / "missing.log")]) == 2
    assert "missing.log: No such file" in capsys.readouterr().err


def test_an_empty_log_is_good(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    FileLines(tmp_path / "audit.log", 0, 0).close()
    assert main(["audit", "verify", str(tmp_path / "audit.log")]) == 0
    assert "0 decisions" in capsys.readouterr().out


_RECORDED = Path(__file__).parents[3] / "fixtures" / "audit" / "v1" / "audit.log"


def test_unreadable_lines_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "audit.log"
    path.write_bytes(b"\xff not a log\n" + _RECORDED.read_bytes() + b"cut off")
    assert main(["audit", "show", str(path), "--node", "worker-1", "--output", "json"]) == 0
    printed = capsys.readouterr()
    assert "Unreadable lines: 2. `audit verify` lists them." in printed.err
    assert len(json.loads(printed.out)) >= 1


def test_a_missing_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "audit.log"
    start, _, *others = _RECORDED.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join((start, *others)))
    assert main(["audit", "verify", str(path)]) == 1
    assert "FAILED: 1 found, listed above; 2 decisions replayed with the same result." in capsys.readouterr().out


@pytest.mark.parametrize("name", ["audit.log", "audit"])
def test_rotated_files_under_any_name(tmp_path: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each decision is in a file of its own; a missing file is detected."""
    headers = ("version", "kind", "chain", "sequence", "previous")
    lines = FileLines(tmp_path / name, 1000, 0)
    for line in map(json.loads, _RECORDED.read_text().splitlines()):
        if line["kind"] == "Decision":
            lines.write([json.dumps({key: line[key] for key in line if key not in headers}).encode()])
    lines.close()
    files = sorted(str(path) for path in tmp_path.iterdir() if path.suffix != ".lock")
    for given in (files, files[::-1]):
        assert main(["audit", "verify", *given]) == 0
        assert "The chain is intact; 3 decisions" in capsys.readouterr().out
        assert main(["audit", "show", "--node", "worker-1", *given]) == 0
        assert "Attested by keyed-mac" in capsys.readouterr().out
    middle = sorted(path for path in files if path != str(tmp_path / name))[1]
    assert main(["audit", "verify", *(path for path in files if path != middle)]) == 1
    assert "missing" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["a: 2024-99-99", "a: " + "[" * 10_000])
def test_unreadable_configuration(tmp_path: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code differs from that of a faulty log."""
    config = tmp_path / "config.yaml"
    config.write_text(text)
    assert main(["audit", "verify", str(_RECORDED), "--config", str(config)]) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith(f"node-attestation-controller: --config: {config} is n")
    assert printed.out == ""


@pytest.mark.parametrize("number", [1, 2])
def test_a_truncated_log(tmp_path: Path, number: int, capsys: pytest.CaptureFixture[str]) -> None:
    """The exit code tells."""
    paths = [tmp_path / f"cut-{one}.log" for one in range(number)]
    for path in paths:
        path.write_bytes(_RECORDED.read_bytes()[:100])
    assert main(["audit", "verify", *map(str, paths)]) == 1
    text = " ".join(capsys.readouterr().out.split())
    assert (
        "cut-0.log:1: no line of the file can be read: it is compressed (unpack it first), is not an audit log" in text
    )
    assert f"FAILED: {number} found" in text
    assert main(["audit", "verify", "--output", "json", *map(str, paths)]) == 1
    assert json.loads(capsys.readouterr().out)["good"] is False


def test_output_to_a_file_is_wide(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Names are not folded, so that grep finds them."""
    name = "audit-2026-03-01T00-00-00.000000.log"
    path = tmp_path / name
    path.write_bytes(_RECORDED.read_bytes())
    assert main(["audit", "verify", str(path)]) == 0
    text = capsys.readouterr().out
    assert f" {name}:2 " in text
    assert "the keyed-mac attestor needs masterKey; see --config" in text
    assert main(["audit", "show", str(path), "--node", "worker-1"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r" VerifiedIdentity keyed-mac:[0-9a-f]{64}\s", shown)
    assert re.search(r" sha256:[0-9a-f]{64}\s", shown)


def test_a_readable_log_prints_nothing_to_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["audit", "show", str(_RECORDED), "--node", "nobody"]) == 1
    printed = capsys.readouterr()
    assert "These files hold no such decision." in printed.out
    assert printed.err == ""


@pytest.mark.parametrize(
    ("node", "decided"),
    [
        ("worker-1", ["Approve Attested", "Deny NodeNameMismatch"]),
        ("worker-2", ["Deny NodeNameMismatch"]),
        ("worker-3", ["Defer MachineNotFound"]),
    ],
    ids=["its certificate and an impostor's request", "its Machine's request", "it waits"],
)
def test_what_was_denied_or_waits_is_found_by_node(
    node: str, decided: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """The second request is that of worker-2's machine, in the name of worker-1."""
    assert main(["audit", "show", str(_RECORDED), "--node", node]) == 0
    shown = capsys.readouterr().out
    assert re.findall(r"^ decision +(.+?) *$", shown, re.MULTILINE) == decided
    assert main(["audit", "show", str(_RECORDED), "--node", node, "--output", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(decided)


def test_formats_of_serial_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    number = int(re.findall(r'"serial_number":([0-9]+)', _RECORDED.read_text())[0])
    digits = f"{number:040X}"
    for written in (f"{number:x}", digits, ":".join(digits[at : at + 2] for at in range(0, 40, 2))):
        assert main(["audit", "show", str(_RECORDED), "--serial", written, "--output", "json"]) == 0
        assert len(json.loads(capsys.readouterr().out)) == 1


@pytest.mark.parametrize("written", ["zz", "", "0x12", "-1", "1" * 43, "\u0661"])
def test_invalid_serial_number(written: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["audit", "show", str(_RECORDED), f"--serial={written}"])
    assert ended.value.code == 2
    assert "argument --serial: must be hexadecimal digits" in capsys.readouterr().err


def test_a_name_with_markup(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fixture = Path(__file__).parents[3] / "fixtures" / "audit" / "v1" / "audit.log"
    path = tmp_path / "[red]\x1b[2J.log"
    path.write_bytes(fixture.read_bytes())
    assert main(["audit", "show", str(path), "--node", "worker-1"]) == 0
    assert r"[red]\x1b[2J.log:2" in capsys.readouterr().out


def test_settings_of_an_attestor_that_is_not_installed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The name may be misspelt, or of another installation: it is reported, and the result depends on the log only."""
    config = tmp_path / "config.yaml"
    config.write_text((_RECORDED.parent / "config.yaml").read_text() + "  tmp: {}\n")
    assert main(["audit", "verify", str(_RECORDED), "--config", str(config), "--output", "json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["good"]
    assert printed.err.startswith("--config: attestors.tmp: no attestor of that name is installed; ")
