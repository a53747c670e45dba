"""Explanations of reasons: the controller's, an attestor's, and faulty ones."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from typing import Any

import pytest

from attestors.contract import AttestorDescription, Freshness, ReasonExplanation, Security
from attestors.registry import Registry
from attestors.wire.names import ENTRY_POINT_GROUP
from signer.explain.explanation import _explanations_of

OWN = ReasonExplanation("the chip is another", "see to the chip")


class Explaining:
    """An attestor that returns a given explanation, or raises a given error."""

    description = AttestorDescription("explaining", Security.SECURE, ("v1",), Freshness.TIMESTAMP)

    def __init__(self, explanations: object) -> None:
        self._explanations = explanations

    def server_plugin(self, settings: Any) -> Any:
        raise NotImplementedError

    agent_plugin = server_plugin

    def explanations(self) -> Any:
        if isinstance(self._explanations, BaseException):
            raise self._explanations
        return self._explanations


def registry(explanations: object, monkeypatch: pytest.MonkeyPatch) -> Registry:
    monkeypatch.setitem(globals(), "explaining", Explaining(explanations))
    return Registry([EntryPoint("explaining", f"{__name__}:explaining", ENTRY_POINT_GROUP)])


def test_an_attestor_explains_its_own_reasons(monkeypatch: pytest.MonkeyPatch) -> None:
    found = _explanations_of("explaining", registry({"OtherChip": OWN, "MachineNotFound": OWN}, monkeypatch))
    assert found["OtherChip"] is OWN
    assert found["MachineNotFound"] is not OWN


@pytest.mark.parametrize(
    "explanations", [RuntimeError("a defect"), SystemExit(0), None, ["OtherChip"], {"OtherChip": "a text"}]
)
def test_faulty_explanations_are_ignored(explanations: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its explanations are read for each of its requests, for any reason."""
    found = _explanations_of("explaining", registry(explanations, monkeypatch))
    assert "MachineNotFound" in found
    assert "OtherChip" not in found
