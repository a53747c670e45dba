"""The background process, with a kubectl that prints a file."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from attestors.wire.ssh.signatures import public_key_of
from node_access.client import heartbeat
from node_access.client.folders import FolderRecord, GrantFolder, GrantFolders
from node_access.client.grants import GrantKey
from node_access.client.heartbeat import REVOKED, Heartbeat, Over, Stopped, WithoutAgent
from node_access.client.kubectl import Kubectl, KubectlSettings
from node_access.client.words import time_text
from tests.support.access_objects import GRANT_UID
from tests.support.grant_controller import Behaviour
from tests.support.openssh import private_key
from tests.support.processes import wait_until
from tests.unit.node_access.client.made import KEY, document

KUBECTL = """#!{python}
import json, pathlib, sys
folder = pathlib.Path({folder!r})
with (folder / "looks").open("a") as file:
    file.write(".")
fault = (folder / "fault").read_text()
if fault and ("patch" in sys.argv or not fault.startswith("patch ")):
    sys.exit(fault.removeprefix("patch "))
if "patch" in sys.argv:
    with (folder / "patches").open("a") as file:
        file.write(next(one for one in sys.argv if one.startswith("--patch=")).removeprefix("--patch=") + "\\n")
if "delete" in sys.argv:
    assert json.load(sys.stdin)["preconditions"] == {{"uid": {uid!r}}}
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
        program.write_text(KUBECTL.format(python=sys.executable, folder=str(folder), uid=GRANT_UID))
        program.chmod(0o755)
        self.fault("")
        (folder / "patches").touch()
        key = GrantKey("team-a", "repair", GRANT_UID)
        settings = KubectlSettings(str(program))
        record = FolderRecord(key, "production", "root", keep, "", settings)
        self.folder: GrantFolder = GrantFolders(folder / "n").create(record)
        self.folder.write_public_key(public_key_of(KEY))
        run = Heartbeat(Kubectl(settings), self.folder, record, WithoutAgent(), say=self.said.append, stop=self.stop)
        self.thread = threading.Thread(target=lambda: self.ended.append(run.run()), daemon=True)

    def grant(self, seconds: float = 3600.0, **spec: Any) -> None:
        made = document(Behaviour(time_to_live=seconds), **spec)
        partial = self.place / "partial"
        partial.write_text(json.dumps(made))
        partial.replace(self.place / "grant")

    def hold(self, name: str, reason: str, message: str, seconds: float = 3600.0) -> None:
        """That condition is False now."""
        made = document(Behaviour(time_to_live=seconds, holds={name: (reason, message)}))
        partial = self.place / "partial"
        partial.write_text(json.dumps(made))
        partial.replace(self.place / "grant")

    def looks(self) -> int:
        """How often kubectl was run."""
        return len((self.place / "looks").read_text())

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
    monkeypatch.setattr(heartbeat, "_FIRST_RETRY_SECONDS", 0.2)
    monkeypatch.setattr(heartbeat, "_LONGEST_RETRY_SECONDS", 0.2)
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


FAULTS = [
    "Error from server (Forbidden): the authorizer is away\x1b[2J",
    "patch Error from server (Forbidden): not yours",
    "patch Error from server (Conflict): the object has been modified",
    "Error from server (Conflict): etcd",
    "patch Error from server (Invalid): webhook",
    "Error from server (InternalError): failed calling webhook",
    "Unable to connect to the server: dial tcp",
]


@pytest.mark.parametrize("fault", FAULTS)
def test_one_refusal_ends_nothing(running: Running, fault: str) -> None:
    """An authorizer, a webhook or a role that is away for a moment."""
    running.thread.start()
    wait_until(lambda: bool(running.beats()), "a heartbeat")
    running.fault(fault)
    wait_until(lambda: any("no heartbeat, trying again until" in line for line in running.said), "a message")
    before = len(running.beats())
    running.fault("")
    wait_until(lambda: len(running.beats()) > before, "another heartbeat")
    assert running.folder.why_ended == ""
    assert running.folder.config.exists()


@pytest.mark.parametrize("fault", FAULTS[:2])
def test_a_lasting_refusal_ends_it_at_its_time_and_is_named(running: Running, fault: str) -> None:
    running.grant(2.0)
    running.thread.start()
    wait_until(running.folder.config.exists, "the files")
    running.fault(fault)
    ended = running.end()
    assert isinstance(ended, Over)
    assert ended.why.startswith("its time is over")
    if not fault.startswith("patch "):  # otherwise, the last look at the grant may have said so
        assert "no heartbeat prolonged it; the last fault: kubectl: " in ended.why
        assert fault.split("): ")[-1].split("\x1b")[0] in ended.why
    assert ended.why.isprintable()
    assert not running.folder.config.exists()


def test_a_right_that_comes_back_goes_on(running: Running) -> None:
    """Somebody makes the RoleBinding anew. Heartbeats do not count meanwhile, so none is sent."""
    running.thread.start()
    wait_until(lambda: bool(running.beats()), "a heartbeat")
    running.hold("Authorized", "RightLost", "alice may not use root")
    wait_until(lambda: any("alice may not use root" in line for line in running.said), "a message")
    before = len(running.beats())
    looks = running.looks()
    wait_until(lambda: running.looks() > looks + 1, "another look")
    assert len(running.beats()) == before
    assert running.folder.config.exists()
    running.grant()
    wait_until(lambda: len(running.beats()) > before, "another heartbeat")


def test_a_right_that_is_lost_for_good_ends_it(running: Running) -> None:
    running.thread.start()
    wait_until(running.folder.config.exists, "the files")
    running.hold("Authorized", "RightLost", "alice may not use root", seconds=2.0)
    ended = running.end()
    assert isinstance(ended, Over)
    assert ended.why.startswith("its time is over, and its creator has no right to the login (alice may not use root)")


def test_pauses_between_attempts_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(random, "random", lambda: 1.0)
    assert [heartbeat._retry_seconds(number) for number in (0, 1, 2, 3, 9, 10**6)] == [1, 2, 4, 8, 60, 60]


def test_a_grant_whose_folder_was_removed_is_revoked(running: Running) -> None:
    running.thread.start()
    wait_until(lambda: bool(running.beats()), "a heartbeat")
    running.folder.path.rename(running.place / "elsewhere")
    assert running.end() == Over("its folder was removed from this machine")
    assert (running.place / "deleted").exists()
    assert not running.folder.path.exists()


def test_the_key_of_the_folder_counts(running: Running) -> None:
    """The API server shows another key than this machine made."""
    running.folder.write_public_key(public_key_of(private_key("ed25519", 332)))
    running.thread.start()
    wait_until(lambda: any("for another key" in line for line in running.said), "a message")
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
    assert "no heartbeat prolonged it" in ended.why
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
