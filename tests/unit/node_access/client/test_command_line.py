"""Arguments, command lines of other programs, keys, and what is asked at a terminal."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.signatures import public_key_of
from node_access.client import access, archive, programs, touching
from node_access.client.cli import command_words, main, parser
from node_access.client.errors import ClientFailed, WrongUse
from node_access.client.grants import AllNodesTarget
from node_access.client.heartbeat import touched
from node_access.client.keys import existing_key, fresh_key, read_fresh_key
from node_access.client.manifests import GrantRequest
from node_access.client.node_files import needs_touch, node_access_of
from node_access.client.openssh import protocol_options, version_of
from node_access.client.programs import ProgramFailed, run_bounded
from node_access.client.sessions import forward_words, run_program, scp_words, ssh_words
from node_access.client.terminal import ask, confirm, say, wrapped
from tests.support.openssh import public_keys
from tests.unit.node_access.client.made import KEY, grant

CONFIG = Path("/x/config")
ALIAS = "worker-1.production"


def test_the_nodes_command_has_options_of_its_own() -> None:
    assert command_words(["ssh", "a.b", "--keep", "--", "ls", "--", "-l"]) == (
        ["ssh", "a.b", "--keep"],
        ["ls", "--", "-l"],
    )
    assert command_words(["scp", "--", "a"]) == (["scp", "--", "a"], [])
    words = ssh_words(CONFIG, ALIAS, ["-oProxyCommand=x", "-l"], ["LogLevel=ERROR"])
    assert words[1:] == ["-F", str(CONFIG), "-o", "LogLevel=ERROR", ALIAS, "--", "-oProxyCommand=x", "-l"]
    assert "--" not in ssh_words(CONFIG, ALIAS, [])


def test_forwards_and_copies() -> None:
    assert forward_words(CONFIG, ALIAS, ["80:a:80"])[3:] == [
        "-N",
        "-o",
        "ExitOnForwardFailure=yes",
        "-L",
        "80:a:80",
        ALIAS,
    ]
    words = scp_words(CONFIG, ALIAS, ["-r", "dir/a:b", "worker-1:/x y"], ["-r"])
    assert words[3:] == ["-r", "--", "-r", "dir/a:b", f"{ALIAS}:/x y"]


@pytest.mark.parametrize(
    "words",
    [
        ["ssh", "-oProxyCommand=x.production"],
        ["ssh", "Worker.production"],
        ["ssh", "a.b", "--login", "-root"],
        ["ssh", "a.b", "--duration", "1d"],
        ["ssh", "a.b", "--cidr", "198.51.100.7/24"],
        ["ssh", "a.b", "--identity", "/nowhere/id"],
        ["scp", "a", "b"],
        ["scp", "a.b:x", "c.d:y"],
        ["forward", "a.b", "-R1:a:2"],
        ["ssh"],
        ["ssh", "a.b", "--no-such-option"],
        ["ssh", "a.b", "--timeout", "soon"],
        ["scp"],
        ["forward", "a.b"],
    ],
)
def test_wrong_use_has_the_exit_code_of_ssh(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "kubectl"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    code = main([*words, "--bastion", "None", "--kubectl", str(program), "--folder", str(tmp_path / "f")])
    assert code == 255
    assert not (tmp_path / "f").exists()
    capsys.readouterr()


def test_wrong_use_of_other_commands_is_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["agent", "x", "--folder", str(tmp_path)]) == 2
    assert main(["grant", "create", "--no-such-option"]) == 2
    assert main(["ssh-to"]) == 2
    assert main(["ssh", "--help"]) == 0
    assert main(["grant", "list", "--kubectl", "no-such-kubectl", "--context", "x"]) == 1
    assert "node-access: error: 'x' is no live grant of this machine" in capsys.readouterr().err


def test_a_fault_of_this_program_does_not_look_like_the_remote_commands(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Python's own exit code for an exception is 1."""
    monkeypatch.setattr("node_access.client.sessions.client_of", lambda options: 1 / 0)
    assert main(["ssh", "a.b"]) == 255
    assert "ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_it_ends_by_the_signal_that_ended_it_or_its_program(number: int, tmp_path: Path) -> None:
    """Exit codes 129 to 143 may be the remote command's."""
    body = (
        "import os, sys\nfrom node_access.client import cli, sessions\n"
        "def ended(options):\n    try:\n        return sessions.run_program([sys.executable, '-c', {program!r}])\n"
        "    finally:\n        print('cleaned up', flush=True)\n"
        "sessions.ssh = ended\nsys.exit(cli.main(['ssh', 'a.b']))"
    )
    program = f"import os, signal; signal.signal({number:d}, signal.SIG_DFL); os.kill(os.getpid(), {number:d})"
    ran = subprocess.run(
        [sys.executable, "-c", body.format(program=program)], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ran.returncode, ran.stdout) == (-number, "cleaned up\n"), ran.stderr


def test_messages_are_wrapped_for_a_person_alone(capsys: pytest.CaptureFixture[str]) -> None:
    text = "waiting for " + "a word and " * 20 + "y" * 90
    lines = wrapped(text, 80)
    assert all(len(line) <= 80 for line in lines[:-1])
    assert lines[-1] == f"  {'y' * 90}"
    assert " ".join(line.strip() for line in lines) == text
    assert wrapped("", 80) == [""]
    say(text)
    assert capsys.readouterr().err == f"{text}\n"


def test_every_command_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["ssh"], ["scp"], ["forward"], ["grant", "create"], ["grant", "approve"], ["config"], ["doctor"]):
        with pytest.raises(SystemExit) as ended:
            parser("kubectl node-access").parse_args([*words, "--help"])
        assert ended.value.code == 0
    assert "kubectl node-access" in capsys.readouterr().out


def test_keys(tmp_path: Path) -> None:
    made = fresh_key()
    assert read_fresh_key(made.text).public == made.public
    assert "private" not in repr(made)
    for content in (b"", b"x", b"-----BEGIN OPENSSH PRIVATE KEY-----\n"):
        with pytest.raises(ValueError, match="not an Ed25519 private key"):
            read_fresh_key(content)
    (tmp_path / "id.pub").write_text(f"{key_line(made.public)} me@home\n")
    assert existing_key(str(tmp_path / "id")).identity == str(tmp_path / "id.pub")
    (tmp_path / "id").touch()
    assert existing_key(str(tmp_path / "id.pub")).identity == str(tmp_path / "id")
    (tmp_path / "bad.pub").write_text('command="x" ssh-ed25519 AAAA\n')
    with pytest.raises(WrongUse):
        existing_key(str(tmp_path / "bad"))
    assert [name for name, key in public_keys().items() if needs_touch(key)] == ["sk-ed25519", "sk-ecdsa"]


def test_a_connection_for_a_moment_needs_no_person() -> None:
    direct = node_access_of(grant(), public_key_of(KEY), int(time.time()))
    there = (("worker-1.production", "root"),)
    assert touched(direct, ()) == there
    security_key = replace(direct.grant, public_key=public_keys()["sk-ed25519"])
    assert touched(replace(direct, grant=security_key), ()) == ()
    every = replace(direct, grant=replace(direct.grant, target=AllNodesTarget()))
    assert touched(every, ()) == ()
    assert touched(every, ("worker-1",)) == there


def test_exit_codes_are_the_programs() -> None:
    assert run_program([sys.executable, "-c", "raise SystemExit(7)"]) == 7
    assert run_program([sys.executable, "-c", "raise SystemExit(255)"]) == 255
    with pytest.raises(ClientFailed, match="ended by signal 9"):
        run_program([sys.executable, "-c", "import os; os.kill(os.getpid(), 9)"])
    with pytest.raises(ClientFailed):
        run_program(["/nowhere/ssh"])
    with pytest.raises(ClientFailed):
        touching.program("no-such-program")


@pytest.mark.parametrize(
    ("version", "legacy", "to_container", "options"),
    [
        ("OpenSSH_9.2p1 Debian-2", False, True, ()),
        ("OpenSSH_9.2p1 Debian-2", True, True, ("-O",)),
        ("OpenSSH_8.9p1", False, True, ("-s",)),
        ("OpenSSH_8.9p1", False, False, ()),
        ("OpenSSH_8.7p1", True, False, ("-O",)),
        ("OpenSSH_8.6p1", False, True, ()),
        ("OpenSSH_8.6p1", True, True, ()),
        ("OpenSSH_for_Windows_8.9p1, LibreSSL", False, True, ("-s",)),
        ("dropbear", False, True, ()),
        ("dropbear", True, True, ("-O",)),
    ],
)
def test_scp_copies_by_sftp_where_it_can(
    version: str, legacy: bool, to_container: bool, options: tuple[str, ...]
) -> None:
    """Into containers, whose images seldom have a program scp."""
    assert protocol_options(version_of(version), legacy=legacy, to_container=to_container) == options


def test_a_program_that_does_not_end_is_killed() -> None:
    with pytest.raises(ProgramFailed, match="did not end"):
        run_bounded(["sleep", "60"], maximum_bytes=1, seconds=0.1, environment=os.environ)


def test_standard_input_reaches_a_program() -> None:
    found = run_bounded(["cat"], maximum_bytes=9, seconds=30, standard_input=b"given", environment=os.environ)
    assert (found.code, found.output) == (0, b"given")


def test_nobody_is_asked_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("yes\n"))
    assert not confirm("really?")
    with pytest.raises(ClientFailed, match="--bastion None"):
        ask("address?")


def test_names_of_grants_are_names_of_objects() -> None:
    request = GrantRequest("production", grant().target, ("root",))
    names = {access.new_name(request) for _ in range(20)}
    assert len(names) == 20
    assert all(name.startswith("worker-1-") and len(name) <= 63 for name in names)


def test_it_needs_cryptography_and_nothing_else() -> None:
    """So one file is enough on a machine that has it (``archive``)."""
    body = "import sys; before = set(sys.modules); import node_access.client.cli; print(*set(sys.modules) - before)"
    found = subprocess.run([sys.executable, "-c", body], capture_output=True, text=True, check=True).stdout.split()
    others = {name.partition(".")[0] for name in found} - sys.stdlib_module_names
    assert others <= {"attestors", "node_access", "cryptography", "_cffi_backend", "_openssl"}


def test_without_cryptography_it_says_so(tmp_path: Path) -> None:
    assert archive.main([str(tmp_path / "node-access")]) == 0
    words = [sys.executable, "-I", "-S", str(tmp_path / "node-access"), "ssh", "a.b"]  # -S: without site-packages
    ran = subprocess.run(words, capture_output=True, text=True, check=False)
    assert ran.returncode == 255
    assert "error: No module named 'cryptography': install it with pip" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_it_starts_itself_without_the_current_folder() -> None:
    assert programs.own_command()[1:3] == ["-P", "-m"]
