"""Sessions in a container on a node with systemd: they end with their certificate, and open nothing of the node.

Control groups are of version 2.
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator

import pytest

from attestors.wire.ssh.certificate import SignedCertificate
from attestors.wire.ssh.krl import AnyAuthority, CertificateRevocations, SerialRange
from attestors.wire.ssh.principals import LoginOnEveryNode, LoginOnNode, PlainPrincipal
from tests.support.access_node import NODE
from tests.support.access_node import USER as ALICE
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.containers.systemd_node import USER, ContainersNode
from tests.support.processes import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.real]

OPENS = PlainPrincipal(USER)
STAYS = "(setsid sleep 7171 < /dev/null > /dev/null 2>&1 &) ; echo ready; exec sleep 7171"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ContainersNode]:
    folder = tmp_path_factory.mktemp("containers-node")
    for parent in (folder, *folder.parents[:2]):
        parent.chmod(0o755)
    try:
        started = ContainersNode(folder / "root")
    except MissingPart as missing:
        skip_or_fail(missing)
    with started:
        yield started


@pytest.fixture
def node(shared: ContainersNode) -> Iterator[ContainersNode]:
    shared.reset()
    yield shared
    shared.machine.run("systemctl stop 'node-access-containers-ssh@*'")


@contextlib.contextmanager
def session(node: ContainersNode, certificate: SignedCertificate, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """One that runs, with a process that has left it."""
    command = node.ssh_to_container(certificate, *options, NODE, STAYS)
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first.strip() == b"ready", (first, process.stderr and process.stderr.read(), node.journal()[-4000:])
        wait_until(lambda: len(node.ids("sleep 7171")) == 2, "both run")
        yield process
    finally:
        process.kill()
        process.communicate()


def run(node: ContainersNode, certificate: SignedCertificate, *words: str, login: str = USER) -> tuple[int, bytes]:
    command = node.ssh_to_container(certificate, NODE, *words, login=login)
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60)
    return done.returncode, done.stdout


def test_a_session_is_in_the_containers_control_group_and_ends_by_itself(node: ContainersNode) -> None:
    code, groups = run(node, node.certificate(OPENS), "cat /proc/self/cgroup; id -u; exit 9")
    assert (code, groups.splitlines()[-1]) == (9, b"65532")
    assert b"\n0::/node-access-" in groups  # as the container's own namespace shows it
    wait_until(lambda: node.connections_to_containers() == "", "the unit is gone")


@pytest.mark.parametrize("terminal", [(), ("-tt",)], ids=["streams", "terminal"])
def test_everything_ends_when_the_certificate_runs_out(node: ContainersNode, terminal: tuple[str, ...]) -> None:
    end = int(time.time()) + 12
    with session(node, node.certificate(OPENS, valid_before=end), *terminal) as process:
        process.wait(timeout=60)
        assert process.returncode != 0
        assert time.time() >= end - 1
        wait_until(lambda: not node.ids("sleep 7171"), "nothing is left in the container")
    assert node.ids("/bin/sleep 999999")


def test_everything_ends_when_the_certificate_is_revoked(node: ContainersNode) -> None:
    certificate = node.certificate(OPENS)
    with session(node, certificate) as process:
        serials = (SerialRange.single(certificate.certificate.serial),)
        node.revoke(certificates=(CertificateRevocations(AnyAuthority(), serials=serials),))
        process.wait(timeout=60)
        wait_until(lambda: not node.ids("sleep 7171"), "nothing is left in the container")
    assert run(node, certificate, "id")[0] == 255
    assert node.ids("/bin/sleep 999999")


def test_everything_ends_when_the_client_leaves(node: ContainersNode) -> None:
    with session(node, node.certificate(OPENS)):
        pass
    wait_until(lambda: not node.ids("sleep 7171"), "nothing is left in the container")
    wait_until(lambda: node.connections_to_containers() == "", "the unit is gone")


def test_the_two_sshds_open_nothing_of_each_other(node: ContainersNode) -> None:
    to_container = node.certificate(OPENS)
    both = node.certificate(OPENS, LoginOnNode(USER, NODE), LoginOnEveryNode(USER), LoginOnNode(ALICE, NODE))
    assert run(node, to_container, "echo in")[1] == b"in\n"
    for certificate in (to_container, both):
        assert node.log_in(certificate, "id", login=USER).returncode == 255
    assert node.log_in(both, "id", login=ALICE).returncode == 0
    for login in (ALICE, "root"):
        assert run(node, node.certificate(LoginOnNode(login, NODE), PlainPrincipal(login)), "id", login=login)[0] == 255
        certificate = node.certificate(PlainPrincipal(login), by=node.break_glass)
        assert run(node, certificate, "id", login=login)[0] == 255
    assert run(node, node.certificate(PlainPrincipal("shop_web-1_app")), "id")[0] == 255
    assert run(node, node.certificate(LoginOnNode(USER, NODE)), "id")[0] == 255
