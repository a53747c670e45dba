from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from ipaddress import ip_address, ip_network
from typing import Any

import pytest

from attestors.contract import Security
from attestors.wire.names import Purpose
from signer.model.cluster import ClusterKey, MachineAddress
from signer.model.reasons import Reason
from signer.model.record import AttestedIdentity
from signer.rules.checks import MACHINE_CHECKS
from signer.rules.machine import MachineFacts, MachineGone, the_machine
from tests.unit.signer.builders import (
    CLUSTER,
    NODE,
    NOW,
    PROVIDER_ID,
    attested_identity,
    cluster_view,
    machine_facts,
    machine_view,
    policy,
    record,
    verified,
)
from tests.unit.signer.outcomes import all_of, deferred, refused

judge = all_of(MACHINE_CHECKS)
LOOK_AGAIN = timedelta(minutes=5)


def test_honest() -> None:
    judge(machine_facts())


class TestTheMachine:
    def test_the_one(self) -> None:
        assert the_machine(PROVIDER_ID, (machine_view(),)) == machine_view()

    def test_none_yet(self) -> None:
        defer = deferred(lambda _: the_machine(PROVIDER_ID, ()), None)
        assert defer.reason == Reason.MACHINE_NOT_FOUND
        assert PROVIDER_ID in defer.message

    def test_several(self) -> None:
        machines = tuple(machine_view(name=f"m{number}") for number in (4, 3, 2, 1))
        defer = deferred(lambda _: the_machine(PROVIDER_ID, machines), None)
        assert defer.reason == Reason.MACHINE_AMBIGUOUS
        assert defer.message.endswith(": m1, m2, m3")
        assert deferred(lambda _: the_machine(PROVIDER_ID, machines[:2]), None).reason == Reason.MACHINE_AMBIGUOUS


class TestState:
    @pytest.mark.parametrize("key", [ClusterKey("team-a", "other"), ClusterKey("team-b", "prod")])
    def test_of_another_cluster(self, key: ClusterKey) -> None:
        assert deferred(judge, machine_facts(machine=machine_view(cluster=key))).reason == Reason.INTERNAL_ERROR

    def test_deleting(self) -> None:
        assert refused(judge, machine_facts(machine=machine_view(deleting=True))).reason == Reason.MACHINE_DELETING

    def test_paused(self) -> None:
        assert deferred(judge, machine_facts(machine=machine_view(paused=True))).reason == Reason.MACHINE_PAUSED

    def test_without_bootstrap_data(self) -> None:
        facts = machine_facts(machine=machine_view(bootstrap_ready=False))
        assert deferred(judge, facts).reason == Reason.MACHINE_NOT_READY


class TestNodeName:
    @pytest.mark.parametrize("name", ["other", NODE + "x", NODE[:-1], "prod-md-0-x7k2p", "10.0.0.1"])
    def test_of_another_machine(self, name: str) -> None:
        deny = refused(judge, machine_facts(node_name=name))
        assert deny.reason == Reason.NODE_NAME_MISMATCH
        assert deny.message.endswith(f"is node {NODE}")

    def test_one_of_several(self) -> None:
        addresses = (MachineAddress("InternalDNS", "a.b"), MachineAddress("InternalDNS", NODE))
        judge(machine_facts(machine=machine_view(addresses=addresses)))
        deny = refused(judge, machine_facts(machine=machine_view(addresses=addresses), node_name="c"))
        assert deny.message.endswith(f"is node a.b or {NODE}")

    def test_addresses_unknown(self) -> None:
        facts = machine_facts(machine=machine_view(addresses=()))
        assert deferred(judge, facts).reason == Reason.MACHINE_ADDRESSES_UNKNOWN

    def test_attested_name(self) -> None:
        proven = verified(node_names=("proven",))
        judge(machine_facts(proven=proven, node_name="proven"))
        assert refused(judge, machine_facts(proven=proven)).reason == Reason.NODE_NAME_MISMATCH

    def test_policy_chooses_the_source(self) -> None:
        chosen = policy(nodeNameSource="MachineName")
        judge(machine_facts(policy=chosen, node_name="prod-md-0-x7k2p"))
        assert refused(judge, machine_facts(policy=chosen)).reason == Reason.NODE_NAME_MISMATCH

    def test_nothing_proven(self) -> None:
        judge(machine_facts(proven=None))

    def test_agreeing_node_ref(self) -> None:
        judge(machine_facts(machine=machine_view(node_ref=NODE)))

    def test_disagreeing_node_ref(self) -> None:
        defer = deferred(judge, machine_facts(machine=machine_view(node_ref="other")))
        assert defer.reason == Reason.NODE_REF_DISAGREES
        assert defer.retry_after == LOOK_AGAIN


OTHER = machine_view(name="other", provider_id="aws:///eu-west-1a/i-other")


class TestRecord:
    def test_of_this_identity(self) -> None:
        judge(machine_facts(record=record(), recorded_machine=machine_view()))

    def test_of_this_identity_under_a_machine_that_is_gone(self) -> None:
        judge(machine_facts(record=record(OTHER), recorded_machine=MachineGone()))

    def test_of_this_machine_under_another_identity(self) -> None:
        judge(machine_facts(record=record(identity="ek:2"), recorded_machine=machine_view()))

    def test_of_this_machine_once_proven_and_now_only_claimed(self) -> None:
        """Reservations may be missing, as after `clusterctl move`; what was attested is not had without proof."""
        claimed = AttestedIdentity("insecure", "team-a/prod/x", Security.INSECURE)
        facts = machine_facts(record=record(identity="ek:2"), recorded_machine=machine_view(), identity=claimed)
        assert refused(judge, facts).reason == Reason.IDENTITY_CONFLICT

    def test_of_this_machine_claimed_in_two_ways(self) -> None:
        """Neither is proven: the reservations decide, first come."""
        before = replace(record(), identity=AttestedIdentity("insecure", "one", Security.INSECURE))
        now = AttestedIdentity("insecure", "other", Security.INSECURE)
        judge(machine_facts(record=before, recorded_machine=machine_view(), identity=now))

    def test_of_this_machine_only_claimed_before(self) -> None:
        before = replace(record(), identity=AttestedIdentity("insecure", "team-a/prod/x", Security.INSECURE))
        judge(machine_facts(record=before, recorded_machine=machine_view()))

    def test_of_another_machine(self) -> None:
        facts = machine_facts(record=record(OTHER, "ek:2"), recorded_machine=OTHER)
        deny = refused(judge, facts)
        assert deny.reason == Reason.IDENTITY_CONFLICT
        assert "belongs to Machine team-a/other, not to Machine team-a/prod-md-0-x7k2p" in deny.message

    @pytest.mark.parametrize("reuse", ["AfterExpiry", "Immediate"])
    @pytest.mark.parametrize("now", [NOW, NOW + timedelta(days=30)])
    def test_of_another_machine_for_ever(self, reuse: str, now: Any) -> None:
        facts = machine_facts(
            record=record(OTHER, "ek:2"), recorded_machine=OTHER, now=now, policy=policy(nodeNameReuse=reuse)
        )
        assert refused(judge, facts).reason == Reason.IDENTITY_CONFLICT

    @pytest.mark.parametrize("reuse", ["AfterExpiry", "Immediate"])
    def test_of_another_machine_that_is_going(self, reuse: str) -> None:
        going = replace(OTHER, deleting=True)
        facts = machine_facts(record=record(OTHER, "ek:2"), recorded_machine=going, policy=policy(nodeNameReuse=reuse))
        defer = deferred(judge, facts)
        assert defer.reason == Reason.NODE_NAME_BLOCKED
        assert "being deleted" in defer.message
        assert defer.retry_after == LOOK_AGAIN

    @pytest.mark.parametrize("gone", [MachineGone(), machine_view(name="other", provider_id="aws:///new")])
    def test_of_a_machine_that_is_gone_blocks_until_expiry(self, gone: Any) -> None:
        facts = machine_facts(record=record(OTHER, "ek:2"), recorded_machine=gone)
        defer = deferred(judge, facts)
        assert defer.reason == Reason.NODE_NAME_BLOCKED
        assert "2026-03-08 12:00 UTC" in defer.message
        assert defer.retry_after == LOOK_AGAIN
        expiry = record().last_not_after
        nearly = replace(facts, now=expiry - timedelta(seconds=1))
        assert deferred(judge, nearly).retry_after == timedelta(seconds=1)
        judge(replace(facts, now=expiry))
        judge(replace(facts, policy=policy(nodeNameReuse="Immediate")))

    @pytest.mark.parametrize(
        "other",
        [
            record(machine_view(cluster=ClusterKey("team-a", "other"))),
            record(machine_view(cluster=ClusterKey("team-b", "prod"))),
            record(node_name="other"),
        ],
    )
    def test_that_is_not_this_nodes(self, other: Any) -> None:
        defer = deferred(judge, machine_facts(record=other, now=NOW + timedelta(days=30)))
        assert defer.reason == Reason.NODE_NAME_BLOCKED
        assert defer.retry_after == LOOK_AGAIN

    def test_the_identity_of_another_attestor_is_another(self) -> None:
        insecure = replace(attested_identity(), provider="insecure")
        facts = machine_facts(record=record(OTHER), recorded_machine=OTHER, identity=insecure)
        assert refused(judge, facts).reason == Reason.IDENTITY_CONFLICT


def serving(dns_names: tuple[str, ...] = (), addresses: tuple[str, ...] = (), **changes: Any) -> MachineFacts:
    return machine_facts(
        purpose=Purpose.SERVING,
        dns_names=dns_names,
        ip_addresses=tuple(ip_address(address) for address in addresses),
        **changes,
    )


def not_permitted(facts: MachineFacts, name: str) -> None:
    deny = refused(judge, facts)
    assert deny.reason == Reason.INVALID_SUBJECT_ALTERNATIVE_NAMES
    assert deny.message == f"alternative name {name} does not belong to Machine team-a/prod-md-0-x7k2p"


def with_addresses(*addresses: str) -> Any:
    return machine_view(
        addresses=(MachineAddress("InternalDNS", NODE), *(MachineAddress("InternalIP", text) for text in addresses))
    )


class TestAlternativeNames:
    def test_own(self) -> None:
        judge(serving((NODE,), ("10.0.0.1",)))

    def test_own_written_otherwise(self) -> None:
        addresses = (MachineAddress("InternalDNS", f"{NODE.upper()}."), MachineAddress("ExternalIP", "2001:DB8:0::1"))
        judge(serving((NODE,), ("2001:db8::1",), machine=machine_view(addresses=addresses)))

    def test_own_beside_the_node_name(self) -> None:
        addresses = (MachineAddress("InternalDNS", NODE), MachineAddress("ExternalDNS", "EC2-1.Example.COM."))
        judge(serving((NODE, "ec2-1.example.com"), machine=machine_view(addresses=addresses)))

    @pytest.mark.parametrize("name", ["*.example.com", "a_b", "10.0.0.1/8", "a..b"])
    def test_own_that_is_no_name_of_a_host(self, name: str) -> None:
        machine = machine_view(addresses=(MachineAddress("InternalDNS", NODE), MachineAddress("ExternalDNS", name)))
        not_permitted(serving((name,), machine=machine, proven=verified(dns_names=(name,))), name)

    def test_proven(self) -> None:
        proven = verified(dns_names=("proven.example",), ip_addresses=(ip_address("10.0.0.9"),))
        judge(serving(("proven.example",), ("10.0.0.9",), proven=proven))
        not_permitted(serving(("proven.example",), proven=None), "proven.example")
        not_permitted(serving((), ("10.0.0.9",), proven=None), "10.0.0.9")

    def test_node_name_that_is_no_address(self) -> None:
        machine = machine_view(provider_id="azure:///x", addresses=(), infrastructure_name="vm1")
        judge(serving(("vm1",), machine=machine, node_name="vm1"))

    def test_none_matter_to_clients(self) -> None:
        judge(replace(serving(("kubernetes",), ("127.0.0.1",)), purpose=Purpose.CLIENT))

    @pytest.mark.parametrize("name", ["other", "sub." + NODE, NODE.upper(), "*.ec2.internal", "", NODE + ".", "a\0b"])
    def test_foreign_dns_name(self, name: str) -> None:
        facts = serving((NODE, name))
        assert refused(judge, facts).reason == Reason.INVALID_SUBJECT_ALTERNATIVE_NAMES

    @pytest.mark.parametrize("address", ["10.0.0.2", "10.0.0.0", "::ffff:10.0.0.1", "::10.0.0.1", "11.0.0.1"])
    def test_foreign_address(self, address: str) -> None:
        not_permitted(serving((NODE,), ("10.0.0.1", address)), str(ip_address(address)))

    @pytest.mark.parametrize(
        "name", ["kubernetes", "kubernetes.default", "kubernetes.default.svc.cluster.local", "localhost", "localhost.a"]
    )
    def test_names_of_the_control_plane_even_if_claimed_by_the_platform(self, name: str) -> None:
        machine = machine_view(addresses=(MachineAddress("InternalDNS", NODE), MachineAddress("InternalDNS", name)))
        not_permitted(serving((name,), machine=machine, proven=verified(dns_names=(name,))), name)

    @pytest.mark.parametrize(
        "address",
        ["127.0.0.1", "127.9.9.9", "::1", str(ip_address(0)), "::", "224.0.0.1", "ff02::1", "169.254.1.1", "fe80::1"],
    )
    def test_addresses_of_nobody_even_if_the_machines(self, address: str) -> None:
        proven = verified(ip_addresses=(ip_address(address),))
        not_permitted(serving((), (address,), machine=with_addresses(address), proven=proven), address)

    def test_mapped_address_even_if_the_machines(self) -> None:
        mapped = "::ffff:10.0.0.1"
        not_permitted(serving((), (mapped,), machine=with_addresses(mapped)), str(ip_address(mapped)))

    @pytest.mark.parametrize("address", ["10.96.0.1", "10.111.255.255", "fd00::1"])
    def test_service_addresses_even_if_the_machines(self, address: str) -> None:
        cluster = cluster_view(service_networks=(ip_network("10.96.0.0/12"), ip_network("fd00::/108")))
        not_permitted(serving((), (address,), machine=with_addresses(address), cluster=cluster), address)
        judge(serving((), ("10.112.0.1",), machine=with_addresses("10.112.0.1"), cluster=cluster))

    @pytest.mark.parametrize("host", [NODE, NODE.upper(), f"{NODE}."])
    def test_control_plane_host(self, host: str) -> None:
        not_permitted(serving((NODE,), cluster=cluster_view(control_plane_host=host)), NODE)

    @pytest.mark.parametrize(("host", "address"), [("10.0.0.1", "10.0.0.1"), ("2001:DB8::0:1", "2001:db8::1")])
    def test_control_plane_address(self, host: str, address: str) -> None:
        facts = serving((), (address,), machine=with_addresses(address), cluster=cluster_view(control_plane_host=host))
        not_permitted(facts, address)

    @pytest.mark.parametrize("other", [NODE, f"{NODE}."])
    def test_dns_name_of_another_machine_too(self, other: str) -> None:
        not_permitted(serving((NODE,), addresses_of_others=frozenset({"x", other})), NODE)

    @pytest.mark.parametrize(("other", "address"), [("10.0.0.1", "10.0.0.1"), ("2001:db8:0::1", "2001:db8::1")])
    def test_address_of_another_machine_too(self, other: str, address: str) -> None:
        facts = serving((), (address,), machine=with_addresses(address), addresses_of_others=frozenset({"x", other}))
        not_permitted(facts, address)

    def test_hosts_that_are_no_addresses_do_not_matter(self) -> None:
        cluster = cluster_view(control_plane_host="api.example.com")
        judge(serving((NODE,), ("10.0.0.1",), cluster=cluster, addresses_of_others=frozenset({"other", "10.0.0.2"})))


def test_the_cluster_of_the_tests_is_the_machines() -> None:
    assert machine_view().cluster == CLUSTER
