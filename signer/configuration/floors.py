"""Section ``floors``: what no policy of a namespace falls below, whatever its author writes."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Any, Final, TypeVar

from attestors.contract import INSECURE_PROVIDER, InvalidSettings
from attestors.contract.composite import ATTESTORS_SETTING, COMPOSITE_PROVIDER, part_settings
from attestors.wire.names import InvalidProviderName, check_provider_name
from signer.configuration.attestors import OperatorAttestor
from signer.configuration.document import (
    ALL_NAMESPACES,
    InvalidConfiguration,
    object_of,
    read_namespaces,
    unknown_fields,
)
from signer.model.attestor_roles import Accepted, AnyAttestor, AnyOf, RequiredAttestors, narrower
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
_ANY, _ALL = "anyOf", "allOf"
_REQUIRED_FIELDS: Final = frozenset({_ANY, _ALL})
_Choice = TypeVar("_Choice", bound=enum.Enum)


def read_floors(path: str, entries: Any, attestors: Mapping[str, OperatorAttestor]) -> Floors:
    """The floors. ``attestors`` is section ``attestors``.

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


def _entry(path: str, entry: Any, attestors: Mapping[str, OperatorAttestor]) -> NamespaceFloor:
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


def _required(path: str, entry: Any, attestors: Mapping[str, OperatorAttestor]) -> RequiredAttestors:
    stated = object_of(path, entry)
    _require_known(path, stated, _ROLES)
    return RequiredAttestors(
        **{_ROLES[role]: _accepted(f"{path}.{role}", of, attestors) for role, of in stated.items()}
    )


def _accepted(path: str, entry: Any, attestors: Mapping[str, OperatorAttestor]) -> Accepted:
    stated = object_of(path, entry)
    _require_known(path, stated, _REQUIRED_FIELDS)
    any_of = _any_of(f"{path}.{_ANY}", stated[_ANY], attestors) if _ANY in stated else AnyAttestor()
    all_of = _all_of(f"{path}.{_ALL}", stated[_ALL], attestors) if _ALL in stated else AnyAttestor()
    accepted = narrower(any_of, all_of)
    if isinstance(accepted, AnyOf) and not accepted.providers:
        raise InvalidConfiguration(
            f"--config: {path}: no attestor in {_ANY} proves all of {_ALL}, so no node could join: name one there that "
            "does, or remove one of the two"
        )
    return accepted


def _any_of(path: str, names: Any, attestors: Collection[str]) -> AnyOf:
    return AnyOf(frozenset(_attestor(path, name, attestors) for name in _names(path, names)))


def _all_of(path: str, names: Any, attestors: Mapping[str, OperatorAttestor]) -> AnyOf:
    """The attestors that prove all of ``names``: one that has the only name, or the composite attestor."""
    together = frozenset(_provider(path, name) for name in _names(path, names))
    if INSECURE_PROVIDER in together:
        raise InvalidConfiguration(f"--config: {path}: {INSECURE_PROVIDER} proves nothing: remove it")
    meeting = frozenset(name for name, settings in attestors.items() if together <= _proved_by(name, settings))
    if not meeting:
        shown = ", ".join(sorted(together))
        raise InvalidConfiguration(
            f"--config: {path}: no attestor in attestors proves {' and '.join(sorted(together))} together, so no node "
            f"could join: name {COMPOSITE_PROVIDER} there, with {ATTESTORS_SETTING} {shown} in its settings"
        )
    return AnyOf(meeting, together)


def _proved_by(name: str, attestor: OperatorAttestor) -> frozenset[str]:
    """The attestors that an identity of ``name`` is from, in every namespace."""
    if name != COMPOSITE_PROVIDER:
        return frozenset({name})
    namespaces = sorted({*attestor.namespaces, *attestor.settings_by_namespace})
    try:
        parts = [frozenset(part_settings(attestor.settings_in(namespace))) for namespace in namespaces]
    except InvalidSettings as error:
        raise InvalidConfiguration(f"--config: attestors.{COMPOSITE_PROVIDER}: {error}") from error
    return frozenset({COMPOSITE_PROVIDER}).union(frozenset.intersection(*parts) if parts else ())


def _names(path: str, names: Any) -> list[Any]:
    if not isinstance(names, list) or not 1 <= len(names) <= MAXIMUM_REQUIRED:
        raise InvalidConfiguration(f"--config: {path} must be a list of 1 to {MAXIMUM_REQUIRED} attestors")
    return names


def _provider(path: str, name: Any) -> str:
    try:
        return check_provider_name(name if isinstance(name, str) else "")
    except InvalidProviderName as error:
        raise InvalidConfiguration(f"--config: {path}: {error}") from error


def _attestor(path: str, name: Any, attestors: Collection[str]) -> str:
    provider = _provider(path, name)
    if provider not in attestors and provider != INSECURE_PROVIDER:
        raise InvalidConfiguration(
            f"--config: {path}: {printable(provider)} is not in attestors, so no policy may use it: name it there"
        )
    return provider


__all__ = ["MAXIMUM_FLOORS", "MAXIMUM_REQUIRED", "read_floors"]
