from __future__ import annotations

import time
from types import MappingProxyType
from typing import Final

import pytest

from attestors.contract import ClaimedMachine, NoClaimedMachine
from attestors.tpm.ownership import NotSaid, Owned, OwnedByOthers, fingerprint, ownership
from attestors.wire.names import ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION
from tests.unit.attestors.tpm.paper_chip import PaperChip

CHIP: Final = PaperChip.new()
OTHER: Final = PaperChip.new(2)
RSA: Final = PaperChip.new(title="L-1")


def machine(said: str | None, key: str = ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION) -> ClaimedMachine:
    return ClaimedMachine("worker-1", MappingProxyType({} if said is None else {key: said}))


@pytest.mark.parametrize("chip", [CHIP, RSA], ids=["ecc", "rsa"])
@pytest.mark.parametrize("form", ["digest", "pem", "pem-without-last-line-end", "pem-with-carriage-returns"])
def test_the_machines_own(chip: PaperChip, form: str) -> None:
    said = {
        "digest": chip.fingerprint,
        "pem": chip.pem,
        "pem-without-last-line-end": chip.pem.rstrip(),
        "pem-with-carriage-returns": chip.pem.replace("\n", "\r\n"),
    }[form]
    assert ownership(machine(said), chip.key) == Owned()


def test_the_fingerprint_is_of_the_public_key() -> None:
    assert fingerprint(CHIP.key) == CHIP.fingerprint
    assert fingerprint(CHIP.key) != fingerprint(OTHER.key)


@pytest.mark.parametrize("said", [OTHER.fingerprint, OTHER.pem, "sha256:" + "0" * 64], ids=["digest", "pem", "nobodys"])
def test_another_machines(said: str) -> None:
    assert ownership(machine(said), CHIP.key) == OwnedByOthers("worker-1")


@pytest.mark.parametrize("body", ["AAAA", ""], ids=["other", "empty"])
def test_a_pem_that_holds_no_key_says_nothing(body: str) -> None:
    """A slip of whoever wrote it must not deny an honest machine."""
    said = f"-----BEGIN PUBLIC KEY-----\n{body}\n-----END PUBLIC KEY-----\n"
    assert isinstance(ownership(machine(said), CHIP.key), NotSaid)


@pytest.mark.parametrize(
    "said",
    [
        "",
        "anything",
        "sha256:",
        CHIP.fingerprint.upper(),
        CHIP.fingerprint.removeprefix("sha256:"),
        f" {CHIP.fingerprint}",
        f"{CHIP.fingerprint}\n",
        f"{CHIP.fingerprint},{OTHER.fingerprint}",
        CHIP.fingerprint.replace("sha256", "sha1"),
        CHIP.pem.replace("PUBLIC", "PRIVATE"),
        CHIP.pem + OTHER.pem,
        "x" + CHIP.pem,
        CHIP.pem.replace("-----END", "A-----END"),
        "-----BEGIN PUBLIC KEY----------END PUBLIC KEY-----",
    ],
    ids=range(14),
)
def test_what_cannot_be_read_says_nothing(said: str) -> None:
    found = ownership(machine(said), CHIP.key)
    assert isinstance(found, NotSaid)
    assert "is neither sha256: with 64" in found.message
    assert "worker-1" in found.message
    assert len(said) < 10 or said not in found.message


def test_nobody_has_said_it_yet() -> None:
    found = ownership(machine(None), CHIP.key)
    assert isinstance(found, NotSaid)
    assert f"Machine worker-1 has no annotation {ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION}" in found.message


def test_only_that_annotation_says_it() -> None:
    said = machine(CHIP.fingerprint, ENDORSEMENT_KEY_OF_MACHINE_ANNOTATION.upper())
    assert isinstance(ownership(said, CHIP.key), NotSaid)


def test_without_a_machine_it_is_nobodys() -> None:
    assert isinstance(ownership(NoClaimedMachine(), CHIP.key), NotSaid)


def test_an_annotation_made_to_be_slow_is_not() -> None:
    """Every request that claims the Machine reads it: 25 ms each, before."""
    said = "-----BEGIN PUBLIC KEY-----" + "\n" * 2000
    started = time.process_time()
    for _ in range(10):
        ownership(machine(said), CHIP.key)
    assert time.process_time() - started < 0.1
