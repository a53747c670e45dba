"""Sessions from their first question to their end, with a kernel of folders and a clock of our own."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from attestors.wire.ssh.certificate import FOREVER, SignedCertificate
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.krl import (
    AnyAuthority,
    CertificateRevocations,
    RevocationList,
    SerialRange,
    encode_revocation_list,
)
from attestors.wire.ssh.principals import PlainPrincipal
from attestors.wire.ssh.signatures import public_key_of
from node_access.machine import Left, Machine, NotAsked, Trace
from node_access.node_files import NodeFiles
from node_access.principals import LoginRefused, accepted_principals
from node_access.processes import Processes
from node_access.records import Records
from node_access.registry import (
    HANG_UP_SECONDS,
    IDLE_TICK_SECONDS,
    MAXIMUM_SESSIONS,
    TICK_SECONDS,
    UNKNOWN_SECONDS,
    Sessions,
)
from node_access.reports import Level, Report
from node_access.requests import RequestRefused
from node_access.values import Connection, Login, Opens, ProcessIdentity, Session
from tests.unit.node_access.made import (
    BOOT,
    BREAK_GLASS,
    COMMAND,
    MONITOR,
    NOW,
    OUTSIDE,
    PATH,
    SHELL,
    UNPRIVILEGED,
    Kernel,
    Terminal,
    certificate,
    message,
    open_terminal,
    session,
)

SECOND = PATH.replace("@1-", "@2-")


@dataclass(slots=True)
class FakeClock:
    elapsed: float = BOOT
    ahead: float = 0.0
    """By so much the clock was set since."""

    def now(self) -> float:
        return NOW + self.elapsed - BOOT + self.ahead

    def monotonic(self) -> float:
        return self.elapsed


@dataclass(slots=True)
class World:
    root: Path
    kernel: Kernel
    clock: FakeClock = field(default_factory=FakeClock)
    reports: list[Report] = field(default_factory=list)
    sessions: Sessions = field(init=False)

    def __post_init__(self) -> None:
        (self.root / "files").mkdir()
        (self.root / "fallback").mkdir()
        self.revoke()
        self.file("node_name").write_text("worker-1\n")
        self.file("break_glass_ca_keys").write_text(f"{key_line(public_key_of(BREAK_GLASS))} of the safe\n# no key\n")
        self.restart()

    def file(self, name: str) -> Path:
        return self.root / "files" / name

    def restart(self) -> None:
        """Another process of the program."""
        records = Records(self.root / "records", self.root / "fallback")
        files = NodeFiles(self.root / "files")
        self.sessions = Sessions(self.kernel.machine, files, records, self.reports.append, self.clock)
        self.sessions.restore()

    def revoke(self, *serials: int) -> None:
        entry = CertificateRevocations(AnyAuthority(), tuple(map(SerialRange.single, serials)))
        written = self.file("new")
        written.write_bytes(
            encode_revocation_list(RevocationList(version=1, generated=0, certificates=(entry,) if serials else ()))
        )
        written.replace(self.file("revoked_keys"))

    def present(self, signed: SignedCertificate, *, login: str = "alice", path: str = PATH) -> Connection:
        """A client presents it on a new connection."""
        self.kernel.log_in(path)
        self.sessions.answer(COMMAND, message(signed, login=login))
        return self.kernel.machine.asking(COMMAND)[0]

    def log_in(self, signed: SignedCertificate, *, login: str = "alice", path: str = PATH) -> Connection:
        """... and has the key. sshd's three processes of the connection move on, so that another can begin."""
        connection = self.present(signed, login=login, path=path)
        self.kernel.end(UNPRIVILEGED)
        assert self.sessions.settle(connection)
        return connection

    def pass_time(self, seconds: float) -> float:
        self.clock.elapsed += seconds
        return self.sessions.tick()

    def said(self) -> str:
        return "\n".join(map(str, self.reports))

    def records(self) -> list[str]:
        return sorted(path.name for path in (self.root / "records").glob("*.json"))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, Kernel(tmp_path / "kernel"))


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    with open_terminal() as made:
        yield made


def test_a_session_from_login_to_end(world: World) -> None:
    world.log_in(certificate())
    assert "session of alice by 'grant/alice' (serial 7, CA SHA256:" in world.said()
    assert "logged in, until 2027-01-15T09:00:00Z" in world.said()
    assert world.pass_time(3599) == TICK_SECONDS
    assert not world.kernel.killed()
    assert 0 < world.pass_time(1) <= HANG_UP_SECONDS
    assert "ends: Expired" in world.said()
    assert not world.kernel.killed(), "SIGHUP first"
    world.pass_time(HANG_UP_SECONDS)
    assert world.kernel.killed()
    world.kernel.disconnect()
    assert world.pass_time(1) == IDLE_TICK_SECONDS
    assert world.records() == []


def test_a_login_of_which_nothing_shows_yet(world: World) -> None:
    connection = world.present(certificate())
    assert [one.connection for one in world.sessions.undecided()] == [connection]
    assert not world.sessions.settle(connection)
    world.kernel.start(UNPRIVILEGED, parent=MONITOR, state="Z")
    assert not world.sessions.settle(connection), "its parent may take note, or end"
    world.kernel.end(UNPRIVILEGED)
    assert world.sessions.settle(connection)
    assert world.sessions.undecided() == []


def test_a_login_that_fails(world: World) -> None:
    """sshd's privileged process ends with the other one, and never takes note of it."""
    connection = world.present(certificate())
    world.kernel.end(UNPRIVILEGED)
    world.kernel.end(MONITOR)
    assert world.sessions.settle(connection)
    assert "logged in" not in world.said()
    world.kernel.disconnect()
    world.pass_time(1)
    assert world.records() == []
    assert "is over" not in world.said()


def test_the_certificate_of_the_last_question_counts(world: World) -> None:
    connection = world.present(certificate(serial=1, key_id="grant/bob", valid_before=NOW + 9000))
    world.sessions.answer(COMMAND, message(certificate(serial=2)))
    world.kernel.end(UNPRIVILEGED)
    world.sessions.settle(connection)
    assert "(serial 2, CA" in world.said()
    world.pass_time(3600)
    assert "ends: Expired" in world.said()


def test_an_agent_that_offers_an_expired_certificate_first(world: World) -> None:
    """ssh-agent before OpenSSH 10.1 keeps them. The connection must live until the next one is offered."""
    world.kernel.log_in()
    with pytest.raises(LoginRefused, match="run out"):
        world.sessions.answer(COMMAND, message(certificate(serial=1, valid_before=NOW)))
    world.pass_time(0)
    world.sessions.answer(COMMAND, message(certificate(serial=2)))
    world.kernel.end(UNPRIVILEGED)
    world.pass_time(HANG_UP_SECONDS)
    assert not world.kernel.killed()
    assert "(serial 2, CA" in world.said()


def test_a_login_without_the_daemon_that_has_run_out_meanwhile_ends_at_once(world: World) -> None:
    world.kernel.log_in()
    fall_back(world, message(certificate(by=BREAK_GLASS, valid_before=NOW)))
    world.pass_time(0)
    world.pass_time(TICK_SECONDS)
    assert "ends: Expired" in world.said()


def test_more_sessions_than_there_are_connections(world: World) -> None:
    """None is registered, but who is there already may ask again."""
    world.present(certificate())
    kept = world.sessions._sessions
    kept.update({one.connection: one for one in map(session, range(2, MAXIMUM_SESSIONS + 1))})
    assert len(kept) == 512
    world.sessions.answer(COMMAND, message(certificate(serial=8)))
    for pid in (MONITOR, UNPRIVILEGED, COMMAND):
        world.kernel.end(pid)
    with pytest.raises(LoginRefused, match="too many sessions"):
        world.present(certificate(), path=SECOND)
    del kept[session(2).connection]
    world.sessions.answer(COMMAND, message(certificate()))


def test_what_is_remembered_of_a_connection_is_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = world.log_in(certificate())
    many = tuple(ProcessIdentity(OUTSIDE + number, 1) for number in range(5000))
    monkeypatch.setattr(Machine, "members", lambda _, __: many)
    monkeypatch.setattr(Processes, "runs", lambda _, __: True)
    for _ in range(2):
        world.pass_time(10)
        assert len(world.sessions._notes[connection].seen) == 4096


@pytest.mark.parametrize(
    ("known", "message_shown"),
    [(True, "its certificate has run out."), (False, "its certificate is not known.")],
)
def test_what_is_said_at_the_end(world: World, terminal: Terminal, known: bool, message_shown: str) -> None:
    world.log_in(certificate())
    world.kernel.start(SHELL, parent=MONITOR, terminal=terminal.device, stream=terminal.path)
    if not known:
        for file in (world.root / "records").iterdir():
            file.unlink()
        world.restart()
        world.pass_time(0)
    world.pass_time(3600)
    assert terminal.shown()[-1] == f"This session ends: {message_shown}"


def test_nobody_asks_for_a_connection_that_is_logged_in(world: World) -> None:
    world.log_in(certificate())
    world.kernel.start(COMMAND, parent=MONITOR)
    with pytest.raises(NotAsked, match="logged in already"):
        world.sessions.answer(COMMAND, message(certificate(serial=8, valid_before=NOW + 9000)))


def test_what_is_refused_is_not_registered(world: World) -> None:
    world.kernel.log_in()
    with pytest.raises(RequestRefused):
        world.sessions.answer(COMMAND, b"")
    world.revoke(7)
    with pytest.raises(LoginRefused):
        world.sessions.answer(COMMAND, message(certificate()))
    with pytest.raises(NotAsked):
        world.sessions.answer(1, message(certificate(serial=8)))
    assert world.records() == []


def test_a_revoked_certificate(world: World, terminal: Terminal) -> None:
    world.kernel.start(SHELL)
    world.log_in(certificate())
    world.kernel.start(SHELL, parent=MONITOR, terminal=terminal.device, stream=terminal.path)
    world.revoke(7)
    world.pass_time(TICK_SECONDS)
    assert "ends: Revoked" in world.said()
    world.pass_time(TICK_SECONDS)
    assert world.kernel.killed()
    assert terminal.shown() == ["This session ends: its certificate is revoked."]


def test_warnings(world: World, terminal: Terminal) -> None:
    world.log_in(certificate())
    world.kernel.start(SHELL, parent=MONITOR, terminal=terminal.device, stream=terminal.path)
    for seconds in (2999, 1, 100, 379, 1, 1):
        world.pass_time(seconds)
    assert terminal.shown() == [f"This session ends in {left} minutes, unless it is prolonged." for left in (10, 2)]


def test_a_renewal_prolongs(world: World) -> None:
    world.log_in(certificate())
    for pid in (MONITOR, COMMAND):
        world.kernel.end(pid)
    world.kernel.start(SHELL)
    renewed = certificate(serial=8, valid_before=NOW + 7200)
    world.log_in(renewed, path=SECOND)
    assert "prolonged by the certificate with serial 8, until 2027-01-15T10:00:00Z" in world.said()
    world.restart()
    world.pass_time(3600)
    assert "ends" not in world.said()
    world.revoke(8)
    world.pass_time(TICK_SECONDS)
    world.pass_time(TICK_SECONDS)
    assert world.kernel.killed()


def test_a_restart_keeps_everything(world: World) -> None:
    """Test 62: also what a login still waits for."""
    connection = world.present(certificate())
    world.restart()
    assert [one.connection for one in world.sessions.undecided()] == [connection]
    world.kernel.end(UNPRIVILEGED)
    assert world.sessions.settle(connection)
    world.restart()
    world.pass_time(3600)
    world.pass_time(HANG_UP_SECONDS)
    assert world.kernel.killed()


@pytest.mark.parametrize("content", ["", "{}", "[]", '{"controlGroup": "x"}'])
def test_a_record_that_cannot_be_read(world: World, content: str) -> None:
    """Its connection ends, as one of which nothing is known."""
    world.log_in(certificate())
    [name] = world.records()
    (world.root / "records" / name).write_text(content)
    world.restart()
    assert "cannot be read" in world.said()
    world.pass_time(0)
    world.pass_time(UNKNOWN_SECONDS - 1)
    assert not world.kernel.killed()
    world.pass_time(10)
    assert world.kernel.killed()
    assert "ends: UnknownCertificate" in world.said()


def fall_back(world: World, content: bytes, name: str = f"{MONITOR}-11") -> None:
    (world.root / "fallback" / name).write_bytes(content)


def test_a_login_without_the_daemon_is_adopted(world: World) -> None:
    world.kernel.log_in()
    fall_back(world, message(certificate(by=BREAK_GLASS)))
    world.pass_time(0)
    assert "logged in while this program did not run" in world.said()
    assert list((world.root / "fallback").iterdir()) == []
    assert world.sessions.undecided() == [], "nothing shows whether it succeeded, so it prolongs nothing"
    world.pass_time(3600)
    world.pass_time(HANG_UP_SECONDS)
    assert world.kernel.killed()


def test_partial_files_of_killed_commands_hide_no_login(world: World) -> None:
    world.kernel.log_in()
    for number in range(300):
        fall_back(world, b"", f".{number}")
    fall_back(world, message(certificate(by=BREAK_GLASS)))
    world.pass_time(0)
    assert "logged in while this program did not run" in world.said()


@pytest.mark.parametrize("content", [b"", b"\0\0\0\0"], ids=["nothing", "no certificate"])
def test_what_is_no_login_without_the_daemon(world: World, content: bytes) -> None:
    world.kernel.log_in()
    fall_back(world, content)
    fall_back(world, message(certificate(by=BREAK_GLASS)), f"{MONITOR}-12")
    fall_back(world, message(certificate(by=BREAK_GLASS)), f"{OUTSIDE}-1")
    fall_back(world, message(certificate(by=BREAK_GLASS)), "x")
    fall_back(world, b"", ".partial")
    world.pass_time(0)
    assert world.records() == []
    assert [path.name for path in (world.root / "fallback").iterdir()] == [".partial"]


def test_a_connection_before_its_question_is_left_alone(world: World) -> None:
    world.kernel.connect()
    world.pass_time(0)
    world.pass_time(UNKNOWN_SECONDS - 1)
    world.kernel.disconnect()
    world.kernel.connect()
    world.pass_time(6)
    assert not world.kernel.killed()


def test_a_missing_list_is_an_alarm(world: World) -> None:
    """Test 24: sessions go on, judged by the last lists."""
    world.log_in(certificate())
    world.file("revoked_keys").unlink()
    world.pass_time(1)
    assert "nobody is let in" in world.said()
    assert "readable again" not in world.said()
    world.pass_time(1)
    [alarm] = [report for report in world.reports if report.level is Level.ALERT]
    assert "nobody is let in: revoked_keys: No such file or directory" in alarm.text
    assert not world.kernel.killed()
    world.kernel.end(MONITOR)
    world.kernel.end(COMMAND)
    with pytest.raises(LoginRefused, match="nobody is let in"):
        world.present(certificate(by=BREAK_GLASS), path=SECOND)
    world.revoke()
    world.pass_time(1)
    world.pass_time(1)
    assert world.said().count("the revocation lists are readable again") == 1


def test_a_list_revokes_while_the_other_cannot_be_read(world: World) -> None:
    world.log_in(certificate())
    world.file("revoked_keys_offline").write_bytes(b"x")
    world.pass_time(1)
    world.revoke(7)
    world.pass_time(TICK_SECONDS)
    assert "ends: Revoked" in world.said()


def test_what_a_list_said_counts_while_it_cannot_be_read(world: World) -> None:
    files = NodeFiles(world.root / "files")
    world.revoke(7)
    world.file("revoked_keys_offline").write_bytes(b"x")
    assert files.last_revocations().revoke(certificate().certificate)
    world.file("revoked_keys").unlink()
    assert files.last_revocations().revoke(certificate().certificate)
    world.file("revoked_keys_offline").unlink()
    world.revoke()
    assert not files.last_revocations().revoke(certificate().certificate)


@pytest.mark.parametrize(
    ("name", "content"),
    [("revoked_keys", b"ssh-ed25519 AAAA"), ("revoked_keys_offline", b"x"), ("revoked_keys_offline", bytes(5 << 20))],
)
def test_a_list_that_cannot_be_read_lets_nobody_in(world: World, name: str, content: bytes) -> None:
    world.file(name).write_bytes(content)
    with pytest.raises(LoginRefused, match=name):
        world.present(certificate())


def test_an_empty_list_is_the_image_s(world: World) -> None:
    world.file("revoked_keys").write_bytes(b"")
    world.log_in(certificate())


@pytest.mark.parametrize(("name", "content"), [("node_name", b"a b"), ("node_name", b""), ("node_name", b"\xff")])
def test_a_name_that_is_none_opens_nothing(world: World, name: str, content: bytes) -> None:
    world.file(name).write_bytes(content)
    with pytest.raises(LoginRefused, match="no attested name"):
        world.present(certificate())


@pytest.mark.parametrize("content", [b"nonsense", b"\xff", b"ssh-ed25519 AAAA"])
def test_keys_that_cannot_be_read_open_nothing(world: World, content: bytes) -> None:
    world.file("break_glass_ca_keys").write_bytes(content)
    world.file("node_name").unlink()
    with pytest.raises(LoginRefused, match="none for emergencies"):
        world.present(certificate(by=BREAK_GLASS))


def test_the_image_s_authorities_count_besides(world: World) -> None:
    """Each of the two files alone, and neither is in the other's way. The online authority is in none of them."""
    line = world.file("break_glass_ca_keys").read_bytes()
    world.file("node_name").unlink()
    for policy, image in ((line, b"nonsense"), (b"", line), (b"nonsense", line), (None, line)):
        world.file("break_glass_ca_keys").unlink(missing_ok=True)
        if policy is not None:
            world.file("break_glass_ca_keys").write_bytes(policy)
        world.file("break_glass_ca_keys_image").write_bytes(image)
        node = NodeFiles(world.root / "files").node()
        opened = accepted_principals("root", certificate(by=BREAK_GLASS).certificate, node, Opens.NODE)
        assert opened == (PlainPrincipal("root"),)
        with pytest.raises(LoginRefused, match="none for emergencies"):
            accepted_principals("root", certificate().certificate, node, Opens.NODE)


@pytest.mark.parametrize("line", [b"nonsense", b"\xff", b"ssh-ed25519 AAAA", b"ssh-dss AAAAB3NzaC1kc3M="])
def test_one_line_that_cannot_be_read_locks_nobody_out(world: World, line: bytes) -> None:
    """sshd and the command, too, read the others. Break-glass is tried on the day on which it must work."""
    good = world.file("break_glass_ca_keys").read_bytes()
    world.file("break_glass_ca_keys").write_bytes(line + b"\n" + good)
    world.file("node_name").unlink()
    world.present(certificate(by=BREAK_GLASS))


def test_what_has_left_is_reported(world: World) -> None:
    """Test 64."""
    world.log_in(certificate())
    world.kernel.start(SHELL, parent=MONITOR)
    world.pass_time(0)
    world.kernel.end(SHELL)
    world.kernel.start(SHELL, group="/system.slice/x.service")
    world.kernel.start(OUTSIDE, parent=MONITOR, group="/system.slice/x.service")
    world.revoke(7)
    world.pass_time(TICK_SECONDS)
    world.pass_time(TICK_SECONDS)
    assert f"process {SHELL} ('sleep) 1') has left the connection's unit, and goes on" in world.said()
    assert f"process {OUTSIDE} ('sleep) 1') had left the connection's unit, and was ended, too" in world.said()


def test_the_kill_does_not_wait_for_what_other_processes_hold(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.log_in(certificate())
    world.revoke(7)
    world.pass_time(TICK_SECONDS)
    killed: list[bool] = []

    def left(_: Machine, __: Trace) -> list[Left]:
        killed.append(world.kernel.killed())
        return []

    monkeypatch.setattr(Machine, "left", left)
    world.pass_time(TICK_SECONDS)
    assert killed == [True]


def test_what_outlives_a_client_s_own_end_is_reported(world: World) -> None:
    world.log_in(certificate())
    world.kernel.start(SHELL, parent=MONITOR)
    world.pass_time(0)
    world.kernel.disconnect()
    world.pass_time(TICK_SECONDS)
    assert f"process {SHELL} has left the unit, and goes on" in world.said()
    assert "is over" in world.said()


def no_space(_: Records, __: Session) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_somebody_gets_in_while_no_record_can_be_written(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is out at the end. Whoever makes space in /run comes that way."""
    with monkeypatch.context() as full:
        full.setattr(Records, "save", no_space)
        world.log_in(certificate())
        assert "cannot be recorded: No space left on device" in world.said()
        world.pass_time(3600)
        assert "ends: Expired" in world.said()
        world.pass_time(HANG_UP_SECONDS)
        assert world.kernel.killed()
    assert [report.level for report in world.reports].count(Level.ALERT) == 1, "once, not at each tick"


def test_a_session_is_recorded_as_soon_as_there_is_space(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as full:
        full.setattr(Records, "save", no_space)
        world.log_in(certificate())
        world.pass_time(10)
    assert world.records() == []
    world.pass_time(10)
    assert len(world.records()) == 1
    world.restart()
    world.pass_time(UNKNOWN_SECONDS + 30)
    world.pass_time(UNKNOWN_SECONDS + 30)
    assert not world.kernel.killed()


def test_a_session_without_a_record_that_is_over_is_forgotten(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Records, "save", no_space)
    world.log_in(certificate())
    world.kernel.disconnect()
    world.pass_time(TICK_SECONDS)
    assert "is over" in world.said()
    world.pass_time(10)


def test_shells_are_told_before_the_kill(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Connection] = []
    monkeypatch.setattr(Machine, "hang_up", lambda _, connection: told.append(connection))
    connection = world.log_in(certificate())
    world.pass_time(3600)
    assert told == [connection]
    world.pass_time(HANG_UP_SECONDS - 0.1)
    assert not world.kernel.killed()
    world.pass_time(0.1)
    assert world.kernel.killed()
    assert told == [connection], "once"


def test_a_restart_ends_a_session_without_a_record(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as full:
        full.setattr(Records, "save", no_space)
        world.log_in(certificate())
    world.restart()
    world.pass_time(0)
    world.pass_time(UNKNOWN_SECONDS)
    assert world.kernel.killed()


def test_what_could_not_be_written_takes_no_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = Records(tmp_path / "records", tmp_path / "fallback")

    def replace(_: Path, __: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(OSError, match="No space"):
        records.save(session())
    assert list((tmp_path / "records").iterdir()) == []


def test_a_later_unit_of_the_same_name_keeps_its_record(world: World) -> None:
    """systemd numbers connections anew when the socket starts again. The first one's end is noticed later."""
    world.log_in(certificate())
    world.kernel.disconnect()
    for pid in (MONITOR, COMMAND):
        world.kernel.end(pid)
    second = world.log_in(certificate(serial=8))
    world.pass_time(TICK_SECONDS)
    assert "(serial 7, CA" in world.said()
    world.restart()
    [kept] = Records(world.root / "records", world.root / "fallback").load()[0]
    assert (kept.connection, kept.certificate.serial) == (second, 8)
    world.pass_time(3600)
    assert "ends: Expired" in world.said()


def test_a_session_without_end_lasts_an_hour_while_its_holder_sets_the_clock(world: World) -> None:
    world.log_in(certificate(by=BREAK_GLASS, valid_after=0, valid_before=FOREVER))
    assert "logged in, until 60 minutes have passed" in world.said()
    world.clock.ahead = 400 * 86_400
    world.pass_time(1)
    world.clock.ahead = -400 * 86_400
    world.pass_time(3500)
    world.restart()
    world.pass_time(98)
    assert "ends" not in world.said()
    world.pass_time(1)
    assert "ends: Expired" in world.said()
    world.pass_time(HANG_UP_SECONDS)
    assert world.kernel.killed()


def test_an_adopted_session_without_end_has_lasted_since_it_began(world: World) -> None:
    """Else each restart would give it another hour."""
    world.kernel.log_in()
    world.clock.elapsed = 3600 - 100
    fall_back(world, message(certificate(by=BREAK_GLASS, valid_before=FOREVER)))
    world.pass_time(0)
    world.pass_time(99)
    assert "ends" not in world.said()
    world.pass_time(2)
    assert "ends: Expired" in world.said()


def test_thousands_of_processes_elsewhere_do_not_fill_the_journal(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.log_in(certificate())
    group = "/system.slice/x.service"
    for number in range(100):
        world.kernel.start(OUTSIDE + number, parent=MONITOR, group=group)
    ended: list[int] = []
    monkeypatch.setattr(Machine, "end", lambda _, identity: ended.append(identity.pid))
    world.revoke(7)
    world.pass_time(TICK_SECONDS)
    for _ in range(5):
        world.pass_time(TICK_SECONDS)
    assert len([report for report in world.reports if "had left" in report.text]) == 16
    assert world.said().count("more processes have left") == 1
    assert set(ended) == set(range(OUTSIDE, OUTSIDE + 100)), "all are ended"


def test_what_has_left_is_reported_once(world: World) -> None:
    world.log_in(certificate())
    world.kernel.start(SHELL, parent=MONITOR)
    world.pass_time(0)
    world.kernel.end(SHELL)
    world.kernel.start(SHELL, group="/system.slice/x.service")
    world.revoke(7)
    for _ in range(4):
        world.pass_time(TICK_SECONDS)
    assert world.said().count("has left the connection's unit") == 1


def test_sessions_end_while_no_record_can_be_written(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """/run is full. The login succeeds, the first session is warned, and the second is ended, in one process."""
    world.log_in(certificate(serial=1, valid_before=NOW + 1000))
    for pid in (MONITOR, COMMAND):
        world.kernel.end(pid)
    connection = world.present(certificate(serial=2, key_id="grant/bob", valid_before=NOW + 900), path=SECOND)

    monkeypatch.setattr(Records, "save", no_space)
    world.kernel.end(UNPRIVILEGED)
    assert world.sessions.settle(connection)
    world.pass_time(900)
    world.pass_time(HANG_UP_SECONDS)
    assert world.kernel.killed(SECOND)
    alerts = [report.text for report in world.reports if report.level is Level.ALERT]
    assert alerts == ["cannot be recorded: No space left on device; a restart does not know this"] * 2


def test_a_record_is_what_was_kept(world: World) -> None:
    world.log_in(certificate())
    [kept], unusable = Records(world.root / "records", world.root / "fallback").load()
    assert (kept.signed, kept.login, unusable) == (certificate(), Login.SUCCEEDED, [])
    assert {path.stat().st_mode & 0o777 for path in (world.root / "records").iterdir()} == {0o600}
