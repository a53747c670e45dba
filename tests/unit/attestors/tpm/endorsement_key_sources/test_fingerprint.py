from __future__ import annotations

import base64

import pytest

from attestors.tpm.endorsement_key_sources.fingerprint import NoFingerprint, fingerprint, identity, read_fingerprint
from signer.authority.der import bit_string, object_identifier, sequence
from tests.support.cpu_time import within_cpu_seconds
from tests.unit.attestors.tpm.endorsement_key_sources.support import CHIP, OTHER
from tests.unit.attestors.tpm.fake_tpm import FakeTPM


def key_in_pem(information: bytes) -> str:
    return f"-----BEGIN PUBLIC KEY-----\n{base64.b64encode(information).decode()}\n-----END PUBLIC KEY-----\n"


def test_it_is_of_the_public_key() -> None:
    assert fingerprint(CHIP.key) == CHIP.fingerprint
    assert fingerprint(CHIP.key) != fingerprint(OTHER.key)
    assert identity(CHIP.key) == f"tpm:{CHIP.fingerprint}"


@pytest.mark.parametrize("chip", [CHIP, FakeTPM.new(title="L-1")], ids=["ecc", "rsa"])
@pytest.mark.parametrize("form", ["digest", "pem", "pem-without-last-line-end", "pem-with-carriage-returns"])
def test_people_write_it_in_these_forms(chip: FakeTPM, form: str) -> None:
    said = {
        "digest": chip.fingerprint,
        "pem": chip.pem,
        "pem-without-last-line-end": chip.pem.rstrip(),
        "pem-with-carriage-returns": chip.pem.replace("\n", "\r\n"),
    }[form]
    assert read_fingerprint(said) == chip.fingerprint


@pytest.mark.parametrize(
    "said",
    [
        "",
        "anything",
        "sha256:",
        CHIP.fingerprint.upper(),
        "sha256:" + CHIP.fingerprint.removeprefix("sha256:").upper(),
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
        "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
        "-----BEGIN PUBLIC KEY-----\n\n-----END PUBLIC KEY-----\n",
        "-----BEGIN PUBLIC KEY-----\nAAA\n-----END PUBLIC KEY-----\n",
        key_in_pem(sequence(sequence(object_identifier("1.2.3")), bit_string(b"key"))),
    ],
    ids=range(19),
)
def test_everything_else_is_none(said: str) -> None:
    with pytest.raises(NoFingerprint):
        read_fingerprint(said)


def test_one_made_to_be_slow_is_not() -> None:
    """Every request that claims the Machine reads it: 25 ms each, before."""
    said = "-----BEGIN PUBLIC KEY-----" + "\n" * 2000

    def read() -> None:
        for _ in range(10):
            with pytest.raises(NoFingerprint):
                read_fingerprint(said)

    within_cpu_seconds(0.1, read)
