"""The command line: what ``run`` wires together, and what ``list`` prints."""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from attestors.wire.ssh.certificate import FOREVER
from node_access import cli
from node_access.daemon import ANSWERED
from node_access.records import Records
from node_access.registry import SystemClock
from node_access.service import notify
from node_access.values import Login
from tests.support.processes import wait_until
from tests.unit.node_access.made import NOW, certificate, message, session

PROGRAM: Final = """\
import pathlib, sys
from node_access import cli
folder = pathlib.Path(sys.argv[1])
cli.SOCKET, cli.RECORDS_FOLDER, cli.FALLBACK_FOLDER = folder / "socket", folder / "records", folder / "fallback"
cli._USER = sys.argv[2]
sys.exit(cli.main(["run", "--folder", str(folder / "files")]))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In the place of those below ``/run`` and ``/etc``."""
    (tmp_path / "files").mkdir()
    (tmp_path / "files/revoked_keys").touch()
    monkeypatch.setattr(cli, "RECORDS_FOLDER", tmp_path / "records")
    monkeypatch.setattr(cli, "FALLBACK_FOLDER", tmp_path / "fallback")
    return tmp_path


def listed(folder: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert cli.main(["list", "--folder", str(folder / "files")]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def test_the_sessions(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = Records(folder / "records", folder / "fallback")
    records.save(session())
    records.save(session(2, login=Login.PRESENTED, valid_before=FOREVER))
    (folder / "records/3-1-1.json").write_text("{}")
    found = listed(folder, capsys)
    unit = "node-access-ssh@1-10.0.0.1:2222-10.0.0.2:40000.service"
    first = {
        "unit": unit,
        "login": "alice",
        "state": "Succeeded",
        "keyID": "grant/alice",
        "serial": 7,
        "authority": certificate().certificate.authority.fingerprint,
        "registeredAt": NOW,
        "deadline": NOW + 3600,
    }
    second = {**first, "unit": unit.replace("@1-", "@2-"), "state": "Presented", "deadline": None}
    assert found == {"sessions": [first, second], "unreadableRecords": ["3-1-1.json"], "alarms": []}


def test_nothing_is_listed_where_nothing_ran(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "files/revoked_keys").unlink()
    assert listed(folder, capsys) == {
        "sessions": [],
        "unreadableRecords": [],
        "alarms": ["nobody is let in: revoked_keys: No such file or directory"],
    }
    assert not (folder / "records").exists(), "it makes nothing"


def test_records_that_this_user_may_not_read(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Else it would seem that there are no sessions."""
    if os.geteuid() != 0:
        pytest.skip("root alone can be another user")
    Records(folder / "records", folder / "fallback").save(session())
    listed(folder, capsys)
    for parent in (folder, *folder.parents[:2]):
        parent.chmod(0o755)
    os.seteuid(65534)
    try:
        code = cli.main(["list", "--folder", str(folder / "files")])
    finally:
        os.seteuid(0)
    assert code == 1
    assert capsys.readouterr() == (
        "",
        f"node-access-sessions: {folder / 'records'}: Permission denied: only root may read the records\n",
    )


def test_without_the_command_s_user(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "_USER", "no-such-user")
    assert cli.main(["run"]) == 2
    assert capsys.readouterr().err == "node-access-sessions: there is no user no-such-user: run systemd-sysusers\n"


@pytest.mark.parametrize("arguments", [[], ["end"], ["list", "--all"]])
def test_wrong_use(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().out == ""


@contextlib.contextmanager
def running(folder: Path, notified: socket.socket) -> Iterator[subprocess.Popen[bytes]]:
    """The program, for questions of this user. It tells that socket of itself."""
    environment = {**os.environ, "NOTIFY_SOCKET": notified.getsockname()}
    user = pwd.getpwuid(os.getuid()).pw_name
    command = [sys.executable, "-c", PROGRAM, str(folder), user]
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_answers_tells_of_itself_and_stops(folder: Path, number: signal.Signals) -> None:
    """Whoever asks without being sshd's command gets no principals. A session of which it knew is over by now."""
    Records(folder / "records", folder / "fallback").save(session())
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.settimeout(30)
        notified.bind(str(folder / "notified"))
        with running(folder, notified) as process:
            assert notified.recv(100) == b"READY=1"
            assert notified.recv(100) == b"WATCHDOG=1"
            with socket.socket(socket.AF_UNIX) as client:
                client.settimeout(30)
                client.connect(str(folder / "socket"))
                client.sendall(message(certificate()))
                client.shutdown(socket.SHUT_WR)
                assert client.makefile("rb").read() == ANSWERED
            wait_until(lambda: list((folder / "records").iterdir()) == [], "the session is over")
            process.send_signal(number)
            assert process.wait(30) == 0
            assert process.stderr is not None
            said = process.stderr.read().decode()
    assert not (folder / "socket").exists()
    assert "session of alice by 'grant/alice' (serial 7, CA SHA256:" in said
    assert "<4>no principals: no connection: " in said or "<4>no principals: the process is in no unit" in said


def test_an_abstract_address_of_systemd(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.settimeout(30)
        notified.bind(f"\0node-access-{os.getpid()}")
        monkeypatch.setenv("NOTIFY_SOCKET", f"@node-access-{os.getpid()}")
        notify("READY=1")
        assert notified.recv(100) == b"READY=1"
    monkeypatch.delenv("NOTIFY_SOCKET")
    notify("READY=1")


def test_the_system_s_clock() -> None:
    """Seconds since boot, as in the records, which outlive the process."""
    with open("/proc/uptime", encoding="ascii") as file:
        uptime = float(file.read().split()[0])
    assert SystemClock().monotonic() == pytest.approx(uptime, abs=60)
