"""Section ``certificateAuthorities``: the Secrets that policies may name, and the Clusters that may share a CA."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from signer.configuration.document import (
    ALL_NAMESPACES,
    InvalidConfiguration,
    object_of,
    require_namespace,
    unknown_fields,
)
from signer.model.authority_sharing import NO_SHARING, SharingGroup, SharingGroups
from signer.model.authority_suffixes import CLIENT_CA, CLUSTER_CA, SUFFIX, SUFFIX_FORM
from signer.model.cluster import ClusterKey
from signer.model.decision import printable

MAXIMUM_GROUPS: Final = 64
MAXIMUM_MEMBERS: Final = 256
# apimachinery ``validation.IsDNS1123Subdomain``, and the length that a policy's name may have.
_CLUSTER: Final = re.compile(r"(?=.{1,63}\Z)[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?", re.ASCII)
_MEMBERS: Final = "; a group names namespaces, Clusters as namespace/name, or '*' for every Cluster"
_AUTHORITY_FIELDS: Final = frozenset({"sharedBy", "suffixes", "suffixesByNamespace"})


@dataclass(frozen=True, slots=True)
class AllowedAuthorities:
    """The Secrets that a policy may name as its cluster's CAs, by name suffix, and the Clusters that may share a CA."""

    suffixes: frozenset[str] = frozenset({CLUSTER_CA, CLIENT_CA})
    """For policies of every namespace that ``by_namespace`` does not have."""
    by_namespace: Mapping[str, frozenset[str]] = field(default_factory=dict)
    shared_by: SharingGroups = NO_SHARING
    """The Clusters that may have CAs in common."""

    def allowed_in(self, namespace: str) -> frozenset[str]:
        """The suffixes that policies in that namespace may name."""
        return self.by_namespace.get(namespace, self.suffixes)


def read_authorities(where: str, entry: Any) -> AllowedAuthorities:
    """The suffixes that policies may name.

    Raises:
        InvalidConfiguration: a field is invalid.
    """
    stated = object_of(where, entry)
    for unknown in unknown_fields(stated, _AUTHORITY_FIELDS):
        fields = ", ".join(sorted(_AUTHORITY_FIELDS))
        raise InvalidConfiguration(f"--config: {where} has the fields {fields}, and not {unknown}")
    by_namespace = object_of(f"{where}.suffixesByNamespace", stated.get("suffixesByNamespace"))
    for namespace in by_namespace:
        require_namespace(f"{where}.suffixesByNamespace", namespace, "; those of all others belong in suffixes")
    default = AllowedAuthorities()
    suffixes = stated.get("suffixes")
    return AllowedAuthorities(
        default.suffixes if suffixes is None else _suffixes(f"{where}.suffixes", suffixes),
        {
            namespace: _suffixes(f"{where}.suffixesByNamespace.{namespace}", of)
            for namespace, of in by_namespace.items()
        },
        _groups(f"{where}.sharedBy", stated.get("sharedBy")),
    )


def _groups(path: str, value: Any) -> SharingGroups:
    if value is None:
        return NO_SHARING
    if not isinstance(value, list) or len(value) > MAXIMUM_GROUPS:
        raise InvalidConfiguration(
            f"--config: {path} must be a list of at most {MAXIMUM_GROUPS} groups, each a list of namespaces and of "
            "Clusters as namespace/name"
        )
    return SharingGroups(tuple(_group(f"{path}[{index}]", group) for index, group in enumerate(value)))


def _group(path: str, value: Any) -> SharingGroup:
    if not isinstance(value, list) or not 1 <= len(value) <= MAXIMUM_MEMBERS:
        raise InvalidConfiguration(
            f"--config: {path} must be a list of 1 to {MAXIMUM_MEMBERS} namespaces, or Clusters as namespace/name"
        )
    namespaces, clusters = set(), set()
    for member in value:
        namespace, slash, name = str(member).partition("/")
        if member == ALL_NAMESPACES:
            continue
        require_namespace(path, namespace if isinstance(member, str) else member, _MEMBERS)
        if not slash:
            namespaces.add(namespace)
            continue
        if _CLUSTER.fullmatch(name) is None:
            raise InvalidConfiguration(f"--config: {path}: {printable(str(member))!r} names no Cluster{_MEMBERS}")
        clusters.add(ClusterKey(namespace, name))
    return SharingGroup(frozenset(namespaces), frozenset(clusters), everywhere=ALL_NAMESPACES in value)


def _suffixes(path: str, value: Any) -> frozenset[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) and SUFFIX.fullmatch(one) for one in value):
        raise InvalidConfiguration(
            f"--config: {path} must be a list of suffixes of Secret names, such as [ca, cca]: each {SUFFIX_FORM}"
        )
    return frozenset(value)
