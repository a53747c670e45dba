"""Real API servers behind a load balancer, asked while the CA changes (tests T3 and T4 of the rotation)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from signer.authority import CertificateAuthority as IssuingAuthority
from signer.authority.canary_certificate import CanaryCertificate
from signer.authority.presented import Presented
from signer.kube.connection import ClusterConnection
from signer.kube.resource_limits import ResourceLimits
from signer.rotation.servers.observation import Accepted, Refused, ServersObserved
from signer.rotation.servers.observing import observe_servers
from tests.support.api_servers import ReplicatedControlPlane
from tests.support.balancer import always_the_first, round_robin
from tests.support.binaries import MissingPart, skip_or_fail
from tests.support.certificates import CertificateAuthority
from tests.support.processes import wait_until
from tests.support.raw_client import RawClient
from tests.unit.signer.rotation.servers.support import AUTHORITIES, NEW, OLD, by_machine, classify, link, reasons

pytestmark = [pytest.mark.real, pytest.mark.slow]

RELOAD_SECONDS = 150.0
"""Kubernetes 1.20 looks at its files once a minute, and needs two looks where it meets half of a pair."""


@pytest.fixture(scope="module")
def running() -> Iterator[ReplicatedControlPlane]:
    old, new = (CertificateAuthority.from_pem(one.certificate_pem, one.key_pem) for one in (OLD, NEW))
    try:
        started = ReplicatedControlPlane(old, new)
    except MissingPart as missing:
        skip_or_fail(missing)
    with started:
        yield started
        started.check_running()


@pytest.fixture
def control_plane(running: ReplicatedControlPlane) -> ReplicatedControlPlane:
    running.balancer.choose = round_robin
    return running


async def no_journal(canary: CanaryCertificate, authority: IssuingAuthority) -> None:
    """Journal nowhere."""


def observe(control_plane: ReplicatedControlPlane) -> ServersObserved:
    return asyncio.run(
        observe_servers(
            ClusterConnection(control_plane.balancer.server, b""),
            control_plane.expected,
            AUTHORITIES,
            classify=classify,
            journal=no_journal,
            now=lambda: datetime.now(UTC),
            limits=ResourceLimits.unlimited(),
        )
    )


def test_a_server_that_lacks_the_new_authority_is_named(control_plane: ReplicatedControlPlane) -> None:
    """T3, up to its repair."""
    a, _ = control_plane.servers
    a.accept(control_plane.old, control_plane.new)
    a.present(control_plane.old, link(NEW, OLD))
    a.restart()
    observed = observe(control_plane)
    found = by_machine(observed)
    assert observed.unseen == ()
    assert (found["a"].presented, found["b"].presented) == (Presented.OLD_LINKED, Presented.OLD)
    assert (found["a"].accepts_old, found["b"].accepts_old) == (Accepted(), Accepted())
    assert (found["a"].accepts_new, found["b"].accepts_new) == (Accepted(), Refused())
    assert {one.asked_at for one in found.values()} == {control_plane.balancer.server}


def test_a_server_that_the_load_balancer_never_chooses(control_plane: ReplicatedControlPlane) -> None:
    """T4."""
    control_plane.balancer.choose = always_the_first
    found = by_machine(observe(control_plane))
    assert found["a"].asked_at == control_plane.balancer.server
    assert found["b"].asked_at == control_plane.servers[1].server
    assert (found["b"].presented, found["b"].accepts_old) == (Presented.OLD, Accepted())


def test_a_server_that_cannot_be_asked(control_plane: ReplicatedControlPlane) -> None:
    """T4, without the way by address."""
    with control_plane.stopped(control_plane.servers[1]):
        observed = observe(control_plane)
        assert set(by_machine(observed)) == {"a"}
        assert f"at {control_plane.servers[1].server}" in reasons(observed)["b"]
        assert "refused" in reasons(observed)["b"]


def test_an_anonymous_answer_proves_nothing(control_plane: ReplicatedControlPlane) -> None:
    """The API servers allow anonymous requests: without a certificate of an unknown CA, the answer would be 200."""
    a = control_plane.servers[0]
    assert control_plane.answers(a.server, "/version")
    assert by_machine(observe(control_plane))["b"].accepts_new == Refused()


def test_the_controllers_of_the_control_plane(control_plane: ReplicatedControlPlane) -> None:
    """The load test of the rotation needs them: they publish the CAs of their file."""
    try:
        manager = control_plane.start_controllers(["root-ca-cert-publisher"])
    except MissingPart as missing:
        skip_or_fail(missing)
    manager.publish(control_plane.new, control_plane.old)
    manager.restart()
    published = (control_plane.new.certificate_pem + control_plane.old.certificate_pem).decode()
    with RawClient(control_plane.connection()) as client:
        path = "/api/v1/namespaces/default/configmaps/kube-root-ca.crt"
        wait_until(
            lambda: client.get(path).body.get("data", {}).get("ca.crt") == published,
            "both CAs are published",
        )
    manager.stop()


def test_files_that_change_while_the_servers_run(control_plane: ReplicatedControlPlane) -> None:
    """T3, repaired; and the old CA is refused while the new one is accepted, as before its key is deleted."""
    a, b = control_plane.servers
    a.accept(control_plane.new)
    a.present(control_plane.new)
    b.accept(control_plane.old, control_plane.new)

    def is_done() -> bool:
        observed = observe(control_plane)
        found = by_machine(observed)
        if set(found) != {"a", "b"}:
            return False
        states = [(one.presented, one.accepts_old, one.accepts_new) for one in (found["a"], found["b"])]
        return states == [(Presented.NEW, Refused(), Accepted()), (Presented.OLD, Accepted(), Accepted())]

    wait_until(is_done, "both API servers have read their files", RELOAD_SECONDS)
