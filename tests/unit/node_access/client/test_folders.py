"""The folder of a grant, its locks, and what others may have done to it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from attestors.wire.ssh.principals import HostName
from attestors.wire.ssh.signatures import public_key_of
from node_access.client.folders import BadFolder, FolderRecord, GrantFolder, GrantFolders
from node_access.client.grants import GrantKey
from node_access.client.kubectl import KubectlSettings
from node_access.client.locks import Busy
from node_access.client.node_files import NotUsable
from node_access.client.ssh_files import access_of
from tests.unit.node_access.client.made import BASTION, GRANT_UID, KEY, grant

RECORD = FolderRecord(
    GrantKey("team-a", "repair", GRANT_UID), "production", "root", True, "", KubectlSettings(context="ctx")
)


@pytest.fixture
def folders(tmp_path: Path) -> GrantFolders:
    return GrantFolders(tmp_path / "node-access")


def test_everything_in_it_is_private(folders: GrantFolders) -> None:
    former = os.umask(0)
    try:
        folder = folders.create(RECORD)
        folder.write_public_key(public_key_of(KEY))
        folder.write_private_key(b"secret")
        folder.write_access(access_of(grant(BASTION), public_key_of(KEY), int(time.time())), RECORD)
    finally:
        os.umask(former)
    for path in (folders.path, folder.path, folder.path.parent):
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    names = {path.name for path in folder.path.iterdir() if path.is_file()}
    assert names == {"grant.json", "key", "key.pub", "known_hosts", "config", "node-cert.pub", "bastion-cert.pub"}
    assert all(stat.S_IMODE((folder.path / name).stat().st_mode) == 0o600 for name in names)
    assert folder.hosts == ("worker-1.production", f"node-access-bastion-{GRANT_UID}")
    assert folder.record() == RECORD
    assert folder.public_key() == public_key_of(KEY)
    assert [record for _, record in folders.all()] == [RECORD]
    assert folders.pattern == f"{folders.path}/grants/*/config"


def test_a_bastion_that_is_gone_leaves_no_certificate(folders: GrantFolders) -> None:
    folder = folders.create(RECORD)
    for behaviour in (BASTION, None):
        made = grant(behaviour) if behaviour else grant()
        folder.write_access(access_of(made, public_key_of(KEY), int(time.time())), RECORD)
    assert not (folder.path / "bastion-cert.pub").exists()


def test_a_grant_that_changes_its_cluster_takes_no_other_host_over(folders: GrantFolders) -> None:
    """A hostile API server and a person whose ~/.ssh/config includes these files first: ``ssh github.com``."""
    folder = folders.create(RECORD)
    other = grant(clusterRef={"name": "com"}, target={"nodes": ["github"]})
    with pytest.raises(NotUsable, match="another Cluster"):
        folder.write_access(access_of(other, public_key_of(KEY), int(time.time())), RECORD)
    assert not folder.config.exists()


def test_the_end_leaves_nothing_that_ssh_uses(folders: GrantFolders) -> None:
    folder = folders.create(RECORD)
    folder.write_private_key(b"secret")
    folder.write_access(access_of(grant(BASTION), public_key_of(KEY), int(time.time())), RECORD)
    folder.end("it is gone")
    left = {path.name for path in folder.path.iterdir() if path.is_file()}
    assert left == {"grant.json", "ended"}
    assert folder.why_ended == "it is gone"
    folders.forget_ended()
    assert folder.path.exists()
    os.utime(folder.path / "ended", (0, 0))
    folders.forget_ended()
    assert not folder.path.exists()


def test_one_background_process(folders: GrantFolders) -> None:
    folder = folders.create(RECORD)
    assert not folder.has_agent()
    with folder.as_agent():
        assert folder.has_agent()
        with pytest.raises(Busy), folder.as_agent():
            pass
    assert not folder.has_agent()


def test_a_session_of_another_process_is_seen_until_it_ends(folders: GrantFolders) -> None:
    folder = folders.create(RECORD)
    with folder.session(HostName("worker-1")):
        assert folder.session_nodes() == ()  # this process's own
    body = (
        "import sys; from pathlib import Path; from attestors.wire.ssh.principals import HostName\n"
        "from node_access.client.folders import GrantFolder\n"
        f"with GrantFolder(Path({str(folder.path)!r})).session(HostName('worker-2')):\n"
        "    print('in', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", body], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"PYTHONPATH": os.getcwd()}
    ) as other:
        assert other.stdout is not None
        other.stdout.readline()
        assert folder.session_nodes() == ("worker-2",)
        other.kill()
        other.wait()
        assert folder.session_nodes() == ()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"key": {"namespace": "a b"}}', "\xff"])
def test_a_record_of_another_hand_is_refused(folders: GrantFolders, text: str) -> None:
    folder = folders.create(RECORD)
    (folder.path / "grant.json").write_text(text)
    with pytest.raises(BadFolder):
        folder.record()
    assert list(folders.all()) == []


def test_a_folder_in_which_others_may_write_is_refused(folders: GrantFolders) -> None:
    folders.create(RECORD)
    folders.path.chmod(0o777)
    with pytest.raises(BadFolder, match="another user may write"):
        folders.create(RECORD)
    with pytest.raises(BadFolder, match="another user may write"):
        list(folders.all())
    folders.path.chmod(0o700)
    (folders.path / "grants").chmod(0o777)
    with pytest.raises(BadFolder, match="another user may write"):
        folders.of(GRANT_UID)


def test_a_folder_that_others_may_replace_is_refused(tmp_path: Path) -> None:
    """They cannot write into it, but rename it, and put their own in its place."""
    made = GrantFolders(tmp_path / "ssh" / "n")
    made.create(RECORD)
    made.path.parent.chmod(0o777)
    with pytest.raises(BadFolder, match="another user may rename"):
        list(made.all())
    with pytest.raises(BadFolder, match="another user may rename"):
        made.create(replace(RECORD, key=replace(RECORD.key, uid=f"{GRANT_UID[:-1]}0")))
    made.path.parent.chmod(0o1777)  # as /tmp
    assert len(list(made.all())) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_not_read(folders: GrantFolders) -> None:
    """With --folder in /tmp: its config would have a ProxyCommand, and its record another kubectl."""
    folders.create(RECORD)
    os.chown(folders.path, 65534, 65534)
    with pytest.raises(BadFolder, match="another user may write"):
        list(folders.all())


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "node-access").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadFolder, match="not a folder"):
        GrantFolders(tmp_path / "node-access").create(RECORD)


def test_a_grant_has_one_folder(folders: GrantFolders) -> None:
    folders.create(RECORD)
    with pytest.raises(BadFolder):
        folders.create(RECORD)
    assert folders.of(GRANT_UID).record() == RECORD
    with pytest.raises(BadFolder):
        folders.of("7b1a2f9e-58a4-4ad1-9a55-000000000000")


def test_a_path_that_ssh_would_expand_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotUsable):
        GrantFolders(tmp_path / "100%")


def test_a_long_file_is_refused(folders: GrantFolders) -> None:
    folder: GrantFolder = folders.create(RECORD)
    (folder.path / "key").write_text("x" * 5_000_000)
    with pytest.raises(BadFolder):
        folder.private_key()


def test_why_a_grant_ended_is_written_without_what_a_terminal_obeys(folders: GrantFolders) -> None:
    """The controller's message may be in it, with half of a surrogate pair, which no file takes."""
    made = folders.create(RECORD)
    made.end("denied by bob\x1b[2J\nOver: no\ud800")
    assert made.why_ended == "denied by bob\\x1b[2J\\nOver: no\\ud800"
