"""The Bastion of a grant: as it should be, what of it is to be changed, and what its status says. Pure.

The bastion controller alone writes the status. It is read strictly all the same: its addresses and keys go into what a
person's ssh trusts.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias

from attestors.wire.ssh.errors import SSHRefused
from attestors.wire.ssh.key_line import key_line, parse_key_line
from attestors.wire.ssh.keys import HostKey, host_key
from signer.access.parts import (
    AbsentBastion,
    BastionState,
    BrokenBastion,
    PendingBastion,
    ReadyBastion,
    TargetNode,
)
from signer.access.targets import is_of_a_node
from signer.kube.client import JsonObject
from signer.model.access import API_VERSION, AccessGrant, Bastion, Endpoint, InvalidBastion, NoEndpoint, parse_bastion
from signer.model.access.bastion import BROKEN, MAXIMUM_TARGETS, principal_of
from signer.model.cluster import CLUSTER_NAME_LABEL
from signer.model.decision import printable
from signer.model.fields import format_time, mapping_of

CHANGEABLE: Final = frozenset({"ingress", "userAuthorities", "notAfter"})
"""The fields of the spec that the API server lets change."""


@dataclass(frozen=True, slots=True)
class AsDesired:
    """The Bastion is as it should be."""


@dataclass(frozen=True, slots=True)
class Change:
    """These fields of the spec are to be written."""

    fields: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MakeAnother:
    """The Bastion is another one than the grant needs: delete it, and make one when it is gone."""

    fields: tuple[str, ...]
    """Those of the spec that differ and cannot change."""


BastionChange: TypeAlias = AsDesired | Change | MakeAnother


def desired_bastion(
    grant: AccessGrant,
    targets: tuple[TargetNode, ...],
    authorities: tuple[HostKey, ...],
    not_after: datetime,
    provider: str,
    settings: Mapping[str, Any],
) -> JsonObject:
    """The Bastion of a grant. ``grant`` has the networks that count; ``authorities`` are those of users, that which
    signs among them.

    Nodes without an address are no target: a bastion looks no name up. The API server would refuse a Bastion without
    any target: see :func:`has_bastion_targets`.
    """
    metadata = grant.metadata
    spec: dict[str, Any] = {
        "grantRef": {"name": metadata.name, "uid": metadata.uid},
        "clusterRef": {"name": grant.cluster.name},
        "provider": provider,
        "ingress": [{"ipBlock": {"cidr": str(one)}} for one in grant.ingress],
        "userAuthorities": sorted(map(key_line, authorities)),
        "principal": principal_of(metadata.uid),
        "targets": [one for one in map(_target, targets) if one["addresses"]][:MAXIMUM_TARGETS],
        "notAfter": format_time(not_after),
    }
    if settings:
        spec["settings"] = dict(settings)
    owner = {"apiVersion": API_VERSION, "kind": "AccessGrant", "name": metadata.name, "uid": metadata.uid}
    return {
        "apiVersion": API_VERSION,
        "kind": "Bastion",
        "metadata": {
            "name": metadata.name,
            "namespace": metadata.namespace,
            "labels": {CLUSTER_NAME_LABEL: grant.cluster.name},
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
        },
        "spec": spec,
    }


def bastion_change(found: JsonObject, desired: JsonObject) -> BastionChange:
    """What is to be done about the Bastion that is there."""
    stored, wanted = mapping_of(found, "spec"), mapping_of(desired, "spec")
    differ = sorted(name for name in {*stored, *wanted} if stored.get(name) != wanted.get(name))
    fixed = tuple(name for name in differ if name not in CHANGEABLE)
    if fixed:
        return MakeAnother(fixed)
    return Change({name: wanted[name] for name in differ}) if differ else AsDesired()


def bastion_state(found: JsonObject | AbsentBastion) -> BastionState:
    """What a Bastion's status says about its present generation."""
    if isinstance(found, AbsentBastion):
        return found
    try:
        bastion = parse_bastion(found)
    except InvalidBastion as error:
        return BrokenBastion(printable(f"the Bastion is invalid: {error}"))
    status = bastion.status
    if bastion.metadata.is_deleted:
        return PendingBastion("the Bastion is being deleted")
    if status.observed_generation != bastion.metadata.generation:
        return PendingBastion("the bastion controller has not seen the present version of the Bastion")
    if status.ready.status != "True":
        message = printable(f"{status.ready.reason}: {status.ready.message}")
        return BrokenBastion(message) if status.ready.reason in BROKEN else PendingBastion(message)
    return _ready(bastion)


def _ready(bastion: Bastion) -> ReadyBastion | BrokenBastion:
    status = bastion.status
    if isinstance(status.ingress, NoEndpoint):
        return BrokenBastion("the Bastion is ready and names no address")
    try:
        keys = tuple(host_key(parse_key_line(line)) for line in status.host_keys)
    except SSHRefused as refused:
        return BrokenBastion(printable(f"a host key of the Bastion is none: {refused.message}"))
    if not keys:
        return BrokenBastion("the Bastion is ready and has no host key: no client could tell it from another machine")
    if set(status.host_keys) & set(bastion.user_authorities):
        return BrokenBastion("a host key of the Bastion is a user authority")
    return ReadyBastion(_endpoint(status.ingress), tuple(map(str, status.egress)), keys)


def _endpoint(ingress: Endpoint) -> dict[str, Any]:
    named = {"ip": ingress.ip, "hostname": ingress.hostname}
    return {**{name: value for name, value in named.items() if value}, "port": ingress.port}


def has_bastion_targets(nodes: tuple[TargetNode, ...]) -> bool:
    """Whether a bastion could reach one of them: it looks no name up."""
    return any(_target(node)["addresses"] for node in nodes)


def _target(node: TargetNode) -> dict[str, Any]:
    return {"addresses": [one for one in node.addresses if _is_address(one)], "port": node.port}


def _is_address(text: str) -> bool:
    try:
        return is_of_a_node(ipaddress.ip_address(text))
    except ValueError:
        return False


__all__ = [
    "CHANGEABLE",
    "AsDesired",
    "BastionChange",
    "Change",
    "MakeAnother",
    "bastion_change",
    "bastion_state",
    "desired_bastion",
    "has_bastion_targets",
]
