"""The contract of a bastion provider: its types, and the protocol that it implements.

A provider makes the resources of bastions (a machine, its firewall, its address) and removes them. The bastion
controller calls it, keeps no state for it, and repeats every call until it has an answer that is final. Four rules
follow, and :mod:`node_access.bastions.suite` tests them with a fault after each call to the provider's cloud:

1. **The UID is the key.** Each resource carries the Bastion's UID and the owner in the cloud itself (tags, labels, a
   folder's name). A provider finds its resources again by these, never by a name, and never changes a resource without
   them.
2. **Any call may be the last.** The process may end between two calls, and an answer may be lost. The next call of
   :meth:`BastionResources.ensure` or :meth:`BastionResources.delete` continues, and makes nothing twice.
3. **Deleting needs only what is deleted.** A resource, network or object that is gone already is success; a missing
   permission is :class:`Pending` with its reason.
4. **No call without a deadline.** Each method returns soon after its deadline; what is unfinished is :class:`Pending`.

Methods block, and the controller calls them in threads: concurrently, but never twice at once for one Bastion.
The terms are those of Gardener's GEP-0015.
"""

from __future__ import annotations

import ipaddress
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final, Protocol, TypeAlias, TypeVar, runtime_checkable

from attestors.wire.ssh.encoding import MAXIMUM_UINT64
from attestors.wire.ssh.keys import Ed25519Key, PublicKey
from attestors.wire.ssh.signatures import public_key_of
from node_access.bastions.host_key import BastionHostKey

IPAddress: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

MAXIMUM_INGRESS: Final = 16
MAXIMUM_AUTHORITIES: Final = 8
MAXIMUM_TARGETS: Final = 1024
MAXIMUM_TARGET_ADDRESSES: Final = 16
MAXIMUM_DESTINATIONS: Final = 4096
"""sshd reads no more ``permitopen`` options (OpenSSH's ``SSH_AUTHOPT_PERMIT_MAX``)."""
MAXIMUM_MESSAGE_CHARACTERS: Final = 512
LOGIN: Final = "bastion"
"""The account of every bastion's sshd."""
SELF_DESTRUCTION_GRACE: Final = timedelta(minutes=15)
"""A bastion ends by itself this long after ``not_after``, although nothing deletes it."""

_UID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_NAME: Final = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)
_OWNER: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_PRINCIPAL: Final = re.compile(rf"{LOGIN}@[0-9a-f]{{8}}(?:-[0-9a-f]{{4}}){{3}}-[0-9a-f]{{12}}", re.ASCII)
_PORTS: Final = range(1, 65536)
_SERVICES_OF_CLOUDS: Final = frozenset(
    map(ipaddress.ip_address, ("fd00:ec2::254", "fd20:ce::254", "168.63.129.16", "100.100.100.200", "192.0.0.192"))
)
"""Metadata services of AWS and Google Cloud (IPv6), Azure, Alibaba Cloud and Oracle Cloud, at addresses that are not
link-local.
"""
_TRANSLATED: Final = tuple(
    map(ipaddress.IPv6Network, ("::/96", "64:ff9b::/96", "64:ff9b:1::/48", "2001::/32", "2002::/16"))
)
"""IPv6 addresses behind which a translator or a tunnel has an IPv4 address (RFC 4291, 6052, 8215, 4380, 3056)."""
_HOST_NAME: Final = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?", re.ASCII)


class InvalidBastion(ValueError):
    """A value cannot describe a bastion; the message names the field."""


class InvalidSettings(ValueError):
    """Settings of a provider are wrong; the message names the setting and never quotes a secret."""


class ProviderUnavailable(Exception):
    """A provider cannot run here; the message names what is missing."""


class OutOfTime(Exception):
    """The deadline of a call has passed. The controller takes it for :class:`Pending`."""


@dataclass(frozen=True, slots=True)
class Deadline:
    """When a call must return. Monotonic, so that a changed clock neither shortens nor lengthens it."""

    at: float
    """Seconds of ``clock``."""
    clock: Callable[[], float] = field(default=time.monotonic, repr=False, compare=False)

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """A deadline that many seconds from now."""
        return cls(time.monotonic() + seconds)

    def seconds(self) -> float:
        """The seconds that are left, for the timeout of a call.

        Raises:
            OutOfTime: none are left.
        """
        left = self.at - self.clock()
        if left <= 0:
            raise OutOfTime
        return left


@dataclass(frozen=True, slots=True)
class Target:
    """A node's sshd, which the bastion may reach. Addresses are those that the bastion connects to."""

    addresses: tuple[IPAddress, ...]
    port: int = 22

    def __post_init__(self) -> None:
        _require(0 < len(self.addresses) <= MAXIMUM_TARGET_ADDRESSES, "targets: 1 to 16 addresses")
        _require(not any(map(_is_mapped, self.addresses)), "targets: IPv4 addresses are written as such")
        # A bastion that reaches itself, or the metadata service of its cloud, could be asked for the key of its cloud.
        _require(
            not any(map(_is_no_node, self.addresses)),
            "targets: addresses of nodes: no loopback, link-local, unspecified or multicast address, none "
            "that stands for an IPv4 address, and no metadata service of a cloud",
        )
        _require(self.port in _PORTS, "targets: a port from 1 to 65535")


@dataclass(frozen=True, slots=True)
class BastionReference:
    """Which Bastion, for resources that carry its UID. ``uid`` alone is the key; the names are for people."""

    uid: str
    namespace: str
    name: str
    cluster: str
    """Name of the Cluster, which is in the same namespace."""

    def __post_init__(self) -> None:
        _require(_UID.fullmatch(self.uid) is not None, "uid: a UUID in lower-case letters")
        for what, value in (("namespace", self.namespace), ("name", self.name), ("cluster", self.cluster)):
            _require(_NAME.fullmatch(value) is not None, f"{what}: a name of Kubernetes")


@dataclass(frozen=True, slots=True)
class Bastion:
    """A bastion as it is to be. Between two calls only ingress, user authorities, ``not_after`` and targets may differ.

    Raises:
        InvalidBastion: a value is out of range.
    """

    reference: BastionReference
    ingress: tuple[Network, ...]
    """The only networks from which a connection to the bastion's port may come."""
    user_authorities: tuple[PublicKey, ...]
    """sshd of the bastion accepts certificates of these authorities, with ``principal``, and nothing else."""
    principal: str
    """``bastion@<UID of the grant>``."""
    targets: tuple[Target, ...]
    """The only addresses and ports that the bastion may reach."""
    not_after: datetime
    """The end. The controller deletes the bastion then; it ends by itself :data:`SELF_DESTRUCTION_GRACE` later."""
    host_key: BastionHostKey = field(repr=False)
    """The same at each call for one UID, so that clients see no changed host key."""

    def __post_init__(self) -> None:
        _require(0 < len(self.ingress) <= MAXIMUM_INGRESS, f"ingress: 1 to {MAXIMUM_INGRESS} networks")
        _require(not any(one.prefixlen == 0 for one in self.ingress), "ingress: a network, and not the whole Internet")
        _require(not any(_is_mapped(one.network_address) for one in self.ingress), "ingress: IPv4 is written as such")
        _require(len(set(self.ingress)) == len(self.ingress), "ingress: no network twice")
        _require(
            0 < len(self.user_authorities) <= MAXIMUM_AUTHORITIES, f"user authorities: 1 to {MAXIMUM_AUTHORITIES} keys"
        )
        _require(_PRINCIPAL.fullmatch(self.principal) is not None, f"principal: {LOGIN}@ and a UUID")
        _require(0 < len(self.targets) <= MAXIMUM_TARGETS, f"targets: 1 to {MAXIMUM_TARGETS}")
        _require(
            len(self.destinations) <= MAXIMUM_DESTINATIONS, f"targets: at most {MAXIMUM_DESTINATIONS} addresses in all"
        )
        _require(self.not_after.tzinfo is not None, "not after: a time with its time zone")
        _require(0 < self.not_after.timestamp() < MAXIMUM_UINT64, "not after: a time after 1970")

    @property
    def destinations(self) -> tuple[tuple[IPAddress, int], ...]:
        """Each address with its port, once, in a stable order."""
        found = {(address, target.port) for target in self.targets for address in target.addresses}
        return tuple(sorted(found, key=lambda one: (one[0].version, int(one[0]), one[1])))

    @property
    def ends_by_itself_at(self) -> datetime:
        """When the bastion ends although nothing deletes it."""
        return self.not_after + SELF_DESTRUCTION_GRACE


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where clients reach the bastion: an address, a host name, or both."""

    port: int
    ip: IPAddress | None = None
    hostname: str = ""

    def __post_init__(self) -> None:
        _require(self.port in _PORTS, "endpoint: a port from 1 to 65535")
        _require(self.ip is not None or bool(self.hostname), "endpoint: an address or a host name")
        _require(not self.hostname or _HOST_NAME.fullmatch(self.hostname) is not None, "endpoint: a DNS name")


@dataclass(frozen=True, slots=True)
class Ready:
    """The bastion runs, and its firewall is exactly as asked for."""

    endpoint: Endpoint
    host_keys: tuple[PublicKey, ...]
    egress: tuple[Network, ...]
    """The networks from which nodes see connections of the bastion; empty if the provider cannot know."""


@dataclass(frozen=True, slots=True)
class Pending:
    """Not yet. The controller asks again after ``after``, or earlier if the Bastion changes.

    Attributes:
        reason: one line for people, without credentials. At most 512 characters.
        after: when to ask again.
    """

    reason: str
    after: timedelta = timedelta(seconds=5)

    def __post_init__(self) -> None:
        _require(timedelta() < self.after <= timedelta(hours=1), "pending: asked again within an hour")


@dataclass(frozen=True, slots=True)
class Broken:
    """The bastion cannot become ready as things are.

    Attributes:
        reason: as in :class:`Pending`.
        final: ``True`` if no later call can succeed. Otherwise the controller asks again, with growing pauses.
    """

    reason: str
    final: bool = False


@dataclass(frozen=True, slots=True)
class Gone:
    """Nothing of the bastion exists."""


Ensured: TypeAlias = Ready | Pending | Broken
Deleted: TypeAlias = Gone | Pending


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose resources :meth:`BastionResources.list` looks for: those with this owner's tag."""

    owner: str

    def __post_init__(self) -> None:
        _require(_OWNER.fullmatch(self.owner) is not None, "owner: a DNS label")


@dataclass(frozen=True, slots=True)
class Place:
    """Where a provider's resources are under some settings, such as an account and a Region.

    Under another place the provider does not find them, and its :class:`Gone` means nothing. So the bastion controller
    records a digest of each value before the first :meth:`BastionResources.ensure`, and compares it before each call.
    """

    settings: tuple[tuple[str, str], ...] = ()
    """The settings that decide it, by the operator's name for them, each with what counts of its value. No secrets."""


@dataclass(frozen=True, slots=True)
class OwnedResources:
    """Resources of one bastion that exist."""

    reference: BastionReference
    """The UID; the names as the resources carry them, which somebody may have changed."""
    age: timedelta
    """Since the youngest of the resources was made. A resource whose age is unknown is as old as the caller says."""
    resources: tuple[str, ...]
    """What it is, for people, such as ``instance i-0123``."""


@dataclass(frozen=True, slots=True)
class SettingsDocuments:
    """The settings of a provider in one namespace, from two sources of different trust.

    ``operator`` comes from the controller's own configuration, may hold credentials, and decides. ``policy`` comes from
    a NodeAttestationPolicy, which a tenant writes: it may only choose among what ``operator`` allows. Most providers
    accept no setting of a policy.
    """

    operator: Mapping[str, Any] = field(default_factory=dict, repr=False)
    policy: Mapping[str, Any] = field(default_factory=dict)


class Kubernetes(Protocol):
    """Calls to the API server in which a provider makes objects. Paths are absolute API paths.

    Each call raises :class:`ObjectNotFound`, :class:`ObjectExists`, :class:`NotPermitted` or :class:`CallFailed`, and
    :class:`OutOfTime`.
    """

    def get(self, path: str, deadline: Deadline) -> dict[str, Any]:
        """Read one object."""
        ...

    def list(self, path: str, label_selector: str, deadline: Deadline) -> tuple[dict[str, Any], ...]:
        """Read the objects of a collection that have these labels."""
        ...

    def create(self, path: str, body: Mapping[str, Any], deadline: Deadline) -> dict[str, Any]:
        """Create an object in a collection."""
        ...

    def would_create(self, path: str, body: Mapping[str, Any], deadline: Deadline) -> dict[str, Any]:
        """What the API server would store, without storing it (``dryRun=All``): it may drop fields that it does not
        know.
        """
        ...

    def patch(self, path: str, patch: Mapping[str, Any], deadline: Deadline) -> dict[str, Any]:
        """Change fields of an object, by a merge patch (RFC 7386)."""
        ...

    def delete(self, path: str, uid: str, deadline: Deadline) -> None:
        """Delete the object if it still has this UID."""
        ...


class CallFailed(Exception):
    """A call failed, and may succeed later. The message holds no credentials."""


class NotPermitted(CallFailed):
    """The caller lacks the right."""


class ObjectNotFound(CallFailed):
    """There is no such object."""


class ObjectExists(CallFailed):
    """There is one of that name already."""


class NoKubernetes:
    """Surroundings without an API server."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a provider gets from the program that runs it."""

    scope: Scope
    kubernetes: Kubernetes | NoKubernetes = field(default_factory=NoKubernetes)
    now: Callable[[], datetime] = field(default=lambda: datetime.now().astimezone(), repr=False, compare=False)
    """The present time, with its time zone."""


class BastionResources(Protocol):
    """The bastions of one provider under one set of settings.

    Each method raises :class:`OutOfTime` where ``deadline`` passes, and :class:`CallFailed` where a cloud does not
    answer; the controller repeats it. Anything else that it raises is a defect, and is repeated too.
    """

    def ensure(self, bastion: Bastion, deadline: Deadline) -> Ensured:
        """Make the bastion, or change what exists until it is as described.

        The firewall converges in both directions: a network that is not in ``bastion.ingress`` is closed, and a rule
        that somebody else added is removed. Egress is open to ``bastion.destinations`` alone. A bastion whose
        ``not_after`` has passed is not made.
        """
        ...

    def delete(self, reference: BastionReference, deadline: Deadline) -> Deleted:
        """Remove everything that carries the UID. :class:`Gone` only if nothing of it exists."""
        ...

    def list(self, scope: Scope, deadline: Deadline) -> tuple[OwnedResources, ...]:
        """Every bastion of which a resource with the owner's tag exists, half-made ones included."""
        ...


SettingsT = TypeVar("SettingsT")


@runtime_checkable
class BastionProvider(Protocol):
    """The object of an entry point of the group ``node_access.bastions``; the entry point's name is :attr:`name`."""

    @property
    def name(self) -> str:
        """The provider's name, as grants and policies write it."""
        ...

    def settings(self, documents: SettingsDocuments) -> Any:
        """Parse the settings into an immutable value of the provider's own type. An unknown setting is refused.

        Raises:
            InvalidSettings: a setting is wrong, missing or unknown, or the policy asks for what the operator does not
                allow.
        """
        ...

    def place(self, settings: Any) -> Place:
        """Where resources are under these settings, which :meth:`settings` returned. The same for every policy, because
        deletion knows the operator's settings alone. Calls nothing.
        """
        ...

    def open(self, settings: Any, surroundings: Surroundings) -> BastionResources:
        """The bastions under these settings, which :meth:`settings` returned. Calls nothing yet.

        Raises:
            ProviderUnavailable: the provider cannot run here.
        """
        ...


def host_keys(bastion: Bastion) -> tuple[Ed25519Key, ...]:
    """The public half of the bastion's host key, for :class:`Ready`."""
    key = public_key_of(bastion.host_key.private_key())
    if not isinstance(key, Ed25519Key):
        raise TypeError("a bastion's host key is Ed25519")
    return (key,)


def one_line(text: str) -> str:
    """``text`` as a reason: one line, printable ASCII, bounded. Other letters become question marks."""
    start = text[: MAXIMUM_MESSAGE_CHARACTERS * 2]
    shown = "".join(" " if not one.isprintable() else one if one.isascii() else "?" for one in start)
    return " ".join(shown.split())[:MAXIMUM_MESSAGE_CHARACTERS]


def _is_mapped(address: IPAddress) -> bool:
    return isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None


def _is_no_node(address: IPAddress) -> bool:
    if address.is_loopback or address.is_link_local or address.is_unspecified or address.is_multicast:
        return True
    if isinstance(address, ipaddress.IPv6Address) and any(address in one for one in _TRANSLATED):
        return True
    return address in _SERVICES_OF_CLOUDS


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise InvalidBastion(message)
