"""The image files of ``deploy/node/ssh-containers``: systemd reads every line, and they agree with the programs."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Final

import pytest

from node_access.containers import agent, protocol, users
from node_access.containers.cli import GROUP
from node_access.control_groups import SLICE, Hierarchy
from node_access.values import Connection, Opens, ProcessIdentity
from tests.deploy.embedded import ROOT
from tests.support.binaries import MissingPart, skip_or_fail

IMAGE: Final = ROOT / "deploy/node/ssh-containers"
NODE_IMAGE: Final = ROOT / "deploy/node/ssh"
UNITS: Final = IMAGE / "etc/systemd/system"
CONFIGURATION: Final = (IMAGE / "etc/ssh/node-access-containers-sshd.conf").read_text()
NODE_CONFIGURATION: Final = (NODE_IMAGE / "etc/ssh/node-access-sshd.conf").read_text()
COMMAND: Final = IMAGE / "usr/lib/node-access/container-session"
OWN: Final = {
    *("PermitRootLogin", "AllowGroups", "DenyUsers", "ForceCommand", "Subsystem", "DisableForwarding"),
    *("AllowTcpForwarding", "PermitOpen", "PermitListen"),
}
"""What differs from the sshd of the node."""


def options(configuration: str) -> dict[str, str]:
    lines = [line for line in configuration.splitlines() if line and not line.startswith("#")]
    found = dict(line.split(" ", 1) for line in lines)
    assert len(found) == len(lines)
    return found


def unit(name: str) -> list[str]:
    return (UNITS / name).read_text().splitlines()


def test_these_are_the_files() -> None:
    page = (ROOT / "docs/containers-node.md").read_text()
    for path in IMAGE.rglob("*"):
        assert path.is_dir() or f"deploy/node/ssh-containers/{path.relative_to(IMAGE)}" in page, path


def test_systemd_reads_every_line(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        skip_or_fail(MissingPart("systemd-analyze is not installed: apt-get install systemd"))
    for image in (NODE_IMAGE, IMAGE):
        shutil.copytree(image, tmp_path, dirs_exist_ok=True)
    coreutils = ("bin/rm", "bin/sync", "bin/mv")
    programs = ("usr/local/bin/node-access-sessions", "usr/local/bin/node-access-containers", *coreutils)
    for program in ("usr/sbin/sshd", "usr/bin/ssh-keygen", *programs):
        (tmp_path / program).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / program).touch(mode=0o755)
    folder = tmp_path / "etc/systemd/system"
    for name in ("basic", "multi-user", "shutdown", "sockets", "sysinit"):
        (folder / f"{name}.target").write_text(f"[Unit]\nDescription={name}\n")
    for name in ("-", "system"):
        (folder / f"{name}.slice").write_text("[Slice]\n")
    (folder / "-.mount").write_text("[Mount]\nWhat=/dev/root\nWhere=/\n")
    (folder / "tmp.mount").write_text("[Mount]\nWhat=tmpfs\nWhere=/tmp\n")
    for name in ("kubelet-authenticator", "containerd"):
        (folder / f"{name}.service").write_text("[Service]\nExecStart=/usr/sbin/sshd\n")
    shutil.copy(folder / "node-access-containers-ssh@.service", folder / "node-access-containers-ssh@1.service")
    names = ["node-access-containers-ssh.socket", "node-access-containers-ssh@1.service"]
    command = [analyze, "verify", f"--root={tmp_path}", "--man=no", *names, "node-access-containers.service"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_connection_is_where_the_sessions_daemon_looks_for_it() -> None:
    path = f"{SLICE}/{Opens.CONTAINERS.unit_prefix}1-10.0.0.1:2022-10.0.0.2:40000.service"
    assert Hierarchy(Path("/"), "0::").connection_of(f"0::{path}\n") == path
    assert Connection(path, 1, ProcessIdentity(2, 1)).opens is Opens.CONTAINERS
    name = f"{Opens.CONTAINERS.unit_prefix}.service"
    assert f"Slice={SLICE.removeprefix('/')}" in unit(name)
    assert "ExecStart=-/usr/sbin/sshd -i -f /etc/ssh/node-access-containers-sshd.conf" in unit(name)
    assert f"{name.removesuffix('@.service')}.socket" in {path.name for path in UNITS.iterdir()}


def test_the_two_configurations_differ_in_what_they_open_alone() -> None:
    ours, nodes = options(CONFIGURATION), options(NODE_CONFIGURATION)
    assert ours.keys() | OWN == nodes.keys() | OWN
    assert {key for key in ours.keys() & nodes.keys() if ours[key] != nodes[key]} <= OWN


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("AllowGroups", GROUP),
        ("PermitRootLogin", "no"),
        ("ForceCommand", users.SHELL),
        ("Subsystem", "sftp sftp"),
        ("DisableForwarding", "yes"),
        ("AllowTcpForwarding", "no"),
        ("AllowStreamLocalForwarding", "no"),
        ("AllowAgentForwarding", "no"),
        ("X11Forwarding", "no"),
        ("PermitTunnel", "no"),
        ("PermitOpen", "none"),
        ("PermitListen", "none"),
        ("GatewayPorts", "no"),
        ("PermitUserRC", "no"),
        ("PermitUserEnvironment", "no"),
    ],
)
def test_every_switch_is_written_out(key: str, value: str) -> None:
    assert options(CONFIGURATION)[key] == value


def test_the_users_group_is_made() -> None:
    assert f"g {GROUP} -" in (IMAGE / "usr/lib/sysusers.d/node-access-containers.conf").read_text().splitlines()


def test_a_uid_rests_for_longer_than_a_login_may_take() -> None:
    assert 5 * int(options(CONFIGURATION)["LoginGraceTime"]) <= users.REST_SECONDS


def test_the_program_of_a_session_speaks_the_agents_protocol() -> None:
    text = COMMAND.read_text()
    assert f'SOCKET = "{agent.SOCKET}"' in text
    assert f'VERSION = b"{protocol.VERSION.decode()}"' in text
    assert re.search(r"MAXIMUM_REQUEST_BYTES = 64 \* 1024", text)
    assert protocol.MAXIMUM_REQUEST_BYTES == 64 * 1024
    assert str(COMMAND.relative_to(IMAGE)) == users.SHELL.removeprefix("/")
    assert COMMAND.stat().st_mode & 0o111


def test_the_program_of_a_session_imports_next_to_nothing() -> None:
    """It starts in each session, and most of the time that it takes is that of its imports."""
    command = ["/usr/bin/python3", "-ISE", "-X", "importtime", str(COMMAND)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60)
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if "|" in line}
    assert {"_socket", "select"} <= imported
    assert imported.isdisjoint({"socket", "signal", "enum", "re", "subprocess", "site"})


def test_the_units_folders_are_the_agents() -> None:
    lines = unit("node-access-containers.service")
    assert f"RuntimeDirectory={agent.SOCKET.parent.name}" in lines
    assert f"StateDirectory={users.STATE.parent.name} {users.DATABASE.parent.name}" in lines
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert "ExecStart=/usr/local/bin/node-access-containers run" in lines
    assert scripts["node-access-containers"] == "node_access.containers.cli:main"
