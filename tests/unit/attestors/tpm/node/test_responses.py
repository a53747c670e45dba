"""What a TPM answers becomes a sentence that a person can act on."""

from __future__ import annotations

import pytest

from attestors.tpm.node.responses import RETRIED, TPMRefused, tpm_code

MEANING = "what the library says"


@pytest.mark.parametrize(
    ("response", "sentence"),
    [
        (0x01E, "TPM 1.2, and a TPM 2.0 is needed"),
        (0x080001, "TPM 1.2, and a TPM 2.0 is needed"),
        (0x085, "its endorsement hierarchy is disabled"),
        (0x185, "its endorsement hierarchy is disabled"),
        (0x0B0185, "its endorsement hierarchy is disabled"),
        (0x98E, "the endorsement hierarchy has a password"),
        (0x9A2, "the endorsement hierarchy has a password"),
        (0x12F, "the endorsement hierarchy has a password"),
        (0x99D, "choose another key with the setting ek"),
        (0x100, "it was not started (TPM2_Startup)"),
        (0x101, "failure mode: restart the machine"),
        (0x120, "check the firmware's settings"),
        (0x12D, "firmware upgrade"),
        (0x130, "needs a reset: restart the machine"),
        (0x143, "does not know the command"),
        (0x901, "tcti device:/dev/tpmrm0"),
        (0x902, "tpm2_flushcontext"),
        (0x903, "tpm2_flushcontext"),
        (0x904, "tpm2_flushcontext"),
        (0x905, "tpm2_flushcontext"),
        (0x906, "tpm2_flushcontext"),
        (0x908, "it stayed busy: retry later"),
        (0x90A, "it stayed busy: retry later"),
        (0x920, "it stayed busy: retry later"),
        (0x921, "locked after too many wrong passwords"),
        (0x922, "it stayed busy: retry later"),
        (0x923, "NV memory is unavailable now"),
        (0x0A000A, "the connection to it broke (what the library says)"),
        (0x084, "what the library says (response code 0x84)"),
        (0x070001, "what the library says (response code 0x70001)"),
    ],
)
def test_sentence(response: int, sentence: str) -> None:
    refused = str(TPMRefused("quote its PCRs", response, MEANING))
    assert refused.startswith("the TPM did not quote its PCRs: ")
    assert sentence in refused


@pytest.mark.parametrize(
    ("response", "code"),
    [
        (0x084, 0x084),
        (0x1C4, 0x084),  # parameter 1
        (0x7C4, 0x084),  # parameter 7
        (0x184, 0x084),  # handle 1
        (0x984, 0x084),  # session 1
        (0x922, 0x922),
        (0x0B0922, 0x922),  # a resource manager in the TPM's place
        (0x0A000A, None),
        (0x060084, None),
        (0x0C0902, None),
    ],
)
def test_code_without_what_it_is_about(response: int, code: int | None) -> None:
    assert tpm_code(response) == code


def test_what_is_tried_again() -> None:
    assert {0x908, 0x90A, 0x920, 0x922} == RETRIED
