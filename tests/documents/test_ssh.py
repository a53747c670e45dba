"""``docs/ssh.md``: its commands, run in order against a real sshd and no API server, and its tables."""

from __future__ import annotations

import argparse
import ast
import base64
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.signatures import public_key_of
from signer.authority.ssh.derivation import derive_user_authority, parse_master_secret
from signer.offline.main import _parser
from tests.documents.generated import _command_of, parser_of
from tests.documents.markdown import ROOT, blocks
from tests.e2e.test_break_glass_drill import drill
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.openssh import find_openssh
from tests.support.ssh_server import SSHServer
from tests.unit.signer.authority.ssh.test_secret import PRIVATE, manifest

PAGE: Final = ROOT / "docs/ssh.md"
TEXT: Final = PAGE.read_text(encoding="utf-8")
PROGRAM: Final = "import sys; from signer.entry import main; sys.exit(main())"
PLACEHOLDER: Final = "BASE64-OF-32-RANDOM-BYTES"


def in_language(language: str) -> list[str]:
    return [block.text for block in blocks(PAGE) if block.language == language]


def without_api_server() -> list[str]:
    """The page's commands for one node; ``tests/e2e/test_break_glass_drill.py`` runs those of the drill."""
    lines = "".join(in_language("console")).splitlines()
    return [line for line in lines[: -len(drill())] if " node-access " not in line]


def login_by_exec() -> str:
    """The page's command with a temporary key and the master secret."""
    [found] = [line for line in without_api_server() if "--master-secret" in line and "--exec" in line]
    return found


@pytest.fixture
def kit(tmp_path: Path) -> Path:
    """A folder with the files that the page speaks of, and programs under the names that it uses."""
    [secret] = in_language("json")
    for value in range(2):
        secret = secret.replace(PLACEHOLDER, base64.b64encode(bytes([value] * 32)).decode(), 1)
    (tmp_path / "master-secret.json").write_text(secret)
    (tmp_path / "production-ssh-user.yaml").write_text(yaml.safe_dump(manifest()))
    programs = tmp_path / "programs"
    programs.mkdir()
    program = programs / "node-attestation-controller"
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{PROGRAM}" "$@"\n')
    program.chmod(0o755)
    return tmp_path


@pytest.fixture
def server(kit: Path) -> Iterator[SSHServer]:
    """Of node ``worker-1``. ``ssh`` finds it under that name, and ``revoked.krl`` is the file that it reads."""
    authority = derive_user_authority(parse_master_secret((kit / "master-secret.json").read_bytes())).public_key
    try:
        started = SSHServer(user_authority=authority)
    except MissingPart as missing:
        skip_or_fail(missing)
    with started:
        with (started.folder / "user-authorities").open("a") as file:
            file.write(f"{key_line(public_key_of(PRIVATE))}\n")
        (kit / "revoked.krl").symlink_to(started.revoked)
        ssh = kit / "programs" / "ssh"
        ssh.write_text(f'#!/bin/sh\nexec {shlex.join([str(find_openssh("ssh")), *started.options()])} "$@"\n')
        ssh.chmod(0o755)
        yield started


def shell(kit: Path, line: str) -> subprocess.CompletedProcess[str]:
    """Run a line of the page, with the controller's kubeconfig pointing nowhere."""
    return subprocess.run(
        ["sh", "-c", line],
        cwd=kit,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        env={**os.environ, "PATH": f"{kit / 'programs'}:{os.environ['PATH']}", "KUBECONFIG": "/nonexistent"},
    )


@pytest.mark.slow
def test_the_commands_work_with_every_api_server_down(kit: Path, server: SSHServer) -> None:
    """The drill: log in by each way, revoke, and be refused."""
    printed = {}
    for line in without_api_server():
        done = shell(kit, line)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}\n{server.log()}"
        printed[line] = done.stdout
    authority = printed["node-attestation-controller ssh-sign ca --master-secret master-secret.json"]
    assert authority in (server.folder / "user-authorities").read_text()
    assert sum("load average" in output for output in printed.values()) == 3
    listed = printed["ssh-keygen -Q -l -f revoked.krl"]
    assert "serial: 7" in listed
    assert "id: ssh-sign/alice" in listed
    refused = shell(kit, "ssh -i id root@worker-1 uptime")
    assert refused.returncode == 255
    assert "revoked by file" in server.log()
    assert shell(kit, login_by_exec()).returncode == 0


@pytest.mark.slow
def test_a_missing_revocation_list_refuses_every_login(kit: Path, server: SSHServer) -> None:
    """Test 24's pure half, and the warning of the page."""
    login = login_by_exec()
    server.revoked.unlink()
    assert shell(kit, login).returncode == 255
    server.revoked.touch()
    assert shell(kit, login).returncode == 0


def options_of(command: str) -> set[str]:
    actions = [action for action in _parser()._actions if isinstance(action, argparse._SubParsersAction)]
    return {option for action in actions[0].choices[command]._actions for option in action.option_strings}


def test_every_option_of_ssh_sign_is_described_and_no_other() -> None:
    named = set(re.findall(r"`(--[a-z-]+)", TEXT.split("## The break-glass authority")[1].split("## The network")[0]))
    assert named == (options_of("ssh-sign") - {"-h", "--help"}) | {"--ca"}


def test_every_option_of_node_access_config_is_described_and_no_other() -> None:
    named = set(re.findall(r"^\| `(--[a-z-]+)", TEXT.split("## The break-glass authority")[0], re.MULTILINE))
    found = {
        option
        for action in _command_of(parser_of("node-access"), "config")._actions
        for option in action.option_strings
    }
    usual = {"-h", "--help", "-n", "--namespace", "--kubeconfig", "--context", "--controller-namespace"}
    assert named == found - usual


def test_the_configuration_of_sshd_is_the_servers() -> None:
    [configuration] = in_language("text")
    names = [line.split()[0] for line in configuration.splitlines()]
    tried = (ROOT / "tests/support/ssh_server.py").read_text()
    assert names
    assert all(f"\n{name} " in tried for name in names)


def test_the_example_is_no_secret() -> None:
    """Somebody would copy it."""
    [secret] = in_language("json")
    assert set(json.loads(secret).values()) == {PLACEHOLDER}


IMAGE: Final = ROOT / "deploy/node/ssh/etc/ssh"


def test_the_images_sshd_takes_certificates_alone() -> None:
    """RFC 016: "Authorized keys and passwords must be disabled", and both files are empty on startup."""
    lines = (IMAGE / "node-access-sshd.conf").read_text().splitlines()
    options = dict(line.split(" ", 1) for line in lines if line and not line.startswith("#"))
    expected = {
        "AuthenticationMethods": "publickey",
        "AuthorizedKeysFile": "none",
        "AuthorizedKeysCommand": "none",
        "PasswordAuthentication": "no",
        "KbdInteractiveAuthentication": "no",
        "HostbasedAuthentication": "no",
        "GSSAPIAuthentication": "no",
        "KerberosAuthentication": "no",
        "PermitRootLogin": "prohibit-password",
    }
    assert expected.items() <= options.items()
    algorithms = options["PubkeyAcceptedAlgorithms"].split(",")
    assert all("-cert-v01@" in one for one in algorithms)
    for name in ("Ciphers", "MACs", "KexAlgorithms", "HostKeyAlgorithms", "CASignatureAlgorithms"):
        assert not {word for word in ("cbc", "sha1", "md5", "arcfour", "dss", "3des") if word in options[name]}, name
    for name in ("TrustedUserCAKeys", "RevokedKeys"):
        assert (IMAGE / "node-access" / Path(options[name]).name).read_bytes() == b""


def test_each_test_that_is_named_exists() -> None:
    named = re.findall(r"\[`(test_\w+)`\]\(\.\./(tests/[\w/]+\.py)\)", TEXT)
    assert TEXT.count("`test_") == len(named) > 0
    for name, file in named:
        tree = ast.parse((ROOT / file).read_text(encoding="utf-8"))
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert name in defined, (file, name)


def test_every_kept_requirement_names_a_test() -> None:
    rows = TEXT.split("| RFC 016 | here |")[1].splitlines()[2:]
    assert len(rows) == 16
    for row in rows:
        here = row.split("|")[2].strip()
        assert here.startswith(("kept", "done otherwise:", "not done"))
        assert here.startswith("not done") or "`test_" in here
