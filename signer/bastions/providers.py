"""The providers as the operator allows them, and their calls in threads."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from node_access.bastions.contract import (
    BastionResources,
    Broken,
    CallFailed,
    Deadline,
    Gone,
    InvalidSettings,
    OutOfTime,
    ProviderUnavailable,
    Ready,
    SettingsDocuments,
    Surroundings,
)
from node_access.bastions.registry import BastionRegistry
from signer.bastions.configuration import BastionConfiguration, OperatorProvider
from signer.bastions.metrics import BastionMetrics
from signer.bastions.places import PlaceDigests, digests_of

_LOG = logging.getLogger(__name__)
THREADS: Final = 16
CALL_SECONDS: Final = 120.0
_OPENED: Final = 256
Answer = TypeVar("Answer")


class NotAllowed(Exception):
    """The operator does not allow the provider in that namespace, or does not know it."""


class ProviderFailed(Exception):
    """A call had no answer; the message is for the status, and holds no text of an unknown error."""


class Providers:
    """Opens providers once for each set of settings, and calls them in threads."""

    def __init__(
        self,
        configuration: BastionConfiguration,
        surroundings: Surroundings,
        metrics: BastionMetrics,
        registry: BastionRegistry | None = None,
    ) -> None:
        self._configuration = configuration
        self._surroundings = surroundings
        self._metrics = metrics
        self._registry = registry if registry is not None else BastionRegistry()
        self._opened: OrderedDict[str, BastionResources] = OrderedDict()
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="bastions")
        self._busy: dict[object, float] = {}

    def check(self) -> None:
        """Parse every setting of the operator, before anything else.

        Raises:
            InvalidSettings: one is wrong.
            ProviderUnavailable: a provider is not installed, or cannot run here.
        """
        for name, allowed in self._configuration.providers.items():
            provider = self._registry.load(name)
            for settings in allowed.every_settings():
                try:
                    provider.open(provider.settings(SettingsDocuments(settings)), self._surroundings)
                except InvalidSettings as error:
                    raise InvalidSettings(f"providers.{name}: {error}") from error

    def opened(self, name: str, namespace: str, policy: Mapping[str, Any]) -> BastionResources:
        """The bastions of a provider in a namespace, under the settings that a policy chose.

        Raises:
            NotAllowed: the operator does not allow it there.
            InvalidSettings: the policy asks for what the operator does not allow.
            ProviderUnavailable: it cannot run.
        """
        allowed = self._configuration.providers.get(name)
        if allowed is None or not allowed.allows(namespace):
            raise NotAllowed(f"the operator does not allow the provider {name} in the namespace {namespace}")
        return self._open(name, SettingsDocuments(allowed.settings_in(namespace), policy))

    def operators(self, name: str, namespace: str) -> BastionResources:
        """The same under the operator's settings alone, to delete: whatever a policy says now, and even where the
        operator allows no new bastion.

        Raises:
            NotAllowed: the configuration has no such provider.
            InvalidSettings, ProviderUnavailable: see :meth:`opened`.
        """
        return self._open(name, SettingsDocuments(self._known(name).settings_in(namespace)))

    def _known(self, name: str) -> OperatorProvider:
        allowed = self._configuration.providers.get(name)
        if allowed is None:
            raise NotAllowed(
                f"the configuration has no provider {name[:40]}, which could delete the bastion: put it back, with "
                "namespaces: []"
            )
        return allowed

    def place_of(self, name: str, namespace: str) -> PlaceDigests:
        """Where :meth:`operators` looks. Raises as :meth:`operators`."""
        allowed = self._known(name)
        provider = self._registry.load(name)
        settings = provider.settings(SettingsDocuments(allowed.settings_in(namespace)))
        return digests_of(provider.place(settings), self._configuration.scope)

    def all_of(self, name: str) -> tuple[BastionResources, ...]:
        """Under each of the operator's settings, for a sweep. Raises as :meth:`operators`."""
        allowed = self._configuration.providers[name]
        opened = [self._open(name, SettingsDocuments(settings)) for settings in allowed.every_settings()]
        return tuple({id(one): one for one in opened}.values())

    def _open(self, name: str, documents: SettingsDocuments) -> BastionResources:
        key = json.dumps([name, documents.operator, documents.policy], sort_keys=True, default=str)
        found = self._opened.get(key)
        if found is None:
            provider = self._registry.load(name)
            found = self._opened[key] = provider.open(provider.settings(documents), self._surroundings)
            if len(self._opened) > _OPENED:
                self._opened.popitem(last=False)
        self._opened.move_to_end(key)
        return found

    async def call(self, name: str, operation: str, call: Callable[[Deadline], Answer]) -> Answer:
        """Run a call of a provider in a thread.

        Raises:
            ProviderFailed: it had no answer.
        """
        began, token = time.monotonic(), object()
        self._busy[token] = began
        outcome = "failed"
        try:
            answer = await asyncio.get_running_loop().run_in_executor(self._threads, call, Deadline.after(CALL_SECONDS))
            outcome = _outcome(answer)
            return answer
        except OutOfTime:
            raise ProviderFailed(f"the provider had no answer within {CALL_SECONDS:.0f} seconds") from None
        except CallFailed as error:
            raise ProviderFailed(str(error)) from error
        except Exception as error:  # a provider is a plugin, and may have any defect
            _LOG.error("a provider failed", exc_info=error, extra={"bastionProvider": name, "operation": operation})
            raise ProviderFailed(f"the provider failed ({type(error).__name__}): see the log") from error
        finally:
            del self._busy[token]
            self._metrics.operations.labels(name, operation, outcome).inc()
            self._metrics.operation_seconds.labels(name, operation).observe(time.monotonic() - began)

    def busy_seconds(self) -> float:
        """How long the longest call has lasted; 0 without one."""
        return max((time.monotonic() - began for began in self._busy.values()), default=0.0)

    def close(self) -> None:
        """Start no more calls. Those that run end by their deadlines."""
        self._threads.shutdown(wait=False, cancel_futures=True)


def _outcome(answer: object) -> str:
    match answer:
        case Ready():
            return "ready"
        case Gone():
            return "gone"
        case Broken():
            return "broken"
        case tuple():
            return "listed"
        case _:
            return "pending"


__all__ = ["NotAllowed", "ProviderFailed", "ProviderUnavailable", "Providers"]
