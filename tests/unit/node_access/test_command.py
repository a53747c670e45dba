"""sshd's principals command, as a program: what it passes on, and what it does alone."""

from __future__ import annotations

import base64
import os
import socket
import stat
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from attestors.wire.ssh.certificate import SignedCertificate
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.krl import (
    AnyAuthority,
    CertificateRevocations,
    RevocationList,
    SerialRange,
    encode_revocation_list,
)
from attestors.wire.ssh.options import ForceCommand
from attestors.wire.ssh.signatures import public_key_of
from node_access.node_files import BREAK_GLASS_FILE, IMAGE_BREAK_GLASS_FILE, OFFLINE_REVOKED_KEYS_FILE
from node_access.records import Records
from node_access.requests import parse_request
from tests.support.access_node import IMAGE
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.openssh import find_openssh
from tests.unit.node_access.made import BREAK_GLASS, certificate, message

COMMAND: Final = IMAGE / "usr/lib/node-access/principals"
PYTHON: Final = Path("/usr/bin/python3")


class Command:
    """The program, with paths of a test's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            keygen = find_openssh("ssh-keygen")
        except MissingPart as missing:
            skip_or_fail(missing)
        text = COMMAND.read_text()
        for path, ours in (
            ('"/run/node-access/principals"', f'"{folder}/socket"'),
            ('"/etc/ssh/node-access/', f'"{folder}/'),
            ('"/run/node-access-fallback"', f'"{folder}/fallback"'),
            ('"/usr/bin/ssh-keygen"', f'"{keygen}"'),
            ("TIMEOUT_SECONDS = 2.0", "TIMEOUT_SECONDS = 0.3"),
        ):
            assert path in text
            text = text.replace(path, ours)
        (folder / "principals").write_text(text)
        (folder / "fallback").mkdir()
        (folder / BREAK_GLASS_FILE).write_text(f"{key_line(public_key_of(BREAK_GLASS))} of the safe\n")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        if not os.access(PYTHON, os.X_OK):
            skip_or_fail(MissingPart(f"the principals command needs {PYTHON}"))
        command = [str(PYTHON), "-ISE", str(self.folder / "principals"), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)

    def ask(self, signed: SignedCertificate, login: str = "root") -> str:
        done = self.run(*arguments(signed, login))
        assert done.returncode == 0, done.stderr
        return done.stdout

    def revoke_offline(self, serial: int) -> None:
        entry = CertificateRevocations(AnyAuthority(), (SerialRange.single(serial),))
        content = encode_revocation_list(RevocationList(version=1, generated=0, certificates=(entry,)))
        (self.folder / OFFLINE_REVOKED_KEYS_FILE).write_bytes(content)


def arguments(signed: SignedCertificate, login: str = "root") -> list[str]:
    one = signed.certificate
    encoded = base64.b64encode(signed.blob).decode("ascii")
    return [login, one.key_id, str(one.serial), one.authority.fingerprint, encoded]


@pytest.fixture
def command(tmp_path: Path) -> Command:
    return Command(tmp_path)


@contextmanager
def daemon(path: Path, answer: bytes) -> Iterator[list[bytes]]:
    """Answers one question."""
    asked: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                asked.append(connection.makefile("rb").read())
                connection.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield asked
        thread.join(timeout=30)


def test_it_passes_on_what_sshd_says(command: Command) -> None:
    signed = certificate(key_id="grant/ä")
    with daemon(command.folder / "socket", b"ok\nroot\nroot@*\n") as asked:
        assert command.ask(signed) == "root\nroot@*\n"
    assert asked == [message(signed, login="root")]
    assert parse_request(asked[0]).certificate == signed.certificate


def test_a_refusal_stays_one(command: Command) -> None:
    """A break-glass certificate that the daemon refuses is not let in by the command."""
    with daemon(command.folder / "socket", b"ok\n"):
        assert command.ask(certificate(by=BREAK_GLASS)) == ""
    assert list((command.folder / "fallback").iterdir()) == []


@pytest.mark.parametrize("answer", [b"", b"ok", b"root\n", b"ok\nroot", b"ok\n" + b"a" * 5000 + b"\n"])
def test_what_is_no_answer_lets_break_glass_in(command: Command, answer: bytes) -> None:
    with daemon(command.folder / "socket", answer):
        assert command.ask(certificate(by=BREAK_GLASS)) == "root\n"
    (command.folder / "socket").unlink()
    with daemon(command.folder / "socket", answer):
        assert command.ask(certificate()) == ""


def test_a_daemon_that_hangs(command: Command) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(command.folder / "socket"))
        listener.listen()
        assert command.ask(certificate(by=BREAK_GLASS)) == "root\n"


def test_without_the_daemon(command: Command) -> None:
    """Test 23. The login is left for the daemon, as the daemon reads it."""
    signed = certificate(by=BREAK_GLASS, key_id="")
    assert command.ask(signed) == "root\n"
    [left] = (command.folder / "fallback").iterdir()
    assert stat.S_IMODE(left.stat().st_mode) & 0o022 == 0
    [login] = Records(command.folder / "records", command.folder / "fallback").take_fallback_logins()
    assert login.monitor.pid == os.getpid()
    assert parse_request(login.message).certificate == signed.certificate
    assert command.ask(certificate()) == ""


def test_without_the_daemon_a_forced_command_opens_no_container(command: Command) -> None:
    forced = certificate(by=BREAK_GLASS, critical_options=(ForceCommand("uptime"),))
    assert command.ask(forced) == "root\n"
    assert command.ask(forced, login="shop_web-0_app") == ""
    assert command.ask(certificate(by=BREAK_GLASS), login="shop_web-0_app") == "shop_web-0_app\n"


@pytest.mark.parametrize("content", [b"", b"nonsense", b"\xff"])
def test_without_a_list_of_break_glass_authorities(command: Command, content: bytes) -> None:
    (command.folder / BREAK_GLASS_FILE).write_bytes(content)
    assert command.ask(certificate(by=BREAK_GLASS)) == ""
    (command.folder / BREAK_GLASS_FILE).unlink()
    assert command.ask(certificate(by=BREAK_GLASS)) == ""


def test_the_image_s_authorities_count_besides(command: Command) -> None:
    line = (command.folder / BREAK_GLASS_FILE).read_bytes()
    for policy, image in ((b"", line), (line, b"nonsense")):
        (command.folder / BREAK_GLASS_FILE).write_bytes(policy)
        (command.folder / IMAGE_BREAK_GLASS_FILE).write_bytes(image)
        assert command.ask(certificate(by=BREAK_GLASS)) == "root\n"
        assert command.ask(certificate()) == ""
    (command.folder / BREAK_GLASS_FILE).unlink()
    (command.folder / IMAGE_BREAK_GLASS_FILE).write_bytes(line)
    assert command.ask(certificate(by=BREAK_GLASS)) == "root\n"


def test_the_offline_list_counts(command: Command) -> None:
    command.revoke_offline(7)
    assert command.ask(certificate(by=BREAK_GLASS)) == ""
    assert command.ask(certificate(by=BREAK_GLASS, serial=8)) == "root\n"
    (command.folder / OFFLINE_REVOKED_KEYS_FILE).write_bytes(b"SSHKRL\n\0x")
    assert command.ask(certificate(by=BREAK_GLASS, serial=8)) == "", "a list that cannot be read lets nobody in"


@pytest.fixture
def full(command: Command) -> Iterator[Path]:
    """A file system in the place of ``/run/node-access-fallback`` on which there is no space."""
    folder = command.folder / "fallback"
    mount = ["mount", "-t", "tmpfs", "-o", "size=4k,mode=755", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False, capture_output=True, timeout=60).returncode != 0:
        skip_or_fail(MissingPart("a small file system needs root and the right to mount"))
    try:
        (folder / "0-0").write_bytes(bytes(4096))
        with pytest.raises(OSError, match="No space"):
            (folder / "x").write_bytes(b"x")
        (folder / "x").unlink()
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True, timeout=60)


def test_without_the_daemon_and_without_space(command: Command, full: Path) -> None:
    """Somebody must get in to make some. The list of revocations counts all the same."""
    command.revoke_offline(8)
    signed = certificate(by=BREAK_GLASS)
    done = command.run(*arguments(signed))
    assert (done.returncode, done.stdout) == (0, "root\n")
    assert "the login is not left for node-access-sessions" in done.stderr
    assert command.ask(certificate(by=BREAK_GLASS, serial=8)) == ""
    assert command.ask(certificate()) == ""
    assert [path.name for path in full.iterdir()] == ["0-0"], "and takes none"


@pytest.mark.parametrize("count", [0, 4, 6])
def test_other_arguments(command: Command, count: int) -> None:
    done = command.run(*["x"] * count)
    assert (done.returncode, done.stdout) == (1, "")
