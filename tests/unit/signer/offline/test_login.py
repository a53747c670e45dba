"""``ssh-sign --exec`` with a program in the place of ssh: what it is given, its exit code, and that no key stays."""

from __future__ import annotations

import os
import pty
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from attestors.wire.ssh.certificate import FOREVER, parse_certificate_file
from attestors.wire.ssh.options import Extension
from signer.offline import login
from signer.offline.login import TemporaryKey
from tests.support.processes import wait_until
from tests.unit.signer.offline.conftest import Run

COMMAND = ("ssh-sign", "--master-secret", "master.json")
PROGRAM = "import sys; from signer.offline.main import main; sys.exit(main(sys.argv[1:]))"
NOTES = """\
#!/bin/sh
printf '%s\\n' "$@" > "$NOTES/arguments"
for word in "$@"; do
    case $word in
    IdentityFile=*)
        key=${word#IdentityFile=}
        cp -pL "$key" "$NOTES/key"
        ;;
    CertificateFile=*)
        cp -p "${word#CertificateFile=}" "$NOTES/certificate"
        stat -c %a "$(dirname "${word#CertificateFile=}")" > "$NOTES/mode"
        ;;
    esac
done
"""


@pytest.fixture
def ssh(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The program in the place of ssh; its notes are in the same folder, and the temporary keys in another."""
    keys = folder / "keys"
    keys.mkdir()
    program = folder / "ssh"
    program.touch(mode=0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setenv("NOTES", str(folder))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(keys))
    return program


def keys_left(folder: Path) -> list[str]:
    return [path.name for path in (folder / "keys").iterdir()]


def test_ssh_is_given_a_temporary_key_and_nothing_else_to_prove_itself(
    run: Run, ssh: Path, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ssh.write_text(NOTES)
    assert run(*COMMAND, "--principal", "admin@worker-1", "--exec", "-p", "2222", "worker-1", "uptime", "-p") == 0
    words = (folder / "arguments").read_text().splitlines()
    assert words[-7:] == ["-l", "admin", "-p", "2222", "worker-1", "uptime", "-p"]
    options = {word.partition("=")[0]: word.partition("=")[2] for word in words[1:-7:2]}
    assert options.keys() == {
        *("IdentityFile", "CertificateFile", "IdentitiesOnly", "IdentityAgent"),
        *("PreferredAuthentications", "ForwardAgent"),
    }
    assert [options[name] for name in ("IdentitiesOnly", "IdentityAgent", "ForwardAgent")] == ["yes", "none", "no"]
    assert (folder / "mode").read_text() == "700\n"
    assert stat.S_IMODE((folder / "key").stat().st_mode) == 0o600
    certificate = parse_certificate_file((folder / "certificate").read_bytes()).certificate
    assert certificate.valid_before - certificate.valid_after == 360
    assert list(map(str, certificate.principals)) == ["admin@worker-1"]
    assert certificate.extensions == (Extension.PERMIT_PORT_FORWARDING, Extension.PERMIT_PTY)
    assert keys_left(folder) == []
    printed = capfd.readouterr()
    assert printed.out == ""
    assert f"krl revoke {certificate.serial}" in printed.err


@pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 255", 255), ("exit 7", 7), ("kill -9 $$", 137)])
def test_the_exit_code_is_that_of_ssh(run: Run, ssh: Path, folder: Path, script: str, code: int) -> None:
    ssh.write_text(f"#!/bin/sh\n{script}\n")
    assert run(*COMMAND, "--exec", "worker-1") == code
    assert keys_left(folder) == []


def test_a_validity_that_is_asked_for(run: Run, ssh: Path, folder: Path) -> None:
    ssh.write_text(NOTES)
    assert run(*COMMAND, "--validity", "1m", "--exec", "worker-1") == 0
    certificate = parse_certificate_file((folder / "certificate").read_bytes()).certificate
    assert certificate.valid_before - certificate.valid_after == 120


def test_a_login_to_a_node_with_any_clock(run: Run, ssh: Path, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    ssh.write_text(NOTES)
    assert run(*COMMAND, "--principal", "root@worker-1", "--any-clock", "--exec", "worker-1") == 0
    certificate = parse_certificate_file((folder / "certificate").read_bytes()).certificate
    assert (certificate.valid_after, certificate.valid_before) == (0, FOREVER)
    assert list(map(str, certificate.principals)) == ["root@worker-1"]
    said = capfd.readouterr().err
    assert "for root@worker-1, WITHOUT END, whatever a node's clock says" in said
    assert f"krl revoke {certificate.serial}" in said
    assert keys_left(folder) == []


def test_where_there_are_no_files_in_memory(run: Run, ssh: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    ssh.write_text(NOTES)
    assert run(*COMMAND, "--exec", "worker-1") == 0
    assert stat.S_IMODE((folder / "key").stat().st_mode) == 0o600
    assert (folder / "key").read_text().startswith("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    assert keys_left(folder) == []


@pytest.mark.slow
def test_no_key_is_left_where_the_program_is_killed(ssh: Path, folder: Path) -> None:
    """With a certificate that never ends, it would open nodes for ever."""
    ssh.write_text(f'{NOTES}\necho > "$NOTES/started"\nexec sleep 60\n')
    command = [sys.executable, "-c", PROGRAM, *COMMAND, "--principal", "root", "--any-clock", "--exec", "worker-1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True) as running:
        wait_until((folder / "started").exists, "ssh runs")
        os.killpg(running.pid, signal.SIGKILL)
    assert (folder / "key").stat().st_size > 0, "ssh has read it"
    [left] = (folder / "keys").iterdir()
    assert [file.name for file in left.iterdir()] == ["key-cert.pub"]


def test_without_ssh(
    run: Run, ssh: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ssh.unlink()
    monkeypatch.setenv("PATH", str(folder))
    assert run(*COMMAND, "--exec", "worker-1") == 1
    assert "ssh is not installed" in capsys.readouterr().err
    assert keys_left(folder) == []


def test_a_wrong_request_leaves_no_key(run: Run, ssh: Path, folder: Path) -> None:
    assert run(*COMMAND, "--validity", "2h", "--exec", "worker-1") == 2
    assert keys_left(folder) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_goes_to_ssh_and_the_key_is_removed(ssh: Path, folder: Path, number: signal.Signals) -> None:
    ssh.write_text('#!/bin/sh\nls "$NOTES/keys" > "$NOTES/started"\nexec sleep 60\n')
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *COMMAND, "--exec", "worker-1"], stderr=subprocess.PIPE
    ) as running:
        wait_until(lambda: (folder / "started").exists() and bool((folder / "started").read_text()), "ssh runs")
        running.send_signal(number)
        assert running.wait(30) == 128 + number
    assert keys_left(folder) == []


@pytest.mark.slow
def test_an_interrupt_from_the_keyboard_is_for_ssh_alone(ssh: Path, folder: Path) -> None:
    """The terminal sends it to both; ssh passes it on to the remote command, and the session goes on."""
    ssh.write_text(
        '#!/bin/sh\ntrap \'echo interrupted > "$NOTES/interrupted"\' INT\necho > "$NOTES/started"\n'
        'while [ ! -e "$NOTES/interrupted" ]; do sleep 0.1; done\nexit 9\n'
    )
    command = [sys.executable, "-c", PROGRAM, *COMMAND, "--exec", "worker-1"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, start_new_session=True) as running:
        wait_until((folder / "started").exists, "ssh runs")
        os.killpg(running.pid, signal.SIGINT)
        assert running.wait(30) == 9
    assert keys_left(folder) == []


@pytest.mark.slow
@pytest.mark.parametrize(("source", "expected"), [("-", "from the terminal"), ("master.json", "from the file")])
def test_ssh_reads_the_terminal_where_standard_input_held_the_authority(
    ssh: Path, folder: Path, source: str, expected: str
) -> None:
    """Else an interactive shell would end at once."""
    ssh.write_text('#!/bin/sh\nread line\necho "$line" > "$NOTES/line"\n')
    file = folder / ("master.json" if source == "-" else "input")
    if source != "-":
        file.write_text("from the file\n")
    command = [sys.executable, "-c", PROGRAM, "ssh-sign", "--master-secret", source, "--exec", "worker-1"]
    child, terminal = pty.fork()
    if child == 0:
        os.dup2(os.open(file, os.O_RDONLY), 0)
        os.execv(command[0], command)  # noqa: S606
    os.write(terminal, b"from the terminal\n")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    os.close(terminal)
    assert (folder / "line").read_text() == f"{expected}\n"


def test_signals_are_handled_as_before_afterwards(run: Run, ssh: Path) -> None:
    ssh.write_text("#!/bin/sh\n")
    numbers = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    assert run(*COMMAND, "--exec", "worker-1") == 0
    assert [signal.getsignal(number) for number in numbers] == before


def test_where_keys_are_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "missing"))
    with TemporaryKey() as key:
        assert key.folder.parent == Path("/dev/shm")
        assert stat.S_IMODE(key.folder.stat().st_mode) == 0o700
    monkeypatch.setattr(login, "_IN_MEMORY", str(tmp_path / "missing"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with TemporaryKey() as key:
        assert key.folder.parent == tmp_path
    assert list(tmp_path.iterdir()) == []
