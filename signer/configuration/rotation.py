"""Section ``rotation``: where CAs are rotated, and how long each step waits."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from signer.configuration.document import (
    ALL_NAMESPACES,
    InvalidConfiguration,
    object_of,
    read_namespaces,
    unknown_fields,
)
from signer.model.durations import parse_duration
from signer.model.rotation_waits import MAXIMUM_WAIT, Waits

_ROTATION_FIELDS: Final = frozenset({"nodeClientAuthority", "waits"})
_NODE_CLIENT_FIELDS: Final = frozenset({"namespaces"})
_WAITS: Final = frozenset({"trustAge", "overlap", "openWatches"})


@dataclass(frozen=True, slots=True)
class RotationSettings:
    """The controller rotates CAs when somebody orders that on a policy; it never does so by itself."""

    namespaces: frozenset[str] = frozenset({ALL_NAMESPACES})
    """Namespaces whose policies may order rotations; ``*`` for all."""
    waits: Waits = field(default_factory=Waits)
    node_client_namespaces: frozenset[str] = frozenset()
    """Those of ``namespaces`` whose policies may choose a node-client authority; ``*`` for all of them."""

    def allows(self, namespace: str) -> bool:
        """Whether policies in that namespace may order rotations."""
        return ALL_NAMESPACES in self.namespaces or namespace in self.namespaces

    def allows_node_client_authority(self, namespace: str) -> bool:
        """Whether policies in that namespace may choose a node-client authority."""
        among = self.node_client_namespaces
        return self.allows(namespace) and (ALL_NAMESPACES in among or namespace in among)


@dataclass(frozen=True, slots=True)
class RotationOff:
    """The controller rotates no CA."""


def read_rotation_waits(where: str, entry: Any) -> Waits:
    """How long the steps of a rotation wait.

    Raises:
        InvalidConfiguration: a field is invalid.
    """
    stated = object_of(where, entry)
    for unknown in unknown_fields(stated, _ROTATION_FIELDS):
        fields = " and ".join(sorted(_ROTATION_FIELDS))
        raise InvalidConfiguration(f"--config: {where} has the fields {fields}, and not {unknown}")
    path, default = f"{where}.waits", Waits()
    waits = object_of(path, stated.get("waits"))
    for unknown in unknown_fields(waits, _WAITS):
        fields = ", ".join(sorted(_WAITS))
        raise InvalidConfiguration(f"--config: {path} has the fields {fields}, and not {unknown}")
    return Waits(
        _wait(f"{path}.trustAge", waits.get("trustAge"), default.trust_age),
        _wait(f"{path}.overlap", waits.get("overlap"), default.overlap),
        _wait(f"{path}.openWatches", waits.get("openWatches"), default.open_watches),
    )


def read_node_client_namespaces(where: str, entry: Any) -> frozenset[str]:
    """The namespaces whose policies may choose a node-client authority; none unless they are named.

    Raises:
        InvalidConfiguration: a field is invalid.
    """
    path = f"{where}.nodeClientAuthority"
    stated = object_of(path, object_of(where, entry).get("nodeClientAuthority"))
    for unknown in unknown_fields(stated, _NODE_CLIENT_FIELDS):
        raise InvalidConfiguration(f"--config: {path} has the field namespaces, and not {unknown}")
    return read_namespaces(f"{path}.namespaces", stated.get("namespaces") or [])


def _wait(path: str, value: Any, default: timedelta) -> timedelta:
    if value is None:
        return default
    try:
        wait = parse_duration(value if isinstance(value, str) else "")
    except ValueError as error:
        raise InvalidConfiguration(f"--config: {path}: {error}") from error
    if wait > MAXIMUM_WAIT:
        raise InvalidConfiguration(f"--config: {path} must be at most {MAXIMUM_WAIT // timedelta(hours=1)}h")
    return wait
