"""The attestors' own code, with the operator's settings of today, to judge a logged decision again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, TypeAlias

from attestors.contract import AttestorSettings, Auditable, InvalidSettings, ServerPlugin
from attestors.registry import AttestorUnavailable, Registry
from signer.model.policy import Policy

OperatorSettingsOf: TypeAlias = Callable[[str, str], Mapping[str, Any]]
"""What the operator sets for that attestor in that namespace; empty where nothing is known of it."""


@dataclass(frozen=True, slots=True)
class NotAsked:
    """The attestor's answer cannot be made again; ``why`` finishes the sentence."""

    why: str


class ReplayAttestors:
    """Server plugins for logged policies. One is made for each, and kept."""

    def __init__(self, registry: Registry, operator_settings_of: OperatorSettingsOf) -> None:
        """``operator_settings_of`` are those of ``--config``."""
        self.registry = registry
        self._operator_settings_of = operator_settings_of
        self._made: dict[tuple[str, str, str], ServerPlugin | NotAsked] = {}

    def of(self, provider: str, policy: Policy) -> ServerPlugin | NotAsked:
        """The half of that attestor under that policy."""
        settings, namespace = policy.authorized(provider).settings, policy.cluster.namespace
        key = (provider, namespace, repr(sorted(settings.items())))
        if key not in self._made:
            self._made[key] = self._make(provider, namespace, settings)
        return self._made[key]

    def _make(self, provider: str, namespace: str, policy_settings: Mapping[str, Any]) -> ServerPlugin | NotAsked:
        try:
            attestor = self.registry.load(provider)
            if not isinstance(attestor, Auditable):
                return NotAsked(f"attestor {provider} does not say how its answers are judged again")
            settings = AttestorSettings(  # copies, as the controller gives them to each half
                operator=deepcopy(self._operator_settings_of(provider, namespace)), policy=deepcopy(policy_settings)
            )
            return attestor.server_plugin(settings)
        except (AttestorUnavailable, ImportError) as error:
            return NotAsked(str(error))
        except InvalidSettings as error:
            return NotAsked(f"settings of attestor {provider}: {error}; see --config")
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a plugin's defect ends no verification, least of all with 0
            return NotAsked(f"attestor {provider} fails with {type(error).__name__}")
