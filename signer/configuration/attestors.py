"""Section ``attestors``: what the operator allows each attestor, and its settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from attestors.contract import INSECURE_PROVIDER
from attestors.wire.names import InvalidProviderName, check_provider_name
from signer.configuration.document import (
    ALL_NAMESPACES,
    InvalidConfiguration,
    object_of,
    read_namespaces,
    require_namespace,
    unknown_fields,
)

_FIELDS: Final = frozenset({"namespaces", "settings", "settingsByNamespace"})
"""Fields of an attestor in the file."""


@dataclass(frozen=True, slots=True)
class OperatorAttestor:
    """The operator's permissions and settings for one attestor."""

    namespaces: frozenset[str] = frozenset({ALL_NAMESPACES})
    """Namespaces whose policies may authorize it; ``*`` for all."""
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Settings for every namespace. They may hold secrets, so they are never logged."""
    settings_by_namespace: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    """Settings per namespace, which add to ``settings`` or override them by name. Each namespace must be allowed."""

    def settings_in(self, namespace: str) -> Mapping[str, Any]:
        """The effective settings in a namespace: its own take precedence, by name."""
        return {**self.settings, **self.settings_by_namespace.get(namespace, {})}

    def allows(self, namespace: str) -> bool:
        """Whether policies in that namespace may authorize it."""
        return ALL_NAMESPACES in self.namespaces or namespace in self.namespaces


NOT_NAMED: Final = OperatorAttestor(namespaces=frozenset())
"""An attestor that the operator does not name: no policy may authorize it."""


def every_attestor(providers: Iterable[str]) -> Mapping[str, OperatorAttestor]:
    """The configuration that names all of ``providers`` in every namespace, without settings, for commands that do not
    know the controller's. ``insecure`` needs its flags.
    """
    return {provider: OperatorAttestor() for provider in providers if provider != INSECURE_PROVIDER}


def operator_settings(attestors: Mapping[str, OperatorAttestor], provider: str, namespace: str) -> Mapping[str, Any]:
    """The operator's settings for an attestor in a namespace; empty if ``attestors`` does not have it."""
    return attestors.get(provider, NOT_NAMED).settings_in(namespace)


def read_attestor(path: str, provider: Any, entry: Any) -> OperatorAttestor:
    """One attestor's permissions and settings.

    Raises:
        InvalidConfiguration: a field is invalid.
    """
    try:
        check_provider_name(str(provider))
    except InvalidProviderName as error:
        raise InvalidConfiguration(f"--config: {path}: {error}") from error
    fields = ", ".join(sorted(_FIELDS))
    if not isinstance(entry, Mapping):
        raise InvalidConfiguration(f"--config: {path} must be an object with the fields {fields}")
    for unknown in unknown_fields(entry, _FIELDS):
        raise InvalidConfiguration(f"--config: {path} has the fields {fields}, and not {unknown}")
    namespaces = read_namespaces(f"{path}.namespaces", entry.get("namespaces", [ALL_NAMESPACES]))
    settings = object_of(f"{path}.settings", entry.get("settings"))
    everywhere = OperatorAttestor(namespaces, settings)
    by_namespace = object_of(f"{path}.settingsByNamespace", entry.get("settingsByNamespace"))
    for namespace in by_namespace:
        require_namespace(f"{path}.settingsByNamespace", namespace, "; settings of all namespaces belong in settings")
        if not everywhere.allows(namespace):
            raise InvalidConfiguration(
                f"--config: {path}.settingsByNamespace: {namespace} is not among its namespaces: add it there, or "
                "remove its settings"
            )
    return replace(
        everywhere,
        settings_by_namespace={
            namespace: object_of(f"{path}.settingsByNamespace.{namespace}", of)
            for namespace, of in by_namespace.items()
        },
    )
