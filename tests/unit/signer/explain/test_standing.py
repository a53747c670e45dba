"""Explanations ask the wrapped attestor about recorded identities, live and offline."""

from __future__ import annotations

from typing import Any

import pytest

from attestors.contract import AttestedBefore, AttestorSettings, Denied, DeniesIdentities, StillAllowed
from attestors.registry import Registry
from signer.explain.offline import OfflineRegistry
from signer.explain.recorded_calls import NotingRegistry
from tests.unit.attestors.composite.support import MASTER_KEY_TEXT
from tests.unit.attestors.tpm.fixtures import CHIP, OTHER

DENIED = {"allowUncertifiedEndorsementKeys": True, "deniedEndorsementKeys": [CHIP.fingerprint]}


def plugin_of(registry: Registry, provider: str, **operator: Any) -> Any:
    return registry.load(provider).server_plugin(AttestorSettings(operator))


@pytest.mark.parametrize("kind", [NotingRegistry, OfflineRegistry])
def test_what_the_wrapped_plugin_answers(kind: type[Registry]) -> None:
    plugin = plugin_of(kind(), "tpm", **DENIED)
    assert isinstance(plugin, DeniesIdentities)
    answers = [plugin.standing_of(AttestedBefore(f"tpm:{chip.fingerprint}")) for chip in (CHIP, OTHER)]
    assert isinstance(answers[0], Denied)
    assert (answers[0].reason, answers[1]) == ("EndorsementKeyDenied", StillAllowed())


@pytest.mark.parametrize("kind", [NotingRegistry, OfflineRegistry])
def test_a_plugin_that_denies_no_identities(kind: type[Registry]) -> None:
    plugin = plugin_of(kind(), "keyed-mac", masterKey=MASTER_KEY_TEXT)
    assert plugin.standing_of(AttestedBefore("keyed-mac:0")) == StillAllowed()
