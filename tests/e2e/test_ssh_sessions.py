"""Sessions on a node with the image files, real systemd and a real sshd: who gets in, and when it ends.

Test numbers are those of the design's list. One node serves all tests; each leaves its files as they were.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from attestors.wire.node_access import Trust
from attestors.wire.ssh.certificate import SignedCertificate
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.keys import host_key
from attestors.wire.ssh.krl import AnyAuthority, CertificateRevocations, SerialRange
from attestors.wire.ssh.principals import LoginOnEveryNode, LoginOnNode, PlainPrincipal
from attestors.wire.ssh.signatures import PrivateKey, public_key_of, sign
from authenticator.flow.sshd_files import SSHDFiles
from node_access.client.touching import touch
from tests.support.access_node import HOST, NODE, PROGRAM, USER, AccessNode
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.node_access import HOST_AUTHORITY
from tests.support.openssh import private_key
from tests.support.processes import free_port, wait_until
from tests.support.software_token import SoftwareToken

pytestmark = pytest.mark.slow

ROOT: Final = PlainPrincipal("root")
ROOT_HERE: Final = LoginOnNode("root", NODE)
END_SECONDS: Final = 10.0
"""It takes less than two seconds. The rest is for a machine that is busy with other tests."""


@pytest.fixture(scope="module", params=["installed", "OPENSSH_10"])
def shared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AccessNode]:
    """With the distribution's OpenSSH; and with a build of 10.x at the prefix that ``OPENSSH_10`` names."""
    named = os.environ.get("OPENSSH_10", "")
    if request.param == "OPENSSH_10" and not named:
        pytest.skip("OPENSSH_10 names no build of OpenSSH 10")
    folder = tmp_path_factory.mktemp("node-access")
    for parent in (folder, *folder.parents[:2]):
        parent.chmod(0o755)  # sshd's principals command runs as another user
    try:
        openssh = Path(named) if request.param == "OPENSSH_10" else None
        started = AccessNode(folder / "root", openssh=openssh)
    except MissingPart as missing:
        skip_or_fail(missing)
    with started:
        yield started


@pytest.fixture
def node(shared: AccessNode) -> Iterator[AccessNode]:
    shared.reset()
    yield shared
    with contextlib.suppress(OSError):
        shared.machine.run(f"systemctl stop 'node-access-ssh@*' ; systemctl start {PROGRAM} node-access-ssh.socket")
    wait_until(lambda: not shared.connections(), "no connection is left")


class Client:
    """A client that runs."""

    def __init__(self, node: AccessNode, certificate: SignedCertificate, process: subprocess.Popen[bytes]) -> None:
        self.node, self.certificate, self.process = node, certificate, process

    @property
    def serial(self) -> int:
        return self.certificate.certificate.serial

    def logged_in(self) -> None:
        """Returns when the login has succeeded."""
        wait_until(lambda: "Succeeded" in self.states(), "the login", timeout=20)

    def states(self) -> list[str]:
        return [one["state"] for one in self.node.sessions() if one["serial"] == self.serial]

    def deadline(self) -> int:
        [found] = [one["deadline"] for one in self.node.sessions() if one["serial"] == self.serial]
        assert isinstance(found, int)
        return found

    def ended(self, since: float) -> None:
        """Require that it ends within seconds of that moment."""
        self.process.wait(timeout=30)
        assert time.time() - since < END_SECONDS
        assert self.process.returncode != 0


@contextlib.contextmanager
def client(
    node: AccessNode, certificate: SignedCertificate, *words: str, login: str = USER, program: str = "ssh"
) -> Iterator[Client]:
    process = subprocess.Popen(
        node.ssh(certificate, *words, login=login, program=program),
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield Client(node, certificate, process)
    finally:
        process.kill()
        process.communicate()


def revoke(node: AccessNode, certificate: SignedCertificate, name: str = "revoked_keys") -> float:
    """Revoke it by its serial; returns when."""
    entry = CertificateRevocations(AnyAuthority(), serials=(SerialRange.single(certificate.certificate.serial),))
    node.revoke(name, certificates=(entry,))
    return time.time()


def test_a_session_ends_with_its_certificate(node: AccessNode) -> None:
    certificate = node.certificate(seconds=8)
    with client(node, certificate, NODE, "sleep 1001") as session:
        session.logged_in()
        session.ended(certificate.certificate.valid_before)
    assert node.processes("sleep 1001") == []
    assert node.connections() == set()


# What a session may be: tests 50 to 56, each ended by a revocation and by the certificate's end.


def terminal(node: AccessNode, certificate: SignedCertificate, login: str) -> list[str]:
    return node.ssh(certificate, "-tt", NODE, "sleep 1050", login=login)


def local_forwarding(node: AccessNode, certificate: SignedCertificate, login: str) -> list[str]:
    return node.ssh(certificate, "-N", "-L", f"{free_port()}:127.0.0.1:{node.port}", NODE, login=login)


def remote_forwarding(node: AccessNode, certificate: SignedCertificate, login: str) -> list[str]:
    return node.ssh(certificate, "-N", "-R", f"{free_port()}:127.0.0.1:{node.port}", NODE, login=login)


def transfer(node: AccessNode, certificate: SignedCertificate, login: str) -> list[str]:
    """At a mebibyte a second it would take a minute."""
    file = node.client / "large"
    file.touch()
    os.truncate(file, 64 * 1024 * 1024)
    batch = node.client / "batch"
    batch.write_text(f"put {file} /dev/null\n")
    return node.ssh(certificate, "-l", "8192", "-b", str(batch), NODE, login=login, program="sftp")


TMUX: Final = "tmux -L t$$ new-session -d 'exec sleep 1055';" if shutil.which("tmux") else "setsid -f sleep 1055;"


def shed_children(node: AccessNode, certificate: SignedCertificate, login: str) -> list[str]:
    script = (
        "setsid -f sleep 1051; nohup sleep 1052 >/dev/null 2>&1 & env -i setsid sleep 1053 & (sleep 1054 &) & "
        f"{TMUX} wait"
    )
    return node.ssh(certificate, NODE, script, login=login)


KINDS: Final = {
    "50 shell": terminal,
    "51 -L": local_forwarding,
    "52 -R": remote_forwarding,
    "54 sftp": transfer,
    "55 children": shed_children,
}


@contextlib.contextmanager
def every_kind(node: AccessNode, valid_before: int) -> Iterator[list[Client]]:
    """Each kind of session, of each login, with the same key id."""
    with contextlib.ExitStack() as stack:
        sessions = []
        for command in KINDS.values():
            for login in (USER, "root"):
                certificate = node.certificate(LoginOnNode(login, NODE), valid_before=valid_before, key_id="grant/x")
                process = subprocess.Popen(
                    command(node, certificate, login),
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
                stack.callback(process.communicate)
                stack.callback(process.kill)
                sessions.append(Client(node, certificate, process))
        for session in sessions:
            session.logged_in()
        wait_until(lambda: len(node.processes("^sleep 105[1-5]")) == 10, "children")
        yield sessions


@pytest.mark.parametrize("reason", ["Revoked", "Expired"])
def test_every_kind_of_session_ends(node: AccessNode, reason: str) -> None:
    """At once, and nothing is left of it."""
    end = int(time.time()) + (3600 if reason == "Revoked" else 18)
    with every_kind(node, end) as sessions:
        since = float(end)
        if reason == "Revoked":
            node.revoke(certificates=(CertificateRevocations(AnyAuthority(), key_ids=("grant/x",)),))
            since = time.time()
        for session in sessions:
            session.ended(since)
    assert node.processes("sleep 105[0-9]|sftp-server") == []
    assert node.connections() == set()
    journal = node.journal()
    for session in sessions:
        assert re.search(rf"\(serial {session.serial}, CA \S+ ends: {reason}\n", journal)


def test_sessions_that_share_a_connection_end_together(node: AccessNode, tmp_path: Path) -> None:
    """Test 53: ControlMaster."""
    certificate = node.certificate()
    path = tmp_path / "m"
    with client(node, certificate, "-M", "-S", str(path), "-N", NODE) as master:
        master.logged_in()
        wait_until(path.exists, "the master's socket")
        commands = [node.ssh(certificate, "-S", str(path), NODE, f"sleep 106{number}") for number in range(2)]
        others = [subprocess.Popen(command, stdin=subprocess.PIPE) for command in commands]
        wait_until(lambda: len(node.processes("^sleep 106")) == 2, "two sessions")
        assert len(node.connections()) == 1
        master.ended(revoke(node, certificate))
        for other in others:
            assert other.wait(timeout=10) != 0
            other.communicate()
    assert node.processes("^sleep 106") == []


# Who gets in.


def refused(node: AccessNode, certificate: SignedCertificate, login: str = USER) -> None:
    done = node.log_in(certificate, "true", login=login)
    assert (done.returncode, done.stdout) == (255, ""), done
    assert "Permission denied (publickey)" in done.stderr


def test_a_certificate_for_another_node_is_refused(node: AccessNode) -> None:
    """Test 20. Nor do names count that this node does not have, or a plain login by the online authority."""
    assert node.log_in(node.certificate(LoginOnNode(USER, NODE)), "echo in").stdout == "in\n"
    assert node.log_in(node.certificate(LoginOnEveryNode(USER)), "echo in").stdout == "in\n"
    refused(node, node.certificate(LoginOnNode(USER, "worker-2")))
    refused(node, node.certificate(PlainPrincipal(USER)))
    refused(node, node.certificate(LoginOnEveryNode("root")))
    node.file("node_name").unlink()
    refused(node, node.certificate(LoginOnEveryNode(USER)))


def test_a_break_glass_certificate_opens_every_login(node: AccessNode) -> None:
    certificate = node.certificate(ROOT, by=node.break_glass, key_id="")
    assert node.log_in(certificate, "id -un", login="root").stdout == "root\n"
    revoke(node, certificate, "revoked_keys_offline")
    refused(node, certificate, "root")
    assert "no principals: the certificate is revoked" in node.journal()


def test_the_agents_files_open_plain_logins_for_break_glass_authorities_alone(node: AccessNode) -> None:
    """The image's authority, before the cluster's first trust and after it; and the policy's, until it is withdrawn."""
    of_image = private_key("ed25519", 86)
    for name in ("trusted_user_ca_keys", "break_glass_ca_keys_image"):
        node.file(name).write_text(f"{key_line(public_key_of(of_image))} of the image\n")
    node.file("break_glass_ca_keys").write_bytes(b"")
    assert root_by(node, of_image) == "in\n"
    assert root_by(node, node.break_glass) == ""

    online, break_glass, host = (public_key_of(one) for one in (node.user_authority, node.break_glass, HOST_AUTHORITY))
    files = SSHDFiles(node.file("revoked_keys").parent)
    files.install_bundle(node.file("revoked_keys").read_bytes(), Trust((online,), (break_glass,), (host_key(host),), 1))
    assert node.log_in(node.certificate(ROOT_HERE), "echo in", login="root").stdout == "in\n"
    for how in ("start", "stop"):
        node.machine.run(f"systemctl {how} {PROGRAM}")
        assert root_by(node, node.user_authority) == "", "sshd trusts it, and it is no break-glass authority"
        assert root_by(node, node.break_glass) == root_by(node, of_image) == "in\n"
    node.machine.run(f"systemctl start {PROGRAM}")

    files.withdraw(())
    assert root_by(node, of_image) == "in\n"
    assert root_by(node, node.break_glass) == ""
    refused(node, node.certificate(ROOT_HERE), "root")


def root_by(node: AccessNode, authority: PrivateKey) -> str:
    """What a plain login with a certificate of that authority prints."""
    return node.log_in(node.certificate(ROOT, by=authority, key_id=""), "echo in", login="root").stdout


@pytest.mark.parametrize("how", ["stopped", "hung"])
def test_break_glass_without_the_daemon(node: AccessNode, how: str) -> None:
    """Test 23: it opens the node, and nothing else does. What was let in ends in time all the same."""
    node.machine.run(f"systemctl stop {PROGRAM}" if how == "stopped" else f"systemctl kill -s STOP {PROGRAM}")
    node.file("revoked_keys").write_bytes(b"")  # as images bring it
    refused(node, node.certificate())
    if how == "stopped":
        refused(node, node.certificate(PlainPrincipal(USER)))
        other = node.certificate(ROOT, by=node.break_glass)
        revoke(node, other, "revoked_keys_offline")
        refused(node, other, "root")
    certificate = node.certificate(ROOT, by=node.break_glass, seconds=16)
    with client(node, certificate, NODE, "sleep 1070", login="root") as session:
        wait_until(lambda: len(node.processes("^sleep 1070")) == 1, "the session", timeout=12)
        node.machine.run(f"systemctl kill -s CONT {PROGRAM}; systemctl start {PROGRAM}")
        session.ended(certificate.certificate.valid_before)
    assert "logged in while this program did not run" in node.journal()


def test_without_a_revocation_list_nobody_gets_in(node: AccessNode) -> None:
    """Test 24: sshd refuses, the daemon says so, and a session that runs goes on to its end."""
    certificate = node.certificate(seconds=12)
    with client(node, certificate, NODE, "sleep 1071") as session:
        session.logged_in()
        node.file("revoked_keys").unlink()
        refused(node, node.certificate())
        refused(node, node.certificate(ROOT, by=node.break_glass), "root")
        wait_until(lambda: "nobody is let in: revoked_keys: No such file" in node.journal(), "the alarm")
        assert node.listing()["alarms"] == ["nobody is let in: revoked_keys: No such file or directory"]
        session.ended(certificate.certificate.valid_before)


def test_an_offline_list_that_nobody_can_read_lets_nobody_in(node: AccessNode) -> None:
    node.file("revoked_keys_offline").write_bytes(b"SSHKRL")
    refused(node, node.certificate())
    assert "nobody is let in: revoked_keys_offline: Malformed" in node.journal()


# What prolongs a session.


def test_a_renewed_certificate_prolongs_the_session(node: AccessNode) -> None:
    """Test 57: one of the same key id, by a login that succeeds."""
    first = node.certificate(seconds=12)
    with client(node, first, NODE, "sleep 1080") as session:
        session.logged_in()
        renewed = node.certificate(seconds=14)
        assert node.log_in(renewed, "sleep 0.3").returncode == 0
        wait_until(lambda: session.deadline() == renewed.certificate.valid_before, "the new end")
        session.ended(renewed.certificate.valid_before)
    assert f"prolonged by the certificate with serial {renewed.certificate.serial}" in node.journal()


def test_the_clients_connection_for_a_moment_prolongs_the_session(node: AccessNode) -> None:
    """As the heartbeat of ``node-access`` makes it: without a session, by a stock ssh."""
    with client(node, node.certificate(seconds=600), NODE, "sleep 1079") as session:
        session.logged_in()
        renewed = node.certificate(seconds=900)
        file = node.client / "renewed-cert.pub"
        file.write_text(f"{renewed.line}\n")
        config = node.client / "config"
        config.write_text(
            f"Host {NODE}\n    HostName {HOST}\n    Port {node.port}\n    HostKeyAlias {NODE}\n"
            f"    UserKnownHostsFile {node.client / 'known_hosts'}\n    StrictHostKeyChecking yes\n"
            f"    IdentitiesOnly yes\n    IdentityFile {node.client / 'id'}\n    CertificateFile {file}\n"
        )
        assert touch(config, NODE, USER)
        assert session.deadline() == renewed.certificate.valid_before
        assert not touch(config, NODE, "nobody")


@pytest.mark.parametrize(
    ("login", "key_id"), [(USER, "grant/bob"), ("root", "grant/alice")], ids=["another key id", "another login"]
)
def test_what_does_not_prolong_a_session(node: AccessNode, login: str, key_id: str) -> None:
    """Test 57."""
    first = node.certificate(seconds=600)
    with client(node, first, NODE, "sleep 1083") as session:
        session.logged_in()
        other = node.certificate(LoginOnNode(login, NODE), key_id=key_id)
        with client(node, other, NODE, "sleep 1084", login=login) as second:
            second.logged_in()
            assert session.deadline() == first.certificate.valid_before


def test_a_revoked_renewal_ends_the_session(node: AccessNode) -> None:
    with client(node, node.certificate(seconds=600), NODE, "sleep 1081") as session:
        session.logged_in()
        renewed = node.certificate()
        assert node.log_in(renewed, "sleep 0.3").returncode == 0
        wait_until(lambda: session.deadline() == renewed.certificate.valid_before, "the new end")
        session.ended(revoke(node, renewed))


def test_a_certificate_without_its_key_prolongs_nothing(node: AccessNode, tmp_path: Path) -> None:
    """Test 58: everybody may have seen it. sshd asks for principals, and the login fails."""
    first = node.certificate(seconds=600)
    with client(node, first, NODE, "sleep 1082") as session:
        session.logged_in()
        stolen = node.certificate()
        with SoftwareToken(
            tmp_path / "agent", stolen.blob, lambda data: sign(private_key("ed25519", 83), data)
        ) as agent:
            command = node.ssh(stolen, NODE, "true", agent=agent.socket)
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 255, done
        assert f"(serial {stolen.certificate.serial})" in node.journal(), "sshd did ask"
        assert session.deadline() == first.certificate.valid_before
    wait_until(lambda: not node.sessions(), "no record is left")


# Failures.


def test_failed_logins_leave_nothing(node: AccessNode) -> None:
    """Test 60: neither a unit nor a record, and no failed unit."""
    for _ in range(3):
        refused(node, node.certificate(LoginOnNode(USER, "worker-2")))
        refused(node, node.certificate(by=private_key("ed25519", 84)))
    wait_until(lambda: not node.connections(), "no unit is left")
    wait_until(lambda: not node.sessions(), "no record is left")
    node.machine.run("systemctl list-units --failed --plain --no-legend --all")
    assert node.machine.output() == ""


def test_an_expired_certificate_that_is_offered_first(node: AccessNode) -> None:
    """As by an agent that still has the last hour's. sshd asks for its principals, too."""
    expired, renewed = node.certificate(seconds=-10), node.certificate()
    file = node.client / "renewed-cert.pub"
    file.write_text(f"{renewed.line}\n")
    command = node.ssh(expired, "-o", f"CertificateFile={file}", NODE, "sleep 2; echo in")
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (0, "in\n"), done
    journal = node.journal()
    assert "no principals: the certificate has run out" in journal
    assert f"(serial {expired.certificate.serial})" in journal, "sshd did ask"


def test_a_flood_of_connections(node: AccessNode) -> None:
    """Test 61: one source gets its share, several leave the administrator room, and nobody is penalised afterwards."""
    address = (HOST, node.port)
    with contextlib.ExitStack() as stack:

        def connect(source: str, count: int) -> list[socket.socket]:
            made = [socket.create_connection(address, 10, (source, 0)) for _ in range(count)]
            return [stack.enter_context(one) for one in made]

        assert connect("127.0.0.2", 40)[-1].recv(100) == b"", "the last one is closed"
        held = [one for number in range(3, 7) for one in connect(f"127.0.0.{number}", 32)]
        assert all(one.recv(100).startswith(b"SSH-2.0-") for one in held)
        assert len(node.connections()) > 64
        assert node.log_in(node.certificate(), "echo in").stdout == "in\n"
        break_glass = node.certificate(ROOT, by=node.break_glass)
        assert node.log_in(break_glass, "echo in", login="root").stdout == "in\n"
        assert len(node.connections()) > 64, "during the flood"
    wait_until(lambda: not node.connections(), "the connections end", timeout=30)
    for _ in range(8):
        refused(node, node.certificate(by=private_key("ed25519", 84)))
    assert node.log_in(node.certificate(), "echo in").stdout == "in\n"


@pytest.mark.parametrize("number", ["TERM", "KILL"])
def test_a_restarted_daemon_keeps_deadlines(node: AccessNode, number: str) -> None:
    """Test 62."""
    certificates = node.certificate(seconds=12), node.certificate(key_id="grant/another")
    with (
        client(node, certificates[0], NODE, "sleep 1090") as expiring,
        client(node, certificates[1], NODE, "sleep 1091") as revoked,
    ):
        expiring.logged_in()
        revoked.logged_in()
        node.machine.run(f"systemctl kill -s {number} {PROGRAM}; systemctl restart {PROGRAM}")
        assert node.processes("^sleep 109[01]") != []
        revoked.ended(revoke(node, certificates[1]))
        expiring.ended(certificates[0].certificate.valid_before)


FULL: Final = ("/run/node-access", "/run/node-access-fallback")


@pytest.fixture
def full(node: AccessNode) -> Iterator[AccessNode]:
    """A node on which nobody can write below those two folders, as if /run were full."""
    mounts = "".join(
        f"mount -t tmpfs -o size=8k,mode=0750 tmpfs {folder}; chown {owner} {folder}; cat /dev/zero > {folder}/.zero;\n"
        for folder, owner in zip(FULL, ("root:node-access", "node-access:node-access"), strict=True)
    )
    node.machine.run(f"systemctl stop {PROGRAM}\n{mounts} systemctl start {PROGRAM}; echo x > {FULL[0]}/x")
    assert "No space left on device" in node.machine.output()
    try:
        yield node
    finally:
        node.machine.run(f"systemctl stop {PROGRAM}; umount {' '.join(FULL)}; systemctl start {PROGRAM}")


def test_somebody_gets_in_while_run_is_full(full: AccessNode) -> None:
    """With the daemon, whose session ends in time all the same; and without it."""
    certificate = full.certificate(seconds=8)
    with client(full, certificate, NODE, "sleep 1073") as session:
        wait_until(lambda: len(full.processes("^sleep 1073")) == 1, "the login", timeout=20)
        session.ended(certificate.certificate.valid_before)
    journal = full.journal()
    assert "cannot be recorded: No space left on device; a restart does not know this" in journal
    assert f"(serial {session.serial}, CA" in journal
    full.machine.run(f"systemctl stop {PROGRAM}")
    revoked = full.certificate(ROOT, by=full.break_glass)
    revoke(full, revoked, "revoked_keys_offline")
    refused(full, revoked, "root")
    assert root_by(full, full.break_glass) == "in\n"
    assert list((full.root / "run/node-access-fallback").glob("[0-9]*")) == []
    refused(full, full.certificate())


OTHER_INSTANCE: Final = """\
import fcntl, os, pty, termios, time
screen, keyboard = pty.openpty()
assert os.ttyname(keyboard) == "/dev/pts/0", os.ttyname(keyboard)
if os.fork() == 0:
    os.setsid()
    fcntl.ioctl(keyboard, termios.TIOCSCTTY, 0)
    for number in range(3):
        os.dup2(keyboard, number)
    os.execvp("sleep", ["sleep", "1099"])
print(os.read(screen, 4096).decode(), flush=True)
time.sleep(60)
"""


def test_a_message_is_for_no_terminal_of_another_devpts(node: AccessNode) -> None:
    """As in a container that the session started. Another person's terminal has the same number here."""
    bystander = subprocess.Popen(
        node.ssh(node.certificate(), "-tt", NODE, "echo begin; exec sleep 1098"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert bystander.stdout is not None
    try:
        read = bystander.stdout.readline()
        wait_until(lambda: len(node.processes("^sleep 1098")) == 1, "the other person's session")
        certificate = node.certificate(ROOT_HERE, key_id="grant/bob")
        (node.root / "root/other.py").write_text(OTHER_INSTANCE)
        script = (
            "mount -t devpts -o newinstance,ptmxmode=0666,mode=0620,gid=5 devpts /dev/pts && exec {} /root/other.py"
        )
        inside = script.format("/usr/bin/python3")
        with client(node, certificate, NODE, f"unshare --mount sh -c '{inside}'", login="root") as session:
            session.logged_in()
            wait_until(lambda: len(node.processes("^sleep 1099")) == 1, "the other instance")
            session.ended(revoke(node, certificate))
        bystander.terminate()
        read += bystander.stdout.read()
        assert b"This session ends" not in read
        assert b"begin" in read
    finally:
        bystander.kill()
        bystander.communicate()


def test_a_message_before_the_end(node: AccessNode) -> None:
    """Test 63: on the session's terminal. A session that begins later than a warning gets only those that follow."""
    certificate = node.certificate(seconds=122)
    command = node.ssh(certificate, "-tt", NODE, "sleep 1093")
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        read = b""
        while b"unless" not in read:
            part = os.read(process.stdout.fileno(), 4096)
            assert part, read
            read += part
        assert b"This session ends in 2 minutes, unless it is prolonged." in read
        assert b"10 minutes" not in read
        revoke(node, certificate)
        while part := os.read(process.stdout.fileno(), 4096):
            read += part
        assert b"This session ends: its certificate is revoked." in read
    finally:
        process.kill()
        process.communicate()


def test_root_that_leaves_its_unit_is_reported(node: AccessNode) -> None:
    """Test 64: what is still attached to the session is ended with it; what root has moved away goes on."""
    certificate = node.certificate(ROOT_HERE)
    away = "mkdir -p /sys/fs/cgroup/away && echo $$ > /sys/fs/cgroup/away/cgroup.procs && exec sleep"
    script = f"(setsid sh -c '{away} 1095' &); sh -c '{away} 1096' & sleep 1097"
    with client(node, certificate, NODE, script, login="root") as session:
        session.logged_in()
        wait_until(lambda: len(node.processes("^sleep 109[5-7]")) == 3, "the processes")
        [gone] = node.processes("^sleep 1095")
        session.ended(revoke(node, certificate))
    wait_until(lambda: node.processes("^sleep 109[67]") == [], "what is attached is ended")
    assert node.processes("^sleep 1095") == [gone]
    journal = node.journal()
    assert f"process {gone} ('sleep') has left the connection's unit, and goes on" in journal
    assert "had left the connection's unit, and was ended, too" in journal
    node.machine.run(f"kill {gone}")


# The configuration.

NOT_SWITCHES: Final = frozenset(
    {
        # Of a listener, which systemd is here.
        *("addressfamily", "ipqos", "listenaddress", "maxstartups", "persourcemaxstartups", "persourcenetblocksize"),
        *("port", "rdomain", "persourcepenalties", "persourcepenaltyexemptlist", "persourcepenaltynetblocksize"),
        # Details of what is off, or of programs and files.
        *("authorizedkeyscommanduser", "kerberosorlocalpasswd", "kerberosticketcleanup", "modulifile"),
        *("securitykeyprovider", "sshdauthpath", "sshdsessionpath", "x11displayoffset", "xauthlocation"),
        # Debian's patch, which other builds do not read; a test looks at its value.
        *("gssapicleanupcredentials", "gssapikexalgorithms", "gssapikeyexchange", "gssapistorecredentialsonrekey"),
        "gssapistrictacceptorcheck",
        # Of releases after 9.2, which does not read them: both are off unless set.
        *("channeltimeout", "refuseconnection"),
    }
)


def configuration(node: AccessNode) -> dict[str, str]:
    """The image's, by keyword in lower case."""
    text = (node.root / "etc/ssh/node-access-sshd.conf").read_text()
    lines = [line.split(" ", 1) for line in text.splitlines() if line and not line.startswith("#")]
    found = {keyword.lower(): value for keyword, value in lines}
    assert len(found) == len(lines), "sshd reads the first of several, except for host keys"
    return found


LEFT_OUT: Final = frozenset({"gssapiauthentication", "kerberosauthentication", "usepam"})
"""A build may be without these, and says so."""


def read_by_sshd(node: AccessNode, mode: str) -> list[str]:
    """What sshd says about the configuration, but for options that its build is without."""
    node.machine.run(f"{node.sshd} {mode} -f /etc/ssh/node-access-sshd.conf")
    lines = node.machine.output().splitlines()
    unsupported = [line for line in lines if "Unsupported option" in line]
    assert {line.split()[-1].lower() for line in unsupported} <= LEFT_OUT
    return [line for line in lines if line not in unsupported]


def test_sshd_reads_every_line_of_the_configuration(node: AccessNode) -> None:
    written = configuration(node)
    assert read_by_sshd(node, "-t") == []
    lines = [line.split(" ", 1) for line in read_by_sshd(node, "-T")]
    effective = {keyword.lower(): value for keyword, value in lines}
    forms = {"permitrootlogin": "without-password", "rekeylimit": "1073741824 3600", "fingerprinthash": "SHA256"}
    for keyword, value in written.items():
        if keyword in effective:
            assert effective[keyword] in (value, forms.get(keyword)), keyword
    assert effective.keys() - written.keys() <= NOT_SWITCHES, "write every switch out"
    assert effective.get("gssapikeyexchange", "no") == "no"
    # What is not listed is not set there, or left out of the build.
    assert written.keys() - effective.keys() <= {"authorizedkeysfile", "hostcertificate", "subsystem", *LEFT_OUT}


def test_no_password_and_no_key_without_a_certificate(node: AccessNode) -> None:
    (node.root / "home/alice/.ssh").mkdir(exist_ok=True)
    public = key_line(public_key_of(node.key))
    (node.root / "home/alice/.ssh/authorized_keys").write_text(f"{public}\n")
    command = node.ssh(node.certificate(), NODE, "true")
    command = ["LogLevel=DEBUG1" if word.startswith("CertificateFile=") else word for word in command]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 255
    assert "Authentications that can continue: publickey\n" in done.stderr.replace("\r", "")


def test_an_account_that_is_locked_is_closed(node: AccessNode) -> None:
    """`passwd -l` closes this sshd, too; an account without a password is open to certificates."""
    shadow = node.root / "etc/shadow"
    before = shadow.read_text()
    shadow.write_text(before.replace(f"{USER}:*:", f"{USER}:!*:"))
    try:
        refused(node, node.certificate())
    finally:
        shadow.write_text(before)
    assert node.log_in(node.certificate(), "echo in").stdout == "in\n"
