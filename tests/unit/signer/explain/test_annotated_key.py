"""The command that corrects a Machine's annotation, and where it is not offered."""

from __future__ import annotations

import shlex
from dataclasses import replace

import pytest

from attestors.wire.names import ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION
from signer.explain.annotated_key import REASON, AnnotatedKey, NoAnnotatedKey, annotated_key
from tests.unit.signer.builders import CLUSTER, machine_view

KEPT, SHOWN = (f"sha256:{digit * 64}" for digit in "ab")
MACHINE = replace(machine_view(), annotations=((ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION, KEPT),))
MESSAGE = f"by its annotation, Machine {MACHINE.name} has another TPM than {SHOWN}"


@pytest.mark.parametrize("message", [MESSAGE, f"tpm: {MESSAGE}"])
def test_both_fingerprints_and_the_command(message: str) -> None:
    found = annotated_key(REASON, message, CLUSTER, MACHINE)
    assert isinstance(found, AnnotatedKey)
    assert KEPT in found.note
    assert SHOWN in found.note
    words = shlex.split(found.commands[1], comments=True)
    assert words[:4] == ["kubectl", "annotate", "machine", MACHINE.name]
    assert words[-1] == f"{ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION}={SHOWN}"
    assert found.commands[1].endswith("# only if the machine is the right one")


def test_a_key_in_pem_is_not_printed() -> None:
    machine = replace(MACHINE, annotations=((ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION, "-----BEGIN PUBLIC KEY-----"),))
    found = annotated_key(REASON, MESSAGE, CLUSTER, machine)
    assert isinstance(found, AnnotatedKey)
    assert "is a public key in PEM; the TPM" in found.note


@pytest.mark.parametrize(
    ("reason", "message"),
    [
        ("AnotherReason", MESSAGE),
        (REASON, MESSAGE.replace(MACHINE.name, "another")),
        (REASON, f"by its annotation, the InfraMachine of Machine {MACHINE.name} has another TPM than {SHOWN}"),
        (REASON, f"{MESSAGE} $(reboot)"),
        (REASON, f"Machine {MACHINE.name} first came with another TPM than {SHOWN}"),
    ],
)
def test_no_annotation_is_corrected_that_nothing_contradicts(reason: str, message: str) -> None:
    assert annotated_key(reason, message, CLUSTER, MACHINE) == NoAnnotatedKey()
    assert annotated_key(REASON, MESSAGE, CLUSTER, None) == NoAnnotatedKey()
    pool = replace(MACHINE, kind="MachinePool")
    assert annotated_key(REASON, MESSAGE, CLUSTER, pool) == NoAnnotatedKey()
