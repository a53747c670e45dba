"""Certificates of ``ssh-sign`` and of the two authorities at a real sshd: who gets in, and who does not, and why."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest

from attestors.wire.ssh.certificate import Certificate, SignedCertificate, parse_certificate_line
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.keys import PublicKey, host_key
from attestors.wire.ssh.principals import HostName, LoginOnEveryNode, LoginOnNode, PlainPrincipal, UserPrincipal
from attestors.wire.ssh.signatures import Signature, public_key_of, sign
from signer.authority.ssh.authorities import HostAuthority
from signer.authority.ssh.derivation import derive_user_authority, parse_master_secret
from signer.authority.ssh.key_id import KeyID
from signer.authority.ssh.requests import Nonce, Serial, UserCertificateRequest
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.openssh import private_key, public_keys, write_private_key
from tests.support.software_token import SoftwareToken
from tests.support.ssh_server import NODE, SSHServer, run_ssh
from tests.unit.attestors.wire.ssh.test_signatures import touched
from tests.unit.signer.authority.ssh.requests import FOR_HOST, authority_key

pytestmark = pytest.mark.slow

MASTER: Final = json.dumps({"key": base64.b64encode(bytes(range(32))).decode()}).encode()
USERS: Final = derive_user_authority(parse_master_secret(MASTER))
HOSTS: Final = HostAuthority(authority_key("ed25519", 71))
KEY: Final = private_key("ed25519", 72)
ROOT: Final = PlainPrincipal("root")
PROGRAM: Final = "import sys; from signer.entry import main; sys.exit(main())"


@pytest.fixture(scope="module")
def server() -> Iterator[SSHServer]:
    try:
        started = SSHServer(user_authority=USERS.public_key)
    except MissingPart as missing:
        skip_or_fail(missing)
    with started:
        yield started


@pytest.fixture(autouse=True)
def _as_before(server: SSHServer) -> None:
    server.revoked.write_bytes(b"")
    server.forget_log()


@pytest.fixture
def key(tmp_path: Path) -> Path:
    (tmp_path / "master.json").write_bytes(MASTER)
    (tmp_path / "id.pub").write_text(f"{key_line(public_key_of(KEY))} alice@laptop\n")
    return write_private_key(tmp_path / "id", KEY)


def command(key: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """``node-attestation-controller``, in the folder of the key."""
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=key.parent,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def ssh_sign(key: Path, *arguments: str) -> SignedCertificate:
    done = command(key, "ssh-sign", "--master-secret", "master.json", *arguments, "id.pub")
    assert done.returncode == 0, done.stderr
    return parse_certificate_line(done.stdout.strip())


def log_in(server: SSHServer, key: Path, signed: SignedCertificate, *words: str) -> subprocess.CompletedProcess[str]:
    certificate = key.with_name("offered-cert.pub")
    certificate.write_text(f"{signed.line}\n")
    offer = ("-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none", "-i", key, "-o", f"CertificateFile={certificate}")
    return run_ssh(*server.options(), *offer, "-l", "root", NODE, *(words or ("echo", "in")))


def refused(server: SSHServer, key: Path, signed: SignedCertificate) -> str:
    """sshd's log of a login that is refused."""
    done = log_in(server, key, signed)
    assert (done.returncode, done.stdout) == (255, ""), done
    assert "Permission denied (publickey)" in done.stderr
    return server.log()


def with_agent(
    server: SSHServer, folder: Path, identity: bytes, answer: Callable[[bytes], Signature]
) -> subprocess.CompletedProcess[str]:
    """A login by what an agent offers, who signs as that function does."""
    socket = folder / f"agent-{len(list(folder.iterdir()))}"
    with SoftwareToken(socket, identity, answer):
        return run_ssh(*server.options(), "-o", f"IdentityAgent={socket}", "-l", "root", NODE, "echo", "in")


def users_certificate(*, now: int | None = None, principal: UserPrincipal = ROOT) -> SignedCertificate:
    request = UserCertificateRequest(
        public_key=public_key_of(KEY),
        key_id=KeyID.of("grant", "alice"),
        principals=(principal,),
        serial=Serial(77),
        nonce=Nonce(bytes(32)),
        now=int(time.time()) if now is None else now,
        lifetime=timedelta(minutes=5),
    )
    return USERS.sign(request)


def test_a_certificate_of_ssh_sign_logs_in(server: SSHServer, key: Path) -> None:
    """And sshd's log names who it was."""
    signed = ssh_sign(key, "--principal", "root", "--validity", "5m", "--key-id", "break-glass/alice")
    done = log_in(server, key, signed, "exit", "7")
    assert done.returncode == 7, done.stderr + server.log()
    certificate = signed.certificate
    assert (
        f"ID break-glass/alice (serial {certificate.serial}) CA ED25519 {USERS.public_key.fingerprint}" in server.log()
    )


@pytest.mark.parametrize("principal", [LoginOnNode("root", NODE), LoginOnEveryNode("root")], ids=str)
def test_principals_of_a_node_log_in_where_it_accepts_them(
    server: SSHServer, key: Path, principal: UserPrincipal
) -> None:
    assert log_in(server, key, users_certificate(principal=principal)).stdout == "in\n"


def test_a_star_is_a_character(server: SSHServer, key: Path) -> None:
    """A certificate for every node opens none that does not list exactly that."""
    before = server.principals.read_text()
    server.principals.write_text(f"root@{NODE}\n")
    try:
        assert "Certificate does not contain an authorized principal" in refused(
            server, key, users_certificate(principal=LoginOnEveryNode("root"))
        )
        assert "Certificate does not contain an authorized principal" in refused(
            server, key, users_certificate(principal=LoginOnNode("root", "worker-2"))
        )
    finally:
        server.principals.write_text(before)


def test_another_generation_is_not_trusted(server: SSHServer, key: Path) -> None:
    signed = ssh_sign(key, "--generation", "1")
    assert f"CA ED25519 {signed.certificate.authority.fingerprint} is not listed" in refused(server, key, signed)


def test_an_expired_certificate(server: SSHServer, key: Path) -> None:
    assert "Certificate invalid: expired" in refused(server, key, users_certificate(now=int(time.time()) - 600))


@pytest.mark.parametrize(
    ("ahead", "why"),
    [(240, ""), (-50, ""), (360, "Certificate invalid: expired"), (-120, "Certificate invalid: not yet valid")],
)
def test_a_clock_that_differs_from_the_authoritys(server: SSHServer, key: Path, ahead: int, why: str) -> None:
    """Test 25, of a certificate of five minutes. A node's clock that is ahead by as much as the certificate lasts, or
    behind by more than the minute of backdating, opens to nobody.
    """
    signed = users_certificate(now=int(time.time()) - ahead)
    if why:
        assert why in refused(server, key, signed)
    else:
        assert log_in(server, key, signed).stdout == "in\n"


@pytest.mark.parametrize(("ahead", "accepted"), [(300, True), (-50, True), (-300, False)])
def test_a_clients_clock_that_differs_from_the_controllers(
    server: SSHServer, key: Path, host_certificate: Certificate, ahead: int, accepted: bool
) -> None:
    """Test 25, for host certificates: a client whose clock is behind waits until they begin."""
    shifted = replace(
        host_certificate,
        valid_after=host_certificate.valid_after - ahead,
        valid_before=host_certificate.valid_before - ahead,
    )
    with_host_certificate(server, shifted)
    done = connect(server, key, HOSTS.public_key)
    assert done.stdout == ("in\n" if accepted else ""), done.stderr
    assert accepted or "Certificate invalid: not yet valid" in done.stderr


def test_a_certificate_of_the_host_authority_for_a_user(server: SSHServer, key: Path) -> None:
    """Test 22: no function makes one, and sshd trusts only the user authority."""
    unsigned = replace(users_certificate().certificate, authority=HOSTS.public_key)
    forged = SignedCertificate(unsigned, sign(HOSTS.private_key, unsigned.signed_bytes))
    forged.verify()
    assert f"CA ED25519 {HOSTS.public_key.fingerprint} is not listed" in refused(server, key, forged)


def test_a_host_certificate_logs_nobody_in(server: SSHServer, tmp_path: Path) -> None:
    """Test 21, even by an authority that sshd trusts for users. ssh would not offer it by itself, so an agent does."""
    request = replace(
        FOR_HOST, public_key=host_key(public_key_of(KEY)), principals=(HostName("root"),), now=int(time.time())
    )
    signed = HostAuthority(USERS.private_key).sign(request)
    done = with_agent(server, tmp_path, signed.blob, lambda data: sign(KEY, data))
    assert (done.returncode, done.stdout) == (255, "")
    assert "Certificate invalid: not a user certificate" in server.log()


def test_a_revoked_certificate_is_refused_at_the_next_login(server: SSHServer, key: Path) -> None:
    """By ``krl revoke``, with no API server; another certificate for the same key still counts."""
    first, second = ssh_sign(key), ssh_sign(key)
    assert log_in(server, key, first).stdout == "in\n"
    done = command(key, "krl", "revoke", str(first.certificate.serial), "--file", str(server.revoked))
    assert done.returncode == 0, done.stderr
    assert f"revoked by file {server.revoked}" in refused(server, key, first)
    assert log_in(server, key, second).stdout == "in\n"
    assert command(key, "krl", "revoke", "id.pub", "--file", str(server.revoked)).returncode == 0
    assert "revoked by file" in refused(server, key, second)


@pytest.mark.parametrize("name", ["sk-ed25519", "sk-ecdsa"])
def test_a_certificate_for_a_fido_key_logs_in(server: SSHServer, tmp_path: Path, name: str) -> None:
    """Test 7, with a token in software. Nobody gets in who did not touch it."""
    public = public_keys()[name]
    signed = USERS.sign(
        UserCertificateRequest(
            public_key=public,
            key_id=KeyID.of("token"),
            principals=(PlainPrincipal("root"),),
            serial=Serial(78),
            nonce=Nonce(bytes(32)),
            now=int(time.time()),
            lifetime=timedelta(minutes=5),
        )
    )

    def touch(data: bytes) -> Signature:
        return touched(name, data)[1]

    def answer_by_itself(data: bytes) -> Signature:
        return touched(name, data, flags=0)[1]

    done = with_agent(server, tmp_path, signed.blob, touch)
    assert (done.returncode, done.stdout) == (0, "in\n"), done.stderr + server.log()
    done = with_agent(server, tmp_path, signed.blob, answer_by_itself)
    assert (done.returncode, done.stdout) == (255, "")
    assert "user presence (authenticator touch) requirement not met" in server.log()


def test_exec_logs_in_with_a_key_that_is_gone_afterwards(
    server: SSHServer, key: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = key.parent / "keys"
    keys.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(keys))
    arguments = ("ssh-sign", "--master-secret", "master.json", "--exec", *server.options(), NODE, "echo in; exit 9")
    done = command(key, *arguments)
    assert (done.returncode, done.stdout) == (9, "in\n"), done.stderr + server.log()
    [used] = [line for line in server.log().splitlines() if "Accepted publickey for root" in line]
    assert "ED25519-CERT" in used
    assert list(keys.iterdir()) == []


# Host certificates


def connect(server: SSHServer, key: Path, authority: PublicKey) -> subprocess.CompletedProcess[str]:
    certificate = key.with_name("offered-cert.pub")
    certificate.write_text(f"{users_certificate().line}\n")
    offer = ("-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none", "-i", key, "-o", f"CertificateFile={certificate}")
    return run_ssh(*server.options(host_authority=authority), *offer, "-l", "root", NODE, "echo", "in")


def with_host_certificate(server: SSHServer, certificate: Certificate, by: HostAuthority = HOSTS) -> None:
    signed = SignedCertificate(certificate, sign(by.private_key, certificate.signed_bytes))
    server.host_certificate.write_text(f"{signed.line}\n")
    server.restart()


@pytest.fixture
def host_certificate(server: SSHServer) -> Iterator[Certificate]:
    request = replace(
        FOR_HOST,
        public_key=host_key(public_key_of(server.host_key)),
        principals=(HostName(NODE),),
        now=int(time.time()),
    )
    yield HOSTS.sign(request).certificate
    server.host_certificate.unlink(missing_ok=True)
    server.restart()


def test_a_host_certificate_is_accepted_without_a_prompt(
    server: SSHServer, key: Path, host_certificate: Certificate
) -> None:
    with_host_certificate(server, host_certificate)
    assert connect(server, key, HOSTS.public_key).stdout == "in\n"
    other = connect(server, key, USERS.public_key)
    assert (other.returncode, "Host key verification failed" in other.stderr) == (255, True)


@pytest.mark.parametrize("what", ["another name", "a user certificate"])
def test_what_is_no_certificate_of_this_host(
    server: SSHServer, key: Path, host_certificate: Certificate, what: str
) -> None:
    """Test 21: a user certificate proves no host, even by the host authority."""
    if what == "another name":
        with_host_certificate(server, replace(host_certificate, principals=(HostName("worker-2"),)))
    else:
        users = replace(
            users_certificate().certificate,
            public_key=host_certificate.public_key,
            principals=(PlainPrincipal(NODE),),
            authority=HOSTS.public_key,
        )
        with_host_certificate(server, users)
    done = connect(server, key, HOSTS.public_key)
    assert (done.returncode, done.stdout) == (255, "")
    assert "Host key verification failed" in done.stderr
    if what == "another name":
        assert "Certificate invalid: name is not a listed principal" in done.stderr
