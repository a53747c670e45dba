"""The image files of ``deploy/node/ssh``: systemd reads every line, and they agree with the programs."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Final

import pytest

from authenticator.configuration import DEFAULT_SSH_FOLDER
from authenticator.flow import sshd_files
from node_access import daemon, node_files, records
from node_access.control_groups import SLICE, Hierarchy
from node_access.registry import MAXIMUM_SESSIONS, UNKNOWN_SECONDS
from tests.deploy.embedded import ROOT
from tests.support.access_node import IMAGE
from tests.support.binaries import MissingPart, skip_or_fail

UNITS: Final = IMAGE / "etc/systemd/system"
CONFIGURATION: Final = (IMAGE / "etc/ssh/node-access-sshd.conf").read_text()
COMMAND: Final = IMAGE / "usr/lib/node-access/principals"


def value(keyword: str) -> str:
    [found] = re.findall(rf"^{keyword} (.*)$", CONFIGURATION, re.MULTILINE)
    return str(found)


def unit(name: str) -> list[str]:
    return (UNITS / name).read_text().splitlines()


def number(name: str, key: str) -> int:
    [found] = [line.removeprefix(f"{key}=") for line in unit(name) if line.startswith(f"{key}=")]
    return int(found)


def test_these_are_the_files() -> None:
    """The page lists them, and nothing is installed that it does not name."""
    page = (ROOT / "docs/ssh-node.md").read_text()
    files = sorted(path.relative_to(IMAGE) for path in IMAGE.rglob("*") if path.is_file())
    for file in files:
        named = file.name if file.parts[:3] == ("etc", "ssh", "node-access") else f"deploy/node/ssh/{file}"
        assert named in page, file


def test_systemd_reads_every_line(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        skip_or_fail(MissingPart("systemd-analyze is not installed: apt-get install systemd"))
    shutil.copytree(IMAGE, tmp_path, dirs_exist_ok=True)
    coreutils = ("bin/rm", "bin/sync", "bin/mv")
    for program in ("usr/sbin/sshd", "usr/bin/ssh-keygen", "usr/local/bin/node-access-sessions", *coreutils):
        (tmp_path / program).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / program).touch(mode=0o755)
    folder = tmp_path / "etc/systemd/system"
    for name in ("basic", "multi-user", "shutdown", "sockets", "sysinit"):
        (folder / f"{name}.target").write_text(f"[Unit]\nDescription={name}\n")
    for name in ("-", "system"):
        (folder / f"{name}.slice").write_text("[Slice]\n")
    (folder / "-.mount").write_text("[Mount]\nWhat=/dev/root\nWhere=/\n")
    (folder / "tmp.mount").write_text("[Mount]\nWhat=tmpfs\nWhere=/tmp\n")
    (folder / "kubelet-authenticator.service").write_text("[Service]\nExecStart=/usr/sbin/sshd\n")
    shutil.copy(folder / "node-access-ssh@.service", folder / "node-access-ssh@1.service")
    names = ["node-access-ssh.socket", "node-access-ssh@1.service", "nodeaccess.slice", "node-access-host-key.service"]
    command = [analyze, "verify", f"--root={tmp_path}", "--man=no", *names, "node-access-sessions.service"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_connection_is_where_the_daemon_looks_for_it() -> None:
    path = f"{SLICE}/node-access-ssh@1-10.0.0.1:2222-10.0.0.2:40000.service"
    assert Hierarchy(Path("/"), "0::").connection_of(f"0::{path}\n") == path
    assert f"Slice={SLICE.removeprefix('/')}" in unit("node-access-ssh@.service")
    assert (UNITS / SLICE.removeprefix("/")).exists()
    assert "Accept=yes" in unit("node-access-ssh.socket")


def test_a_connection_ends_as_a_whole_and_leaves_no_unit() -> None:
    lines = unit("node-access-ssh@.service")
    assert {"KillMode=control-group", "CollectMode=inactive-or-failed", "RuntimeMaxSec=24h"} <= set(lines)
    assert not [line for line in lines if line.startswith("Delegate")]


def test_the_processes_of_some_connections_keep_no_other_from_starting() -> None:
    """Break-glass included. An administrator must get in to end what is going on."""

    of_all = number("node-access-ssh.socket", "MaxConnections") * number("node-access-ssh@.service", "TasksMax")
    assert of_all < number("nodeaccess.slice", "TasksMax")


def test_the_memory_of_all_connections_is_bounded() -> None:
    """A flood leaves the node its memory, and the end of one process is not that of its session."""
    assert "MemoryMax=50%" in unit("nodeaccess.slice")
    assert "OOMPolicy=continue" in unit("node-access-ssh@.service")


def test_more_sources_than_some_are_needed_to_take_every_connection() -> None:
    of_all = number("node-access-ssh.socket", "MaxConnections")
    assert of_all >= 8 * number("node-access-ssh.socket", "MaxConnectionsPerSource")
    assert of_all * 2 <= MAXIMUM_SESSIONS, "the daemon refuses nobody whom systemd let in"


def test_nobody_logs_in_as_the_command_s_user() -> None:
    assert value("DenyUsers") == value("AuthorizedPrincipalsCommandUser")


def test_sshd_reads_what_the_agent_writes() -> None:
    folder = DEFAULT_SSH_FOLDER
    assert str(node_files.FOLDER) == folder
    assert value("TrustedUserCAKeys") == f"{folder}/{sshd_files.USER_AUTHORITIES_FILE}"
    assert value("RevokedKeys") == f"{folder}/{sshd_files.REVOKED_KEYS_FILE}"
    certificate = sshd_files.SSHDFiles(Path(folder)).certificate_file(Path(value("HostKey")))
    assert value("HostCertificate") == str(certificate)
    assert node_files.NODE_NAME_FILE == sshd_files.NODE_NAME_FILE
    assert node_files.REVOKED_KEYS_FILE == sshd_files.REVOKED_KEYS_FILE
    assert node_files.BREAK_GLASS_FILE == sshd_files.BREAK_GLASS_FILE
    assert node_files.IMAGE_BREAK_GLASS_FILE == sshd_files.IMAGE_BREAK_GLASS_FILE


def test_the_image_brings_empty_lists_and_no_host_key() -> None:
    brought = {path.name: path.read_bytes() for path in (IMAGE / "etc/ssh/node-access").iterdir()}
    names = {sshd_files.USER_AUTHORITIES_FILE, sshd_files.REVOKED_KEYS_FILE, sshd_files.KNOWN_HOSTS_FILE}
    assert brought == dict.fromkeys([*names, node_files.BREAK_GLASS_FILE], b"")
    assert not list(IMAGE.rglob("ssh_host_*"))


def test_the_host_key_is_whole_or_made_again(tmp_path: Path) -> None:
    """A first start that loses power leaves nothing, an empty file, or half a key under another name."""
    lines = unit("node-access-host-key.service")
    assert f"ConditionFileNotEmpty=!{value('HostKey')}" in lines
    commands = [line.removeprefix("ExecStart=").split() for line in lines if line.startswith("ExecStart=")]
    assert [command[0] for command in commands if value("HostKey") in command] == ["/bin/mv"]
    assert commands[-1][-1] == value("HostKey")
    if shutil.which("ssh-keygen") is None:
        skip_or_fail(MissingPart("ssh-keygen is not installed: apt-get install openssh-client"))
    (tmp_path / ".ssh_host_ed25519_key.new").write_text("half")
    (tmp_path / "ssh_host_ed25519_key").touch()
    for command in commands:
        words = shlex.split(" ".join(command).replace("/etc/ssh", str(tmp_path)))
        subprocess.run([Path(words[0]).name, *words[1:]], check=True, timeout=60, stdin=subprocess.DEVNULL)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["ssh_host_ed25519_key", "ssh_host_ed25519_key.pub"]
    assert (tmp_path / "ssh_host_ed25519_key").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "ssh_host_ed25519_key").read_text().endswith("-----END OPENSSH PRIVATE KEY-----\n")


def test_the_command_is_sshd_s() -> None:
    assert value("AuthorizedPrincipalsCommand") == "/usr/lib/node-access/principals %u %i %s %F %k"
    assert value("AuthorizedPrincipalsCommandUser") == "node-access"
    assert COMMAND.stat().st_mode & 0o777 == 0o755
    text = COMMAND.read_text()
    files = (node_files.BREAK_GLASS_FILE, node_files.IMAGE_BREAK_GLASS_FILE, node_files.OFFLINE_REVOKED_KEYS_FILE)
    for path in (daemon.SOCKET, records.FALLBACK_FOLDER, *(node_files.FOLDER / name for name in files)):
        assert f'"{path}"' in text
    assert f"ANSWERED = {daemon.ANSWERED!r}".replace("'", '"') in text
    assert (
        f"d {records.FALLBACK_FOLDER} 0700 node-access node-access"
        in (IMAGE / "usr/lib/tmpfiles.d/node-access.conf").read_text()
    )


def test_a_login_is_over_before_its_connection_counts_as_unknown() -> None:
    assert 2 * int(value("LoginGraceTime")) <= UNKNOWN_SECONDS


def test_the_daemon_keeps_its_records_over_a_restart() -> None:
    lines = set(unit("node-access-sessions.service"))
    assert {"RuntimeDirectory=node-access", "RuntimeDirectoryPreserve=yes", "Restart=always"} <= lines
    assert Path("/run/node-access") in records.FOLDER.parents
    assert "ExecStart=/usr/local/bin/node-access-sessions run" in lines
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["node-access-sessions"] == "node_access.cli:main"


@pytest.mark.parametrize(
    "keyword", ["CASignatureAlgorithms", "PubkeyAcceptedAlgorithms", "HostKeyAlgorithms", "Ciphers"]
)
def test_nothing_old_is_accepted(keyword: str) -> None:
    algorithms = value(keyword).split(",")
    assert not {"ssh-rsa", "ssh-dss", "ssh-rsa-cert-v01@openssh.com", "3des-cbc", "aes128-cbc"} & set(algorithms)
    if keyword == "PubkeyAcceptedAlgorithms":
        assert all("-cert-v01@openssh.com" in one for one in algorithms), "certificates alone"
    if keyword == "CASignatureAlgorithms":
        assert "ecdsa-sha2-nistp384" in algorithms


def test_sysusers_reads_its_file() -> None:
    sysusers = shutil.which("systemd-sysusers")
    if sysusers is None:
        skip_or_fail(MissingPart("systemd-sysusers is not installed: apt-get install systemd"))
    command = [sysusers, "--dry-run", str(IMAGE / "usr/lib/sysusers.d/node-access.conf")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
