"""The attestors of one cluster, loaded when its policy authorizes them, with the operator's and its own settings."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from inspect import iscoroutinefunction
from types import TracebackType
from typing import Any, Final, Generic, TypeAlias, TypeVar

from attestors.contract import AttestorDescription, AttestorSettings, InvalidSettings, Security, ServerPlugin
from attestors.registry import AttestorFailed, AttestorUnavailable, Registry, attestor_code
from signer.configuration import Configuration, operator_settings
from signer.model.cluster import ClusterKey
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
        self._descriptions: dict[str, AttestorDescription] = {}
        self._allowed: dict[str, bool] = {}
        self.insecure_allowed = configuration.insecure_allowed(policy.cluster.namespace)
        """Whether the operator allows the insecure attestor in the cluster's namespace."""

    @property
    def any_broken(self) -> bool:
        """Whether the preparation of an attestor failed."""
        return any(isinstance(attestor, BrokenAttestor) for attestor in self._ready.values())

    def description(self, provider: str) -> AttestorDescription:
        """The attestor's description of itself.

        Raises:
            Deferred: the attestor cannot be loaded.
        """
        if provider not in self._descriptions:
            try:
                self._descriptions[provider] = self._registry.load(provider).description
            except AttestorUnavailable as error:
                raise Deferred(Reason.ATTESTOR_UNAVAILABLE, str(error)) from error
        return self._descriptions[provider]

    def operator_allows(self, provider: str) -> bool:
        """Whether the operator allows the attestor in the cluster's namespace."""
        if provider not in self._allowed:
            self._allowed[provider] = self._configuration.attestor(provider).allows(self.policy.cluster.namespace)
        return self._allowed[provider]

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
        try:
            self._registry.require_installed(provider)  # first: an operator cannot name a misspelt one
        except AttestorUnavailable as error:
            return BrokenAttestor(provider, str(error))
        if not self.operator_allows(provider):
            return BrokenAttestor(provider, not_allowed(provider, namespace), forbidden=True)
        settings = AttestorSettings(  # copies: a plugin's changes to its settings must not affect another
            operator=deepcopy(operator_settings(self._configuration.attestors, provider, namespace)),
            policy=deepcopy(self.policy.authorized(provider).settings),
            challenge_keys=partial(self._challenge_keys, provider),
        )
        try:
            with attestor_code(ImportError, AttestorUnavailable, InvalidSettings):
                attestor = self._registry.load(provider)
                insecure = attestor.description.security is Security.INSECURE
                if insecure and not self.insecure_allowed:
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
        except AttestorFailed as failed:  # its requests wait
            _LOG.error("an attestor cannot be prepared", exc_info=failed.fault, extra={"provider": provider})
            return BrokenAttestor(provider, f"attestor {provider} failed with {failed}; see the log")


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


LONG_SECONDS: Final = 0.1
"""A longer step is reported, as in asyncio's debug mode; built-in attestors take a few milliseconds."""
SAY_AGAIN_SECONDS: Final = 60.0
"""Minimum time between two log lines about one attestor."""

Result = TypeVar("Result")
Held = Callable[[str, float], None]
"""Callback for each long step: the attestor, and the seconds."""


class AttestorTimings:
    """Times what attestors do between one wait and the next; one for the whole controller.

    While an attestor runs without waiting, it holds up the event loop: nothing goes on, of no cluster.
    """

    def __init__(self, held: Held, monotonic: Callable[[], float]) -> None:
        self._held = held
        self._monotonic = monotonic
        self._said: dict[str, float] = {}

    def of(self, provider: str, cluster: ClusterKey) -> AttestorTiming:
        """The timing of that attestor for one request of that cluster."""
        return AttestorTiming(self, provider, cluster, self._monotonic)

    def was_long(self, timing: AttestorTiming, seconds: float) -> None:
        """Count a long step, and log it at most once in ``SAY_AGAIN_SECONDS``."""
        self._held(timing.provider, seconds)
        now = self._monotonic()
        if now - self._said.get(timing.provider, float("-inf")) < SAY_AGAIN_SECONDS:
            return
        self._said[timing.provider] = now
        _LOG.warning(
            "an attestor held up the event loop, and with it every cluster",
            extra={"provider": timing.provider, "cluster": str(timing.cluster), "seconds": round(seconds, 3)},
        )


@dataclass(slots=True)
class AttestorTiming:
    """A context manager for each step, one after the other."""

    timings: AttestorTimings
    provider: str
    cluster: ClusterKey
    _monotonic: Callable[[], float]
    _began: float = field(default=0.0, init=False)

    def __enter__(self) -> None:
        self._began = self._monotonic()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        seconds = self._monotonic() - self._began
        if seconds >= LONG_SECONDS:
            self.timings.was_long(self, seconds)


@dataclass(frozen=True, slots=True)
class TimedAwaitable(Generic[Result]):
    """Awaits ``judging``; each of its steps is timed by ``timing``."""

    judging: Awaitable[Result]
    timing: AttestorTiming

    def __await__(self) -> Generator[Any, Any, Result]:
        """What a plain ``await`` does (PEP 380), with each step timed."""
        steps = self.judging.__await__()
        thrown: BaseException | None = None
        while True:
            try:
                with self.timing:
                    awaited = next(steps) if thrown is None else _throw(steps, thrown)
            except StopIteration as end:
                result: Result = end.value
                return result
            finally:
                thrown = None  # otherwise it would keep itself alive through this frame
            try:
                yield awaited
            except BaseException as error:  # noqa: BLE001 - the task's cancellation, passed on to the attestor
                thrown = error


def _throw(steps: Generator[Any, Any, Any], error: BaseException) -> object:
    """Raise ``error`` in the awaited object. An iterator that is no generator is awaitable too, but has no ``throw``:
    then raise it here.
    """
    throw = getattr(steps, "throw", None)
    if throw is None:
        raise error
    return throw(error)
