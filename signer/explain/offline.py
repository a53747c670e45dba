"""Runs attestors without a network: they verify evidence as usual, and their calls to other services are refused.

Attestors are plugins, and use libraries of their own to call cloud APIs. An audit hook of the interpreter (PEP 578)
therefore refuses every connection and name lookup, in any library.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from attestors.contract import (
    AnswerNotRecorded,
    AttestationRequest,
    Attestor,
    AttestorSettings,
    Auditable,
    ChallengeIssued,
    FormerInstance,
    InstanceTerminationProver,
    NotProvableYet,
    Outcome,
    ServerPlugin,
    Termination,
    TerminationNotProvable,
)
from attestors.registry import Registry
from attestors.wire.binding import BindingMismatch
from signer.audit.recorded_calls import RecordedManagementCluster, ReplayedCalls
from signer.explain.recorded_calls import WrappedAttestor, WrappedPlugin, WrapsAuditable
from signer.model.decision import Deferred, printable
from signer.model.reasons import Reason

NOT_ASKED: Final = "NotAskedOffline"
_NETWORK_EVENTS: Final = frozenset({"socket.connect", "socket.getaddrinfo", "socket.sendto"})
_MAXIMUM_NAMED: Final = 3


class _Offline(OSError):
    """The network is refused."""


@dataclass(slots=True)
class _Guard:
    """Whether the network is refused, and the destinations that were refused since."""

    depth: int = 0
    hooked: bool = False
    refused: dict[str, None] = field(default_factory=dict)

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self.depth and event in _NETWORK_EVENTS:
            self.refused[_destination(event, arguments)] = None
            raise _Offline("explain --objects works offline")


_GUARD: Final = _Guard()


@contextlib.contextmanager
def no_network() -> Iterator[Mapping[str, None]]:
    """Refuse every connection of this process in the block; yields the destinations that were refused."""
    if not _GUARD.hooked:
        sys.addaudithook(_GUARD.hook)  # audit hooks cannot be removed; this one acts only inside the block
        _GUARD.hooked = True
    if not _GUARD.depth:
        _GUARD.refused.clear()
    _GUARD.depth += 1
    try:
        yield _GUARD.refused
    finally:
        _GUARD.depth -= 1


def _destination(event: str, arguments: tuple[Any, ...]) -> str:
    if event == "socket.getaddrinfo":
        return printable(str(arguments[0]))[:100]
    address = arguments[1]
    return printable(str(address[0] if isinstance(address, tuple) else address))[:100]


class OfflineRegistry(Registry):
    """The installed attestors, with server plugins that work offline."""

    def __init__(self, answers: Sequence[Mapping[str, Any]] = ()) -> None:
        """``answers`` are the recorded calls of the attestor, in order."""
        super().__init__()
        self._answers = answers

    def load(self, provider: str) -> Attestor:
        """See Registry."""
        attestor = super().load(provider)
        wrapped = _OfflineAuditableAttestor if isinstance(attestor, Auditable) else _OfflineAttestor
        return wrapped(attestor, self._answers)


@dataclass(frozen=True, slots=True)
class _OfflineAttestor(WrappedAttestor):
    answers: Sequence[Mapping[str, Any]] = field(default=(), repr=False)

    def server_plugin(self, settings: AttestorSettings) -> ServerPlugin:
        keys = _CountedKeys(settings.challenge_keys)
        plugin = self.attestor.server_plugin(replace(settings, challenge_keys=keys))
        made = _OfflineProver if isinstance(plugin, InstanceTerminationProver) else _OfflinePlugin
        return made(plugin, keys, self.answers)


class _OfflineAuditableAttestor(WrapsAuditable, _OfflineAttestor):
    __slots__ = ()


@dataclass(slots=True)
class _CountedKeys:
    """Counts the uses of challenge keys: a recording holds none of the controller's, so these verify no answer."""

    keys: Callable[[], tuple[bytes, ...]]
    asked: int = 0

    def __call__(self) -> tuple[bytes, ...]:
        self.asked += 1
        return self.keys()


@dataclass(frozen=True, slots=True)
class _OfflinePlugin(WrappedPlugin):
    keys: _CountedKeys
    answers: Sequence[Mapping[str, Any]] = field(default=(), repr=False)

    async def verify_client(self, request: AttestationRequest) -> Outcome:
        return await self._verify(self.plugin.verify_client, request)

    async def verify_serving(self, request: AttestationRequest) -> Outcome:
        return await self._verify(self.plugin.verify_serving, request)

    async def _verify(self, verify: Any, request: AttestationRequest) -> Outcome:
        asked = self.keys.asked
        if self.answers:
            recorded_calls = ReplayedCalls(self.answers)
            management = RecordedManagementCluster(request.management, recorded_calls)
            request = replace(request, recorded_calls=recorded_calls, management=management)
        with no_network() as refused:
            try:
                outcome: Outcome = await verify(request)
            except AnswerNotRecorded as error:
                return NotProvableYet(NOT_ASKED, f"not called: offline; {printable(str(error))} in the recording")
            except Exception as error:  # an attestor raises whatever it likes where the network is refused
                if refused:
                    return _not_called(refused)
                if isinstance(error, BindingMismatch) and self.keys.asked > asked:
                    raise _no_challenge_keys() from error
                raise
            if refused:
                return _not_called(refused)
        if self.keys.asked > asked and not isinstance(outcome, ChallengeIssued):
            raise _no_challenge_keys()
        return outcome


@dataclass(frozen=True, slots=True)
class _OfflineProver(_OfflinePlugin):
    """A class of its own: a policy that needs the proof asks for the method."""

    async def termination_of(self, former: FormerInstance) -> Termination:
        return TerminationNotProvable("not called: offline")


def _not_called(refused: Mapping[str, None]) -> NotProvableYet:
    names = ", ".join(list(refused)[:_MAXIMUM_NAMED])
    return NotProvableYet(NOT_ASKED, f"not called: offline ({names}); the evidence passed every check before this call")


def _no_challenge_keys() -> Deferred:
    return Deferred(
        Reason.CONTROLLER_KEY_UNAVAILABLE,
        "not verified: the answer to a challenge needs the controller's key, which no recording holds",
    )
