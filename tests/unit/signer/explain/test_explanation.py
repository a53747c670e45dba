"""Whose explanations of reasons there are, and what becomes of those that an attestor has by mistake."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import pytest

from attestors.contract import AttestorDescription, ReasonExplanation, Security
from attestors.registry import Registry
from attestors.wire.names import ENTRY_POINT_GROUP
from signer.explain.explanation import _explanations_of

OWN = ReasonExplanation("the chip is another", "see to the chip")


class Explaining:
    """An attestor that explains whatever a test says, or fails."""

    description = AttestorDescription("explaining", Security.SECURE, ("v1",), renews=True, serves=True)

    def __init__(self, said: object) -> None:
        self._said = said

    def server_plugin(self, settings: Any) -> Any:
        raise NotImplementedError

    agent_plugin = server_plugin

    def explanations(self) -> Any:
        if isinstance(self._said, Exception):
            raise self._said
        return self._said


def registry(said: object, monkeypatch: pytest.MonkeyPatch) -> Registry:
    monkeypatch.setitem(globals(), "explaining", Explaining(said))
    return Registry([EntryPoint("explaining", f"{__name__}:explaining", ENTRY_POINT_GROUP)])


def test_an_attestor_explains_its_own_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _explanations_of("explaining", registry({"OtherChip": OWN, "MachineNotFound": OWN}, monkeypatch))
    assert found["OtherChip"] is OWN
    assert found["MachineNotFound"] is not OWN


@pytest.mark.parametrize("said", [RuntimeError("a defect"), None, ["OtherChip"], {"OtherChip": "a text"}])
def test_where_it_fails_ours_are_left(said: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are asked for with every request of its, whatever the reason."""
    found = _explanations_of("explaining", registry(said, monkeypatch))
    assert "MachineNotFound" in found
    assert "OtherChip" not in found
