"""Both SSH authorities rotate while somebody logs in to a real sshd every 200 ms.

The controller is the real reconciler, and the node writes sshd's files as the agent does. Only the request between them
is missing: the node is given what the controller would answer.
"""

from __future__ import annotations

import asyncio
import subprocess
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count, repeat
from pathlib import Path
from typing import Any, Final

import pytest

from attestors.wire.node_access import NodeAccess, Trust
from attestors.wire.ssh.certificate import SignedCertificate
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.keys import HostKey, PublicKey, host_key
from attestors.wire.ssh.principals import HostName, LoginOnNode
from attestors.wire.ssh.signatures import public_key_of
from authenticator.flow.sshd_files import SSHDFiles
from authenticator.model.node_access import UnknownTrust, accept_access
from authenticator.model.ssh_state import SSHState, digest_of
from signer.authority.ssh.authorities import HostAuthority, UserAuthority
from signer.authority.ssh.key_id import KeyID
from signer.authority.ssh.requests import HostCertificateRequest, Nonce, Serial, UserCertificateRequest
from signer.ssh.reports import Reports
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.openssh import private_key, write_private_key
from tests.support.ssh_server import NODE, SSHServer, run_ssh
from tests.unit.signer.ssh.world import Process, World, node, order, ordered

pytestmark = pytest.mark.slow

EVERY_SECONDS: Final = 0.2
LEAST_PAUSE_SECONDS: Final = 0.02
"""Between two rounds, in which the controller or the node may change something."""
PERSON: Final = private_key("ed25519", 72)
HOUR: Final = 71 / 24 / 60
"""In days: until the longest certificate has ended."""


def user_certificate(authority: UserAuthority) -> SignedCertificate:
    request = UserCertificateRequest(
        public_key=public_key_of(PERSON),
        key_id=KeyID.of("grant", "alice"),
        principals=(LoginOnNode("root", NODE),),
        serial=Serial(7),
        nonce=Nonce(bytes(32)),
        now=int(time.time()),
        lifetime=timedelta(hours=1),
    )
    return authority.sign(request)


def host_certificate(authority: HostAuthority, key: HostKey) -> SignedCertificate:
    request = HostCertificateRequest(
        public_key=key,
        key_id=KeyID.of("host", NODE),
        principals=(HostName(NODE),),
        serial=Serial(8),
        nonce=Nonce(bytes(32)),
        now=int(time.time()),
        lifetime=timedelta(days=30),
    )
    return authority.sign(request)


@dataclass
class Node:
    """One node: sshd, and the files that the agent writes for it."""

    server: SSHServer
    trust: Trust | None = None
    presents: str = ""

    def __post_init__(self) -> None:
        self.host_key = host_key(public_key_of(self.server.host_key))
        self.files = SSHDFiles(self.server.folder / "agent")
        links = {
            "user-authorities": "trusted_user_ca_keys",
            "host-cert.pub": "host-cert.pub",
            "revoked.krl": "revoked_keys",
        }
        for name, target in links.items():
            (self.server.folder / name).unlink(missing_ok=True)
            (self.server.folder / name).symlink_to(f"agent/{target}")

    def attest(self, process: Process) -> None:
        """The report is about the trust that the node has; the answer has the present one and a certificate."""
        found, now = process.available(), process.world.now
        version, digest = (self.trust.version, digest_of(self.trust)) if self.trust else (0, "")
        fingerprint = found.host.public_key.fingerprint
        report = node(NODE, version, fingerprint, end=now + timedelta(days=30))
        access = NodeAccess((host_certificate(found.host, self.host_key),), found.trust)
        state = SSHState(version, digest)
        in_force = self.trust or UnknownTrust()
        accepted = accept_access(
            access,
            host_keys=(self.host_key,),
            node_name=NODE,
            state=state,
            in_force=in_force,
            now=int(time.time()),
        )
        keys: dict[PublicKey, Path] = {self.host_key: Path("host")}
        self.files.install(accepted, keys, node_name=NODE, is_first=self.trust is None, now=int(time.time()))
        self.trust = found.trust
        process.world.reports = Reports((report,))
        if self.presents != fingerprint:
            self.presents = fingerprint
            self.server.restart()  # the listener of this test reads HostCertificate when it starts

    def log_in(self, folder: Path, number: int, signed: SignedCertificate) -> subprocess.CompletedProcess[str]:
        """``number`` is another one for each of several at a time."""
        known = folder / "known_hosts"
        certificate = folder / f"offered-{number}-cert.pub"
        certificate.write_text(f"{signed.line}\n")
        server = [*self.server.options()[:2], *_with_known_hosts(self.server.options()[2:], known)]
        offer = ("-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none", "-i", folder / "id")
        certified = ("-o", f"CertificateFile={certificate}", "-o", "HostKeyAlgorithms=ssh-ed25519-cert-v01@openssh.com")
        return run_ssh(*server, *offer, *certified, "-l", "root", NODE, "echo", "in")


def _with_known_hosts(options: list[str], known: Path) -> list[str]:
    return [f"UserKnownHostsFile={known}" if one.startswith("UserKnownHostsFile=") else one for one in options]


@dataclass
class Logins:
    """Somebody logs in every 200 ms, with each certificate that is valid, and with each that is not any more."""

    node: Node
    folder: Path
    process: Process
    valid: list[SignedCertificate] = field(default_factory=list)
    retired: list[SignedCertificate] = field(default_factory=list)
    known: list[HostKey] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    rounds: int = 0

    def __post_init__(self) -> None:
        write_private_key(self.folder / "id", PERSON)
        self.lock = threading.Lock()
        """Held while the node or the controller changes something that a login is judged by."""
        self._round = threading.Condition()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Logins:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def knows(self, *authorities: HostKey) -> None:
        """The client is given these host authorities."""
        with self.lock:
            self.known = list(authorities)
            text = "".join(f"@cert-authority {NODE} {key_line(one)}\n" for one in authorities)
            (self.folder / "known_hosts").write_text(text)

    def _run(self) -> None:
        pause = EVERY_SECONDS
        while not self._end.wait(pause):
            begin = time.monotonic()
            with self.lock:
                self._log_in_with_each()
                with self._round:
                    self.rounds += 1
                    self._round.notify_all()
            pause = max(LEAST_PAUSE_SECONDS, EVERY_SECONDS - (time.monotonic() - begin))

    def _log_in_with_each(self) -> None:
        """All at once."""
        valid = [user_certificate(self.process.available().user), *self.valid]
        offered = [*valid, *self.retired]
        with ThreadPoolExecutor(len(offered)) as pool:
            found = list(pool.map(self.node.log_in, repeat(self.folder), count(), offered))
        for number, (signed, done) in enumerate(zip(offered, found, strict=True)):
            line = f"{signed.certificate.authority.fingerprint}: {done}"
            if number < len(valid) and done.stdout != "in\n":
                self.failures.append(line)
            if number >= len(valid) and (done.returncode != 255 or "Permission denied" not in done.stderr):
                self.accepted.append(line)

    async def pass_by(self, rounds: int = 2) -> None:
        """Some rounds pass."""
        await asyncio.to_thread(self._wait, rounds)

    def _wait(self, rounds: int) -> None:
        with self._round:
            until = self.rounds + rounds
            assert self._round.wait_for(lambda: self.rounds >= until, timeout=120)


@dataclass
class Scene:
    """What a scenario drives."""

    world: World
    process: Process
    node: Node
    logins: Logins

    async def look(self) -> None:
        """The controller passes until it waits. Logins go on, by what it offers at each moment."""
        for _ in range(20):
            with self.logins.lock:
                pause = await self.process.pass_once()
            if pause > 0:
                break
        await self.logins.pass_by(1)

    async def attest(self) -> None:
        """The node attests, and the controller looks."""
        with self.logins.lock:
            self.node.attest(self.process)
        await self.look()

    async def order(self, operation: str) -> None:
        order(self.world, operation)
        await self.look()
        assert not ordered(self.world)
        assert not any(one.type == "SSHOperationRejected" for one in self.process.reconciler.conditions)

    def keep(self) -> SignedCertificate:
        """A person goes on with a certificate of now."""
        with self.logins.lock:
            signed = user_certificate(self.process.available().user)
            self.logins.valid.append(signed)
        return signed

    async def an_hour(self) -> None:
        """All certificates of people have ended, as the controller counts."""
        with self.logins.lock:
            self.logins.valid.clear()
            self.world.wait(HOUR)
        await self.look()

    def retire(self, signed: SignedCertificate) -> None:
        """No node may accept it from now on."""
        with self.logins.lock:
            self.logins.retired.append(signed)

    @property
    def phase(self) -> str:
        return str(self.process.reconciler.status["rotation"]["phase"])


@pytest.fixture
def server() -> Iterator[SSHServer]:
    try:
        started = SSHServer(user_authority=public_key_of(private_key("ed25519", 73)))
    except MissingPart as missing:
        skip_or_fail(missing)
    with started:
        yield started


def play(server: SSHServer, folder: Path, act: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    """Act it while somebody logs in; no valid login fails, and no retired one is accepted."""

    async def scenario() -> None:
        world = World(ssh={})
        process = await Process.started(world)
        await process.until_it_waits()
        one = Node(server)
        for _ in range(2):
            one.attest(process)
        logins = Logins(one, folder, process)
        logins.knows(process.available().host.public_key)
        with logins:
            await logins.pass_by()
            await act(Scene(world, process, one, logins))
            await logins.pass_by()
        assert logins.failures == []
        assert logins.accepted == []
        assert logins.rounds >= 5

    asyncio.run(asyncio.wait_for(scenario(), 180))


def test_logins_go_on_through_a_rotation(server: SSHServer, tmp_path: Path) -> None:
    """Test 18 of the design: no valid login fails, and none of a retired authority is accepted."""

    async def act(scene: Scene) -> None:
        old = scene.keep()
        first_host = scene.process.available().host.public_key
        await scene.order("start-ssh-ca-rotation")
        assert scene.phase == "Preparing"
        await scene.logins.pass_by()  # the node does not trust the new one yet
        for _ in range(2):
            await scene.attest()
        assert scene.phase == "Prepared"
        new = scene.keep()
        assert new.certificate.authority != old.certificate.authority
        await scene.logins.pass_by()

        scene.logins.knows(*scene.process.available().trust.host_authorities)
        await scene.order("complete-ssh-ca-rotation")
        await scene.attest()
        assert scene.node.presents != first_host.fingerprint
        scene.logins.knows(scene.process.available().host.public_key)
        await scene.logins.pass_by()
        await scene.an_hour()
        for _ in range(2):
            await scene.attest()
        assert scene.phase == "Completed"
        scene.retire(old)
        await scene.logins.pass_by()
        scene.keep()

    play(server, tmp_path, act)


def test_logins_go_on_through_a_rollback(server: SSHServer, tmp_path: Path) -> None:
    """Test 19 of the design: midway, the old authorities sign again, and in the end nodes refuse the new ones."""

    async def act(scene: Scene) -> None:
        first, first_host = scene.keep(), scene.process.available().host.public_key
        await scene.order("start-ssh-ca-rotation")
        for _ in range(2):
            await scene.attest()
        new = scene.keep()
        assert new.certificate.authority != first.certificate.authority
        scene.logins.knows(*scene.process.available().trust.host_authorities)
        await scene.order("complete-ssh-ca-rotation")
        assert scene.phase == "Completing"
        await scene.order("rollback-ssh-ca-rotation")
        assert scene.phase == "RollingBack"
        again = scene.keep()
        assert again.certificate.authority == first.certificate.authority
        await scene.attest()
        await scene.an_hour()
        for _ in range(2):
            await scene.attest()
        assert scene.phase == "RolledBack"
        assert scene.node.presents == first_host.fingerprint
        scene.logins.knows(first_host)
        scene.retire(new)
        await scene.logins.pass_by()

    play(server, tmp_path, act)


def test_a_leaked_user_authority_opens_nothing_once_the_node_has_learned(server: SSHServer, tmp_path: Path) -> None:
    async def act(scene: Scene) -> None:
        with scene.logins.lock:
            stolen = user_certificate(scene.process.available().user)
            order(scene.world, "revoke-ssh-user-ca")
            for _ in range(3):
                await scene.process.until_it_waits()
                scene.node.attest(scene.process)
        await scene.look()
        assert scene.phase == "Completed"
        scene.retire(stolen)

    play(server, tmp_path, act)
