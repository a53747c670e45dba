"""Exact, bounded decoding of what a TPM signs: TPMS_ATTEST of a quote (TPM 2.0 Library, Part 2, revision 1.59)."""

from __future__ import annotations

from dataclasses import dataclass

from attestors.tpm import constants as tpm
from attestors.tpm.reader import Reader, sized
from attestors.tpm.selection import PCRSelection, read_selection


@dataclass(frozen=True, slots=True)
class ClockInfo:
    """TPMS_CLOCK_INFO (Part 2, 10.11.1). Of a key outside of the endorsement hierarchy, both counters are obscured."""

    clock: int
    """Milliseconds for which the TPM has been powered."""
    reset_count: int
    restart_count: int
    safe: bool
    """False after power was lost without warning, which is no fault."""


@dataclass(frozen=True, slots=True)
class QuoteStatement:
    """TPMS_ATTEST of a quote (Part 2, 10.12.8 and 10.12.1): what the TPM signed. Worth nothing without a signature."""

    qualified_signer: bytes
    extra_data: bytes
    clock_info: ClockInfo
    firmware_version: int
    """Obscured like the counters."""
    selection: PCRSelection
    pcr_digest: bytes

    def encode(self) -> bytes:
        """TPMS_ATTEST."""
        clock = self.clock_info
        return b"".join(
            (
                tpm.TPM_GENERATED_VALUE.to_bytes(4, "big"),
                tpm.TPM_ST_ATTEST_QUOTE.to_bytes(2, "big"),
                sized(self.qualified_signer),
                sized(self.extra_data),
                clock.clock.to_bytes(8, "big"),
                clock.reset_count.to_bytes(4, "big"),
                clock.restart_count.to_bytes(4, "big"),
                clock.safe.to_bytes(1, "big"),
                self.firmware_version.to_bytes(8, "big"),
                self.selection.encode(),
                sized(self.pcr_digest),
            )
        )


def decode_quote(data: bytes) -> QuoteStatement:
    """Read TPMS_ATTEST, which must be a quote.

    Raises:
        MalformedStructure: not made by a TPM, another kind of attestation, or anything else.
    """
    reader = Reader(data, "TPMS_ATTEST", maximum_bytes=tpm.MAXIMUM_ATTEST_BYTES)
    if reader.integer(4, "magic") != tpm.TPM_GENERATED_VALUE:
        raise reader.malformed("magic is not TPM_GENERATED_VALUE: no TPM made this")
    if reader.integer(2, "type") != tpm.TPM_ST_ATTEST_QUOTE:
        raise reader.malformed("type is not TPM_ST_ATTEST_QUOTE: this is no quote")
    qualified_signer = reader.sized("qualifiedSigner", maximum_bytes=tpm.MAXIMUM_NAME_BYTES)
    extra_data = reader.sized("extraData", maximum_bytes=tpm.MAXIMUM_EXTRA_DATA_BYTES)
    clock_info = _read_clock_info(reader)
    firmware_version = reader.integer(8, "firmwareVersion")
    selection = read_selection(reader)
    pcr_digest = reader.sized("pcrDigest", maximum_bytes=tpm.MAXIMUM_DIGEST_BYTES)
    reader.finish()
    return QuoteStatement(qualified_signer, extra_data, clock_info, firmware_version, selection, pcr_digest)


def _read_clock_info(reader: Reader) -> ClockInfo:
    clock = reader.integer(8, "clockInfo.clock")
    reset_count = reader.integer(4, "clockInfo.resetCount")
    restart_count = reader.integer(4, "clockInfo.restartCount")
    safe = reader.integer(1, "clockInfo.safe")
    if safe not in (0, 1):
        raise reader.malformed("clockInfo.safe is neither 0 nor 1")
    return ClockInfo(clock, reset_count, restart_count, bool(safe))
