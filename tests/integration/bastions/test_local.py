"""The provider ``local``: its contract, and real connections of stock ssh through a real bastion."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import signal
import socket
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from attestors.wire.ssh.certificate import NONCE_BYTES, Certificate, CertificateKind, SignedCertificate
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.options import Extension
from attestors.wire.ssh.principals import LoginOnNode, PlainPrincipal
from attestors.wire.ssh.signatures import PrivateKey, public_key_of, sign
from node_access.bastions.contract import SELF_DESTRUCTION_GRACE, Bastion, Deadline, Pending, Ready, Scope, Target
from node_access.bastions.local.resources import LocalBastions
from node_access.bastions.suite import BastionSuite, FakeCloud, bring_up, make_bastion, network, take_down
from tests.support.bastions.local_cloud import LocalCloud, own_address
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.openssh import private_key, write_private_key
from tests.support.processes import wait_until
from tests.support.ssh_server import NODE, SSHServer, run_ssh

AUTHORITY: Final = private_key("ed25519", 300)
PERSON: Final = private_key("ed25519", 301)
CONFIGURATION: Final = """\
Host bastion
  HostName {bastion}
  Port {bastion_port}
  User bastion
  HostKeyAlias bastion-{uid}
  CertificateFile {folder}/bastion-cert.pub
Host node
  HostName {node}
  Port {node_port}
  User root
  HostKeyAlias worker-1
  CertificateFile {folder}/node-cert.pub
  ProxyCommand ssh -F {folder}/config -W %h:%p bastion
Host *
  IdentityFile {folder}/id
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile {known}
  GlobalKnownHostsFile none
  StrictHostKeyChecking yes
  BatchMode yes
  LogLevel ERROR
  ConnectTimeout 20
"""


class TestContract(BastionSuite):
    """The contract, with real sshd."""

    @pytest.fixture
    def cloud(self) -> Iterator[FakeCloud]:
        try:
            cloud = LocalCloud()
        except MissingPart as missing:
            skip_or_fail(missing)
        with cloud:
            yield cloud


@pytest.fixture(scope="module")
def node() -> Iterator[SSHServer]:
    """sshd of the node, at an address of this machine that is not loopback."""
    try:
        server = SSHServer(user_authority=public_key_of(AUTHORITY), host=own_address())
    except MissingPart as missing:
        skip_or_fail(missing)
    with server:
        yield server


@pytest.fixture
def cloud() -> Iterator[LocalCloud]:
    try:
        cloud = LocalCloud()
    except MissingPart as missing:
        skip_or_fail(missing)
    with cloud:
        yield cloud


@dataclass(frozen=True)
class Access:
    """A person with a certificate for each hop, and the configuration of stock ssh."""

    cloud: LocalCloud
    node: SSHServer
    bastion: Bastion
    ready: Ready
    configuration: Path

    def ssh(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return run_ssh("-F", self.configuration, *arguments)


def certified(principal: LoginOnNode | PlainPrincipal, *, authority: PrivateKey = AUTHORITY) -> str:
    """A user certificate of an hour."""
    now = int(time.time())
    made = Certificate(
        public_key=public_key_of(PERSON),
        kind=CertificateKind.USER,
        serial=7,
        key_id="grant/team-a/g/u/alice",
        principals=(principal,),
        valid_after=now - 60,
        valid_before=now + 3600,
        authority=public_key_of(authority),
        nonce=bytes(NONCE_BYTES),
        extensions=(Extension.PERMIT_PORT_FORWARDING, Extension.PERMIT_PTY),
    )
    return SignedCertificate(made, sign(authority, made.signed_bytes)).line


def grant(
    cloud: LocalCloud,
    node: SSHServer,
    *,
    uid: str = "",
    ingress: Sequence[str] = ("127.0.0.1/32",),
    principal: str = "",
    authority: PrivateKey = AUTHORITY,
) -> Access:
    """A bastion to the node, and all that its person needs."""
    bastion = make_bastion(cloud, uid=uid, ingress=ingress)
    target = Target((ipaddress.ip_address(node.host),), node.port)
    bastion = replace(bastion, targets=(target,), user_authorities=(public_key_of(AUTHORITY),))
    ready = bring_up(cloud, bastion)
    folder = cloud.folder / f"client-{bastion.reference.uid}"
    folder.mkdir(exist_ok=True)
    identity = folder / "id"
    if not identity.exists():
        write_private_key(identity, PERSON)
    named = principal or bastion.principal.partition("@")[2]
    (folder / "bastion-cert.pub").write_text(f"{certified(LoginOnNode('bastion', named), authority=authority)}\n")
    (folder / "node-cert.pub").write_text(f"{certified(LoginOnNode('root', NODE))}\n")
    known = cloud.folder / "known-hosts"  # one file for all grants: an address that comes again has its key by its name
    lines = known.read_text() if known.exists() else f"{NODE} {key_line(public_key_of(node.host_key))}\n"
    known.write_text(f"{lines}bastion-{bastion.reference.uid} {key_line(ready.host_keys[0])}\n")
    configuration = folder / "config"
    configuration.write_text(
        CONFIGURATION.format(
            folder=folder,
            known=known,
            uid=bastion.reference.uid,
            bastion=ready.endpoint.ip,
            bastion_port=ready.endpoint.port,
            node=node.host,
            node_port=node.port,
        )
    )
    return Access(cloud, node, bastion, ready, configuration)


def test_stock_ssh_reaches_the_node_through_the_bastion(cloud: LocalCloud, node: SSHServer) -> None:
    access = grant(cloud, node)
    ran = access.ssh("node", "echo reached")
    assert (ran.returncode, ran.stdout) == (0, "reached\n"), ran.stderr + cloud.log(access.bastion.reference.uid)
    assert "warning" not in ran.stderr.lower()


def test_sshd_lets_nobody_into_a_locked_account(cloud: LocalCloud, node: SSHServer) -> None:
    """As useradd and cloud-init lock it. Without PAM, sshd looks: an account without a password needs ``*``."""
    shadow = cloud.folder / "shadow"
    shadow.write_text(shadow.read_text().replace("bastion:*:", "bastion:!:"))
    access = grant(cloud, node)
    ran = access.ssh("node", "echo reached")
    assert ran.returncode == 255
    assert "Permission denied" in ran.stderr
    assert "account is locked" in cloud.log(access.bastion.reference.uid)


def test_nothing_runs_on_the_bastion(cloud: LocalCloud, node: SSHServer) -> None:
    """Test 44: no shell, command, subsystem, terminal, agent, remote forwarding."""
    access = grant(cloud, node)
    for arguments in (["bastion", "echo ran"], ["-tt", "bastion"], ["-s", "bastion", "sftp"]):
        ran = access.ssh(*arguments)
        assert ran.returncode != 0
        assert "ran" not in ran.stdout
    # In one connection with a permitted forwarding: the log says which of the two was refused.
    remote = access.ssh("-N", "-o", "ExitOnForwardFailure=yes", "-R", "0:127.0.0.1:9", "bastion")
    assert remote.returncode != 0
    assert "remote port forwarding failed" in remote.stderr


@pytest.mark.parametrize("target", ["127.0.0.1:22", "169.254.169.254:80", "other port"])
def test_the_bastion_reaches_no_other_target(cloud: LocalCloud, node: SSHServer, target: str) -> None:
    access = grant(cloud, node)
    with socket.create_server((node.host, 0)) as other:
        refused = f"{node.host}:{other.getsockname()[1]}" if target == "other port" else target
        ran = access.ssh("-o", "LogLevel=INFO", "-W", refused, "bastion")
    assert ran.returncode != 0
    assert "administratively prohibited" in ran.stderr


def test_the_bastion_answers_no_other_source(cloud: LocalCloud, node: SSHServer) -> None:
    access = grant(cloud, node)
    ran = access.ssh("-b", "127.0.0.2", "-W", f"{node.host}:{node.port}", "bastion")
    assert ran.returncode != 0
    assert "Permission denied" in ran.stderr


@pytest.mark.parametrize("whose", ["another grant", "another authority", "the login"])
def test_a_certificate_of_another_is_refused(cloud: LocalCloud, node: SSHServer, whose: str) -> None:
    if whose == "another grant":
        access = grant(cloud, node, principal=str(uuid.uuid4()))
    elif whose == "the login":  # which sshd takes where nothing else is said
        access = grant(cloud, node)
        certificate = access.configuration.parent / "bastion-cert.pub"
        certificate.write_text(f"{certified(PlainPrincipal('bastion'))}\n")
    else:
        access = grant(cloud, node, authority=private_key("ed25519", 999))
    ran = access.ssh("node", "echo reached")
    assert ran.returncode == 255
    assert "Permission denied" in ran.stderr


def test_a_removed_network_ends_its_connections(cloud: LocalCloud, node: SSHServer) -> None:
    """Test 39, for a connection that is open already."""
    access = grant(cloud, node, ingress=["127.0.0.1/32", "127.0.0.3/32"])
    with stay_connected(access):
        narrowed = replace(access.bastion, ingress=(network("127.0.0.3/32"),))
        bring_up(cloud, narrowed)
        assert access.ssh("node", "true").returncode == 255


@contextlib.contextmanager
def stay_connected(access: Access) -> Iterator[subprocess.Popen[str]]:
    """A session on the node, through the bastion. At the end of the block it must have ended."""
    command = ["ssh", "-F", str(access.configuration), "node", "echo in; sleep 600"]
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == "in\n"
            yield program
            assert program.wait(30) == 255
        finally:
            program.kill()


def test_a_bastion_ends_by_itself_with_its_connections(node: SSHServer) -> None:
    """Test 49, with no controller. The clock of ``ensure`` is behind: the end is two seconds away."""
    behind = SELF_DESTRUCTION_GRACE + timedelta(hours=1) - timedelta(seconds=2)
    with LocalCloud(lambda: datetime.now(UTC) - behind) as cloud:
        access = grant(cloud, node)
        uid = access.bastion.reference.uid
        assert cloud.resources(uid)
        wait_until(lambda: not cloud.resources(uid), "the bastion ends, with its files", timeout=15)
        assert access.ssh("node", "true").returncode == 255


def test_a_heartbeat_prolongs_a_bastion(node: SSHServer) -> None:
    behind = SELF_DESTRUCTION_GRACE + timedelta(hours=1) - timedelta(seconds=3)
    with LocalCloud(lambda: datetime.now(UTC) - behind) as cloud:
        access = grant(cloud, node)
        bring_up(cloud, replace(access.bastion, not_after=access.bastion.not_after + timedelta(hours=1)))
        end = access.bastion.not_after + SELF_DESTRUCTION_GRACE
        wait_until(lambda: datetime.now(UTC) > end + timedelta(seconds=1), "the former end has passed")
        assert access.ssh("node", "true").returncode == 0


@pytest.mark.parametrize("killed", ["keeper", "unshare"])
def test_nothing_outlives_a_kill(cloud: LocalCloud, node: SSHServer, killed: str) -> None:
    """Open connections neither: the kernel ends the PID namespace."""
    access = grant(cloud, node)
    uid = access.bastion.reference.uid
    with stay_connected(access):
        programs = {one: Path(f"/proc/{one}/cmdline").read_bytes() for one in cloud.processes(uid)}
        (process,) = (
            one
            for one, line in programs.items()
            if line.startswith(b"unshare\0") or b"keeper" in line
            if (b"keeper" in line) is (killed == "keeper")
        )
        os.kill(process, signal.SIGKILL)
        wait_until(lambda: not cloud.processes(uid), f"all ends with {killed}")
    assert bring_up(cloud, access.bastion) == access.ready
    assert access.ssh("node", "true").returncode == 0


def test_an_address_that_comes_again_warns_nobody(cloud: LocalCloud, node: SSHServer) -> None:
    """Test 47: the same address and port, another bastion; and a bastion that was made again has its former key."""
    first = grant(cloud, node)
    assert first.ssh("node", "true").returncode == 0
    take_down(cloud, first.bastion)
    second = grant(cloud, node)
    assert second.ready.endpoint == first.ready.endpoint
    assert second.ready.host_keys != first.ready.host_keys
    ran = second.ssh("node", "true")
    assert ran.returncode == 0
    assert "warning" not in ran.stderr.lower()
    take_down(cloud, second.bastion)
    again = grant(cloud, node, uid=first.bastion.reference.uid)
    assert again.ready.host_keys == first.ready.host_keys
    assert again.ssh("node", "true").returncode == 0


def test_a_kill_between_any_two_steps_leaks_nothing(cloud: LocalCloud) -> None:
    """SIGKILL of the whole process, at each step of ``ensure`` and of ``delete``."""
    bastion = make_bastion(cloud)
    uid = bastion.reference.uid
    for number in range(20):
        killed = in_a_child(cloud, number, lambda bastions: bastions.ensure(bastion, Deadline.after(60)))
        bring_up(cloud, bastion)
        assert len(cloud.resources(uid)) == cloud.complete()
        was = in_a_child(cloud, number, lambda bastions: bastions.delete(bastion.reference, Deadline.after(60)))
        take_down(cloud, bastion)
        assert list(cloud.resources(uid)) == []
        assert [one.name for one in (cloud.path(uid).parent).iterdir()] == [".lock"]
        if not killed and not was:
            break
    assert 5 < number < 19


def test_a_port_is_taken_before_sshd_listens(cloud: LocalCloud) -> None:
    first, second = make_bastion(cloud), make_bastion(cloud)
    in_a_child(cloud, 1, lambda bastions: bastions.ensure(first, Deadline.after(60)))
    other = bring_up(cloud, second)
    assert bring_up(cloud, first).endpoint != other.endpoint


def test_what_is_left_of_a_removal_has_its_names(cloud: LocalCloud, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill in the middle of it looks so."""
    bastion = make_bastion(cloud)
    bring_up(cloud, bastion)
    with monkeypatch.context() as patch:

        def fail(*arguments: object, **named: object) -> None:
            raise OSError(5, "Input/output error")

        patch.setattr("node_access.bastions.local.folder.shutil.rmtree", fail)
        assert isinstance(cloud.open().delete(bastion.reference, Deadline.after(60)), Pending)
    (left,) = cloud.open().list(Scope("suite"), Deadline.after(60))
    assert left.reference == bastion.reference


def in_a_child(cloud: LocalCloud, step: int, action: Callable[[LocalBastions], object]) -> bool:
    """Run the action in a process that dies after that many steps; returns whether it died."""
    child = os.fork()
    if child == 0:  # pragma: no cover
        try:
            cloud.inject_death(step)
            action(cloud.open())
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])
