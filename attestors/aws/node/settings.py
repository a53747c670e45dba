"""Settings of the agent plugin: metadata service, STS Region and kind of proof."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Final

from attestors.aws.partitions import Region, UnknownRegion, parse_region
from attestors.contract import InvalidSettings

METADATA_ENDPOINT_SETTING: Final = "metadata-endpoint"
REGION_SETTING: Final = "region"
PROOF_SETTING: Final = "proof"
SETTINGS: Final = (METADATA_ENDPOINT_SETTING, REGION_SETTING, PROOF_SETTING)

_URL: Final = re.compile(
    r"http://(?:(?P<v4>[0-9.]{7,15})|\[(?P<v6>[0-9a-fA-F:.]{2,45})\])(?::(?P<port>[1-9][0-9]{0,4}))?/?"
)
_HTTP_PORT: Final = 80
_MAXIMUM_PORT: Final = 65535


class Proof(enum.Enum):
    """How the instance proves that it holds its role's credentials."""

    PRESIGNED = "presigned"
    """A signed STS GetCallerIdentity, which the controller sends; it needs no permission and no outbound connection."""
    WEB_IDENTITY = "web-identity"
    """A token of STS GetWebIdentityToken: it needs outbound identity federation in the account, and a permission."""


@dataclass(frozen=True, slots=True)
class MetadataEndpoint:
    """The address of the instance metadata service; never a name, so that DNS cannot redirect it."""

    host: str
    port: int


IPV4_ENDPOINT: Final = MetadataEndpoint("169.254.169.254", _HTTP_PORT)
IPV6_ENDPOINT: Final = MetadataEndpoint("fd00:ec2::254", _HTTP_PORT)
_NAMED: Final[Mapping[str, MetadataEndpoint]] = {"ipv4": IPV4_ENDPOINT, "ipv6": IPV6_ENDPOINT}


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """The configured settings."""

    metadata_endpoint: MetadataEndpoint = IPV4_ENDPOINT
    region: Region | None = None
    """The Region of the STS; ``None``: the Region in which the instance runs."""
    proof: Proof = Proof.PRESIGNED

    @classmethod
    def parse(cls, settings: Mapping[str, str]) -> NodeSettings:
        """Parse the settings.

        Raises:
            InvalidSettings: a setting is wrong or unknown.
        """
        unknown = set(settings) - set(SETTINGS)
        if unknown:
            raise InvalidSettings(f"the AWS attestor has no setting {min(unknown)!r}, only {', '.join(SETTINGS)}")
        return cls(
            _endpoint(settings.get(METADATA_ENDPOINT_SETTING, "ipv4")),
            _region(settings[REGION_SETTING]) if REGION_SETTING in settings else None,
            _proof(settings.get(PROOF_SETTING, Proof.PRESIGNED.value)),
        )


def _endpoint(text: str) -> MetadataEndpoint:
    if text in _NAMED:
        return _NAMED[text]
    found = _URL.fullmatch(text)
    if found is not None:
        port = int(found["port"] or _HTTP_PORT)
        try:
            address = ip_address(found["v4"] or found["v6"])
        except ValueError:
            pass
        else:
            if _is_local(address) and port <= _MAXIMUM_PORT:
                return MetadataEndpoint(str(address), port)
    raise InvalidSettings(
        f"{METADATA_ENDPOINT_SETTING} is ipv4, ipv6, or http:// with a loopback or link-local address, "
        "such as http://169.254.169.254"
    )


def _is_local(address: IPv4Address | IPv6Address) -> bool:
    """Whether only this machine or its hypervisor can answer at the address: credentials come from it."""
    return address.is_loopback or address.is_link_local or str(address) == IPV6_ENDPOINT.host


def _region(text: str) -> Region:
    try:
        return parse_region(text)
    except UnknownRegion as error:
        raise InvalidSettings(f"{REGION_SETTING}: {error}") from error


def _proof(text: str) -> Proof:
    try:
        return Proof(text)
    except ValueError:
        raise InvalidSettings(f"{PROOF_SETTING} is {' or '.join(proof.value for proof in Proof)}") from None
