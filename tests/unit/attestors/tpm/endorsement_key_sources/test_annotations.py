"""The annotation on the Machine, and on its InfraMachine."""

from __future__ import annotations

from typing import Any

import pytest

from attestors.contract import NoClaimedMachine, NotThere
from attestors.tpm.endorsement_key_sources import (
    InfrastructureMachineAnnotation,
    KeyConfirmed,
    KeyContradicted,
    MachineAnnotation,
    NoInformation,
    SourceName,
    Unclear,
)
from attestors.wire.names import ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION
from tests.unit.attestors.tpm.endorsement_key_sources.support import (
    CHIP,
    NOT_VERIFIED,
    OTHER,
    Cluster,
    annotated,
    at_once,
    machine,
    request,
)

SOURCES = ["Machine", "InfraMachine"]


def ask(source: str, said: str | None) -> Any:
    if source == "Machine":
        # The InfraMachine's says the contrary, and is not asked.
        return at_once(MachineAnnotation().ask(request(machine(said)), CHIP.key, NOT_VERIFIED))
    asked = request(machine(OTHER.fingerprint), Cluster(annotated(said)))
    return at_once(InfrastructureMachineAnnotation().ask(asked, CHIP.key, NOT_VERIFIED))


@pytest.mark.parametrize("said", [CHIP.fingerprint, CHIP.pem], ids=["digest", "pem"])
def test_the_machines_own(said: str) -> None:
    assert ask("Machine", said) == KeyConfirmed(SourceName.MACHINE_ANNOTATION)
    assert ask("InfraMachine", said) == KeyConfirmed(SourceName.INFRASTRUCTURE_MACHINE_ANNOTATION)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("said", [OTHER.fingerprint, OTHER.pem, "sha256:" + "0" * 64], ids=["digest", "pem", "nobodys"])
def test_another_machines(source: str, said: str) -> None:
    found = ask(source, said)
    assert isinstance(found, KeyContradicted)
    assert found.message.startswith("by its annotation, ")
    assert found.message.endswith("Machine worker-1 has another TPM")
    assert ("InfraMachine" in found.message) == (source == "InfraMachine")


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("said", ["", "anything", CHIP.fingerprint.upper(), f"{CHIP.fingerprint}\n"], ids=range(4))
def test_a_malformed_annotation_is_unclear(source: str, said: str) -> None:
    """It must not deny an honest machine, nor let the next source decide."""
    found = ask(source, said)
    assert isinstance(found, Unclear)
    assert "is neither sha256: with 64" in found.message
    assert "worker-1" in found.message
    assert len(said) < 10 or said not in found.message


@pytest.mark.parametrize("source", SOURCES)
def test_no_annotation(source: str) -> None:
    found = ask(source, None)
    assert isinstance(found, NoInformation)
    assert f"Machine worker-1 has no annotation {ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION}" in found.message


def test_only_that_annotation_says_it() -> None:
    said = annotated(CHIP.fingerprint, ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION.upper())
    asked = request(machine(), Cluster(said))
    assert isinstance(at_once(InfrastructureMachineAnnotation().ask(asked, CHIP.key, NOT_VERIFIED)), NoInformation)


@pytest.mark.parametrize("source", [MachineAnnotation(), InfrastructureMachineAnnotation()], ids=SOURCES)
def test_without_a_machine_there_is_nothing_to_look_at(
    source: MachineAnnotation | InfrastructureMachineAnnotation,
) -> None:
    cluster = Cluster(annotated(CHIP.fingerprint))
    found = at_once(source.ask(request(NoClaimedMachine(), cluster), CHIP.key, NOT_VERIFIED))
    assert isinstance(found, NoInformation)
    assert cluster.asked == []


def test_an_infrastructure_machine_that_cannot_be_looked_at_is_unclear() -> None:
    """Perhaps it says that this is another machine's TPM."""
    asked = request(machine(), Cluster(NotThere("the controller may not get testmachines")))
    found = at_once(InfrastructureMachineAnnotation().ask(asked, CHIP.key, NOT_VERIFIED))
    assert found == Unclear("the controller may not get testmachines")


def test_an_outage_is_no_answer() -> None:
    asked = request(machine(), Cluster(ConnectionError()))
    with pytest.raises(ConnectionError):
        at_once(InfrastructureMachineAnnotation().ask(asked, CHIP.key, NOT_VERIFIED))
