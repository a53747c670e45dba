"""Instances as DescribeInstances shows them, by boto3."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Final

ACCOUNT: Final = "123456789012"
REGION: Final = "eu-west-1"
INSTANCE: Final = "i-0123456789abcdef0"
LAUNCH: Final = datetime(2026, 1, 2, 2, 4, 5, tzinfo=UTC)


def attachment(device: int = 0, card: int = 0, at: datetime = LAUNCH) -> dict[str, Any]:
    """Of an interface."""
    return {"AttachTime": at, "DeviceIndex": device, "NetworkCardIndex": card, "Status": "attached"}


def interface(private: str, **changes: Any) -> dict[str, Any]:
    """An interface with one private address."""
    return {
        "Attachment": attachment(),
        "PrivateIpAddresses": [{"Primary": True, "PrivateIpAddress": private}],
        "Ipv6Addresses": [],
    } | changes


def description(**changes: Any) -> dict[str, Any]:
    """A running instance with everything that is wanted of it; what is changed to ``...`` is left out."""
    whole = {
        "InstanceId": INSTANCE,
        "State": {"Code": 16, "Name": "running"},
        "PrivateDnsName": "ip-10-0-1-17.eu-west-1.compute.internal",
        "PublicDnsName": "",
        "PrivateDnsNameOptions": {"HostnameType": "ip-name", "EnableResourceNameDnsARecord": False},
        "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1, "State": "applied"},
        "LaunchTime": LAUNCH,
        "NetworkInterfaces": [interface("10.0.1.17")],
        "RootDeviceType": "ebs",
        "RootDeviceName": "/dev/xvda",
        "BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"AttachTime": LAUNCH, "Status": "attached"}}],
        "Tags": [{"Key": "Name", "Value": "worker-1"}],
    } | changes
    return {name: value for name, value in whole.items() if value is not ...}
