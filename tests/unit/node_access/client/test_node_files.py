"""The files of a grant, read back by the real ssh; and statuses that must not be used."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from attestors.wire.ssh.certificate import CertificateKind
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.options import Extension
from attestors.wire.ssh.principals import HostName, LoginOnNode
from attestors.wire.ssh.signatures import public_key_of
from node_access.client.folders import FolderRecord, GrantFolders
from node_access.client.grants import GrantKey, InvalidGrant, parse_grant
from node_access.client.node_files import (
    Access,
    NotUsable,
    checked_path,
    node_access_of,
    node_known_hosts,
    node_ssh_config,
)
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.grant_controller import HOST_AUTHORITY, Behaviour, issue
from tests.support.openssh import find_openssh, private_key, public_keys
from tests.unit.node_access.client.made import BASTION, BASTION_KEY, DIRECT, GRANT_UID, KEY, document, grant

RECORD = FolderRecord(GrantKey("team-a", "repair", GRANT_UID), "production", "root", False, "")
ALIAS = f"node-access-bastion-{GRANT_UID}"


def access(**changes: Any) -> Access:
    return node_access_of(grant(BASTION, **changes), public_key_of(KEY), int(time.time()))


def effective(file: Path, host: str) -> dict[str, str]:
    """What the real ssh makes of a configuration."""
    try:
        program = find_openssh("ssh")
    except MissingPart as missing:
        skip_or_fail(missing)
    output = subprocess.run([program, "-G", "-F", file, host], capture_output=True, text=True, check=True).stdout
    return dict(line.split(" ", 1) for line in output.splitlines() if " " in line)


def test_no_connection_is_shared_with_another_clusters_node_of_the_same_address(tmp_path: Path) -> None:
    """``Host *`` with ControlMaster is common, and ``%h`` in its ControlPath is the address behind the bastion."""
    (tmp_path / "grant").write_text(node_ssh_config(access(), "/home/a", "root"))
    shared = "Host *\n  ControlMaster auto\n  ControlPath /tmp/%r@%h:%p\n"
    (tmp_path / "config").write_text(f'Include "{tmp_path}/grant"\n{shared}')
    for host in ("worker-1.production", ALIAS):
        found = effective(tmp_path / "config", host)
        assert found.get("controlpath", "none") == "none"
        assert found["connecttimeout"] == "30"


def test_ssh_reads_the_configuration(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(node_ssh_config(access(), "/home/a b/x", "root"))
    node = effective(file, "worker-1.production")
    assert node["hostname"] == "10.0.0.7"
    assert node["hostkeyalias"] == "worker-1.production.team-a"
    assert node["userknownhostsfile"] == "/home/a b/x/known_hosts"
    assert node["certificatefile"] == "/home/a b/x/node-cert.pub"
    assert node["identityfile"] == "/home/a b/x/key"
    assert node["proxyjump"] == ALIAS
    for option in ("forwardagent", "forwardx11", "updatehostkeys", "verifyhostkeydns"):
        assert node[option] in ("no", "false")
    for host in ("worker-1.production", "worker-1.production.team-a", ALIAS):
        options = effective(file, host)
        assert options["stricthostkeychecking"] == "true"
        assert options["identitiesonly"] == "yes"
        assert options["globalknownhostsfile"] == "none"
    bastion = effective(file, ALIAS)
    assert (bastion["user"], bastion["hostname"], bastion["port"]) == ("bastion", "203.0.113.5", "2222")
    assert bastion["certificatefile"] == "/home/a b/x/bastion-cert.pub"
    assert "proxyjump" not in bastion


def test_windows_paths_are_written_with_slashes_and_quotes() -> None:
    text = node_ssh_config(access(), r"C:\Users\Ada L\.ssh\node-access\grants\x", "root", r"C:\Users\Ada L\.ssh\id")
    assert 'UserKnownHostsFile "C:/Users/Ada L/.ssh/node-access/grants/x/known_hosts"' in text
    assert 'IdentityFile "C:/Users/Ada L/.ssh/id"' in text
    assert "\\" not in text
    assert "ControlMaster" not in text
    assert "IdentityAgent" not in text


@pytest.mark.parametrize(
    "path",
    [
        *("/home/%u", '/a"b', "/a$HOME", "/a\nb", "", "/a'b", "/a*", " /a", "/a`b`", "/a;b", "/a?", "/a[b]", "/a "),
        *("~/x", "~alice/x", "x/y", "-x", "/a\\b", "a\\b", "\\a", "/a\u00a0b", "/a\u202eb", "/a\tb", "C:x"),
    ],
)
def test_a_path_that_ssh_would_read_as_another_is_refused(path: str) -> None:
    with pytest.raises(NotUsable):
        checked_path(path)


@pytest.mark.parametrize(
    ("path", "written"),
    [
        ("/Users/Ada Lovelace/.ssh/node-access", "/Users/Ada Lovelace/.ssh/node-access"),  # macOS
        ("/Volumes/a~b/x", "/Volumes/a~b/x"),
        ("/home/ada/~/x", "/home/ada/~/x"),
        ("C:\\Users\\ADALOV~1\\.ssh", "C:/Users/ADALOV~1/.ssh"),  # the short form of a long name
        ("c:/Users/Ada Lovelace/.ssh", "c:/Users/Ada Lovelace/.ssh"),
        ("\\\\server\\home\\ada", "//server/home/ada"),
    ],
)
def test_paths_of_each_system(path: str, written: str) -> None:
    assert checked_path(path) == written
    text = node_ssh_config(access(), path, "root", connector=["/usr/bin/python 3"])
    assert f'IdentityFile "{written}/key"' in text
    assert f'CertificateFile "{written}/node-cert.pub"' in text


@pytest.mark.parametrize("name", ["Ada Lovelace", "a~b", "~", "ädä", "a,b=c+d@e", "-a", "a: b"])
def test_the_real_ssh_includes_a_folder_of_any_name(tmp_path: Path, name: str) -> None:
    """As ``~/.ssh/config`` does, and it finds the key there."""
    folders = GrantFolders(tmp_path / name)
    folder = folders.path / "grants" / GRANT_UID
    folder.mkdir(parents=True)
    (folder / "config").write_text(node_ssh_config(access(), str(folder), "root"))
    (tmp_path / "config").write_text(f'Include "{folders.pattern}"\n')
    found = effective(tmp_path / "config", "worker-1.production")
    assert found["hostname"] == "10.0.0.7"
    assert found["identityfile"] == f"{folder}/key"
    assert found["certificatefile"] == f"{folder}/node-cert.pub"
    assert found["userknownhostsfile"] == f"{folder}/known_hosts"


CONNECTOR = ["/opt/Python 3/bin/python", "-P", "-m", "node_access.client"]


def several(behaviour: Behaviour, *addresses: str) -> Access:
    made = document(behaviour)
    made["status"]["targets"][0]["addresses"] = list(addresses)
    return node_access_of(parse_grant(made), public_key_of(KEY), int(time.time()))


def test_a_node_with_several_addresses_is_reached_by_the_one_that_answers(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(
        node_ssh_config(several(BASTION, "10.0.0.7", "fd00::7", "node.example"), "/x y", "root", "", CONNECTOR)
    )
    found = effective(file, "worker-1.production")
    program = '"/opt/Python 3/bin/python" -P -m node_access.client connect'
    assert found["proxycommand"] == f'{program} --through {ALIAS} --config "/x y/config" 22 10.0.0.7 fd00::7'
    assert found["proxyusefdpass"] == "yes"
    assert found["hostkeyalias"] == "worker-1.production.team-a"
    assert "proxyjump" not in found
    file.write_text(node_ssh_config(several(DIRECT, "10.0.0.7", "node.example"), "/x", "root", "", CONNECTOR))
    assert effective(file, "worker-1.production")["proxycommand"] == f"{program} 2222 10.0.0.7 node.example"


def test_a_node_with_one_address_needs_ssh_alone(tmp_path: Path) -> None:
    file = tmp_path / "config"
    for made, jump in ((several(BASTION, "10.0.0.7", "node.example"), ALIAS), (several(DIRECT, "10.0.0.7"), "none")):
        file.write_text(node_ssh_config(made, "/x", "root", "", CONNECTOR))
        found = effective(file, "worker-1.production")
        assert found.get("proxyjump", "none") == jump
        assert found.get("proxycommand", "none") == "none"
    file.write_text(node_ssh_config(several(DIRECT, "10.0.0.7", "10.0.0.8"), "/x", "root"))  # as on Windows
    assert effective(file, "worker-1.production")["hostname"] == "10.0.0.7"


def test_a_touch_is_waited_for_before_the_next_address_is_tried() -> None:
    made = several(BASTION, "10.0.0.7", "fd00::7")
    touched = replace(made, grant=replace(made.grant, public_key=public_keys()["sk-ed25519"]))
    assert " --pause 20 22 10.0.0.7 " in node_ssh_config(touched, "/x", "root", "", CONNECTOR)
    assert "--pause" not in node_ssh_config(made, "/x", "root", "", CONNECTOR)


def test_a_program_whose_path_a_shell_would_read_as_more_is_refused() -> None:
    with pytest.raises(NotUsable):
        node_ssh_config(several(DIRECT, "10.0.0.7", "10.0.0.8"), "/x", "root", "", ["/opt/$(id)/python"])


def test_a_path_in_any_script_is_accepted() -> None:
    assert checked_path("/home/müller/日本") == "/home/müller/日本"


def test_known_hosts_has_patterns_of_ours() -> None:
    made = document(BASTION)
    authority = key_line(public_key_of(HOST_AUTHORITY))
    made["status"]["knownHosts"] = [
        f"@cert-authority * {authority}",
        f"*,github.com {key_line(public_key_of(BASTION_KEY))}",
    ]
    text = node_known_hosts(node_access_of(parse_grant(made), public_key_of(KEY), int(time.time())))
    assert text == f"@cert-authority *.production.team-a {authority}\n{ALIAS} {key_line(public_key_of(BASTION_KEY))}\n"


APPENDED = [
    "\n    ProxyCommand touch /owned",
    "\r\nHost *",
    "\x00owned",
    "\u2028Host owned",
    " owned",
    "\n@cert-authority * x",
]


def append(status: dict[str, Any], where: str, text: str) -> None:
    match where:
        case "certificate":
            status["certificates"][0]["certificate"] += text
        case "authority" | "bastion's key":
            status["knownHosts"][where == "bastion's key"] += text
        case "pattern":
            kind, _, rest = status["knownHosts"][0].partition(" ")
            status["knownHosts"][0] = f"{kind} *{text},{rest}"


@pytest.mark.parametrize("where", ["certificate", "authority", "bastion's key", "pattern"])
@pytest.mark.parametrize("text", APPENDED)
def test_what_is_appended_to_a_valid_line_reaches_no_file(where: str, text: str, tmp_path: Path) -> None:
    made = document(BASTION)
    append(made["status"], where, text)
    folder = GrantFolders(tmp_path / "n").create(RECORD)
    with contextlib.suppress(InvalidGrant):
        folder.write_access(node_access_of(parse_grant(made), public_key_of(KEY), int(time.time())), RECORD)
        assert len((folder.path / "known_hosts").read_text().splitlines()) == 2
        assert len((folder.path / "node-cert.pub").read_text().splitlines()) == 1
    written = "".join(file.read_text() for file in folder.path.iterdir() if file.is_file())
    assert "owned" not in written
    assert "Host *" not in written
    assert "authority * " not in written


def certificate(**changes: Any) -> Callable[[dict[str, Any]], None]:
    """The node's certificate is another one."""
    key = changes.pop("public_key", public_key_of(KEY))
    principals = changes.pop("principals", (LoginOnNode("root", "worker-1"),))

    def change(status: dict[str, Any]) -> None:
        status["certificates"][0]["certificate"] = issue(key, *principals, **changes).line

    return change


def without(field: str) -> Callable[[dict[str, Any]], None]:
    return lambda status: status.pop(field)


def unsigned(status: dict[str, Any]) -> None:
    """Another authority is named than has signed."""
    line = issue(public_key_of(KEY), LoginOnNode("root", "worker-1"), authority=public_key_of(HOST_AUTHORITY)).line
    status["certificates"][0]["certificate"] = line


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (certificate(public_key=public_key_of(private_key("ed25519", 330))), "not for the grant's key"),
        (certificate(principals=(LoginOnNode("root", "worker-2"),)), "other logins"),
        (certificate(principals=(LoginOnNode("admin", "worker-1"),)), "other logins"),
        (certificate(principals=()), "other logins"),
        (certificate(seconds=-30), "has ended"),
        # Made when the tests are collected: much later than they may run.
        (
            certificate(valid_after=int(time.time()) + 86_400, valid_before=int(time.time()) + 90_000),
            "clock is behind",
        ),
        (certificate(valid_before=2**64 - 1), "outlasts every grant"),
        (
            certificate(extensions=(Extension.NO_TOUCH_REQUIRED, Extension.PERMIT_PTY)),
            "permits what this program never asks for",
        ),
        (certificate(extensions=(Extension.PERMIT_AGENT_FORWARDING,)), "permits what this program never asks for"),
        (
            certificate(kind=CertificateKind.HOST, principals=(HostName("worker-1"),), extensions=()),
            "not for the grant's key",
        ),
        (unsigned, "certificate for the node"),
        (without("certificates"), "no certificate for the bastion"),
        (without("targets"), "names no node"),
        (without("knownHosts"), "no host authority"),
        (lambda status: status["knownHosts"].pop(), "no host key of the bastion"),
        (lambda status: status["certificates"].pop(), "no certificate for the bastion"),
        (lambda status: status["targets"][0].update(addresses=[]), "no node of the grant has an address"),
        (lambda status: status["targets"][0].update(node="worker-2"), "no node of the grant has an address"),
    ],
)
def test_a_status_that_must_not_be_used(change: Callable[[dict[str, Any]], object], message: str) -> None:
    made = document(BASTION)
    change(made["status"])
    with pytest.raises(NotUsable, match=message):
        node_access_of(parse_grant(made), public_key_of(KEY), int(time.time()))


def test_another_key_and_a_container_are_refused() -> None:
    with pytest.raises(NotUsable, match="another key"):
        node_access_of(grant(BASTION), public_key_of(private_key("ed25519", 331)), int(time.time()))
    made = document(BASTION)
    made["spec"]["target"] = {"container": {"namespace": "a", "pod": "b", "container": "c"}}
    with pytest.raises(NotUsable, match="no node of the grant"):
        node_access_of(parse_grant(made), public_key_of(KEY), int(time.time()))


def test_the_certificate_with_the_latest_end_counts() -> None:
    made = document()
    later = issue(public_key_of(KEY), LoginOnNode("root", "worker-1"), seconds=3000)
    made["status"]["certificates"].insert(0, {"hop": "node", "certificate": later.line})
    assert node_access_of(parse_grant(made), public_key_of(KEY), int(time.time())).certificate == later


def test_a_grant_without_a_bastion_has_one_hop() -> None:
    direct = node_access_of(grant(), public_key_of(KEY), int(time.time()))
    text = node_ssh_config(direct, "/x", "root")
    assert "ProxyJump" not in text
    assert "Port 2222" in text
    assert replace(direct).valid_before == direct.certificate.certificate.valid_before
