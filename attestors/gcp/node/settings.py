"""Settings of the agent plugin: the address of the metadata server."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Final

from attestors.contract import InvalidSettings

ENDPOINT_SETTING: Final = "metadata-endpoint"
SETTINGS: Final = (ENDPOINT_SETTING,)

METADATA_HOST: Final = "metadata.google.internal"
METADATA_ADDRESS: Final = "169.254.169.254"
"""The address avoids a resolver, which may not run yet when the kubelet starts."""
_METADATA_ADDRESS_6: Final = IPv6Address("fd20:ce::254")
"""For instances with IPv6 only."""
_HTTP_PORT: Final = 80

_ENDPOINT: Final = re.compile(
    r"http://(?:\[(?P<six>[0-9a-fA-F:]{2,39})\]|(?P<host>[a-z0-9.-]{1,253}))(?::(?P<port>[0-9]{1,5}))?/?"
)


@dataclass(frozen=True, slots=True)
class MetadataEndpoint:
    """The address of the metadata server."""

    host: str
    """An IP address or :data:`METADATA_HOST`."""
    port: int = _HTTP_PORT


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """The configured settings."""

    endpoint: MetadataEndpoint = MetadataEndpoint(METADATA_ADDRESS)

    @classmethod
    def parse(cls, settings: Mapping[str, str]) -> NodeSettings:
        """Parse the settings.

        Raises:
            InvalidSettings: a setting is wrong or unknown.
        """
        unknown = set(settings) - set(SETTINGS)
        if unknown:
            raise InvalidSettings(f"the GCP attestor has no setting {min(unknown)!r}, only {', '.join(SETTINGS)}")
        return cls(_endpoint(settings[ENDPOINT_SETTING])) if ENDPOINT_SETTING in settings else cls()


def _endpoint(text: str) -> MetadataEndpoint:
    """Only addresses of this machine or its link: the server there chooses the node's identity."""
    found = _ENDPOINT.fullmatch(text)
    host = (found["six"] or found["host"]) if found else ""
    port = int(found["port"] or _HTTP_PORT) if found else 0
    if not 0 < port < 65536 or not _is_local(host):
        raise InvalidSettings(
            f"{ENDPOINT_SETTING} is http://, then a loopback or link-local IP address or {METADATA_HOST}, optionally "
            f"with a port; the default is http://{METADATA_ADDRESS}"
        )
    return MetadataEndpoint(host, port)


def _is_local(host: str) -> bool:
    if host == METADATA_HOST:
        return True
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return address.is_loopback or address.is_link_local or address == _METADATA_ADDRESS_6
