from __future__ import annotations

import re
from dataclasses import replace

import pytest

from attestors.tpm.reader import MalformedStructure
from attestors.tpm.statement import decode_quote
from tests.unit.attestors.tpm.support import CLOCK, EXTRA_DATA, SELECTION, fields_of_beginnings, statement_of


def octets(text: str) -> bytes:
    return bytes.fromhex(text)


QUOTE = (
    "ff544347 8018 0022 000b" + "11" * 32 + "0020" + EXTRA_DATA.hex() + "000000000001e240 00000007 00000001 01"
    "2019102300163636 00000001 000b 03 830000 0020" + "22" * 32
)


class TestQuote:
    def test_is_what_the_specification_says(self) -> None:
        """Written out by hand."""
        quote = decode_quote(octets(QUOTE))
        assert quote.qualified_signer == b"\x00\x0b" + b"\x11" * 32
        assert quote.extra_data == EXTRA_DATA
        assert quote.clock_info == CLOCK
        assert quote.firmware_version == 0x2019102300163636
        assert quote.selection == SELECTION
        assert quote.pcr_digest == b"\x22" * 32
        assert quote.encode() == octets(QUOTE)

    def test_round_trip(self) -> None:
        assert decode_quote(statement_of().encode()) == statement_of()

    def test_names_and_digests_may_be_of_sha512(self) -> None:
        statement = replace(statement_of(), qualified_signer=bytes(66), extra_data=bytes(66), pcr_digest=bytes(64))
        assert decode_quote(statement.encode()) == statement

    @pytest.mark.parametrize("safe", [True, False])
    def test_safe(self, safe: bool) -> None:
        statement = replace(statement_of(), clock_info=replace(CLOCK, safe=safe))
        assert decode_quote(statement.encode()) == statement

    @pytest.mark.parametrize(
        ("data", "fault"),
        [
            pytest.param("", "ends inside magic", id="nothing"),
            pytest.param(
                QUOTE.replace("ff544347", "ff544348"), "magic is not TPM_GENERATED_VALUE: no TPM made this", id="magic"
            ),
            pytest.param(
                QUOTE.replace("ff544347", "474354ff"),
                "magic is not TPM_GENERATED_VALUE: no TPM made this",
                id="byte-order",
            ),
            pytest.param(
                QUOTE.replace("8018", "8017"), "type is not TPM_ST_ATTEST_QUOTE: this is not a quote", id="certify"
            ),
            pytest.param(
                QUOTE.replace("8018", "801a"), "type is not TPM_ST_ATTEST_QUOTE: this is not a quote", id="creation"
            ),
            pytest.param(
                QUOTE.replace("8018", "8014"), "type is not TPM_ST_ATTEST_QUOTE: this is not a quote", id="nv"
            ),
            pytest.param(
                QUOTE.replace("0022 000b" + "11" * 32, "0043" + "11" * 67), "qualifiedSigner is larger", id="signer"
            ),
            pytest.param(
                QUOTE.replace("0020" + EXTRA_DATA.hex(), "0043" + "33" * 67), "extraData is larger", id="extra-data"
            ),
            pytest.param(QUOTE.replace("0001 012019", "0001 022019"), "clockInfo.safe is neither", id="safe"),
            pytest.param(QUOTE.replace("0020" + "22" * 32, "0041" + "22" * 65), "pcrDigest is larger", id="digest"),
            pytest.param(QUOTE.replace("000b 03", "0004 03"), "pcrSelect uses SHA-1", id="sha1-bank"),
            pytest.param(QUOTE[:-2], "ends inside pcrDigest", id="cut"),
            pytest.param(QUOTE + "00", "has bytes after its end", id="trailing-byte"),
        ],
    )
    def test_refuses_every_other_form(self, data: str, fault: str) -> None:
        with pytest.raises(MalformedStructure, match=f"^TPMS_ATTEST: {re.escape(fault)}"):
            decode_quote(octets(data))


def test_what_is_too_large_is_not_read() -> None:
    with pytest.raises(MalformedStructure, match="larger than 1024 bytes"):
        decode_quote(bytes(1025))
    with pytest.raises(MalformedStructure, match="no TPM made this"):
        decode_quote(bytes(1024))


def test_where_it_ends_too_early_is_named() -> None:
    assert fields_of_beginnings(decode_quote, octets(QUOTE)) == [
        "magic",
        "type",
        "qualifiedSigner",
        "extraData",
        "clockInfo.clock",
        "clockInfo.resetCount",
        "clockInfo.restartCount",
        "clockInfo.safe",
        "firmwareVersion",
        "pcrSelect count",
        "pcrSelect",
        "sizeofSelect",
        "pcrSelect",
        "pcrDigest",
    ]
