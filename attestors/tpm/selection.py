"""Selections of platform configuration registers (PCRs): TPML_PCR_SELECTION, and its text form ``sha256:0,1,7``.

A quote's digest does not identify its registers; only the selection that is signed with it does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from attestors.tpm import constants as tpm
from attestors.tpm.constants import HashAlgorithm
from attestors.tpm.reader import Reader

_BANK_TEXT: Final = re.compile(r"(sha256|sha384|sha512):((?:0|[1-9][0-9]?)(?:,(?:0|[1-9][0-9]?))*)")


class InvalidPCRSelection(ValueError):
    """The selection cannot be quoted: empty, out of order, repeated or out of range; the message says which."""


@dataclass(frozen=True, slots=True)
class PCR:
    """One register of one bank."""

    bank: HashAlgorithm
    index: int

    def __str__(self) -> str:
        return f"{self.bank.text}:{self.index}"


@dataclass(frozen=True, slots=True)
class PCRBankSelection:
    """TPMS_PCR_SELECTION (Part 2, 10.6.2): registers of one bank, ascending."""

    bank: HashAlgorithm
    indices: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.indices:
            raise InvalidPCRSelection(f"bank {self.bank.text} is selected without any PCR")
        if list(self.indices) != sorted(set(self.indices)):
            raise InvalidPCRSelection(f"the PCRs of bank {self.bank.text} are not ascending, each once")
        if self.indices[0] < 0 or self.indices[-1] >= tpm.PCR_COUNT:
            raise InvalidPCRSelection(f"a PCR is 0 to {tpm.PCR_COUNT - 1}")


@dataclass(frozen=True, slots=True)
class PCRSelection:
    """TPML_PCR_SELECTION (Part 2, 10.9.7): at least one bank, each once, in hash order."""

    banks: tuple[PCRBankSelection, ...]

    def __post_init__(self) -> None:
        if not self.banks:
            raise InvalidPCRSelection("no PCR is selected")
        if len({selected.bank for selected in self.banks}) != len(self.banks):
            raise InvalidPCRSelection("a bank is selected twice")

    @classmethod
    def parse(cls, text: str) -> PCRSelection:
        """Parse the text form of tpm2-tools: ``sha256:0,1,7``, several banks joined by ``+``.

        Raises:
            InvalidPCRSelection: anything else, or a selection that cannot be quoted.
        """
        banks = []
        for part in text.split("+"):
            matched = _BANK_TEXT.fullmatch(part)
            if matched is None:
                raise InvalidPCRSelection(
                    "a PCR selection is a bank (sha256, sha384 or sha512), a colon and PCR numbers, such as sha256:0,7"
                )
            indices = tuple(int(index) for index in matched[2].split(","))
            banks.append(PCRBankSelection(HashAlgorithm[matched[1].upper()], indices))
        return cls(tuple(banks))

    def __str__(self) -> str:
        return "+".join(
            f"{selected.bank.text}:{','.join(str(index) for index in selected.indices)}" for selected in self.banks
        )

    def registers(self) -> Iterator[PCR]:
        """Every selected register, in hash order."""
        for selected in self.banks:
            for index in selected.indices:
                yield PCR(selected.bank, index)

    def encode(self) -> bytes:
        """TPML_PCR_SELECTION."""
        encoded = len(self.banks).to_bytes(4, "big")
        for selected in self.banks:
            bits = sum(1 << index for index in selected.indices)
            encoded += selected.bank.value.to_bytes(2, "big") + tpm.PCR_SELECT_BYTES.to_bytes(1, "big")
            encoded += bits.to_bytes(tpm.PCR_SELECT_BYTES, "little")
        return encoded


def read_selection(reader: Reader) -> PCRSelection:
    """Parse TPML_PCR_SELECTION.

    TPMs return what they were asked for: each bank once, with a three-byte bitmap. Any other encoding of the same
    selection, or of an empty one, is rejected.

    Raises:
        MalformedStructure: another form, an unknown bank, SHA-1, a bank without PCRs or repeated, no bank.
    """
    count = reader.integer(4, "pcrSelect count")
    if count > tpm.MAXIMUM_PCR_BANKS:
        raise reader.malformed(f"pcrSelect has more than {tpm.MAXIMUM_PCR_BANKS} banks")
    try:
        return PCRSelection(tuple(_read_bank(reader) for _ in range(count)))
    except InvalidPCRSelection as error:
        raise reader.malformed(f"pcrSelect: {error}") from error


def _read_bank(reader: Reader) -> PCRBankSelection:
    bank = read_hash(reader, "pcrSelect")
    if reader.integer(1, "sizeofSelect") != tpm.PCR_SELECT_BYTES:
        raise reader.malformed(f"sizeofSelect is not {tpm.PCR_SELECT_BYTES}")
    bits = int.from_bytes(reader.octets(tpm.PCR_SELECT_BYTES, "pcrSelect"), "little")
    return PCRBankSelection(bank, tuple(index for index in range(tpm.PCR_COUNT) if bits >> index & 1))


def read_hash(reader: Reader, field: str) -> HashAlgorithm:
    """Parse TPMI_ALG_HASH.

    Raises:
        MalformedStructure: SHA-1, or an unknown algorithm.
    """
    identifier = reader.integer(2, field)
    if identifier == tpm.TPM_ALG_SHA1:
        raise reader.malformed(f"{field} uses SHA-1, which is refused")
    try:
        return HashAlgorithm(identifier)
    except ValueError:
        raise reader.malformed(f"{field} has the unknown hash algorithm {identifier:#06x}") from None
