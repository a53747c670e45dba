"""T1: the authorities of a cluster are replaced under load.

The short form, with three nodes, the cluster's CA alone and shortened waits, runs in CI. ``make rotation`` runs it with
all authorities, too. ``make rotation-load`` runs the long form: all authorities, many nodes, waits as in production. It
shortens one wait alone, the overlap, by the operator's configuration, and the rotation's record says so: that is for
KCP's cache of etcd clients. It writes its figures to ``build/rotation-load.md``.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from signer.configuration import Configuration, RotationSettings
from signer.kube.connection import ClusterConnection
from signer.kube.resources import CONFIG_MAPS
from signer.model.fields import parse_time
from signer.model.rotation_waits import Waits
from signer.rotation.servers.key_set import KEY_SET_PATH, MEDIA_TYPE
from signer.testing.world import CONTROLLER_NAMESPACE, ManagementCluster, RunningController
from tests.e2e.rotation.afterwards import ask_all
from tests.e2e.rotation.load import KubectlLoad, Load, LoadClient, Outcomes, Repeated, status_of
from tests.e2e.rotation.pods import Volume, kubectl_proxy
from tests.e2e.rotation.shortened import OFTEN, shortened
from tests.e2e.rotation.world import NAMESPACE, RotationWorld
from tests.integration.fixtures import keyed_mac
from tests.support.binaries import MissingPart, find_control_plane, skip_or_fail
from tests.support.etcd_members import Member
from tests.support.machine_authorities import (
    ETCD,
    KINDS,
    PROXY,
    SERVICE_ACCOUNT,
    MachineAuthorities,
    authority_of,
)
from tests.support.processes import wait_until
from tests.support.raw_client import RawClient

NODES_VARIABLE: Final = "NODE_ATTESTATION_ROTATION_NODES"
pytestmark = [pytest.mark.real, pytest.mark.slow]
LEAST_RATE: Final = 20.0
"""Answered requests in a second, over the whole rotation; of the long form."""
_NODES_RATE: Final = 26.0
REPORT: Final = Path(__file__).parents[3] / "build" / "rotation-load.md"
_ORGANIZATION: Final = ("system:masters",)


@dataclass(frozen=True)
class Form:
    """One form of the test."""

    nodes: int
    machines: int
    """Of the control plane."""
    others: tuple[str, ...]
    """The authorities besides the cluster's CA."""
    is_long: bool
    """Whether it waits as in production."""

    @property
    def waits(self) -> Waits:
        """What the operator configures."""
        return Waits(overlap=timedelta(seconds=30), trust_age=timedelta(minutes=10) if self.is_long else _SECONDS)

    def describe(self) -> str:
        """For the report."""
        return f"{self.nodes} nodes, {self.machines} API servers, {', '.join(('ca', *self.others))}"


_SECONDS: Final = timedelta(seconds=5)
SHORT: Final = Form(3, 2, (), is_long=False)
SHORT_WITH_ALL: Final = Form(3, 3, KINDS, is_long=False)
LONG: Final = Form(int(os.environ.get(NODES_VARIABLE, "50")), 3, KINDS, is_long=True)
LONG_IS_WANTED: Final = NODES_VARIABLE in os.environ


@dataclass
class Kubectl:
    """A current client-go that starts for each request."""

    world: RotationWorld
    folder: Path
    pause: float = field(default=3.0, init=False)

    def ask(self, outcomes: Outcomes) -> None:
        """One request with Secret ``<cluster>-kubeconfig``."""
        KubectlLoad(lambda: self.world.secret("kubeconfig")["value"], self.folder, outcomes).ask()


@pytest.fixture(
    params=[
        pytest.param(SHORT, id="short", marks=pytest.mark.skipif(LONG_IS_WANTED, reason="the long form is wanted")),
        pytest.param(
            SHORT_WITH_ALL,
            id="short-with-all",
            marks=pytest.mark.skipif(
                LONG_IS_WANTED or "NODE_ATTESTATION_ROTATION" not in os.environ, reason="minutes: make rotation"
            ),
        ),
        pytest.param(
            LONG,
            id="long",
            marks=pytest.mark.skipif(not LONG_IS_WANTED, reason="20 minutes on a quiet machine: make rotation-load"),
        ),
    ]
)
def form(request: pytest.FixtureRequest) -> Form:
    wanted: Form = request.param
    return wanted


@pytest.fixture
def world(management_cluster: ManagementCluster, form: Form) -> Iterator[RotationWorld]:
    try:
        find_control_plane().kube_controller_manager()
    except MissingPart as missing:
        skip_or_fail(missing)
    with contextlib.ExitStack() as stack:
        if not form.is_long:
            stack.enter_context(shortened(OFTEN))
        authorities = MachineAuthorities() if form.others else None
        world = stack.enter_context(RotationWorld(management_cluster, servers=form.machines, authorities=authorities))
        world.provider.drained = lambda server: world.control_plane.balancer.without(server.address)
        world.cluster.authorize("keyed-mac", mode="Observe")
        yield world


@pytest.fixture
def controller(world: RotationWorld, form: Form) -> Iterator[RunningController]:
    configuration = Configuration(
        namespace=CONTROLLER_NAMESPACE,
        watch_namespace=NAMESPACE,
        attestors=keyed_mac(),
        rotation=RotationSettings(waits=form.waits),
    )
    with RunningController(world.management.api.connection(), configuration) as running:
        yield running


@pytest.fixture
def volume(world: RotationWorld, tmp_path: Path) -> Volume:
    return Volume(world, tmp_path)


@pytest.fixture
def load(
    world: RotationWorld, controller: RunningController, volume: Volume, form: Form, tmp_path: Path
) -> Iterator[Load]:
    """Nodes with certificates, an administrator, a current client-go, and Pods in Python.

    In the long form, another current client-go runs all the time: it looks at its files every five minutes.
    """
    for number in range(form.nodes):
        world.add_node(f"worker-{number}")
    pause = max(0.1, form.nodes / _NODES_RATE)
    clients = [LoadClient(name, node.get_connection, pause=pause) for name, node in world.nodes.items()]
    clients += [
        LoadClient("administrator", world.admin_connection),
        LoadClient("Pod in Python", volume.connection),
        LoadClient("Pod in Python with its first token", volume.first_connection),
    ]
    others: dict[str, Repeated] = {"volume": volume, "kubectl": Kubectl(world, tmp_path)}
    with contextlib.ExitStack() as stack:
        if form.is_long:
            others["kubectl proxy"] = stack.enter_context(kubectl_proxy(world, volume))
        yield stack.enter_context(Load(clients, lambda: str(world.record.get("step", "before")), others))


def test_a_whole_rotation_under_load(world: RotationWorld, load: Load, volume: Volume, form: Form) -> None:
    former = {name: node.connection for name, node in world.nodes.items()} | {"administrator": world.admin_connection()}
    old = {suffix: world.secret(suffix) for suffix in form.others}
    began = time.monotonic()
    world.order("start-ca-rotation")
    again = 0
    if form is SHORT_WITH_ALL:
        again = hold_by_a_server_that_misses_the_key(world, old[SERVICE_ACCOUNT])
    world.until_phase("Prepared", seconds=1200)
    if form.others:
        require_keys_published(world)
    record = world.record
    assert {one["kind"] for one in record["authorities"]} == {"ca", *form.others}
    assert record["waits"]["overlapSeconds"] == form.waits.overlap.total_seconds(), "the shortened wait is recorded"
    old_enough = parse_time(record["trustWrittenTime"]) + form.waits.trust_age + timedelta(seconds=2)
    world.until(lambda: datetime.now(UTC) > old_enough, "clients had the time to read the new CA", 700)
    world.order("complete-ca-rotation")
    world.until_phase("Completed", seconds=1500)
    seconds = time.monotonic() - began
    load.stop()
    write_report(load.outcomes, world, form, seconds)

    assert load.outcomes.failures == []
    clients = {"administrator", "kubectl", "Pod in Python", "Pod in Python with its first token"}
    assert set(load.outcomes.answered) == {*world.nodes, *clients, *(("kubectl proxy",) if form.is_long else ())}
    assert not form.is_long or load.outcomes.total / seconds >= LEAST_RATE
    assert world.provider.rollouts == 3 * form.machines + again, "three rollouts"
    for answers in ask_all(world, former):
        assert answers.old_is_refused, answers
        assert answers.new_is_accepted, answers
    if form.others:
        require_others_rotated(world, old, volume)


def hold_by_a_server_that_misses_the_key(world: RotationWorld, former: Mapping[str, bytes]) -> int:
    """One Machine is made with the former keys: it is new, and holds the rotation by name until it is made again.

    Returns how many Machines were made for that.
    """
    world.until_step("ServersTrust")
    world.provider.former_keys = dict(former)
    made = world.provider.rollouts
    world.until(lambda: world.provider.rollouts > made, "a Machine is made", 120)
    world.provider.former_keys = {}
    stale = world.provider.machines[-1]

    def held() -> bool:
        found = world.condition("ServiceAccountKeyPublished")
        renewed = world.provider.rollouts == made + len(world.provider.machines)
        return renewed and found.get("reason") == "NotProven" and found["message"].count(stale.name) == 1

    world.until(held, "the condition names the Machine", 240)
    trusted = world.condition("CertificateAuthorityRotationProgressing")
    assert (world.record["step"], trusted["status"]) == ("ServersTrust", "False")
    world.provider.replace(stale)
    return 1


def require_keys_published(world: RotationWorld) -> None:
    """Each API server publishes the new key, before any signs by it, and the condition has its ID."""
    published = "ServiceAccountKeyPublished"
    wait_until(lambda: world.condition(published)["status"] == "True", "the condition follows the record")
    message = world.condition(published)["message"]
    for server in world.control_plane.servers:
        connection = replace(world.admin_connection(), server=server.server)
        with RawClient(connection, headers={"Accept": MEDIA_TYPE}) as client:
            found = [one["kid"] for one in client.get(KEY_SET_PATH).expect(200)["keys"]]
        assert len(found) == 2
        assert any(message.endswith(identifier) for identifier in found)


def require_others_rotated(world: RotationWorld, old: Mapping[str, Mapping[str, bytes]], volume: Volume) -> None:
    """etcd and the API servers refuse the old CAs, and the new service-account key signs."""
    assert world.authorities is not None
    new = {suffix: world.secret(suffix) for suffix in KINDS}
    assert new[ETCD]["tls.crt"].count(b"BEGIN CERTIFICATE") == 1
    assert new[PROXY]["tls.crt"].count(b"BEGIN CERTIFICATE") == 1
    assert new[SERVICE_ACCOUNT]["tls.crt"].endswith(old[SERVICE_ACCOUNT]["tls.crt"]), "the old key still verifies"
    for member in world.authorities.members:
        trusted = new[ETCD]["tls.crt"]
        client = authority_of(new[ETCD]).issue_client("kube-apiserver-etcd-client", _ORGANIZATION)
        assert answers(member, trusted, client)
        client = authority_of(old[ETCD]).issue_client("kube-apiserver-etcd-client", _ORGANIZATION)
        assert not answers(member, trusted, client)
        assert not answers(member, old[ETCD]["tls.crt"], client)
    impersonated = {"X-Remote-User": "someone", "X-Remote-Group": "system:authenticated"}
    for server in world.control_plane.servers:
        trust = world.authority().certificate_pem
        for pair, status in ((new[PROXY], 200), (old[PROXY], 401)):
            certificate, key = authority_of(pair).issue_client("front-proxy-client", [])
            connection = ClusterConnection(server.server, trust, client_certificate=certificate, client_key=key)
            with RawClient(connection, headers=impersonated) as client_of_proxy:
                assert client_of_proxy.get("/version").status == status
    with RawClient(world.admin_connection()) as client_of_admin:
        found = client_of_admin.get(CONFIG_MAPS.object("extension-apiserver-authentication", "kube-system")).expect(200)
    assert found["data"]["requestheader-client-ca-file"].encode() == new[PROXY]["tls.crt"]
    volume.write()
    assert key_id(volume.token.read_text("ascii")) != key_id(volume.first_token), "the new key signs"


def answers(member: Member, trusted: bytes, client: tuple[bytes, bytes]) -> bool:
    """Whether the etcd member answers a client with that certificate and key, which trusts ``trusted``."""
    try:
        return (
            status_of(ClusterConnection(member.url, trusted, client_certificate=client[0], client_key=client[1])) == 200
        )
    except (ssl.SSLError, ConnectionResetError):
        return False


def key_id(token: str) -> str:
    """Which key has signed a service-account token."""
    header = token.partition(".")[0]
    found: str = json.loads(base64.urlsafe_b64decode(header + "=" * (-len(header) % 4)))["kid"]
    return found


def write_report(outcomes: Outcomes, world: RotationWorld, form: Form, seconds: float) -> None:
    """The figures, for docs/rotation.md."""
    ends = [*(one.began for one in outcomes.steps.values()), time.monotonic()][1:]
    others = ", ".join(f"{name}: {count}" for name, count in outcomes.answered.items() if name not in world.nodes)
    lines = [
        f"{datetime.now(UTC):%Y-%m-%d}: {form.describe()}: {seconds / 60:.1f} minutes,",
        f"{outcomes.total} requests answered,",
        f"{outcomes.total / seconds:.1f} a second, {len(outcomes.failures)} failed,",
        f"{sum(outcomes.unavailable.values())} met an API server that was being replaced. Of these {others}.",
        f"Waits of the record: {json.dumps(world.record['waits'])}; all waits shortened: {not form.is_long}",
        "",
        "| step | seconds | answered | server being replaced | failed |",
        "|---|---|---|---|---|",
    ]
    for (step, one), end in zip(outcomes.steps.items(), ends, strict=True):
        lines.append(f"| `{step}` | {end - one.began:.0f} | {one.answered} | {one.unavailable} | {one.failed} |")
    report = "\n".join([*lines, "", *outcomes.failures, ""])
    print(report)
    if form.is_long:
        REPORT.parent.mkdir(exist_ok=True)
        REPORT.write_text(report)
