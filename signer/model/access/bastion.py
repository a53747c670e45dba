"""``Bastion``: one grant's way through a network. The grant controller makes it, the bastion controller ensures it."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any, Final, TypeAlias

from signer.model.access.errors import InvalidBastion
from signer.model.access.metadata import GrantReference, ObjectMetadata, read_grant_reference, read_metadata
from signer.model.access.networks import parse_cidr, read_ingress
from signer.model.access.reader import Reader, key_line, subdomain
from signer.model.access_policy import PROVIDER
from signer.model.cluster import ClusterKey
from signer.model.serving_networks import IPNetwork

FINALIZER: Final = "access.cluster.x-k8s.io/bastion"
MAXIMUM_AUTHORITIES: Final = 8
MAXIMUM_TARGETS: Final = 1024
MAXIMUM_ADDRESSES: Final = 16
MAXIMUM_HOST_KEYS: Final = 8
MAXIMUM_EGRESS: Final = 16
MAXIMUM_PORT: Final = 65535
READY: Final = "BastionReady"


class BastionReason(enum.StrEnum):
    """Reasons of the condition ``BastionReady``. The first three are GEP-0015's."""

    SUCCEEDED = "SuccessfullyReconciled"
    FAILED = "FailedReconciling"
    DELETING = "DeletionInProgress"
    TARGET_NOT_ALLOWED = "TargetNotAllowed"
    """The operator does not allow a target."""
    PLACE_CHANGED = "PlaceChanged"
    """What was made is where the operator's settings do not look any more."""
    PLACE_UNKNOWN = "PlaceUnknown"
    """The status does not say where what was made is."""


BROKEN: Final = frozenset(
    {
        BastionReason.FAILED,
        BastionReason.TARGET_NOT_ALLOWED,
        BastionReason.PLACE_CHANGED,
        BastionReason.PLACE_UNKNOWN,
    }
)
"""Those of a bastion that needs somebody."""
_TEXT: Final = re.compile(r"[ -~]*")
_ADDRESS: Final = re.compile(r"[0-9a-f.:]{2,39}")

Address: TypeAlias = IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class BastionTarget:
    """A machine that the bastion may reach, on one port."""

    addresses: tuple[Address, ...]
    port: int


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where people reach the bastion."""

    ip: str
    """Empty where there is a host name only."""
    hostname: str
    port: int


@dataclass(frozen=True, slots=True)
class NoEndpoint:
    """The bastion cannot be reached yet."""


@dataclass(frozen=True, slots=True)
class BastionCondition:
    """The condition ``BastionReady``."""

    status: str
    """``True``, ``False`` or ``Unknown``."""
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class BastionStatus:
    """What the bastion controller says."""

    observed_generation: int = 0
    ingress: Endpoint | NoEndpoint = NoEndpoint()
    host_keys: tuple[str, ...] = ()
    """Lines ``type base64``."""
    egress: tuple[IPNetwork, ...] = ()
    """Networks from which nodes see the bastion's connections; empty: not known."""
    ready: BastionCondition = BastionCondition("Unknown", "", "")


@dataclass(frozen=True, slots=True)
class Bastion:
    """One Bastion."""

    metadata: ObjectMetadata
    grant: GrantReference
    cluster: ClusterKey
    provider: str
    ingress: tuple[IPNetwork, ...]
    user_authorities: tuple[str, ...]
    """Lines ``type base64``: their certificates with ``principal`` may pass."""
    principal: str
    targets: tuple[BastionTarget, ...]
    not_after: datetime
    settings: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """The policy's, for the provider. A tenant writes them."""
    status: BastionStatus = BastionStatus()


def principal_of(grant_uid: str) -> str:
    """The only principal whose certificates pass a grant's bastion."""
    return f"bastion@{grant_uid}"


def parse_bastion(manifest: Mapping[str, Any]) -> Bastion:
    """Read a Bastion.

    Raises:
        InvalidBastion: a field is missing, unknown or invalid.
    """
    whole = Reader(InvalidBastion, "", manifest)
    metadata = read_metadata(whole)
    spec = whole.object("spec").knows(
        "grantRef",
        "clusterRef",
        "provider",
        "settings",
        "ingress",
        "userAuthorities",
        "principal",
        "targets",
        "notAfter",
    )
    grant = read_grant_reference(spec)
    if spec.fields.get("principal") != principal_of(grant.uid):
        raise spec.invalid("principal", "must be bastion@ and the grant's UID")
    return Bastion(
        metadata,
        grant,
        ClusterKey(metadata.namespace, spec.object("clusterRef").knows("name").subdomain("name")),
        spec.text("provider", 32, PROVIDER, "the name of a bastion provider"),
        read_ingress(spec),
        spec.each("userAuthorities", 1, MAXIMUM_AUTHORITIES, key_line),
        principal_of(grant.uid),
        tuple(map(_target, spec.objects("targets", 1, MAXIMUM_TARGETS))),
        spec.time("notAfter"),
        spec.optional("settings").fields,
        _status(whole.optional("status")),
    )


def parse_bastion_status(manifest: Mapping[str, Any]) -> BastionStatus:
    """Read the status alone.

    Raises:
        InvalidBastion: a field is invalid.
    """
    return _status(Reader(InvalidBastion, "", manifest).optional("status"))


def _target(target: Reader) -> BastionTarget:
    target.knows("addresses", "port")
    return BastionTarget(
        target.each("addresses", 1, MAXIMUM_ADDRESSES, parse_address), target.number("port", 1, MAXIMUM_PORT)
    )


def _status(status: Reader) -> BastionStatus:
    generation = status.fields.get("observedGeneration")
    ready = [one for one in status.objects("conditions", 0, 16) if one.fields.get("type") == READY]
    return BastionStatus(
        generation if type(generation) is int else 0,
        _endpoint(status.object("ingress")) if status.has("ingress") else NoEndpoint(),
        status.each("hostKeys", 0, MAXIMUM_HOST_KEYS, key_line),
        status.each("egress", 0, MAXIMUM_EGRESS, parse_cidr),
        _condition(ready[0]) if ready else BastionCondition("Unknown", "", ""),
    )


def _endpoint(ingress: Reader) -> Endpoint:
    hostname = ingress.read("hostname", subdomain) if ingress.fields.get("hostname") else ""
    ip = str(ingress.read("ip", parse_address)) if ingress.fields.get("ip") else ""
    if not hostname and not ip:
        raise ingress.invalid("ip", "or hostname must be there")
    return Endpoint(ip, hostname, ingress.number("port", 1, MAXIMUM_PORT))


def _condition(condition: Reader) -> BastionCondition:
    return BastionCondition(
        condition.text("status", 16, re.compile("True|False|Unknown"), "True, False or Unknown"),
        condition.optional_text("reason", 128, _TEXT, "a reason"),
        condition.optional_text("message", 4096, _TEXT, "printable ASCII of at most 4096 characters"),
    )


def parse_address(value: Any) -> Address:
    """An address as it is usually written, without a zone. Raises ValueError."""
    form = "must be an address as it is usually written, without a zone"
    if not isinstance(value, str) or _ADDRESS.fullmatch(value) is None:
        raise ValueError(form)
    try:
        address = ip_address(value)
    except ValueError:
        raise ValueError(form) from None
    if str(address) != value or (isinstance(address, IPv6Address) and address.ipv4_mapped is not None):
        raise ValueError(form)
    return address


__all__ = [
    "BROKEN",
    "FINALIZER",
    "MAXIMUM_AUTHORITIES",
    "MAXIMUM_TARGETS",
    "READY",
    "Address",
    "Bastion",
    "BastionCondition",
    "BastionReason",
    "BastionStatus",
    "BastionTarget",
    "Endpoint",
    "NoEndpoint",
    "parse_address",
    "parse_bastion",
    "parse_bastion_status",
    "principal_of",
]
