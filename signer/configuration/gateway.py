"""Field ``access.gateway``: where people reach the gateway to containers, and how their ssh knows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.key_line import parse_key_line
from attestors.wire.ssh.keys import HostKey, host_key
from attestors.wire.ssh.principals import HostAddress, HostName, parse_host_principal
from signer.configuration.document import InvalidConfiguration, object_of, unknown_fields

MAXIMUM_HOST_KEYS: Final = 4
_FIELDS: Final = frozenset({"host", "port", "hostKeys"})
_PORTS: Final = range(1, 65536)


@dataclass(frozen=True, slots=True)
class GatewayAddress:
    """Where people reach the gateway."""

    host: HostAddress | HostName
    port: int
    host_keys: tuple[HostKey, ...]
    """Several while one replaces another."""


@dataclass(frozen=True, slots=True)
class GatewayNotNamed:
    """Grants do not say where the gateway is."""


NamedGateway: TypeAlias = GatewayAddress | GatewayNotNamed


def read_gateway(path: str, entry: Any) -> NamedGateway:
    """The gateway's address. An empty object names none.

    Raises:
        InvalidConfiguration: a field is missing or invalid.
    """
    stated = object_of(path, entry)
    if not stated:
        return GatewayNotNamed()
    for unknown in unknown_fields(stated, _FIELDS):
        raise InvalidConfiguration(f"--config: {path} has the fields {', '.join(sorted(_FIELDS))}, and not {unknown}")
    return GatewayAddress(
        _host(f"{path}.host", stated.get("host")),
        _port(f"{path}.port", stated.get("port")),
        _host_keys(f"{path}.hostKeys", stated.get("hostKeys")),
    )


def _host(path: str, value: Any) -> HostAddress | HostName:
    try:
        return parse_host_principal(value if isinstance(value, str) else "")
    except SSHRefused:
        raise InvalidConfiguration(f"--config: {path} must be a DNS name in lower case, or an address") from None


def _port(path: str, value: Any) -> int:
    if type(value) is not int or value not in _PORTS:
        raise InvalidConfiguration(f"--config: {path} must be a port from 1 to 65535")
    return value


def _host_keys(path: str, value: Any) -> tuple[HostKey, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= MAXIMUM_HOST_KEYS:
        raise InvalidConfiguration(f"--config: {path} must be a list of 1 to {MAXIMUM_HOST_KEYS} public keys")
    try:
        found = tuple(host_key(parse_key_line(one if isinstance(one, str) else "")) for one in value)
    except SSHRefused as refused:
        raise InvalidConfiguration(f"--config: {path}: {refused.message}") from None
    if len(set(found)) != len(found):
        raise InvalidConfiguration(f"--config: {path} names a key twice")
    return found


__all__ = ["MAXIMUM_HOST_KEYS", "GatewayAddress", "GatewayNotNamed", "NamedGateway", "read_gateway"]
