"""Certificates of access grants at a real sshd: what a grant opens, what it does not, and how its end ends a session.

Test numbers are those of the design's list. One sshd serves all tests but the last one, which needs a whole node.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pytest

from attestors.wire.ssh.certificate import SignedCertificate
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.krl import AnyAuthority, CertificateRevocations
from attestors.wire.ssh.signatures import public_key_of
from signer.access.certificates import access_of, hops_of
from signer.access.parts import Hop, IssuanceFacts
from signer.audit.access_line import IssuanceLine, LoggedApproval, logged_certificate
from signer.audit.lines import AccessIssuedContent, FileLines
from signer.authority.ssh.authorities import UserAuthority
from signer.cli import main
from signer.model.access import Creator
from signer.ssh.bundle.content import revocation_list
from tests.support import access_node
from tests.support.access_grants import AUTHORITY, bastion, facts_of, grant_of, issued
from tests.support.access_node import AccessNode
from tests.support.access_objects import GRANT_UID
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.openssh import private_key, public_keys, write_private_key
from tests.support.processes import wait_until
from tests.support.software_token import SoftwareToken
from tests.support.ssh_server import HOST, NODE, SSHServer, run_ssh
from tests.unit.attestors.wire.ssh.test_signatures import touched
from tests.unit.signer.authority.ssh.requests import authority_key

pytestmark = pytest.mark.slow

KEY: Final = private_key("ed25519", 90)
KEY_ID: Final = f"grant/team-a/repair/{GRANT_UID}/alice"
END_SECONDS: Final = 10.0
"""It takes less than two seconds. The rest is for a machine that is busy with other tests."""


@pytest.fixture(scope="module")
def server() -> Iterator[SSHServer]:
    try:
        started = SSHServer(user_authority=AUTHORITY.public_key)
    except MissingPart as missing:
        skip_or_fail(missing)
    with started:
        started.principals.write_text(f"root@{NODE}\nroot@*\n")  # as the node's own command prints them
        yield started


@pytest.fixture(autouse=True)
def _as_before(request: pytest.FixtureRequest) -> None:
    if "server" in request.fixturenames:
        request.getfixturevalue("server").forget_log()


@pytest.fixture
def key(tmp_path: Path) -> Path:
    return write_private_key(tmp_path / "id", KEY)


def facts(**spec: Any) -> IssuanceFacts:
    return facts_of(grant_of(**{"sshPublicKey": key_line(public_key_of(KEY)), **spec}))


def now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def certificate(given: IssuanceFacts, hop: Hop = Hop.NODE) -> SignedCertificate:
    return issued(given, serial=time.time_ns() % 2**62, now=now())[hop]


def log_in(
    server: SSHServer, key: Path, signed: SignedCertificate, *words: str, options: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    offered = key.with_name("offered-cert.pub")
    offered.write_text(f"{signed.line}\n")
    offer = ("-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none", "-i", key, "-o", f"CertificateFile={offered}")
    return run_ssh(*server.options(), *offer, "-l", "root", *options, *(words or (NODE, "echo", "in")))


def refused(server: SSHServer, key: Path, signed: SignedCertificate, **more: Any) -> str:
    """sshd's log of a login that is refused."""
    done = log_in(server, key, signed, **more)
    assert (done.returncode, done.stdout) == (255, ""), done
    assert "Permission denied (publickey)" in done.stderr
    return server.log()


def test_from_the_grant_to_the_session(server: SSHServer, key: Path, tmp_path: Path, capsys: Any) -> None:
    """sshd logs key id and serial number of the audit log's line, and the line says who it was and why."""
    given = facts(reason="disk full", ticket="OPS-7")
    moment = now()
    signed = issued(given, serial=time.time_ns() % 2**62, now=moment)[Hop.NODE]
    access = access_of(given)
    line = IssuanceLine(
        cluster="team-a/production",
        time=datetime.now(UTC),
        key_id=str(access.key_id),
        access=access,
        creator=Creator("alice", "u-1", frozenset({"team-a"})),
        reason="disk full",
        ticket="OPS-7",
        spec_digest=given.grant.digest,
        approvals=(LoggedApproval("bob", "uid-7"),),
        key_fingerprint=given.grant.public_key.fingerprint,
        issued=moment,
        not_after=moment + given.lifetime,
        authority=AUTHORITY.public_key.fingerprint,
        certificates=tuple(logged_certificate(hop, signed.line) for hop in hops_of(given)),
    )
    log = FileLines(tmp_path / "audit.log", 0, 0)
    log.write([AccessIssuedContent(line.encode())])
    log.close()
    assert main(["audit", "verify", str(tmp_path / "audit.log")]) == 0
    capsys.readouterr()

    done = log_in(server, key, signed)
    assert done.stdout == "in\n", done.stderr + server.log()
    [accepted] = [one for one in server.log().splitlines() if "Accepted publickey for root" in one]
    key_id = accepted.partition(" ID ")[2].partition(" ")[0]
    serial = int(accepted.partition("(serial ")[2].partition(")")[0])
    assert key_id == KEY_ID
    assert main(["audit", "show", "--key-id", key_id, "--output", "json", str(tmp_path / "audit.log")]) == 0
    [shown] = json.loads(capsys.readouterr().out)
    assert [one["serial_number"] for one in shown["certificates"]] == [serial]
    assert (shown["creator"]["username"], shown["reason"], shown["ticket"]) == ("alice", "disk full", "OPS-7")
    assert shown["key_fingerprint"] in accepted


def test_a_grant_for_another_node_is_refused(server: SSHServer, key: Path) -> None:
    """Test 20."""
    both = certificate(facts(target={"nodes": ["worker-2", NODE]}))
    assert log_in(server, key, both).stdout == "in\n"
    assert log_in(server, key, certificate(facts(target={"allNodes": {}}))).stdout == "in\n"
    other = certificate(facts(target={"nodes": ["worker-2"]}))
    assert "Certificate does not contain an authorized principal" in refused(server, key, other)
    wrong_login = certificate(facts(logins=["admin"]))
    assert "Certificate does not contain an authorized principal" in refused(server, key, wrong_login)


def test_a_bastions_certificate_opens_no_node_and_the_reverse(server: SSHServer, key: Path) -> None:
    given = facts(ingress=[{"ipBlock": {"cidr": f"{HOST}/32"}}], bastion="local")
    for_bastion = facts_of(given.grant, bastion=bastion(f"{HOST}/32"))
    assert log_in(server, key, certificate(for_bastion)).stdout == "in\n"
    assert "does not contain an authorized principal" in refused(server, key, certificate(for_bastion, Hop.BASTION))
    before = server.principals.read_text()
    server.principals.write_text(f"bastion@{GRANT_UID}\n")
    try:
        assert log_in(server, key, certificate(for_bastion, Hop.BASTION)).stdout == "in\n"
        assert "does not contain an authorized principal" in refused(server, key, certificate(for_bastion))
    finally:
        server.principals.write_text(before)


def test_another_source_is_refused(server: SSHServer, key: Path) -> None:
    """From another loopback address than the one that the grant names."""
    signed = certificate(facts(ingress=[{"ipBlock": {"cidr": "127.0.0.2/32"}}, {"ipBlock": {"cidr": "::1/128"}}]))
    assert log_in(server, key, signed, options=("-b", "127.0.0.2")).stdout == "in\n"
    assert "not from a permitted source address" in refused(server, key, signed, options=("-b", "127.0.0.3"))
    assert "not from a permitted source address" in refused(server, key, signed)
    # The node sees the bastion. Its certificate counts from there alone.
    ingress = [{"ipBlock": {"cidr": f"{HOST}/32"}}]
    behind = facts_of(facts(ingress=ingress, bastion="local").grant, bastion=bastion("127.0.0.4/32"))
    assert log_in(server, key, certificate(behind), options=("-b", "127.0.0.4")).stdout == "in\n"
    assert "not from a permitted source address" in refused(server, key, certificate(behind))


def test_only_the_forced_command_runs(server: SSHServer, key: Path) -> None:
    signed = certificate(facts(permissions={"command": 'echo "forced: $SSH_ORIGINAL_COMMAND"'}))
    assert log_in(server, key, signed, NODE, "id").stdout == "forced: id\n"
    assert log_in(server, key, signed, NODE, options=("-tt",)).stdout.rstrip().endswith("forced:")


def test_nothing_more_than_granted(server: SSHServer, key: Path) -> None:
    """No terminal, and no forwarding in either direction."""
    plain = certificate(facts(permissions={"pty": False}))
    done = log_in(server, key, plain, NODE, "tty", options=("-tt",))
    assert "PTY allocation request failed" in done.stderr
    assert (
        "administratively prohibited"
        in log_in(server, key, plain, NODE, options=("-W", f"{HOST}:{server.port}")).stderr
    )
    remote = ("-o", "ExitOnForwardFailure=yes", "-R", f"0:{HOST}:{server.port}")
    assert "remote port forwarding failed" in log_in(server, key, plain, NODE, "true", options=remote).stderr

    granted = certificate(facts(permissions={"pty": True, "portForwarding": True}))
    assert (
        log_in(server, key, granted, NODE, "tty", options=("-tt",))
        .stdout.rstrip()
        .rpartition("\n")[2]
        .startswith("/dev/pts/")
    )
    assert log_in(server, key, granted, NODE, options=("-W", f"{HOST}:{server.port}")).stdout.startswith("SSH-2.0-")


@pytest.mark.parametrize("name", ["sk-ed25519", "sk-ecdsa"])
def test_a_fido_key_logs_in_with_a_touch(server: SSHServer, tmp_path: Path, name: str) -> None:
    public = public_keys()[name]
    signed = certificate(facts(sshPublicKey=key_line(public)))

    def attempt(flags: int) -> subprocess.CompletedProcess[str]:
        socket = tmp_path / f"agent-{flags}"
        with SoftwareToken(socket, signed.blob, lambda data: touched(name, data, flags=flags)[1]):
            return run_ssh(*server.options(), "-o", f"IdentityAgent={socket}", "-l", "root", NODE, "echo", "in")

    assert attempt(1).stdout == "in\n", server.log()
    assert attempt(0).returncode == 255, "nobody touched it"


# A whole node


@pytest.fixture
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AccessNode]:
    folder = tmp_path_factory.mktemp("access")
    for parent in (folder, *folder.parents[:2]):
        parent.chmod(0o755)  # sshd's principals command runs as another user
    try:
        started = AccessNode(folder / "root")
    except MissingPart as missing:
        skip_or_fail(missing)
    with started:
        yield started


def test_the_end_of_a_grant_ends_its_sessions(node: AccessNode) -> None:
    """By its key id in the list that the trust bundle carries: every certificate of that grant, and no other's."""
    line = key_line(public_key_of(node.key))
    authority = UserAuthority(authority_key("ed25519", 80))  # the node trusts it

    def certificate_of(creator: str, epoch: int = 0, *, nodes: str = access_node.NODE) -> SignedCertificate:
        given = facts_of(
            grant_of(sshPublicKey=line, logins=[access_node.USER], target={"nodes": [nodes]}),
            creator=creator,
            epoch=epoch,
            lifetime=timedelta(minutes=5),
        )
        return issued(given, serial=time.time_ns() % 2**62, now=now(), authority=authority)[Hop.NODE]

    elsewhere = node.log_in(certificate_of("alice", nodes="worker-2"), "echo in")
    assert (elsewhere.returncode, elsewhere.stdout) == (255, ""), "test 20, by the node's own principals"
    sessions = {}
    for creator, word in (("alice", "1101"), ("bob", "1102")):
        command = node.ssh(certificate_of(creator), access_node.NODE, f"sleep {word}")
        sessions[creator] = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
    try:
        wait_until(lambda: len(node.processes("^sleep 110")) == 2, "two sessions")
        renewed = certificate_of("alice")
        listed = (CertificateRevocations(AnyAuthority(), key_ids=(KEY_ID,)),)
        partial = node.file(".revoked_keys.new")
        partial.write_bytes(revocation_list(listed, int(time.time())))
        partial.replace(node.file("revoked_keys"))
        since = time.time()
        sessions["alice"].wait(timeout=30)
        assert time.time() - since < END_SECONDS
        assert node.processes("^sleep 1101") == []
        assert len(node.processes("^sleep 1102")) == 1, "bob's grant goes on"
        assert node.log_in(renewed, "echo in").returncode == 255, "a certificate of the same grant, never shown before"
        assert node.log_in(certificate_of("alice", epoch=1), "echo in").stdout == "in\n", "the right is back"
    finally:
        for session in sessions.values():
            session.kill()
            session.communicate()
