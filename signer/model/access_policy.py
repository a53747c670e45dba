"""``spec.ssh.access`` of a policy: whether people may ask for access by AccessGrants, and within which bounds.

Tenants write policies, so the operator's configuration bounds all of it (:mod:`signer.configuration`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from signer.model.durations import parse_duration
from signer.model.linear_pattern import MAXIMUM_PATTERN, InvalidPattern, check_pattern, matches
from signer.model.serving_networks import IPNetwork

DEFAULT_MAXIMUM_LIFETIME: Final = timedelta(hours=24)
MAXIMUM_LIFETIME: Final = timedelta(hours=168)
MINIMUM_LIFETIME: Final = timedelta(minutes=1)
DEFAULT_TIME_TO_LIVE: Final = timedelta(minutes=60)
MINIMUM_TIME_TO_LIVE: Final = timedelta(minutes=1)
MAXIMUM_CERTIFICATE: Final = timedelta(hours=1)
"""And the default. What is revoked without reaching a node ends then."""
MINIMUM_CERTIFICATE: Final = timedelta(minutes=1)
MAXIMUM_APPROVALS: Final = 8
DEFAULT_PREFIX_IPV4: Final = 24
DEFAULT_PREFIX_IPV6: Final = 48
WIDEST_PREFIX_IPV4: Final = 8
WIDEST_PREFIX_IPV6: Final = 16
"""No policy allows wider networks."""
NO_BASTION: Final = "None"
DEFAULT_NODE_PORT: Final = 22
MAXIMUM_SETTINGS_BYTES: Final = 4096
PROVIDER: Final = re.compile(r"[a-z](?:[a-z0-9-]{0,30}[a-z0-9])?")
"""Name of a bastion provider: an entry point in ``node_access.bastions``."""


class InvalidAccessRules(ValueError):
    """``spec.ssh.access`` is invalid. The message continues that path."""


@dataclass(frozen=True, slots=True)
class MinimumPrefixLengths:
    """How narrow networks of ``spec.ingress`` must be."""

    ipv4: int = DEFAULT_PREFIX_IPV4
    ipv6: int = DEFAULT_PREFIX_IPV6

    def allows(self, network: IPNetwork) -> bool:
        """Whether a grant may name that network."""
        return network.prefixlen >= (self.ipv4 if network.version == 4 else self.ipv6)


@dataclass(frozen=True, slots=True)
class BastionRules:
    """The bastion of grants that name none."""

    provider: str = NO_BASTION
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """For the provider, which bounds them by the operator's."""


@dataclass(frozen=True, slots=True)
class AccessRules:
    """The policy allows grants.

    Raises:
        InvalidAccessRules: a pattern is invalid.
    """

    maximum_lifetime: timedelta
    time_to_live: timedelta
    """How long a grant lives without a heartbeat."""
    certificate_duration: timedelta
    approvals: int = 0
    """People besides the creator who must approve."""
    reason_pattern: str = ""
    """See :mod:`signer.model.linear_pattern`. Empty: every reason, also none."""
    ticket_pattern: str = ""
    minimum_prefixes: MinimumPrefixLengths = MinimumPrefixLengths()
    bastion: BastionRules = field(default_factory=BastionRules)
    node_port: int = DEFAULT_NODE_PORT

    def __post_init__(self) -> None:
        for name, pattern in (("reasonPattern", self.reason_pattern), ("ticketPattern", self.ticket_pattern)):
            try:
                check_pattern(pattern)
            except InvalidPattern as error:
                raise InvalidAccessRules(f".{name} {error}") from error

    def allows_reason(self, reason: str) -> bool:
        """Whether the reason is of the policy's form."""
        return not self.reason_pattern or matches(self.reason_pattern, reason)

    def allows_ticket(self, ticket: str) -> bool:
        """Whether the ticket is of the policy's form."""
        return not self.ticket_pattern or matches(self.ticket_pattern, ticket)


@dataclass(frozen=True, slots=True)
class NoAccess:
    """The policy allows no grants."""


NO_ACCESS: Final = NoAccess()


def parse_access_rules(value: Any) -> AccessRules | NoAccess:
    """Parse ``spec.ssh.access``. It does not rely on the API server's schema validation.

    Raises:
        InvalidAccessRules: a field is invalid.
    """
    if value is None:
        return NO_ACCESS
    stated = _object(value, "")
    certificate = _duration(stated, "certificateDuration", MAXIMUM_CERTIFICATE, MINIMUM_CERTIFICATE)
    if certificate > MAXIMUM_CERTIFICATE:
        raise InvalidAccessRules(".certificateDuration must be between 1m and 1h")
    prefixes = _object(stated.get("minimumPrefixLength"), ".minimumPrefixLength")
    return AccessRules(
        _duration(stated, "maxLifetime", DEFAULT_MAXIMUM_LIFETIME, MINIMUM_LIFETIME),
        _duration(stated, "timeToLive", DEFAULT_TIME_TO_LIVE, MINIMUM_TIME_TO_LIVE),
        certificate,
        _number(stated, "approvals", 0, 0, MAXIMUM_APPROVALS),
        _pattern(stated, "reasonPattern"),
        _pattern(stated, "ticketPattern"),
        MinimumPrefixLengths(
            _number(prefixes, "ipv4", DEFAULT_PREFIX_IPV4, WIDEST_PREFIX_IPV4, 32, ".minimumPrefixLength"),
            _number(prefixes, "ipv6", DEFAULT_PREFIX_IPV6, WIDEST_PREFIX_IPV6, 128, ".minimumPrefixLength"),
        ),
        _bastion(_object(stated.get("bastion"), ".bastion")),
        _number(stated, "nodePort", DEFAULT_NODE_PORT, 1, 65535),
    )


def _bastion(stated: Mapping[str, Any]) -> BastionRules:
    provider = stated.get("provider", NO_BASTION)
    if not isinstance(provider, str) or not (provider == NO_BASTION or PROVIDER.fullmatch(provider)):
        raise InvalidAccessRules(".bastion.provider must be None or the name of a bastion provider")
    settings = _object(stated.get("settings"), ".bastion.settings")
    if len(json.dumps(settings)) > MAXIMUM_SETTINGS_BYTES:
        raise InvalidAccessRules(f".bastion.settings must have at most {MAXIMUM_SETTINGS_BYTES} bytes")
    return BastionRules(provider, settings)


def _pattern(stated: Mapping[str, Any], name: str) -> str:
    value = stated.get(name)
    if value is None:
        return ""
    if not isinstance(value, str) or len(value) > MAXIMUM_PATTERN:
        raise InvalidAccessRules(f".{name} must be a pattern of at most {MAXIMUM_PATTERN} characters")
    return value


def _duration(stated: Mapping[str, Any], name: str, default: timedelta, minimum: timedelta) -> timedelta:
    value = stated.get(name)
    if value is None:
        return default
    try:
        duration = parse_duration(value if isinstance(value, str) else "")
    except ValueError as error:
        raise InvalidAccessRules(f".{name}: {error}") from error
    if not minimum <= duration <= MAXIMUM_LIFETIME:
        raise InvalidAccessRules(f".{name} must be between 1m and 168h")
    return duration


def _number(stated: Mapping[str, Any], name: str, default: int, minimum: int, maximum: int, parent: str = "") -> int:
    value = stated.get(name)
    if value is None:
        return default
    if type(value) is not int or not minimum <= value <= maximum:
        raise InvalidAccessRules(f"{parent}.{name} must be a whole number from {minimum} to {maximum}")
    return value


def _object(value: Any, path: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise InvalidAccessRules(f"{path} must be an object")
    return value
