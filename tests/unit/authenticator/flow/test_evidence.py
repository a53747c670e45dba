"""An attestor's code does not end the program: its ``sys.exit()`` would be the exit code of a node that has joined."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NoReturn, cast

import pytest

from attestors.contract import (
    AgentPlugin,
    AttestorDescription,
    EvidenceUnavailable,
    Freshness,
    InvalidSettings,
    Security,
)
from attestors.registry import Registry
from attestors.wire.names import PROVIDER_ID_OID, Purpose
from authenticator.configuration import Configuration
from authenticator.flow.evidence import Attestation
from authenticator.model.failures import ExitCode, InvalidConfiguration, NoEvidence
from tests.unit.authenticator.builders import SUBJECT, key_pem

DESCRIPTION: Final = AttestorDescription("keyed-mac", Security.SECURE, ("v1",), Freshness.TIMESTAMP)


def ends(*_arguments: Any) -> NoReturn:
    """As a command's own code does that became an attestor."""
    sys.exit(0)


def fails(*_arguments: Any) -> NoReturn:
    """As code does that meets what its author did not think of."""
    raise KeyError("hunter2")


def load(does: Any = ends) -> object:
    attestor = SimpleNamespace(description=DESCRIPTION, agent_plugin=does)
    registry = cast("Registry", SimpleNamespace(load=lambda provider: attestor))
    nowhere = Path("/nowhere")
    configuration = Configuration(
        "keyed-mac", {}, "worker-1", "", PROVIDER_ID_OID, nowhere, nowhere, nowhere, 1.0, None, None
    )
    return Attestation.of(configuration, registry)


def attestation(does: Any = ends) -> Attestation:
    return Attestation(
        DESCRIPTION, cast("AgentPlugin", SimpleNamespace(provider_id=does, gather=does)), "", PROVIDER_ID_OID
    )


def gather(does: Any = ends) -> object:
    return attestation(does).pending_request(
        SUBJECT, key_pem(), purpose=Purpose.CLIENT, evidence_version="v1", tried=(), challenge=""
    )


def find(does: Any = ends) -> object:
    return attestation(does).provider_id()


@pytest.mark.parametrize("run", [load, find, gather])
def test_an_attestor_that_exits_is_one_without_evidence(run: Any) -> None:
    with pytest.raises(NoEvidence, match=r"^attestor keyed-mac called sys\.exit\(\)") as failed:
        run()
    assert failed.value.exit_code is ExitCode.NO_EVIDENCE


@pytest.mark.parametrize("run", [load, find, gather])
def test_an_attestor_that_fails_is_named_and_where(run: Any) -> None:
    """Its own words may be secret, and a refusal is kept in a file."""
    with pytest.raises(NoEvidence, match=r"^attestor keyed-mac failed with KeyError at test_evidence\.py:\d+$"):
        run(fails)


@pytest.mark.parametrize(("found", "kind"), [(None, "NoneType"), (b"test://1", "bytes")])
def test_a_provider_id_that_is_no_text(found: object, kind: str) -> None:
    with pytest.raises(NoEvidence, match=f"^attestor keyed-mac returned {kind} as the provider ID"):
        find(lambda: found)


def test_an_agent_plugin_without_a_method_is_reported_before_use() -> None:
    with pytest.raises(NoEvidence, match=r"^attestor keyed-mac: its agent plugin has no provider_id$"):
        load(lambda settings: None)


@pytest.mark.parametrize(
    ("run", "kind"), [(load, InvalidSettings), (find, EvidenceUnavailable), (gather, EvidenceUnavailable)]
)
def test_what_an_attestor_says_does_nothing_to_a_terminal(run: Any, kind: type[Exception]) -> None:
    def says(*_arguments: Any) -> NoReturn:
        raise kind("the platform said\n\x1b[31m" + "x" * 100_000)

    with pytest.raises((NoEvidence, InvalidConfiguration)) as failed:
        run(says)
    said = str(failed.value)
    assert "the platform said  [31mxxx" in said
    assert said.isprintable()
    assert len(said) < 1200
