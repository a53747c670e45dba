"""The attestors' own code for replays, with the operator's current settings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeAlias

from attestors.contract import AttestorSettings, Auditable, InvalidSettings, ServerPlugin
from attestors.registry import AttestorFailed, AttestorUnavailable, Registry, attestor_code
from signer.model.policy import Policy

OperatorSettingsOf: TypeAlias = Callable[[str, str], Mapping[str, Any]]
"""The operator's settings for an attestor (first argument) in a namespace; empty if there are none."""


@dataclass(frozen=True, slots=True)
class NotAsked:
    """The attestor cannot be replayed; ``why`` says the cause."""

    why: str


class ReplayAttestors:
    """Server plugins for logged policies, one for each combination of settings."""

    def __init__(self, registry: Registry, operator_settings_of: OperatorSettingsOf) -> None:
        """``operator_settings_of`` returns settings of ``--config``."""
        self.registry = registry
        self._operator_settings_of = operator_settings_of
        self._made: dict[tuple[str, str, str], ServerPlugin | NotAsked] = {}

    def of(self, provider: str, policy: Policy) -> ServerPlugin | NotAsked:
        """The server plugin of that attestor for that policy."""
        settings, namespace = policy.authorized(provider).settings, policy.cluster.namespace
        key = (provider, namespace, repr(sorted(settings.items())))
        if key not in self._made:
            self._made[key] = self._make(provider, namespace, settings)
        return self._made[key]

    def _make(self, provider: str, namespace: str, policy_settings: Mapping[str, Any]) -> ServerPlugin | NotAsked:
        try:
            with attestor_code(AttestorUnavailable, ImportError, InvalidSettings):
                attestor = self.registry.load(provider)
                if not isinstance(attestor, Auditable):
                    return NotAsked(f"attestor {provider} does not support replays")
                settings = AttestorSettings(  # copies, as in the controller
                    operator=deepcopy(self._operator_settings_of(provider, namespace)), policy=deepcopy(policy_settings)
                )
                return attestor.server_plugin(settings)
        except (AttestorUnavailable, ImportError) as error:
            return NotAsked(str(error))
        except InvalidSettings as error:
            return NotAsked(f"settings of attestor {provider}: {error}; see --config")
        except AttestorFailed as failed:
            return NotAsked(f"attestor {provider} fails with {failed}")
