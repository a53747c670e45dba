"""Section ``namespaceLimits``: how many objects of each kind one namespace may have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from signer.configuration.document import InvalidConfiguration, object_of, unknown_fields
from signer.model.namespace_limits import DEFAULT_NAMESPACE_LIMITS, MAXIMUM_LIMIT, NamespaceLimits

LIMITED_KINDS: Final = {
    "clusters": "clusters",
    "machines": "machines",
    "machinePools": "machine_pools",
    "kubeadmConfigs": "kubeadm_configs",
    "attestedNodes": "attested_nodes",
    "policies": "policies",
    "accessGrants": "access_grants",
    "accessApprovals": "access_approvals",
    "bastions": "bastions",
}
"""Attributes of :class:`NamespaceLimits` by their names in the file."""


def read_namespace_limits(path: str, entry: Any) -> NamespaceLimits:
    """The limits; a kind that is not named keeps its default.

    Raises:
        InvalidConfiguration: a field is invalid.
    """
    stated = object_of(path, entry)
    for unknown in unknown_fields(stated, frozenset(LIMITED_KINDS)):
        raise InvalidConfiguration(
            f"--config: {path} has the fields {', '.join(sorted(LIMITED_KINDS))}, and not {unknown}"
        )
    limits = {LIMITED_KINDS[kind]: _limit(f"{path}.{kind}", limit) for kind, limit in stated.items()}
    return replace(DEFAULT_NAMESPACE_LIMITS, **limits)


def _limit(path: str, limit: Any) -> int:
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= MAXIMUM_LIMIT:
        raise InvalidConfiguration(f"--config: {path} must be a whole number from 1 to {MAXIMUM_LIMIT}")
    return limit


__all__ = ["LIMITED_KINDS", "read_namespace_limits"]
