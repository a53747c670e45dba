"""The attestors of one cluster, loaded when its policy authorizes them, with the operator's and its own settings."""

from __future__ import annotations

import logging
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from inspect import iscoroutinefunction
from typing import TypeAlias

from attestors.contract import AttestorDescription, AttestorSettings, InvalidSettings, Security, ServerPlugin
from attestors.registry import AttestorUnavailable, Registry
from signer.configuration import Configuration, operator_settings
from signer.model.decision import Deferred
from signer.model.policy import Policy
from signer.model.reasons import Reason
from signer.rules.request import insecure_not_allowed, not_allowed

_LOG = logging.getLogger(__name__)

ChallengeKeysOf: TypeAlias = Callable[[str], tuple[bytes, ...]]
"""The keys for the challenges of one attestor, newest first; raises Deferred if there are none."""


@dataclass(frozen=True, slots=True)
class ReadyAttestor:
    """An attestor that is ready to be asked."""

    description: AttestorDescription
    server_plugin: ServerPlugin


@dataclass(frozen=True, slots=True)
class BrokenAttestor:
    """An authorized attestor that cannot be asked, and the reason."""

    provider: str
    message: str
    forbidden: bool = False
    """Whether the reason is that the operator does not allow it in this namespace."""


class AttestorSet:
    """The attestors of one cluster under one version of its policy; created again when the policy changes."""

    def __init__(
        self, policy: Policy, configuration: Configuration, registry: Registry, challenge_keys: ChallengeKeysOf
    ) -> None:
        self.policy = policy
        self._challenge_keys = challenge_keys
        self._configuration = configuration
        self._registry = registry
        self._ready: dict[str, ReadyAttestor | BrokenAttestor] = {}

    @property
    def any_broken(self) -> bool:
        """Whether the preparation of an attestor failed."""
        return any(isinstance(attestor, BrokenAttestor) for attestor in self._ready.values())

    def description(self, provider: str) -> AttestorDescription:
        """The attestor's description of itself.

        Raises:
            Deferred: the attestor cannot be loaded.
        """
        try:
            return self._registry.load(provider).description
        except AttestorUnavailable as error:
            raise Deferred(Reason.ATTESTOR_UNAVAILABLE, str(error)) from error

    def ready(self, provider: str) -> ReadyAttestor:
        """An authorized attestor that is ready to be asked.

        Raises:
            Deferred: its libraries are missing or its settings invalid.
        """
        attestor = self._prepared(provider)
        if isinstance(attestor, BrokenAttestor):
            raise Deferred(Reason.ATTESTOR_UNAVAILABLE, attestor.message)
        return attestor

    def broken(self) -> tuple[BrokenAttestor, ...]:
        """All authorized attestors that cannot be asked, for the policy's conditions."""
        prepared = (self._prepared(authorized.provider) for authorized in self.policy.authorized_attestors)
        return tuple(one for one in prepared if isinstance(one, BrokenAttestor))

    def _prepared(self, provider: str) -> ReadyAttestor | BrokenAttestor:
        if provider not in self._ready:
            self._ready[provider] = self._prepare(provider)
        return self._ready[provider]

    def _prepare(self, provider: str) -> ReadyAttestor | BrokenAttestor:
        namespace = self.policy.cluster.namespace
        if not self._configuration.attestor(provider).allows(namespace):
            return BrokenAttestor(provider, not_allowed(provider, namespace), forbidden=True)
        settings = AttestorSettings(  # copies: a plugin's changes to its settings must not affect another
            operator=deepcopy(operator_settings(self._configuration.attestors, provider, namespace)),
            policy=deepcopy(self.policy.authorized(provider).settings),
            challenge_keys=partial(self._challenge_keys, provider),
        )
        try:
            attestor = self._registry.load(provider)
            insecure = attestor.description.security is Security.INSECURE
            if insecure and not self._configuration.insecure_allowed(namespace):
                return BrokenAttestor(provider, insecure_not_allowed(provider, namespace), forbidden=True)
            plugin = attestor.server_plugin(settings)
            if wrong := _wrong_with(plugin, attestor.description):
                return BrokenAttestor(provider, f"attestor {provider}: its server plugin {wrong}")
            return ReadyAttestor(attestor.description, plugin)
        except ImportError as error:
            return BrokenAttestor(provider, str(self._registry.missing_extra(provider, error)))
        except AttestorUnavailable as error:
            return BrokenAttestor(provider, str(error))
        except InvalidSettings as error:
            return BrokenAttestor(provider, f"settings of attestor {provider}: {error}")
        except (Exception, SystemExit) as error:  # noqa: BLE001 - its requests wait; it must not end the task or process
            _LOG.error("an attestor cannot be prepared", exc_info=error, extra={"provider": provider})
            return BrokenAttestor(provider, f"attestor {provider} failed with {type(error).__name__}; see the log")


def _wrong_with(plugin: object, description: AttestorDescription) -> str:
    """The visible defect of a server plugin, empty if there is none: not every attestor is type-checked."""
    if isinstance(plugin, type):
        return "is a class, and must be an object of it"
    wanted = ("pre_filter", "verify_client", *(["verify_serving"] if description.serves else []))
    missing = next((name for name in wanted if not callable(getattr(plugin, name, None))), "")
    if missing:
        return f"has no {missing}"
    is_async = iscoroutinefunction(getattr(plugin, "pre_filter", None))
    return "has an async pre_filter, and must have a plain one" if is_async else ""
