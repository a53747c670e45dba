"""The instance identity document: JSON that EC2 writes.

Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/instance-identity-documents.html. Unknown members are
ignored, because AWS has added some over the years; used members must be present once and well formed.
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
"""Older instances have eight hexadecimal digits."""
_ACCOUNT_ID: Final = re.compile(r"[0-9]{12}")
_ZONE_SUFFIX: Final = re.compile(r"[a-z]|(?:-[a-z0-9]{1,16}){1,6}")
"""The part after the Region: one letter, or a location for Local and Wavelength Zones such as ``us-west-2-lax-1a``."""
_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_MAXIMUM_MEMBERS: Final = 64


@dataclass(frozen=True, slots=True)
class InstanceIdentityDocument:
    """An instance, as EC2 describes it; true if the signature was verified, for as long as the instance exists."""

    account_id: str
    instance_id: str
    region: Region
    availability_zone: str
    image_id: str
    instance_type: str
    pending_time: datetime
    """Time of the last start of the instance: it changes with stop and start, not with a reboot."""
    private_ip: IPv4Address | IPv6Address | None
    """Primary address of the first interface; None if the document has none."""
    version: str
    """Version of the document's format, a date."""

    @property
    def provider_id(self) -> str:
        """In the form of the AWS cloud provider and Cluster API."""
        return f"aws:///{self.availability_zone}/{self.instance_id}"


def parse_identity_document(content: bytes) -> InstanceIdentityDocument:
    """Parse the document; this does not verify its origin.

    Raises:
        IdentityDocumentMalformed: not UTF-8 JSON of one object, or a member repeated, missing or malformed.
    """
    if len(content) > MAXIMUM_IDENTITY_DOCUMENT_BYTES:
        raise _malformed(f"is larger than {MAXIMUM_IDENTITY_DOCUMENT_BYTES} bytes")
    # Below the nesting limit of Python's parser, which depends on the caller's own depth.
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
    # Two readers may pick different ones of two equal names.
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
        raise _malformed(f"has a missing or malformed {name}")
    return value


def _region(members: dict[str, Any]) -> Region:
    name = members.get("region")
    try:
        return parse_region(name if isinstance(name, str) else "")
    except UnknownRegion as error:
        raise _malformed("has a missing or malformed region") from error


def _pending_time(members: dict[str, Any]) -> datetime:
    text = _text(members, "pendingTime", _TIME)
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        raise _malformed("has a pendingTime that is not a valid date") from None


def _private_ip(members: dict[str, Any]) -> IPv4Address | IPv6Address | None:
    value = members.get("privateIp")
    if value is None:
        return None
    try:
        return ip_address(value if isinstance(value, str) else "")
    except ValueError:
        raise _malformed("has a privateIp that is not an address") from None


def _malformed(fault: str) -> IdentityDocumentMalformed:
    return IdentityDocumentMalformed(f"the instance identity document {fault}")
