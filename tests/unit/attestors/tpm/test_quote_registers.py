"""Steps 5 to 7 of ``verify_quote``: which registers were quoted, what they hold, and what they may hold."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace

import pytest

from attestors.tpm.constants import HashAlgorithm
from attestors.tpm.quote import OtherPCRSelection, OtherPCRValues, PCRNotAllowed, PCRPolicy
from attestors.tpm.selection import PCR, PCRSelection
from tests.unit.attestors.tpm.support import SELECTION, evidence_of, statement_of, value_of, values_of

PCR_7 = PCR(HashAlgorithm.SHA256, 7)


class TestSelection:
    """Step 5: which registers were quoted is what the TPM signed."""

    @pytest.mark.parametrize(
        "text",
        [
            pytest.param("sha256:0,1,8", id="relabelled"),
            pytest.param("sha256:0,1", id="fewer"),
            pytest.param("sha256:0,1,7,8", id="more"),
            pytest.param("sha384:0,1,7", id="other-bank"),
            pytest.param("sha256:0,1,7+sha384:0", id="one-more-bank"),
        ],
    )
    def test_another_one_than_asked_for_is_refused(self, text: str) -> None:
        with pytest.raises(OtherPCRSelection, match="was requested"):
            evidence_of().verify(PCRSelection.parse(text))

    def test_the_order_of_banks_counts(self) -> None:
        evidence = evidence_of(selection=PCRSelection.parse("sha256:0+sha384:0"))
        with pytest.raises(OtherPCRSelection):
            evidence.verify(PCRSelection.parse("sha384:0+sha256:0"))

    def test_the_values_of_other_registers_cannot_be_passed_off(self) -> None:
        """Debug registers that anybody may set, quoted in place of the firmware's: the digest is right."""
        debug = PCRSelection.parse("sha256:16,17,18")
        quote = replace(statement_of(), selection=debug).encode()
        with pytest.raises(OtherPCRSelection, match=r"covers sha256:16,17,18, but sha256:0,1,7"):
            evidence_of(mangle=lambda _: quote).verify()


class TestValues:
    """Step 6."""

    @pytest.mark.parametrize(
        "change",
        [
            pytest.param(lambda values: values[:32] + bytes(32) + values[64:], id="one-other"),
            pytest.param(lambda values: values[32:64] + values[:32] + values[64:], id="swapped"),
            pytest.param(lambda values: values[:-1] + b"\0", id="last-byte"),
            pytest.param(lambda values: bytes(96), id="zeros"),
        ],
    )
    def test_other_values_are_refused(self, change: Callable[[bytes], bytes]) -> None:
        evidence = evidence_of()
        with pytest.raises(OtherPCRValues, match="do not hash"):
            replace(evidence, pcr_values=change(evidence.pcr_values)).verify()

    @pytest.mark.parametrize(
        "values",
        [
            pytest.param(b"", id="none"),
            pytest.param(values_of(SELECTION)[:-32], id="one-missing"),
            pytest.param(values_of(SELECTION)[:-1], id="cut"),
            pytest.param(values_of(SELECTION) + bytes(32), id="one-more"),
            pytest.param(values_of(SELECTION) + b"\0", id="a-byte-more"),
        ],
    )
    def test_missing_and_additional_values_are_refused(self, values: bytes) -> None:
        """Signed over just these values, so that only their number is wrong."""
        quote = replace(statement_of(), pcr_digest=hashlib.sha256(values).digest()).encode()
        evidence = evidence_of(mangle=lambda _: quote)
        with pytest.raises(OtherPCRValues, match="the values of sha256:0,1,7 have 96 bytes"):
            replace(evidence, pcr_values=values).verify()

    @pytest.mark.parametrize("other", [HashAlgorithm.SHA384, HashAlgorithm.SHA512])
    def test_a_digest_of_another_hash_than_the_signatures_is_refused(self, other: HashAlgorithm) -> None:
        quote = statement_of(digest_hash=other).encode()
        with pytest.raises(OtherPCRValues):
            evidence_of(mangle=lambda _: quote).verify()

    @pytest.mark.parametrize("size", [0, 16, 31])
    def test_the_beginning_of_a_digest_is_refused(self, size: int) -> None:
        quote = replace(statement_of(), pcr_digest=statement_of().pcr_digest[:size]).encode()
        with pytest.raises(OtherPCRValues):
            evidence_of(mangle=lambda _: quote).verify()


class TestPolicy:
    """Step 7."""

    def test_allowed_values_pass(self) -> None:
        evidence_of().verify(pcr_policy=PCRPolicy({PCR_7: frozenset({bytes(32), value_of(PCR_7)})}))

    def test_other_values_are_refused(self) -> None:
        with pytest.raises(PCRNotAllowed, match="PCR sha256:7 has a value"):
            evidence_of().verify(pcr_policy=PCRPolicy({PCR_7: frozenset({bytes(32)})}))

    def test_each_register_counts(self) -> None:
        good = {pcr: frozenset({value_of(pcr)}) for pcr in SELECTION.registers()}
        evidence_of().verify(pcr_policy=PCRPolicy(good))
        for pcr in good:
            with pytest.raises(PCRNotAllowed, match=f"PCR {pcr} has"):
                evidence_of().verify(pcr_policy=PCRPolicy({**good, pcr: frozenset({bytes(32)})}))

    @pytest.mark.parametrize(
        "pcr", [PCR(HashAlgorithm.SHA256, 2), PCR(HashAlgorithm.SHA384, 7)], ids=["register", "bank"]
    )
    def test_a_register_that_was_not_quoted_is_refused(self, pcr: PCR) -> None:
        with pytest.raises(PCRNotAllowed, match=f"names PCR {pcr}, which was not quoted"):
            evidence_of().verify(pcr_policy=PCRPolicy({pcr: frozenset({value_of(pcr)})}))

    @pytest.mark.parametrize("digests", [frozenset(), frozenset({b""}), frozenset({bytes(32), bytes(48)})])
    def test_a_policy_that_nothing_or_anything_satisfies_is_refused(self, digests: frozenset[bytes]) -> None:
        with pytest.raises(ValueError, match="PCR sha256:7 must name at least one digest, each of 32 bytes"):
            PCRPolicy({PCR_7: digests})

    def test_a_policy_cannot_be_changed_later(self) -> None:
        allowed = {PCR_7: frozenset({bytes(32)})}
        policy = PCRPolicy(allowed)
        allowed.clear()
        with pytest.raises(PCRNotAllowed):
            evidence_of().verify(pcr_policy=policy)


def test_refusals_hold_no_evidence() -> None:
    evidence = evidence_of()
    with pytest.raises(OtherPCRValues) as refused:
        replace(evidence, pcr_values=bytes(96)).verify()
    assert evidence.pcr_values.hex() not in str(refused.value)
    assert str(refused.value).isprintable()
