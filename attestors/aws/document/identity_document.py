"""The instance identity document itself: JSON that EC2 writes, and one fixed meaning for it.

Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-identity-documents.html. Members that are not
known here are ignored, for AWS has added some over the years; what is used must be there once and of its form.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final, NoReturn

from attestors.aws.document.errors import IdentityDocumentMalformed
from attestors.aws.partitions import Region, UnknownRegion, parse_region
from attestors.aws.wire import MAXIMUM_IDENTITY_DOCUMENT_BYTES

INSTANCE_ID: Final = re.compile(r"i-(?:[0-9a-f]{8}|[0-9a-f]{17})")
"""Older instances have eight digits."""
_ACCOUNT_ID: Final = re.compile(r"[0-9]{12}")
_ZONE_SUFFIX: Final = re.compile(r"[a-z]|(?:-[a-z0-9]{1,16}){1,6}")
"""Behind the Region: one letter, or for Local and Wavelength Zones such as ``us-west-2-lax-1a`` a place."""
_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_MAXIMUM_MEMBERS: Final = 64


@dataclass(frozen=True, slots=True)
class InstanceIdentityDocument:
    """Who an instance is, as EC2 says; true if the signature was verified, and for as long as the instance exists."""

    account_id: str
    instance_id: str
    region: Region
    availability_zone: str
    image_id: str
    instance_type: str
    pending_time: datetime
    """When the instance was started last: it changes with stop and start, and not with a reboot."""
    private_ip: IPv4Address | IPv6Address | None
    """Primary address of its first interface; None where EC2 does not say one."""
    version: str
    """Of the document's format, a date."""

    @property
    def provider_id(self) -> str:
        """As the AWS cloud provider and Cluster API write it."""
        return f"aws:///{self.availability_zone}/{self.instance_id}"


def parse_identity_document(content: bytes) -> InstanceIdentityDocument:
    """Read the document; this says nothing yet about who wrote it.

    Raises:
        IdentityDocumentMalformed: not UTF-8 JSON of one object, a member repeated, missing or not of its form.
    """
    if len(content) > MAXIMUM_IDENTITY_DOCUMENT_BYTES:
        raise _malformed(f"is larger than {MAXIMUM_IDENTITY_DOCUMENT_BYTES} bytes")
    # Fewer than Python's parser nests: how many it takes depends on how deep its caller is nested.
    if content.count(b"{") + content.count(b"[") > _MAXIMUM_MEMBERS:
        raise _malformed(f"has more than {_MAXIMUM_MEMBERS} objects and lists")
    try:
        members = json.loads(content.decode("utf-8"), object_pairs_hook=_object, parse_constant=_no_constant)
    except ValueError as error:  # also bad UTF-8, and integers too long to convert
        raise _malformed("is not UTF-8 JSON") from error
    if not isinstance(members, dict):
        raise _malformed("is not a JSON object")
    region = _region(members)
    zone = _text(members, "availabilityZone", re.compile(r"[a-z0-9-]{1,64}"))
    if not zone.startswith(region.name) or not _ZONE_SUFFIX.fullmatch(zone[len(region.name) :]):
        raise _malformed("names an availability zone that is not in its Region")
    return InstanceIdentityDocument(
        account_id=_text(members, "accountId", _ACCOUNT_ID),
        instance_id=_text(members, "instanceId", INSTANCE_ID),
        region=region,
        availability_zone=zone,
        image_id=_text(members, "imageId", _WORD),
        instance_type=_text(members, "instanceType", _WORD),
        pending_time=_pending_time(members),
        private_ip=_private_ip(members),
        version=_text(members, "version", _WORD),
    )


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    # Two readers may take different ones of two equal names.
    if len(members) != len(pairs):
        raise _malformed("repeats a member")
    if len(members) > _MAXIMUM_MEMBERS:
        raise _malformed(f"has more than {_MAXIMUM_MEMBERS} members")
    return members


def _no_constant(text: str) -> NoReturn:
    raise _malformed("is not UTF-8 JSON")


def _text(members: dict[str, Any], name: str, form: re.Pattern[str]) -> str:
    value = members.get(name)
    if not isinstance(value, str) or not form.fullmatch(value):
        raise _malformed(f"has no {name}, or one that is not of its form")
    return value


def _region(members: dict[str, Any]) -> Region:
    name = members.get("region")
    try:
        return parse_region(name if isinstance(name, str) else "")
    except UnknownRegion as error:
        raise _malformed("has no region, or one that is not of its form") from error


def _pending_time(members: dict[str, Any]) -> datetime:
    text = _text(members, "pendingTime", _TIME)
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise _malformed("has a pendingTime that is not in the calendar") from None


def _private_ip(members: dict[str, Any]) -> IPv4Address | IPv6Address | None:
    value = members.get("privateIp")
    if value is None:
        return None
    try:
        return ip_address(value if isinstance(value, str) else "")
    except ValueError:
        raise _malformed("has a privateIp that is no address") from None


def _malformed(fault: str) -> IdentityDocumentMalformed:
    return IdentityDocumentMalformed(f"the instance identity document {fault}")
