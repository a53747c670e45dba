from __future__ import annotations

from dataclasses import replace
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attestors.wire.names import Purpose
from signer.model.addresses import canonical
from signer.model.cluster import MachineAddress
from signer.model.decision import Deferred, Refused
from signer.model.reasons import Reason
from signer.model.service_networks import NOT_REPORTED, ReportedServices
from signer.model.serving_facts import ServingFacts
from signer.rules.machine import MachineFacts
from signer.rules.serving import alternative_names_are_the_machines, equivalent_addresses
from tests.unit.signer.builders import (
    NODE,
    cluster_view,
    machine_facts,
    machine_view,
    policy,
    verified,
)
from tests.unit.signer.outcomes import deferred, refused

fast = settings(max_examples=200, deadline=None)
MACHINE = "Machine team-a/prod-md-0-x7k2p"
judge = alternative_names_are_the_machines


def serving(dns_names: tuple[str, ...] = (), addresses: tuple[str, ...] = (), **changes: Any) -> MachineFacts:
    return machine_facts(
        purpose=Purpose.SERVING,
        dns_names=dns_names,
        ip_addresses=tuple(ip_address(address) for address in addresses),
        **changes,
    )


def not_permitted(facts: MachineFacts, name: str, why: str) -> None:
    deny = refused(judge, facts)
    assert deny.reason == Reason.INVALID_SUBJECT_ALTERNATIVE_NAMES
    assert deny.message.startswith(f"alternative name {name} of node {facts.node_name} ")
    assert why in deny.message


def with_addresses(*addresses: str) -> Any:
    return machine_view(
        addresses=(MachineAddress("InternalDNS", NODE), *(MachineAddress("InternalIP", text) for text in addresses))
    )


def everywhere(name: str) -> dict[str, Any]:
    """The platform and the attestor both say that it is this Machine's."""
    try:
        proven = verified(ip_addresses=(ip_address(name),))
    except ValueError:
        proven = verified(dns_names=(name,))
    return {"machine": with_addresses(name), "proven": proven}


def mapped(address: str) -> str:
    return f"::ffff:{address}"


def nat64(address: str) -> str:
    return f"64:ff9b::{address}"


def local_nat64(address: str) -> str:
    return f"64:ff9b:1::{address}"


def translated(address: str) -> str:
    return f"::ffff:0:{address}"


def six_to_four(address: str) -> str:
    return str(IPv6Address(0x2002 << 112 | int(IPv4Address(address)) << 80 | 1))


def teredo(address: str) -> str:
    return str(IPv6Address(0x20010000 << 96 | 0x41000001 << 64 | int(IPv4Address(address)) ^ 0xFFFFFFFF))


def teredo_server(address: str) -> str:
    return str(IPv6Address(0x20010000 << 96 | int(IPv4Address(address)) << 64 | 0xF5FFFFFE))


def isatap(address: str) -> str:
    return f"2001:db8::5efe:{address}"


def universal_isatap(address: str) -> str:
    return f"2001:db8::200:5efe:{address}"


class TestOwn:
    def test_own(self) -> None:
        judge(serving((NODE,), ("10.0.0.1",)))

    def test_own_written_otherwise(self) -> None:
        addresses = (MachineAddress("InternalDNS", f"{NODE.upper()}."), MachineAddress("ExternalIP", "2001:DB8:0::1"))
        judge(serving((NODE,), ("2001:db8::1",), machine=machine_view(addresses=addresses)))

    @pytest.mark.parametrize("name", [NODE.upper(), "VM-1.Corp.Example", "vm-1.corp.example", "EC2-1.Example.COM"])
    def test_own_asked_for_in_upper_case(self, name: str) -> None:
        """As vSphere's cloud provider writes a guest's host name into its Node, from which the kubelet asks."""
        machine = machine_view(addresses=(MachineAddress("Hostname", "VM-1.corp.example"),))
        judge(serving((name,), machine=machine, proven=verified(dns_names=("ec2-1.example.com",))))

    def test_own_beside_the_node_name(self) -> None:
        addresses = (MachineAddress("InternalDNS", NODE), MachineAddress("ExternalDNS", "EC2-1.Example.COM."))
        judge(serving((NODE, "ec2-1.example.com"), machine=machine_view(addresses=addresses)))

    def test_proven(self) -> None:
        proven = verified(dns_names=("proven.example", "UPPER.example."), ip_addresses=(ip_address("10.0.0.9"),))
        judge(serving(("proven.example", "upper.example"), ("10.0.0.9",), proven=proven))
        not_permitted(serving(("proven.example",), proven=None), "proven.example", f"does not belong to {MACHINE}")
        not_permitted(serving((), ("10.0.0.9",), proven=None), "10.0.0.9", f"does not belong to {MACHINE}")

    def test_node_name_that_is_no_address(self) -> None:
        machine = machine_view(provider_id="azure:///x", addresses=(), infrastructure_name="vm1")
        judge(serving(("vm1",), machine=machine, node_name="vm1"))

    def test_a_name_of_ascii_letters_stands_for_others(self) -> None:
        judge(serving(("xn--bcher-kva.example",), machine=with_addresses("xn--bcher-kva.example")))
        name = "b\u00fccher.example"
        not_permitted(serving((name,), **everywhere(name)), "b\\xfccher.example", "is not a host name")

    def test_none_matter_to_clients(self) -> None:
        judge(replace(serving(("kubernetes",), ("127.0.0.1",)), purpose=Purpose.CLIENT))

    @pytest.mark.parametrize("name", ["other", f"sub.{NODE}", "ec2.internal", NODE.partition(".")[0]])
    def test_foreign_dns_name(self, name: str) -> None:
        not_permitted(serving((NODE, name)), name, f"does not belong to {MACHINE}")

    @pytest.mark.parametrize("address", ["10.0.0.2", "10.0.0.0", "11.0.0.1"])
    def test_foreign_address(self, address: str) -> None:
        not_permitted(serving((NODE,), ("10.0.0.1", address)), address, f"does not belong to {MACHINE}")

    def test_each_name_counts(self) -> None:
        for names in ((NODE, "other"), ("other", NODE)):
            assert refused(judge, serving(names)).reason == Reason.INVALID_SUBJECT_ALTERNATIVE_NAMES

    def test_without_addresses_nothing_is_known_to_be_foreign(self) -> None:
        """As after clusterctl move, which loses the status."""
        bare = machine_view(addresses=())
        judge(serving((NODE,), machine=bare))
        for names, addresses in ((("other",), ()), ((), ("10.0.0.1",))):
            for held in (frozenset[str](), frozenset({"other", "10.0.0.1"})):
                defer = deferred(judge, serving(names, addresses, machine=bare, conflicting_names=held))
                assert defer.reason == Reason.MACHINE_ADDRESSES_UNKNOWN
                assert f"{MACHINE} has no addresses (yet); the infrastructure provider" in defer.message

    def test_an_instance_that_no_machine_stands_for_is_told_what_to_do(self) -> None:
        """No infrastructure provider will ever give it addresses: a MachinePool has no place for them."""
        instance = machine_view(kind="MachinePool", name="pool", provider_id="test:///i-1", addresses=())
        judge(serving((NODE,), machine=instance))
        for proven in (None, verified(ip_addresses=(ip_address("10.0.0.1"),))):
            judge(serving((NODE,), ("10.0.0.1",) if proven else (), machine=instance, proven=proven))
            defer = deferred(judge, serving((NODE,), ("10.0.0.9",), machine=instance, proven=proven))
            assert defer.reason == Reason.MACHINE_ADDRESSES_UNKNOWN
            assert f"{instance} has no Machine, so its addresses are unknown" in defer.message

    STAGES = (
        pytest.param(("InternalIP", "10.0.0.1"), ("InternalDNS", "vm1.corp"), "vm1.corp", id="an address, then a name"),
        pytest.param(("Hostname", "vm1"), ("InternalIP", "10.0.0.7"), "10.0.0.7", id="a name, then an address"),
        pytest.param(("InternalIP", "10.0.0.1"), ("InternalIP", "2001:db8::7"), "2001:db8::7", id="IPv4, then IPv6"),
        pytest.param(("InternalIP", "2001:db8::1"), ("InternalIP", "10.0.0.7"), "10.0.0.7", id="IPv6, then IPv4"),
    )

    @pytest.mark.parametrize(("first", "then", "asked"), STAGES)
    def test_addresses_arrive_in_stages(self, first: tuple[str, str], then: tuple[str, str], asked: str) -> None:
        """A node knows its own from the start; it is not denied for what the platform does not show yet."""
        early, later = (
            machine_view(addresses=tuple(MachineAddress(*address) for address in addresses))
            for addresses in ((first,), (first, then))
        )
        names = {"dns_names": (asked,)} if asked == "vm1.corp" else {"addresses": (asked,)}
        defer = deferred(judge, serving(**names, machine=early, proven=None))
        assert defer.reason == Reason.MACHINE_ADDRESSES_UNKNOWN
        assert f"name {asked}: {MACHINE} has no address of that kind (yet); the infrastructure" in defer.message
        judge(serving(**names, machine=later, proven=None))

    @pytest.mark.parametrize(("first", "then", "asked"), STAGES)
    def test_what_is_somebody_elses_will_not_be_the_machines(
        self, first: tuple[str, str], then: tuple[str, str], asked: str
    ) -> None:
        names = {"dns_names": (asked,)} if asked == "vm1.corp" else {"addresses": (asked,)}
        early = machine_view(addresses=(MachineAddress(*first),))
        facts = serving(**names, machine=early, proven=None, conflicting_names=frozenset({asked}))
        not_permitted(facts, asked, f"does not belong to {MACHINE}")

    def test_another_of_a_kind_that_is_known_is_foreign(self) -> None:
        both = with_addresses("10.0.0.1", "2001:db8::1")
        not_permitted(serving((), ("2001:db8::2",), machine=both, proven=None), "2001:db8::2", "does not belong to")
        proven = verified(ip_addresses=(ip_address("2001:db8::1"),))
        only = with_addresses("10.0.0.1")
        not_permitted(serving((), ("2001:db8::2",), machine=only, proven=proven), "2001:db8::2", "does not belong to")


class TestControlPlane:
    """Names in the certificates of the API servers, and those that the operator reserves."""

    @pytest.mark.parametrize("name", ["api.example", "192.0.2.7", "2001:db8::7"])
    def test_of_the_api_server(self, name: str) -> None:
        is_address = name != "api.example"
        names = ((), (name,)) if is_address else ((name,), ())
        judge(serving(*names, **everywhere(name)))
        facts = serving(*names, serving=ServingFacts(control_plane_names=frozenset({name})), **everywhere(name))
        not_permitted(facts, name, "is a name of the API server")

    def test_an_address_that_may_be_delivered_to_the_api_server(self) -> None:
        name = str(ip_address(nat64("192.0.2.7")))
        facts = serving(
            (), (name,), serving=ServingFacts(control_plane_names=frozenset({"192.0.2.7"})), **everywhere(name)
        )
        not_permitted(facts, name, "is a name of the API server")

    def test_a_control_plane_node_has_its_own_name_and_addresses(self) -> None:
        """kubeadm writes both into its API server's certificate."""
        api_server = ServingFacts(control_plane_names=frozenset({NODE, "10.0.0.1", "lb.example"}))
        machine = with_addresses("10.0.0.1")
        not_permitted(serving((NODE,), machine=machine, serving=api_server), NODE, "is a name of the API server")
        own = replace(machine, control_plane=True)
        judge(serving((NODE,), ("10.0.0.1",), machine=own, serving=api_server))
        guest = replace(own, addresses=(*own.addresses, MachineAddress("Hostname", "lb.example")))
        not_permitted(serving(("lb.example",), machine=guest, serving=api_server), "lb.example", "of the API server")
        foreign = serving((), ("10.0.0.9",), machine=own, proven=None, serving=api_server)
        not_permitted(foreign, "10.0.0.9", "does not belong to")

    def test_unknown_names_wait(self) -> None:
        facts = serving((NODE,), serving=ServingFacts(control_plane_unknown="its certificate cannot be read"))
        defer = deferred(judge, facts)
        assert defer.reason == Reason.CONTROL_PLANE_NAMES_UNKNOWN
        assert "its certificate cannot be read" in defer.message

    def test_reserved_by_the_operator(self) -> None:
        name = "konnectivity-server"
        judge(serving((name,), **everywhere(name)))
        facts = serving((name,), serving=ServingFacts(reserved_names=frozenset({name})), **everywhere(name))
        not_permitted(facts, name, "servingAddresses.reservedNames")


class TestServices:
    """The Cluster's networks of Services, stated, reported or unknown."""

    UNSTATED = cluster_view(service_networks=())
    REPORTED = ReportedServices((ip_network("10.43.0.0/16"),), frozenset({4}))

    def facts(self, address: str, reported: ReportedServices = NOT_REPORTED, **changes: Any) -> MachineFacts:
        given: dict[str, Any] = {"cluster": self.UNSTATED, "serving": ServingFacts(reported_services=reported)}
        return serving((), (address,), **given | everywhere(address) | changes)

    @pytest.mark.parametrize("address", ["10.106.1.21", "172.20.0.1", "2001:db8::1", nat64("172.20.0.1")])
    def test_without_any_fact_every_address_waits(self, address: str) -> None:
        """kubeadm's default is no fact: neither a reason to deny, nor to approve what is outside."""
        defer = deferred(judge, self.facts(str(ip_address(address))))
        assert defer.reason == Reason.SERVICE_NETWORKS_UNKNOWN
        assert "networks are unknown: state them in spec.clusterNetwork.services.cidrBlocks of Cluster team-a/prod" in (
            defer.message
        )

    @pytest.mark.parametrize("address", ["10.106.1.21", "10.44.0.1", "10.42.255.255"])
    def test_outside_what_is_reported(self, address: str) -> None:
        judge(self.facts(address, self.REPORTED))

    @pytest.mark.parametrize("cluster", [UNSTATED, cluster_view()])
    @pytest.mark.parametrize("address", ["10.43.0.1", "10.43.255.255", nat64("10.43.0.1")])
    def test_inside_what_is_reported(self, address: str, cluster: Any) -> None:
        """A report adds to what the Cluster states; it is no ground for a denial."""
        defer = deferred(judge, self.facts(str(ip_address(address)), self.REPORTED, cluster=cluster))
        assert defer.reason == Reason.SERVICE_NETWORKS_UNKNOWN
        assert "is in 10.43.0.0/16" in defer.message

    @pytest.mark.parametrize("address", ["2001:db8::1", nat64("192.0.2.1")])
    def test_of_the_ip_version_that_is_not_reported(self, address: str) -> None:
        defer = deferred(judge, self.facts(str(ip_address(address)), self.REPORTED))
        assert "IPv6 networks are unknown" in defer.message

    def test_of_the_ip_version_of_an_address_inside(self) -> None:
        """Packets to it may be delivered to the IPv4 address."""
        only_ipv6 = ReportedServices((ip_network("fd00::/64"),), frozenset({6}))
        judge(self.facts("2001:db8::1", only_ipv6))
        defer = deferred(judge, self.facts(str(ip_address(nat64("192.0.2.1"))), only_ipv6))
        assert "IPv4 networks are unknown" in defer.message

    def test_a_report_frees_nothing_that_is_stated(self) -> None:
        not_permitted(self.facts("10.96.0.1", self.REPORTED, cluster=cluster_view()), "10.96.0.1", "Services")
        judge(self.facts("10.106.1.21", cluster=cluster_view(service_networks=(ip_network("10.43.0.0/16"),))))

    def test_names_need_no_networks(self) -> None:
        judge(serving((NODE,), cluster=self.UNSTATED))

    def test_what_is_foreign_is_denied_anyway(self) -> None:
        facts = serving((), ("10.0.0.9",), cluster=self.UNSTATED, proven=None)
        not_permitted(facts, "10.0.0.9", "does not belong to")

    def test_in_a_network_of_the_policy(self) -> None:
        cluster = replace(self.UNSTATED, control_plane_host="api.example")
        networks = ServingFacts(networks=(ip_network("10.0.1.0/24"),))
        defer = deferred(judge, serving((), ("10.0.1.5",), cluster=cluster, serving=networks, proven=None))
        assert defer.reason == Reason.SERVICE_NETWORKS_UNKNOWN


class TestNetworks:
    """Addresses that no Machine lists, in networks that the policy names and the operator allows."""

    NETWORKS = (ip_network("10.0.1.0/24"), ip_network("2001:db8:7::/64"), ip_network("10.96.0.0/12"))
    CLUSTER = cluster_view(control_plane_host="10.0.1.7", service_networks=(ip_network("10.96.0.0/16"),))

    def facts(self, *addresses: str, **changes: Any) -> MachineFacts:
        given: dict[str, Any] = {
            "cluster": self.CLUSTER,
            "serving": ServingFacts(networks=self.NETWORKS),
            "proven": None,
        }
        return serving((), addresses, **given | changes)

    @pytest.mark.parametrize("machine", [with_addresses("10.0.0.1"), machine_view(addresses=())])
    def test_in_a_network(self, machine: Any) -> None:
        judge(self.facts("10.0.1.5", "2001:db8:7::5", machine=machine))

    def test_for_an_instance_of_a_pool(self) -> None:
        instance = machine_view(kind="MachinePool", name="pool", provider_id="test:///i-1", addresses=())
        judge(self.facts("10.0.1.5", machine=instance))

    @pytest.mark.parametrize("address", ["10.0.2.5", "2001:db8:8::5", "::ffff:10.0.1.5", "64:ff9b::10.0.1.5"])
    def test_beside_the_networks(self, address: str) -> None:
        written = str(ip_address(address))
        facts = self.facts(address, machine=with_addresses("10.0.0.1", "2001:db8::1"))
        deny = refused(judge, facts)
        assert deny.message.startswith(f"alternative name {written} ")

    def test_not_without_them(self) -> None:
        not_permitted(self.facts("10.0.1.5", serving=ServingFacts()), "10.0.1.5", "does not belong to")

    @pytest.mark.parametrize(("address", "why"), [("10.0.1.7", "control-plane endpoint"), ("10.96.0.1", "Services")])
    def test_never_of_the_cluster(self, address: str, why: str) -> None:
        not_permitted(self.facts(address), address, why)

    def test_never_another_machines(self) -> None:
        """A control plane Machine's, for example; also inside another address, and by any reading."""
        not_permitted(self.facts("10.0.1.5", conflicting_names=frozenset({"10.0.1.5"})), "10.0.1.5", "does not belong")
        networks = (ip_network("64:ff9b::/96"),)
        facts = self.facts(
            "64:ff9b::10.0.1.5", serving=ServingFacts(networks=networks), conflicting_names=frozenset({"10.0.1.5"})
        )
        not_permitted(facts, "64:ff9b::a00:105", "does not belong to")
        possible = ServingFacts(frozenset({"10.0.1.5"}), networks=self.NETWORKS)
        assert deferred(judge, self.facts("10.0.1.5", serving=possible)).reason == Reason.MACHINE_AMBIGUOUS

    def test_not_before_the_endpoint_is_known(self) -> None:
        defer = deferred(judge, self.facts("10.0.1.5", cluster=cluster_view(control_plane_host="")))
        assert defer.reason == Reason.MACHINE_ADDRESSES_UNKNOWN
        assert "has no control-plane endpoint yet" in defer.message

    def test_what_the_operator_does_not_allow_waits(self) -> None:
        """It is no fault of the node, and the operator may still allow it."""
        named = policy(servingAddresses={"networks": ["10.0.1.0/24", "10.0.2.0/24"]})
        some = ServingFacts(networks=(ip_network("10.0.2.0/24"),))
        defer = deferred(judge, self.facts("10.0.1.5", policy=named, serving=some))
        assert defer.reason == Reason.MACHINE_ADDRESSES_UNKNOWN
        assert "in a network of the policy that the operator does not allow" in defer.message
        judge(self.facts("10.0.2.5", policy=named, serving=some))
        anothers = frozenset({"10.0.2.5"})
        facts = self.facts("10.0.2.5", policy=named, serving=some, conflicting_names=anothers)
        not_permitted(facts, "10.0.2.5", "does not belong to")
        not_permitted(self.facts("10.0.3.5", policy=named, serving=some), "10.0.3.5", "does not belong to")


class TestUnreadableAddresses:
    """Of the Machine itself, and of others."""

    @pytest.mark.parametrize("text", ["10.0.0.7/24", " 10.0.0.7", "10.0.0.7:22", "[::ffff:10.0.0.7]"])
    def test_every_form_with_one_reading_is_the_machines(self, text: str) -> None:
        judge(serving((), ("10.0.0.7",), machine=with_addresses(text), proven=None))

    @pytest.mark.parametrize("text", ["10.0.0.010", "10.0.0.256", "10.0.0.0/24", ""])
    @pytest.mark.parametrize("asked", ["10.0.0.8", "2001:db8::1"])
    def test_a_name_waits_while_the_machine_has_an_unreadable_address(self, text: str, asked: str) -> None:
        """The text may be that name, once it is corrected; a denial is final."""
        machine = with_addresses("10.0.0.1", text)
        defer = deferred(judge, serving((), (asked,), machine=machine, proven=None))
        assert defer.reason == Reason.MACHINE_ADDRESSES_UNKNOWN
        assert f"Addresses that cannot be read: InternalIP {text!r} " in defer.message
        judge(serving((NODE,), ("10.0.0.1",), machine=machine, proven=None))
        held = frozenset({asked})
        held_too = serving((), (asked,), machine=machine, proven=None, conflicting_names=held)
        assert deferred(judge, held_too).reason == Reason.MACHINE_ADDRESSES_UNKNOWN

    def test_only_some_are_shown(self) -> None:
        machine = with_addresses(*(f"10.0.0.01{number}" for number in range(5)))
        assert "'10.0.0.012' has leading zeros" in deferred(judge, serving(("x",), machine=machine)).message
        assert deferred(judge, serving(("x",), machine=machine)).message.endswith(", and 2 more")

    @pytest.mark.parametrize("asked", ["10.0.0.1", NODE])
    def test_what_may_be_anothers_waits(self, asked: str) -> None:
        facts = serving((NODE,), ("10.0.0.1",), serving=ServingFacts(frozenset({asked})))
        defer = deferred(judge, facts)
        assert defer.reason == Reason.MACHINE_AMBIGUOUS
        assert f"alternative name {asked} may be an address of another Machine, which cannot be read" in defer.message

    def test_a_face_of_an_address_that_may_be_anothers_waits(self) -> None:
        address = nat64("192.0.2.1")
        facts = serving((), (address,), serving=ServingFacts(frozenset({"192.0.2.1"})), **everywhere(address))
        assert deferred(judge, facts).reason == Reason.MACHINE_AMBIGUOUS

    @pytest.mark.parametrize("host", ["192.0.2.010", "192.0.2.8:6443", "[::ffff:192.0.2.8]:6443"])
    def test_every_reading_of_the_endpoint_counts(self, host: str) -> None:
        facts = serving((), ("192.0.2.8",), cluster=cluster_view(control_plane_host=host), **everywhere("192.0.2.8"))
        not_permitted(facts, "192.0.2.8", "is the control-plane endpoint")


class TestDomains:
    """The same host in a domain that the policy names."""

    POLICY = policy(nodeNames={"domains": ["corp.example", "prod.example"]})

    def facts(self, *names: str, **changes: Any) -> MachineFacts:
        given: dict[str, Any] = {"node_name": "vm1", "policy": self.POLICY, "proven": None}
        return serving(names, **given | {"machine": with_addresses("vm2.corp.example")} | changes)

    @pytest.mark.parametrize(
        "name", ["vm1.corp.example", "vm1.prod.example", "vm2", "vm2.prod.example", "VM1.Corp.Example"]
    )
    def test_own(self, name: str) -> None:
        judge(self.facts("vm1", name))

    @pytest.mark.parametrize("name", ["vm3.corp.example", "vm1.other.example", "x.vm1.corp.example", "corp.example"])
    def test_foreign(self, name: str) -> None:
        not_permitted(self.facts(name), name, f"does not belong to {MACHINE}")

    def test_not_without_the_policy(self) -> None:
        not_permitted(self.facts("vm1.corp.example", policy=policy()), "vm1.corp.example", "does not belong to")

    def test_never_of_the_cluster(self) -> None:
        cluster = cluster_view(service_domain="prod.example", control_plane_host="vm1.corp.example")
        not_permitted(self.facts("vm1.prod.example", cluster=cluster), "vm1.prod.example", "is in the domain")
        not_permitted(self.facts("vm1.corp.example", cluster=cluster), "vm1.corp.example", "control-plane endpoint")

    def test_a_host_of_another_machine_too(self) -> None:
        """By the same rule, the name may be that Machine's. Names that are not derived stay its own."""
        shared = ServingFacts(names_of_shared_hosts=frozenset({"vm1.corp.example", "vm1", "vm2.corp.example"}))
        defer = deferred(judge, self.facts("vm1.corp.example", serving=shared))
        assert defer.reason == Reason.MACHINE_AMBIGUOUS
        assert "by a domain of the policy, and another Machine of the cluster has the same host" in defer.message
        judge(self.facts("vm1", "vm2.corp.example", serving=shared))

    def test_anothers(self) -> None:
        facts = self.facts("vm1.corp.example", conflicting_names=frozenset({"vm1.corp.example"}))
        assert deferred(judge, facts).reason == Reason.MACHINE_AMBIGUOUS


class TestNoHostsName:
    @pytest.mark.parametrize(
        "name",
        [
            *(
                "*.ec2.internal",
                "*",
                f"*.{NODE}",
                f"{NODE}.",
                f"{NODE.upper()}.",
                ".",
                "",
                "a_b",
                "a..b",
                "-a",
                "a-",
                "a\0b",
            ),
            *("10.0.0.1", "10.0.0.1/8", "10.1", "167772161", "0x7f000001", "0x7f.1", "127.1", "0x", "010.0.0.1"),
            *("a.1", "::1", "[::1]", "a b", f"{NODE}\n", "a" * 64, f"{'a' * 64}.example", f"x.{'a' * 64}", "a." * 130),
        ],
    )
    def test_even_if_the_machines(self, name: str) -> None:
        facts = serving((name,), node_name=name, **everywhere(name))
        deny = refused(judge, facts)
        assert deny.reason == Reason.INVALID_SUBJECT_ALTERNATIVE_NAMES
        assert "is not a host name" in deny.message

    @pytest.mark.parametrize("name", ["node\u212a", "\u212aubernetes", "a\uff41", "\u0130.example"])
    def test_letters_that_are_no_ascii(self, name: str) -> None:
        """Python's lower case of a Kelvin sign is a k: what was compared must be what the certificate holds."""
        lower = name.lower()
        facts = serving((name,), node_name=lower, **everywhere(lower))
        assert refused(judge, facts).reason == Reason.INVALID_SUBJECT_ALTERNATIVE_NAMES

    @pytest.mark.parametrize("name", ["a" * 63, f"{'a' * 63}.{'b' * 63}", "1.a", "a1", "0xa.b", "node-10"])
    def test_hosts(self, name: str) -> None:
        judge(serving((name,), machine=with_addresses(name)))


class TestNamesOfTheCluster:
    @pytest.mark.parametrize(
        ("name", "why"),
        [
            ("kubernetes", "begins with kubernetes"),
            ("kubernetes.default", "begins with kubernetes"),
            ("kubernetes.default.svc.cluster.local", "begins with kubernetes"),
            ("kubernetes-worker-1", "begins with kubernetes"),
            ("kubernetesx.example", "begins with kubernetes"),
            ("localhost", "is a localhost name, which every host has"),
            ("localhost.localdomain", "is a localhost name, which every host has"),
            ("a.localhost", "is a localhost name, which every host has"),
            ("svc", "is in the domain svc"),
            ("api.default.svc", "is in the domain svc"),
            ("api.default.svc.cluster.local", "is in the domain cluster.local"),
            ("10-0-0-1.default.pod.cluster.local", "is in the domain cluster.local"),
            ("cluster.local", "is in the domain cluster.local"),
            ("api.default.svc.prod.example", "is in the domain prod.example"),
            ("prod.example", "is in the domain prod.example"),
            ("api.example.com", "is the control-plane endpoint"),
        ],
    )
    def test_even_if_the_machines(self, name: str, why: str) -> None:
        cluster = cluster_view(service_domain="prod.example", control_plane_host="api.example.com")
        not_permitted(serving((name,), cluster=cluster, **everywhere(name)), name, why)
        not_permitted(serving((name,), cluster=cluster, node_name=name), name, why)

    @pytest.mark.parametrize(
        ("name", "why"),
        [
            ("KUBERNETES.default", "begins with kubernetes"),
            ("Kubernetes-worker-1", "begins with kubernetes"),
            ("LocalHost", "is a localhost name, which every host has"),
            ("a.LOCALHOST", "is a localhost name, which every host has"),
            ("api.default.Svc", "is in the domain svc"),
            ("api.CLUSTER.Local", "is in the domain cluster.local"),
            ("api.PROD.example", "is in the domain prod.example"),
            ("API.example.com", "is the control-plane endpoint"),
        ],
    )
    def test_in_upper_case(self, name: str, why: str) -> None:
        """To a client it is the same name."""
        cluster = cluster_view(service_domain="prod.example", control_plane_host="api.example.com")
        not_permitted(serving((name,), cluster=cluster, **everywhere(name)), name.lower(), why)

    @pytest.mark.parametrize(
        "name", ["my-kubernetes", "a.kubernetes", "localhost-1", "x.svc.example", "acluster.local"]
    )
    def test_others(self, name: str) -> None:
        judge(serving((name,), machine=with_addresses(name)))

    @pytest.mark.parametrize("host", [NODE, NODE.upper(), f"{NODE}."])
    def test_control_plane_host(self, host: str) -> None:
        not_permitted(serving((NODE,), cluster=cluster_view(control_plane_host=host)), NODE, "control-plane endpoint")

    def test_no_control_plane_host_yet(self) -> None:
        judge(serving((NODE,), ("10.0.0.1",), cluster=cluster_view(control_plane_host="")))


EMBEDDINGS = [nat64, local_nat64, translated, six_to_four, teredo, teredo_server, isatap, universal_isatap]
NOBODYS = ["127.0.0.1", "127.9.9.9", str(ip_address(0)), "0.1.2.3"]
NOBODYS += ["224.0.0.1", "169.254.169.254", "255.255.255.255", "240.0.0.1"]


class TestAddressesOfNobody:
    @pytest.mark.parametrize("address", [*NOBODYS, "::1", "::", "ff02::1", "fe80::1", "febf::1"])
    def test_even_if_the_machines(self, address: str) -> None:
        not_permitted(
            serving((), (address,), **everywhere(address)),
            address,
            "is a special-purpose address that identifies no single host",
        )

    @pytest.mark.parametrize("embed", EMBEDDINGS)
    @pytest.mark.parametrize("inside", ["127.0.0.1", "224.0.0.1", "169.254.1.1"])
    def test_inside_another(self, embed: Any, inside: str) -> None:
        address = str(ip_address(embed(inside)))
        not_permitted(
            serving((), (address,), **everywhere(address)),
            address,
            "is a special-purpose address that identifies no single host",
        )

    @pytest.mark.parametrize("embed", EMBEDDINGS)
    def test_that_holds_an_ordinary_address(self, embed: Any) -> None:
        address = str(ip_address(embed("192.0.2.1")))
        judge(serving((), (address,), **everywhere(address)))

    @pytest.mark.parametrize("address", [mapped("10.0.0.1"), "::10.0.0.1"])
    def test_ipv4_in_other_words(self, address: str) -> None:
        """Nobody gets a certificate for it; whose it is has the address in its own words."""
        judge(serving((), ("10.0.0.1",), **everywhere(address)))
        written = str(ip_address(address))
        not_permitted(serving((), (address,), **everywhere(address)), written, "is an IPv4 address written as IPv6")
        assert canonical(address) == "10.0.0.1"


def test_what_only_looks_like_isatap_holds_no_other_address() -> None:
    address = ip_address("2001:db8::5eff:10.96.0.1")
    assert equivalent_addresses(address) == (address,)


def test_a_last_label_that_begins_with_a_digit() -> None:
    judge(serving(("node.1a",), **everywhere("node.1a")))
    not_permitted(serving(("node.1",), **everywhere("node.1")), "node.1", "is not a host name")


class TestAddressesOfTheCluster:
    CLUSTER = cluster_view(
        service_networks=(ip_network("10.96.0.0/12"), ip_network("fd00::/108")), control_plane_host="192.0.2.7"
    )

    @pytest.mark.parametrize(
        "address", ["10.96.0.1", "10.111.255.255", "fd00::1", *(e("10.96.0.1") for e in EMBEDDINGS)]
    )
    def test_services(self, address: str) -> None:
        address = str(ip_address(address))
        facts = serving((), (address,), cluster=self.CLUSTER, **everywhere(address))
        not_permitted(facts, address, "the cluster's Services")

    @pytest.mark.parametrize("inside", ["10.96.0.1", "192.0.2.7", "127.0.0.1"])
    @pytest.mark.parametrize("asked", [str, mapped])
    def test_ipv4_in_other_words_is_no_way_around(self, asked: Any, inside: str) -> None:
        """Even where the platform says in these words that it is the Machine's."""
        facts = serving((), (asked(inside),), cluster=self.CLUSTER, **everywhere(mapped(inside)))
        not_permitted(facts, str(ip_address(asked(inside))), " ")

    def test_beside_the_services(self) -> None:
        judge(serving((), ("10.112.0.1",), cluster=self.CLUSTER, **everywhere("10.112.0.1")))

    @pytest.mark.parametrize("address", ["192.0.2.7", *(embed("192.0.2.7") for embed in EMBEDDINGS)])
    def test_control_plane(self, address: str) -> None:
        address = str(ip_address(address))
        facts = serving((), (address,), cluster=self.CLUSTER, **everywhere(address))
        not_permitted(facts, address, "is the control-plane endpoint")

    @pytest.mark.parametrize("host", ["2001:DB8::0:1", "2001:db8::1", "2001:0db8:0000::0001"])
    def test_control_plane_written_otherwise(self, host: str) -> None:
        facts = serving(
            (), ("2001:db8::1",), cluster=cluster_view(control_plane_host=host), **everywhere("2001:db8::1")
        )
        not_permitted(facts, "2001:db8::1", "is the control-plane endpoint")

    def test_a_host_that_is_no_address(self) -> None:
        judge(serving((NODE,), ("10.0.0.1",), cluster=cluster_view(control_plane_host="api.example.com")))


class TestOfOthers:
    def test_dns_name_of_another_too(self) -> None:
        defer = deferred(judge, serving((NODE,), conflicting_names=frozenset({"x", NODE})))
        assert defer.reason == Reason.MACHINE_AMBIGUOUS
        assert NODE in defer.message

    @pytest.mark.parametrize("address", ["10.0.0.1", "2001:db8::1"])
    def test_address_of_another_too(self, address: str) -> None:
        facts = serving((), (address,), conflicting_names=frozenset({"x", address}), **everywhere(address))
        assert deferred(judge, facts).reason == Reason.MACHINE_AMBIGUOUS

    @pytest.mark.parametrize("embed", EMBEDDINGS)
    def test_address_of_another_inside(self, embed: Any) -> None:
        address = embed("192.0.2.1")
        facts = serving((), (address,), conflicting_names=frozenset({"192.0.2.1"}), **everywhere(address))
        assert deferred(judge, facts).reason == Reason.MACHINE_AMBIGUOUS

    def test_dns_name_of_another_in_upper_case(self) -> None:
        facts = serving((NODE.upper(),), conflicting_names=frozenset({NODE}))
        assert deferred(judge, facts).reason == Reason.MACHINE_AMBIGUOUS
        not_permitted(serving(("Other",), conflicting_names=frozenset({"other"})), "other", "does not belong to")

    def test_of_another_alone(self) -> None:
        facts = serving(("other",), conflicting_names=frozenset({"other"}))
        not_permitted(facts, "other", f"does not belong to {MACHINE}")

    def test_others_do_not_matter(self) -> None:
        judge(serving((NODE,), ("10.0.0.1",), conflicting_names=frozenset({"other", "10.0.0.2"})))


class TestCanonical:
    @pytest.mark.parametrize(
        ("text", "one"),
        [
            ("Node.Example.", "node.example"),
            ("10.0.0.1", "10.0.0.1"),
            ("::FFFF:10.0.0.1", "10.0.0.1"),
            ("2001:DB8:0::1", "2001:db8::1"),
            ("fe80::1%eth0", "fe80::1"),
            ("::ffff:10.0.0.1%eth0", "10.0.0.1"),
            ("10.0.0.1%eth0", "10.0.0.1"),
            ("2001:db8::5efe:10.0.0.1", "2001:db8::5efe:a00:1"),
            ("", ""),
            ("10.0.0.1/8", "10.0.0.1"),
            ("[2001:DB8::1]:22", "2001:db8::1"),
            ("010.0.0.1", "010.0.0.1"),
        ],
    )
    def test_one_spelling(self, text: str, one: str) -> None:
        assert canonical(text) == one
        assert canonical(one) == one

    @fast
    @given(st.ip_addresses())
    def test_addresses(self, address: IPv4Address | IPv6Address) -> None:
        one = canonical(str(address))
        assert canonical(address.exploded.upper()) == one
        assert one in {str(face) for face in equivalent_addresses(address)}

    @fast
    @given(st.text(max_size=30).filter(lambda text: ".." not in text))
    def test_any_text(self, text: str) -> None:
        """An empty label is in no name; one root dot is taken off at a time."""
        assert canonical(canonical(text)) == canonical(canonical(canonical(text)))


# Whatever passes is the Machine's own, and on no list.

DNS_NAMES = st.sampled_from(
    [
        *(NODE, NODE.upper(), f"{NODE}.", "own.example", "other.example", "*.example", "kubernetes", "kubernetes-1"),
        *("Kubernetes", "LOCALHOST", "api.default.SVC", "X.prod.example", "API.example.com", "Own.Example"),
        *("localhost", "api.default.svc", "x.cluster.local", "x.prod.example", "api.example.com", "10.0.0.1", "a.1"),
    ]
) | st.from_regex(r"[a-zA-Z0-9.*\u212a-]{1,12}", fullmatch=True)
V4 = st.sampled_from([*NOBODYS, "10.0.0.1", "10.0.0.2", "10.96.0.1", "192.0.2.7", "192.0.2.8"]).map(IPv4Address)
ADDRESSES = (
    V4
    | st.builds(lambda embed, v4: ip_address(embed(str(v4))), st.sampled_from([mapped, *EMBEDDINGS]), V4)
    | st.ip_addresses()
)


@settings(fast, max_examples=500)
@given(
    st.lists(DNS_NAMES, max_size=3),
    st.lists(ADDRESSES, max_size=3),
    st.lists(DNS_NAMES | ADDRESSES.map(str), max_size=4),
    st.lists(DNS_NAMES | ADDRESSES.map(str), max_size=3),
    st.booleans(),
)
def test_what_passes(
    dns_names: list[str], addresses: list[Any], own: list[str], others: list[str], platform_says_so: bool
) -> None:
    if platform_says_so:
        own = [*own, *dns_names, *(str(address) for address in addresses)]
    cluster = TestAddressesOfTheCluster.CLUSTER
    cluster = replace(cluster, service_domain="prod.example")
    facts = serving(
        tuple(dns_names),
        tuple(str(address) for address in addresses),
        cluster=cluster,
        machine=machine_view(addresses=tuple(MachineAddress("InternalIP", text) for text in own)),
        proven=None,
        conflicting_names=frozenset(canonical(text) for text in others),
    )
    try:
        judge(facts)
    except (Refused, Deferred):
        return
    mine = {canonical(text) for text in own} | {NODE}
    for asked in dns_names:
        name = asked.lower()
        assert asked.isascii()
        assert name in mine
        assert name == name.strip(".")
        assert "*" not in name
        assert not name.startswith("kubernetes")
        assert not f".{name}".endswith((".svc", ".cluster.local", ".prod.example", ".localhost"))
        assert not name.split(".")[-1].isdigit()
        assert name not in {canonical(text) for text in others}
    for address in addresses:
        # An IPv4-mapped address of the Machine's is that IPv4 address.
        assert address in {ip_address(canonical(text)) for text in own if _is_address(text)}
        assert address.version == 4 or address.ipv4_mapped is None
        for face in equivalent_addresses(address):
            assert not any((face.is_loopback, face.is_multicast, face.is_link_local, face.is_unspecified))
            assert not any(face in network for network in cluster.service_networks)
            assert str(face) != "192.0.2.7"
            assert str(face) not in {canonical(text) for text in others}


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
