"""Attestors and a clock for tests of the controller, with the real registry over these entry points."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from importlib.metadata import EntryPoint
from typing import Any, Final

from attestors.contract import (
    AttestationRequest,
    AttestorDescription,
    AttestorSettings,
    Freshness,
    InvalidSettings,
    Outcome,
    PreFiltered,
    Security,
)
from attestors.registry import Registry
from attestors.wire.names import ENTRY_POINT_GROUP

NOW: Final = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)


class Clock:
    """A clock that a test advances."""

    def __init__(self) -> None:
        self._passed = 0.0

    def pass_by(self, seconds: float) -> None:
        self._passed += seconds

    def now(self) -> datetime:
        return NOW + timedelta(seconds=self._passed)

    def monotonic(self) -> float:
        return 1000.0 + self._passed


class FakeServerPlugin:
    """A server plugin that records its settings and is not called."""

    def __init__(self, settings: AttestorSettings) -> None:
        self.settings = settings

    def pre_filter(self, request: AttestationRequest) -> PreFiltered:
        raise NotImplementedError

    async def verify_client(self, request: AttestationRequest) -> Outcome:
        raise NotImplementedError

    async def verify_serving(self, request: AttestationRequest) -> Outcome:
        raise NotImplementedError


class FakeAttestor:
    """An attestor; loading its server plugin raises ``failure``."""

    def __init__(self, description: AttestorDescription, failure: BaseException | None = None) -> None:
        self.description = description
        self._failure = failure
        self.plugins_made = 0

    def server_plugin(self, settings: AttestorSettings) -> Any:
        self.plugins_made += 1
        if self._failure is not None:
            raise self._failure
        return FakeServerPlugin(settings)

    def agent_plugin(self, settings: Any) -> Any:
        raise NotImplementedError


def _secure(name: str) -> AttestorDescription:
    return AttestorDescription(name, Security.SECURE, ("v1",), Freshness.TIMESTAMP)


good = FakeAttestor(_secure("good"))
other = FakeAttestor(_secure("other"))
bare = FakeAttestor(_secure("bare"), ImportError("No module named 'tpm2_pytss'", name="tpm2_pytss"))
picky = FakeAttestor(_secure("picky"), InvalidSettings("endorsementAuthorities must be a folder"))
exiting = FakeAttestor(_secure("exiting"), SystemExit(2))
insecure = FakeAttestor(AttestorDescription("insecure", Security.INSECURE, ("v1",), Freshness.NONE))
liar = FakeAttestor(_secure("somebody-else"))


def registry() -> Registry:
    """A registry with these attestors and ``absent``, whose module does not exist."""
    found = {"good": "good", "other": "other", "bare": "bare", "picky": "picky", "liar": "liar"}
    found.update(insecure="insecure", exiting="exiting")
    entry_points = [EntryPoint(name, f"{__name__}:{attribute}", ENTRY_POINT_GROUP) for name, attribute in found.items()]
    return Registry([*entry_points, EntryPoint("absent", "no_such_module_here:plugin", ENTRY_POINT_GROUP)])
