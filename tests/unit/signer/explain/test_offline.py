"""Offline, attestors verify evidence, and the interpreter refuses them the network."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, cast

import pytest

from attestors.contract import (
    AttestationRequest,
    AttestorSettings,
    ChallengeIssued,
    Denied,
    NotProvableYet,
    Outcome,
    Plausible,
)
from attestors.wire.binding import BindingMismatch
from signer.explain.offline import NOT_ASKED, OfflineRegistry, _OfflineAttestor, no_network
from signer.model.decision import Deferred
from tests.unit.signer.builders import verified

REQUEST = cast("AttestationRequest", None)
Verify = Callable[[AttestorSettings], Outcome]


class Plugin:
    """An attestor whose server plugin is a given function."""

    def __init__(self, verify: Verify) -> None:
        self.verify = verify

    def server_plugin(self, settings: AttestorSettings) -> Any:
        plugin = self

        class Plugin:
            def pre_filter(self, request: AttestationRequest) -> Plausible:
                return Plausible()

            async def verify_client(self, request: AttestationRequest) -> Outcome:
                return await asyncio.to_thread(plugin.verify, settings)

            verify_serving = verify_client

        return Plugin()


def verify(answer: Verify) -> Outcome:
    plugin = _OfflineAttestor(cast("Any", Plugin(answer))).server_plugin(
        AttestorSettings(challenge_keys=lambda: (b"k",))
    )
    assert plugin.pre_filter(REQUEST) == Plausible()
    assert asyncio.run(_either(plugin)) is not None
    return asyncio.run(plugin.verify_client(REQUEST))


async def _either(plugin: Any) -> Outcome:
    outcome: Outcome = await plugin.verify_serving(REQUEST)
    return outcome


def _connects(settings: AttestorSettings) -> Outcome:
    """Connects in a thread and defers on errors, as cloud libraries do."""
    try:
        socket.create_connection(("127.0.0.1", 9), timeout=1)
    except OSError:
        return NotProvableYet("CloudUnavailable", "the cloud does not answer")
    return Denied("Reached", "there was a network")


def _raises(settings: AttestorSettings) -> Outcome:
    socket.getaddrinfo("metadata.example", 80)
    raise AssertionError("there was a network")


def _challenges(settings: AttestorSettings) -> Outcome:
    return ChallengeIssued(str(settings.challenge_keys()))


def _uses_keys(settings: AttestorSettings) -> Outcome:
    settings.challenge_keys()
    return verified()


def _mismatches(settings: AttestorSettings) -> Outcome:
    settings.challenge_keys()
    raise BindingMismatch("no")


@pytest.mark.parametrize(("answer", "named"), [(_connects, "127.0.0.1"), (_raises, "metadata.example")])
def test_refused_calls_are_named(answer: Verify, named: str) -> None:
    outcome = verify(answer)
    assert isinstance(outcome, NotProvableYet)
    assert outcome.reason == NOT_ASKED
    assert f"not called: offline ({named}" in outcome.message


def test_evidence_that_needs_no_call_is_verified() -> None:
    assert verify(lambda settings: verified()) == verified()
    assert verify(lambda settings: Denied("No", "why")) == Denied("No", "why")
    assert isinstance(verify(_challenges), ChallengeIssued)


@pytest.mark.parametrize("answer", [_uses_keys, _mismatches])
def test_the_answer_to_a_challenge_cannot_be_verified(answer: Verify) -> None:
    with pytest.raises(Deferred, match="ControllerKeyUnavailable: not verified: the answer to a challenge"):
        verify(answer)


def test_errors_without_a_refused_call_are_the_attestors_own() -> None:
    def mismatch(settings: AttestorSettings) -> Outcome:
        raise BindingMismatch("no")

    with pytest.raises(BindingMismatch):
        verify(mismatch)


def test_the_network_is_back_afterwards() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()
        with no_network() as refused:
            with pytest.raises(OSError, match="works offline"):
                socket.create_connection(address, timeout=1)
            assert list(refused) == ["127.0.0.1"]
        socket.create_connection(address, timeout=5).close()


def test_the_installed_attestors_are_the_same() -> None:
    registry = OfflineRegistry()
    assert registry.load("keyed-mac").description.provider == "keyed-mac"
    assert "tpm" in registry.providers
