"""Settings that select the endorsement key sources and their order."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, assert_never

from attestors.clouds.google import GoogleAccess
from attestors.contract import DocumentKind, InvalidSettings
from attestors.tpm.endorsement_key_sources import (
    GCPShieldedVM,
    HostAnnotation,
    InfrastructureMachineAnnotation,
    Inventory,
    MachineAnnotation,
    Source,
    SourceName,
    SourcesInOrder,
    TrustOnFirstUse,
    shielded_vms,
)
from attestors.tpm.trust import NotConfigured

SOURCES_SETTING: Final = "endorsementKeySources"
INVENTORY_SETTING: Final = "inventory"

_DEFAULT: Final = (SourceName.MACHINE_ANNOTATION, SourceName.INFRASTRUCTURE_MACHINE_ANNOTATION)
_OBJECT_NAME: Final = re.compile(r"(?=.{1,253}\Z)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
"""A DNS-1123 subdomain."""


class FirstUse(enum.Enum):
    """Whether the operator allows trust on first use: the first genuine TPM becomes the Machine's."""

    ALLOWED = "allowed"
    NOT_ALLOWED = "not allowed"
    WITHOUT_AUTHORITIES = "allowed, but no authorities are configured"


@dataclass(frozen=True, slots=True)
class ShieldedVMs:
    """Access to Google Cloud that the operator allows to policies."""

    access: GoogleAccess
    projects: frozenset[str]


@dataclass(frozen=True, slots=True)
class OperatorAllows:
    """The sources beyond annotations and inventories that a policy may select."""

    first_use: FirstUse = FirstUse.NOT_ALLOWED
    shielded: ShieldedVMs | NotConfigured = field(default_factory=NotConfigured)


def parse_sources(policy: Mapping[str, Any], allows: OperatorAllows) -> SourcesInOrder:
    """The sources of a cluster, in order.

    Raises:
        InvalidSettings: a source is unknown, named twice, not allowed, or lacks what it needs.
    """
    names = _names(policy.get(SOURCES_SETTING, [name.value for name in _DEFAULT]))
    if INVENTORY_SETTING in policy and SourceName.INVENTORY not in names:
        raise InvalidSettings(f"{INVENTORY_SETTING} is set, but {SOURCES_SETTING} does not have Inventory")
    return SourcesInOrder(tuple(_source(name, policy, allows) for name in names))


def _names(given: Any) -> list[SourceName]:
    known = {name.value: name for name in SourceName}
    if not isinstance(given, list) or not given or not all(isinstance(one, str) and one in known for one in given):
        raise InvalidSettings(f"{SOURCES_SETTING} must be a list of some of {', '.join(known)}")
    names = [known[one] for one in given]
    if len(set(names)) != len(names):
        raise InvalidSettings(f"{SOURCES_SETTING} names a source twice")
    if SourceName.TRUST_ON_FIRST_USE in names[:-1]:
        raise InvalidSettings(f"{SOURCES_SETTING} must have TrustOnFirstUse last: later sources would not be asked")
    return names


def _source(name: SourceName, policy: Mapping[str, Any], allows: OperatorAllows) -> Source:
    match name:
        case SourceName.MACHINE_ANNOTATION:
            return MachineAnnotation()
        case SourceName.INFRASTRUCTURE_MACHINE_ANNOTATION:
            return InfrastructureMachineAnnotation()
        case SourceName.HOST_ANNOTATION:
            return HostAnnotation()
        case SourceName.INVENTORY:
            return _inventory(policy.get(INVENTORY_SETTING))
        case SourceName.GCP_SHIELDED_VM:
            return _gcp_shielded_vm(allows.shielded)
        case SourceName.TRUST_ON_FIRST_USE:
            return _trust_on_first_use(allows.first_use)
        case never:
            assert_never(never)


def _inventory(given: Any) -> Inventory:
    kinds = {kind.value: kind for kind in DocumentKind}
    if not isinstance(given, dict) or set(given) != {"kind", "name"} or given["kind"] not in list(kinds):
        raise InvalidSettings(
            f"{INVENTORY_SETTING} must be an object such as {{'kind': 'ConfigMap', 'name': 'tpm-inventory'}}, of kind "
            "ConfigMap or Secret"
        )
    name = given["name"]
    if not isinstance(name, str) or not _OBJECT_NAME.fullmatch(name):
        raise InvalidSettings(f"{INVENTORY_SETTING}: name must be the name of a {given['kind']}")
    return Inventory(kinds[given["kind"]], name)


def _gcp_shielded_vm(allowed: ShieldedVMs | NotConfigured) -> GCPShieldedVM:
    if isinstance(allowed, NotConfigured):
        raise InvalidSettings(f"{SOURCES_SETTING}: this controller allows GCPShieldedVM for no project")
    try:
        return shielded_vms(allowed.access, allowed.projects)
    except ImportError as error:
        raise InvalidSettings(f"{SOURCES_SETTING}: GCPShieldedVM needs the extra gcp in the controller") from error


def _trust_on_first_use(first_use: FirstUse) -> TrustOnFirstUse:
    match first_use:
        case FirstUse.ALLOWED:
            return TrustOnFirstUse()
        case FirstUse.NOT_ALLOWED:
            raise InvalidSettings(f"{SOURCES_SETTING}: this controller does not allow TrustOnFirstUse")
        case FirstUse.WITHOUT_AUTHORITIES:
            raise InvalidSettings(f"{SOURCES_SETTING}: TrustOnFirstUse needs endorsement authorities in the controller")
        case never:
            assert_never(never)
