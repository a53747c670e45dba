"""Sessions on a node with the image files, real systemd and a real sshd: who gets in, and when it ends.

Test numbers are those of the design's list. One node serves all tests; each leaves its files as they were.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from typing import Final

import pytest

from attestors.wire.ssh.certificate import SignedCertificate
from attestors.wire.ssh.krl import AnyAuthority, CertificateRevocations, SerialRange
from attestors.wire.ssh.principals import LoginOnNode, PlainPrincipal
from tests.support.access_node import NODE, PROGRAM, USER, AccessNode
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.processes import wait_until

pytestmark = pytest.mark.slow

ROOT: Final = PlainPrincipal("root")
ROOT_HERE: Final = LoginOnNode("root", NODE)
END_SECONDS: Final = 4.0
"""Two seconds that the design allows, and two for a machine that is busy with other tests."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AccessNode]:
    folder = tmp_path_factory.mktemp("node-access")
    for parent in (folder, *folder.parents[:2]):
        parent.chmod(0o755)  # sshd's principals command runs as another user
    try:
        started = AccessNode(folder / "root")
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
    certificate = node.certificate(seconds=5)
    with client(node, certificate, NODE, "sleep 1001") as session:
        session.logged_in()
        session.ended(certificate.certificate.valid_before)
    assert node.processes("sleep 1001") == []
    assert node.connections() == set()
