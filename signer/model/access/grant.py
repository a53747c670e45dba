"""``AccessGrant``: what a person asks for, parsed from the object into an immutable value.

A grant carries no right: what it opens depends on its creator's rights, the policy and approvals.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, TypeAlias

from attestors.wire.ssh.key_line import parse_key_line
from attestors.wire.ssh.keys import PublicKey
from signer.model.access.creator import StatedCreator, read_creator
from signer.model.access.digest import digest_of_spec
from signer.model.access.errors import InvalidAccessGrant
from signer.model.access.metadata import ObjectMetadata, annotations_of, read_metadata
from signer.model.access.networks import read_ingress
from signer.model.access.reader import Reader
from signer.model.access.targets import GrantTarget, read_logins, read_target, rights_needed
from signer.model.access_policy import MAXIMUM_LIFETIME, MINIMUM_LIFETIME, NO_BASTION, PROVIDER
from signer.model.cluster import ClusterKey
from signer.model.fields import mapping_of, text_of
from signer.model.serving_networks import IPNetwork

FINALIZER: Final = "access.cluster.x-k8s.io/access-grant"
CREATED_BY_ANNOTATION: Final = "access.cluster.x-k8s.io/created-by"
"""GEP-0015's, for tools. ``spec.createdBy`` counts."""
OPERATION_ANNOTATION: Final = "access.cluster.x-k8s.io/operation"
KEEPALIVE: Final = "keepalive"
HEARTBEAT_ANNOTATION: Final = "access.cluster.x-k8s.io/heartbeat"
MAXIMUM_HEARTBEAT: Final = 64
MAXIMUM_REASON: Final = 1024
MAXIMUM_TICKET: Final = 128
MAXIMUM_COMMAND: Final = 1024
_PRINTABLE: Final = re.compile(r"[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]*")
_PROVIDER_OR_NONE: Final = re.compile(rf"{NO_BASTION}|{PROVIDER.pattern}")
_FIELDS: Final = (
    "clusterRef",
    "target",
    "logins",
    "sshPublicKey",
    "ingress",
    "bastion",
    "duration",
    "permissions",
    "reason",
    "ticket",
    "createdBy",
    "suspend",
)


@dataclass(frozen=True, slots=True)
class AsPolicySays:
    """The grant leaves it to the policy."""


@dataclass(frozen=True, slots=True)
class NoBastion:
    """The person reaches the nodes directly."""


@dataclass(frozen=True, slots=True)
class BastionOf:
    """A bastion of that provider."""

    provider: str


BastionChoice: TypeAlias = NoBastion | BastionOf


@dataclass(frozen=True, slots=True)
class Permissions:
    """What a certificate allows besides a session."""

    pty: bool = True
    port_forwarding: bool = False
    command: str = ""
    """Forced command; empty: the person chooses."""


@dataclass(frozen=True, slots=True)
class AccessGrant:
    """One AccessGrant."""

    metadata: ObjectMetadata
    cluster: ClusterKey
    target: GrantTarget
    logins: tuple[str, ...]
    """Empty for a container."""
    ssh_public_key: str
    """A line ``type base64``."""
    ingress: tuple[IPNetwork, ...]
    """Where the creator connects from."""
    bastion: BastionChoice | AsPolicySays
    duration: timedelta | AsPolicySays
    permissions: Permissions
    reason: str
    ticket: str
    created_by: StatedCreator
    """A claim until admission has proven it."""
    is_suspended: bool
    digest: str
    """See :func:`spec_digest`."""
    heartbeat: str = ""
    """Text of the annotation. Any change of it is a heartbeat."""
    asks_keepalive: bool = False
    """GEP-0015's annotation, which the controller removes."""
    status: Mapping[str, Any] = field(default_factory=dict, hash=False, repr=False)
    """As it is: the controller's own record, to be read with its seal."""

    @property
    def public_key(self) -> PublicKey:
        """The key, parsed."""
        return parse_key_line(self.ssh_public_key)

    @property
    def rights(self) -> tuple[str, ...]:
        """The names of the virtual resource ``logins`` on which the creator needs the verb ``use``."""
        return rights_needed(self.target, self.logins)


def parse_access_grant(manifest: Mapping[str, Any]) -> AccessGrant:
    """Read an AccessGrant. It does not rely on the API server's validation.

    Raises:
        InvalidAccessGrant: a field is missing, unknown or invalid.
    """
    whole = Reader(InvalidAccessGrant, "", manifest)
    metadata = read_metadata(whole)
    spec = whole.object("spec").knows(*_FIELDS)
    target = read_target(spec)
    bastion, ingress = _bastion(spec), read_ingress(spec)
    if isinstance(bastion, BastionOf) and not ingress:
        raise spec.invalid("ingress", "must name the networks from which you reach the bastion")
    annotations = annotations_of(whole)
    return AccessGrant(
        metadata,
        ClusterKey(metadata.namespace, spec.object("clusterRef").knows("name").subdomain("name")),
        target,
        read_logins(spec, target),
        spec.key_line("sshPublicKey"),
        ingress,
        bastion,
        spec.duration("duration", MINIMUM_LIFETIME, MAXIMUM_LIFETIME, "between 1m and 168h")
        if spec.has("duration")
        else AsPolicySays(),
        _permissions(spec.optional("permissions")),
        _printable(spec, "reason", MAXIMUM_REASON),
        _printable(spec, "ticket", MAXIMUM_TICKET),
        read_creator(spec),
        spec.flag("suspend", default=False),
        digest_of_spec(spec.fields),
        heartbeat=text_of(annotations, HEARTBEAT_ANNOTATION)[:MAXIMUM_HEARTBEAT],
        asks_keepalive=annotations.get(OPERATION_ANNOTATION) == KEEPALIVE,
        status=mapping_of(manifest, "status"),
    )


def spec_digest(grant: AccessGrant) -> str:
    """What an approval names: see :func:`~signer.model.access.digest.digest_of_spec`."""
    return grant.digest


def _bastion(spec: Reader) -> BastionChoice | AsPolicySays:
    if not spec.has("bastion"):
        return AsPolicySays()
    return parse_bastion_choice(
        spec.text("bastion", 32, _PROVIDER_OR_NONE, f"{NO_BASTION} or the name of a bastion provider")
    )


def parse_bastion_choice(name: str) -> BastionChoice:
    """``None``, or a provider's name."""
    return NoBastion() if name == NO_BASTION else BastionOf(name)


def _permissions(stated: Reader) -> Permissions:
    stated.knows("pty", "portForwarding", "command")
    return Permissions(
        stated.flag("pty", default=True),
        stated.flag("portForwarding", default=False),
        _printable(stated, "command", MAXIMUM_COMMAND),
    )


def _printable(parent: Reader, name: str, maximum: int) -> str:
    return parent.optional_text(name, maximum, _PRINTABLE, f"one line of at most {maximum} printable characters")


__all__ = [
    "CREATED_BY_ANNOTATION",
    "FINALIZER",
    "HEARTBEAT_ANNOTATION",
    "KEEPALIVE",
    "MAXIMUM_COMMAND",
    "MAXIMUM_HEARTBEAT",
    "MAXIMUM_REASON",
    "MAXIMUM_TICKET",
    "OPERATION_ANNOTATION",
    "AccessGrant",
    "AsPolicySays",
    "BastionChoice",
    "BastionOf",
    "NoBastion",
    "Permissions",
    "parse_access_grant",
    "parse_bastion_choice",
    "spec_digest",
]
