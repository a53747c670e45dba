"""``node-access``, with the real kubectl, ssh, sshd and ssh-agent; a test plays the controller's part."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import shutil
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from attestors.wire.ssh.certificate import Certificate, CertificateKind, SignedCertificate
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.principals import HostName
from attestors.wire.ssh.signatures import Signature, public_key_of, sign
from signer.kube.resources import ACCESS_APPROVALS, ACCESS_GRANTS
from signer.model.access import parse_access_approval, parse_access_grant
from signer.testing.api import EmbeddedAPI
from tests.support.access_client import ALICE, BOB, Person, grant_named, is_running, prepare, the_grant
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.grant_controller import (
    HEARTBEAT,
    HOST_AUTHORITY,
    NAMESPACE,
    USER_AUTHORITY,
    GrantController,
)
from tests.support.openssh import private_key, public_keys
from tests.support.processes import free_port, wait_until
from tests.support.software_token import SoftwareToken
from tests.support.ssh_server import HOST, NODE, SSHServer
from tests.unit.attestors.wire.ssh.test_signatures import touched

pytestmark = pytest.mark.slow

LONG = pytest.mark.skipif(
    not os.environ.get("NODE_ATTESTATION_ACCESS"), reason="unit tests have the same: set NODE_ATTESTATION_ACCESS"
)
WHERE = f"{NODE}.production"
FULL = f"{WHERE}.{NAMESPACE}"
DIRECT = ("--bastion", "None")
ONE_KEY = "MaxAuthTries 1\n"
BASTION_KEYS = f"{ONE_KEY}AuthorizedKeysFile {{folder}}/keys\nForceCommand /bin/false\n"


@pytest.fixture(scope="module")
def api() -> Iterator[EmbeddedAPI]:
    with EmbeddedAPI() as embedded:
        prepare(embedded)
        yield embedded


@pytest.fixture(scope="module")
def all_grants(api: EmbeddedAPI) -> Iterator[GrantController]:
    with GrantController(api.connection()) as started:
        yield started


@pytest.fixture
def controller(all_grants: GrantController) -> GrantController:
    all_grants.forget()
    return all_grants


@pytest.fixture(scope="module")
def server() -> Iterator[SSHServer]:
    """sshd of worker-1, with a host certificate of the cluster."""
    try:
        started = SSHServer(user_authority=public_key_of(USER_AUTHORITY), first_lines=ONE_KEY)
    except MissingPart as missing:
        skip_or_fail(missing)
    with started:
        now = int(time.time())
        made = Certificate(
            public_key=public_key_of(started.host_key),
            kind=CertificateKind.HOST,
            serial=1,
            key_id=NODE,
            principals=(HostName(NODE), HostName(FULL)),
            valid_after=now - 60,
            valid_before=now + 86400,
            authority=public_key_of(HOST_AUTHORITY),
            nonce=bytes(32),
        )
        signed = SignedCertificate(made, sign(HOST_AUTHORITY, made.signed_bytes))
        started.host_certificate.write_text(f"{signed.line}\n")
        started.restart()
        yield started


@pytest.fixture(scope="module")
def alice_of_all(api: EmbeddedAPI, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Person]:
    try:
        person = Person(tmp_path_factory.mktemp("a"), api)
        person.start_agent()
    except MissingPart as missing:
        skip_or_fail(missing)
    yield person
    person.close()


@pytest.fixture
def alice(alice_of_all: Person) -> Person:
    alice_of_all.forget()
    return alice_of_all


@pytest.fixture
def at_node(controller: GrantController, server: SSHServer) -> GrantController:
    """The controller, whose grants lead to the real sshd."""
    controller.behaviour.port = server.port
    server.forget_log()
    return controller


def at_terminal(person: Person, typed: str, *words: str) -> str:
    """What a terminal shows while somebody types at it. Standard output goes elsewhere."""
    main, other = pty.openpty()
    with subprocess.Popen(
        person.command(*words),
        stdin=other,
        stdout=subprocess.DEVNULL,
        stderr=other,
        env=person.environment,
        cwd=person.home,
        start_new_session=True,
    ) as process:
        os.close(other)
        os.write(main, typed.encode())
        shown = b""
        with contextlib.suppress(OSError):  # Linux's way to say that nobody has the other end any more
            while content := os.read(main, 65536):
                shown += content
        process.wait(60)
    os.close(main)
    return shown.decode()


# Without access


def test_where_access_is_off_each_command_says_so_on_one_line(tmp_path: Path) -> None:
    """With kubectl's own error, a person would look for a fault of the client."""
    with EmbeddedAPI() as without_definitions:
        try:
            person = Person(tmp_path / "home", without_definitions)
        except MissingPart as missing:
            skip_or_fail(missing)
        commands: tuple[tuple[str, ...], ...] = (
            ("grant", "list"),
            ("grant", "create", WHERE, *DIRECT, "--no-keepalive", "--user", ALICE),
            ("ssh", WHERE, *DIRECT, "--user", ALICE, "--", "true"),
        )
        for words in commands:
            ran = person.run(*words)
            assert ran.returncode == (255 if words[0] == "ssh" else 1), ran.stderr
            assert ran.stderr.splitlines()[-1] == (
                "node-access: error: access is off in this management cluster, which serves no AccessGrants: ask its "
                "operator to switch it on, or name another cluster by --context or --kubeconfig"
            )
            assert "kubectl" not in ran.stderr


# Sessions


def test_ssh_asks_for_a_grant_runs_a_command_and_revokes_it(alice: Person, at_node: GrantController) -> None:
    ran = alice.run(
        "ssh", WHERE, *DIRECT, "--reason", "disk full", "--no-keepalive", "--", "echo", "-n", "on $0; exit 7"
    )
    assert ran.returncode == 7, ran.stderr
    assert ran.stdout == "on sh"
    assert "ready: certificates for 29m" in ran.stderr
    assert at_node.grants() == []
    (folder,) = alice.folders()
    assert (folder / "ended").read_text() == "its last session ended\n"
    assert not list(folder.glob("*cert.pub")) + list(folder.glob("config"))
    assert "no identities" in alice.agent_keys()


def test_the_private_key_is_in_the_agent_alone(alice: Person, at_node: GrantController) -> None:
    made = alice.run("grant", "create", WHERE, *DIRECT, "--no-keepalive", "-o", "json")
    assert made.returncode == 0, made.stderr
    (folder,) = alice.folders()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert sorted(one.name for one in folder.iterdir() if one.is_file()) == [
        *("config", "grant.json", "key.pub", "known_hosts", "node-cert.pub")
    ]
    assert all(stat.S_IMODE(one.stat().st_mode) == 0o600 for one in folder.iterdir() if one.is_file())
    assert "ED25519-CERT" in alice.agent_keys()
    grant = json.loads(made.stdout)
    assert parse_access_grant(grant).created_by == parse_access_grant(the_grant(at_node)).created_by
    assert grant["spec"]["createdBy"]["username"] == ALICE
    assert alice.run("grant", "revoke", grant["metadata"]["name"]).returncode == 0
    assert "no identities" in alice.agent_keys()


def test_without_an_agent_the_key_is_on_disk_and_it_says_so(alice: Person, at_node: GrantController) -> None:
    ran = alice.run("ssh", WHERE, *DIRECT, "--keep", "--no-keepalive", "--", "true", environment={"SSH_AUTH_SOCK": ""})
    assert ran.returncode == 0, ran.stderr
    (folder,) = alice.folders()
    assert "readable for you alone" in ran.stderr
    assert stat.S_IMODE((folder / "key").stat().st_mode) == 0o600
    again = alice.run("ssh", WHERE, *DIRECT, "--no-keepalive", "--", "true", environment={"SSH_AUTH_SOCK": ""})
    assert again.returncode == 0
    assert len(alice.folders()) == len(at_node.grants()) == 1
    assert alice.run("grant", "revoke", the_grant(at_node)["metadata"]["name"]).returncode == 0
    assert not (folder / "key").exists()


@LONG
def test_an_existing_key_is_used_where_it_is(alice: Person, at_node: GrantController) -> None:
    own = alice.home / "id"
    assert alice.other(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", own]).returncode == 0
    ran = alice.run(
        "ssh", NODE, "--cluster", "production", *DIRECT, "--identity", str(own), "--no-keepalive", "--", "true"
    )
    assert ran.returncode == 0, ran.stderr
    assert "no identities" in alice.agent_keys()
    own.unlink()
    (alice.home / "id.pub").unlink()


def test_a_fido_key_is_used_with_a_touch_for_each_login(alice: Person, at_node: GrantController) -> None:
    key = public_keys()["sk-ed25519"]
    (alice.home / "sk.pub").write_text(f"{key_line(key)}\n")
    touches = []

    def touch(data: bytes) -> Signature:
        touches.append(data)
        return touched("sk-ed25519", data)[1]

    with SoftwareToken(alice.home / "token", key.blob, touch) as token:
        words = ("ssh", WHERE, *DIRECT, "--identity", "sk.pub", "--no-keepalive", "--", "echo", "in")
        ran = alice.run(*words, environment={"SSH_AUTH_SOCK": str(token.socket)})
    assert (ran.returncode, ran.stdout) == (0, "in\n"), ran.stderr
    assert len(touches) == 1


HOSTILE: dict[str, Callable[[dict[str, Any]], object]] = {
    "option as address": lambda status: status["targets"][0].update(addresses=["-oProxyCommand=touch owned"]),
    "escape in a certificate": lambda status: status["certificates"][0].update(certificate="\x1b[2J\x1b]0;owned\x07"),
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_status_reaches_neither_ssh_nor_the_terminal(
    alice: Person, at_node: GrantController, change: Callable[[dict[str, Any]], object]
) -> None:
    at_node.behaviour.change = change  # type: ignore[assignment]
    ran = alice.run("ssh", WHERE, *DIRECT, "--no-keepalive", "--timeout", "5", "--", "true")
    assert ran.returncode == 255
    assert "error: status." in ran.stderr
    assert "\x1b" not in ran.stdout + ran.stderr
    assert not list(alice.home.glob("**/owned"))
    assert at_node.grants() == []
    (folder,) = alice.folders()
    assert not (folder / "config").exists()


@LONG
def test_the_sshs_own_failure_is_255(alice: Person, at_node: GrantController) -> None:
    at_node.behaviour.port = free_port()
    ran = alice.run("ssh", WHERE, *DIRECT, "--no-keepalive", "--", "true")
    assert ran.returncode == 255
    assert "refused" in ran.stderr
    assert at_node.grants() == []


def test_a_machine_without_the_host_certificate_is_refused(alice: Person, at_node: GrantController) -> None:
    other = key_line(public_key_of(private_key("ed25519", 312)))

    def another_authority(status: dict[str, Any]) -> None:
        status["knownHosts"] = [f"@cert-authority * {other}"]

    at_node.behaviour.change = another_authority
    ran = alice.run("ssh", WHERE, *DIRECT, "--no-keepalive", "--", "true")
    assert ran.returncode == 255
    assert "Host key verification failed" in ran.stderr


def test_scp_copies_both_ways(alice: Person, at_node: GrantController, server: SSHServer) -> None:
    (alice.home / "given").write_text("content")
    target = server.folder / "taken"
    assert (
        first := alice.run("scp", *DIRECT, "--keep", "--no-keepalive", "given", f"{WHERE}:{target}")
    ).returncode == 0, first.stderr
    assert target.read_text() == "content"
    assert alice.run("scp", *DIRECT, "--no-keepalive", f"{WHERE}:{target}", "back").returncode == 0
    assert (alice.home / "back").read_text() == "content"
    assert len(at_node.grants()) == 1
    missing = alice.run("scp", *DIRECT, "--no-keepalive", f"{WHERE}:/nowhere", "back")
    assert missing.returncode == 1


def test_forward_reaches_what_the_node_reaches(alice: Person, at_node: GrantController, server: SSHServer) -> None:
    port = free_port()
    with alice.started(
        "forward", WHERE, f"{HOST}:{port}:{HOST}:{server.port}", *DIRECT, "--no-keepalive"
    ) as forwarding:
        scanned = ["ssh-keyscan", "-T", "2", "-p", str(port), HOST]
        wait_until(lambda: "ssh-ed25519" in alice.other(scanned).stdout, "the forwarded port")
        assert the_grant(at_node)["spec"]["permissions"]["portForwarding"] is True
        os.killpg(forwarding.pid, signal.SIGINT)  # as a terminal does, to ssh as well
        _, errors = forwarding.communicate(timeout=30)
    assert forwarding.returncode in (255, -signal.SIGINT), errors
    assert at_node.grants() == []


def more_addresses(status: dict[str, Any]) -> None:
    """Nothing listens at the first one."""
    status["targets"][0]["addresses"] = ["127.0.0.9", HOST]


def fill(person: Person) -> None:
    """More keys in the ssh-agent than sshd lets anybody try, as developers have them."""
    for number in range(6):
        key = person.home / f"other-{number}"
        if not key.exists():
            assert person.other(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key]).returncode == 0
        assert person.other(["ssh-add", "-q", key]).returncode == 0


def test_the_address_that_answers_is_used(alice: Person, at_node: GrantController) -> None:
    at_node.behaviour.change = more_addresses
    ran = alice.run("ssh", WHERE, *DIRECT, "--no-keepalive", "--", "echo there; exit 7")
    assert (ran.returncode, ran.stdout) == (7, "there\n"), ran.stderr


@pytest.mark.parametrize("addresses", [lambda status: None, more_addresses], ids=["one address", "several"])
def test_it_goes_through_a_bastion_with_a_certificate_of_its_own(
    alice: Person, at_node: GrantController, server: SSHServer, addresses: Callable[[dict[str, Any]], None]
) -> None:
    """The bastion and the node let nobody try a second key."""
    authority = key_line(public_key_of(USER_AUTHORITY))
    with SSHServer(user_authority=public_key_of(HOST_AUTHORITY), first_lines=BASTION_KEYS) as bastion:

        def let_in(grant: dict[str, Any]) -> None:
            limits = f'restrict,port-forwarding,permitopen="{HOST}:{server.port}",permitopen="127.0.0.9:{server.port}"'
            principal = f"bastion@{grant['metadata']['uid']}"
            (bastion.folder / "keys").write_text(f'cert-authority,principals="{principal}",{limits} {authority}\n')

        at_node.behaviour.on_issue = let_in
        at_node.behaviour.bastion = {"ip": HOST, "port": bastion.port}
        at_node.behaviour.bastion_key = key_line(public_key_of(bastion.host_key))
        at_node.behaviour.change = addresses
        fill(alice)
        ran = alice.run(
            "ssh", WHERE, "--bastion", "local", "--cidr", "127.0.0.1", "--keep", "--no-keepalive", "--", "echo there"
        )
        assert (ran.returncode, ran.stdout) == (0, "there\n"), ran.stderr + bastion.log()
        (folder,) = alice.folders()
        uid = the_grant(at_node)["metadata"]["uid"]
        assert f"Accepted publickey for bastion from {HOST}" in bastion.log()
        assert (folder / "bastion-cert.pub").exists()
        # No shell on the bastion, and nothing else behind it.
        for words in (["true"], ["-W", f"{HOST}:{bastion.port}"]):
            alone = alice.other(["ssh", "-F", folder / "config", f"node-access-bastion-{uid}", *words])
            assert alone.returncode != 0


def test_sessions_share_a_grant_and_the_last_one_revokes_it(alice: Person, at_node: GrantController) -> None:
    with alice.started("ssh", WHERE, *DIRECT, "--no-keepalive", "--", "cat") as first:
        wait_until(lambda: any((one / "config").exists() for one in alice.folders()), "the configuration")
        second = alice.run("ssh", NODE, "--cluster", "production", *DIRECT, "--no-keepalive", "--", "true")
        assert second.returncode == 0, second.stderr
        assert len(at_node.grants()) == 1
        assert first.communicate("still here", timeout=30)[0] == "still here"
    assert at_node.grants() == []


# The heartbeat


def heartbeat_process(folder: Path) -> int:
    wait_until(lambda: (folder / "agent.pid").exists() and bool((folder / "agent.pid").read_text()), "the heartbeat")
    return int((folder / "agent.pid").read_text())


def test_the_heartbeat_renews_prolongs_and_ends_by_itself(
    alice: Person, at_node: GrantController, server: SSHServer
) -> None:
    at_node.behaviour.time_to_live = 8.0
    made = alice.run("grant", "create", WHERE, *DIRECT)
    assert made.returncode == 0, made.stderr
    (folder,) = alice.folders()
    process = heartbeat_process(folder)
    name = the_grant(at_node)["metadata"]["name"]
    first = (folder / "node-cert.pub").read_text()
    wait_until(lambda: HEARTBEAT in (grant_named(at_node, name)["metadata"].get("annotations") or {}), "a heartbeat")
    wait_until(lambda: (folder / "node-cert.pub").read_text() != first, "a new certificate")
    wait_until(lambda: "Accepted publickey for root" in server.log(), "a connection for a moment")
    second = alice.run("agent", name)  # one for each grant
    assert "another process keeps it alive already" in second.stderr
    at_node.client.delete(ACCESS_GRANTS.object(name, NAMESPACE))
    wait_until(lambda: not is_running(process), "the end of the heartbeat")
    assert "it is gone" in (folder / "ended").read_text()
    assert "the grant has ended: it is gone" in (folder / "agent.log").read_text()
    assert not (folder / "config").exists()
    assert "no identities" in alice.agent_keys()


def test_the_heartbeat_ends_with_a_right_that_does_not_come_back(alice: Person, at_node: GrantController) -> None:
    at_node.behaviour.time_to_live = 8.0
    assert alice.run("grant", "create", WHERE, *DIRECT).returncode == 0
    (folder,) = alice.folders()
    process = heartbeat_process(folder)
    at_node.behaviour.holds = {"Authorized": ("RightLost", "alice may not use root")}
    wait_until(lambda: not is_running(process), "the end of the heartbeat")
    why = (folder / "ended").read_text()
    assert why.startswith("its time is over, and its creator has no right to the login (alice may not use root); ")


def test_it_is_interrupted_while_it_waits(alice: Person, controller: GrantController) -> None:
    """By its terminal, which signals the whole group: the grant is revoked, and a shell sees the signal."""
    controller.behaviour.holds = {"Approved": ("ApprovalsMissing", "0 of 1")}
    with alice.started("ssh", WHERE, *DIRECT, "--no-keepalive", "--", "true") as waiting:
        assert waiting.stderr is not None
        wait_until(lambda: bool(controller.grants()), "the grant")
        while "waiting for" not in (line := waiting.stderr.readline()):
            assert line
        os.killpg(waiting.pid, signal.SIGINT)
        _, errors = waiting.communicate(timeout=30)
    assert waiting.returncode == -signal.SIGINT, errors
    assert controller.grants() == []


# What stock programs do with the files


def test_a_stock_ssh_works_through_the_one_line(alice: Person, at_node: GrantController) -> None:
    ssh_config = alice.home / ".ssh/config"
    ssh_config.parent.mkdir(exist_ok=True)
    ssh_config.write_text("Host *\n    StrictHostKeyChecking no\n    ForwardAgent yes\n")
    assert alice.run("grant", "create", WHERE, *DIRECT, "--no-keepalive").returncode == 0
    for _ in range(2):
        assert alice.run("config", "--install").returncode == 0
    text = ssh_config.read_text()
    assert text.count("Include ") == 1
    assert text.index("Include ") < text.index("Host *")
    # OpenSSH reads the home of the account, not $HOME.
    stock = ["ssh", "-F", str(ssh_config), "-o", "BatchMode=yes"]
    assert alice.other([*stock, WHERE, "echo stock"]).stdout == "stock\n"
    effective = alice.other([*stock, "-G", WHERE]).stdout
    assert "stricthostkeychecking true\n" in effective
    assert "forwardagent no\n" in effective
    (folder,) = alice.folders()
    assert str(folder) in effective


@pytest.fixture
def installed(alice: Person, at_node: GrantController, server: SSHServer) -> Iterator[Person]:
    """Alice's own account, with a grant and the one line in ``~/.ssh/config``, and a folder ``there`` for the node."""
    assert alice.run("grant", "create", WHERE, *DIRECT, "--no-keepalive").returncode == 0
    assert alice.run("config", "--install").returncode == 0
    (alice.home / "there").mkdir()
    (alice.home / "given").write_bytes(bytes(range(256)) * 4096)
    yield alice
    for name in ("there", "back"):
        shutil.rmtree(alice.home / name, ignore_errors=True)


def same(*files: Path) -> bool:
    return len({one.read_bytes() for one in files}) == 1


def test_stock_ssh_as_editors_call_it(installed: Person) -> None:
    """VS Code's Remote-SSH: a shell that reads its script, and a SOCKS proxy on a local port."""
    words = ["ssh", "-T", "-D", str(free_port()), "-o", "ConnectTimeout=15", WHERE, "sh"]
    ran = installed.at_home(words, text='printf "%s" "in $0"; exit 3\n')
    assert (ran.returncode, ran.stdout) == (3, "in sh"), ran.stderr
    assert "\nhostname 127.0.0.1\n" in installed.at_home(["ssh", "-G", WHERE]).stdout
    assert installed.at_home(["ssh", "-F", ".ssh/config", "-T", WHERE, "true"]).returncode == 0


def test_stock_scp_and_sftp_copy_both_ways(installed: Person) -> None:
    given, there, back = (installed.home / name for name in ("given", "there/given", "back"))
    for copy in (["scp", "-q"], ["scp", "-q", "-O"]):  # by SFTP, and by the former protocol
        assert installed.at_home([*copy, "given", f"{WHERE}:{there}"]).returncode == 0
        assert installed.at_home([*copy, f"{WHERE}:{there}", "back"]).returncode == 0
        assert same(given, there, back)
        there.unlink()
        back.unlink()
    batch = f"put given {there}\nget {there} back\n"
    assert installed.at_home(["sftp", "-q", "-b", "-", WHERE], text=batch).returncode == 0
    assert same(given, there, back)
    back.unlink()


def test_stock_rsync_copies_both_ways(installed: Person) -> None:
    if shutil.which("rsync") is None:
        skip_or_fail(MissingPart("rsync is not installed: run tests/provision/provision.sh"))
    given, there, back = (installed.home / name for name in ("given", "there/given", "back"))
    first = installed.at_home(["rsync", "-a", "given", f"{WHERE}:{there}"])
    assert first.returncode == 0, first.stderr
    assert installed.at_home(["rsync", "-a", f"{WHERE}:{there}", "back"]).returncode == 0
    assert same(given, there, back)
    back.unlink()


def test_stock_git_clones_and_pushes(installed: Person) -> None:
    if shutil.which("git") is None:
        skip_or_fail(MissingPart("git is not installed"))
    there = installed.home / "there"
    name = ["-c", "user.name=alice", "-c", "user.email=alice@example.com", "-c", "init.defaultBranch=main"]
    for words in (
        ["git", *name, "init", "-q", "--bare", str(there)],
        ["git", "clone", "-q", f"ssh://{WHERE}{there}", "back"],
        ["git", "-C", "back", *name, "commit", "-q", "--allow-empty", "-m", "by git"],
        ["git", "-C", "back", "push", "-q", "origin", "HEAD:main"],
    ):
        ran = installed.at_home(words)
        assert ran.returncode == 0, ran.stderr
    assert "by git" in installed.at_home(["git", "-C", str(there), "log", "main"]).stdout


# Grants


def test_grants_are_listed_shown_extended_and_revoked(alice: Person, controller: GrantController) -> None:
    assert alice.run("grant", "create", WHERE, *DIRECT, "--name", "repair", "--no-keepalive").returncode == 0
    listing = alice.run("grant", "list").stdout.splitlines()
    assert [line for line in listing if "…" in line] == [], "a pipe has whole values"
    assert listing[1].split()[:6] == ["repair", "production", NODE, "root", ALICE, "Ready"]
    assert json.loads(alice.run("grant", "list", "-o", "json").stdout)["items"][0]["metadata"]["name"] == "repair"
    shown = alice.run("grant", "show", "repair")
    assert "Ready:" in shown.stdout
    (folder,) = alice.folders()
    before = (folder / "node-cert.pub").read_text()
    assert alice.run("grant", "extend", "repair").returncode == 0
    assert (folder / "node-cert.pub").read_text() != before
    known = alice.run("known-hosts", "repair").stdout
    assert known == f"@cert-authority *.production.{NAMESPACE} {key_line(public_key_of(HOST_AUTHORITY))}\n"
    assert alice.run("grant", "revoke", "repair").returncode == 0
    gone = alice.run("grant", "show", "repair")
    assert gone.returncode == 1
    assert "not found" in gone.stderr


def test_an_approval_is_of_the_spec_as_it_was_shown(
    alice: Person, controller: GrantController, api: EmbeddedAPI, tmp_path: Path
) -> None:
    controller.behaviour.holds = {"Approved": ("ApprovalsMissing", "0 of 1")}
    assert alice.run("grant", "create", WHERE, *DIRECT, "--name", "repair", "--no-wait").returncode == 0
    bob = Person(tmp_path / "b", api, BOB)
    asked = bob.run("grant", "approve", "repair")
    assert asked.returncode == 1
    assert "give --yes" in asked.stderr
    assert controller.client.items(ACCESS_APPROVALS.collection(NAMESPACE)) == []
    refused = at_terminal(bob, "no\n", "grant", "approve", "repair")
    assert "Approve this? [y/N]" in refused
    assert "nothing was done" in refused
    assert controller.client.items(ACCESS_APPROVALS.collection(NAMESPACE)) == []
    approved = at_terminal(bob, "yes\n", "grant", "approve", "repair")
    assert "approved: repair of alice" in approved
    digest = parse_access_grant(the_grant(controller)).digest
    for shown in ("worker-1", "root", ALICE, "system:authenticated", "Port forwarding:", "Digest (SHA-256):"):
        assert shown in approved
    assert digest in approved.replace("\r\n", "").replace(" ", "")
    (made,) = controller.client.items(ACCESS_APPROVALS.collection(NAMESPACE))
    approval = parse_access_approval(made)
    grant = the_grant(controller)
    assert approval.spec_digest == parse_access_grant(grant).digest
    assert approval.grant.uid == grant["metadata"]["uid"]
    assert made["spec"]["createdBy"]["username"] == BOB


def test_a_missing_approval_is_waited_for_and_a_denial_is_not(alice: Person, controller: GrantController) -> None:
    controller.behaviour.holds = {"Approved": ("ApprovalsMissing", "0 of 1\x1b[2J")}
    late = alice.run("ssh", WHERE, *DIRECT, "--no-keepalive", "--timeout", "2", "--", "true")
    assert late.returncode == 255
    assert "waiting for approval (0 of 1\\x1b[2J); another person runs: node-access grant approve" in late.stderr
    assert "is not ready after 2 s: it waits for approval (Approved, ApprovalsMissing: 0 of 1" in late.stderr
    assert controller.grants() == []
    controller.behaviour.holds = {"Approved": ("DeniedByApprover", "bob")}
    denied = alice.run("ssh", WHERE, *DIRECT, "--no-keepalive", "--", "true")
    assert denied.returncode == 255
    assert "an approver denied it (bob)" in denied.stderr


def test_the_address_is_changed_by_its_creator(alice: Person, controller: GrantController) -> None:
    finder = alice.home / "my-address"
    finder.write_text("#!/bin/sh\necho 198.51.100.7\necho 2001:db8::7\n")
    finder.chmod(0o755)
    found = ("--public-ip-command", str(finder))
    assert (
        alice.run("grant", "create", WHERE, "--bastion", "local", *found, "--name", "repair", "--no-wait").returncode
        == 0
    )
    cidrs = [one["ipBlock"]["cidr"] for one in the_grant(controller)["spec"]["ingress"]]
    assert cidrs == ["198.51.100.7/32", "2001:db8::7/128"]
    assert alice.run("patch-ingress", "repair", "--cidr", "203.0.113.0/24").returncode == 0
    assert [one["ipBlock"]["cidr"] for one in the_grant(controller)["spec"]["ingress"]] == ["203.0.113.0/24"]
    nobody = alice.run("ssh", "worker-2.production", "--", "true")
    assert nobody.returncode == 255
    assert "--bastion None" in nobody.stderr


@LONG
def test_a_name_of_the_api_server_before_1_28_is_given(
    alice: Person, controller: GrantController, api: EmbeddedAPI
) -> None:
    api.faults.inject("POST */selfsubjectreviews", status=404, times=None)
    try:
        unknown = alice.run("grant", "create", WHERE, *DIRECT, "--no-wait")
        named = alice.run("grant", "create", WHERE, *DIRECT, "--no-wait", "--user", ALICE)
    finally:
        api.faults.clear()
    assert named.returncode == 0, named.stderr
    assert the_grant(controller)["spec"]["createdBy"] == {"username": ALICE}
    assert unknown.returncode == 1
    assert "give --user NAME" in unknown.stderr


def test_the_doctor_finds_what_is_missing(alice: Person, controller: GrantController) -> None:
    well = alice.run("doctor", "production")
    assert well.returncode == 0, well.stdout
    assert [line for line in well.stdout.splitlines() if line.startswith(" ")] == [], "a line for each, in a pipe"
    for name in ("ssh", "kubectl", "ssh-agent", "identity", "rights", "grant, clock", "other ways in"):
        assert f"\n{name} " in well.stdout
    ill = alice.run("doctor", "--login", "admin")
    assert ill.returncode == 1
    assert "use logins/admin: you have no such right" in ill.stdout
