"""An instance from DescribeInstances, parsed once into the values that the rules need.

Source: EC2 API reference, data type ``Instance``; the names are boto3's.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import AddressValueError, IPv4Address, IPv6Address, ip_address
from typing import Any, Final, TypeAlias

from attestors.contract import IPAddress

_DNS_NAME: Final = re.compile(
    r"(?=.{1,253}\Z)[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?)*"
)
_MAXIMUM_INTERFACES: Final = 64
_MAXIMUM_ADDRESSES: Final = 2048
"""15 interfaces may have 50 private addresses each, of either family, each with a public one."""
_MAXIMUM_TAGS: Final = 64
"""EC2 allows 50."""


class UnexpectedDescription(ValueError):
    """EC2's description of the instance has an unexpected form; the message names the field."""


class InstanceState(enum.Enum):
    """``State.Name``."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    SHUTTING_DOWN = "shutting-down"
    TERMINATED = "terminated"


@dataclass(frozen=True, slots=True)
class MetadataOptions:
    """Access to the instance's metadata service."""

    session_token_required: bool
    """IMDSv2 only (``HttpTokens``)."""
    hop_limit: int
    """Hop limit of answers to a session token request: 1 keeps them from containers with a network of their own."""


@dataclass(frozen=True, slots=True)
class NoRootVolume:
    """The instance's root device is not an EBS volume: it cannot be detached, and has no attach time."""


@dataclass(frozen=True, slots=True)
class NotAttached:
    """EC2 reports no attachment: before an instance runs, and after it is terminated."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One EC2 instance at one moment."""

    instance_id: str
    account: str
    """The owner, as in the reservation."""
    state: InstanceState
    private_dns_name: str
    """In lower case; empty while EC2 has assigned none."""
    other_dns_names: tuple[str, ...]
    """Further names in EC2's own DNS: by instance ID, and public ones."""
    addresses: tuple[IPAddress, ...]
    """Of all interfaces: private, public and IPv6."""
    metadata_options: MetadataOptions
    interface_attached_at: datetime | NotAttached
    """Attach time of the primary interface."""
    root_attached_at: datetime | NoRootVolume | NotAttached
    tags: Mapping[str, str] = field(repr=False)

    @classmethod
    def read(cls, description: Mapping[str, Any], *, account: str, region: str) -> Instance:
        """Parse one element of ``Reservations[].Instances``, with its reservation's ``OwnerId``.

        Raises:
            UnexpectedDescription: a field is missing or malformed.
        """
        try:
            return _read(description, account, region)
        except KeyError as error:
            raise UnexpectedDescription(f"EC2 describes the instance without {error.args[0]}") from error
        except (TypeError, AttributeError, AddressValueError) as error:
            raise UnexpectedDescription("EC2 describes the instance with a field of an unexpected type") from error
        except UnexpectedDescription:
            raise
        except ValueError as error:
            raise UnexpectedDescription("EC2 describes the instance with an unknown value") from error


@dataclass(frozen=True, slots=True)
class NotUnderstood:
    """EC2 knows the instance, but its description has an unexpected form."""

    instance_id: str
    cause: str


Described: TypeAlias = Instance | NotUnderstood


def read_description(description: Mapping[str, Any], *, account: str, region: str) -> Described:
    """Parse one of the instances of an answer. An odd description does not affect the other instances.

    Raises:
        UnexpectedDescription: the description does not name its instance.
    """
    try:
        return Instance.read(description, account=account, region=region)
    except UnexpectedDescription as error:
        instance_id = description.get("InstanceId")
        if not isinstance(instance_id, str):
            raise
        return NotUnderstood(instance_id, str(error))


def _read(description: Mapping[str, Any], account: str, region: str) -> Instance:
    instance_id = description["InstanceId"]
    if not account:
        raise UnexpectedDescription("EC2 does not name the owner of the instance")
    interfaces = description.get("NetworkInterfaces", [])
    tags = description.get("Tags", [])
    if len(interfaces) > _MAXIMUM_INTERFACES or len(tags) > _MAXIMUM_TAGS:
        raise UnexpectedDescription("EC2 describes the instance with more interfaces or tags than it can have")
    options = description["MetadataOptions"]
    addresses = tuple(dict.fromkeys(_addresses(interfaces)))
    if len(addresses) > _MAXIMUM_ADDRESSES:
        raise UnexpectedDescription(f"the instance has more than {_MAXIMUM_ADDRESSES} addresses")
    private_dns_name = _dns_name(description.get("PrivateDnsName", ""))
    others = (_resource_name(description, instance_id, region), *_public_names(description, interfaces))
    return Instance(
        instance_id=instance_id,
        account=account,
        state=InstanceState(description["State"]["Name"]),
        private_dns_name=private_dns_name,
        other_dns_names=tuple(dict.fromkeys(name for name in others if name and name != private_dns_name)),
        addresses=addresses,
        metadata_options=MetadataOptions(options["HttpTokens"] == "required", int(options["HttpPutResponseHopLimit"])),
        interface_attached_at=_interface_attached_at(interfaces),
        root_attached_at=_root_attached_at(description),
        tags={tag["Key"]: tag["Value"] for tag in tags},
    )


def _interface_attached_at(interfaces: list[Mapping[str, Any]]) -> datetime | NotAttached:
    """Attach time of the primary interface, by its device index: EC2 lists interfaces unordered (SPIRE issue 5300)."""
    primary = [interface["Attachment"] for interface in interfaces if interface["Attachment"]["DeviceIndex"] == 0]
    if not primary:
        return NotAttached()
    # Each network card has an interface 0; card 0 exists from the launch on.
    return _moment(min(primary, key=lambda attachment: int(attachment.get("NetworkCardIndex", 0)))["AttachTime"])


def _root_attached_at(description: Mapping[str, Any]) -> datetime | NoRootVolume | NotAttached:
    if description.get("RootDeviceType") == "instance-store":
        return NoRootVolume()
    root = description.get("RootDeviceName")
    for mapping in description.get("BlockDeviceMappings", []):
        if mapping["DeviceName"] == root:
            return _moment(mapping["Ebs"]["AttachTime"])
    return NotAttached()


def _moment(value: Any) -> datetime:
    if not isinstance(value, datetime) or value.tzinfo is None:
        raise UnexpectedDescription("EC2 describes the instance with an invalid time")
    return value


def _addresses(interfaces: list[Mapping[str, Any]]) -> Iterator[IPAddress]:
    for interface in interfaces:
        for private in interface.get("PrivateIpAddresses", []):
            yield IPv4Address(private["PrivateIpAddress"])
            public = private.get("Association", {}).get("PublicIp")
            if public:
                yield IPv4Address(public)
        for address in interface.get("Ipv6Addresses", []):
            yield IPv6Address(address["Ipv6Address"])


def _resource_name(description: Mapping[str, Any], instance_id: str, region: str) -> str:
    """The name by instance ID, if the subnet's settings make EC2's DNS resolve it (resource-based naming)."""
    options = description.get("PrivateDnsNameOptions", {})
    answers = any(options.get(record) for record in ("EnableResourceNameDnsARecord", "EnableResourceNameDnsAAAARecord"))
    if not answers and options.get("HostnameType") != "resource-name":
        return ""
    domain = "ec2.internal" if region == "us-east-1" else f"{region}.compute.internal"
    return _dns_name(f"{instance_id}.{domain}")


def _public_names(description: Mapping[str, Any], interfaces: list[Mapping[str, Any]]) -> Iterator[str]:
    yield _dns_name(description.get("PublicDnsName", ""))
    for interface in interfaces:
        yield _dns_name(interface.get("Association", {}).get("PublicDnsName", ""))


def _dns_name(name: str) -> str:
    """In lower case, as kubelets write it; empty if it is not a name: a VPC's DHCP options may hold several domains."""
    lowered = name.lower()
    return lowered if _DNS_NAME.fullmatch(lowered) and not _is_address(lowered) else ""


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
