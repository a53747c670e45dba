"""Section ``floors``: what no policy of a namespace falls below, whatever its author writes."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any, Final, TypeVar

from attestors.contract import INSECURE_PROVIDER
from attestors.wire.names import InvalidProviderName, check_provider_name
from signer.configuration.document import (
    ALL_NAMESPACES,
    InvalidConfiguration,
    object_of,
    read_namespaces,
    unknown_fields,
)
from signer.model.attestor_roles import Accepted, AnyAttestor, AnyOf, RequiredAttestors
from signer.model.decision import printable
from signer.model.durations import parse_duration
from signer.model.floors import NO_FLOOR, NO_FLOORS, Floor, Floors, MaximumDurations, NamespaceFloor
from signer.model.policy import (
    MAXIMUM_CERTIFICATE_DURATION,
    MINIMUM_CERTIFICATE_DURATION,
    ApprovalByOthers,
    Mode,
    NodeNameReuse,
    UntraceableTokens,
)

MAXIMUM_FLOORS: Final = 64
MAXIMUM_REQUIRED: Final = 16
_FIELDS: Final = frozenset(
    {
        "namespaces",
        "mode",
        "maximumDurations",
        "nodeNameReuse",
        "approvalByOthers",
        "untraceableTokens",
        "requiredAttestors",
    }
)
_DURATIONS: Final = {
    "client": "client",
    "serving": "serving",
    "insecure": "insecure",
    "deleting": "deleting",
    "sshHost": "ssh_host",
}
"""Attributes of :class:`MaximumDurations` by their names in the file."""
_ROLES: Final = {"controlPlane": "control_plane", "workers": "workers"}
_REQUIRED_FIELDS: Final = frozenset({"anyOf"})
_Choice = TypeVar("_Choice", bound=enum.Enum)


def read_floors(path: str, entries: Any, attestors: Collection[str]) -> Floors:
    """The floors. ``attestors`` are the names in section ``attestors``.

    Raises:
        InvalidConfiguration: a field is invalid, or entries together accept no attestor.
    """
    if entries is None:
        return NO_FLOORS
    if not isinstance(entries, list) or len(entries) > MAXIMUM_FLOORS:
        raise InvalidConfiguration(f"--config: {path} must be a list of at most {MAXIMUM_FLOORS} objects")
    found = tuple(_entry(f"{path}[{index}]", entry, attestors) for index, entry in enumerate(entries))
    floors = Floors(found)
    for namespace in sorted({ALL_NAMESPACES, *(name for one in found for name in one.namespaces)}):
        required = floors.of(namespace).required
        for role, accepted in (("controlPlane", required.control_plane), ("workers", required.workers)):
            if isinstance(accepted, AnyOf) and not accepted.providers:
                raise InvalidConfiguration(
                    f"--config: {path}: the entries for namespace {namespace} have no attestor in common in "
                    f"requiredAttestors.{role}, so no node could join: every entry must accept the attestor that its "
                    "nodes use"
                )
    return floors


def _entry(path: str, entry: Any, attestors: Collection[str]) -> NamespaceFloor:
    stated = object_of(path, entry)
    _require_known(path, stated, _FIELDS)
    namespaces = read_namespaces(f"{path}.namespaces", stated.get("namespaces"))
    if not namespaces:
        raise InvalidConfiguration(f"--config: {path}.namespaces is empty, so the entry has no effect: remove it")
    return NamespaceFloor(
        namespaces - {ALL_NAMESPACES},
        ALL_NAMESPACES in namespaces,
        Floor(
            _choice(f"{path}.mode", stated, "mode", NO_FLOOR.mode, Mode),
            _durations(f"{path}.maximumDurations", stated.get("maximumDurations")),
            _choice(f"{path}.nodeNameReuse", stated, "nodeNameReuse", NO_FLOOR.node_name_reuse, NodeNameReuse),
            _choice(
                f"{path}.approvalByOthers", stated, "approvalByOthers", NO_FLOOR.approval_by_others, ApprovalByOthers
            ),
            _choice(
                f"{path}.untraceableTokens",
                stated,
                "untraceableTokens",
                NO_FLOOR.untraceable_tokens,
                UntraceableTokens,
            ),
            _required(f"{path}.requiredAttestors", stated.get("requiredAttestors"), attestors),
        ),
    )


def _require_known(path: str, stated: Mapping[str, Any], known: Collection[str]) -> None:
    for unknown in unknown_fields(stated, frozenset(known)):
        raise InvalidConfiguration(f"--config: {path} has the fields {', '.join(sorted(known))}, and not {unknown}")


def _choice(path: str, stated: Mapping[str, Any], key: str, default: _Choice, choices: type[_Choice]) -> _Choice:
    try:
        return choices(stated.get(key, default.value))
    except ValueError:
        names = ", ".join(str(choice.value) for choice in choices)
        raise InvalidConfiguration(f"--config: {path} must be one of {names}") from None


def _durations(path: str, entry: Any) -> MaximumDurations:
    stated = object_of(path, entry)
    _require_known(path, stated, _DURATIONS)
    return MaximumDurations(**{_DURATIONS[name]: _duration(f"{path}.{name}", name, of) for name, of in stated.items()})


def _duration(path: str, name: str, value: Any) -> timedelta:
    try:
        duration = parse_duration(value if isinstance(value, str) else "")
    except ValueError as error:
        raise InvalidConfiguration(f"--config: {path}: {error}") from error
    if name == "deleting" and not duration:
        return duration
    if not MINIMUM_CERTIFICATE_DURATION <= duration <= MAXIMUM_CERTIFICATE_DURATION:
        none = ", or 0s for none" if name == "deleting" else ""
        raise InvalidConfiguration(f"--config: {path} must be between 1h and 8784h (366 days){none}")
    return duration


def _required(path: str, entry: Any, attestors: Collection[str]) -> RequiredAttestors:
    stated = object_of(path, entry)
    _require_known(path, stated, _ROLES)
    return RequiredAttestors(
        **{_ROLES[role]: _accepted(f"{path}.{role}", of, attestors) for role, of in stated.items()}
    )


def _accepted(path: str, entry: Any, attestors: Collection[str]) -> Accepted:
    stated = object_of(path, entry)
    _require_known(path, stated, _REQUIRED_FIELDS)
    if not stated:
        return AnyAttestor()
    names = stated["anyOf"]
    if not isinstance(names, list) or not 1 <= len(names) <= MAXIMUM_REQUIRED:
        raise InvalidConfiguration(f"--config: {path}.anyOf must be a list of 1 to {MAXIMUM_REQUIRED} attestors")
    return AnyOf(frozenset(_attestor(f"{path}.anyOf", name, attestors) for name in names))


def _attestor(path: str, name: Any, attestors: Collection[str]) -> str:
    try:
        provider = check_provider_name(name if isinstance(name, str) else "")
    except InvalidProviderName as error:
        raise InvalidConfiguration(f"--config: {path}: {error}") from error
    if provider not in attestors and provider != INSECURE_PROVIDER:
        raise InvalidConfiguration(
            f"--config: {path}: {printable(provider)} is not in attestors, so no policy may use it: name it there"
        )
    return provider


__all__ = ["MAXIMUM_FLOORS", "MAXIMUM_REQUIRED", "read_floors"]
