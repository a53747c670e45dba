"""The commands in containers, run by the shells that images have: dash and busybox."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Final

import pytest

from signer.gateway.commands import (
    SFTP_SERVERS,
    GatewayIdentity,
    SessionMark,
    end_command,
    leftovers_command,
    session_command,
    sftp_command,
    terminal_type,
)
from tests.support.binaries import MissingPart, skip_or_fail

MINE: Final = f"u-{os.getpid()}"
"""UID of a grant that no other worker of the tests ends."""
GATEWAY: Final = GatewayIdentity.of("gateway-0:2222")
MARK: Final = SessionMark("0123456789abcdef0123456789abcdef")


def dash(folder: Path) -> str:
    found = shutil.which("dash")
    assert found is not None
    return found


def busybox(folder: Path) -> str:
    found = shutil.which("busybox")
    if found is None:
        skip_or_fail(MissingPart("busybox"))
    (folder / "sh").symlink_to(str(found))
    return str(folder / "sh")


SHELLS: Final = pytest.mark.parametrize("shell", [dash, busybox])


def run(shell: str, words: tuple[str, ...], data: bytes = b"") -> tuple[int, bytes]:
    assert words[0] == "sh"
    done = subprocess.run([shell, *words[1:]], input=data, capture_output=True, timeout=30, check=False)
    return done.returncode, done.stdout


@SHELLS
def test_a_command_has_its_variables_input_and_exit_code(shell: object, tmp_path: Path) -> None:
    sh = shell(tmp_path)  # type: ignore[operator]
    words = session_command(MARK, "xterm-256color", 'echo "$NODE_ACCESS_SESSION $TERM"; cat; exit 7', "")
    assert run(sh, words, b"in") == (7, f"{MARK.value} xterm-256color\nin".encode())


@SHELLS
def test_without_a_terminal_term_stays(shell: object, tmp_path: Path) -> None:
    sh = shell(tmp_path)  # type: ignore[operator]
    code, out = run(sh, session_command(MARK, "", 'echo "${TERM-none}"', ""))
    assert (code, out) == (0, f"{os.environ.get('TERM', 'none')}\n".encode())


@SHELLS
@pytest.mark.parametrize("asked", ["$(touch /tmp/x)", "'; exit 3; '", '"', "a\nb", "-c", "%s", "\\"])
def test_what_is_asked_for_is_never_part_of_a_script(shell: object, asked: str, tmp_path: Path) -> None:
    """With a forced command, it is a variable and nothing else."""
    sh = shell(tmp_path)  # type: ignore[operator]
    words = session_command(MARK, "", asked, 'printf %s "$SSH_ORIGINAL_COMMAND"')
    assert run(sh, words) == (0, asked.encode())


@SHELLS
def test_a_shell_reads_its_input(shell: object, tmp_path: Path) -> None:
    sh = shell(tmp_path)  # type: ignore[operator]
    code, out = run(sh, session_command(MARK, "", "", ""), b'echo "$NODE_ACCESS_SESSION"; exit 5\n')
    assert (code, out.split(b"\n")[-2]) == (5, MARK.value.encode())


@SHELLS
def test_an_image_without_a_server_of_sftp_says_127(shell: object, tmp_path: Path) -> None:
    sh = shell(tmp_path)  # type: ignore[operator]
    if any(map(os.path.exists, SFTP_SERVERS)):
        words = tuple(word.replace("/usr/", "/nonexistent/") for word in sftp_command(MARK))
    else:
        words = sftp_command(MARK)
    assert run(sh, words) == (127, b"")


@SHELLS
def test_the_end_finds_every_process_that_has_kept_its_environment(shell: object, tmp_path: Path) -> None:
    """Also those that left their session; and no other connection's."""
    sh = shell(tmp_path)  # type: ignore[operator]
    mark, other = SessionMark.of_connection("u-1", GATEWAY), SessionMark.of_connection("u-1", GATEWAY)
    script = "sleep 300 & setsid sleep 300 & nohup sleep 300 >/dev/null 2>&1 & echo started; wait"
    ours, theirs = (
        subprocess.Popen([sh, *session_command(one, "", script, "")[1:]], stdout=subprocess.PIPE)
        for one in (mark, other)
    )
    try:
        for one in (ours, theirs):
            assert one.stdout is not None
            assert one.stdout.readline() == b"started\n"
        assert run(sh, end_command(mark, "KILL")) == (0, b"")
        assert ours.wait(timeout=10) == 128 + signal.SIGKILL, (
            "the outer shell, which has no mark, ends with the inner one"
        )
        _wait_for_end(mark)
        assert len(_having(other)) >= 4
    finally:
        run(sh, end_command(other, "KILL"))
        for one in (ours, theirs):
            one.wait(timeout=10)
            assert one.stdout is not None
            one.stdout.close()
    _wait_for_end(other)


def sleeper(sh: str, mark: SessionMark) -> subprocess.Popen[bytes]:
    """A session that runs."""
    process = subprocess.Popen(
        [sh, *session_command(mark, "", "echo started; sleep 300", "")[1:]], stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"started\n"
    return process


@SHELLS
def test_a_gateway_ends_what_its_predecessor_left_and_nothing_else(shell: object, tmp_path: Path) -> None:
    """Neither its own, nor that of a gateway in another place, nor another grant's."""
    sh = shell(tmp_path)  # type: ignore[operator]
    now = GatewayIdentity.of("gateway-0:2222")
    killed = sleeper(sh, SessionMark.of_connection(MINE, GATEWAY))
    others = [
        sleeper(sh, SessionMark.of_connection(uid, gateway))
        for uid, gateway in ((MINE, now), (MINE, GatewayIdentity.of("gateway-1:2222")), (f"{MINE}0", GATEWAY))
    ]
    try:
        assert run(sh, leftovers_command(MINE, now)) == (0, b"")
        assert killed.wait(timeout=10) == 128 + signal.SIGKILL
        assert [one.poll() for one in others] == [None] * 3
    finally:
        for mark in (SessionMark.of_grant(MINE), SessionMark.of_grant(f"{MINE}0")):
            run(sh, end_command(mark, "KILL"))
        for one in (killed, *others):
            one.wait(timeout=10)
            assert one.stdout is not None
            one.stdout.close()


@SHELLS
@pytest.mark.parametrize("beside", [".", "", "x"])
def test_no_variable_beside_its_mark_spares_a_process(shell: object, beside: str, tmp_path: Path) -> None:
    """The attack: a session sets the variable once more, within another one."""
    sh = shell(tmp_path)  # type: ignore[operator]
    mark = SessionMark.of_connection(MINE, GATEWAY)
    script = f"A=NODE_ACCESS_SESSION={beside} sh -c 'echo started; sleep 300'"
    process = subprocess.Popen([sh, *session_command(mark, "", script, "")[1:]], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        assert run(sh, end_command(mark, "KILL")) == (0, b"")
        _wait_for_end(mark)
    finally:
        process.kill()
        process.wait(timeout=10)
        assert process.stdout is not None
        process.stdout.close()


@SHELLS
def test_the_end_does_not_end_itself(shell: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a tools container, every command has the grant's mark."""
    sh = shell(tmp_path)  # type: ignore[operator]
    monkeypatch.setenv("NODE_ACCESS_SESSION", f"{MINE}.tools")
    assert run(sh, end_command(SessionMark.of_grant(MINE), "KILL")) == (0, b"")


def _having(mark: SessionMark) -> list[str]:
    return [path.parent.name for path in Path("/proc").glob("[0-9]*/environ") if mark.value.encode() in _read(path)]


def _wait_for_end(mark: SessionMark) -> None:
    """A process that was killed may be there for a moment."""
    deadline = time.monotonic() + 10
    while _having(mark):
        assert time.monotonic() < deadline, "processes go on"
        time.sleep(0.01)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("name", ["", "9", "KILL; rm", "-KILL", "kill"])
def test_other_signals_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no signal"):
        end_command(MARK, name)


def test_a_hostile_terminal_is_dumb() -> None:
    for stated in ("", "x" * 65, "-x", "xterm\n", "xterm;id", "\x1b[2J", "é"):
        assert terminal_type(stated) == "dumb"
    assert terminal_type("screen.xterm-256color") == "screen.xterm-256color"


def test_marks_differ() -> None:
    assert SessionMark.of_connection("u-1", GATEWAY) != SessionMark.of_connection("u-1", GATEWAY)
