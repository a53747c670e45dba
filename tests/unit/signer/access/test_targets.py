"""The nodes of a grant: a name counts once an authentic record and a Machine stand behind it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final

import pytest

from attestors.wire.node_access import Trust
from attestors.wire.ssh.key_line import key_line
from attestors.wire.ssh.signatures import public_key_of
from signer.access.certificates import CertificateReason, GrantCertificates, NotCertified
from signer.access.parts import Hop, TargetNode, TargetsAnswer, TargetsFound, TargetsGone, TargetsUnknown
from signer.access.targets import CONTAINER_PORT, MAXIMUM_ADDRESSES, MAXIMUM_LISTED, GrantTargets
from signer.authority.ssh.authorities import HostAuthority
from signer.kube.errors import Cause, Unreachable
from signer.kube.resources import CLUSTERS_V1BETA2, MACHINE_POOLS_V1BETA2, MACHINES_V1BETA2
from signer.model.cluster import ClusterKey, machine_view
from signer.model.decision import Deferred
from signer.model.floors import NO_FLOORS
from signer.model.host_keys import AttestedHostKey, AttestedHostKeys
from signer.model.record import AttestedNode, record_name
from signer.model.record_object import record_spec
from signer.model.seal import ControllerKeys, RecordSeals
from signer.ssh.available import AvailableAuthorities, NotAvailable, Reason
from signer.ssh.revocations import RevocationsUnknown
from signer.store.authentic_records import KeysUnavailable
from signer.store.caches import OUT_OF_TOUCH_SECONDS, Caches
from signer.store.cluster_api import ClusterAPIVersion
from tests.support.access_grants import AUTHORITY, NOW, facts_of, grant_of
from tests.support.access_objects import USER_KEY
from tests.support.openssh import private_key
from tests.unit.signer.authority.ssh.requests import authority_key
from tests.unit.signer.builders import record
from tests.unit.signer.store.over_limit import exceed

CLUSTER: Final = ClusterKey("team-a", "production")
KEYS: Final = ControllerKeys(bytes(32))
HOSTS: Final = HostAuthority(authority_key("ed25519", 301))
TRUST: Final = Trust((AUTHORITY.public_key,), (), (HOSTS.public_key,), 7)
AVAILABLE: Final = AvailableAuthorities(AUTHORITY, HOSTS, TRUST, NOW, NOW)
VERSION: Final = ClusterAPIVersion(CLUSTERS_V1BETA2, MACHINES_V1BETA2, MACHINE_POOLS_V1BETA2)


def attested_host_keys(line: str) -> AttestedHostKeys:
    return AttestedHostKeys(
        trust_version=7,
        attested=NOW,
        host_keys=(AttestedHostKey(line, 4711),),
        principals=("worker-1",),
        not_before=NOW,
        not_after=NOW + timedelta(days=30),
        authority="SHA256:abc",
        nonce_key="0123456789abcdef",
    )


class World:
    """Caches with a Cluster."""

    def __init__(self) -> None:
        self.at = 0.0
        self.caches = Caches(VERSION, own_namespace="own", monotonic=lambda: self.at, floors=NO_FLOORS)
        self.caches.authentic.use_keys(KEYS)
        self.available: AvailableAuthorities | NotAvailable = AVAILABLE
        self.cluster(created="2020-01-01T00:00:00Z")
        self.targets = GrantTargets(caches=self.caches, authorities_of=lambda key: self.available)

    def cluster(self, *, created: str) -> None:
        metadata = {"namespace": "team-a", "name": "production", "uid": "c", "creationTimestamp": created}
        self.caches.clusters.applied({"metadata": metadata, "spec": {}})

    def policy(self, **access: Any) -> None:
        spec = {"authorizedAttestors": [{"name": "tpm"}], "ssh": {"access": access}}
        self.caches.policies.applied({"metadata": {"namespace": "team-a", "name": "production"}, "spec": spec})

    def machine(self, name: str, *addresses: str, uid: str = "", **metadata: Any) -> dict[str, Any]:
        given = {"namespace": "team-a", "name": name, "uid": uid or name, **metadata}
        shown = [{"type": kind, "address": text} for kind, _, text in (one.partition("=") for one in addresses)]
        manifest = {
            "metadata": given,
            "spec": {"clusterName": "production", "providerID": f"test:///{name}"},
            "status": {"addresses": shown},
        }
        self.caches.machines.applied(manifest)
        return manifest

    def attest(self, machine: dict[str, Any], node: str, *, forged: bool = False, **changes: Any) -> AttestedNode:
        made = record(machine_view(machine), node_name=node, **changes)
        sealed = record(machine_view(machine), node_name=f"{node}-other") if forged else made
        spec = {**record_spec(made), "seal": RecordSeals(KEYS).seal(sealed)}
        name = record_name(CLUSTER, node)
        metadata = {"namespace": "team-a", "name": name, "uid": name, "resourceVersion": "1"}
        self.caches.records.applied({"metadata": metadata, "spec": spec})
        return made

    def node(self, name: str, *addresses: str) -> dict[str, Any]:
        machine = self.machine(name, *addresses)
        self.attest(machine, name)
        return machine

    def of(self, *names: str, was_found: bool = False) -> TargetsAnswer:
        target: dict[str, Any] = {"nodes": list(names)} if names else {"allNodes": {}}
        return self.targets.of(grant_of(target=target), was_found)


@pytest.fixture
def world() -> World:
    return World()


def test_an_attested_node_has_its_machines_addresses(world: World) -> None:
    world.node("worker-1", "ExternalIP=198.51.100.9", "InternalDNS=w.corp.example", "InternalIP=10.0.0.7")
    found = world.of("worker-1")
    assert found == TargetsFound((TargetNode("worker-1", ("10.0.0.7", "w.corp.example", "198.51.100.9"), 22),))
    world.policy(nodePort=2222)
    assert world.of("worker-1") == TargetsFound(
        (TargetNode("worker-1", ("10.0.0.7", "w.corp.example", "198.51.100.9"), 2222),)
    )


@pytest.mark.parametrize("what", ["machines", "records", "clusters"])
def test_of_a_namespace_over_a_limit_no_target_is_known(world: World, what: str) -> None:
    """Its Machines are there, and were dropped: a grant must not say that they are gone."""
    world.node("worker-1", "InternalIP=10.0.0.7")
    exceed(getattr(world.caches, what), "team-a")
    found = world.of("worker-1", was_found=True)
    assert isinstance(found, TargetsUnknown)
    assert "namespace team-a has at least" in found.message


@pytest.mark.parametrize(
    "address",
    [
        "InternalIP=127.0.0.1",
        "InternalIP=169.254.169.254",
        "InternalIP=fe80::1",
        "InternalIP=0.0.0.0",
        "InternalIP=::ffff:127.0.0.1",
        "InternalDNS=-oProxyCommand=x",
        "Hostname=w *",
        "Other=10.0.0.7",
    ],
)
def test_addresses_that_are_none_of_a_node_are_left_out(world: World, address: str) -> None:
    """Without any, ssh looks the node's name up; a bastion does not."""
    world.node("worker-1", address)
    assert world.of("worker-1") == TargetsFound((TargetNode("worker-1", ("worker-1",), 22),))


def test_addresses_are_few(world: World) -> None:
    world.node("worker-1", *(f"InternalIP=10.0.0.{number}" for number in range(40)))
    found = world.of("worker-1")
    assert isinstance(found, TargetsFound)
    assert len(found.nodes[0].addresses) == MAXIMUM_ADDRESSES


def test_a_node_that_never_attested_is_not_guessed(world: World) -> None:
    world.machine("worker-1", "InternalIP=10.0.0.7")
    answer = world.of("worker-1", "worker-2")
    assert isinstance(answer, TargetsUnknown)
    assert answer.message == "not attested, or no node of this Cluster: worker-1, worker-2"
    world.node("worker-2", "InternalIP=10.0.0.8")
    found = world.of("worker-1", "worker-2")
    assert isinstance(found, TargetsFound)
    assert [one.node for one in found.nodes] == ["worker-2"]


def test_a_record_that_the_controller_did_not_write_counts_for_nothing(world: World) -> None:
    machine = world.machine("worker-1", "InternalIP=10.0.0.7")
    world.attest(machine, "worker-1", forged=True)
    assert isinstance(world.of("worker-1"), TargetsUnknown)


def test_machines_that_are_gone(world: World) -> None:
    for name in ("worker-1", "worker-2"):
        world.node(name)
    one, other = (world.caches.machines.get("team-a", name) for name in ("worker-1", "worker-2"))
    assert one is not None
    assert other is not None
    world.caches.machines.removed({"metadata": {"namespace": "team-a", "name": "worker-1", "uid": "worker-1"}})
    found = world.of("worker-1", "worker-2")
    assert isinstance(found, TargetsFound)
    assert [target.node for target in found.nodes] == ["worker-2"]
    world.caches.machines.removed({"metadata": {"namespace": "team-a", "name": "worker-2", "uid": "worker-2"}})
    assert world.of("worker-1", "worker-2") == TargetsGone("no Machine is left of worker-1, worker-2")
    assert isinstance(world.of("worker-1", "worker-9"), TargetsUnknown)
    assert isinstance(world.of("worker-1", "worker-9", was_found=True), TargetsGone)


def test_another_machine_of_the_same_name_is_not_that_node(world: World) -> None:
    world.node("worker-1", "InternalIP=10.0.0.7")
    world.machine("worker-1", "InternalIP=10.0.0.66", uid="another")
    assert isinstance(world.of("worker-1"), TargetsUnknown)
    world.cluster(created="2090-01-01T00:00:00Z")
    assert isinstance(world.of("worker-1"), TargetsFound), "clusterctl move made it again, with the Cluster"


def test_every_node(world: World) -> None:
    for number in range(MAXIMUM_LISTED + 2):
        world.node(f"worker-{number:03}", f"InternalIP=10.0.1.{number % 250}")
    world.machine("not-attested", "InternalIP=10.0.0.9")
    found = world.of()
    assert isinstance(found, TargetsFound)
    assert found.every_node
    assert [one.node for one in found.nodes] == [f"worker-{number:03}" for number in range(MAXIMUM_LISTED)]


def test_without_cluster_or_key_nothing_is_known(world: World) -> None:
    world.node("worker-1")
    world.caches.clusters.removed({"metadata": {"namespace": "team-a", "name": "production", "uid": "c"}})
    assert world.of("worker-1", was_found=True) == TargetsUnknown("there is no Cluster")
    world.caches.authentic.use_no_keys(KeysUnavailable("no key"))
    with pytest.raises(Deferred):
        world.of("worker-1")


def test_a_container_may_run_on_every_node_and_has_an_sshd_of_its_own(world: World) -> None:
    world.policy(nodePort=2222)
    world.node("worker-1", "InternalIP=10.0.0.7")
    target = {"container": {"namespace": "web", "pod": "web-1", "container": "app"}}
    found = world.targets.of(grant_of(target=target, logins=[]), was_found=True)
    assert found == TargetsFound((TargetNode("worker-1", ("10.0.0.7",), CONTAINER_PORT),), every_node=True)


def test_a_workload_has_no_node(world: World) -> None:
    world.node("worker-1", "InternalIP=10.0.0.7")
    workload = {"namespace": "web", "workload": {"kind": "Deployment", "name": "web"}, "container": "app"}
    assert world.targets.of(grant_of(target={"container": workload}, logins=[]), was_found=True) == TargetsFound(())


def test_a_container_needs_no_attested_node(world: World) -> None:
    target = {"container": {"namespace": "web", "pod": "web-1", "container": "app"}}
    assert world.targets.of(grant_of(target=target, logins=[]), False) == TargetsFound((), every_node=True)


def test_known_hosts_count_for_this_cluster_alone(world: World) -> None:
    world.node("worker-1")
    grant, found = grant_of(), world.of("worker-1")
    assert isinstance(found, TargetsFound)
    line = f"@cert-authority *.production.team-a {key_line(HOSTS.public_key)}"
    assert world.targets.known_hosts(grant, found) == (line,)
    world.available = NotAvailable(Reason.PAUSED, "paused")
    assert world.targets.known_hosts(grant, found) == ()


# What the caches say of the grant's key


class Certifying:
    """Certificates as they are issued from the caches of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.unknown = False
        self.reserved: list[str] = []

    def certificates(self) -> GrantCertificates:
        return GrantCertificates(
            caches=self.world.caches,
            authorities_of=lambda key: self.world.available,
            revocations_of=self._revocations,
            revocation_list=self,  # type: ignore[arg-type]
            now=lambda: NOW,
        )

    def _revocations(self, key: ClusterKey) -> tuple[Any, ...]:
        if self.unknown:
            raise RevocationsUnknown("not read")
        return ()

    def reserve(self, cluster: ClusterKey, key_id: str, until: Any) -> None:
        self.reserved.append(key_id)


def test_certificates_by_the_caches(world: World) -> None:
    certifying = Certifying(world)
    certificates = certifying.certificates()
    [request] = certificates.certificates_of(facts_of(grant_of()))
    assert request.hop is Hop.NODE
    assert certifying.reserved == [str(request.key_id)], "before it is issued"
    assert certificates.key_id_of(grant_of(), "alice", 0) == request.key_id


def test_the_host_key_of_any_clusters_node_is_refused(world: World) -> None:
    certifying = Certifying(world)
    machine = world.machine("worker-1")
    world.attest(machine, "worker-1", ssh=attested_host_keys(USER_KEY))
    with pytest.raises(NotCertified) as caught:
        certifying.certificates().certificates_of(facts_of(grant_of()))
    assert caught.value.why is CertificateReason.KEY_IS_HOST_KEY
    assert certifying.reserved == []


@pytest.mark.parametrize("which", ["user", "host", "break-glass"])
def test_the_key_of_any_authority_is_refused(world: World, which: str) -> None:
    break_glass = public_key_of(private_key("ed25519", 302))
    trust = Trust((AUTHORITY.public_key,), (break_glass,), (HOSTS.public_key,), 7)
    world.available = AvailableAuthorities(AUTHORITY, HOSTS, trust, NOW, NOW)
    key = {"user": AUTHORITY.public_key, "host": HOSTS.public_key, "break-glass": break_glass}[which]
    with pytest.raises(NotCertified) as caught:
        Certifying(world).certificates().certificates_of(facts_of(grant_of(sshPublicKey=key_line(key))))
    assert caught.value.why is CertificateReason.KEY_IS_AUTHORITY


def test_nothing_is_issued_while_something_is_unknown(world: World) -> None:
    certifying = Certifying(world)
    certifying.unknown = True
    with pytest.raises(RevocationsUnknown):
        certifying.certificates().certificates_of(facts_of(grant_of()))
    certifying.unknown = False
    world.available = NotAvailable(Reason.PAUSED, "the Cluster is paused")
    with pytest.raises(NotCertified, match="Paused: the Cluster is paused") as caught:
        certifying.certificates().certificates_of(facts_of(grant_of()))
    assert caught.value.why is CertificateReason.AUTHORITIES_NOT_AVAILABLE
    world.available = AVAILABLE
    world.caches.machines.failed(Unreachable("no answer", cause=Cause.NETWORK), 1)
    world.at += 2 * OUT_OF_TOUCH_SECONDS
    with pytest.raises(Deferred, match="cannot be watched"):
        certifying.certificates().certificates_of(facts_of(grant_of()))
    with pytest.raises(Deferred, match="cannot be watched"):
        world.of("worker-1")
    world.at = 0
    world.caches.authentic.use_no_keys(KeysUnavailable("no key"))
    with pytest.raises(Deferred):
        certifying.certificates().certificates_of(facts_of(grant_of()))
    assert certifying.reserved == []
