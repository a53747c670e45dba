"""An attestor's code does not end the program: its ``sys.exit()`` would be the exit code of a node that has joined."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NoReturn, cast

import pytest

from attestors.contract import AttestorDescription, NodeHalf, Security
from attestors.registry import Registry
from attestors.wire.names import Purpose
from authenticator.configuration import Configuration
from authenticator.flow.evidence import Attestation
from authenticator.model.failures import ExitCode, NoEvidence
from tests.unit.authenticator.builders import SUBJECT, key_pem

DESCRIPTION: Final = AttestorDescription("keyed-mac", Security.SECURE, ("v1",), renews=True, serves=True)


def ends(*_arguments: Any) -> NoReturn:
    """As a command's own code does that became an attestor."""
    sys.exit(0)


def load() -> object:
    attestor = SimpleNamespace(description=DESCRIPTION, node_half=ends)
    registry = cast("Registry", SimpleNamespace(load=lambda provider: attestor))
    nowhere = Path("/nowhere")
    configuration = Configuration("keyed-mac", {}, "worker-1", "", nowhere, nowhere, nowhere, 1.0, None, None)
    return Attestation.of(configuration, registry)


def attestation() -> Attestation:
    return Attestation(DESCRIPTION, cast("NodeHalf", SimpleNamespace(provider_id=ends, gather=ends)), "")


def gather() -> object:
    return attestation().pending_request(
        SUBJECT, key_pem(), purpose=Purpose.CLIENT, evidence_version="v1", tried=(), challenge=""
    )


@pytest.mark.parametrize("run", [load, lambda: attestation().provider_id(), gather], ids=["load", "find", "gather"])
def test_an_attestor_that_exits_is_one_without_evidence(run: Any) -> None:
    with pytest.raises(NoEvidence, match=r"^attestor keyed-mac called sys\.exit\(\)") as failed:
        run()
    assert failed.value.exit_code is ExitCode.NO_EVIDENCE
