"""Which grant is used again, and what is revoked; with a kubectl that prints a file."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.principals import HostName
from attestors.wire.ssh.signatures import public_key_of
from node_access.client.access import Choices, Client
from node_access.client.addresses import AddressSources
from node_access.client.cli import main
from node_access.client.errors import NotFound
from node_access.client.folders import BadFolder, FolderRecord, GrantFolder, GrantFolders
from node_access.client.grants import GrantKey, NodesTarget, parse_grant
from node_access.client.kubectl import Kubectl, KubectlSettings
from node_access.client.manifests import GrantRequest
from node_access.client.words import Destination, network
from tests.support.access_objects import GRANT_UID
from tests.support.openssh import private_key
from tests.unit.node_access.client.made import BASTION, KEY, document

KUBECTL = """#!{python}
import json, pathlib, sys
folder = pathlib.Path({folder!r})
with (folder / "calls").open("a") as file:
    file.write(" ".join(sys.argv[1:]) + "\\n")
made = json.loads((folder / "grant").read_text())
if "view" in sys.argv:
    sys.exit(print("team-a"))
if "delete" in sys.argv and json.load(sys.stdin)["preconditions"]["uid"] != made["metadata"]["uid"]:
    sys.exit("Error from server (Conflict): Precondition failed: UID in precondition")
if "delete" in sys.argv:
    (folder / "deleted").touch()
for one in sys.argv:
    if one.startswith("--patch="):
        made["spec"] |= json.loads(one.removeprefix("--patch=")).get("spec", {{}})
print(json.dumps(made))
"""
WORKER = HostName("worker-1")
WHERE = Destination(WORKER, "production")
CHOICES = Choices(GrantRequest("production", NodesTarget((WORKER,)), ("root",)), AddressSources())


class Home:
    """A folder with one grant, and the management cluster that has it."""

    def __init__(self, folder: Path) -> None:
        program = folder / "kubectl"
        program.write_text(KUBECTL.format(python=sys.executable, folder=str(folder)))
        program.chmod(0o755)
        (folder / "calls").touch()
        self.place = folder
        self.settings = KubectlSettings(str(program), context="ctx")
        self.record = FolderRecord(
            GrantKey("team-a", "repair", GRANT_UID), "production", "root", True, "", self.settings
        )
        folders = GrantFolders(folder / "n")
        self.folder: GrantFolder = folders.create(self.record)
        self.folder.write_public_key(public_key_of(KEY))
        self.folder.write_private_key(b"it is here")
        self.client = Client(Kubectl(self.settings), folders)
        self.write(document(BASTION, ingress=[{"ipBlock": {"cidr": "198.51.100.7/32"}}]))

    def write(self, made: dict[str, Any]) -> None:
        (self.place / "grant").write_text(json.dumps(made))

    def change(self, change: Callable[[dict[str, Any]], object]) -> None:
        made = json.loads((self.place / "grant").read_text())
        change(made)
        self.write(made)

    def calls(self) -> str:
        return (self.place / "calls").read_text()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    return Home(tmp_path)


def test_a_live_grant_is_used_again(home: Home) -> None:
    (held,) = home.client.find(WHERE, CHOICES)
    assert held.record == home.record
    assert "--namespace=team-a get" in home.calls()


@pytest.mark.parametrize(
    ("where", "login", "choices"),
    [
        (Destination(HostName("worker-2"), "production"), "root", CHOICES),
        (Destination(WORKER, "staging"), "root", CHOICES),
        (WHERE, "admin", CHOICES),
        (WHERE, "root", replace(CHOICES, request=replace(CHOICES.request, port_forwarding=True))),
    ],
)
def test_one_that_opens_something_else_is_not(home: Home, where: Destination, login: str, choices: Choices) -> None:
    assert home.client.find(where, replace(choices, request=replace(choices.request, logins=(login,)))) == []


@pytest.mark.parametrize(
    "change",
    [
        lambda made: made["metadata"].update(deletionTimestamp="2026-11-27T14:00:00Z"),
        lambda made: made["metadata"].update(uid="7b1a2f9e-58a4-4ad1-9a55-000000000000"),
        lambda made: made["status"].update(expirationTimestamp="2026-11-27T14:00:00Z"),
        lambda made: made["status"].update(targets="nonsense"),
    ],
)
def test_one_that_has_ended_is_not(home: Home, change: Callable[[dict[str, Any]], object]) -> None:
    home.change(change)
    assert home.client.find(WHERE, CHOICES) == []


def test_the_key_of_one_that_is_gone_leaves_the_disk(home: Home) -> None:
    """The machine was restarted without an agent, and with it the heartbeat that should have removed the key."""
    home.change(lambda made: made["metadata"].update(uid="7b1a2f9e-58a4-4ad1-9a55-000000000000"))
    assert home.client.find(WHERE, CHOICES) == []
    assert home.folder.private_key() == b""
    assert home.folder.why_ended == "another grant has its name"


def test_one_whose_key_is_gone_or_another_is_not(home: Home, tmp_path: Path) -> None:
    (home.folder.path / "key").unlink()
    assert home.client.find(WHERE, CHOICES) == []
    (tmp_path / "id.pub").write_text((home.folder.path / "key.pub").read_text())
    home.folder.write_private_key(b"it is here")
    assert home.client.find(WHERE, replace(CHOICES, identity=str(tmp_path / "id"))) == []


def test_one_for_another_key_than_the_folders_is_not(home: Home) -> None:
    """The API server shows another key than this machine made."""
    home.folder.write_public_key(public_key_of(private_key("ed25519", 333)))
    assert home.client.find(WHERE, CHOICES) == []


@pytest.mark.parametrize("changes", [{"context": "other"}, {"kubeconfig": "/other"}, {"namespace": "team-b"}])
def test_one_of_another_management_cluster_is_not(home: Home, changes: dict[str, str]) -> None:
    other = Client(Kubectl(replace(home.settings, **changes)), home.client.folders)
    assert other.find(WHERE, CHOICES) == []
    assert home.calls() == ""


def test_a_grant_that_this_machine_cannot_keep_is_taken_back(home: Home) -> None:
    """A full disk, or a folder that another user may write: the grant and its bastion must not wait for their end."""
    home.change(lambda made: made["spec"].update(logins=["root"]))
    identity = home.place / "identity.pub"
    identity.write_text(f"{key_line(public_key_of(KEY))}\n")
    sources = AddressSources((network("198.51.100.7"),))
    choices = replace(CHOICES, sources=sources, name="repair", identity=str(identity))
    with pytest.raises(BadFolder):  # there is one of that UID
        home.client.make(choices)
    assert (home.place / "deleted").exists()
    assert not list(home.folder.path.parent.glob("*-*/sessions/*"))


def test_another_grant_of_the_name_is_never_revoked(home: Home) -> None:
    home.change(lambda made: made["metadata"].update(uid="7b1a2f9e-58a4-4ad1-9a55-000000000000"))
    home.client.revoke(home.folder, home.record, "test")
    assert not (home.place / "deleted").exists()
    with pytest.raises(NotFound):
        home.client.of(home.record.key)


def test_a_grant_made_anew_between_look_and_deletion_stays(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """``grant revoke`` of a grant of another machine: it looks for the UID, and another process is quicker."""
    program = (home.place / "kubectl").read_text()
    anew = 'if "get" in sys.argv: (folder / "grant").write_text(json.dumps(made).replace("4ad1", "4ad2"))\n'
    (home.place / "kubectl").write_text(program.replace("for one in sys.argv:", f"{anew}for one in sys.argv:"))
    monkeypatch.setenv("KUBECONFIG", "")
    words = ["--kubectl", str(home.place / "kubectl"), "--context", "ctx", "--folder", str(home.place / "empty")]
    assert main(["grant", "revoke", "repair", *words]) == 1
    assert not (home.place / "deleted").exists()


def test_a_new_grant_has_its_session_before_another_process_sees_it(home: Home) -> None:
    """Otherwise the other process could use the grant, and revoke it as the last one that leaves."""
    home.change(lambda made: made["metadata"].update(uid=GRANT_UID.replace("4ad1", "4ad3")))
    home.change(lambda made: made["spec"].update(logins=["root"]))
    identity = home.place / "identity.pub"
    identity.write_text(f"{key_line(public_key_of(KEY))}\n")
    sources = AddressSources((network("198.51.100.7"),))
    choices = replace(CHOICES, sources=sources, name="repair", identity=str(identity))
    seen: list[tuple[int, str]] = []

    def register(folder: GrantFolder) -> None:
        others = [one.path for one, _ in home.client.folders.all()]
        seen.append((len(others), folder.path.name))

    held = home.client.make(choices, register)
    assert seen == [(1, held.record.key.uid)]  # that of the fixture alone
    assert len(list(home.client.folders.all())) == 2


def test_a_grant_that_cannot_be_read_is_revoked(home: Home) -> None:
    home.change(lambda made: made.update(status="nonsense"))
    home.client.revoke(home.folder, home.record, "test")
    assert (home.place / "deleted").exists()


def test_a_new_address_is_let_in_only_if_the_person_says_so(
    home: Home, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    moved = replace(CHOICES, sources=AddressSources((network("203.0.113.9"),)))
    home.client.find(WHERE, moved)
    assert "node-access patch-ingress repair" in capsys.readouterr().err
    assert "patch" not in home.calls()
    monkeypatch.setattr("node_access.client.access.confirm", lambda question: True)
    (held,) = home.client.find(WHERE, moved)
    assert held.grant.ingress == (network("203.0.113.9"),)
    same = replace(CHOICES, sources=AddressSources((network("198.51.100.7"),)))
    before = home.calls().count("patch ")
    home.client.find(WHERE, same)
    assert home.calls().count("patch ") == before


def test_an_answer_with_another_address_is_noticed(home: Home) -> None:
    grant = parse_grant(json.loads((home.place / "grant").read_text()))
    (home.place / "kubectl").write_text((home.place / "kubectl").read_text().replace('made["spec"] |=', "ignored ="))
    with pytest.raises(Exception, match="another grant than was sent"):
        home.client.patch_ingress(grant, (network("203.0.113.9"),))
