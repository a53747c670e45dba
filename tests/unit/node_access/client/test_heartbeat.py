"""The background process, with a kubectl that prints a file."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from node_access.client import heartbeat
from node_access.client.folders import FolderRecord, GrantFolder, GrantFolders
from node_access.client.grants import GrantKey
from node_access.client.heartbeat import REVOKED, Heartbeat, Over, Stopped, WithoutAgent
from node_access.client.kubectl import Kubectl, KubectlSettings
from node_access.client.words import time_text
from tests.support.access_objects import GRANT_UID
from tests.support.grant_controller import Behaviour
from tests.support.processes import wait_until
from tests.unit.node_access.client.made import document

KUBECTL = """#!{python}
import json, pathlib, sys
folder = pathlib.Path({folder!r})
fault = (folder / "fault").read_text()
if fault and ("patch" in sys.argv or not fault.startswith("patch ")):
    sys.exit(fault.removeprefix("patch "))
if "patch" in sys.argv:
    with (folder / "patches").open("a") as file:
        file.write(next(one for one in sys.argv if one.startswith("--patch=")).removeprefix("--patch=") + "\\n")
if "delete" in sys.argv:
    (folder / "deleted").touch()
print((folder / "grant").read_text())
"""
GONE = 'Error from server (NotFound): accessgrants.access.cluster.x-k8s.io "repair" not found'


class Running:
    """A heartbeat in a thread."""

    def __init__(self, folder: Path, *, keep: bool = True) -> None:
        self.place = folder
        self.said: list[str] = []
        self.stop = threading.Event()
        self.ended: list[Over | Stopped] = []
        program = folder / "kubectl"
        program.write_text(KUBECTL.format(python=sys.executable, folder=str(folder)))
        program.chmod(0o755)
        self.fault("")
        (folder / "patches").touch()
        key = GrantKey("team-a", "repair", GRANT_UID)
        settings = KubectlSettings(str(program))
        record = FolderRecord(key, "production", "root", keep, "", settings)
        self.folder: GrantFolder = GrantFolders(folder / "n").create(record)
        run = Heartbeat(Kubectl(settings), self.folder, record, WithoutAgent(), say=self.said.append, stop=self.stop)
        self.thread = threading.Thread(target=lambda: self.ended.append(run.run()), daemon=True)

    def grant(self, seconds: float = 3600.0, **spec: Any) -> None:
        made = document(Behaviour(time_to_live=seconds), **spec)
        partial = self.place / "partial"
        partial.write_text(json.dumps(made))
        partial.replace(self.place / "grant")

    def fault(self, text: str) -> None:
        (self.place / "fault").write_text(text)

    def beats(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.place / "patches").read_text().splitlines()]

    def end(self) -> Over | Stopped:
        self.thread.join(30)
        return self.ended[0]


def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody answers a heartbeat here, and the next one is due at once."""
    monkeypatch.setattr(heartbeat, "interval", lambda grant, chance: timedelta(seconds=0.2))
    monkeypatch.setattr(heartbeat, "_RENEWAL_SECONDS", 0.0)


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.setattr(heartbeat, "touch", lambda config, alias, login: True)
    monkeypatch.setattr(heartbeat, "_RETRY_SECONDS", 0.2)
    soon(monkeypatch)
    made = Running(tmp_path)
    made.grant()
    yield made
    made.stop.set()
    if made.thread.is_alive():
        made.thread.join()


def test_it_beats_writes_and_stops_on_a_signal(running: Running) -> None:
    running.thread.start()
    wait_until(lambda: bool(running.beats()), "a heartbeat")
    assert running.folder.config.exists()
    (beat, *_) = running.beats()
    assert beat["metadata"]["uid"] == GRANT_UID
    running.stop.set()
    assert running.end() == Stopped()
    assert running.folder.why_ended == ""
    assert running.folder.config.exists()


def another_uid(running: Running) -> None:
    made = json.loads((running.place / "grant").read_text())
    made["metadata"]["uid"] = "7b1a2f9e-58a4-4ad1-9a55-000000000000"
    (running.place / "grant").write_text(json.dumps(made))


def expired(running: Running) -> None:
    made = json.loads((running.place / "grant").read_text())
    made["status"]["expirationTimestamp"] = time_text(datetime.now(UTC) - timedelta(seconds=1))
    (running.place / "grant").write_text(json.dumps(made))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda running: running.fault(GONE), "it is gone"),
        (another_uid, "it is gone"),
        (expired, "its time is over"),
        (lambda running: running.fault("Error from server (Forbidden): no\x1b[2J"), "was refused"),
        (lambda running: running.fault("patch Error from server (Forbidden): not yours"), "was refused"),
        (lambda running: running.fault("patch Error from server (Conflict): uid"), "was refused"),
    ],
)
def test_it_ends_by_itself_and_says_why(running: Running, change: Callable[[Running], None], why: str) -> None:
    running.thread.start()
    wait_until(running.folder.config.exists, "the files")
    change(running)
    ended = running.end()
    assert isinstance(ended, Over)
    assert why in ended.why
    assert ended.why.isprintable()
    assert why in running.folder.why_ended
    assert any(why in line for line in running.said)
    assert not running.folder.config.exists()


def test_an_unreachable_management_cluster_ends_nothing_before_the_time(running: Running) -> None:
    running.grant(3.0)
    running.fault("Unable to connect to the server: dial tcp")
    running.thread.start()
    wait_until(lambda: bool(running.said), "a message")
    running.fault("")
    wait_until(running.folder.config.exists, "the files")
    running.fault("Unable to connect to the server: dial tcp")
    begun = time.monotonic()
    ended = running.end()
    assert isinstance(ended, Over)
    assert "did not prolong it" in ended.why
    assert time.monotonic() - begun < 20


def test_a_grant_that_is_not_kept_ends_with_its_last_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the command that should have revoked it was killed."""
    soon(monkeypatch)
    made = Running(tmp_path, keep=False)
    made.grant()
    body = (
        "import sys; from pathlib import Path; from attestors.wire.ssh.principals import HostName\n"
        "from node_access.client.folders import GrantFolder\n"
        f"with GrantFolder(Path({str(made.folder.path)!r})).session(HostName('worker-1')):\n"
        "    print('in', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", body], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"PYTHONPATH": os.getcwd()}
    ) as session:
        assert session.stdout is not None
        session.stdout.readline()
        made.thread.start()
        wait_until(lambda: bool(made.beats()), "a heartbeat")
        assert not (tmp_path / "deleted").exists()
        session.kill()
    assert made.end() == Over("its last session ended")
    assert (tmp_path / "deleted").exists()
    assert not made.folder.config.exists()


def test_a_grant_that_was_revoked_here_while_the_management_cluster_was_away_ends(running: Running) -> None:
    """``grant revoke`` failed on the server. The heartbeat must not keep the grant alive, nor bring its files back."""
    running.thread.start()
    wait_until(lambda: bool(running.beats()), "a heartbeat")
    running.fault("Unable to connect to the server: dial tcp")
    with running.folder.exclusive():
        running.folder.end(REVOKED)
    running.fault("")
    assert running.end() == Over(REVOKED)
    assert (running.place / "deleted").exists()
    assert not running.folder.config.exists()


def test_files_of_a_grant_that_a_command_just_ended_do_not_come_back(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "interval", lambda grant, chance: timedelta(hours=1))
    running.folder.end("its last session ended")
    running.thread.start()
    assert running.end() == Over("its last session ended")
    assert not running.folder.config.exists()


def test_a_machine_that_was_suspended_beats_at_once(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its monotonic clock stood still for an hour, and the grant's time did not."""
    monkeypatch.setattr(heartbeat, "interval", lambda grant, chance: timedelta(hours=1))
    monkeypatch.setattr(heartbeat, "_LOOK_SECONDS", 0.1)
    running.thread.start()
    wait_until(running.folder.config.exists, "the files")
    assert running.beats() == []
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() + 3700)
    wait_until(lambda: bool(running.beats()), "a heartbeat")


def test_a_suspended_grant_gets_no_heartbeat_until_it_goes_on(running: Running) -> None:
    running.grant(suspend=True)
    running.thread.start()
    wait_until(lambda: any("suspended" in line for line in running.said), "a message")
    assert running.beats() == []
    running.grant()
    wait_until(lambda: bool(running.beats()), "a heartbeat")
