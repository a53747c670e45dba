"""``status`` of a node with SSH: the files as they are, and what is wrong."""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from attestors.wire.names import Purpose
from attestors.wire.ssh.certificate import FOREVER
from attestors.wire.ssh.signatures import public_key_of
from authenticator.commands import status
from authenticator.flow.sshd_files import REVOKED_KEYS_FILE, SSHDFiles
from authenticator.model.failures import ExitCode
from authenticator.model.node_access import AcceptedAccess
from authenticator.model.ssh_state import SSHRejection, SSHState
from authenticator.store.store import SSH_FILE
from tests.support.node_access import DAY, certificate, trust
from tests.support.openssh import private_key
from tests.unit.authenticator.builders import NODE, NOW, PROVIDER_ID, pair_with_left
from tests.unit.authenticator.commands.conftest import Node

KEY = public_key_of(private_key("ed25519"))
NOW_SECONDS = int(NOW.timestamp())


@pytest.fixture
def files(node: Node, tmp_path: Path) -> SSHDFiles:
    """A node with SSH and a valid client certificate; sshd has nothing yet."""
    folder = tmp_path / "node-access"
    node.configure(providerID=PROVIDER_ID, ssh={"hostKeys": [str(host_key(node))], "folder": str(folder)})
    node.store.open()
    node.store.save_pair(Purpose.CLIENT, pair_with_left(NOW, timedelta(days=5)))
    return SSHDFiles(folder)


def host_key(node: Node) -> Path:
    return node.folder / "ssh_host_ed25519_key"


def install(node: Node, files: SSHDFiles, **changes: Any) -> None:
    accepted = AcceptedAccess((certificate(KEY, node=NODE, now=NOW_SECONDS, **changes),), trust())
    files.install(accepted, {KEY: host_key(node)}, node_name="worker-1", is_first=True, now=NOW_SECONDS)
    node.store.save_ssh_state(SSHState(7, "0f"))


def lines(node: Node) -> list[str]:
    with node.unchanged():
        code, output, _ = node.run("status")
    assert code == ExitCode.DONE
    return [line.removeprefix("ssh          ") for line in output.splitlines() if line.startswith("ssh ")]


def document(node: Node) -> dict[str, Any]:
    code, output, _ = node.run("status", "--output", "json")
    assert code == ExitCode.DONE
    found: dict[str, Any] = json.loads(output)["ssh"]
    return found


def test_before_the_first_answer(node: Node, files: SSHDFiles) -> None:
    assert lines(node) == [f"no host certificate for {host_key(node)}"]
    assert document(node) == {
        "trustVersion": 0,
        "hostCertificates": [
            {
                "hostKey": str(host_key(node)),
                "file": str(files.certificate_file(host_key(node))),
                "serialNumber": "",
                "principals": [],
                "notBefore": "",
                "notAfter": "",
            }
        ],
        "rejected": None,
        "bundle": None,
        "answeredWithoutText": False,
        "revokedKeysMissing": False,
        "problem": "",
    }


def test_with_a_host_certificate(node: Node, files: SSHDFiles) -> None:
    install(node, files)
    assert lines(node) == [
        f"host certificate for {host_key(node)} valid until 2026-02-01T03:04:05Z",
        "version 7 of the trust is in force",
    ]
    (shown,) = document(node)["hostCertificates"]
    assert (shown["serialNumber"], shown["notAfter"]) == ("4711", "2026-02-01T03:04:05Z")
    assert shown["principals"] == [NODE, f"{NODE}.prod.team-a"]


@pytest.mark.parametrize(
    ("end", "text"),
    [
        (NOW_SECONDS - 1, "ended at 2026-01-02T03:04:04Z"),
        (FOREVER, "valid without end"),
        (2**62, "valid until 9999-12-31T23:59:59Z"),
    ],
)
def test_the_end_of_a_host_certificate(node: Node, files: SSHDFiles, end: int, text: str) -> None:
    install(node, files, valid_after=NOW_SECONDS - DAY, valid_before=end)
    assert lines(node)[0] == f"host certificate for {host_key(node)} {text}"


def test_a_missing_revocation_list(node: Node, files: SSHDFiles) -> None:
    install(node, files)
    (files.folder / REVOKED_KEYS_FILE).unlink()
    assert "RevokedKeys is missing or unreadable: sshd refuses each login" in lines(node)
    assert document(node)["revokedKeysMissing"]


def test_an_older_controller(node: Node, files: SSHDFiles) -> None:
    node.store.save_ssh_state(SSHState(unanswered_at=NOW_SECONDS))
    expected = "the controller answered without SSH at 2026-01-02T03:04:05Z: it is older, or SSH is off there"
    assert lines(node)[1:] == [expected]
    assert document(node)["answeredWithoutText"]


def test_a_text_that_was_not_accepted(node: Node, files: SSHDFiles) -> None:
    node.store.save_ssh_state(SSHState(rejection=SSHRejection("OtherNode", "it does not name worker-1", NOW_SECONDS)))
    assert lines(node)[1:] == ["not accepted at 2026-01-02T03:04:05Z: OtherNode: it does not name worker-1"]
    assert document(node)["rejected"] == {
        "reason": "OtherNode",
        "message": "it does not name worker-1",
        "since": "2026-01-02T03:04:05Z",
    }


def test_a_damaged_state(node: Node, files: SSHDFiles) -> None:
    (node.store.folder / SSH_FILE).write_text("{}")
    assert lines(node)[1] == f"{node.store.folder / SSH_FILE}: damaged; restore it, or let the Machine be replaced"
    assert document(node)["problem"]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of a node with a launch key."""
    root = tmp_path / "machine"
    for path, text in (("proc/net/tcp", ""), ("etc/passwd", "root:x:0:0:root:/root:/bin/bash\n")):
        (root / path).parent.mkdir(parents=True)
        (root / path).write_text(text, encoding="utf-8")
    (root / "root/.ssh").mkdir(parents=True)
    (root / "root/.ssh/authorized_keys").write_text("ssh-ed25519 A\n", encoding="utf-8")
    monkeypatch.setattr(status, "NODE", root)
    return root


def test_other_ways_in(node: Node, files: SSHDFiles, machine: Path) -> None:
    said = "/root/.ssh/authorized_keys has 1 key, for an sshd that takes keys"
    code, output, _ = node.run("status")
    assert code == ExitCode.DONE, "it is shown, and nothing follows from it"
    assert [line for line in output.splitlines() if "way in" in line] == [f"other way in {said}"]
    code, output, _ = node.run("status", "--output", "json")
    assert (code, json.loads(output)["otherWaysIn"]) == (ExitCode.DONE, [said])
    (machine / "root/.ssh/authorized_keys").unlink()
    code, output, _ = node.run("status")
    assert "way in" not in output


def test_a_node_without_ssh_is_not_looked_at(node: Node, machine: Path) -> None:
    assert "way in" not in node.run("status")[1]
    assert "otherWaysIn" not in json.loads(node.run("status", "--output", "json")[1])
