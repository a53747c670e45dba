"""The agent plugin: gathers each part with its own settings, and gives a challenge to the part that it is for."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import pytest
from keyed_mac.keys import derive_machine_key

from attestors.composite import CompositeAttestor, plugin
from attestors.composite.wire import join_challenge
from attestors.contract import (
    AttestorDescription,
    EvidenceUnavailable,
    Freshness,
    GatherRequest,
    InvalidSettings,
    Security,
)
from attestors.wire.binding import CACertHash
from attestors.wire.evidence import Evidence
from attestors.wire.names import Purpose
from tests.support.attestors import RegistryWith
from tests.unit.attestors.composite.support import BINDING, MASTER_KEY
from tests.unit.attestors.support import CLUSTER, PROVIDER_ID

MACHINE_KEY = base64.b64encode(derive_machine_key(MASTER_KEY, PROVIDER_ID)).decode("ascii")
MAC = {"keyed-mac.machine-key": MACHINE_KEY, "keyed-mac.provider-id": PROVIDER_ID}


@dataclass
class ChipAttestor:
    """Answers challenges, and knows no provider ID unless the test says one."""

    said: str = ""
    evidence: Any = None
    settings: list[Mapping[str, str]] = field(default_factory=list)
    challenges: list[str] = field(default_factory=list)
    description = AttestorDescription("chip", Security.SECURE, ("v1",), Freshness.CHALLENGE)

    def agent_plugin(self, settings: Mapping[str, str]) -> Any:
        """See the contract."""
        self.settings.append(dict(settings))
        if "wrong" in settings:
            raise InvalidSettings("wrong is unknown")
        return self

    def server_plugin(self, settings: Any) -> Any:
        """No test asks."""
        raise AssertionError

    def provider_id(self) -> str:
        """See the contract."""
        if not self.said:
            raise EvidenceUnavailable("a chip does not know it")
        return self.said

    def gather(self, request: GatherRequest) -> Any:
        """See the contract."""
        self.challenges.append(request.challenge)
        if self.evidence == "unavailable":
            raise EvidenceUnavailable("no chip")
        if self.evidence is not None:
            return self.evidence
        return Evidence("v1", CACertHash(request.cluster), MappingProxyType({"binding": request.binding.value.hex()}))


class SecondChipAttestor(ChipAttestor):
    """Another one."""

    description = AttestorDescription("second-chip", Security.SECURE, ("v1",), Freshness.CHALLENGE)


def agent(chip: ChipAttestor, **settings: str) -> Any:
    given = {"attestors": "keyed-mac,chip", **MAC, **{f"chip.{name}": value for name, value in settings.items()}}
    return CompositeAttestor(lambda: RegistryWith(chip)).agent_plugin(given)


def gather(made: Any, challenge: str = "", version: str = "v1") -> Evidence:
    evidence = made.gather(GatherRequest(BINDING, CLUSTER.text, version, Purpose.CLIENT, challenge))
    assert isinstance(evidence, Evidence)
    return evidence


def test_each_part_has_its_own_settings_and_the_same_binding() -> None:
    chip = ChipAttestor()
    evidence = gather(agent(chip, tcti="device"))
    assert chip.settings == [{"tcti": "device"}]
    assert list(evidence.fields) == ["chip.binding", "keyed-mac.mac", "keyed-mac.madeAt"]
    assert evidence.fields["chip.binding"] == BINDING.value.hex()
    assert evidence.cluster == CLUSTER


def test_a_challenge_goes_to_the_part_that_it_is_for() -> None:
    """keyed-mac refuses to gather with a challenge."""
    chip = ChipAttestor()
    gather(agent(chip), join_challenge("chip", "open this"))
    assert chip.challenges == ["open this"]


@pytest.mark.parametrize("challenge", [join_challenge("keyed-mac", "c"), join_challenge("tpm", "c"), "c"])
def test_a_challenge_for_another_part(challenge: str) -> None:
    chip = ChipAttestor()
    with pytest.raises(EvidenceUnavailable, match="challenge"):
        gather(agent(chip), challenge)
    assert chip.challenges == []


def test_provider_ids() -> None:
    assert agent(ChipAttestor()).provider_id() == PROVIDER_ID
    assert agent(ChipAttestor(PROVIDER_ID)).provider_id() == PROVIDER_ID
    with pytest.raises(EvidenceUnavailable, match="chip says other:///1, keyed-mac says"):
        agent(ChipAttestor("other:///1")).provider_id()
    chips = CompositeAttestor(lambda: RegistryWith(ChipAttestor(), SecondChipAttestor()))
    made = chips.agent_plugin({"attestors": "chip,second-chip"})
    with pytest.raises(EvidenceUnavailable, match="none of chip, second-chip gives this machine's provider ID"):
        made.provider_id()


@pytest.mark.parametrize(
    ("evidence", "message"),
    [
        ("unavailable", "chip: no chip"),
        ({"x": "y"}, "chip made no evidence v1 with fields"),
        (Evidence("v2", CLUSTER, {"x": "y"}), "chip made no evidence v1 with fields"),
        (Evidence("v1", CLUSTER, {}), "chip made no evidence v1 with fields"),
    ],
)
def test_a_part_that_gives_no_evidence(evidence: Any, message: str) -> None:
    with pytest.raises(EvidenceUnavailable, match=message):
        gather(agent(ChipAttestor(evidence=evidence)))


def test_another_version() -> None:
    with pytest.raises(EvidenceUnavailable, match="writes evidence v1 only"):
        gather(agent(ChipAttestor()), version="v2")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "attestors: a provider name is|attestors must name 2 or 3 attestors"),
        ({"attestors": "keyed-mac", **MAC}, "attestors must name 2 or 3 attestors"),
        ({"attestors": "keyed-mac,keyed-mac", **MAC}, "attestors names an attestor twice"),
        ({"attestors": "keyed-mac,insecure", **MAC}, "insecure cannot be a part"),
        ({"attestors": "keyed-mac,composite", **MAC}, "composite cannot be a part"),
        ({"attestors": "keyed-mac, tpm", **MAC}, "a provider name is"),
        ({"attestors": "keyed-mac,elsewhere", **MAC}, "'elsewhere' is not installed"),
        ({"attestors": "keyed-mac,gcp", "provider-id": "x", **MAC}, "has no setting 'provider-id'"),
        ({"attestors": "keyed-mac,gcp", "tpm.tcti": "x", **MAC}, "has no setting 'tpm.tcti'"),
        ({"attestors": "keyed-mac,gcp", "keyed-mac.machine-key": "x"}, "keyed-mac: "),
    ],
)
def test_settings_that_are_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidSettings, match=message):
        plugin.agent_plugin(settings)
