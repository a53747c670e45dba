"""An instance as DescribeInstances shows it."""

from __future__ import annotations

from datetime import timedelta
from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from attestors.aws.ec2.instance import (
    Instance,
    InstanceState,
    MetadataOptions,
    NoRootVolume,
    NotAttached,
    NotUnderstood,
    UnexpectedDescription,
    read_description,
)
from tests.unit.attestors.aws.ec2.descriptions import (
    ACCOUNT,
    INSTANCE,
    LAUNCH,
    REGION,
    attachment,
    description,
    interface,
)
from tests.unit.attestors.support import PATIENT


def read(region: str = REGION, **changes: Any) -> Instance:
    return Instance.read(description(**changes), account=ACCOUNT, region=region)


def test_an_instance_is_read() -> None:
    assert read() == Instance(
        instance_id=INSTANCE,
        account=ACCOUNT,
        state=InstanceState.RUNNING,
        private_dns_name="ip-10-0-1-17.eu-west-1.compute.internal",
        other_dns_names=(),
        addresses=(ip_address("10.0.1.17"),),
        metadata_options=MetadataOptions(True, 1),
        interface_attached_at=LAUNCH,
        root_attached_at=LAUNCH,
        tags={"Name": "worker-1"},
    )


def test_a_large_instance_whose_pods_have_addresses_of_its_interfaces_is_read() -> None:
    """15 interfaces of 50 private addresses: what a large instance can have, and the VPC CNI plugin uses."""
    interfaces = [
        interface("10.0.1.17", PrivateIpAddresses=[{"PrivateIpAddress": f"10.0.{card}.{at}"} for at in range(50)])
        for card in range(15)
    ]
    assert len(read(NetworkInterfaces=interfaces).addresses) == 750


def test_more_addresses_than_an_instance_can_have_are_not_understood() -> None:
    addresses = [{"PrivateIpAddress": f"10.{at >> 8}.{at & 255}.1"} for at in range(2049)]
    with pytest.raises(UnexpectedDescription, match="2048 addresses"):
        read(NetworkInterfaces=[interface("10.0.1.17", PrivateIpAddresses=addresses)])


def test_addresses_of_all_interfaces_are_the_instances() -> None:
    first = interface(
        "10.0.1.17",
        PrivateIpAddresses=[
            {"PrivateIpAddress": "10.0.1.17", "Association": {"PublicIp": "198.51.100.7"}},
            {"PrivateIpAddress": "10.0.1.18"},
        ],
        Ipv6Addresses=[{"Ipv6Address": "2001:db8::17"}],
    )
    second = interface("10.0.2.17", Attachment=attachment(1))
    found = read(NetworkInterfaces=[first, second]).addresses
    assert [str(address) for address in found] == [
        "10.0.1.17",
        "198.51.100.7",
        "10.0.1.18",
        "2001:db8::17",
        "10.0.2.17",
    ]


@pytest.mark.parametrize(
    ("region", "name"),
    [("us-east-1", f"{INSTANCE}.ec2.internal"), ("eu-west-1", f"{INSTANCE}.eu-west-1.compute.internal")],
)
@pytest.mark.parametrize(
    "options",
    [
        {"HostnameType": "resource-name"},
        {"HostnameType": "ip-name", "EnableResourceNameDnsARecord": True},
        {"HostnameType": "ip-name", "EnableResourceNameDnsAAAARecord": True},
    ],
)
def test_the_name_by_instance_id_counts_where_ec2_answers_for_it(region: str, name: str, options: Any) -> None:
    assert read(region, PrivateDnsNameOptions=options).other_dns_names == (name,)


def test_the_name_by_instance_id_may_be_the_private_dns_name() -> None:
    name = f"{INSTANCE}.eu-west-1.compute.internal"
    instance = read(PrivateDnsName=name, PrivateDnsNameOptions={"HostnameType": "resource-name"})
    assert (instance.private_dns_name, instance.other_dns_names) == (name, ())


def test_public_names_are_the_instances() -> None:
    public = "ec2-198-51-100-7.eu-west-1.compute.amazonaws.com"
    second = interface("10.0.2.17", Association={"PublicDnsName": "ec2-198-51-100-8.eu-west-1.compute.amazonaws.com"})
    instance = read(PublicDnsName=public, NetworkInterfaces=[interface("10.0.1.17"), second])
    assert instance.other_dns_names == (public, "ec2-198-51-100-8.eu-west-1.compute.amazonaws.com")


@pytest.mark.parametrize(
    "name", ["", "ip-10-0-1-17.corp.example other.example", "*.example", "10.0.1.17", "a..b", "-a", "a" * 64]
)
def test_what_is_no_dns_name_is_none(name: str) -> None:
    assert read(PrivateDnsName=name).private_dns_name == ""


def test_names_are_in_lower_case() -> None:
    assert read(PrivateDnsName="IP-10-0-1-17.Corp.Example").private_dns_name == "ip-10-0-1-17.corp.example"


def test_the_primary_interface_is_found_by_its_index() -> None:
    late = LAUNCH + timedelta(days=1)
    others = [
        interface("10.0.3.1", Attachment=attachment(1, at=late)),
        interface("10.0.4.1", Attachment=attachment(0, 1, late)),
    ]
    assert read(NetworkInterfaces=[*others, interface("10.0.1.17")]).interface_attached_at == LAUNCH


def test_a_terminated_instance_has_neither_interface_nor_volume() -> None:
    instance = read(
        State={"Name": "terminated"}, NetworkInterfaces=[], BlockDeviceMappings=[], PrivateDnsName="", Tags=...
    )
    assert instance.state is InstanceState.TERMINATED
    assert isinstance(instance.interface_attached_at, NotAttached)
    assert isinstance(instance.root_attached_at, NotAttached)


def test_the_root_volume_is_found_by_its_name() -> None:
    late = {"DeviceName": "/dev/xvdb", "Ebs": {"AttachTime": LAUNCH + timedelta(days=1)}}
    root = {"DeviceName": "/dev/xvda", "Ebs": {"AttachTime": LAUNCH}}
    assert read(BlockDeviceMappings=[late, root]).root_attached_at == LAUNCH


def test_an_instance_store_has_no_root_volume() -> None:
    instance = read(RootDeviceType="instance-store", BlockDeviceMappings=[])
    assert isinstance(instance.root_attached_at, NoRootVolume)


@pytest.mark.parametrize(
    "changes",
    [
        {"InstanceId": ...},
        {"State": ...},
        {"State": {"Name": "dreaming"}},
        {"MetadataOptions": ...},
        {"MetadataOptions": {"HttpTokens": "required"}},
        {"NetworkInterfaces": [interface("10.0.1.999")]},
        {"NetworkInterfaces": [interface("10.0.1.1", Ipv6Addresses=[{"Ipv6Address": "10.0.0.1"}])]},
        {"NetworkInterfaces": [interface("10.0.1.1", Attachment=attachment(at=LAUNCH.replace(tzinfo=None)))]},
        {"NetworkInterfaces": [interface("10.0.1.1")] * 65},
        {"NetworkInterfaces": [{"PrivateIpAddresses": []}]},
        {"BlockDeviceMappings": [{"DeviceName": "/dev/xvda"}]},
        {"Tags": [{"Key": str(number), "Value": ""} for number in range(65)]},
        {"Tags": [{"Key": "x"}]},
    ],
)
def test_a_description_of_unknown_form_is_not_the_nodes_fault(changes: dict[str, Any]) -> None:
    with pytest.raises(UnexpectedDescription):
        read(**changes)


@pytest.mark.parametrize("name", ["InstanceId", "State", "MetadataOptions"])
def test_a_field_that_is_missing_is_named(name: str) -> None:
    changes: dict[str, Any] = {name: ...}
    with pytest.raises(UnexpectedDescription, match=f"without {name}$"):
        read(**changes)


def test_an_instance_without_an_owner_is_not_the_nodes_fault() -> None:
    """An answer that leaves the owner out must not be held against the node."""
    with pytest.raises(UnexpectedDescription, match="name the owner of the instance"):
        Instance.read(description(), account="", region=REGION)
    assert isinstance(read_description(description(), account="", region=REGION), NotUnderstood)


@PATIENT
@given(st.text(max_size=80))
def test_every_dns_name_that_is_kept_is_one(name: str) -> None:
    kept = read(PrivateDnsName=name).private_dns_name
    assert kept in ("", name.lower())
    assert kept.isascii()
    assert not set(kept) & set(" */_:@")
