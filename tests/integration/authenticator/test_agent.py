"""The agent renews ahead of time, tries again at growing intervals, and tells systemd when all is there, once."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, NoReturn

import pytest
from cryptography import x509

from attestors.wire.names import Purpose
from authenticator.flow.agent import Agent, notify_systemd
from authenticator.flow.certificates import NodeCertificates
from authenticator.flow.prepare import ExecStanza, prepare
from authenticator.model.attempt import Attempt
from authenticator.model.failures import ApiUnavailable, ExitCode, InvalidConfiguration, StoreUnusable
from authenticator.model.pair import Pair
from authenticator.model.plan import AGENT_SHARE, PLUGIN_SHARE, renewal_time
from authenticator.model.unix_time import time_text
from signer.testing.api import EmbeddedAPI
from tests.integration.authenticator.fixtures import (
    DAY,
    LONG_AGO,
    ClusterAdmin,
    Manifest,
    Node,
    Timepiece,
    asked,
    asking,
    created,
)
from tests.support.agent_plugin import NOTED_BOUNDS, run_with, start_with
from tests.support.node_program import exec_info
from tests.support.processes import wait_until

pytestmark = pytest.mark.slow
"""All together take many seconds, each a fraction of one."""

STANZA: Final = ExecStanza("/usr/local/bin/kubelet-authenticator", ["credential"], "client.authentication.k8s.io/v1")
WAIT_SECONDS: Final = 30.0


@dataclass
class Service:
    """An agent in this process, and what it told."""

    node: Node
    told: list[str] = field(default_factory=list)
    bounds: list[float] = field(default_factory=list)
    """How long whatever was done might have taken."""
    within: bool = False
    """Whether something is bound now."""

    def __post_init__(self) -> None:
        self.certificates: NodeCertificates = self.node.certificates()
        self.agent = Agent(
            self.certificates,
            self._prepare,
            self.node.time.clock(),
            self.node.reports.append,
            self.told.append,
            self._bounded,
        )

    @contextlib.contextmanager
    def _bounded(self, seconds: float) -> Iterator[None]:
        self.bounds.append(seconds)
        self.within = True
        try:
            yield
        finally:
            self.within = False

    def _prepare(self) -> None:
        assert self.within
        prepare(self.node.configuration, self.node.store, STANZA, self.node.time.clock())

    def turn(self) -> float:
        """One turn, and the sleep behind it; returns how long that was."""
        seconds = self.agent.turn()
        self.node.time.pass_by(seconds)
        return seconds

    def pair(self, purpose: Purpose = Purpose.CLIENT) -> Pair:
        """The stored pair."""
        found = self.node.store.pair(purpose)
        assert found is not None
        return found

    @property
    def status(self) -> str:
        """What was told last."""
        return self.told[-1]


@pytest.fixture
def service(node: Node) -> Service:
    return Service(node)


def grant_by_the_nodes_clock(admin: ClusterAdmin, node: Node, found: Manifest) -> None:
    """One that is valid by the API server's clock, too, and half over by the node's."""
    began = int(time.time()) - LONG_AGO
    admin.grant(found, not_before=began, not_after=node.time.now + (node.time.now - began))


@pytest.mark.slow
def test_it_keeps_both_certificates_fresh_for_days(admin: ClusterAdmin, node: Node) -> None:
    """So early that no kubelet ever finds one that is due."""
    node.serve()
    node.supply_bootstrap()
    service = Service(node)
    end = node.time.now + 2 * DAY
    seen: set[str] = set()
    with admin.deciding(lambda found: grant_by_the_nodes_clock(admin, node, found)) as granted:
        while node.time.now < end:
            seconds = service.turn()
            assert 1 <= seconds <= 300
            for purpose in Purpose:
                pair = service.pair(purpose)
                seen.add(pair.key)
                assert node.time.now <= renewal_time(pair, PLUGIN_SHARE)
            node.configuration.bootstrap_kubeconfig.unlink(missing_ok=True)  # as kubeadm does
    assert len(granted) == len(seen) > 10
    assert service.told.count("READY=1") == 1
    assert "next step is due in" in service.status


def test_trust_says_when_it_has_more_to_do_and_never_delays_a_kubelets_start(node: Node, service: Service) -> None:
    turns: list[int] = []

    def trust() -> float:
        assert service.within
        turns.append(len(service.told))
        return 7.0

    service.agent.trust = trust
    service.turn()
    assert turns == [], "without a certificate there is nothing to ask with"
    node.put_pair(age=LONG_AGO, left=DAY)
    assert [service.turn(), service.turn()] == [7.0, 7.0]
    ready = service.told.index("READY=1")
    assert turns[0] > ready, "after the first certificates"
    assert turns[1] == turns[0], "before they are looked at again"


def test_a_failure_of_trust_is_reported_once_and_stops_no_renewal(
    admin: ClusterAdmin, node: Node, service: Service
) -> None:
    former = node.put_pair(age=9000, left=1000)

    def trust() -> float:
        raise StoreUnusable("the state is damaged")

    service.agent.trust = trust
    with asking(service.turn) as answer:
        admin.grant(admin.next())
        answer.result()
    service.turn()
    assert service.pair().key != former.key
    assert sum("the state is damaged" in line for line in node.reports) == 1


def test_it_renews_when_three_tenths_are_left_or_a_little_more(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node, service: Service
) -> None:
    former = node.put_pair(age=6500 - 1, left=3500 + 1)
    due = renewal_time(former, AGENT_SHARE)
    assert former.not_after - 3500 <= due <= former.not_after - 3000
    while node.time.now < due:
        service.turn()
    assert node.time.now == due
    assert len(created(api)) == 0
    with asking(service.turn) as answer:
        admin.grant(admin.next())
        answer.result()
    assert service.pair().key != former.key


def test_without_a_bootstrap_kubeconfig_it_looks_for_one_every_few_seconds(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node, service: Service
) -> None:
    assert [service.turn() for _ in range(31)] == [2.0] * 31
    # Said at once, and again after a minute.
    assert len(node.reports) == 2
    assert "no bootstrap kubeconfig" in node.reports[0]
    assert service.status == f"STATUS={node.reports[0]}"
    assert len(api.requests) == 0
    node.supply_bootstrap()
    with asking(service.turn) as answer, admin.granting():
        answer.result()
    assert service.told[-2:-1] == ["READY=1"]
    assert node.configuration.kubeconfig.exists()


def test_a_partly_written_bootstrap_kubeconfig_is_read_again(admin: ClusterAdmin, node: Node, service: Service) -> None:
    """kubeadm writes it in place, and this looks for it all the time."""
    node.supply_bootstrap()
    path = node.configuration.bootstrap_kubeconfig
    whole = path.read_text()
    for part in ("", whole[: len(whole) // 2]):
        path.write_text(part)
        assert service.turn() > 0
    assert "bootstrap kubeconfig" in node.reports[-1]
    assert "READY=1" not in service.told
    path.write_text(whole)
    with asking(service.turn) as answer, admin.granting():
        answer.result()
    assert "READY=1" in service.told


@pytest.mark.slow
def test_failures_are_retried_at_growing_intervals_and_reported_once(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node, service: Service
) -> None:
    node.supply_bootstrap()
    api.faults.inject("POST */certificatesigningrequests", status=401, times=None)
    waits = [service.turn() for _ in range(9)]
    assert waits == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    assert all("answered 401" in text for text in node.reports)
    # Each time that the server was asked says how often that was; in between, the same is not said again.
    assert len(node.reports) < len(waits) + 2
    assert not any(line.startswith("READY") for line in service.told)
    api.faults.clear()
    with admin.granting():
        service.turn()
        while "READY=1" not in service.told:
            service.turn()
    assert service.pair().key


@pytest.mark.slow
def test_waits_begin_small_again_behind_a_success(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node, service: Service
) -> None:
    node.supply_bootstrap("abcdef.0123456789abcdef")
    assert [service.turn() for _ in range(3)] == [5, 10, 20]
    node.supply_bootstrap()
    with asking(service.turn) as answer, admin.granting():
        answer.result()
    node.store.pair_file(Purpose.CLIENT).unlink()
    node.supply_bootstrap("abcdef.0123456789abcdef")
    assert service.turn() == 5


def test_it_is_not_ready_before_the_serving_certificate_is_there(admin: ClusterAdmin, node: Node) -> None:
    node.serve()
    node.supply_bootstrap()
    service = Service(node)

    def decide(found: Manifest) -> None:
        if "server auth" in found["spec"]["usages"]:
            admin.decide(found, "Denied", "InvalidSubjectAlternativeNames", "not the Machine's")
        else:
            admin.grant(found)

    with admin.deciding(decide):
        service.turn()
        assert service.pair().key
        assert not any(line.startswith("READY") for line in service.told)
        assert "InvalidSubjectAlternativeNames" in service.status
    node.time.pass_by(60)
    with admin.granting():
        service.turn()
    assert service.told.count("READY=1") == 1


def test_a_lasting_refusal_of_a_serving_certificate_is_not_reported_at_every_turn(
    admin: ClusterAdmin, node: Node
) -> None:
    """The client certificate, which is well, does not make it news."""
    node.serve()
    node.put_pair(age=100, left=DAY)
    service = Service(node)
    with admin.deciding(lambda found: admin.decide(found, "Denied", "InvalidSubjectAlternativeNames", "no")):
        service.agent.turn()
    told = [text for text in node.reports if "InvalidSubjectAlternativeNames" in text]
    assert len(told) == 1
    for _ in range(10):
        service.agent.turn()  # within the pause
    assert len([text for text in node.reports if "InvalidSubjectAlternativeNames" in text]) == 2


def test_certificates_that_were_there_make_it_ready_at_once(api: EmbeddedAPI, node: Node, service: Service) -> None:
    node.put_pair(age=100, left=DAY)
    service.turn()
    service.turn()
    assert service.told.count("READY=1") == 1
    assert len(created(api)) == 0


def test_a_failed_renewal_does_not_make_it_unready(api: EmbeddedAPI, node: Node, service: Service) -> None:
    node.put_pair(age=8000, left=2000)
    api.faults.inject("POST */certificatesigningrequests", status=401, times=None)
    service.turn()
    assert "READY=1" in service.told
    assert "not renewed" in node.reports[-1]


@pytest.mark.parametrize("purpose", Purpose)
def test_systemd_gets_the_cause_of_a_failed_renewal(admin: ClusterAdmin, node: Node, purpose: Purpose) -> None:
    """With the refusal, and as long as its pause lasts; nobody would look for it behind "fresh"."""
    node.serve()
    names = [x509.DNSName(node.name), x509.IPAddress(ip_address("192.0.2.10"))]
    node.put_pair(age=100, left=DAY)
    node.put_pair(age=100, left=DAY, purpose=Purpose.SERVING, names=names)
    node.put_pair(age=8000, left=2000, purpose=purpose, names=names if purpose is Purpose.SERVING else [])
    service = Service(node)
    with admin.deciding(lambda found: admin.decide(found, "Denied", "MachinePaused", "not now")):
        for _ in range(3):
            service.agent.turn()
            assert service.status.startswith("STATUS=valid, but not renewed: node-attestation-")
            assert "Denied with reason MachinePaused: not now; the next attempt is due in " in service.status
            assert "fresh" not in service.status
            node.time.pass_by(20)
    assert "READY=1" in service.told
    node.time.pass_by(60)
    with asking(service.turn) as answer, admin.granting():
        answer.result()
    assert service.status.startswith("STATUS=certificates are fresh; the next step is due in ")


def test_systemd_gets_a_missing_decision(
    admin: ClusterAdmin, node: Node, service: Service, nobody_decides: Timepiece
) -> None:
    node.put_pair(age=8000, left=2000)
    service.agent.turn()
    assert service.status.startswith("STATUS=valid, but not renewed: node-attestation-")
    assert "is still undecided" in service.status


def test_a_clock_that_is_behind_is_reported_once(api: EmbeddedAPI, node: Node, service: Service) -> None:
    """As at a boot without a clock: nothing looks due for decades, and the API server's certificates run out."""
    node.put_pair(age=100, left=DAY)
    began = time_text(node.time.now - 100)
    node.time.wall = 1000.0
    for _ in range(2):
        assert service.turn() == 300
        assert service.status == f"STATUS=not valid before {began}: is this node's clock right?"
    assert node.reports == [f"the certificates are not valid before {began}: is this node's clock right?"]
    node.time.wall = time.time()
    service.turn()
    assert service.status.startswith("STATUS=certificates are fresh")
    assert len(asked(api)) == 0


def test_a_configuration_that_is_wrong_ends_it_at_once(api: EmbeddedAPI, node: Node) -> None:
    node.changes |= {"provider": "insecure", "settings": {}}
    node.serve()
    with pytest.raises(InvalidConfiguration):
        Service(node).agent.run()
    assert len(api.requests) == 0


def test_run_sleeps_between_its_turns(node: Node, service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    class Enough(Exception):
        pass

    def turn(self: Agent) -> float:
        if len(node.time.sleeps) == 3:
            raise Enough
        return 7.0

    monkeypatch.setattr(Agent, "turn", turn)
    with pytest.raises(Enough):
        service.agent.run()
    assert node.time.sleeps == [7.0, 7.0, 7.0]


# An attestor that hangs.


@pytest.mark.parametrize(("serves", "bound"), [(False, 620.0), (True, 640.0)], ids=["client", "client and serving"])
def test_a_turn_is_bound_and_the_sleep_behind_it_is_not(
    node: Node, monkeypatch: pytest.MonkeyPatch, serves: bool, bound: float
) -> None:
    class Enough(Exception):
        pass

    def client(self: NodeCertificates, **_: float) -> NoReturn:
        assert made.within
        raise ApiUnavailable("enough")

    def sleep(_: float) -> NoReturn:
        assert not made.within
        raise Enough

    if serves:
        node.serve()
    made = Service(node)
    monkeypatch.setattr(NodeCertificates, "client", client)
    made.agent.clock = replace(made.agent.clock, sleep=sleep)
    with pytest.raises(Enough):
        made.agent.run()
    assert made.bounds == [600.0, bound]


@pytest.mark.slow
@pytest.mark.parametrize(("command", "bound"), [("agent", 620), ("credential", 620), ("request", 640)])
def test_a_hanging_agent_is_ended_and_the_lock_is_free(api: EmbeddedAPI, node: Node, command: str, bound: int) -> None:
    """By the kernel, and with a word on where it hung. The test only makes the bound shorter."""
    node.supply_bootstrap()
    hanging = f"""
        if bounds[-1] != {bound}:
            raise ValueError(bounds)
        alarm(1)
        time.sleep(600)
    """
    done = run_with(node.program(), hanging, command=command, before=NOTED_BOUNDS)
    assert (done.returncode, done.stdout) == (-signal.SIGALRM, "")
    assert "in gather" in done.stderr
    with node.store.lock(Purpose.CLIENT, timeout=0):
        assert len(created(api)) == 0


# systemd.


@pytest.fixture(params=["path", "abstract"])
def systemd(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The socket that systemd listens on."""
    name = str(tmp_path / "notify") if request.param == "path" else f"@node-attestation-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(name.replace("@", "\0", 1))
        listening.settimeout(WAIT_SECONDS)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        yield listening


def test_systemd_is_notified_over_its_socket(systemd: socket.socket) -> None:
    notify_systemd("READY=1")
    notify_systemd("STATUS=one\nREADY=1\nline")
    assert systemd.recv(1024) == b"READY=1"
    # No message of a server or attestor can tell systemd more than its own line.
    assert systemd.recv(1024) == b"STATUS=one READY=1 line"


@pytest.mark.parametrize("name", ["", "vsock:2:1", "/nowhere/at/all", "@node-attestation-nobody-listens"])
def test_without_systemd_nothing_is_sent(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", name)
    notify_systemd("READY=1")


# As a process.


def wait_until_ready(systemd: socket.socket) -> None:
    """Wait for READY=1."""
    while systemd.recv(4096) != b"READY=1":
        pass


@pytest.mark.slow
def test_a_stopped_agent_ends_with_success_and_leaves_what_it_has(
    admin: ClusterAdmin, node: Node, systemd: socket.socket
) -> None:
    node.supply_bootstrap()
    program = node.program()
    told = {"NOTIFY_SOCKET": os.environ["NOTIFY_SOCKET"]}
    agent = program.start("agent", environment=told)
    try:
        admin.grant(admin.next())
        wait_until_ready(systemd)
        agent.send_signal(signal.SIGTERM)
        _, log = agent.communicate(timeout=WAIT_SECONDS)
    finally:
        agent.kill()
    assert agent.returncode == ExitCode.DONE
    assert "Traceback" not in log
    assert f"{program.kubeconfig}: wrote the kubeconfig" in log
    assert program.credential().log == ""


@pytest.mark.slow
def test_an_agent_stopped_during_its_attestors_work_ends_without_an_error(node: Node) -> None:
    node.supply_bootstrap()
    working = node.folder / "working"
    # In short steps: a signal just before a long sleep would be handled after it.
    works = f"""
        Path({str(working)!r}).touch()
        while True:
            time.sleep(0.01)
    """
    agent = start_with(node.program(), works, command="agent")
    try:
        wait_until(working.exists, "the attestor works")
        agent.send_signal(signal.SIGTERM)
        _, log = agent.communicate(timeout=WAIT_SECONDS)
    finally:
        agent.kill()
    assert agent.returncode == ExitCode.DONE
    assert "Traceback" not in log
    assert "sys.exit" not in log
    assert node.store.attempt(Purpose.CLIENT) == Attempt()


@pytest.mark.slow
def test_an_agent_that_is_stopped_while_it_waits_leaves_its_request_to_the_next(
    api: EmbeddedAPI, admin: ClusterAdmin, node: Node
) -> None:
    node.supply_bootstrap()
    program = node.program()
    agent = program.start("agent")
    try:
        found = admin.next()
        agent.send_signal(signal.SIGTERM)
        _, log = agent.communicate(timeout=WAIT_SECONDS)
    finally:
        agent.kill()
    assert agent.returncode == ExitCode.DONE
    assert "Traceback" not in log
    admin.grant(found)
    ran = program.run("credential", environment=exec_info())
    ran.certificate()
    assert len(created(api)) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {"provider": "not-installed"},
        {"settings": {}},
        {"provider": "insecure", "settings": {}, "serving": {}},
        {"x": 1},
    ],
    ids=["attestor", "settings", "insecure and serving", "unknown key"],
)
def test_an_agent_with_a_wrong_configuration_is_exit_code_2(node: Node, changes: dict[str, Any]) -> None:
    ran = node.program(**changes).run("agent")
    assert ran.exit_code == ExitCode.CONFIGURATION
    assert "Traceback" not in ran.log
    assert ran.log.startswith("kubelet-authenticator: ")
