"""The configuration of the bastion controller: who it is, and what it may use where."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, TypeVar

from node_access.bastions.contract import InvalidBastion, Scope
from signer.bastions.targets import OperatorTargets, parse_target_networks, parse_target_ports
from signer.configuration import ALL_NAMESPACES, InvalidConfiguration, read_document, read_namespaces, require_namespace
from signer.model.durations import parse_duration

_FIELDS: Final = frozenset(
    {
        "owner",
        "providers",
        "sweep",
        "targetNetworks",
        "targetNetworksByNamespace",
        "targetPorts",
        "targetPortsByNamespace",
        "forget",
    }
)
_PROVIDER_FIELDS: Final = frozenset({"namespaces", "formerNamespaces", "settings", "settingsByNamespace"})
MAXIMUM_FORGOTTEN: Final = 256
_UID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
_PROVIDER: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,30}[a-z0-9])?", re.ASCII)
_FIELD_NAME: Final = re.compile(r"[A-Za-z]{1,40}", re.ASCII)
DEFAULT_SWEEP: Final = timedelta(minutes=5)
Listed = TypeVar("Listed")


@dataclass(frozen=True, slots=True)
class OperatorProvider:
    """The operator's permission and settings for one provider."""

    namespaces: frozenset[str]
    """Namespaces whose Bastions may use it; ``*`` for all. Nothing is allowed that is not named."""
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """For every namespace. They may hold credentials, so they are never logged."""
    settings_by_namespace: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    """Per namespace, which replace those above by name."""
    former_namespaces: frozenset[str] = frozenset()
    """Namespaces whose Bastions may not use it any more: theirs are removed, under the settings for that namespace."""

    def allows(self, namespace: str) -> bool:
        """Whether Bastions of that namespace may use it."""
        if namespace in self.former_namespaces:
            return False
        return ALL_NAMESPACES in self.namespaces or namespace in self.namespaces

    def settings_in(self, namespace: str) -> Mapping[str, Any]:
        """The operator's settings in a namespace."""
        return {**self.settings, **self.settings_by_namespace.get(namespace, {})}

    def every_settings(self) -> tuple[Mapping[str, Any], ...]:
        """Each of the operator's settings, once: together they reach every resource that this controller may have
        made.
        """
        return (self.settings, *(self.settings_in(namespace) for namespace in sorted(self.settings_by_namespace)))


@dataclass(frozen=True, slots=True)
class BastionConfiguration:
    """The content of the file."""

    scope: Scope
    providers: Mapping[str, OperatorProvider]
    sweep_every: timedelta = DEFAULT_SWEEP
    targets: OperatorTargets = field(default_factory=OperatorTargets)
    forgotten: frozenset[str] = frozenset()
    """UIDs of Bastions whose resources elsewhere the operator gave up: the present settings count for them."""


def read_bastion_configuration(path: Path) -> BastionConfiguration:
    """Read the file::

        owner: production-eu
        sweep: 5m
        targetNetworks: [10.0.0.0/16]
        targetNetworksByNamespace: {team-b: [10.7.0.0/16]}
        targetPorts: [22]
        targetPortsByNamespace: {team-b: [22, 2222]}
        providers:
          aws:
            namespaces: [team-a, team-b]
            settings: {region: eu-central-1, imageID: ami-0123456789abcdef0}
            settingsByNamespace:
              team-b: {roleARN: "arn:aws:iam::111122223333:role/bastions"}

    Raises:
        InvalidConfiguration: the file cannot be read, or a field is invalid. No message quotes a setting.
    """
    document = _fields(f"{path}", read_document(path), _FIELDS)
    owner = document.get("owner")
    try:
        scope = Scope(owner if isinstance(owner, str) else "")
    except InvalidBastion as error:
        raise InvalidConfiguration(f"--config: {path}: owner must be a DNS label of its own for each fleet") from error
    stated = _object(f"{path}: providers", document.get("providers"))
    providers = {name: _provider(f"{path}: providers.{name}", name, entry) for name, entry in stated.items()}
    return BastionConfiguration(
        scope,
        providers,
        _sweep(path, document.get("sweep")),
        _targets(f"{path}", document),
        _forgotten(f"{path}: forget", document.get("forget", [])),
    )


def _targets(path: str, document: Mapping[str, Any]) -> OperatorTargets:
    default = OperatorTargets()
    networks, ports = "targetNetworks", "targetPorts"
    return OperatorTargets(
        _listed(path, document, networks, parse_target_networks) if networks in document else default.networks,
        _by_namespace(path, document, networks, parse_target_networks),
        _listed(path, document, ports, parse_target_ports) if ports in document else default.ports,
        _by_namespace(path, document, ports, parse_target_ports),
    )


def _by_namespace(
    path: str, document: Mapping[str, Any], general: str, parse: Callable[[Any], Listed]
) -> Mapping[str, Listed]:
    name = f"{general}ByNamespace"
    stated = _object(f"{path}: {name}", document.get(name))
    for namespace in stated:
        require_namespace(f"{path}: {name}", namespace, f"; those of all others belong in {general}")
    return {namespace: _listed(f"{path}: {name}", stated, namespace, parse) for namespace in stated}


def _listed(where: str, document: Mapping[str, Any], name: str, parse: Callable[[Any], Listed]) -> Listed:
    try:
        return parse(document[name])
    except ValueError as error:
        raise InvalidConfiguration(f"--config: {where}: {name} {error}") from error


def _forgotten(where: str, value: Any) -> frozenset[str]:
    if not isinstance(value, list) or len(value) > MAXIMUM_FORGOTTEN:
        raise InvalidConfiguration(f"--config: {where} must be a list of at most {MAXIMUM_FORGOTTEN} UIDs of Bastions")
    if not all(isinstance(one, str) and _UID.fullmatch(one) for one in value):
        raise InvalidConfiguration(f"--config: {where} must hold UIDs of Bastions, from their metadata.uid")
    return frozenset(value)


def _provider(where: str, name: str, entry: Any) -> OperatorProvider:
    if _PROVIDER.fullmatch(name) is None:
        raise InvalidConfiguration(f"--config: {where}: not the name of a provider")
    fields = _fields(where, entry, _PROVIDER_FIELDS)
    namespaces = read_namespaces(f"{where}.namespaces", fields.get("namespaces") or [])
    former = read_namespaces(f"{where}.formerNamespaces", fields.get("formerNamespaces") or [])
    if ALL_NAMESPACES in former or namespaces & former:
        raise InvalidConfiguration(
            f"--config: {where}.formerNamespaces must name single namespaces that are not in namespaces"
        )
    by_namespace = _object(f"{where}.settingsByNamespace", fields.get("settingsByNamespace"))
    made = OperatorProvider(
        namespaces,
        _object(f"{where}.settings", fields.get("settings")),
        {
            namespace: _object(f"{where}.settingsByNamespace.{namespace}", settings)
            for namespace, settings in by_namespace.items()
        },
        former,
    )
    for namespace in by_namespace:
        require_namespace(f"{where}.settingsByNamespace", namespace, "; settings of all namespaces belong in settings")
        if not made.allows(namespace) and namespace not in former:
            raise InvalidConfiguration(
                f"--config: {where}.settingsByNamespace: {namespace} is not among its namespaces: add it there, or to "
                "formerNamespaces, whose Bastions are removed"
            )
    return made


def _sweep(path: Path, value: Any) -> timedelta:
    if value is None:
        return DEFAULT_SWEEP
    try:
        every = parse_duration(value if isinstance(value, str) else "")
    except ValueError as error:
        raise InvalidConfiguration(f"--config: {path}: sweep: {error}") from error
    if not timedelta(minutes=1) <= every <= timedelta(hours=1):
        raise InvalidConfiguration(f"--config: {path}: sweep must be from 1m to 1h")
    return every


def _fields(where: str, value: Any, known: frozenset[str]) -> Mapping[str, Any]:
    found = _object(where, value)
    for name in sorted(found.keys() - known):
        shown = repr(name) if _FIELD_NAME.fullmatch(name) else "a field of another form"
        raise InvalidConfiguration(f"--config: {where} has the fields {', '.join(sorted(known))}, and not {shown}")
    return found


def _object(where: str, value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise InvalidConfiguration(f"--config: {where} must be an object")
    return value
